package proxy

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
)

// budget is room in memory. It is safe for concurrent use.
type budget struct {
	most int64
	used atomic.Int64
	of   *budget // the larger one that it is a part of; nil: none
}

// reserve adds n bytes to what is used, and reports false if there is no room for them.
func (b *budget) reserve(n int) bool {
	if b.used.Add(int64(n)) > b.most || b.of != nil && !b.of.reserve(n) {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) give(n int) {
	b.used.Add(-int64(n))
	if b.of != nil {
		b.of.give(n)
	}
}

// Sizes of a spool's segments: the first is small, for most answers are.
const (
	firstSegment = 4 << 10
	nextSegment  = 32 << 10
)

// spool holds the copy of a body between the one who passes it on and the one who records it. Writing
// never waits: what finds no room is counted and gone, and so is all that comes behind it, so that what
// is read is always a beginning of the body. Memory is counted by the segments' capacity.
type spool struct {
	room *budget

	mu    sync.Mutex
	segs  [][]byte // written and not read
	spare []byte   // a segment for reuse
	cur   []byte   // segment that is being read
	at    int      // within cur
	total int64    // bytes that were written
	lost  int64    // of these, those that found no room
	why   string   // they did not
	shut  bool     // there is no reader any more: everything is lost
	over  bool     // the body is
	err   error    // why it broke off; nil: it is whole
	ready chan struct{}
}

func newSpool(room *budget) *spool {
	return &spool{room: room, ready: make(chan struct{}, 1)}
}

// reasonFull is the reason of bytes that found no room.
const reasonFull = "the buffer was full"

// write takes a copy of the next bytes.
func (s *spool) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.total += int64(len(b))
	for len(b) > 0 && s.lost == 0 && !s.shut && s.grow() {
		last := &s.segs[len(s.segs)-1]
		n := min(len(b), cap(*last)-len(*last))
		*last = append(*last, b[:n]...)
		b = b[n:]
	}
	if len(b) > 0 {
		s.lost += int64(len(b))
		if s.why == "" {
			s.why = reasonFull
		}
	}
	s.wake()
}

// grow makes sure that the last segment has room.
func (s *spool) grow() bool {
	if n := len(s.segs); n > 0 && len(s.segs[n-1]) < cap(s.segs[n-1]) {
		return true
	}
	if s.spare != nil {
		s.segs, s.spare = append(s.segs, s.spare[:0]), nil
		return true
	}
	for _, size := range []int{s.segment(), firstSegment, firstSegment / 8} {
		if s.room.reserve(size) {
			s.segs = append(s.segs, make([]byte, 0, size))
			return true
		}
	}
	return false
}

func (s *spool) segment() int {
	if s.total <= firstSegment {
		return firstSegment
	}
	return nextSegment
}

// finish notes that no more bytes come; why is nil when the body is whole. Only the first call counts.
func (s *spool) finish(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over, s.err = true, why
	s.wake()
}

func (s *spool) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// read waits for bytes. io.EOF: there are no more, because the body is over or because of a hole. One
// goroutine reads.
func (s *spool) read(ctx context.Context, b []byte) (int, error) {
	for {
		if n, done := s.next(b); n > 0 {
			return n, nil
		} else if done {
			return 0, io.EOF
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (s *spool) next(b []byte) (n int, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == len(s.cur) {
		s.recycle()
		if len(s.segs) == 0 {
			return 0, s.over || s.lost > 0 || s.shut
		}
		s.cur = s.segs[0]
		if s.segs = s.segs[1:]; len(s.segs) == 0 {
			s.segs = nil
		}
	}
	n = copy(b, s.cur[s.at:])
	s.at += n
	return n, false
}

// recycle lets go of the segment that has been read.
func (s *spool) recycle() {
	switch {
	case cap(s.cur) == 0:
	case s.spare == nil && !s.over:
		s.spare = s.cur
	default:
		s.room.give(cap(s.cur))
	}
	s.cur, s.at = nil, 0
}

// close frees the memory. What has not been read, and what comes, is lost for this reason, unless
// there is a reason already.
func (s *spool) close(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return
	}
	s.shut = true
	s.lost += int64(len(s.cur) - s.at)
	s.at = len(s.cur)
	for _, seg := range s.segs {
		s.lost += int64(len(seg))
		s.room.give(cap(seg))
	}
	if s.lost > 0 && s.why == "" || why != "" && s.why == "" {
		s.why = why
	}
	s.room.give(cap(s.cur) + cap(s.spare))
	s.segs, s.cur, s.spare, s.at = nil, nil, nil, 0
	s.wake()
}

// waitEnd waits until the body is over.
func (s *spool) waitEnd(ctx context.Context) error {
	for {
		s.mu.Lock()
		over := s.over
		s.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fate returns what is known of the body: bytes that were lost so far and why, and whether and how it
// ended.
func (s *spool) fate() (lost int64, why string, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, s.why, s.over, s.err
}

func (s *spool) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// reader reads a spool for as long as ctx lasts.
type reader struct {
	ctx context.Context
	s   *spool
}

func (r reader) Read(b []byte) (int, error) { return r.s.read(r.ctx, b) }
