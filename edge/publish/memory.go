package publish

// What a stream takes beside the text of its lines: for each line that waits, its place and its answer, which is made
// when the line is stored and must have room then; and what is being delivered, twice, since transports copy it.
const (
	receiptSize = 256      // about what an answer takes, in bytes
	besidePiece = 16 << 10 // that is taken at a time
	besideFree  = 4 << 10  // that nobody counts
)

// beside returns what the stream takes beside text with so many lines more. It needs mu.
func (s *Stream) beside(more int) int64 {
	n := int64(s.lines+more)*(overhead+receiptSize) + int64(len(s.out)+2*s.sending)
	if n <= besideFree {
		return 0
	}
	return (n + besidePiece - 1) / besidePiece * besidePiece
}

// widen waits for memory for one line more. It needs mu.
func (s *Stream) widen() error {
	if s.client.Memory == nil {
		return nil
	}
	for n := s.beside(1) - s.held; n > 0; n = s.beside(1) - s.held {
		if err := s.reserve(int(n)); err != nil {
			return err
		}
		s.held += n
	}
	return nil
}

// narrow returns memory that the stream no longer needs: all of it while it waits for some, or others of its tenant
// might wait for that. It needs mu.
func (s *Stream) narrow() {
	if s.held == 0 {
		return
	}
	spare := int64(4 * besidePiece)
	if s.waits {
		spare = 0
	}
	if n := s.beside(0); n == 0 || s.held-n > spare {
		s.client.Memory.Give(s.held - n)
		s.held = n
	}
}

// keepRest adds to the beginning of a line. Its memory grows with what has come.
func (in *lineInput) keepRest(p []byte) error {
	need := len(in.rest) + len(p)
	if need <= cap(in.rest) {
		in.rest = append(in.rest, p...)
		return nil
	}
	size := max(need, min(2*cap(in.rest), in.s.cfg.MaxLine))
	if need <= besideFree {
		size = min(size, besideFree)
	}
	if more := int64(size) - in.held; size > besideFree && more > 0 {
		if err := in.wait(more); err != nil {
			return err
		}
		in.held += more
	}
	in.rest = append(append(make([]byte, 0, size), in.rest...), p...)
	return nil
}

// wait waits a little for n bytes for a line that is not whole. Those who hold such lines may wait for each other: so
// the stream ends when there is no room.
func (in *lineInput) wait(n int64) error {
	s := in.s
	if s.client.Memory == nil {
		return nil
	}
	s.mu.Lock()
	in.flush()
	s.mu.Unlock()
	return s.client.Memory.Reserve(s.ctx, n)
}

// dropRest lets go of the beginning of a line.
func (in *lineInput) dropRest() {
	if in.rest = nil; in.held > 0 && in.s.client.Memory != nil {
		in.s.client.Memory.Give(in.held)
	}
	in.held = 0
}

// Lines returns how many lines were fed, and whether another one has begun. The goroutine calls it that feeds.
func (s *Stream) Lines() (n int, begun bool) { return s.in.n, len(s.in.rest) > 0 || s.in.skip > 0 }
