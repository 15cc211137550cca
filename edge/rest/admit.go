package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// Commands come by routes of their own, and among the events of any request that appends. In each way they are signed
// by signCommand, and held to the state of the run by admit.

// hasCommands reports whether there are commands among events.
func hasCommands(events []schema.Event) bool { return lastCommand(events) >= 0 }

// lastCommand returns the index of the last command among events, -1 for none.
func lastCommand(events []schema.Event) int {
	i := len(events) - 1
	for i >= 0 && !schema.IsCommand(events[i].Type) {
		i--
	}
	return i
}

// authorize holds an event that a producer sends to what its caller may write: a command needs the scope command, and
// is signed. changed reports whether the event is another one now, and must be prepared again.
func authorize(caller *auth.Caller, e *schema.Event) (changed bool, err error) {
	if !schema.IsCommand(e.Type) {
		return false, nil
	}
	if !caller.May(auth.ScopeCommand) {
		return false, dialect.Refuse(auth.ErrForbidden, "%s needs the scope command", e.Type)
	}
	return true, signCommand(caller, e)
}

// signCommand writes into a command who sends it, which only the credential says: agents go by that.
func signCommand(caller *auth.Caller, e *schema.Event) error {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(orObject(e.Payload), &fields); err != nil || fields == nil {
		return fmt.Errorf("the payload is not a JSON object: %w", schema.ErrMalformed)
	}
	e.Actor = "user"
	_, claims := fields["by"]
	if caller.Subject == "" && !claims && len(e.Payload) > 0 {
		return nil // the bytes stay as they were sent
	}
	delete(fields, "by")
	var err error
	if caller.Subject != "" {
		if fields["by"], err = encodeJSON(caller.Subject); err != nil {
			return err
		}
	}
	e.Payload, err = encodeJSON(fields)
	return err
}

func orObject(payload []byte) []byte {
	if len(payload) == 0 {
		return []byte(`{}`)
	}
	return payload
}

// encodeJSON returns a value as the log has it: an object is sorted, and texts are as they are.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("the body holds what JSON cannot: %w", dialect.ErrBadRequest)
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

// admitFrom returns admit for what a caller sends.
func (a *API) admitFrom(caller *auth.Caller) admission {
	named := caller.May(auth.ScopeRead)
	return func(ctx context.Context, key schema.RunKey, head schema.Head, events []schema.Event) error {
		return a.admit(ctx, key, head, events, named)
	}
}

// admit decides whether a run that stands at head takes events (producers.AppendOptions): each command among them must
// be one that the run takes as it is right before it. Of a run whose fold is too large, or whose beginning and end are
// gone, only the state is known. named: a refusal says by their ids what the run waits for, which is content of the
// run.
func (a *API) admit(ctx context.Context, key schema.RunKey, head schema.Head, events []schema.Event, named bool) error {
	if !hasCommands(events) {
		return nil
	}
	if !head.HasEvents() {
		if schema.IsCommand(events[0].Type) {
			return fanout.ErrNotFound
		}
		return permitAll(new(schema.Fold), false, head, events, named)
	}
	err := a.cfg.State.Fold(fair.Command(ctx), key, head.Last,
		func(f *state.Folded) error { return permitAll(f.Fold, f.First > 0, head, events, named) })
	if errors.Is(err, schema.ErrTooLarge) || errors.Is(err, fanout.ErrExpired) {
		return permitAll(&schema.Fold{Last: head.Last}, true, head, events, named)
	}
	return err
}

// readAhead folds the run of an id as it stands. Reading a long run must not hold up those who append to it, which it
// would within admit. An error shows again there.
func (a *API) readAhead(ctx context.Context, key schema.RunKey) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LogTimeout)
	defer cancel()
	if src, head, err := a.cfg.Runs.Locate(ctx, key); err == nil {
		a.foldAhead(ctx, src.Key, head)
	}
}

func (a *API) foldAhead(ctx context.Context, key schema.RunKey, head schema.Head) {
	_ = a.cfg.State.Fold(fair.Command(ctx), key, head.Last, func(*state.Folded) error { return nil })
}

// permitAll asks permit about each command of events. What comes before one counts: the fold, which others share, is
// copied for that.
func permitAll(f *schema.Fold, partial bool, head schema.Head, events []schema.Event, named bool) error {
	last, shared := lastCommand(events), true
	for i := range events[:last+1] {
		e := &events[i]
		if schema.IsCommand(e.Type) {
			if err := permit(f, partial, head, e, named); err != nil {
				return addLine(i, len(events), err)
			}
		}
		if i == last {
			break
		}
		if shared {
			copied, err := schema.ParseSnapshot(f.AppendSnapshot(nil))
			if err != nil {
				return fmt.Errorf("copy the fold: %w", err)
			}
			f, shared = copied, false
		}
		if err := head.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil {
			return addLine(i, len(events), err)
		}
		next := *e
		next.Seq = head.Last
		f.Add(&next)
	}
	return nil
}

