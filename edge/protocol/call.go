package protocol

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/limits"
	"agentstream/edge/live"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/trace"
)

// Call is one request with what a route may do for it: read and write runs of the caller's tenant, and answer. One
// goroutine uses it until the route returns. Reads and writes of a run that the caller's credential does not cover
// answer like those of a run that is not there.
type Call struct {
	live.Report
	In       body.Incoming
	Node     *Node
	Protocol *Protocol // that it belongs to; nil: the server itself
	Writer   *Response
	Request  *http.Request // its body is read by Message or Body; nil once a conversation has begun
	Params   Params        // values of the route's {names}, unchecked
	Caller   auth.Caller   // who asks
	ID       string        // of the request, as the answer's header has it

	MaxMessage int // of Message over HTTP, in bytes; 0: as many as a body may have

	// OnLeave is called when the request, or the stream that it opened, has ended because its client is gone: not with the
	// node, nor by a limit of ours. It may use Append and what reads runs, and bounds its own time; Request may be nil by
	// then. nil: nothing is done.
	OnLeave func()

	meter *limits.Meter // of the tenant's limits; nil when there are none
	over  *over         // what carries the message and its answer; nil: an HTTP request

	Commands bool   // it may change something: what it reads has slots of its own
	quiet    bool   // it may not write
	noted    bool   // the audit feed has what it did, or that it may not
	root     string // of the child that Locate has found, which the credential covers with it

	body   []byte    // of the request, if it was read
	read   bool      // it was
	values [3]string // of headers, in place of a slice for each
}

// Leave returns what the request's body has taken of the memory for bodies.
func (c *Call) Leave() {
	c.body = nil
	c.In.Leave()
}

// Forget lets go of the request, for a stream that outlives it.
func (c *Call) Forget() {
	c.Request, c.Params, c.Writer.ResponseWriter, c.In, c.body = nil, nil, nil, body.Incoming{}, nil
}

// Params are the values of a route's {names}, in their order. There are few: a map would cost more than it saves.
type Params []Param

// Param is one of them.
type Param struct{ Name, Value string }

// Get returns the value of a name, "" where there is none.
func (p Params) Get(name string) string {
	for i := range p {
		if p[i].Name == name {
			return p[i].Value
		}
	}
	return ""
}

// Map returns the values by name.
func (p Params) Map() map[string]string {
	m := make(map[string]string, len(p))
	for _, v := range p {
		m[v.Name] = v.Value
	}
	return m
}

// Places in Call.values.
const (
	ValueID = iota
	valueLength
	valueETag
)

// Values of headers that all answers share. http.Header's methods replace a slice, they do not write into it.
var (
	headerJSON    = []string{"application/json"}
	headerNoStore = []string{"no-store"}
	HeaderNoSniff = []string{"nosniff"}
)

// Set puts a header into the answer. name is in its canonical form.
func (c *Call) Set(name string, place int, value string) {
	c.values[place] = value
	c.Writer.Header()[name] = c.values[place : place+1 : place+1]
}

// Tag puts an entity tag into the answer.
func (c *Call) Tag(tag string) { c.Set("Etag", valueETag, `"`+tag+`"`) }

// Header returns the headers of the answer: over gRPC its leading metadata, in a conversation nobody's.
func (c *Call) Header() http.Header {
	if c.Writer.ResponseWriter == nil {
		return http.Header{}
	}
	return c.Writer.Header()
}

// HasAnswered reports whether the answer has begun.
func (c *Call) HasAnswered() bool { return c.Writer.Status != 0 }

// Reply answers with a JSON body; over gRPC with an encoded message, and without a status.
func (c *Call) Reply(status int, body []byte) {
	if c.over != nil {
		c.over.reply(body)
		return
	}
	c.write(status, headerJSON, append(body, '\n'))
}

// ReplyAs is Reply with a body of another media type.
func (c *Call) ReplyAs(status int, mediaType string, body []byte) {
	if c.over != nil {
		c.over.reply(body)
		return
	}
	c.write(status, []string{mediaType}, body)
}

// write writes an answer.
func (c *Call) write(status int, mediaType []string, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = mediaType
	h["Cache-Control"] = headerNoStore
	c.Length(int64(len(body)))
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // a client that is gone has no use for the error
}

// Length sets how long the answer's body is, in bytes.
func (c *Call) Length(n int64) { c.Set("Content-Length", valueLength, strconv.FormatInt(n, 10)) }

// MayRead reports whether the caller may read. The answer to one who writes and may not read names what was
// written, and holds nothing of what is stored.
func (c *Call) MayRead() bool { return c.Caller.May(auth.ScopeRead) }

// Path returns the value of a {name} of the pattern, unescaped and unchecked.
func (c *Call) Path(name string) string { return c.Params.Get(name) }

