package producers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// Turn is one answer of the agent: everything between a person's message and the agent's next silence.
// Messages, model calls and tool calls belong to one. Its methods use the context of [Lane.Turn].
type Turn struct {
	lane   *Lane
	id     string
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   bool // guarded by the run's lock
}

// Turn begins a turn: turn.start. ctx is the agent's work on it; when it ends, call Close, which writes
// the cancellation. ErrOpen: the lane has one already.
func (l *Lane) Turn(ctx context.Context) (*Turn, error) {
	r := l.run
	t := &Turn{lane: l, id: r.cfg.NewID("turn")}
	starting, done, err := l.enterCall(ctx)
	if err != nil {
		return nil, fmt.Errorf("producers: run %s: begin a turn of %q: %w", r.cfg.RunID, l.id, err)
	}
	defer done()
	if l.turn != nil {
		return nil, fmt.Errorf("producers: run %s: begin a turn of %q: turn %s: %w", r.cfg.RunID, l.id, l.turn.id, ErrOpen)
	}
	l.turn = t
	if err := l.emit(starting, schema.TypeTurnStart, object(nil).text("turn_id", t.id).close()); err != nil {
		l.turn = nil
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	r.live.add(t)
	return t, nil
}

// ID returns the turn's id.
func (t *Turn) ID() string { return t.id }

// Context ends when the turn's own does and when the turn is cancelled. Hand it to models and tools.
func (t *Turn) Context() context.Context { return t.ctx }

// endTurn forgets the open turn. Called with the run's lock held.
func (l *Lane) endTurn() {
	if l == nil || l.turn == nil {
		return
	}
	l.turn.over = true
	l.run.live.remove(l.turn)
	l.turn.cancel(ErrOver)
	l.turn = nil
}

// emit emits an event. Called with the run's lock held.
func (t *Turn) emit(typ string, payload json.RawMessage) error {
	if t.over {
		return fmt.Errorf("producers: run %s: say %s in turn %s: %w", t.lane.run.cfg.RunID, typ, t.id, ErrOver)
	}
	return t.lane.emit(t.ctx, typ, payload)
}

// emitAs is emit for another actor than the agent. Called with the run's lock held.
func (t *Turn) emitAs(actor, typ string, payload json.RawMessage) error {
	if t.over {
		return t.emit(typ, payload)
	}
	return t.lane.emitAs(t.ctx, actor, typ, payload)
}

// enter takes the run's lock, or gives up when the turn's context ends before.
func (t *Turn) enter(doing, what string) error {
	if err := t.lane.run.enter(t.ctx); err != nil {
		return fmt.Errorf("producers: run %s: %s %s in turn %s: %w", t.lane.run.cfg.RunID, doing, what, t.id, err)
	}
	return nil
}

// lockAndEmit takes the run's lock and emits one event.
func (t *Turn) lockAndEmit(typ string, payload json.RawMessage) error {
	if err := t.enter("say", typ); err != nil {
		return err
	}
	defer t.lane.run.leave()
	return t.emit(typ, payload)
}

// End ends the turn well: turn.end with the stop reason (end_turn and so on). ErrOpen: a message, a call
// or a child has not ended. with are events of the turn's lane that are emitted together with the end, as by
// [Lane.EmitAll], for instance commands.taken for the command that the turn has answered.
func (t *Turn) End(stop string, with ...schema.Event) error { return t.finish(stop, false, with) }

// EndRun is End for the last turn: the lane's run.lifecycle, done, is emitted together with the turn's end.
func (t *Turn) EndRun(stop string, with ...schema.Event) error { return t.finish(stop, true, with) }

// finish ends the turn, and with run the run as well, in one pack.
func (t *Turn) finish(stop string, run bool, with []schema.Event) error {
	r := t.lane.run
	if err := t.enter("end", ""); err != nil {
		return err
	}
	defer r.leave()
	if !t.over && r.open.inTurn(t.lane.id) {
		return fmt.Errorf("producers: run %s: end turn %s: %w", r.cfg.RunID, t.id, ErrOpen)
	}
	if t.over || t.lane.over(schema.TypeTurnEnd) != nil {
		return t.emit(schema.TypeTurnEnd, nil) // which returns why not
	}
	events := append(t.lane.together(with),
		t.lane.event(schema.TypeTurnEnd, object(nil).text("turn_id", t.id).str("stop_reason", stop).close()))
	events[len(with)].TurnID = t.id
	if run {
		events = append(events, t.lane.event(schema.TypeRunLifecycle, lifecyclePayload(schema.StateDone, "")))
	}
	if err := r.send(t.ctx, events...); err != nil {
		return err
	}
	t.lane.endTurn()
	return nil
}

// Cancel ends the turn with all that is open in it, children too, and leaves the lane's state: the
// conversation may go on. What is cancelled twice is cancelled once.
func (t *Turn) Cancel(reason string) error {
	return t.close(Closing{Child: t.lane.id, TurnOnly: true, Reason: reason})
}

// Fail is Cancel for a failure.
func (t *Turn) Fail(cause error) error {
	return t.close(Closing{Child: t.lane.id, TurnOnly: true, Failed: true, Reason: errorText(cause)})
}

func (t *Turn) close(c Closing) error { return t.lane.run.close(t.ctx, t.lane, c, t) }

// Close ends a turn that has not ended: as cancelled when its context has, else as failed. Defer it
// behind Turn.
func (t *Turn) Close() error {
	if cause := context.Cause(t.ctx); cause != nil {
		return t.Cancel(cause.Error())
	}
	return t.Fail(errors.New("the agent left the turn"))
}

// Feed emits events that were made elsewhere, for instance by an adapter, as the turn's own: lane and turn are set
// here.
func (t *Turn) Feed(events ...schema.Event) error {
	r := t.lane.run
	if err := t.enter("feed events", ""); err != nil {
		return err
	}
	defer r.leave()
	for i := range events {
		if t.over {
			return fmt.Errorf("producers: run %s: say %s in turn %s: %w", r.cfg.RunID, events[i].Type, t.id, ErrOver)
		}
		e := events[i]
		e.ChildID, e.Path, e.TurnID = t.lane.id, t.lane.path, t.id
		if err := r.sendOne(t.ctx, &e); err != nil {
			return err
		}
	}
	return nil
}

// User emits what a person wrote, as a message of theirs.
func (t *Turn) User(text string) error {
	m, err := t.openMessage(MessageInfo{Role: "user"}, "user")
	if err != nil {
		return err
	}
	if text != "" {
		if err := m.Text(text); err != nil {
			return err
		}
	}
	return m.End("", nil)
}

// Task emits task.start and returns a function that ends the task.
func (t *Turn) Task(name string) (end func(ok bool) error, err error) {
	if err := shortNames(name); err != nil {
		return nil, fmt.Errorf("producers: run %s: begin a task: %w", t.lane.run.cfg.RunID, err)
	}
	id := t.lane.run.cfg.NewID("task")
	if err := t.lockAndEmit(schema.TypeTaskStart, object(nil).text("task_id", id).str("name", name).close()); err != nil {
		return nil, err
	}
	return func(ok bool) error {
		r := t.lane.run
		if err := t.enter("end task", id); err != nil {
			return err
		}
		defer r.leave()
		if t.over || r.open.lane(t.lane.id).Item(assemble.TaskStart, id) == nil {
			return fmt.Errorf("producers: run %s: end task %s: %w", r.cfg.RunID, id, ErrOver)
		}
		return t.emit(schema.TypeTaskEnd, object(nil).text("task_id", id).str("name", name).yes("ok", ok).close())
	}, nil
}

// Calls returns the tool calls of the turn's lane that have begun and not ended, as they began, whoever
// announced them: what the agent has to run next. None when the turn is over.
func (t *Turn) Calls() []*Call {
	r := t.lane.run
	if t.enter("look at calls", "") != nil {
		return nil // the turn is over, and somebody waits for space
	}
	defer r.leave()
	var out []*Call
	if !t.over {
		for _, c := range items(r.open.lane(t.lane.id), assemble.CallStart) {
			out = append(out, &Call{turn: t, id: c.ID, tool: c.Tool, input: r.open.inputs[c], began: r.cfg.Now()})
		}
	}
	return out
}

// since returns a duration for an event, in milliseconds.
func (t *Turn) since(began time.Time) int64 { return t.lane.run.cfg.Now().Sub(began).Milliseconds() }
