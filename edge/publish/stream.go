package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/producers"
	"agentstream/schema"
)

// appendText appends a JSON string. What is not UTF-8 is replaced.
func appendText(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return append(dst, b...)
}

// Stream is one client that publishes.
type Stream struct {
	cfg    *Config
	client Client
	ctx    context.Context // of appends; it ends with them

	in lineInput // of the goroutine that feeds

	mu     sync.Mutex
	change sync.Cond // lines were answered, answers delivered, or the stream is over

	lanes   map[string]*runQueue
	ready   []*runQueue // with work, first come first
	head    int         // of ready: what comes first
	workers int
	bad     int    // lanes with a refusal
	kept    int    // lanes that the newest prune has left
	cur     *block // that is being filled

	lines   int   // that are not answered
	bytes   int   // of them
	held    int64 // of the client's memory, beside the text of lines
	sending int   // bytes that are being delivered
	waits   bool  // for memory

	out   []byte // answers that are not delivered
	spare []byte
	beat  *time.Timer // nil: there is nothing to show, and nothing to let go of

	writing bool
	join    *time.Timer // delivers what is joined; nil before the first time
	joins   bool        // it will
	quiet   bool        // nothing was delivered since the last beat
	over    bool        // Finish has been called, and all lines are answered

	halt    chan struct{} // closed when stopped; nil: nobody has asked
	stored  int           // lines
	stopped error         // why nothing more is fed
	failed  error         // of Deliver
}

// runQueue is a run's lines that wait.
type runQueue struct {
	run     string
	posts   []producers.Post
	places  []place
	busy    bool               // with a worker, ready, or fresh
	refusal *producers.Refusal // of all that comes
}

// place is where a post comes from.
type place struct {
	line  int
	lines []int  // of a batch with one key; nil: the post is one line
	from  *block // nil: its bytes are the caller's
	size  int
	seq   schema.Seq // that it brings together with an id
	id    string
}

// overhead is about what a line that waits takes beside its text, in bytes.
const overhead = 192

// ErrGarbage reports that the client does not send lines of JSON. The client has been told.
var ErrGarbage = errors.New("publish: not lines of JSON")

// New makes a stream. It starts nothing but a timer. Appends go on when ctx has ended. cfg is Shared.
func New(ctx context.Context, cfg *Config, client Client) *Stream {
	s := &Stream{cfg: cfg, client: client, ctx: context.WithoutCancel(ctx), quiet: true}
	if s.client.Form == nil {
		s.client.Form = AppendJSON
	}
	s.change.L = &s.mu
	s.in.s = s
	if client.Sign != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rouse()
	}
	return s
}

// rouse begins the time to the next beat, unless it has begun. It needs mu.
func (s *Stream) rouse() {
	if every := s.client.KeepAlive; every > 0 && s.beat == nil {
		s.beat = time.AfterFunc(every, s.tick)
	}
}

// tick shows a sign of life and lets go of what an idle stream needs not.
func (s *Stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.failed != nil {
		return
	}
	if s.quiet && len(s.out) == 0 && !s.writing {
		s.out = append(s.out, s.client.Sign...)
		s.flush()
	}
	if s.lines == 0 {
		s.prune()
		if s.spare = nil; !s.joins {
			s.join = nil
		}
	}
	if s.quiet = true; s.lanes == nil && s.client.Sign == nil {
		s.beat = nil
		return
	}
	s.beat.Reset(s.client.KeepAlive)
}

// Stop lets nothing more be fed: Feed returns an error, also one that waits. The first reason counts.
func (s *Stream) Stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(err)
}

// stop needs mu.
func (s *Stream) stop(err error) {
	if s.stopped == nil {
		s.stopped = err
		if s.halt != nil {
			close(s.halt)
		}
		s.change.Broadcast()
	}
}

// haltChannel returns a channel that is closed when nothing more is fed. It needs mu.
func (s *Stream) haltChannel() <-chan struct{} {
	if s.halt == nil {
		s.halt = make(chan struct{})
		if s.stopped != nil {
			close(s.halt)
		}
	}
	return s.halt
}

// Drop is Stop for a client that is gone: what waits and was not begun is not stored.
func (s *Stream) Drop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(err)
}

// drop needs mu.
func (s *Stream) drop(err error) {
	if s.failed != nil {
		return
	}
	s.failed = err
	s.stop(err)
	for _, l := range s.lanes {
		s.release(l.places)
		l.posts, l.places = nil, nil
	}
	s.out = nil
	s.narrow()
	s.change.Broadcast()
}

