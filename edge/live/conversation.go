package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// Socket is a connection that many write to: replies and the frames of subscriptions leave in one order, between whole
// frames.
type Socket interface {
	transport.Sink
	transport.Direct
	// Reply writes frames at once, from any goroutine, and waits for the client.
	Reply(frames []dialect.Frame) error
	// Ready is Reply with frames in the form of Encoding.
	Ready(b []byte) error
}

// ConversationConfig sets a Conversation up.
type ConversationConfig struct {
	Life   *Life
	Report *Report
	Bound  *Bound              // of the subscriptions
	Form   *transport.Encoding // of their frames
	Most   int                 // subscriptions at a time
	Beat   Heartbeat
	// Ended is told of a subscription that ended by itself, in a turn; a nil err is the end of the run. An error that
	// it returns ends the conversation.
	Ended func(id string, err error) error
}

// Heartbeat shows signs of life in frames, in place of the transport's own. The zero value leaves that to the transport.
type Heartbeat struct {
	Every  time.Duration // of silence in both directions, after which Send is called, in a turn
	Send   func() error
	Misses int   // of them in a row that were not answered; 0: any number
	Lost   error // ends the conversation after that
}

// Conversation is a connection on which a client sends messages and holds subscriptions, each of them a Session. It is
// safe for concurrent use, but for what must be called within a turn.
type Conversation struct {
	live *Live
	cfg  ConversationConfig
	sink Socket
	life *Life

	turn  sync.Mutex      // held while a message, or the end of a subscription, is dealt with
	fresh []*subscription // opened within this turn; they begin behind it
	write sync.Mutex      // held by the subscription that collects frames

	mu     sync.Mutex
	subs   []*subscription
	closed bool
	total  Report // of subscriptions that are over
	ping   *time.Timer

	begun    time.Time
	busy     atomic.Int64 // when something was last sent or received, since begun; kept for the heartbeat
	unheeded int          // heartbeats since the client was heard; changed within turns
}

// errUnsubscribed ends a subscription that its client has no use for.
var errUnsubscribed = errors.New("the client has ended the subscription")

// Converse takes a place among the streams, which Report.Release gives back. The first turn is Begin's: those of messages
// that come earlier wait.
func (v *Live) Converse(cfg ConversationConfig) (*Conversation, error) {
	if err := v.Enter(cfg.Life); err != nil {
		return nil, err
	}
	cfg.Report.Release = func() { v.Leave(cfg.Life) }
	cfg.Life.expire()
	c := &Conversation{live: v, cfg: cfg, life: cfg.Life, begun: time.Now()}
	c.turn.Lock()
	return c, nil
}

// Begin lets the conversation write to sink, and step be its first turn. When its life ends, it tells the client and calls
// Report.Done.
func (c *Conversation) Begin(sink Socket, step func() error) {
	c.sink = sink
	c.cfg.Report.Stream = c.cfg.Bound
	c.live.Took(c.life, sink.(interface{ Cut() }))
	c.mu.Lock()
	c.touch()
	c.ping = time.AfterFunc(cmp.Or(c.cfg.Beat.Every, c.cfg.Bound.KeepAlive, c.live.cfg.KeepAlive), c.keepAlive)
	c.mu.Unlock()
	context.AfterFunc(c.life.Ctx, c.finish)
	_ = c.take(step)
}

