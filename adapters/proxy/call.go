package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentstream/adapters/provider"
	"agentstream/adapters/redact"
	"agentstream/schema"
)

// call is one model call: what passed, kept until it is stored, and the recorder that stores it.
type call struct {
	p       *Proxy
	run     *run  // and lane: set by settle
	lane    *lane // of the run
	asked   asked
	caller  sum // identifies who calls, and where
	thread  *thread
	api     api
	model   string // that the request's path names
	mint    string // makes ids of the call's own
	name    string // the mint of its first attempt
	began   time.Time
	retries int // that its client counts

	settling sync.Once
	settled  chan struct{} // closed when the run is known

	before <-chan struct{} // the lane's call before this one is stored; nil: there is none
	done   chan struct{}   // this one is

	room            *budget
	request, answer *spool
	coding          http.Header // of the request: Content-Encoding
	length          int64       // of the request's body; -1: not known

	header       sync.Once
	headers      chan struct{} // closed when the next three are known, or will never be
	status       int           // 0: the upstream did not answer
	packed       http.Header   // Content-Encoding of the answer
	streamed     bool          // the answer is one of Server-Sent Events
	answerHeader http.Header   // what it says about a repeat
	outcome      Outcome       // set before the answer's spool is finished

	// Of the run's mu.
	sent     sum      // identifies the request
	waiting  *attempt // for its repeat
	first    *call    // the attempt that this one repeats
	attempts int      // that have failed before

	over bool          // of the proxy's lock: it has asked whether it is the run's last
	left chan struct{} // closed when the call is out of its run

	// Of the recorder.
	asks     *question // while the beginning is made
	sink     Sink
	seen     provider.Outcome
	filter   *redact.Filter // of what the request authenticates with, which an answer may repeat
	chapter  chapter
	ids      callIDs
	unread   int64 // bytes since the last event
	partial  bool  // a part of the answer is not recorded
	known    bool  // the run has the answer already
	recorded int64 // bytes of losses that the run records
}

// newCall returns a call that is in no run yet.
func newCall(p *Proxy, a asked, kind api, model string, r *http.Request) *call {
	now := time.Now()
	c := &call{
		p: p, asked: a, api: kind, model: model, began: now,
		mint: strings.TrimPrefix(p.cfg.IDs.Run(now), schema.RunPrefix),
		room: &budget{most: int64(p.cfg.CallBytes), of: p.room}, done: make(chan struct{}),
		headers: make(chan struct{}), left: make(chan struct{}), settled: make(chan struct{}),
		coding: http.Header{"Content-Encoding": r.Header.Values("Content-Encoding")}, length: r.ContentLength,
		filter: redact.Of(r.Header, r.URL),
	}
	c.name = c.mint
	c.retries, _ = strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count")) // 0 where it is none
	c.request, c.answer = newSpool(c.room), newSpool(c.room)
	if p.cfg.Requests == RequestsNone {
		c.request.close("")
	}
	return c
}

// settle takes the call into a run: that which was found, or the one that it has asked for. Only the first call counts.
func (c *call) settle(found schema.RunKey) {
	c.settling.Do(func() {
		p := c.p
		p.mu.Lock()
		defer p.mu.Unlock()
		fresh := !c.asked.named && found.Run == ""
		if found.Run != "" {
			c.asked.key = found
		}
		p.join(c, fresh)
		close(c.settled)
	})
}

// How long an answer waits until it is known which run its call is in: while the request is read, and while it is not
// even sent whole.
const (
	settleRead = time.Second
	settleSend = 50 * time.Millisecond
)

// runOf returns the run of a call whose answer is there. sent is how much of the request has passed.
func (c *call) runOf(sent int64) string {
	wait := settleSend
	if sent == c.length {
		c.request.finish(nil) // its end may not have been looked for yet
		wait = settleRead
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-c.settled:
	case <-late.C:
		c.settle(schema.RunKey{})
	}
	return c.asked.key.Run
}

