package producers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// RunConfig of a Run. Sink and RunID are required.
type RunConfig struct {
	Sink  Sink   // a Publisher, or whatever else brings the events to a log
	RunID string // the root run
	// Open is what is open by the log, for an agent that goes on with a run that it, or somebody else,
	// has begun (see [Run.Recover]). nil: the run is new. The Run owns it from then on.
	Open *Open
	// Actor of the events; default "agent".
	Actor string
	// NewID makes ids of messages, turns and calls: "msg", "turn", "call" and so on; default is the word,
	// an underscore and a ULID.
	NewID func(word string) string
	// Grace bounds the writing of cancellations, after a context has ended; default 10 s.
	Grace time.Duration
	// Now returns the times that durations are made of; default time.Now.
	Now func() time.Time
}

func (c RunConfig) withDefaults() RunConfig {
	if c.Open == nil {
		c.Open = new(Open)
	}
	c.Actor = cmp.Or(c.Actor, "agent")
	if c.NewID == nil {
		ids := schema.NewIDs()
		c.NewID = func(word string) string {
			return word + "_" + ids.Event(time.Now(), "")[len(schema.EventPrefix):]
		}
	}
	if c.Grace <= 0 {
		c.Grace = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// One sentinel for each decision of an agent.
var (
	// ErrOver reports that what an event belongs to has ended meanwhile: the turn was cancelled, the message
	// is complete, the run is over. The agent stops what it is doing; all events are written.
	ErrOver = errors.New("it is over")
	// ErrOpen reports that something cannot begin, or end well, while something else is open.
	ErrOpen = errors.New("something is open")
)

// Run writes what an agent does, in the framing that all dialects need. The Run
// itself is the root [Lane]; children are lanes of their own.
//
// Run is safe for concurrent use: tools, children and a cancellation write at the same time. Each call writes
// all its events or none, and the events of one lane keep their order. Once something was cancelled, nothing
// of it is written any more (ErrOver), so that there is exactly one ending.
//
// What is refused for its own sake (schema.ErrTooLarge, schema.ErrMalformed and the like) fails its call and
// leaves all as it was; any other error of the sink is final. Ids and names have at most 256 bytes, text any
// length: it is written in pieces. A call that waits for space keeps the others waiting, each as long as its context
// lives, and a cancellation as long as its grace.
type Run struct {
	Lane
	cfg RunConfig

	// lock guards what is below. A call holds it while the sink has no space, so that all others
	// can give up waiting for it.
	lock  chan struct{}
	open  *Open
	lanes map[string]*Lane
	err   error           // of the sink: it is final
	one   [1]schema.Event // handed to the sink, which copies what it keeps
	buf   object          // the payload of a delta, handed to the sink like one

	live    live // who may have to be interrupted
	foreign foreign
}

// NewRun returns a Run. It writes nothing.
func NewRun(cfg RunConfig) (*Run, error) {
	if cfg.Sink == nil {
		return nil, errors.New("producers: run config: no sink")
	}
	if err := schema.ValidRunID(cfg.RunID); err != nil {
		return nil, fmt.Errorf("producers: run config: %w", err)
	}
	if len(cfg.Actor) > maxName {
		return nil, fmt.Errorf("producers: run config: actor of %d bytes: %w", len(cfg.Actor), schema.ErrTooLarge)
	}
	cfg = cfg.withDefaults()
	r := &Run{cfg: cfg, open: cfg.Open, lock: make(chan struct{}, 1)}
	if r.open.inputs == nil {
		r.open.inputs = map[*assemble.Item]json.RawMessage{}
	}
	r.Lane.run = r
	r.lanes = map[string]*Lane{"": &r.Lane}
	return r, nil
}

// Describe sets title, tags and metadata, by which people find the run: at its beginning, or later. What d does not
// name stays; of metadata the named pairs are set. The error wraps schema.ErrMalformed when d is beyond its bounds.
func (r *Run) Describe(ctx context.Context, d schema.Description) error {
	e, err := d.Event()
	if err != nil {
		return fmt.Errorf("producers: run %s: describe: %w", r.cfg.RunID, err)
	}
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.leave()
	return r.send(ctx, e)
}

// Lane is the run itself, or one of its children.
type Lane struct {
	run  *Run
	id   string   // "" is the run itself
	path []string // of a child
	turn *Turn    // the open one; guarded by the run's lock
}

// ID returns the child's run id, "" for the run itself.
func (l *Lane) ID() string { return l.id }

// send emits events together. Called with the lock held; nothing is sent when ctx, which bounds waiting for
// space, has ended.
func (r *Run) send(ctx context.Context, events ...schema.Event) error {
	if r.err != nil || len(events) == 0 {
		return r.err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("producers: run %s: emit %s: %w", r.cfg.RunID, events[0].Type, context.Cause(ctx))
	}
	for i := range events {
		e := &events[i]
		if e.RunID = r.cfg.RunID; e.Actor == "" {
			e.Actor = r.cfg.Actor
		}
	}
	if err := r.cfg.Sink.Send(ctx, events...); err != nil {
		r.noteFailure(ctx, err)
		return fmt.Errorf("producers: run %s: emit %s: %w", r.cfg.RunID, events[0].Type, err)
	}
	for i := range events {
		r.open.See(&events[i])
	}
	return nil
}

// sendOne is send for one event, without space of its own.
func (r *Run) sendOne(ctx context.Context, e *schema.Event) error {
	r.one[0] = *e
	err := r.send(ctx, r.one[:]...)
	r.one[0] = schema.Event{}
	return err
}

func (l *Lane) event(typ string, payload json.RawMessage) schema.Event {
	return schema.Event{Type: typ, ChildID: l.id, Path: l.path, Payload: payload}
}

// Emit publishes an event of any type, with a payload that encoding/json takes (json.RawMessage as it is), as
// part of the open turn where there is one.
func (l *Lane) Emit(ctx context.Context, typ string, payload any) error {
	body, err := jsonOf(payload)
	if err != nil {
		return fmt.Errorf("producers: run %s: emit %s: %w", l.run.cfg.RunID, typ, err)
	}
	ctx, done, err := l.enterCall(ctx)
	if err != nil {
		return fmt.Errorf("producers: run %s: emit %s: %w", l.run.cfg.RunID, typ, err)
	}
	defer done()
	return l.emit(ctx, typ, body)
}

// EmitAll emits events that belong together, for instance the effects of a command and commands.taken
// (see producers/command). A Publisher stores them together or not at all, up to one pack. They have a type and
// a payload; lane, turn and actor are set here.
func (l *Lane) EmitAll(ctx context.Context, events ...schema.Event) error {
	r := l.run
	ctx, done, err := l.enterCall(ctx)
	if err != nil {
		return fmt.Errorf("producers: run %s: say %d events: %w", r.cfg.RunID, len(events), err)
	}
	defer done()
	for i := range events {
		if err := l.over(events[i].Type); err != nil {
			return err
		}
	}
	return r.send(ctx, l.together(events)...)
}

// together makes events the lane's own. Called with the lock held.
func (l *Lane) together(events []schema.Event) []schema.Event {
	all := make([]schema.Event, len(events))
	for i, e := range events {
		all[i] = l.event(e.Type, e.Payload)
		all[i].Actor, all[i].Cause = e.Actor, e.Cause
		if l.turn != nil {
			all[i].TurnID = l.turn.id
		}
	}
	return all
}

// over reports whether a lane takes no event of a type any more. Only the run itself can go on after its end:
// with a new state. Called with the lock held.
func (l *Lane) over(typ string) error {
	own, root := l.run.open.State(l.id), l.run.open.State("")
	if l.id != "" && (own.Final() || root.Final()) || root.Final() && typ != schema.TypeRunLifecycle {
		return fmt.Errorf("producers: run %s: emit %s of %q: %w", l.run.cfg.RunID, typ, l.id, ErrOver)
	}
	return nil
}

// emit is called with the lock held.
func (l *Lane) emit(ctx context.Context, typ string, payload json.RawMessage) error {
	return l.emitAs(ctx, "", typ, payload)
}

func (l *Lane) emitAs(ctx context.Context, actor, typ string, payload json.RawMessage) error {
	if err := l.over(typ); err != nil {
		return err
	}
	e := l.event(typ, payload)
	e.Actor = actor
	if l.turn != nil {
		e.TurnID = l.turn.id
	}
	return l.run.sendOne(ctx, &e)
}

// State emits run.lifecycle. For final states use Done, Cancel and Fail, which end what is open first.
func (l *Lane) State(ctx context.Context, s schema.RunState, reason string) error {
	ctx, done, err := l.enterCall(ctx)
	if err != nil {
		return fmt.Errorf("producers: run %s: say state %s of %q: %w", l.run.cfg.RunID, s, l.id, err)
	}
	defer done()
	switch open := l.run.open; {
	case s.Final() && open.State(l.id).Final():
		return fmt.Errorf("producers: run %s: say state %s of %q: %w", l.run.cfg.RunID, s, l.id, ErrOver)
	case s.Final() && open.Any(l.id):
		return fmt.Errorf("producers: run %s: say state %s of %q: %w", l.run.cfg.RunID, s, l.id, ErrOpen)
	}
	return l.emit(ctx, schema.TypeRunLifecycle, lifecyclePayload(s, reason))
}

// Finish ends the lane well, and flushes. ErrOpen: a turn or a child has not ended.
func (l *Lane) Finish(ctx context.Context) error {
	if err := l.State(ctx, schema.StateDone, ""); err != nil {
		return err
	}
	return l.run.cfg.Sink.Flush(ctx)
}

// Cancel ends the lane, with all that is open in it and below it, as aborted, and flushes. Whoever still
// writes there gets ErrOver, and turns' contexts end. Cancelling what is over writes nothing. ctx may have
// ended: the end is written within the configured grace.
func (l *Lane) Cancel(ctx context.Context, reason string) error {
	return l.run.close(ctx, l, Closing{Child: l.id, Reason: reason}, nil)
}

// Fail is Cancel for a failure: the lane ends in state error.
func (l *Lane) Fail(ctx context.Context, cause error) error {
	return l.run.close(ctx, l, Closing{Child: l.id, Failed: true, Reason: errorText(cause)}, nil)
}

// CloseWith is Cancel or Fail, with events of the lane that are stored in one pack with its last turn.end and
// run.lifecycle, for instance commands.taken.
func (l *Lane) CloseWith(ctx context.Context, c Closing, with ...schema.Event) error {
	c.Child, c.TurnOnly = l.id, false
	return l.run.close(ctx, l, c, nil, with...)
}

// Recover ends what another life of the agent left open, as a failure with this reason, and leaves the
// lane's state as it is: the agent goes on from there.
func (l *Lane) Recover(ctx context.Context, reason string) error {
	return l.run.close(ctx, l, Closing{Child: l.id, TurnOnly: true, Failed: true, Reason: reason}, nil)
}

// Spawn announces a child and returns its lane. call is the tool call that delegates to it, where one does
// ("" else): when the child is cancelled with its parent, its end comes before the call's. An empty id is
// made up; one that the run has already wraps ErrOpen. The announcement is stored before Spawn returns, so
// that the child cannot overtake it.
func (l *Lane) Spawn(ctx context.Context, id, prompt, call string, tools ...string) (*Lane, error) {
	r := l.run
	if id == "" {
		id = r.cfg.NewID("run")
	}
	if err := schema.ValidRunID(id); err != nil {
		return nil, fmt.Errorf("producers: run %s: spawn: %w", r.cfg.RunID, err)
	}
	path := l.path
	if len(path) == 0 {
		path = []string{r.cfg.RunID}
	}
	child := &Lane{run: r, id: id, path: append(slices.Clone(path), id)}
	payload := object(nil).text("child_id", id).str("prompt", prompt).str("call_id", call)
	if len(tools) > 0 {
		list, err := json.Marshal(tools)
		if err != nil {
			return nil, fmt.Errorf("producers: run %s: spawn: %w", r.cfg.RunID, err)
		}
		payload = payload.raw("tools_allowed", list)
	}
	if err := child.announce(ctx, l, payload.close()); err != nil {
		return nil, err
	}
	if err := r.cfg.Sink.Flush(ctx); err != nil {
		return nil, err
	}
	return child, child.State(ctx, schema.StateRunning, "")
}

// announce emits child.spawn, if the child can write something then.
func (l *Lane) announce(ctx context.Context, by *Lane, payload json.RawMessage) error {
	r := l.run
	fail := func(err error) error {
		return fmt.Errorf("producers: run %s: spawn %s: %w", r.cfg.RunID, l.id, err)
	}
	first := l.event(schema.TypeRunLifecycle, lifecyclePayload(schema.StateRunning, ""))
	if err := first.Prepare(r.cfg.RunID); err != nil {
		return fail(err)
	}
	ctx, done, err := by.enterCall(ctx)
	if err != nil {
		return fail(err)
	}
	defer done()
	if r.lanes[l.id] != nil || r.open.reading().Lane(l.id) != nil {
		return fail(fmt.Errorf("it exists already: %w", ErrOpen))
	}
	if err := by.emit(ctx, schema.TypeChildSpawn, payload); err != nil {
		return err
	}
	r.lanes[l.id] = l
	return nil
}

// Step emits a step.boundary. kind is one of native §3.5; checkpoint may be "".
func (l *Lane) Step(ctx context.Context, index int, kind, checkpoint string) error {
	o := object(nil).integer("step_index", int64(index)).text("step_kind", kind)
	if checkpoint == "" {
		return l.Emit(ctx, schema.TypeStepBoundary, o.raw("checkpoint_id", []byte("null")).close())
	}
	return l.Emit(ctx, schema.TypeStepBoundary, o.text("checkpoint_id", checkpoint).close())
}

// Ask emits input.requested, a question to a person. The answer comes as a command. options and form (a
// JSON Schema) may be nil.
func (l *Lane) Ask(ctx context.Context, request, prompt string, options []string, form json.RawMessage) error {
	o := object(nil).text("request_id", request).str("prompt", prompt)
	if options != nil {
		list, err := json.Marshal(options)
		if err != nil {
			return fmt.Errorf("producers: run %s: ask %s: %w", l.run.cfg.RunID, request, err)
		}
		o = o.raw("options", list)
	}
	return l.Emit(ctx, schema.TypeInputRequested, o.raw("schema", form).close())
}

// Answer reports to readers that a question has its answer; nil is null: no answer came in time.
func (l *Lane) Answer(ctx context.Context, request string, answer any) error {
	v, err := jsonOf(answer)
	if err != nil {
		return fmt.Errorf("producers: run %s: answer %s: %w", l.run.cfg.RunID, request, err)
	}
	if v == nil {
		v = json.RawMessage("null")
	}
	return l.Emit(ctx, schema.TypeInputAnswered, object(nil).text("request_id", request).raw("answer", v).close())
}

// Receive hands the Run an event that somebody else wrote into the run: a command that the agent obeys. A
// message that takes the run up again, after its end, is one that it must know of.
//
// It does not block, so that whoever receives a cancellation can obey it at once.
func (r *Run) Receive(e *schema.Event) { r.foreign.add(e) }

// Flush returns when everything that was written is stored.
func (r *Run) Flush(ctx context.Context) error { return r.cfg.Sink.Flush(ctx) }