// keepAlive shows a sign of life, once for all subscriptions.
func (c *Conversation) keepAlive() {
	next, sent, err := cmp.Or(c.cfg.Bound.KeepAlive, c.live.cfg.KeepAlive), true, error(nil)
	if c.cfg.Beat.Every > 0 {
		next, sent, err = c.beat()
	} else {
		err = c.sink.KeepAlive()
	}
	if err != nil {
		c.life.End(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.live.cfg.Hooks.KeptAlive; h != nil && sent && len(c.subs) == 0 { // subscriptions count theirs
		h(c.cfg.Bound.DialectName)
	}
	if !c.closed {
		c.ping.Reset(next)
	}
}

// beat sends a heartbeat if one is due, and returns when to look again.
func (c *Conversation) beat() (next time.Duration, sent bool, err error) {
	b := &c.cfg.Beat
	if !c.turn.TryLock() { // a message is dealt with, and what follows it was not read
		return b.Every, false, nil
	}
	next = b.Every
	err = c.take(func() error {
		if silent := time.Since(c.begun) - time.Duration(c.busy.Load()); silent < b.Every {
			next = b.Every - silent
			return nil
		}
		if b.Misses > 0 && c.unheeded >= b.Misses {
			return b.Lost
		}
		c.unheeded++
		sent = true
		return b.Send()
	})
	return next, sent, err
}

// touch notes that the connection is in use.
func (c *Conversation) touch() {
	if c.cfg.Beat.Every > 0 {
		c.busy.Store(int64(time.Since(c.begun)))
	}
}

// Heard notes, within a turn, that the client has sent something. Its heartbeats count as answered if alive.
func (c *Conversation) Heard(alive bool) {
	c.touch()
	if alive {
		c.unheeded = 0
	}
}

// Turn deals with one message: step may send frames, and open and end subscriptions. Turns come one after another. The
// frames of a subscription that was opened within it begin behind it. An error of step ends the conversation.
func (c *Conversation) Turn(step func() error) error {
	c.turn.Lock()
	return c.take(step)
}

// take needs turn, and gives it back.
func (c *Conversation) take(step func() error) (err error) {
	defer c.turn.Unlock()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack())
		}
		if err != nil {
			c.life.End(err)
		}
		for _, s := range c.fresh {
			go s.serve()
		}
		c.fresh = nil
	}()
	if c.life.Ctx.Err() != nil {
		return context.Cause(c.life.Ctx)
	}
	return step()
}

// Send writes frames at once and waits for the client.
func (c *Conversation) Send(frames []dialect.Frame) error {
	n := int64(0)
	for i := range frames {
		n += int64(len(frames[i].Data))
	}
	c.mu.Lock()
	c.total.Sent += n
	c.mu.Unlock()
	c.touch()
	return c.sink.Reply(frames)
}

// Place is where a subscription begins: behind After, in a run whose newest record is Last.
type Place struct {
	After, Last schema.Seq
	Ended       bool // the run has
}

// Subscribe opens a subscription, within a turn. The error wraps dialect.ErrBadRequest for an id that is in use,
// ends.ErrBusy when there are too many; others are those of a stream that cannot be opened.
func (c *Conversation) Subscribe(id string, req dialect.Request) (Place, error) {
	s, err := c.enter(id)
	if err != nil {
		return Place{}, err
	}
	s.ss, err = c.open(s, req)
	if s.complete = errors.Is(err, dialect.ErrComplete); err != nil && !s.complete {
		s.ss.Close()
		s.life.End(nil)
		c.remove(s)
		close(s.done)
		return Place{}, err
	}
	c.fresh = append(c.fresh, s)
	return Place{After: s.ss.After, Last: s.ss.Pos.Last, Ended: s.ss.Pos.Ended}, nil
}

func (c *Conversation) open(s *subscription, req dialect.Request) (*Session, error) {
	req.Stream = c.cfg.Bound.Name
	ss := &Session{live: c.live, c: &s.report, bound: c.cfg.Bound, life: &s.life, ctx: s.life.Ctx, req: req}
	key, err := s.life.key(req.Run)
	if err != nil {
		return ss, err
	}
	s.report.Run = key.Run
	return ss, Ended(ss.ctx, ss.open(ss.ctx, key))
}