// readHeader takes the header of the answer.
func (c *call) readHeader(resp *http.Response) {
	c.header.Do(func() {
		c.status = resp.StatusCode
		c.streamed = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
		c.packed = http.Header{"Content-Encoding": resp.Header.Values("Content-Encoding")}
		c.answerHeader = http.Header{}
		for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
			if v := resp.Header.Get(name); v != "" {
				c.answerHeader.Set(name, v)
			}
		}
		close(c.headers)
	})
}

// How an answer ended early.
var (
	errCancelled   = errors.New("the client left before the answer was whole")
	errBroken      = errors.New("the upstream's answer broke off")
	errUnreachable = errors.New("the upstream did not answer")
)

// finishClient notes that the client's side is over. It is called once.
func (c *call) finishClient(o Outcome) {
	c.outcome = o
	c.header.Do(func() { close(c.headers) })
	c.request.finish(errNotSent)
	switch o {
	case OutcomeCancelled:
		c.answer.finish(errCancelled)
	case OutcomeBroken:
		c.answer.finish(errBroken)
	case OutcomeUnreachable:
		c.answer.finish(errUnreachable)
	default:
		c.answer.finish(nil)
	}
}

// record writes the call into its run.
func (c *call) record(ctx context.Context) {
	defer func() {
		if c.done != nil {
			close(c.done)
		}
	}()
	err := c.safely(ctx)
	c.settle(schema.RunKey{}) // unless it is in one
	if err != nil {
		c.giveUp(ctx, err)
	}
	c.request.close("")
	c.answer.close("")
}

// safely keeps a fault of ours in what was decoded away from the calls that only pass.
func (c *call) safely(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", errFault, v, debug.Stack())
		}
	}()
	return c.storeAll(ctx)
}

// errFault reports that the recorder is at fault.
var errFault = errors.New("fault of the recorder")

