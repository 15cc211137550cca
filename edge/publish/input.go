package publish

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/edge/ends"
	"agentstream/edge/limits"
	"agentstream/producers"
	"agentstream/schema"
)

// lineInput is what the goroutine knows that feeds a stream.
type lineInput struct {
	s     *Stream
	n     int    // lines so far
	rest  []byte // the beginning of a line
	held  int64  // of the client's memory, for it
	skip  int    // bytes of a line that is too large, so far; 0: there is none
	fresh []*runQueue

	meter   *limits.Meter
	entered bool
}

// maxSkipped is how much of a line that is too large is passed over before its client is taken for one that sends no
// lines, in bytes.
const maxSkipped = 8 << 20

// Feed takes bytes, in which lines begin and end anywhere, and waits while too much is unanswered. It may change p, and
// does not keep it. An error ends the stream: ErrGarbage, or what Stop was called with.
func (s *Stream) Feed(p []byte) error {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			return s.flushInput(s.in.keepStart(p))
		}
		if err := s.in.finishLine(p[:end]); err != nil {
			return s.flushInput(err)
		}
		p = p[end+1:]
	}
	return s.flushInput(nil)
}

// Message is Feed of whole lines; the last one needs no line feed.
func (s *Stream) Message(p []byte) error {
	err := s.Feed(p)
	if err == nil && (len(s.in.rest) > 0 || s.in.skip > 0) {
		err = s.flushInput(s.in.finishLine(nil))
	}
	return err
}

// Skip refuses a line that cannot be fed.
func (s *Stream) Skip(err error) error {
	s.in.n++
	return s.flushInput(s.in.refuse(nil, err))
}

// flushInput lets the workers have what was fed.
func (s *Stream) flushInput(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in.flush()
	if err == nil {
		err = s.stopped
	}
	return err
}

// keepStart keeps the beginning of a line.
func (in *lineInput) keepStart(p []byte) error {
	if in.skip == 0 && len(in.rest)+len(p) <= in.s.cfg.MaxLine {
		return in.keepRest(p)
	}
	in.skip += len(in.rest) + len(p)
	if in.dropRest(); in.skip > maxSkipped {
		in.n++
		return in.garbage(in.tooLarge())
	}
	return nil
}

// finishLine takes the end of a line.
func (in *lineInput) finishLine(p []byte) error {
	in.n++
	if in.skip > 0 {
		in.skip = 0
		return in.refuse(nil, in.tooLarge())
	}
	if len(in.rest) > 0 {
		if err := in.keepRest(p); err != nil {
			return err
		}
		defer in.restart()
		p = in.rest
	}
	if p = bytes.TrimSuffix(p, []byte{'\r'}); len(p) == 0 {
		return nil
	}
	if len(p) > in.s.cfg.MaxLine {
		return in.refuse(nil, in.tooLarge())
	}
	return in.line(p, true)
}

// restart is for the next line.
func (in *lineInput) restart() {
	if in.rest = in.rest[:0]; cap(in.rest) > keptRest {
		in.dropRest()
	}
}

// keptRest is the largest beginning of a line whose memory is used again, in bytes.
const keptRest = 1 << 10

func (in *lineInput) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", schema.ErrTooLarge, in.s.cfg.MaxLine)
}

// line takes a whole line. copied means that its bytes are copied.
func (in *lineInput) line(p []byte, copied bool) error {
	at, err := schema.ReadAddress(p)
	switch {
	case errors.Is(err, schema.ErrNoObject) && in.s.client.Deliver != nil:
		return in.garbage(err)
	case err != nil:
		return in.refuse(nil, inField(err))
	}
	if err := in.spend(len(p)); err != nil {
		return in.refuse(at.Run, err)
	}
	at0 := place{line: in.n, size: len(p) + overhead}
	post := producers.Post{Body: p}
	switch {
	case at.Key != "":
		post.Keys = []string{at.Key}
	case at.ID != nil && at.Seq > 0:
		at0.seq, at0.id = at.Seq, string(at.ID)
	case at.ID != nil:
		post.Keys = []string{"id:" + string(at.ID)}
	}
	return in.enter(at.Run, post, at0, copied)
}

// inField adds to an error of an address which field is wrong.
func inField(err error) error {
	if errors.Is(err, schema.ErrBadID) || errors.Is(err, schema.ErrNoRun) {
		return &ends.FieldError{Field: "/run_id", Err: err}
	}
	return err
}

// spend counts a line against the limits of the tenant.
func (in *lineInput) spend(size int) error {
	for {
		err := in.try(size)
		over := new(ends.LimitError)
		if err == nil || !in.s.client.Patient || !errors.As(err, &over) {
			return err
		}
		in.s.mu.Lock()
		in.flush()
		halted := in.s.haltChannel()
		in.s.mu.Unlock()
		wait := time.NewTimer(max(over.Wait, time.Millisecond))
		select {
		case <-wait.C:
		case <-halted:
			wait.Stop()
			return nil // enter returns why
		}
	}
}

func (in *lineInput) try(size int) (err error) {
	if !in.entered {
		if in.meter, err = in.s.cfg.Limits.Enter(in.s.client.Caller.Tenant, false); err != nil {
			return err
		}
		in.entered = true
	}
	return in.s.cfg.Limits.Spend(in.meter, 1, int64(size))
}

