package protocol

import (
	"context"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/schema"
)

// ViaNative is what lines of the audit feed call what is asked of the server itself.
const ViaNative = "native"

// Via names the protocol in which something is asked, for the audit feed.
func (c *Call) Via() string {
	if c.Protocol == nil {
		return ViaNative
	}
	return c.Protocol.Dialect.Info().Name
}

// Record writes a line about what the call does to a run into the audit feed of its tenant, before the answer. id names
// what is done, so that a repeat has no second line; "" is none.
func (c *Call) Record(ctx context.Context, a audit.Action, run, id, detail string) error {
	c.noted = true
	l := audit.By(c.Caller, a, run, c.Via())
	l.Detail = detail
	return c.Node.cfg.Audit.Record(ctx, c.Caller.Tenant, id, l)
}

// NoteRead records that the caller has opened the call's run, where err is nil and nothing else was recorded.
func (c *Call) NoteRead(err error) {
	if err == nil && c.Run != "" && !c.noted {
		c.Node.cfg.Audit.Open(c.Caller, c.Run, c.Via())
	}
}

// NoteRefusal records that the caller may not do what it asks for, once. route is what was asked for; "" is not known.
func (c *Call) NoteRefusal(route, reason string) {
	if !c.noted {
		c.noted = true
		c.Node.NoteRefusal(&c.Caller, c.Run, c.Via(), route, reason)
	}
}

// Allow returns nil for a caller that has these scopes, else auth.ErrForbidden, which it records.
func (c *Call) Allow(needs auth.Scope) error {
	if c.Caller.May(needs) {
		return nil
	}
	c.NoteRefusal("", "forbidden")
	return auth.ErrForbidden
}

// NoteRefusal records that a caller may not do something.
func (n *Node) NoteRefusal(caller *auth.Caller, run, via, route, reason string) {
	n.cfg.Audit.Refuse(*caller, run, via, route, reason)
}

// RecordEvents writes a line for each of the events that is an action of a caller on a run. They were stored, the last
// of them with the number last. What the audit feed has not taken it keeps and tries
// again.
func (n *Node) RecordEvents(ctx context.Context, caller *auth.Caller, via string, key schema.RunKey,
	events []schema.Event, last schema.Seq) {
	if n.cfg.Audit == nil {
		return
	}
	for i := range events {
		action := audit.ActionOf(events[i].Type)
		if action == "" {
			continue
		}
		l := audit.By(*caller, action, key.Run, via)
		l.Event, l.Seq = events[i].Type, last-schema.Seq(len(events)-1-i)
		_ = n.cfg.Audit.Record(ctx, key.Tenant, audit.ID(key, l.Seq), l) // it was logged, and is kept
	}
}
