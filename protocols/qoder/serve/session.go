package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// Bodies are JSON, whatever a client that cannot say so calls them.
var bodyTypes = []string{"application/json", "text/plain"}

// create begins a session. With an Idempotency-Key its id is made of that, so that a repeat, also one that
// another node takes, is the same session and answers the same.
func (a routes) create(ctx context.Context, x *protocol.Call) error {
	opt, body, err := x.BodyWithKey(bodyTypes...)
	if err != nil {
		return err
	}
	payload, err := qoder.CreatePayload(body)
	if err != nil {
		return err
	}
	run := x.NewKeyedRun(qoder.SessionPrefix, "session", opt)
	opt.MustBeNew, opt.Whole = true, true
	events := about(schema.TypeSessionCreated, "", payload)
	said, err := initial(ctx, x, run, body)
	if err != nil {
		return err
	}
	receipt, err := x.Append(ctx, run, append(events, said...), opt)
	if err != nil {
		return err
	}
	return answer(ctx, x, run, receipt.Last)
}

// initial returns the events that a session begins with.
func initial(ctx context.Context, x *protocol.Call, run string, body []byte) ([]schema.Event, error) {
	said, err := qoder.InitialEvents(body)
	if err != nil || len(said) == 0 {
		return nil, err
	}
	p, err := protocol.StateAt[*qoder.Projector](ctx, x, 0, qoder.Request(run, ""))
	if err != nil {
		return nil, err
	}
	m := messages{x: x, run: run, said: said, name: "initial_events"}
	if err := m.translate(ctx, p); err != nil {
		return nil, err
	}
	return m.events, nil
}

// get answers with a session as it stands.
func (a routes) get(ctx context.Context, x *protocol.Call) error {
	run := x.Path("run")
	_, p, err := protocol.Newest[*qoder.Projector](ctx, x, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, p.AppendSession(nil))
	return nil
}

// answer answers with a session as it was at a place; to who may not read with its name.
func answer(ctx context.Context, x *protocol.Call, run string, through schema.Seq) error {
	if !x.MayRead() {
		x.Reply(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"type":"session"}`, run))
		return nil
	}
	p, err := protocol.StateAt[*qoder.Projector](ctx, x, through, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, p.AppendSession(nil))
	return nil
}

// update changes what clients have set of a session.
func (a routes) update(ctx context.Context, x *protocol.Call) error {
	opt, body, err := x.BodyWithKey(bodyTypes...)
	if err != nil {
		return err
	}
	payload, err := qoder.UpdatePayload(body)
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(schema.TypeSessionUpdated, "", payload), opt: opt}
	c.allow = func(p *qoder.Projector) error {
		if err := alive(p); err != nil {
			return err
		}
		return p.CheckUpdate(payload)
	}
	receipt, err := store(ctx, x, c)
	if err != nil {
		return err
	}
	return answer(ctx, x, c.run, receipt.Last)
}

// about is an event about a session, or about the thread of a child.
func about(typ, child string, payload []byte) []schema.Event {
	return []schema.Event{{Type: typ, ChildID: child, Actor: "user", Payload: payload}}
}

// archive closes a session: it can be read, and takes no more events. Its run is over with that, or when what was
// under way in it has ended.
func (a routes) archive(ctx context.Context, x *protocol.Call) error {
	opt, err := x.AppendOptions()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(schema.TypeSessionArchived, "", x.By([]byte(`{}`))), opt: opt}
	c.allow = func(p *qoder.Projector) error {
		if p.IsArchived() {
			return protocol.ErrDone
		}
		return nil
	}
	stopped, err := stop(ctx, x, c.run, "", func(p *qoder.Projector) bool { return p.Busy() && !p.IsArchived() })
	if err != nil {
		return err
	}
	c.ends = !stopped // an agent that was asked to stop may still record how it stopped
	receipt, err := once(ctx, x, c)
	if err != nil {
		return err
	}
	return answer(ctx, x, c.run, receipt.Last)
}

// stop commands the agent of a lane that is about to be closed to end what it does. Where others refuse to close what
// runs until somebody has interrupted it, this is that interrupt: an agent that receives nothing would go on, and cost,
// for nobody. It says whether it did.
func stop(ctx context.Context, x *protocol.Call, run, child string,
	busy func(*qoder.Projector) bool) (stopped bool, err error) {
	c := change{run: run, events: about(typeCancel, child, x.By([]byte(`{"reason":"it was closed"}`))), blind: true}
	c.allow = func(p *qoder.Projector) error {
		if !busy(p) {
			return protocol.ErrDone
		}
		return nil
	}
	_, err = store(ctx, x, c)
	if errors.Is(err, protocol.ErrDone) || errors.Is(err, dialect.ErrNotFound) {
		// of a repeat with a key its first decides
		return false, nil
	}
	return err == nil, err
}

// remove deletes a session: in this protocol it is not there any more. Its log is kept as long as any.
func (a routes) remove(ctx context.Context, x *protocol.Call) error {
	opt, err := x.AppendOptions()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(schema.TypeSessionDeleted, "", x.By([]byte(`{}`))), opt: opt,
		blind: true}
	if _, err := stop(ctx, x, c.run, "", (*qoder.Projector).Busy); err != nil {
		return err
	}
	if _, err := store(ctx, x, c); err != nil {
		return err
	}
	x.Reply(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"type":"session_deleted"}`, c.run))
	return nil
}

// cancel commands the agent to end its turn, or to leave a message alone that it has not begun to answer. Without these
// there is nothing to end, which status 200 says (qoder §1.4). It is taken of archived sessions too: an agent that
// still runs must be stoppable.
func (a routes) cancel(ctx context.Context, x *protocol.Call) error {
	opt, err := x.AppendOptions()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(typeCancel, "", x.By([]byte(`{}`))), opt: opt, blind: true}
	c.allow = func(p *qoder.Projector) error {
		if !p.Busy() {
			return protocol.ErrDone
		}
		return nil
	}
	status := http.StatusAccepted
	if _, err := store(ctx, x, c); errors.Is(err, protocol.ErrDone) {
		status = http.StatusOK
	} else if err != nil {
		return err
	}
	x.Reply(status, fmt.Appendf(nil, `{"id":%q,"type":"session","status":"canceling"}`, c.run))
	return nil
}

// Types of commands that the schema has no names for.
const (
	typeCancel   = "command.cancel"
	typeRedirect = "command.redirect"
)
