package agui

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/chat"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// post is what is read of RunAgentInput.
type post struct {
	ThreadID string            `json:"threadId"`
	RunID    string            `json:"runId"`
	Messages []json.RawMessage `json:"messages"`
	Resume   []entry           `json:"resume"`

	State          json.RawMessage `json:"state"`
	Tools          json.RawMessage `json:"tools"`
	Context        json.RawMessage `json:"context"`
	ForwardedProps json.RawMessage `json:"forwardedProps"`

	last  *clientMessage // the last one from the user
	fresh bool           // it was not in the run before
	held  int            // messages beside that
}

// entry is an answer to a question.
type entry struct {
	ID      string          `json:"interruptId"`
	Status  string          `json:"status"`
	Payload json.RawMessage `json:"payload"`

	answer []byte // as agents read it
}

// clientMessage is what is read of one from the client.
type clientMessage struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Call    string          `json:"toolCallId"`
}

// Words of refusals.
const notInput = "the body is not a RunAgentInput: an object with threadId, runId and messages"

// read reads a body. The run of the path is the thread.
func read(body []byte, run string) (*post, error) {
	b := new(post)
	if json.Unmarshal(body, b) != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, notInput)
	}
	if run != "" {
		b.ThreadID = run
	}
	if len(b.RunID) > chat.MaxID {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "runId is longer than %d bytes", chat.MaxID)
	}
	b.held = len(b.Messages)
	for _, raw := range b.Messages {
		m := new(clientMessage)
		if json.Unmarshal(raw, m) != nil || m.ID == "" {
			return nil, dialect.Refuse(dialect.ErrBadRequest, "a message is not an object with id and role")
		}
		if m.Role == "user" {
			b.last, b.held = m, len(b.Messages)-1
		}
	}
	return b, schema.ValidRunID(b.ThreadID)
}

func readCall(c *protocol.Call) (*post, error) {
	body, err := c.Body("application/json")
	if err != nil {
		return nil, err
	}
	return read(body, c.Path("run"))
}

// beginResponse writes what is new of a POST, and returns the response to stream: that to the last message of
// the user, or that which goes on when questions are answered. A client that brings the id of an event adds
// nothing.
func beginResponse(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	b, err := read(in.Body, in.Path["run"])
	if err != nil {
		return dialect.Request{}, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	at := in.Header.Get("Last-Event-ID")
	connects := in.Stream == streamConnect
	if at != "" {
		req, err := open(b.ThreadID, in.Stream, at)
		if err != nil {
			return req, err
		}
		return req, find(ctx, c, &req, "", false)
	}
	if !connects {
		err = b.say(ctx, c)
	}
	if err != nil {
		return dialect.Request{}, err
	}
	req, err := b.attach(ctx, c, connects || b.held > 0 || in.Query.Get("history") == "true")
	if connects && errors.Is(err, fanout.ErrNotFound) {
		err = dialect.ErrComplete
	}
	req.Stream = in.Stream
	return req, err
}

// say stores the answers to questions and what the user says, each once.
func (b *post) say(ctx context.Context, c *protocol.Call) error {
	if len(b.Resume) > dialect.MaxList {
		return dialect.Refuse(dialect.ErrBadRequest, "more than %d questions are answered", dialect.MaxList)
	}
	if len(b.Resume) > 0 {
		if err := b.decide(ctx, c); err != nil {
			return err
		}
	}
	if b.last == nil {
		return nil
	}
	if len(b.last.ID) > chat.MaxID {
		return dialect.Refuse(dialect.ErrBadRequest, "the id of the last message is longer than %d bytes", chat.MaxID)
	}
	content, err := b.last.content()
	if err != nil {
		return err
	}
	o := jsonscan.Object("{").Raw("content", content).Str("message_id", b.last.ID).OptStr("ag_ui_run_id", b.RunID)
	for _, f := range []struct {
		name  string
		value json.RawMessage
	}{{"state", b.State}, {"tools", b.Tools}, {"context", b.Context}, {"forwardedProps", b.ForwardedProps}} {
		if v := string(f.value); v != "null" && v != "{}" && v != "[]" {
			o = o.OptRaw(f.name, f.value)
		}
	}
	_, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: b.ThreadID})
	if err == nil && p.answer(b.last.ID) > 0 {
		return nil
	}
	if err == nil || errors.Is(err, fanout.ErrNotFound) {
		b.fresh = true
		_, _, err = chat.Say[*projector](ctx, c, b.ThreadID, b.last.ID, json.RawMessage(o.End()))
	}
	return err
}

// answer returns the response to a message from the user, by the id that pages have of it; 0: nobody has said it. What
// was said without an id has one of its record.
func (p *projector) answer(id string) schema.Seq {
	first, ok := p.chat.Said.Get(id)
	if own, cut := strings.CutPrefix(id, p.run+"-"); !ok && cut {
		return p.chat.Spans.Find(own).First
	}
	return first
}

// attach finds the response to stream: that of the message that was said, as long as it goes on, else the newest. truth
// reports whether the client gets the thread as a snapshot; it does too when it is not the response of its message.
func (b *post) attach(ctx context.Context, c *protocol.Call, truth bool) (req dialect.Request, err error) {
	head, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: b.ThreadID})
	if err != nil {
		return req, err
	}
	first := p.chat.Spans.Find(dialect.SpanNewest).First
	if first == 0 {
		return req, dialect.ErrComplete
	}
	if b.last != nil {
		own := p.answer(b.last.ID)
		span := p.chat.Spans.Find(own.String())
		if span.First > 0 && span.Last == 0 {
			first = own
		}
		truth = truth || own != first
	}
	if len(b.Resume) > 0 { // it holds what is asked
		truth = true
		if p.now.response > 0 {
			first = p.now.response
		}
	}
	req, at := p.request(first, head.Last)
	if truth {
		req.Cursor.Seq = at
	}
	if truth && b.fresh && p.answer(b.last.ID) == first {
		req.Cursor.Seq = first // it has nothing of the answer, and gets that as events, however fast the agent is
	}
	return req, nil
}