// Query returns the parameters. The error wraps dialect.ErrBadRequest.
func (c *Call) Query() (Query, error) {
	if c.Request == nil {
		return nil, nil
	}
	return ReadQuery(c.Request)
}

// Incoming is the request's body, for Bodies.
func (c *Call) Incoming() *body.Incoming {
	c.Node.cfg.Bodies.Enter(&c.In, c.Writer.ResponseWriter, c.Request, c.Caller.Tenant)
	return &c.In
}

// Body reads the whole body, inflated; at most body.Config.MaxBytes. Media types that are not named are refused. What
// came over another transport has none: its message is returned. A body is read once, and returned again to who asks
// again.
func (c *Call) Body(types ...string) ([]byte, error) {
	switch {
	case c.over != nil:
		return c.over.message, nil
	case c.read:
		return c.body, nil
	}
	body, err := c.Node.cfg.Bodies.Document(c.Incoming(), types...)
	if errors.Is(err, ends.ErrMediaType) && c.Protocol != nil {
		err = dialect.Refuse(ends.ErrMediaType, "send %s, in UTF-8, and say so in Content-Type", strings.Join(types, " or "))
	}
	if err == nil {
		c.body, c.read = body, true
	}
	return body, err
}

// NewRun returns a new id with a prefix.
func (c *Call) NewRun(prefix string) string { return prefix + newHex() }

// Spend counts events and bytes against the tenant's limits, or refuses both when either is used up. The route must be
// one that writes.
func (c *Call) Spend(events int, bytes int64) error {
	if c.quiet {
		return auth.ErrForbidden
	}
	return c.Node.cfg.Limits.Spend(c.meter, events, bytes)
}

// LogContext returns the request's context with the time that the log has to take or to give what the request
// is about.
func (c *Call) LogContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), c.Node.cfg.LogTimeout)
}

// Key names the run of the path within the caller's tenant. The error wraps schema.ErrBadID.
func (c *Call) Key() (schema.RunKey, error) {
	run := c.Path("run")
	if err := schema.ValidRunID(run); err != nil {
		return schema.RunKey{}, err
	}
	c.Run = run
	return schema.RunKey{Tenant: c.Caller.Tenant, Run: run}, nil
}

// runKey names any run of the caller's tenant, if its credential covers that.
func (c *Call) runKey(run string) (schema.RunKey, error) {
	if err := schema.ValidRunID(run); err != nil {
		return schema.RunKey{}, fmt.Errorf("%w: %s", fanout.ErrNotFound, err) // no run has such an id
	}
	if only := c.Caller.Run; only != "" && only != run && c.root != run {
		return schema.RunKey{}, ends.OtherRun(only)
	}
	c.Run = run
	return schema.RunKey{Tenant: c.Caller.Tenant, Run: run}, nil
}

// Head returns the head of a run. The error wraps fanout.ErrNotFound for one that is not there.
func (c *Call) Head(ctx context.Context, run string) (schema.Head, error) {
	key, err := c.runKey(run)
	if err != nil {
		return schema.Head{}, err
	}
	return c.Node.cfg.Runs.Existing(ctx, key)
}

// Locate returns the run that an id names, and the head of it. child is the id where that names a child of the run,
// else "". What reads and writes the run may be asked about it from there on, also where the credential is for the
// child alone: the route keeps to the child's part of it. The error is that of Head.
func (c *Call) Locate(ctx context.Context, id string) (run, child string, head schema.Head, err error) {
	key, err := c.runKey(id)
	if err != nil {
		return "", "", head, err
	}
	src, head, err := c.Node.cfg.Runs.Locate(ctx, key)
	if err != nil {
		return "", "", head, err
	}
	c.root = src.Key.Run
	return src.Key.Run, src.Child, head, nil
}

// At returns a copy of the protocol's Stateful projector that was fed a run up to through, which must exist, for a
// request; the caller owns it. What two of them have counted at two places differs by exactly what lies between, which
// is not walked: each is fed from the checkpoint before its place.
func (c *Call) At(ctx context.Context, run string, through schema.Seq, req dialect.Request) (dialect.Stateful, error) {
	key, err := c.runKey(run)
	if err != nil {
		return nil, err
	}
	return c.Node.cfg.State.Projector(c.lane(ctx), key, c.Protocol.Dialect, through, req)
}

// Find looks for the frame with a token (dialect.Cursor.Token): the seq of its record, and how many frames of that
// record come before it in the form of req. The error wraps schema.ErrBadCursor when it is not there.
func (c *Call) Find(ctx context.Context, run string, at dialect.Cursor, req dialect.Request) (seq schema.Seq,
	before int, err error) {
	key, err := c.runKey(run)
	if err != nil {
		return 0, 0, err
	}
	f, err := c.Node.cfg.State.Find(c.lane(ctx), key, c.Protocol.Dialect, at, req)
	if err != nil {
		return 0, 0, err
	}
	return f.Seq, f.Index - 1, nil
}

