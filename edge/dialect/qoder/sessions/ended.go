package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/edge/dialect/qoder"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// A run that has ended takes nothing but a follow-up, which begins it anew; so does an outcome to reach, with a
// lifecycle before it. Everything else is put between two lifecycles, the first of which opens it and the second of
// which ends it as it was ended: also what is said by the system alone, since nobody answers that. Readers of sessions
// know them by "session":true.

// fit puts what the run does not take between two lifecycles.
func (c *change) fit(head schema.Head, end schema.Event) ([]schema.Event, error) {
	fitted := make([]schema.Event, 0, len(c.events)+2)
	now, asks := head.Clone(), slices.ContainsFunc(c.events, asking)
	for i := range c.events {
		e := &c.events[i]
		if now.State.Final() {
			switch {
			case isOutcome(e.Type, e.Payload):
				anew := beginning()
				if err := now.Advance(anew.Type, "", "", anew.Payload); err != nil {
					return nil, err
				}
				fitted = append(fitted, anew)
			case isMessage(e) && !asks:
				fitted = append(fitted, opening(), *e, end)
				continue
			}
		}
		next := now.Clone()
		err := next.Advance(e.Type, e.ChildID, e.ID, e.Payload)
		switch {
		case err == nil:
			now = next
			fitted = append(fitted, *e)
		case errors.Is(err, schema.ErrEnded):
			fitted = append(fitted, opening(), *e, end)
		default:
			return nil, err
		}
	}
	return fitted, nil
}

// asking reports whether somebody has to answer an event.
func asking(e schema.Event) bool {
	return isMessage(&e) && !ofSystem(e.Payload) || e.ChildID == "" && isOutcome(e.Type, e.Payload)
}

// ofSystem reports whether a message is something to know, which nobody answers.
func ofSystem(payload []byte) bool {
	var role string
	return json.Unmarshal(schema.Field(payload, "role"), &role) == nil && role == "system"
}

// isMessage reports whether an event is a message to the run itself, be it of the system.
func isMessage(e *schema.Event) bool {
	return e.Type == schema.TypeCommandMessage && e.ChildID == ""
}

// isOutcome reports whether an event is an outcome to reach, as qoder.Command makes it.
func isOutcome(typ string, payload []byte) bool {
	return typ == typeRedirect && string(schema.Field(schema.Field(payload, "event"), "type")) == `"user.define_outcome"`
}

