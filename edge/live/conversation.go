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
	Once   bool                // a frame that several subscriptions of a run show comes once
	// Gather is how long subscriptions wait for others to begin with them. They wait at least until all that the client
	// had sent before it knew of the first of them was dealt with.
	Gather time.Duration
	Beat   Heartbeat
	// Ended is called for a subscription that ended by itself, by what Do runs; a nil err is the end of the run. An
	// error that it returns ends the conversation.
	Ended func(id string, err error) error
	// Closing is called when the conversation is over, as Do runs steps, before its last word; nil does nothing.
	Closing func(err error)
}

// Conversation is a connection on which a client sends messages and holds subscriptions, each of them a Session. It is
// safe for concurrent use, but for what must be called by what Do runs.
type Conversation struct {
	live *Live
	cfg  ConversationConfig
	sink Socket
	life *Life

	section sync.Mutex      // held while a message, or the end of a subscription, is dealt with
	fresh   []*subscription // opened by this step; they begin after it, or after gathering
	gather  gathering
	write   sync.Mutex // held by the subscription that collects frames

	mu      sync.Mutex
	subs    []*subscription
	members int // of all of them
	closed  bool
	total   Report // of subscriptions that are over
	ping    *time.Timer

	begun       time.Time
	busy        atomic.Int64 // when something was last sent or received, since begun; kept for the heartbeat
	missedPings int          // heartbeats since the client sent anything; changed with section held
}

// errUnsubscribed ends a subscription that its client has no use for.
var errUnsubscribed = errors.New("the client has ended the subscription")

// Converse takes a slot among the streams, which Report.Release releases. The first step is Attach's: those of messages
// that come earlier wait.
func (v *Live) Converse(cfg ConversationConfig) (*Conversation, error) {
	if err := v.Join(cfg.Life, cfg.Report); err != nil {
		return nil, err
	}
	cfg.Life.Expire()
	c := &Conversation{live: v, cfg: cfg, life: cfg.Life, begun: time.Now()}
	c.section.Lock()
	return c, nil
}

// Attach lets the conversation write to sink, and runs step first. When its life ends, it sends the client the
// reason and calls Report.Finish.
func (c *Conversation) Attach(sink Socket, step func() error) {
	c.sink = sink
	c.cfg.Report.Stream = c.cfg.Bound
	c.live.Took(c.life, sink.(interface{ Cut() }))
	c.mu.Lock()
	c.touch()
	c.ping = time.AfterFunc(cmp.Or(c.cfg.Beat.Every, c.cfg.Bound.KeepAlive, c.live.cfg.KeepAlive), c.keepAlive)
	c.mu.Unlock()
	context.AfterFunc(c.life.Ctx, c.finish)
	_ = c.runStep(step)
}

// Do deals with one message: step may send frames, and open and end subscriptions. Turns come one after another. The
// frames of a subscription that was opened within it begin behind it. An error of step ends the conversation.
func (c *Conversation) Do(step func() error) error {
	c.section.Lock()
	return c.runStep(step)
}

// runStep runs step, and then releases the conversation's lock, which the caller holds.
func (c *Conversation) runStep(step func() error) (err error) {
	defer c.section.Unlock()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack())
		}
		if err != nil {
			c.life.Stop(err)
		}
		if c.cfg.Gather == 0 || len(c.fresh) == 0 {
			c.start()
		} else {
			c.collect()
		}
	}()
	if c.life.Ctx.Err() != nil {
		return context.Cause(c.life.Ctx)
	}
	return step()
}

// start lets the subscriptions begin that were opened. It needs section.
func (c *Conversation) start() {
	for _, s := range c.fresh {
		go s.serve()
	}
	c.fresh = nil
	c.gather.stop()
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
	Ended       bool       // the run has
	Missed      schema.Seq // records before After that are no longer kept, without a cursor (dialect.Request.Kept)
}

// Subscribe opens a subscription. It is called by what Do runs. The error wraps dialect.ErrBadRequest for an id that is
// in use, ends.ErrBusy when there are too many; others are those of a stream that cannot be opened.
func (c *Conversation) Subscribe(id string, req dialect.Request) (Place, error) {
	s, err := c.enter(id)
	if err != nil {
		return Place{}, err
	}
	if s.ss, err = c.open(s, req); err != nil && !errors.Is(err, dialect.ErrComplete) {
		s.ss.Close()
		s.life.Stop(nil)
		c.remove(s)
		close(s.done)
		return Place{}, err
	}
	place := Place{After: s.ss.After, Last: s.ss.Pos.Last, Ended: s.ss.Pos.Ended, Missed: s.ss.missed}
	if s.over = err; c.cfg.Once {
		c.join(s)
	}
	c.fresh = append(c.fresh, s)
	return place, nil
}

func (c *Conversation) open(s *subscription, req dialect.Request) (*Session, error) {
	req.Stream = c.cfg.Bound.Name
	s.req = req
	return c.live.session(&s.life, &s.report, c.cfg.Bound, req, nil)
}

