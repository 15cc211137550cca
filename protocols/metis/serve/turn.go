package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/metis"
	"agentstream/schema"
)

// submit begins a turn with what the user says.
func (a *api) submit(ctx context.Context, c *protocol.Call) error {
	var in struct {
		Content  json.RawMessage `json:"content"`
		Override string          `json:"per_message_override"`
	}
	opt, err := c.ObjectWithKey(&in, mediaType)
	if err != nil {
		return err
	}
	if err := checkContent(in.Content); err != nil {
		return err
	}
	req, _, err := locate(ctx, c, ofPath(c))
	if err != nil {
		return err
	}
	said := change(req, schema.TypeCommandMessage, c.By(metis.MessagePayload(in.Content, in.Override)),
		func(p *metis.Projector) error {
			if p.Turn() != "" {
				return metis.Refuse(metis.CodeTurnInFlight, "a turn is in flight")
			}
			return notEnded(p)
		})
	said.Options = opt
	receipt, err := said.Store(ctx, c)
	if err != nil {
		return err
	}
	at, _, err := turnStart(ctx, c, req, receipt.First)
	if err != nil {
		return err
	}
	c.Reply(http.StatusAccepted, fmt.Appendf(nil, `{"turn_id":%q,"session_id":%q,"submitted_at":%q,"user_message_id":%q}`,
		metis.TurnID(req.Run, receipt.First), c.Path("run"), at, metis.MessageID(req.Run, receipt.First)))
	return nil
}

// turnStart returns when the turn of a session began that a record has begun, as events have it. ok is false
// when it has begun none; ts is "" for one that waits, or has waited, for another one.
func turnStart(ctx context.Context, c *protocol.Call, req dialect.Request, seq schema.Seq) (ts string, ok bool,
	err error) {
	starts := metis.EventsRequest(cmp.Or(req.Child, req.Run), metis.Filter{Types: []string{"turn.started"}})
	starts.Run, starts.Child = req.Run, req.Child
	p, err := c.At(ctx, req.Run, seq-1, starts)
	if err != nil {
		return "", false, err
	}
	var out dialect.Frames
	for r, err := range c.Records(ctx, req.Run, seq-1, seq) {
		if err == nil {
			err = p.Project(&out, r)
		}
		if err != nil {
			return "", false, err
		}
		ok = string(r.Type) == schema.TypeCommandMessage && string(r.Child) == req.Child
	}
	i := slices.IndexFunc(out.List, func(f dialect.Frame) bool { return starts.Select.Match(&f) })
	if i < 0 {
		return "", ok, nil
	}
	var event struct {
		Timestamp string `json:"timestamp"`
	}
	err = json.Unmarshal(metis.EventOf(out.List[i].Data), &event)
	return event.Timestamp, true, err
}

// checkContent takes the blocks of a user's message: texts and images (canonical format).
func checkContent(content json.RawMessage) error {
	refuse := func(format string, a ...any) error { return metis.Refuse(metis.CodeInvalidContent, format, a...) }
	var blocks []*struct {
		Type   string  `json:"type"`
		Text   *string `json:"text"`
		Media  string  `json:"media_type"`
		Source *struct {
			Kind string `json:"kind"`
			Data string `json:"data"`
		} `json:"source"`
	}
	if err := json.Unmarshal(content, &blocks); err != nil || len(blocks) == 0 {
		return refuse("content is not a list of blocks, at least one")
	}
	for i, b := range blocks {
		switch {
		case b == nil:
			return refuse("content[%d] is not a block", i)
		case b.Type == "text" && b.Text == nil:
			return refuse("content[%d] is a text without text", i)
		case b.Type == "image" && (b.Source == nil || b.Source.Kind == "" || b.Source.Data == "" || b.Media == ""):
			return refuse("content[%d] is an image without source or media_type", i)
		case b.Type != "text" && b.Type != "image":
			return refuse("content[%d] is neither text nor image", i)
		}
	}
	return nil
}

