package serve

import (
	"context"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// change is what a request appends to a session: events of one lane, all of them or none. A run that is over takes them
// too. It goes on with a message, or with an outcome to reach; by everything else it stays over.
type change struct {
	run    string
	events []schema.Event
	opt    producers.AppendOptions
	// allow decides whether the session, as it stands right before the events, takes them; it is asked of sessions
	// that are not deleted. nil: all are.
	allow func(*qoder.Projector) error
	// ends: a run in which nothing is under way is over behind the events, so that it is kept and expires like any run
	// that is over. Otherwise somebody must still end what is; then the run is over for the reaper.
	ends bool
	// blind: a session of which too much would have to be remembered takes it unasked.
	blind bool
}

// lane is the child whose events they are; "" is the run itself.
func (c *change) lane() string { return c.events[0].ChildID }

// store appends a change. What it is made for is checked on the very head that it follows. A repeat with the same
// key is recognised whatever has become of the run since.
func store(ctx context.Context, x *protocol.Call, c change) (producers.Receipt, error) {
	return c.asChange().Store(ctx, x)
}

// once stores a change that is there to be made once: allow returns protocol.ErrDone when it has been made.
func once(ctx context.Context, x *protocol.Call, c change) (producers.Receipt, error) {
	return c.asChange().Once(ctx, x)
}

// asChange returns the change as the edge makes it.
func (c *change) asChange() protocol.Change[*qoder.Projector] {
	opt := c.opt
	opt.AfterEnd = true
	return protocol.Change[*qoder.Projector]{
		Request: qoder.Request(c.run, ""), Events: c.events, Options: opt, Blind: c.blind,
		Plan: func(head schema.Head, p *qoder.Projector) ([]schema.Event, error) {
			if p != nil && c.allow != nil {
				if err := c.allow(p); err != nil {
					return nil, err
				}
			}
			return c.plan(head, p != nil && isAtRest(p)), nil
		},
	}
}

// isAtRest reports whether nothing is under way in a session.
func isAtRest(p *qoder.Projector) bool {
	return !p.Busy() && !slices.ContainsFunc(p.Threads(), func(t qoder.ThreadInfo) bool { return t.Busy })
}

// plan returns the events with the lifecycles that the run needs besides them. rests: nothing is under way.
func (c *change) plan(head schema.Head, rests bool) []schema.Event {
	events := c.events
	switch {
	case !head.State.Final() && c.ends && rests:
		return append(slices.Clip(events), lifecycle(`{"state":"done","reason":"archived","session":true}`))
	case !head.State.Final():
		return events
	}
	for i, e := range events {
		switch {
		case schema.IsFollowUp(e.Type, e.ChildID, e.Payload):
			return events
		case e.Type == typeRedirect && qoder.IsOutcome(e.Payload):
			return slices.Insert(slices.Clone(events), i, lifecycle(`{"state":"planning","reason":null}`))
		}
	}
	return events
}

// lifecycle is an event with which a run ends or goes on for a change's sake. Readers of sessions pass over those that
// have "session":true.
func lifecycle(payload string) schema.Event {
	return schema.Event{Type: schema.TypeRunLifecycle, Actor: "system", Payload: []byte(payload)}
}

// alive refuses what changes an archived session (qoder §1.4).
func alive(p *qoder.Projector) error {
	if p.IsArchived() {
		return dialect.Refuse(dialect.ErrGone, "session is archived")
	}
	return nil
}
