package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/internal/backoff"
	"agentstream/protocols/metis"
	"agentstream/schema"
)

// The type of a body, what begins the ids of sessions, and the types of events that the schema has no names for.
const (
	mediaType     = "application/json"
	sessionPrefix = "sess_"
	typeCancel    = "command.cancel"
	typeAnswer    = "command.answer"
)

// session is one as it stood when it was looked at.
type session struct {
	req  dialect.Request // run, child, and what its events are asked for as
	head schema.Head
	p    *metis.Projector // fed the head, for req
}

// find returns a session. req names it by its id. The error wraps fanout.ErrNotFound or dialect.ErrNotFound for one
// that is not there.
func find(ctx context.Context, c *protocol.Call, req dialect.Request) (s session, err error) {
	if s.req, s.head, err = locate(ctx, c, req); err != nil {
		return s, err
	}
	if s.p, err = protocol.StateAt[*metis.Projector](ctx, c, s.head.Last, s.req); err != nil {
		return s, err
	}
	return s, s.p.Admit(s.req)
}

func locate(ctx context.Context, c *protocol.Call, req dialect.Request) (dialect.Request, schema.Head, error) {
	run, child, head, err := c.Locate(ctx, req.Run)
	req.Run, req.Child = run, child
	return req, head, err
}

// ofPath asks for all events of the session of the path.
func ofPath(c *protocol.Call) dialect.Request {
	return metis.EventsRequest(c.Path("run"), metis.Filter{})
}

// change is an event for the lane of a session, which is stored if allow takes it.
func change(req dialect.Request, typ string, payload []byte,
	allow func(*metis.Projector) error) protocol.Change[*metis.Projector] {
	return protocol.Change[*metis.Projector]{Request: req, Allow: allow,
		Events: []schema.Event{{Type: typ, ChildID: req.Child, Actor: "user", Payload: payload}}}
}

// create begins a session.
func (a *api) create(ctx context.Context, c *protocol.Call) error {
	var in struct {
		Path  string `json:"workspace_path"`
		Model string `json:"initial_active_model"`
	}
	opt, err := c.ObjectWithKey(&in, mediaType)
	if err != nil {
		return err
	}
	if in.Path == "" {
		return metis.Refuse(metis.CodeInvalidRequest, "workspace_path is missing")
	}
	req := metis.EventsRequest(c.NewKeyedRun(sessionPrefix, "metis", opt), metis.Filter{})
	created := change(req, schema.TypeSessionCreated, metis.SessionPayload(in.Path, in.Model), nil)
	opt.MustBeNew, opt.Whole = true, true
	receipt, err := c.Append(ctx, req.Run, created.Events, opt)
	if err != nil {
		return err
	}
	return reply(ctx, c, http.StatusCreated, req, receipt.Last)
}

// reply answers with a session as it was at a place; to who may not read with its name.
func reply(ctx context.Context, c *protocol.Call, status int, req dialect.Request, at schema.Seq) error {
	if !c.MayRead() {
		id := cmp.Or(req.Child, req.Run)
		c.Reply(status, fmt.Appendf(nil, `{"id":%q,"session_id":%q}`, id, id))
		return nil
	}
	p, err := protocol.StateAt[*metis.Projector](ctx, c, at, req)
	if err == nil {
		c.Reply(status, append(summary(p, req), '}'))
	}
	return err
}

// summary is a session's (3.4), open for more fields.
func summary(p *metis.Projector, req dialect.Request) []byte {
	return fmt.Appendf(bytes.TrimSuffix(p.AppendSession(nil), []byte("}")), `,"session_id":%q`, cmp.Or(req.Child, req.Run))
}

// get answers with a session, and with what opens its socket once.
func (a *api) get(ctx context.Context, c *protocol.Call) error {
	id := c.Path("run")
	s, err := find(ctx, c, ofPath(c))
	if err != nil {
		return err
	}
	token, _, err := c.Ticket(ctx, id)
	if err != nil {
		return err
	}
	ws, err := json.Marshal(a.socketURL(c.Request, id, token))
	if err != nil {
		return err
	}
	c.Reply(http.StatusOK, fmt.Appendf(summary(s.p, s.req), `,"attach_token":%q,"ws_url":%s}`, token, ws))
	return nil
}

// socketURL is where a session's socket is, as the client reaches this node.
func (a *api) socketURL(r *http.Request, id, token string) string {
	scheme := "http://"
	if a.cfg.Secure {
		scheme = "https://"
	}
	at := cmp.Or(strings.TrimSuffix(a.cfg.PublicURL, "/"), scheme+r.Host)
	return "ws" + strings.TrimPrefix(at, "http") + a.base + "/sessions/" + url.PathEscape(id) + "/stream?attach=" +
		url.QueryEscape(token)
}

// How long a turn may take to end before its session ends without it, and between two looks at it.
const (
	lastWait = 5 * time.Second
	lastLook = 100 * time.Millisecond
)

// endSession ends a session, a turn in flight first: its agent is asked to stop, and has some time to record
// how it ended.
func (a *api) endSession(ctx context.Context, c *protocol.Call) error {
	opt, err := c.AppendOptions()
	if err != nil {
		return err
	}
	s, err := find(ctx, c, ofPath(c))
	if err != nil {
		return err
	}
	ask := opt
	if ask.IdempotencyKey != "" {
		ask.IdempotencyKey += "\x00turn"
	}
	stop := change(s.req, typeCancel, c.By(metis.CancelPayload("")), func(p *metis.Projector) error {
		if p.HasEnded() || p.Turn() == "" || p.Cancelling() {
			return protocol.ErrDone
		}
		return nil
	})
	stop.Options = ask
	if _, err := stop.Once(ctx, c); err != nil {
		return err
	}
	if err := turnOver(ctx, c); err != nil {
		return err
	}
	over := change(s.req, schema.TypeRunLifecycle, []byte(`{"state":"done","reason":null}`), nil)
	over.Options = opt
	over.Plan = func(_ schema.Head, p *metis.Projector) ([]schema.Event, error) {
		events := slices.Clone(over.Events)
		if s.req.Child != "" || p.Turn() != "" { // its work is not done
			events[0].Payload = []byte(`{"state":"aborted","reason":"the session was ended"}`)
		}
		return events, notEnded(p)
	}
	receipt, err := over.Store(ctx, c)
	if err != nil {
		return err
	}
	return reply(ctx, c, http.StatusOK, s.req, receipt.Last)
}

// turnOver waits until no turn of the path's session is in flight, as long as there is time.
func turnOver(ctx context.Context, c *protocol.Call) error {
	wait, cancel := context.WithTimeout(ctx, lastWait)
	defer cancel()
	for n := 0; ; n++ {
		now, err := find(wait, c, ofPath(c))
		switch {
		case wait.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case now.p.HasEnded() || now.p.Turn() == "":
			return nil
		}
		if backoff.Sleep(wait, backoff.Delay(n, lastLook/10, lastLook)) != nil {
			return ctx.Err()
		}
	}
}

// notEnded refuses what a session that has ended does not take.
func notEnded(p *metis.Projector) error {
	if p.HasEnded() {
		return metis.Refuse(metis.CodeSessionEnded, "the session has ended")
	}
	return nil
}