// addLine adds to an error which of several events it is about.
func addLine(i, of int, err error) error {
	if of == 1 {
		return err
	}
	return &schema.BatchError{Line: i + 1, Err: err}
}

// pausable returns why a run in a state cannot be paused, "" if it can.
func pausable(over, waits bool, state schema.RunState) string {
	switch {
	case over:
		return "this run has ended; only a running run can be paused"
	case waits:
		return "this run has been asked to pause already"
	case state != "" && state != schema.StateRunning && state != schema.StatePlanning:
		return "only a running or planning run can be paused"
	}
	return ""
}

// permit is the table of what each command needs. The fold may be newer than the head: then the
// compare-and-set fails and the question comes again. partial says that the fold does not know all.
func permit(f *schema.Fold, partial bool, head schema.Head, e *schema.Event, named bool) error {
	child := e.ChildID
	state := f.StateOf(child)
	switch {
	case child != "" && f.Child(child) == nil && !partial:
		return runs.ErrNoChild
	case child == "" && state == "":
		state = head.State
	}
	over := state.Final() || f.StateOf("").Final() || head.State.Final()
	name, why := strings.TrimPrefix(e.Type, "command."), ""
	switch name {
	case "approve_plan", "reject_plan":
		why = decidable(f, e, over)
	case "pause":
		why = pausable(over, f.HasWaiting(child, "pause"), state)
	case "resume":
		if over || !f.HasWaiting(child, "pause") && (state != schema.StatePaused || f.HasWaiting(child, "resume")) {
			why = "only a run that is paused, or has been asked to pause, can be resumed"
		}
	case "redirect":
		if over {
			why = "the run is over"
		}
	case "cancel":
		if over {
			why = "the run is over"
		} else if f.HasWaiting(child, "cancel") {
			why = "the run has been told already"
		}
	case "answer":
		why = answerable(f, e, over)
	}
	if why == "" {
		return nil
	}
	if state == "" {
		state = "unknown"
	}
	if named {
		why += waiting(f)
	}
	return &ends.PositionError{Last: f.Last,
		Err: dialect.Refuse(ends.ErrState, "%s is not possible in state %s: %s", name, state, why)}
}

// maxNamed bounds what an error names of what a run waits for.
const maxNamed = 8

// waiting names what a run waits for, behind the reason of a refusal; "" when that is nothing.
func waiting(f *schema.Fold) string {
	var words []string
	list := f.Waiting()
	for _, w := range list[:min(len(list), maxNamed)] {
		text := w.For
		if w.ID != "" {
			text += fmt.Sprintf(" %q", ends.Clip(w.ID))
		}
		if w.Child != "" {
			text += fmt.Sprintf(" of %q", w.Child)
		}
		words = append(words, text)
	}
	if n := len(list) - len(words); n > 0 {
		words = append(words, fmt.Sprintf("%d more", n))
	}
	if words == nil {
		return ""
	}
	return "; it waits for " + strings.Join(words, ", ")
}

// decidable returns why a plan cannot be approved or rejected: it does not wait for that (schema.Fold.PlanWaits), or
// another one does.
func decidable(f *schema.Fold, e *schema.Event, over bool) string {
	plan, named := f.Plan, textField(e, "plan_id")
	switch {
	case plan == nil || plan.Child != e.ChildID:
		return "no plan is open"
	case plan.Decided != 0:
		return "the plan is " + plan.Decision + " already"
	case named != "" && named != plan.ID:
		return "another plan is open"
	case over || !f.PlanWaits():
		return "no approval is awaited"
	}
	return ""
}

func answerable(f *schema.Fold, e *schema.Event, over bool) string {
	if over {
		return "the run is over"
	}
	id := textField(e, "request_id")
	if _, ok := f.Questions().For(e.ChildID, id); ok {
		return ""
	}
	switch in := f.Input(e.ChildID, id); {
	case in == nil:
		return "nobody has asked that"
	case in.Answered != 0:
		return "the question is answered already"
	}
	return "the question has lapsed"
}

// textField returns a text of a payload, "" where there is none.
func textField(e *schema.Event, name string) string {
	text := ""
	_ = json.Unmarshal(schema.Field(e.Payload, name), &text) // what is no text names nothing
	return text
}
