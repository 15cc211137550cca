package dialecttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// notes are routes that change a run, or a child by its own id, as the projector has it, and page through it.
func notes() []protocol.Route {
	return []protocol.Route{
		{Pattern: "POST /sample/{run}/notes", Needs: auth.ScopeWrite, Writes: true, Serve: protocol.Bounded(note)},
		{Pattern: "GET /sample/{run}/notes", Needs: auth.ScopeRead, Serve: protocol.Bounded(noted)},
	}
}

// full refuses a note behind which there would be too much text. It has a code of the protocol's own.
type full struct{ text int }

func (e full) Error() string { return "full: " + e.Words() }
func (e full) Unwrap() error { return dialect.ErrGone }

// Words are for the client.
func (e full) Words() string { return fmt.Sprintf("there are %d bytes of text", e.text) }

// Named is the code.
func (e full) Named() string { return "FULL" }

// note appends a text, as long as there is not much.
func note(ctx context.Context, c *protocol.Call) error {
	opt, body, err := c.KeyedBody("application/json")
	if err != nil {
		return err
	}
	var q question
	if err := q.read(body); err != nil {
		return err
	}
	run, child, _, err := c.Locate(ctx, c.Path("run"))
	if err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]string{"text": q.Text})
	if err != nil {
		return err
	}
	at, err := protocol.Change[*projector]{
		Request: dialect.Request{Run: run, Child: child}, Options: opt,
		Events: []schema.Event{{Type: schema.TypeTextDelta, ChildID: child, Payload: payload}},
		Allow: func(p *projector) error {
			switch {
			case q.Text == "":
				return protocol.ErrDone
			case p.text > 64:
				return full{p.text}
			}
			return nil
		},
	}.Once(ctx, c)
	if err == nil {
		c.Reply(http.StatusOK, fmt.Appendf(nil, `{"seq":%d}`, at.Last))
	}
	return err
}

// noted answers with a page of the types of a run's records, the newest first with ?down.
func noted(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	run, child, _, err := c.Locate(ctx, c.Path("run"))
	if err != nil {
		return err
	}
	h := protocol.History{Call: c, Request: dialect.Request{Run: run, Child: child, Select: only(slotType)}}
	if h.Limit, err = q.Number("limit", 2, 10); err != nil {
		return err
	}
	head, _, err := protocol.Newest[*projector](ctx, c, h.Request)
	if err != nil {
		return err
	}
	h.Newest = head.Last
	from, down := protocol.Spot{Seq: 1}, len(q["down"]) > 0
	if down {
		from.Seq = head.Last + 1
	}
	if page, err := q.One("page"); err != nil {
		return err
	} else if text, ok := protocol.ReadPageToken(run, page); ok {
		if from, err = protocol.ParseSpot(text); err != nil {
			return err
		}
	} else if page != "" {
		return dialect.Refuse(schema.ErrBadCursor, "not a page of this run")
	}
	if down {
		err = h.Down(ctx, from)
	} else {
		err = h.Up(ctx, from)
	}
	if err != nil {
		return err
	}
	next := ""
	if h.More {
		next = protocol.PageToken(run, h.Next.String())
	}
	c.Reply(http.StatusOK, fmt.Appendf(nil, `{"notes":[%s],"next":%q}`, h.Append(nil), next))
	return nil
}