// finish stores what closes a session, and the end of its run when nothing is under way in it, so that it is kept and
// expires like any run that is over. Otherwise somebody must still end what is: then the run is over for the reaper,
// and so it is when a node dies between the two packs that there are with a key.
func (c *change) finish(ctx context.Context, x *protocol.Call, head schema.Head, opt producers.AppendOptions) (producers.Receipt, error) {
	p, err := at(ctx, x, c.run, head.Last, qoder.Request(c.run, ""))
	if err != nil {
		return producers.Receipt{}, err
	}
	if !atRest(p) {
		return x.Append(ctx, c.run, c.events, opt)
	}
	end := schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"done","reason":"archived"` + mark)}
	still := change{run: c.run, allow: func(p *qoder.Projector) error {
		if err := c.allow(p); err != nil || atRest(p) {
			return err
		}
		return errMoved
	}}
	opt.Check = still.check(x, head)
	if opt.IdempotencyKey == "" {
		return x.Append(ctx, c.run, append(slices.Clip(c.events), end), opt)
	}
	receipt, err := x.Append(ctx, c.run, c.events, opt)
	if err != nil || receipt.Replayed {
		return receipt, err
	}
	behind := func(_ context.Context, head schema.Head) error {
		if head.Last != receipt.Last {
			return errDone
		}
		return nil
	}
	_, err = x.Append(ctx, c.run, []schema.Event{end}, producers.AppendOptions{Check: behind})
	if errors.Is(err, errDone) {
		err = nil
	}
	return receipt, err
}

// atRest reports whether nothing is under way in a session: neither a turn nor a message that waits, in no thread.
func atRest(p *qoder.Projector) bool {
	return !p.Busy() && !slices.ContainsFunc(p.Threads(), func(t qoder.ThreadInfo) bool { return t.Busy })
}

// closeWithin bounds how long the end of a run that was opened is tried, whatever becomes of the request.
const closeWithin = 10 * time.Second

// errUnknown reports that a key has not been used.
var errUnknown = errors.New("nothing was stored under this key")

// apart stores the change and the lifecycles as packs of their own, where they cannot be one: of a child, because a
// pack is of one lane, and with a key, which must stand for the same events whether the run has ended or not. A node
// that dies between them leaves the run open, as one whose agent has died.
func (c *change) apart(ctx context.Context, x *protocol.Call, opt producers.AppendOptions, end schema.Event) (producers.Receipt, error) {
	keyed := opt
	if opt.IdempotencyKey != "" {
		keyed.Check = func(context.Context, schema.Head) error { return errUnknown }
		receipt, err := x.Append(ctx, c.run, c.events, keyed)
		if !errors.Is(err, errUnknown) {
			return receipt, err
		}
	}
	opt.IdempotencyKey, keyed.Check = "", nil
	open := opening()
	if slices.ContainsFunc(c.events, func(e schema.Event) bool { return isOutcome(e.Type, e.Payload) }) {
		open, end.Payload = beginning(), bytes.Replace(end.Payload, []byte(mark), []byte(`}`), 1)
	}
	opened, err := x.Append(ctx, c.run, []schema.Event{open}, opt)
	if err != nil {
		return opened, err
	}
	receipt, err := x.Append(ctx, c.run, c.events, keyed)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return receipt, errors.Join(err, c.close(ctx, x, opened.Last, end))
}

// close ends a run that was opened at a place, unless it was begun anew since, or ended.
func (c *change) close(ctx context.Context, x *protocol.Call, opened schema.Seq, end schema.Event) error {
	check := func(ctx context.Context, head schema.Head) error {
		if head.State.Final() {
			return errDone
		}
		for r, err := range x.Records(ctx, c.run, opened, head.Last) {
			if err != nil {
				return err
			}
			if begunAnew(r) {
				return errDone
			}
		}
		return nil
	}
	_, err := x.Append(ctx, c.run, []schema.Event{end}, producers.AppendOptions{Check: check})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// begunAnew reports whether a record is the beginning of more of the run, and not of such a change as this one.
func begunAnew(r schema.Record) bool {
	if len(r.Child) > 0 && string(r.Child) != schema.RootLane {
		return false
	}
	switch string(r.Type) {
	case schema.TypeCommandMessage:
		return !ofSystem(r.Payload())
	case typeRedirect:
		return isOutcome(typeRedirect, r.Payload())
	case schema.TypeRunLifecycle:
		return !bytes.Equal(schema.Field(r.Payload(), "session"), []byte("true"))
	}
	return false
}

// mark ends the payload of a lifecycle that is no sign of work.
const mark = `,"session":true}`

// opening lets a run that has ended take an event. Planning is what a follow-up begins with as well.
func opening() schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"planning","reason":null` + mark)}
}

// beginning begins a run anew with what is no message; those who read it as a session see that it goes on.
func beginning() schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"planning","reason":null}`)}
}

// ending ends a run as it was ended: with the state and the reason of its newest event, which is its end.
func ending(ctx context.Context, x *protocol.Call, run string, head schema.Head) (schema.Event, error) {
	reason := []byte("null")
	for r, err := range x.Records(ctx, run, head.Last-1, head.Last) {
		if err != nil {
			return schema.Event{}, fmt.Errorf("read how %s has ended: %w", run, err)
		}
		if string(r.Type) == schema.TypeRunLifecycle {
			reason = append(reason[:0], schema.Field(r.Payload(), "reason")...)
		}
	}
	if len(reason) == 0 {
		reason = []byte("null")
	}
	payload := fmt.Appendf(nil, `{"state":%q,"reason":%s%s`, head.State, reason, mark)
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: payload}, nil
}