// storeAll stores all events of the call. The error is that of the log, or ctx's.
func (c *call) storeAll(ctx context.Context) error {
	q, err := c.ask(ctx)
	if err != nil {
		return err
	}
	if err := c.start(ctx, q); err != nil {
		return err
	}
	if c.known {
		return c.run.finishCall(ctx, c, c.run.newest())
	}
	select {
	case <-c.headers:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.status < 200 || c.status > 299 {
		return c.storeFailure(ctx)
	}
	how, err := c.stream(ctx)
	if err != nil {
		return err
	}
	if how.state != schema.StateDone && c.isCut() {
		claimed, err := c.hold(ctx, how)
		if err != nil || claimed {
			return err
		}
	}
	return c.finish(ctx, how)
}

// ask reads the request and waits for the call's turn. Where the run is not known, the request decides it.
func (c *call) ask(ctx context.Context) (*question, error) {
	var q *question
	select {
	case <-c.settled:
	default:
		var err error
		if q, err = c.question(ctx); err != nil {
			return nil, err
		}
		found := c.p.talks.find(c, &q.talk)
		c.remember(q, found)
		c.settle(found)
		c.p.talks.move(c)
	}
	if err := c.turn(ctx); err != nil {
		return nil, err
	}
	if q == nil {
		var err error
		if q, err = c.question(ctx); err != nil {
			return nil, err
		}
	}
	if c.thread == nil {
		c.remember(q, c.asked.key)
	}
	return q, nil
}

// remember lets the next call of the conversation find this one, in a run; the zero key: that which was asked for.
func (c *call) remember(q *question, key schema.RunKey) {
	if q.read {
		c.thread = c.p.talks.add(c, cmp.Or(key, c.asked.key), &q.talk)
	}
}

// turn waits until the lane's calls before this one are stored.
func (c *call) turn(ctx context.Context) error {
	if c.before == nil {
		return nil
	}
	select {
	case <-c.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// storeFailure stores that the call failed, unless a repeat takes its place.
func (c *call) storeFailure(ctx context.Context) error {
	events, how, err := c.failure(ctx)
	if err != nil {
		return err
	}
	claimed, err := c.hold(ctx, how)
	if err != nil || claimed {
		return err
	}
	if err := c.send(ctx, events); err != nil {
		return err
	}
	return c.finish(ctx, how)
}

// start stores the beginning: losses of calls before, the messages of the request, and model.start.
func (c *call) start(ctx context.Context, q *question) error {
	owed := c.run.debts()
	c.asks = q
	sink, err := c.run.start(ctx, c, func() ([]schema.Event, bool) { return c.beginning(q, owed) })
	c.asks = nil
	if err != nil {
		for _, l := range owed {
			c.run.owe(l)
		}
		return err
	}
	c.sink = sink
	return nil
}

// beginning returns the first events of the call, and whether the request has news.
func (c *call) beginning(q *question, owed []loss) (first []schema.Event, isNews bool) {
	c.run.mu.Lock()
	asked := c.asked
	c.known = asked.watched != "" && (c.lane.hasResponse(asked.watched) || !c.p.made.locate(&asked))
	if c.known {
		c.run.mu.Unlock()
		return nil, false
	}
	events, what := q.events(&c.lane.memory)
	c.sent = what.request
	c.claim(c.sent)
	c.run.mu.Unlock()
	first = make([]schema.Event, 0, len(owed)+len(events)+1)
	for _, l := range owed {
		first = append(first, c.here(lossEvent(l)))
	}
	if c.first != nil { // model.start is there
		return c.filter.Events(append(first, events...)), len(what.items) > 0
	}
	begin := provider.Fields{
		{Name: "call_id", Value: provider.Quote(c.id())}, {Name: "provider", Value: provider.Quote(c.api.provider)},
	}
	if c.model != "" {
		begin = append(begin, provider.Field{Name: "model", Value: provider.Quote(c.model)})
	}
	if what.request != (sum{}) {
		begin = append(begin, provider.Field{Name: "conversation", Value: provider.Quote(what.request.String())})
	}
	if what.continues != "" {
		begin = append(begin, provider.Field{Name: "continues", Value: provider.Quote(what.continues)})
	}
	first = append(append(first, events...), c.here(schema.Event{Type: schema.TypeModelStart, Payload: begin.Encode()}))
	return c.filter.Events(first), len(what.items) > 0 || c.asked.watched != ""
}

// How long a recorder waits for what another proxy has not stored yet: an answer that has begun, and one that the
// request repeats and the log does not hold.
const (
	awaitEnd    = 3 * time.Second
	awaitAnswer = time.Second
)

// answerWait returns how long to wait until the log has the answer that the request goes on from.
func (c *call) answerWait() time.Duration {
	if !c.asks.read {
		return 0
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	return c.lane.answerWait(&c.asks.talk, c.retries > 0)
}

// id is that of model.start and model.end.
func (c *call) id() string { return "model_" + c.name }

// here puts an event into the call's lane and turn.
func (c *call) here(e schema.Event) schema.Event {
	cfg := c.providerConfig()
	e.ChildID, e.Path, e.TurnID = cfg.ChildID, cfg.Path, cfg.TurnID
	return e
}

// providerConfig returns where the decoder's events belong.
func (c *call) providerConfig() provider.Config {
	cfg := provider.Config{ChildID: c.asked.child, TurnID: c.asked.turn, Unnamed: c.mint}
	if cfg.ChildID != "" {
		cfg.Path = []string{c.asked.key.Run, cfg.ChildID}
	}
	return cfg
}

// send stores events of the call's lane and remembers their content.
func (c *call) send(ctx context.Context, events []schema.Event) error {
	if len(events) == 0 {
		return nil
	}
	if events = c.filter.Events(events); len(events) == 0 {
		return nil
	}
	c.distinguish(events)
	if c.run.named || c.thread != nil {
		c.sign(events)
	}
	for i := range events {
		c.seen.See(&events[i])
	}
	if err := c.store(ctx, events); err != nil {
		return err
	}
	if c.api.again {
		c.p.made.see(c.asked, events)
	}
	return nil
}

// store stores events that are as they shall be.
func (c *call) store(ctx context.Context, events []schema.Event) error {
	c.asked.addTrace(events)
	at, err := c.sink.Send(ctx, events...)
	if err != nil {
		return trail("write to", c.asked.key, err)
	}
	c.run.rememberStored(c, events, at.First, at.Last)
	return nil
}

// finish emits model.end, ends the child if that was asked for, and the run if it is over.
func (c *call) finish(ctx context.Context, how result) error {
	end := provider.Fields{
		{Name: "call_id", Value: provider.Quote(c.id())}, {Name: "ok", Value: provider.Bool(how.state == schema.StateDone)},
		{Name: "duration_ms", Value: provider.Number(int(time.Since(c.began).Milliseconds()))},
	}
	if c.attempts > 0 {
		end = append(end, provider.Field{Name: "attempts", Value: provider.Number(c.attempts + 1)})
	}
	if c.status != 0 {
		end = append(end, provider.Field{Name: "status", Value: provider.Number(c.status)})
	}
	if how.reason != "" {
		end = append(end, provider.Field{Name: "error", Value: provider.ErrorOf(string(how.state), how.reason)})
	}
	events := []schema.Event{c.here(schema.Event{Type: schema.TypeModelEnd, Payload: end.Encode()})}
	if c.asked.child != "" && c.asked.end != "" {
		state := how
		if c.asked.end == schema.StateAborted && how.state != schema.StateAborted {
			state = result{schema.StateAborted, reasonAsked}
		}
		events = append(events, c.here(lifecycle(state.state, state.reason)))
		c.lane.began = false
	}
	if err := c.send(ctx, events); err != nil {
		return err
	}
	if h := c.p.cfg.Hooks.Kept; h != nil && c.seen.CountKept() > 0 {
		h(c.api.provider, c.seen.CountKept())
	}
	c.run.mu.Lock()
	a := c.lane.byID(c.id())
	c.run.mu.Unlock()
	c.p.talks.finish(c, a)
	for f := c.first; f != nil; f = f.first {
		<-f.left // so that this call is the run's last
	}
	return c.run.finishCall(ctx, c, how)
}

// transportResult returns how a call went of whose answer nothing is known but that.
func (c *call) transportResult() result {
	switch c.outcome {
	case OutcomeOK:
		return result{state: schema.StateDone}
	case OutcomeCancelled:
		return result{schema.StateAborted, errCancelled.Error()}
	case OutcomeRefused:
		return result{schema.StateError, fmt.Sprintf("%d %s", c.status, http.StatusText(c.status))}
	}
	return result{schema.StateError, errBroken.Error()}
}

// giveUp is for what the log does not take: it counts what the run lacks, and records it where it can.
func (c *call) giveUp(ctx context.Context, err error) {
	l := loss{reason: reasonRefused}
	switch {
	case ctx.Err() != nil:
		l.reason = reasonShutdown
	case errors.Is(err, schema.ErrEnded):
		l.reason = reasonEnded
	case errors.Is(err, errFault):
		l.reason = reasonFault
	}
	c.request.close(l.reason)
	c.answer.close(l.reason)
	_ = c.answer.waitEnd(ctx) // or what is known by now
	all, _, _, _ := c.answer.fate()
	l.bytes = all - c.recorded
	c.p.reportLoss(Loss{Key: c.asked.key, Reason: l.reason, Bytes: l.bytes}, err)
	if l.reason == reasonRefused || l.reason == reasonFault {
		c.run.owe(l)
		if err := c.run.finishCall(ctx, c, c.transportResult()); err != nil {
			c.p.cfg.Logger.Warn("proxy: end of a run that lacks a part", "run", c.asked.key.String(), "err", err)
		}
		c.run.drop(ctx)
	}
}
