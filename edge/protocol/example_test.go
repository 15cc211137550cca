package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// This file is the protocol that docs/contributing.md builds step by step: a chat whose answers are streamed as words.

// Chat mounts it.
func Chat() protocol.Protocol {
	stream := func(name, pattern string) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: pattern, Transport: dialect.SSE, Mode: dialect.ModeB, Shared: true}
	}
	say := stream("say", "POST /chat/{run}")
	say.Body = []string{"application/json"}
	return protocol.Protocol{
		Dialect: words{}, Below: []string{"/chat"},
		Streams: []protocol.Stream{
			{Stream: say, Begin: ask},
			{Stream: stream("answer", "GET /chat/{run}"), Asked: protocol.IsStreamAccepted, Prelude: greeting},
		},
		Routes: []protocol.Route{{Pattern: "GET /chat/{run}", Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(state)}},
	}
}

// words is the translation.
type words struct{}

func (words) Info() dialect.Info { return dialect.Info{Name: "words"} }

// Open reads a request: the answer that is the newest, from its beginning or after the place in Last-Event-ID.
func (words) Open(in dialect.Input) (req dialect.Request, err error) {
	req = dialect.Request{Run: in.Path["run"], Stream: in.Stream, Span: dialect.SpanNewest}
	if err = schema.ValidRunID(req.Run); err != nil {
		return req, err
	}
	if id := in.Header.Get("Last-Event-ID"); id != "" {
		req.Cursor.Place, err = dialect.ParsePlace(req.Run, id)
	}
	return req, err
}

func (words) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }

// Projector returns one that has seen nothing yet.
func (words) Projector(req dialect.Request) dialect.Projector { return (&answers{}).For(req) }

// answers is what a run has come to: where each answer begins and ends, and the length of the one under way.
type answers struct {
	req   dialect.Request
	spans dialect.Spans
	id    string // of the answer under way; "": none is
	size  int
}

// Project makes a frame of each piece of text, and the last one at the end of the turn.
func (p *answers) Project(out *dialect.Frames, r schema.Record) error {
	switch string(r.Type) {
	case schema.TypeCommandMessage:
		p.id, p.size = r.Seq.String(), 0
		p.spans.Begin(p.id, r.Seq)
	case schema.TypeTextDelta:
		text := schema.Field(r.Payload(), "text")
		p.size += len(text)
		p.add(out, dialect.Frame{Data: text}, r)
	case schema.TypeTurnEnd:
		p.add(out, dialect.Frame{Data: []byte("[DONE]"), Last: true}, r)
		p.spans.End(p.id, r.Seq)
		p.id = ""
	}
	return nil
}

// add appends a frame, whose id is its place in the run, if the request is for the answer that it is of.
func (p *answers) add(out *dialect.Frames, f dialect.Frame, r schema.Record) {
	if out != nil && p.id != "" && p.id == p.req.Span {
		f.Token = dialect.Place{Seq: r.Seq}.AppendID(nil, p.req.Run)
		out.Add(f)
	}
}

func (p *answers) For(req dialect.Request) dialect.Stateful {
	return &answers{req, p.spans.Clone(), p.id, p.size}
}

func (p *answers) Size() int                             { return 128 + p.spans.Size() }
func (p *answers) Admit(dialect.Request) error           { return nil }
func (p *answers) Span(req dialect.Request) dialect.Span { return p.spans.Find(req.Span) }

// ask stores what a person says, and streams the answer.
func ask(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	req, err := words{}.Open(in)
	if err != nil {
		return req, err
	}
	var said struct{ Text string }
	if json.Unmarshal(in.Body, &said) != nil || said.Text == "" {
		return req, dialect.Refuse(dialect.ErrBadRequest, "say something: {\"text\":\"…\"}")
	}
	payload, err := json.Marshal(map[string]string{"content": said.Text})
	if err != nil {
		return req, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	at, err := protocol.Change[*answers]{Request: req, Keyed: true, Running: true,
		Events: []schema.Event{{Type: schema.TypeCommandMessage, Payload: payload}}}.Store(ctx, c)
	req.Span = at.Last.String()
	return req, err
}

// greeting is what a page is shown first: how much of the answer there was when it came.
func greeting(_ *protocol.Call, at protocol.Seam) ([]dialect.Frame, error) {
	return []dialect.Frame{{Event: []byte("place"),
		Data: fmt.Appendf(nil, `{"after":%d,"of":%d}`, at.After, at.Last)}}, nil
}

// state answers with the state of the run; with ?after=N when it has a record after that.
func state(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	after, err := q.Seq("after", 0)
	if err != nil {
		return err
	}
	head, err := c.Wait(ctx, c.Path("run"), after)
	if err != nil {
		return err
	}
	return c.ReplyJSON(map[string]any{"state": head.State, "last": head.Last})
}

// TestChat is the tour of the page.
func TestChat(t *testing.T) {
	n := edgetest.Share().Start(t, Chat())
	running(t, n, "run")
	const typ, key = "application/json", "Idempotency-Key"
	l := open(t, n, "POST", "/chat/run", `{"text":"hello"}`, "Content-Type", typ, key, "k")
	answer := []string{`"Good "`, `"day."`}
	n.Say("run", edgetest.Event(schema.TypeTextDelta, `{"text":"Good "}`))
	l.want(answer[0])
	page := open(t, n, "GET", "/chat/run", "", "Accept", "text/event-stream")
	page.want(`{"after":1,"of":3}`, answer[0])
	n.Say("run", edgetest.Event(schema.TypeTextDelta, `{"text":"day."}`),
		edgetest.Event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	l.expectEnd(answer[1], "[DONE]")
	page.expectEnd(answer[1], "[DONE]")
	open(t, n, "POST", "/chat/run", `{"text":"hello"}`, "Content-Type", typ, key,
		"k").expectEnd(append(answer, "[DONE]")...)
	if a := n.Do("GET", "/chat/run?after=4", ""); a.Body != `{"last":5,"state":"running"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a := n.Do("GET", "/chat/run", "", "Accept", "text/event-stream")
	_, id, _ := bytes.Cut([]byte(a.Body), []byte("id: "))
	id, _, _ = bytes.Cut(id, []byte("\n"))
	open(t, n, "GET", "/chat/run", "", "Accept", "text/event-stream", "Last-Event-ID",
		string(id)).expectEnd(`{"after":3,"of":5}`, answer[1], "[DONE]")
}

// TestChatIsADialect runs the suite that every dialect passes.
func TestChatIsADialect(t *testing.T) {
	dialecttest.Suite{Dialect: words{}, Streams: Chat().AllStreams(), Texts: []string{"[DONE]"},
		Inputs: map[string]dialect.Input{"newest": {Stream: "answer"}}, State: 64 << 10}.Run(t)
}
