package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/fanout"
	"agentstream/schema"
)

// commandNames are the last elements of the commands' paths.
var commandNames = []string{"approve_plan", "reject_plan", "pause", "resume", "redirect", "cancel", "answer", "messages"}

// order is one command on its way.
type order struct {
	name  string // as in the path
	event schema.Event
	plan  string // plan_id, "" when none was given
	asked string // request_id
}

// command appends a command to a run as an event, which the agent reads in its log and every watcher
// sees. The body is the event's payload, with child_id for one of the run's children. Repeats are
// recognised by their Idempotency-Key, whatever the state is by then. Nothing but this route cancels:
// a client that goes away is a client that goes away.
func (a *API) command(c *protocol.Call, name string) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	opt, err := appendOptions(c.Request.Header)
	if err != nil {
		return err
	}
	body, err := c.Body("application/json", "text/plain")
	if err != nil {
		return err
	}
	o, err := readOrder(name, body, c.Caller)
	if err != nil {
		return err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	src, head, err := a.cfg.Runs.Locate(ctx, key)
	if err != nil {
		return err
	}
	if o.event.ChildID == "" {
		o.event.ChildID = src.Child
	}
	if c.Caller.Run != "" && src.Child != "" && o.event.ChildID != src.Child { // as for what is none of the run's
		return runs.ErrNoChild
	}
	if err := a.checkOrder(src.Key.Run, &o.event); err != nil {
		return err
	}
	// Reading a long run must not hold up those who append to it. An error shows again below.
	_ = a.cfg.State.Fold(ctx, src.Key, head.Last, func(*state.Folded) error { return nil })
	condition := opt.Check
	opt.Check = func(ctx context.Context, head schema.Head) error {
		if condition != nil {
			if err := condition(ctx, head); err != nil {
				return err
			}
		}
		return a.permitted(ctx, src.Key, o, head)
	}
	receipt, err := c.Store(ctx, src.Key, []schema.Event{o.event}, opt)
	if err != nil {
		return err
	}
	tag(c, receipt.Last)
	status := http.StatusAccepted
	if receipt.Replayed {
		status = http.StatusOK
	}
	b := strconv.AppendInt([]byte(`{"first_seq":`), int64(receipt.First), 10)
	b = strconv.AppendInt(append(b, `,"last_seq":`...), int64(receipt.Last), 10)
	c.Reply(status, append(append(append(b, `,"command":"`...), name...), `"}`...))
	return nil
}

// readOrder makes the event of a command. Its author is in payload.by, from the credential alone.
func readOrder(name string, body []byte, caller auth.Caller) (order, error) {
	o := order{name: name, event: schema.Event{Type: "command." + name, Actor: "user"}}
	if name == "messages" {
		o.event.Type = schema.TypeCommandMessage
	}
	fields := map[string]json.RawMessage{}
	if err := decodeObject(body, &fields); err != nil {
		return o, err
	}
	if fields == nil { // null
		return o, fmt.Errorf("body is not a JSON object: %w", dialect.ErrBadRequest)
	}
	for field, into := range map[string]*string{"child_id": &o.event.ChildID, "plan_id": &o.plan, "request_id": &o.asked} {
		raw, ok := fields[field]
		if !ok || string(raw) == "null" {
			delete(fields, field)
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil || *into == "" {
			return o, &ends.FieldError{Field: "/" + field, Err: fmt.Errorf("%s is not a string with something in it: %w", field, dialect.ErrBadRequest)}
		}
	}
	delete(fields, "child_id")
	delete(fields, "by")
	payload := make(map[string]any, len(fields)+1)
	for name, v := range fields {
		payload[name] = v
	}
	if caller.Subject != "" {
		payload["by"] = caller.Subject
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(payload); err != nil {
		return o, fmt.Errorf("body: %w", dialect.ErrBadRequest)
	}
	o.event.Payload = bytes.TrimSpace(buf.Bytes())
	return o, nil
}

// checkOrder holds a command to what any event of its type is held to. The fields that it names are
// those of the body.
func (a *API) checkOrder(run string, e *schema.Event) error {
	err := e.Prepare(run)
	if err == nil {
		err = a.cfg.Node.Check(e)
	}
	var at *ends.FieldError
	if errors.As(err, &at) {
		return &ends.FieldError{Field: strings.TrimPrefix(at.Field, "/payload"), Err: at.Err}
	}
	return err
}

// permitted decides whether the run, as it is at head, takes a command. Of a run whose fold is too
// large, or whose beginning and end are gone, only the state is known.
func (a *API) permitted(ctx context.Context, key schema.RunKey, o order, head schema.Head) error {
	if !head.Exists() {
		return fanout.ErrNotFound
	}
	err := a.cfg.State.Fold(ctx, key, head.Last, func(f *state.Folded) error { return permit(f.Fold, f.First > 0, head, o) })
	if errors.Is(err, schema.ErrTooLarge) || errors.Is(err, fanout.ErrExpired) {
		return permit(&schema.Fold{Last: head.Last}, true, head, o)
	}
	return err
}

// permit is the table of what each command needs. The fold may be newer than the head: then the
// compare-and-set fails and the question comes again. partial says that the fold does not know all.
func permit(f *schema.Fold, partial bool, head schema.Head, o order) error {
	child := o.event.ChildID
	state := f.StateOf(child)
	switch {
	case child != "" && f.Child(child) == nil && !partial:
		return runs.ErrNoChild
	case child == "" && state == "":
		state = head.State
	}
	over := state.Final() || f.StateOf("").Final() || head.State.Final()
	why := ""
	switch o.name {
	case "approve_plan", "reject_plan":
		why = decidable(f, o, state, over)
	case "pause":
		if over || f.Waits(child, "pause") || state != "" && state != schema.StateRunning && state != schema.StatePlanning {
			why = "only a running or planning run that has not been told so can be paused"
		}
	case "resume":
		if over || !f.Waits(child, "pause") && (state != schema.StatePaused || f.Waits(child, "resume")) {
			why = "only a run that is paused, or has been told to, can be resumed"
		}
	case "redirect":
		if over {
			why = "the run is over"
		}
	case "cancel":
		if over {
			why = "the run is over"
		} else if f.Waits(child, "cancel") {
			why = "the run has been told already"
		}
	case "answer":
		why = answerable(f, o, over)
	}
	if why == "" {
		return nil
	}
	name := state
	if name == "" {
		name = "unknown"
	}
	return &ends.PositionError{Last: f.Last, Err: fmt.Errorf("%s in state %s: %s: %w", o.name, name, why, ends.ErrState)}
}

// decidable returns why a plan cannot be approved or rejected. A plan with the gate "required" waits for
// that in awaiting_approval. With "preview" the agent goes on meanwhile, so a decision is taken as long
// as the run is not over.
func decidable(f *schema.Fold, o order, state schema.RunState, over bool) string {
	plan := f.Plan
	switch {
	case plan == nil || plan.Child != o.event.ChildID:
		return "no plan is open"
	case plan.Decided != 0:
		return "the plan is " + plan.Decision + " already"
	case o.plan != "" && o.plan != plan.ID:
		return "another plan is open"
	case over || state != schema.StateAwaitingApproval && plan.Gate != "preview":
		return "no approval is awaited"
	}
	return ""
}

func answerable(f *schema.Fold, o order, over bool) string {
	in := f.Input(o.asked)
	switch {
	case over:
		return "the run is over"
	case in == nil:
		return "nobody has asked that"
	case in.Answered != 0:
		return "the question is answered already"
	}
	return ""
}