// enter gives a subscription its place.
func (c *Conversation) enter(id string) (*subscription, error) {
	s := &subscription{conv: c, id: id, done: make(chan struct{})}
	s.life.Caller = c.life.Caller
	s.life.Ctx, s.life.Cancel = context.WithCancelCause(context.Background())
	s.report.EndOf = func(error) transport.End { return transport.End{} }
	s.report.Done = s.over
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, context.Cause(c.life.Ctx)
	case c.find(id) >= 0:
		return nil, dialect.Refuse(dialect.ErrBadRequest, "there is a subscription with this id")
	case len(c.subs) >= c.cfg.Most:
		return nil, fmt.Errorf("%d subscriptions: %w", len(c.subs), ends.ErrBusy)
	}
	if len(c.subs) > 0 {
		if err := c.live.one(); err != nil {
			return nil, err
		}
	}
	c.subs = append(c.subs, s)
	return s, nil
}

// find and drop need mu.
func (c *Conversation) find(id string) int {
	return slices.IndexFunc(c.subs, func(s *subscription) bool { return s.id == id })
}

func (c *Conversation) drop(i int) {
	if c.subs = slices.Delete(c.subs, i, i+1); len(c.subs) > 0 {
		c.live.less()
	}
}

// remove reports whether s was there.
func (c *Conversation) remove(s *subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.subs, s)
	if i >= 0 {
		c.drop(i)
	}
	return i >= 0
}

// Unsubscribe ends a subscription, within a turn, and returns the seq of the last record that it has shown, or the
// place where it began. No frame of it comes later. ok is false when there is none.
func (c *Conversation) Unsubscribe(id string) (at schema.Seq, ok bool) {
	c.mu.Lock()
	i := c.find(id)
	if i < 0 {
		c.mu.Unlock()
		return 0, false
	}
	s := c.subs[i]
	c.drop(i)
	c.mu.Unlock()
	at = s.ss.After
	s.life.End(errUnsubscribed)
	if i := slices.Index(c.fresh, s); i >= 0 { // it has not begun
		c.fresh = slices.Delete(c.fresh, i, i+1)
		s.ss.Close()
		close(s.done)
		return at, true
	}
	<-s.done
	return max(at, s.report.Seq), true
}

// Subscriptions returns the ids of those that are open.
func (c *Conversation) Subscriptions() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		ids = append(ids, s.id)
	}
	return ids
}

// finish ends the subscriptions, says the last word and lets go of everything.
func (c *Conversation) finish() {
	err := context.Cause(c.life.Ctx)
	c.mu.Lock()
	c.closed = true
	c.ping.Stop()
	subs := slices.Clone(c.subs)
	c.mu.Unlock()
	for _, s := range subs {
		s.life.End(err)
	}
	c.turn.Lock()
	for _, s := range subs {
		<-s.done
		c.remove(s)
	}
	c.turn.Unlock()
	report := c.cfg.Report
	c.mu.Lock()
	report.Events, report.Sent, report.Dropped = report.Events+c.total.Events, c.total.Sent, c.total.Dropped
	c.mu.Unlock()
	if lerr := c.sink.End(report.EndOf(err)); err == nil {
		err = lerr
	}
	report.Done(nil, err)
}

// ended deals with a subscription that is over.
func (c *Conversation) ended(s *subscription, err error) {
	if errors.Is(err, dialect.ErrClientGone) || errors.Is(err, dialect.ErrSlowClient) || errors.Is(err, ends.ErrPanic) {
		c.life.End(err)
		return
	}
	if errors.Is(err, errUnsubscribed) || c.life.Ctx.Err() != nil {
		return
	}
	_ = c.Turn(func() error {
		if !c.remove(s) || c.cfg.Ended == nil { // its client was faster
			return nil
		}
		return c.cfg.Ended(s.id, err)
	})
}

// one counts a subscription in that is not the first of its conversation, less counts it out.
func (v *Live) one() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.full(); err != nil {
		return err
	}
	v.more++
	return nil
}

func (v *Live) less() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.more--
}