// enter puts a post behind those of its run.
func (in *lineInput) enter(run []byte, post producers.Post, at place, copied bool) error {
	s := in.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.client.Deliver != nil && s.stopped == nil &&
		(s.lines >= s.cfg.MaxLines || s.bytes >= s.cfg.MaxBytes || len(s.out) >= keptOut) {
		in.flush()
		s.change.Wait()
	}
	var err error
	if copied && s.stopped == nil {
		err = s.widen()
	}
	if copied && s.stopped == nil && err == nil {
		at.from, post.Body, err = s.keep(post.Body)
	}
	bare := errors.Is(err, errBare)
	if err != nil && !bare {
		return err
	}
	if s.stopped != nil {
		s.free(at.from)
		return s.stopped
	}
	l := s.lane(run)
	s.lines++
	s.bytes += at.size
	l.posts, l.places = append(l.posts, post), append(l.places, at)
	if l.refusal != nil {
		s.turnAway(l)
		return nil
	}
	if !l.busy {
		l.busy = true
		in.fresh = append(in.fresh, l)
	}
	if bare {
		in.flush()
	}
	for bare && (s.lines > 0 || s.stopped == nil && s.answering()) { // its bytes are the caller's
		s.change.Wait()
	}
	return nil
}

// flush makes the runs ready that have got something. It needs mu.
func (in *lineInput) flush() {
	for _, l := range in.fresh {
		in.s.push(l)
		in.s.start()
	}
	clear(in.fresh)
	if in.fresh = in.fresh[:0]; cap(in.fresh) > keptLanes {
		in.fresh = nil
	}
	in.s.flush()
}

// refuse answers the newest line. The stream goes on.
func (in *lineInput) refuse(run []byte, err error) error {
	s := in.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.client.Deliver != nil && s.stopped == nil && len(s.out) >= keptOut {
		in.flush()
		s.change.Wait()
	}
	s.answer(refusalReceipt(in.n, string(run), s.cfg.Refuse(err)))
	return s.stopped
}

// garbage answers the newest line, and ends the stream.
func (in *lineInput) garbage(err error) error {
	if stopped := in.refuse(nil, err); stopped != nil {
		return stopped
	}
	in.s.Stop(ErrGarbage)
	return ErrGarbage
}

// close lets go of what feeding has taken.
func (in *lineInput) close() {
	if in.entered {
		in.s.cfg.Limits.Leave(in.meter, false)
		in.entered = false
	}
	in.dropRest()
}

// block is memory in which lines lie until they are answered.
type block struct {
	buf  []byte
	refs int
}

// blockSize is that of a block, but for one with a larger line, in bytes.
const blockSize = 64 << 10

var blocks = sync.Pool{New: func() any { return &block{buf: make([]byte, 0, blockSize)} }}

// keep copies a line. It needs mu, and gives it away while it waits for memory.
func (s *Stream) keep(p []byte) (*block, []byte, error) {
	b := s.cur
	if b == nil || cap(b.buf)-len(b.buf) < len(p) {
		if err := s.reserve(max(len(p), blockSize)); err != nil {
			return nil, p, err
		}
		if b = nil; len(p) > blockSize {
			b = &block{buf: make([]byte, 0, len(p))}
		} else {
			b = blocks.Get().(*block)
			s.cur = b
		}
	}
	b.refs++
	from := len(b.buf)
	b.buf = append(b.buf, p...)
	return b, b.buf[from:len(b.buf):len(b.buf)], nil
}

// errBare reports that there is no memory for a line, and nothing of the stream's own to wait for.
var errBare = errors.New("publish: no memory for a line")

// reserve waits for memory as long as the stream has lines or answers under way, which give some back. One without does
// not wait for others: what has come and is not read yet takes memory too, and all might wait for each other. Its line
// is stored from where it is (errBare). Nobody but the feeding goroutine calls it, so that no block is made meanwhile.
func (s *Stream) reserve(n int) error {
	if s.client.Memory == nil {
		return nil
	}
	s.in.flush()
	s.waits = true
	defer func() { s.waits = false }()
	for {
		s.narrow()
		alone := s.lines == 0 && !s.answering()
		err := s.try(n, alone)
		switch {
		case err == nil || s.stopped != nil:
			return err
		case alone:
			return errBare
		}
	}
}

// answering reports whether there are answers that are not delivered. It needs mu.
func (s *Stream) answering() bool { return len(s.out) > 0 || s.sending > 0 }

// try takes memory, and waits a little for it unless it is to be at once. It gives mu away.
func (s *Stream) try(n int, once bool) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	if once {
		return s.client.Memory.Try(int64(n))
	}
	return s.client.Memory.Reserve(s.ctx, int64(n))
}

// free lets go of a line's block. It needs mu.
func (s *Stream) free(b *block) {
	if b == nil {
		return
	}
	if b.refs--; b.refs > 0 {
		return
	}
	if s.cur == b {
		s.cur = nil
	}
	if s.client.Memory != nil {
		s.client.Memory.Give(int64(cap(b.buf)))
	}
	if cap(b.buf) == blockSize {
		b.buf = b.buf[:0]
		blocks.Put(b)
	}
}