// content is what a person says, as the log has it.
func (m *clientMessage) content() ([]byte, error) {
	if jsonscan.IsString(m.Content) {
		return m.Content, nil
	}
	var parts []struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Source struct {
			Type     string `json:"type"`
			Value    string `json:"value"`
			MimeType string `json:"mimeType"`
		} `json:"source"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest,
			"the content of the last message is neither a text nor a list of parts")
	}
	var blocks []map[string]any
	for _, p := range parts {
		switch {
		case p.Type == "text":
			blocks = append(blocks, map[string]any{"type": "text", "text": p.Text})
		case p.Source.Type == "data":
			source := map[string]any{"type": "base64", "media_type": p.Source.MimeType, "data": p.Source.Value}
			blocks = append(blocks, map[string]any{"type": p.Type, "source": source})
		case p.Source.Type != "":
			blocks = append(blocks, map[string]any{"type": p.Type,
				"source": map[string]any{"type": p.Source.Type, "url": p.Source.Value}})
		}
	}
	if len(blocks) == 0 {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the last message has no part that is a text or a file")
	}
	return json.Marshal(blocks)
}

// userMessage appends what a person says with a record, as a message of AG-UI. field returns fields of its payload.
func userMessage(o jsonscan.Object, run string, seq schema.Seq, field func(string) []byte) jsonscan.Object {
	id := jsonscan.DecodeString(field("message_id"))
	if id == "" {
		id = run + "-" + seq.String()
	}
	o = append(o, '{').Str("id", id).Str("role", "user")
	content := field("content")
	if jsonscan.IsString(content) {
		return o.Raw("content", content).End()
	}
	o = append(o.Name("content"), '[')
	for block := range jsonscan.Elements(content) {
		part := userPart(block)
		if part != nil && o[len(o)-1] != '[' {
			o = append(o, ',')
		}
		o = append(o, part...)
	}
	return append(o, ']').End()
}

// userPart is a block as a part of a message; nil for one that AG-UI has no word for.
func userPart(block []byte) []byte {
	f := jsonscan.Fields(nil).Read(block)
	typ := f.Str("type")
	source := jsonscan.Fields(nil).Read(f.Object("source"))
	o := jsonscan.Object("{").Str("type", typ)
	switch {
	case typ == "text" && jsonscan.IsString(f.Raw("text")):
		return o.Raw("text", f.Raw("text")).End()
	case typ != "image" && typ != "document" && typ != "audio" && typ != "video":
		return nil
	case source.Str("data") != "":
		o = append(o.Name("source"), '{').Str("type", "data").Raw("value", source.Raw("data")).Str("mimeType",
			source.Str("media_type")).End()
		return o.End()
	case source.Str("url") != "":
		o = append(o.Name("source"), '{').Str("type", "url").Raw("value", source.Raw("url")).End()
		return o.End()
	}
	return nil
}

// decide stores the answers to questions, those that are not stored already, all of them or none. Of two answers that
// contradict each other the later one is refused.
func (b *post) decide(ctx context.Context, c *protocol.Call) error {
	change := protocol.Change[*projector]{Request: dialect.Request{Run: b.ThreadID}}
	change.Plan = func(_ schema.Head, p *projector) (events []schema.Event, err error) {
		open, err := p.open(b.Resume)
		if err != nil {
			return nil, err
		}
		for _, o := range open {
			payload := jsonscan.Object("{").Str("request_id", o.ID).Raw("answer", o.answer).OptStr("ag_ui_run_id", b.RunID).End()
			events = append(events, schema.Event{Type: "command.answer", Payload: c.By(json.RawMessage(payload))})
		}
		if len(events) == 0 {
			err = protocol.ErrDone
		}
		return events, err
	}
	_, err := change.Once(ctx, c)
	return err
}

// open returns the entries that are to be stored: whose questions wait.
func (p *projector) open(list []entry) (open []entry, err error) {
	for _, e := range list {
		a, ok := p.asks.Get(e.ID)
		if !ok {
			return nil, p.chat.RefuseUnknown(e.ID)
		}
		e.answer, err = a.read(e)
		switch {
		case err != nil:
			return nil, err
		case a.answered && a.answer == sum(e.answer), slices.ContainsFunc(open, func(o entry) bool { return o.ID == e.ID }):
		case a.answered:
			return nil, p.chat.RefuseOther(e.ID)
		case !p.chat.IsWaiting(e.ID):
			return nil, p.chat.RefuseLate(e.ID)
		default:
			open = append(open, e)
		}
	}
	return open, nil
}

// read returns an answer as agents read it: of a question about a call a decision, of another one what the page says.
func (a ask) read(e entry) ([]byte, error) {
	if e.Status != "resolved" && e.Status != "cancelled" {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the status of an answer is neither resolved nor cancelled")
	}
	said := e.Payload
	if e.Status == "cancelled" {
		said = []byte(`{"cancelled":true}`)
	}
	if len(said) == 0 {
		said = []byte("null")
	}
	if a.call == "" {
		return said, nil
	}
	result := "deny"
	if chat.IsApproval(said) {
		result = "allow"
	}
	why := jsonscan.Fields(nil).Read(said).Str("reason")
	return jsonscan.Object("{").Str("type", "user.tool_confirmation").Str("result", result).OptStr("deny_message",
		why).End(), nil
}