// Records walks a run's records with after < seq ≤ through. They are valid until the next one; the walk ends with
// an error when something of it cannot be had.
func (c *Call) Records(ctx context.Context, run string, after, through schema.Seq) iter.Seq2[schema.Record, error] {
	key, err := c.runKey(run)
	if err != nil {
		return func(yield func(schema.Record, error) bool) { yield(schema.Record{}, err) }
	}
	return c.Node.cfg.Runs.Walk(c.lane(ctx), runs.Source{Key: key}, after, through)
}

// lane marks what a call that may change something reads: it has slots of its own.
func (c *Call) lane(ctx context.Context) context.Context {
	if c.Commands {
		return fair.Command(ctx)
	}
	return ctx
}

// Append stores events, checked as those of any producer are, all of them or none where they fit one pack. The error is
// that of producers.Appender, or wraps auth.ErrForbidden: a command to a run that is there needs the scope command,
// whatever the route needs. Who begins a run may say its first words with it.
func (c *Call) Append(ctx context.Context, run string, events []schema.Event,
	opt producers.AppendOptions) (producers.Receipt, error) {
	key, err := c.runKey(run)
	if err != nil {
		return producers.Receipt{}, err
	}
	if len(events) > 0 || opt.Plan == nil {
		err = c.prepare(run, events, opt.MustBeNew, true)
	} else {
		opt.Plan = c.preparePlan(run, opt.Plan)
	}
	if err != nil {
		return producers.Receipt{}, err
	}
	return c.Store(ctx, key, events, opt)
}

// preparePlan returns a plan whose events are checked as those that are given. They count against the tenant's limits
// once, however often others are faster.
func (c *Call) preparePlan(run string, plan planner) planner {
	spend := true
	return func(ctx context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
		events, err := plan(ctx, head, given)
		if err == nil {
			err = c.prepare(run, events, !head.HasEvents(), spend)
			spend = false
		}
		return events, err
	}
}

// planner is producers.AppendOptions.Plan.
type planner = func(ctx context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error)

// prepare checks events that are to be stored, of a run that begins with them or is there, and counts them against the
// tenant's limits if it is to spend.
func (c *Call) prepare(run string, events []schema.Event, begins, spend bool) error {
	bytes := int64(0)
	for i := range events {
		if !begins && schema.IsCommand(events[i].Type) && c.Allow(auth.ScopeCommand) != nil {
			return dialect.Refuse(auth.ErrForbidden, "%s needs the scope command", events[i].Type)
		}
		err := events[i].Prepare(run)
		if err == nil {
			_, err = c.Node.Check(&events[i])
		}
		if err != nil {
			return &schema.BatchError{Line: i + 1, Err: err}
		}
		bytes += int64(events[i].Size())
	}
	if !spend {
		return nil
	}
	return c.Spend(len(events), bytes)
}

// Store appends events that were checked and counted, and says so in the answer's headers and in the log. The error is
// that of producers.Appender.
func (c *Call) Store(ctx context.Context, key schema.RunKey, events []schema.Event,
	opt producers.AppendOptions) (producers.Receipt, error) {
	if c.quiet {
		return producers.Receipt{}, auth.ErrForbidden
	}
	opt.Trace = c.Trace()
	stored := events
	if plan := opt.Plan; plan != nil && c.Node.cfg.Audit != nil {
		opt.Plan = func(ctx context.Context, head schema.Head, given []schema.Event) (events []schema.Event, err error) {
			stored, err = plan(ctx, head, given)
			return stored, err
		}
	}
	receipt, err := c.Node.cfg.Appender.Append(ctx, key, events, opt)
	if err != nil {
		return receipt, dropTrail(err)
	}
	c.Node.RecordEvents(ctx, &c.Caller, c.Via(), key, stored, receipt.Last)
	c.Seq, c.Events = receipt.Last, len(events)
	if c.Events == 0 { // they were planned, and are one pack
		c.Events = int(receipt.Last + 1 - receipt.First)
	}
	if receipt.Replayed {
		c.Header().Set("Idempotency-Replayed", "true")
	} else if h := c.Node.cfg.Hooks.Ingested; h != nil {
		h(c.Events)
	}
	return receipt, nil
}

// dropTrail puts a refusal for the sake of where a run is into words for the client, without the trail. That of
// a batch of which a beginning is stored says so, and is left as it is.
func dropTrail(err error) error {
	refused, at := new(ends.PositionError), new(schema.BatchError)
	switch {
	case !errors.As(err, &refused), errors.As(err, new(*producers.PartialError)):
		return err
	case errors.As(err, &at):
		return &schema.BatchError{Line: at.Line, Err: refused}
	}
	return refused
}

