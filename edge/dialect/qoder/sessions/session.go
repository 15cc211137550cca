package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/qoder"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// Bodies are JSON, whatever a client that cannot say so calls them.
var bodyTypes = []string{"application/json", "text/plain"}

// keyedBody reads the body of a request that may be repeated, and how its events are to be stored.
func keyedBody(x *protocol.Call) (opt producers.AppendOptions, body []byte, err error) {
	if opt, err = x.Keyed(); err != nil {
		return opt, nil, err
	}
	body, err = x.Body(bodyTypes...)
	return opt, body, err
}

// create begins a session. With an Idempotency-Key its id is made of that, so that a repeat, also one that
// another node takes, is the same session and answers the same.
func (a routes) create(ctx context.Context, x *protocol.Call) error {
	opt, body, err := keyedBody(x)
	if err != nil {
		return err
	}
	payload, err := qoder.CreatePayload(body)
	if err != nil {
		return err
	}
	run := x.NewRun(qoder.SessionPrefix)
	if opt.IdempotencyKey != "" {
		sum := sha256.Sum256([]byte("session\x00" + x.Caller.Tenant + "\x00" + opt.IdempotencyKey))
		run = qoder.SessionPrefix + hex.EncodeToString(sum[:16])
	}
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
	p, err := at(ctx, x, run, 0, qoder.Request(run, ""))
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
	_, p, err := newest(ctx, x, run, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, p.AppendSession(nil))
	return nil
}

// answer answers with a session as it was at a place.
func answer(ctx context.Context, x *protocol.Call, run string, through schema.Seq) error {
	p, err := at(ctx, x, run, through, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, p.AppendSession(nil))
	return nil
}

// update changes what was said of a session.
func (a routes) update(ctx context.Context, x *protocol.Call) error {
	opt, body, err := keyedBody(x)
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
		return p.Accepts(payload)
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

// errDone reports that there is nothing to do any more.
var errDone = errors.New("it is so already")

// once stores a change that is there to be made once: allow gives errDone when it has been made.
func once(ctx context.Context, x *protocol.Call, c change) (producers.Receipt, error) {
	receipt, err := store(ctx, x, c)
	if errors.Is(err, errDone) {
		head, err := x.Head(ctx, c.run)
		return producers.Receipt{First: head.Last, Last: head.Last}, err
	}
	return receipt, err
}

// archive closes a session: it can be read, and takes no more events. Its run is over with that, or when what was
// under way in it has ended.
func (a routes) archive(ctx context.Context, x *protocol.Call) error {
	opt, err := x.Keyed()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(schema.TypeSessionArchived, "", []byte(`{}`)), opt: opt}
	c.allow = func(p *qoder.Projector) error {
		if p.Archived() {
			return errDone
		}
		return nil
	}
	stopped, err := stop(ctx, x, c.run, "", func(p *qoder.Projector) bool { return p.Busy() && !p.Archived() })
	if err != nil {
		return err
	}
	c.ends = !stopped // an agent that was told to stop may have something to say of it
	receipt, err := once(ctx, x, c)
	if err != nil {
		return err
	}
	return answer(ctx, x, c.run, receipt.Last)
}

// stop tells the agent of a lane that is about to be closed to end what it does. Where others refuse to close what
// runs until somebody has interrupted it, this is that interrupt: an agent that hears nothing would go on, and cost,
// for nobody. It says whether it did.
func stop(ctx context.Context, x *protocol.Call, run, child string, busy func(*qoder.Projector) bool) (stopped bool, err error) {
	c := change{run: run, events: about(typeCancel, child, by(x, []byte(`{"reason":"it was closed"}`))), blind: true}
	c.allow = func(p *qoder.Projector) error {
		if !busy(p) {
			return errDone
		}
		return nil
	}
	_, err = store(ctx, x, c)
	if errors.Is(err, errDone) || errors.Is(err, dialect.ErrNotFound) { // of a repeat with a key its first decides
		return false, nil
	}
	return err == nil, err
}

// remove deletes a session: in this protocol it is not there any more. Its log is kept as long as any.
func (a routes) remove(ctx context.Context, x *protocol.Call) error {
	opt, err := x.Keyed()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(schema.TypeSessionDeleted, "", []byte(`{}`)), opt: opt, blind: true}
	if _, err := stop(ctx, x, c.run, "", (*qoder.Projector).Busy); err != nil {
		return err
	}
	if _, err := store(ctx, x, c); err != nil {
		return err
	}
	x.Reply(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"type":"session_deleted"}`, c.run))
	return nil
}

// cancel tells the agent to end its turn, or to leave a message alone that it has not begun to answer. Without these
// there is nothing to end, which status 200 says (qoder §1.4). It is taken of archived sessions too: an agent that
// still runs must be stoppable.
func (a routes) cancel(ctx context.Context, x *protocol.Call) error {
	opt, err := x.Keyed()
	if err != nil {
		return err
	}
	c := change{run: x.Path("run"), events: about(typeCancel, "", by(x, []byte(`{}`))), opt: opt, blind: true}
	c.allow = func(p *qoder.Projector) error {
		if !p.Busy() {
			return errDone
		}
		return nil
	}
	status := http.StatusAccepted
	if _, err := store(ctx, x, c); errors.Is(err, errDone) {
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
