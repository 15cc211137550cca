package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect/qoder"
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

// finish stores what closes a session, and the end of its run when nothing is under way in it, so that it is kept and
// expires like any run that is over. Otherwise somebody must still end what is: then the run is over for the reaper,
// and so it is when a node dies between the two packs that there are with a key.
func (c *change) finish(ctx context.Context, x *edge.Exchange, head schema.Head, opt producers.AppendOptions) (producers.Receipt, error) {
	p, err := at(ctx, x, c.run, head.Last, qoder.Request(c.run, ""))
	if err != nil {
		return producers.Receipt{}, err
	}
	if !atRest(p) {
		return x.Append(ctx, c.run, c.events, opt)
	}
	end := schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(`{"state":"done","reason":"archived","session":true}`)}
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

// atRest says that nothing is under way in a session: neither a turn nor a message that waits, in no thread.
func atRest(p *qoder.Projector) bool {
	return !p.Busy() && !slices.ContainsFunc(p.Threads(), func(t qoder.ThreadInfo) bool { return t.Busy })
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