// Snapshot returns the fold of a run, or of a child by its own id and numbers, at exactly through: the payload of an
// event with the id, time and number of its last record (schema/contracts/snapshot.schema.json). 0 is the newest
// record, which costs least. The bytes are shared and must not be changed. The error wraps fanout.ErrNotFound,
// fanout.ErrFuture for a record that is not there, fanout.ErrExpired where the beginning is no longer kept, or
// schema.ErrTooLarge.
func (c *Call) Snapshot(ctx context.Context, run string, through schema.Seq) (schema.Event, error) {
	key, err := c.runKey(run)
	if err != nil {
		return schema.Event{}, err
	}
	return c.Node.cfg.State.Snapshot(c.lane(ctx), key, through)
}

// Wait returns the head of a run once that has a record after the one with number after. Until then the run's topic
// keeps the call, as it keeps a silent stream: nobody asks again and again. The error wraps fanout.ErrNotFound for a
// run that is not there, and ends.ErrDraining when the node goes away; the context's cause ends the waiting too.
func (c *Call) Wait(ctx context.Context, run string, after schema.Seq) (schema.Head, error) {
	head, err := c.Head(ctx, run)
	if err != nil || head.Last > after {
		return head, err
	}
	key := schema.RunKey{Tenant: c.Caller.Tenant, Run: run}
	sub, err := c.Node.cfg.Runs.Hub.Subscribe(ctx, key, head.Last)
	if err != nil {
		return head, err
	}
	defer sub.Close()
	for last := head.Last; last <= after; {
		if err := c.park(ctx, sub); err != nil {
			return head, err
		}
		batch, err := sub.Next(ctx)
		if err != nil {
			return head, err
		}
		if n := len(batch.Packs); n > 0 {
			last = batch.Packs[n-1].Last()
		}
	}
	return c.Head(ctx, run)
}

// park waits until a subscription has something, the context ends, or the node goes away.
func (c *Call) park(ctx context.Context, sub *fanout.Subscription) error {
	wake := make(chan struct{}, 1)
	if sub.Notify(func(bool) { wake <- struct{}{} }) {
		return nil
	}
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.Node.cfg.Closing:
		return ends.ErrDraining
	}
}

// Failing returns the names of what the node needs and has not now, as it was found a moment ago at the earliest.
func (c *Call) Failing(ctx context.Context) []string { return c.Node.cfg.Failing(ctx) }

// Expire ends a run of which a deadline has passed, whoever else tries (producers.Expire). words are for the reason of
// its end. next is when to ask again; zero: never.
func (c *Call) Expire(ctx context.Context, run string, words producers.Reasons) (ended bool, next time.Time,
	err error) {
	key, err := c.runKey(run)
	if err != nil {
		return false, next, err
	}
	return c.Node.cfg.Appender.Expire(ctx, key, words)
}

// Trace returns the traceparent of the request, which is kept with the events that it brings; "" where there is none, and
// in a conversation, whose messages have none.
func (c *Call) Trace() string {
	if c.Request == nil {
		return ""
	}
	return trace.Of(c.Request.Header)
}

// AppendOptions returns the append options that the request's Idempotency-Key asks for. The error wraps
// dialect.ErrBadRequest.
func (c *Call) AppendOptions() (producers.AppendOptions, error) {
	if c.Request == nil {
		return producers.AppendOptions{}, nil
	}
	return ParseKey("Idempotency-Key", c.Request.Header["Idempotency-Key"])
}

// Ticket makes a ticket of the protocol's for a run, which need not be there, and returns until when it opens
// something. It has no more than the caller may, and ends with the caller's credential. The error wraps ends.ErrNoRoute
// where there are no tickets; others are those of auth.Tickets.Issue.
func (c *Call) Ticket(ctx context.Context, run string) (ticket string, until time.Time, err error) {
	if c.Node.cfg.Tickets == nil {
		return "", until, ends.ErrNoRoute
	}
	key, err := c.runKey(run)
	if err != nil {
		return "", until, err
	}
	terms := auth.Terms{}
	if c.Protocol != nil {
		terms = c.Protocol.Ticket.Terms
	}
	return c.Node.cfg.Tickets.Of(terms).Issue(ctx, c.Caller, key.Run)
}

// Runs lists runs of the caller's tenant as far as they have been persisted. The error wraps ErrNoRuns,
// fanout.ErrUnavailable, or auth.ErrForbidden for a caller that may see one run alone.
func (c *Call) Runs(ctx context.Context, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if c.Caller.Run != "" {
		return nil, auth.ErrForbidden
	}
	return c.Node.cfg.Runs.List(ctx, c.Caller.Tenant, q)
}

// newHex returns 32 hex digits that nobody has used.
func newHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