// Finish waits until every line is answered and every answer delivered, or that has failed, and ends what the stream
// has started. Tell, if there is one, is the last answer. The error is Deliver's.
func (s *Stream) Finish(tell *dialect.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in.flush()
	for s.lines > 0 || s.workers > 0 {
		s.change.Wait()
	}
	if s.over = true; s.beat != nil {
		s.beat.Stop()
	}
	if tell != nil && s.failed == nil {
		s.out = s.client.Form(s.out, tell)
		s.flush()
	}
	for s.writing {
		s.change.Wait()
	}
	s.in.close()
	s.narrow()
	return s.failed
}

// FinishWith is Finish for a reason why nothing more is fed, an error of Feed or of what carries the stream;
// nil is the client's end. A client that is gone is not waited for, any other is told the reason. The error is
// the client's failing.
func (s *Stream) FinishWith(err error) error {
	switch {
	case errors.Is(err, dialect.ErrClientGone), errors.Is(err, dialect.ErrSlowClient):
		s.Drop(err)
		return cmp.Or(s.Finish(nil), err)
	case err == nil, errors.Is(err, ErrGarbage):
		return s.Finish(nil)
	}
	return s.Finish(refusalReceipt(0, "", s.cfg.Refuse(err)))
}

// CountStored returns how many lines were stored.
func (s *Stream) CountStored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// lane returns the queue of a run. It needs mu.
func (s *Stream) lane(run []byte) *runQueue {
	l := s.lanes[string(run)]
	if l != nil {
		return l
	}
	if len(s.lanes) >= max(keptLanes, 2*s.kept) { // those that were kept would be looked at for each new one
		s.prune()
		s.kept = len(s.lanes)
	}
	if s.lanes == nil {
		s.lanes = make(map[string]*runQueue)
		s.rouse()
	}
	l = &runQueue{run: string(run)}
	s.lanes[l.run] = l
	return l
}

// keptLanes is how many runs are remembered before those are forgotten for which nothing waits.
const keptLanes = 1024

// prune forgets runs for which nothing waits. It needs mu.
func (s *Stream) prune() {
	for run, l := range s.lanes {
		if !l.busy && l.refusal == nil {
			delete(s.lanes, run)
		}
	}
	if len(s.lanes) == 0 {
		s.lanes = nil
	}
}

// answer adds an answer to those that are to be delivered. It needs mu.
func (s *Stream) answer(r *dialect.Receipt) {
	if s.failed == nil {
		s.out = s.client.Form(s.out, r)
	}
}

// joining is how long an answer waits for those of other lines, which are under way: a write costs as much for one as
// for twenty. A client that has no other line under way does not wait.
const joining = time.Millisecond

// flush lets what is answered be delivered, soon. It needs mu.
func (s *Stream) flush() {
	switch {
	case s.client.Deliver == nil || s.writing || len(s.out) == 0 || s.failed != nil:
	case s.lines == 0 || len(s.out) >= keptOut/2:
		s.writing = true
		go s.deliver()
	case s.joins:
	case s.join == nil:
		s.joins, s.join = true, time.AfterFunc(joining, s.deliverJoined)
	default:
		s.joins = true
		s.join.Reset(joining)
	}
}

// deliverJoined delivers what has been joined.
func (s *Stream) deliverJoined() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joins = false; !s.writing && len(s.out) > 0 && s.failed == nil {
		s.writing = true
		s.write()
	}
}

// deliver delivers what is there.
func (s *Stream) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
}

// write is deliver with mu, which it leaves meanwhile.
func (s *Stream) write() {
	if len(s.out) == 0 { // the client has left meanwhile
		s.writing = false
		s.change.Broadcast()
		return
	}
	b := s.out
	s.out, s.spare = s.spare[:0], nil
	s.quiet, s.sending = false, len(b)
	s.mu.Unlock()
	err := s.client.Deliver(b)
	s.mu.Lock()
	s.sending = 0
	if s.spare = b[:0]; cap(b) > keptOut {
		s.spare = nil
	}
	if err != nil {
		s.drop(err)
	}
	s.writing = false
	s.narrow()
	s.flush()
	s.change.Broadcast()
}

// keptOut is the largest buffer for answers that is used again, in bytes.
const keptOut = 64 << 10