// newSubscription returns one without members.
func (c *Conversation) newSubscription() *subscription {
	s := &subscription{conv: c, done: make(chan struct{})}
	s.life.Caller = c.life.Caller
	s.life.Ctx, s.life.Cancel = context.WithCancelCause(context.Background())
	s.report.Ending = s
	return s
}

// enter adds a subscription.
func (c *Conversation) enter(id string) (*subscription, error) {
	s := c.newSubscription()
	s.members = []member{{id: id}}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, context.Cause(c.life.Ctx)
	case c.find(id) >= 0:
		return nil, dialect.Refuse(dialect.ErrBadRequest, "there is a subscription with this id")
	case c.members >= c.cfg.Most:
		return nil, fmt.Errorf("%d subscriptions: %w", c.members, ends.ErrBusy)
	}
	if c.members > 0 {
		if err := c.live.one(c.life.Caller.Tenant); err != nil {
			return nil, err
		}
	}
	c.subs = append(c.subs, s)
	c.members++
	return s, nil
}

// find and let need mu.
func (c *Conversation) find(id string) int {
	return slices.IndexFunc(c.subs, func(s *subscription) bool { return s.member(id) >= 0 })
}

// let lets so many go. A connection's last is no stream of its own.
func (c *Conversation) let(members int) {
	for range members {
		if c.members--; c.members > 0 {
			c.live.less(c.life.Caller.Tenant)
		}
	}
}

// remove reports whether s was there.
func (c *Conversation) remove(s *subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.subs, s)
	if i >= 0 {
		c.subs = slices.Delete(c.subs, i, i+1)
		c.let(len(s.members))
	}
	return i >= 0
}

// replace puts one subscription in the place of another, which has been stopped.
func (c *Conversation) replace(old, s *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = slices.DeleteFunc(c.subs, func(other *subscription) bool { return other == s })
	c.subs[slices.Index(c.subs, old)] = s
}

// stop ends the session of a subscription, of which no frame comes later, and returns the seq of the last record that
// it has shown, or the place where it began.
func (c *Conversation) stop(s *subscription) (at schema.Seq) {
	at = s.ss.After
	s.life.Stop(errUnsubscribed)
	if i := slices.Index(c.fresh, s); i >= 0 {
		c.fresh = slices.Delete(c.fresh, i, i+1)
		s.ss.Close()
		close(s.done)
		return at
	}
	<-s.done
	return max(at, s.report.Seq)
}

// Unsubscribe ends a subscription, called by what Do runs, and returns the seq of the last record that it has shown, or
// the place where it began. No frame of it comes later. ok is false when there is none.
func (c *Conversation) Unsubscribe(id string) (at schema.Seq, ok bool) {
	c.mu.Lock()
	i := c.find(id)
	if i < 0 {
		c.mu.Unlock()
		return 0, false
	}
	s := c.subs[i]
	c.mu.Unlock()
	if len(s.members) > 1 {
		return c.part(s, id), true
	}
	c.remove(s)
	return c.stop(s), true
}

// Subscriptions returns the ids of those that are open.
func (c *Conversation) Subscriptions() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		for _, m := range s.members {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// finish ends the subscriptions, says the last word and lets go of everything.
func (c *Conversation) finish() {
	err := context.Cause(c.life.Ctx)
	c.mu.Lock()
	c.closed = true
	c.ping.Stop()
	c.mu.Unlock()
	c.endAll(err) // a step that waits for one of them goes on
	c.section.Lock()
	c.start()
	for _, s := range c.endAll(err) {
		<-s.done
		c.remove(s)
	}
	if c.cfg.Closing != nil {
		c.cfg.Closing(err)
	}
	c.section.Unlock()
	report := c.cfg.Report
	c.mu.Lock()
	report.Events, report.Sent, report.Dropped = report.Events+c.total.Events, c.total.Sent, c.total.Dropped
	c.mu.Unlock()
	if lerr := c.sink.CloseWith(report.EndOf(err)); err == nil {
		err = lerr
	}
	report.Finish(nil, err)
}

// endAll ends the subscriptions and returns them.
func (c *Conversation) endAll(err error) []*subscription {
	c.mu.Lock()
	subs := slices.Clone(c.subs)
	c.mu.Unlock()
	for _, s := range subs {
		s.life.Stop(err)
	}
	return subs
}

// endSubscription deals with a subscription that is over.
func (c *Conversation) endSubscription(s *subscription, err error) {
	if errors.Is(err, dialect.ErrClientGone) || errors.Is(err, dialect.ErrSlowClient) || errors.Is(err, ends.ErrPanic) {
		c.life.Stop(err)
		return
	}
	if errors.Is(err, errUnsubscribed) || c.life.Ctx.Err() != nil {
		return
	}
	_ = c.Do(func() error {
		if !c.remove(s) || c.cfg.Ended == nil { // its client was faster
			return nil
		}
		for _, m := range s.members {
			if err := c.cfg.Ended(m.id, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// one counts a subscription in that is not the first of its conversation, less counts it out.
func (v *Live) one(tenant string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.hold(tenant); err != nil {
		return err
	}
	v.more++
	return nil
}

func (v *Live) less(tenant string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.let(tenant)
	v.more--
}
