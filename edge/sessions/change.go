package sessions

import (
	"context"
	"errors"
	"fmt"

	"agentstream/edge"
	"agentstream/edge/dialect/qoder"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// change is what a request appends to a session: events of one lane, all of them or none.
type change struct {
	run    string
	events []schema.Event
	opt    producers.AppendOptions
	// allow decides whether the session, as it stands right before the events, takes them; it is asked of sessions
	// that are not deleted. nil: all are.
	allow func(*qoder.Projector) error
}

// maxTries bounds how often a change is made anew because the run ended or went on in between.
const maxTries = 8

// errMoved says that a run has ended, or goes on again, since a change was made for it.
var errMoved = errors.New("the run has ended or goes on since")

// store appends a change. What it is made for is checked on the very head that it follows.
//
// The form in which events are appended depends on whether the run has ended, so a key stands for one form alone.
func store(ctx context.Context, x *edge.Exchange, c change) (producers.Receipt, error) {
	for range maxTries {
		head, err := x.Head(ctx, c.run)
		if err != nil {
			return producers.Receipt{}, err
		}
		events, err := c.fit(ctx, x, head)
		if err != nil {
			return producers.Receipt{}, err
		}
		opt := c.opt
		opt.Whole = true
		opt.Check = check(x, c, head)
		if opt.IdempotencyKey != "" && head.State.Final() {
			opt.IdempotencyKey += "\x00ended"
		}
		receipt, err := x.Append(ctx, c.run, events, opt)
		if !errors.Is(err, errMoved) {
			return receipt, err
		}
	}
	return producers.Receipt{}, fmt.Errorf("change session %s %d times: %w", c.run, maxTries, schema.ErrConflict)
}

// check gives the condition of an append that was made for a head.
func check(x *edge.Exchange, c change, made schema.Head) func(context.Context, schema.Head) error {
	return func(ctx context.Context, head schema.Head) error {
		switch ended := head.State.Final(); {
		case !head.Exists():
			return fanout.ErrNotFound
		case ended != made.State.Final(), ended && head.Last != made.Last:
			return errMoved
		}
		req := qoder.Request(c.run, "")
		p, err := at(ctx, x, c.run, head.Last, req)
		if err != nil {
			return err
		}
		if err := p.Admit(req); err != nil || c.allow == nil {
			return err
		}
		return c.allow(p)
	}
}

// fit gives the events as the run takes them. One that has ended takes nothing but a follow-up, which begins it
// anew; everything else is put between two lifecycles, the first of which opens it and the second of which ends it
// as it was ended. Readers of sessions know them by "session":true.
func (c *change) fit(ctx context.Context, x *edge.Exchange, head schema.Head) ([]schema.Event, error) {
	if !head.State.Final() {
		return c.events, nil
	}
	end, err := ending(ctx, x, c.run, head)
	if err != nil {
		return nil, err
	}
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
			fitted = append(fitted, opening, *e, end)
		default:
			return nil, err
		}
	}
	return fitted, nil
}

// opening lets a run that has ended take an event. Planning is what a follow-up begins with as well.
var opening = schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"planning","reason":null,"session":true}`)}

// ending ends a run as it was ended: with the state and the reason of its newest event, which is its end.
func ending(ctx context.Context, x *edge.Exchange, run string, head schema.Head) (schema.Event, error) {
	reason := []byte("null")
	for r, err := range x.Records(ctx, run, head.Last-1, head.Last) {
		if err != nil {
			return schema.Event{}, fmt.Errorf("read how %s has ended: %w", run, err)
		}
		if string(r.Type) != schema.TypeRunLifecycle {
			break
		}
		// It is a stored payload, so it is an object.
		_ = schema.EachField(r.Payload(), func(name string, value []byte) error {
			if name == "reason" {
				reason = append([]byte(nil), value...)
			}
			return nil
		})
	}
	payload := fmt.Appendf(nil, `{"state":%q,"reason":%s,"session":true}`, head.State, reason)
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: payload}, nil
}
