package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/edge"
	"agentstream/producers"
	"agentstream/schema"
)

// A run that has ended takes nothing but a follow-up, which begins it anew; everything else is put between two
// lifecycles, the first of which opens it and the second of which ends it as it was ended. Readers of sessions know
// them by "session":true.

// fit puts what the run does not take between two lifecycles.
func (c *change) fit(head schema.Head, end schema.Event) ([]schema.Event, error) {
	fitted := make([]schema.Event, 0, len(c.events)+2)
	now := head.Clone()
	for i := range c.events {
		e := &c.events[i]
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

// closeWithin bounds how long the end of a run that was opened is tried, whatever becomes of the request.
const closeWithin = 10 * time.Second

// errUnknown says that a key has not been used.
var errUnknown = errors.New("nothing was stored under this key")

// apart stores the change and the lifecycles as packs of their own, where they cannot be one: of a child, because a
// pack is of one lane, and with a key, which must stand for the same events whether the run has ended or not. A node
// that dies between them leaves the run open, as one whose agent has died.
func (c *change) apart(ctx context.Context, x *edge.Exchange, opt producers.AppendOptions, end schema.Event) (producers.Receipt, error) {
	keyed := opt
	if opt.IdempotencyKey != "" {
		keyed.Check = func(context.Context, schema.Head) error { return errUnknown }
		receipt, err := x.Append(ctx, c.run, c.events, keyed)
		if !errors.Is(err, errUnknown) {
			return receipt, err
		}
	}
	opt.IdempotencyKey, keyed.Check = "", nil
	opened, err := x.Append(ctx, c.run, []schema.Event{opening()}, opt)
	if err != nil {
		return opened, err
	}
	receipt, err := x.Append(ctx, c.run, c.events, keyed)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return receipt, errors.Join(err, c.close(ctx, x, opened.Last, end))
}

// close ends a run that was opened at a place, unless it was begun anew since, or ended.
func (c *change) close(ctx context.Context, x *edge.Exchange, opened schema.Seq, end schema.Event) error {
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

// begunAnew says that a record is the beginning of more of the run, and not of such a change as this one.
func begunAnew(r schema.Record) bool {
	if len(r.Child) > 0 && string(r.Child) != schema.RootLane {
		return false
	}
	switch string(r.Type) {
	case schema.TypeCommandMessage:
		return true
	case schema.TypeRunLifecycle:
		return !bytes.Equal(fieldOf(r.Payload(), "session"), []byte("true"))
	}
	return false
}

// opening lets a run that has ended take an event. Planning is what a follow-up begins with as well.
func opening() schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"planning","reason":null,"session":true}`)}
}

// ending ends a run as it was ended: with the state and the reason of its newest event, which is its end.
func ending(ctx context.Context, x *edge.Exchange, run string, head schema.Head) (schema.Event, error) {
	reason := []byte("null")
	for r, err := range x.Records(ctx, run, head.Last-1, head.Last) {
		if err != nil {
			return schema.Event{}, fmt.Errorf("read how %s has ended: %w", run, err)
		}
		if string(r.Type) == schema.TypeRunLifecycle {
			reason = append(reason[:0], fieldOf(r.Payload(), "reason")...)
		}
	}
	if len(reason) == 0 {
		reason = []byte("null")
	}
	payload := fmt.Appendf(nil, `{"state":%q,"reason":%s,"session":true}`, head.State, reason)
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: payload}, nil
}

// fieldOf gives the untouched value of a field of a stored payload; nil when there is none.
func fieldOf(payload []byte, name string) (value []byte) {
	_ = schema.EachField(payload, func(n string, v []byte) error { // it is an object, as all payloads of the log are
		if n == name {
			value = v
		}
		return nil
	})
	return value
}