// cancel stores the command that ends the turn of the path.
func (a *api) cancel(ctx context.Context, c *protocol.Call) error {
	var in struct {
		Reason string `json:"reason"`
	}
	opt, err := c.ObjectWithKey(&in, mediaType)
	if err != nil {
		return err
	}
	id, turn := c.Path("run"), c.Path("turn")
	if err := stop(ctx, c, id, turn, in.Reason, opt); err != nil {
		return err
	}
	c.Reply(http.StatusAccepted, fmt.Appendf(nil, `{"turn_id":%q,"session_id":%q,"status":"cancelling"}`, turn, id))
	return nil
}

// stop stores that a turn is to be cancelled, if it is in flight and was not cancelled before. The error is of
// metis.Refuse for a turn that is over or was never there.
func stop(ctx context.Context, c *protocol.Call, id, turn, reason string, opt producers.AppendOptions) error {
	s, err := find(ctx, c, metis.EventsRequest(id, metis.Filter{}))
	if err != nil {
		return err
	}
	if err := checkTurn(ctx, c, s, turn); err != nil {
		return err
	}
	asked := change(s.req, typeCancel, c.By(metis.CancelPayload(reason)), func(p *metis.Projector) error {
		switch {
		case p.Turn() != turn:
			return metis.Refuse(metis.CodeTurnCompleted, "the turn is over")
		case p.Cancelling():
			return protocol.ErrDone
		}
		return nil
	})
	asked.Options = opt
	_, err = asked.Once(ctx, c)
	return err
}

// checkTurn refuses a turn that has not begun in a session.
func checkTurn(ctx context.Context, c *protocol.Call, s session, turn string) error {
	none := metis.Refuse(metis.CodeTurnNotFound, "the session has no such turn")
	seq, err := metis.ParseTurnID(s.req.Run, turn)
	if err != nil || seq > s.head.Last {
		return none
	}
	if s.p.Turn() == turn {
		return nil
	}
	_, ok, err := turnStart(ctx, c, s.req, seq)
	if err == nil && !ok {
		err = none
	}
	return err
}

// confirm answers what a tool of the turn waits for.
func (a *api) confirm(ctx context.Context, c *protocol.Call) error {
	var in struct {
		Decision string `json:"decision"`
		Scope    string `json:"scope"`
	}
	opt, err := c.ObjectWithKey(&in, mediaType)
	if err != nil {
		return err
	}
	switch {
	case in.Decision != "allow" && in.Decision != "deny":
		return metis.Refuse(metis.CodeInvalidRequest, "decision is neither allow nor deny")
	case in.Scope != "" && in.Scope != "once" && in.Scope != "session":
		return metis.Refuse(metis.CodeInvalidRequest, "scope is neither once nor session")
	}
	turn, request := c.Path("turn"), c.Path("request")
	s, err := find(ctx, c, ofPath(c))
	if err == nil {
		err = checkTurn(ctx, c, s, turn)
	}
	if err != nil {
		return err
	}
	decided := change(s.req, typeAnswer, c.By(metis.AnswerPayload(request, in.Decision, in.Scope)),
		func(p *metis.Projector) error {
			switch asked, ok := p.Confirmation(request); {
			case !ok:
				return metis.Refuse(metis.CodeConfirmationNotFound, "nothing of this id waits for a decision%s", waiting(p))
			case asked.Resolved:
				return metis.Refuse(metis.CodeConfirmationResolved, "it was decided already%s", waiting(p))
			case p.Turn() != turn:
				return metis.Refuse(metis.CodeTurnCompleted, "the turn is over%s", waiting(p))
			case !asked.Waits:
				return metis.Refuse(metis.CodeConfirmationNotFound, "nobody waits for the decision any more%s", waiting(p))
			}
			return nil
		})
	decided.Options = opt
	if _, err := decided.Store(ctx, c); err != nil {
		return err
	}
	name, err := json.Marshal(request)
	if err == nil {
		c.Reply(http.StatusOK, fmt.Appendf(nil, `{"request_id":%s,"decision":%q,"applied":true}`, name, in.Decision))
	}
	return err
}

// waiting names the requests that wait for a decision, for the words of a refusal.
func waiting(p *metis.Projector) string {
	ids := p.Waiting()
	if len(ids) == 0 {
		return "; nothing waits"
	}
	return "; these wait: " + strings.Join(ids[:min(len(ids), 8)], ", ")
}
