package rest

import (
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
	"agentstream/schema"
)

// order is what is told a run by a route of its own.
type order struct {
	name  string                                  // the last element of its path
	typ   string                                  // of its event
	read  func(body []byte) (schema.Event, error) // its type is set after that
	admit func(*API, *auth.Caller) admission
}

// admission decides whether a run takes events (producers.AppendOptions.Admit).
type admission = func(context.Context, schema.RunKey, schema.Head, []schema.Event) error

// orders are all of them: the commands, which the state of a run decides about, and what is said of the run.
func orders() []order {
	list := []order{{"update", schema.TypeSessionUpdated, readDescription, (*API).admitDescription}}
	for _, name := range []string{"approve_plan", "reject_plan", "pause", "resume", "redirect", "cancel", "answer"} {
		list = append(list, order{name, "command." + name, readOrder, (*API).admitFrom})
	}
	return append(list, order{"messages", schema.TypeCommandMessage, readOrder, (*API).admitFrom})
}

// command appends a command to a run as an event, which the agent reads in its log and every watcher
// sees. The body is the event's payload, with child_id for one of the run's children. Repeats are
// recognised by their Idempotency-Key, whatever the state is by then. Nothing but this route cancels:
// a client that goes away is a client that goes away.
func (a *API) command(c *protocol.Call, o order) error {
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
	e, err := o.read(body)
	if err != nil {
		return err
	}
	e.Type = o.typ
	ctx, cancel := c.LogContext()
	defer cancel()
	src, head, err := a.cfg.Runs.Locate(ctx, key)
	if err != nil {
		return err
	}
	if e.ChildID == "" {
		e.ChildID = src.Child
	}
	if c.Caller.Run != "" && src.Child != "" && e.ChildID != src.Child { // as for what is none of the run's
		return runs.ErrNoChild
	}
	if err := a.checkOrder(&c.Caller, src.Key.Run, &e); err != nil {
		return err
	}
	a.foldAhead(ctx, src.Key, head)
	opt.Admit = o.admit(a, &c.Caller)
	receipt, err := c.Store(ctx, src.Key, []schema.Event{e}, opt)
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
	c.Reply(status, append(append(append(b, `,"command":"`...), o.name...), `"}`...))
	return nil
}

// readOrder makes the event of a command, but for its type.
func readOrder(body []byte) (e schema.Event, err error) {
	fields := map[string]json.RawMessage{}
	if err := decodeObject(body, &fields); err != nil {
		return e, err
	}
	if fields == nil { // null
		return e, fmt.Errorf("body is not a JSON object: %w", dialect.ErrBadRequest)
	}
	for field, into := range map[string]*string{"child_id": &e.ChildID, "plan_id": new(string),
		"request_id": new(string)} {
		raw, ok := fields[field]
		if !ok || string(raw) == "null" {
			delete(fields, field)
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil || *into == "" {
			return e, &ends.FieldError{Field: "/" + field,
				Err: fmt.Errorf("%s is not a string with something in it: %w", field, dialect.ErrBadRequest)}
		}
	}
	delete(fields, "child_id")
	e.Payload, err = encodeJSON(fields)
	return e, err
}

// checkOrder signs a command and holds it to what any event of its type is held to. The fields that it names are
// those of the body.
func (a *API) checkOrder(caller *auth.Caller, run string, e *schema.Event) error {
	err := signCommand(caller, e)
	if err == nil {
		err = e.Prepare(run)
	}
	if err == nil {
		_, err = a.cfg.Node.Check(e)
	}
	var at *ends.FieldError
	if errors.As(err, &at) {
		return &ends.FieldError{Field: strings.TrimPrefix(at.Field, "/payload"), Err: at.Err}
	}
	return err
}
