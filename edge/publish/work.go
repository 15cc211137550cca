package publish

import (
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/producers"
	"agentstream/schema"
)

// worker is what one goroutine uses again for run after run.
type worker struct {
	next    chan *Stream // holds one; nil ends the worker
	posts   []producers.Post
	places  []place
	answers []producers.Answer
}

// push puts a run behind those that are ready. It needs mu.
func (s *Stream) push(l *runQueue) {
	if s.head > 64 && 2*s.head > len(s.ready) {
		n := copy(s.ready, s.ready[s.head:])
		clear(s.ready[n:])
		s.ready, s.head = s.ready[:n], 0
	}
	s.ready = append(s.ready, l)
}

// pop returns the run whose turn it is; nil when none is ready. It needs mu.
func (s *Stream) pop() *runQueue {
	if s.head == len(s.ready) {
		return nil
	}
	l := s.ready[s.head]
	s.ready[s.head] = nil
	if s.head++; s.head == len(s.ready) {
		s.ready, s.head = s.ready[:0], 0
	}
	return l
}

// start lets a worker begin with a run that is ready, unless all are busy. It needs mu.
func (s *Stream) start() {
	if s.workers < s.cfg.Workers {
		s.workers++
		s.cfg.pool.run(s)
	}
}

// serve appends to runs that are ready.
func (s *Stream) serve(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain(w)
	s.workers--
	s.change.Broadcast()
}

// drain appends until no run is ready. It needs mu.
func (s *Stream) drain(w *worker) {
	for l := s.pop(); l != nil; l = s.pop() {
		if s.loadWorker(l, w); len(w.posts) > 0 {
			patient := s.client.Deliver != nil && s.lines > len(w.posts)
			s.mu.Unlock()
			w.answers = s.cfg.Store(s.ctx, &s.client, s.key(l), w.posts, patient, w.answers[:0])
			s.recognise(l, w)
			s.mu.Lock()
			s.settle(l, w)
		}
		if l.busy = len(l.posts) > 0; l.busy {
			s.push(l)
		}
		s.flush()
		s.change.Broadcast()
	}
}

// loadWorker moves to the worker about what one append can store at once. It needs mu.
func (s *Stream) loadWorker(l *runQueue, w *worker) {
	n, size := 0, 0
	for n < len(l.posts) && n < schema.MaxPackEvents && (n == 0 || size+len(l.posts[n].Body) <= schema.MaxPackBytes) {
		size += len(l.posts[n].Body)
		n++
	}
	if n == len(l.posts) {
		l.posts, w.posts = w.posts[:0], l.posts
		l.places, w.places = w.places[:0], l.places
		return
	}
	w.posts, w.places = append(w.posts[:0], l.posts[:n]...), append(w.places[:0], l.places[:n]...)
	l.posts, l.places = shift(l.posts, n), shift(l.places, n)
}

// shift removes the first n.
func shift[T any](list []T, n int) []T {
	k := copy(list, list[n:])
	clear(list[k:])
	return list[:k]
}

func (s *Stream) key(l *runQueue) schema.RunKey {
	return schema.RunKey{Tenant: s.client.Caller.Tenant, Run: l.run}
}

// recognise makes refusals of lines that are stored already, at their place and with their id, receipts.
func (s *Stream) recognise(l *runQueue, w *worker) {
	for i := range w.answers {
		a, at := &w.answers[i], &w.places[i]
		if a.Refusal == nil || at.seq == 0 || a.Refusal.Code != codeSeqMismatch {
			continue
		}
		if s.cfg.Has(s.ctx, s.key(l), at.seq, at.id) {
			*a = producers.Answer{First: at.seq, Last: at.seq, Events: 1, Replayed: true}
		}
	}
}

// codeSeqMismatch is the code of a line whose seq is not the one that it would get.
const codeSeqMismatch = "SEQ-MISMATCH"

// settle answers what the worker has appended. It needs mu.
func (s *Stream) settle(l *runQueue, w *worker) {
	for i := 0; i < len(w.answers); {
		i = s.receipt(l, w, i)
	}
	s.release(w.places)
	clear(w.posts)
	clear(w.places)
	clear(w.answers)
	w.posts, w.places = w.posts[:0], w.places[:0]
	if l.refusal != nil && len(l.posts) > 0 {
		s.turnAway(l)
	}
	if cap(w.posts) > schema.MaxPackEvents {
		*w = worker{next: w.next}
	}
}

// receipt answers lines from the i-th on that have got numbers one behind another, and returns how far it has come.
func (s *Stream) receipt(l *runQueue, w *worker, i int) int {
	a, at := &w.answers[i], &w.places[i]
	r := dialect.Receipt{Line: at.line, Run: l.run, First: a.First, Last: a.Last, Root: a.Root, Replayed: a.Replayed}
	if a.Refusal != nil {
		if n := a.Refusal.Line; n > 0 && n <= len(at.lines) {
			r.Line = at.lines[n-1]
		}
		if a.Refusal.Retry > 0 && l.refusal == nil {
			l.refusal = a.Refusal
			s.bad++
		}
		s.answer(refusalReceipt(r.Line, r.Run, a.Refusal))
		return i + 1
	}
	for i++; i < len(w.answers) && at.lines == nil; i++ {
		b := &w.answers[i]
		if b.Refusal != nil || b.First != r.Last+1 || b.Root != r.Root || b.Replayed != r.Replayed {
			break
		}
		r.Last, r.Line = b.Last, w.places[i].line
	}
	s.stored += int(r.Last-r.First) + 1
	s.answer(&r)
	return i
}

// maxBad is how many runs of a stream may be in trouble before it ends.
const maxBad = 4096

// turnAway refuses what waits for a run with which there was trouble. It needs mu.
func (s *Stream) turnAway(l *runQueue) {
	for i := range l.places {
		s.answer(refusalReceipt(l.places[i].line, l.run, l.refusal))
	}
	s.release(l.places)
	clear(l.posts)
	clear(l.places)
	l.posts, l.places = l.posts[:0], l.places[:0]
	if s.bad > maxBad && s.client.Deliver != nil {
		s.stop(fmt.Errorf("%d runs of a stream are in trouble: %w", s.bad, schema.ErrUnavailable))
	}
}

// release counts lines as answered. It needs mu.
func (s *Stream) release(places []place) {
	for i := range places {
		s.lines -= max(1, len(places[i].lines))
		s.bytes -= places[i].size
		s.free(places[i].from)
	}
}
