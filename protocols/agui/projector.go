package agui

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/protocols/chat"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// projector makes the events of one response of a run.
type projector struct {
	chat  *chat.Reader
	run   string
	now   wire                            // the response under way
	used  ordered.Map[string, schema.Seq] // responses, by the ids of calls that they were the first to use
	runs  ordered.Map[string, schema.Seq] // responses, by the ids that clients gave to their runs
	asks  ordered.Map[string, ask]        // questions of the run itself, by their ids
	above ordered.Map[string, string]     // parents of children
	size  int                             // of ids, in bytes

	req   dialect.Request
	span  schema.Seq // response of the request
	pass  int        // pauses of it that do not end the stream
	every bool       // all responses are shown
	out   *dialect.Frames
	rec   schema.Record
	nth   int // events of the record so far
	call  string
	buf   jsonscan.Object
}

// ask is a question that waits for a person, or has waited.
type ask struct {
	response schema.Seq
	call     string // as events have it; "": it is about none
	prompt   []byte
	form     []byte // JSON Schema of the answer
	answered bool
	answer   uint64 // sum of it
}

// Values of Request.Form: the events of all responses, one after the other, and those of one up to its end, whatever it
// asks.
const (
	formAll   = "all"
	formWhole = "whole"
)

// maxAsk bounds what is remembered of a question, in bytes.
const maxAsk = 16 << 10

// Projector returns one that has seen nothing yet.
func (Dialect) Projector(req dialect.Request) dialect.Projector {
	return (&projector{chat: chat.New()}).For(req)
}

// For returns a copy for a request.
func (p *projector) For(req dialect.Request) dialect.Stateful {
	c := &projector{chat: p.chat.Clone(), run: p.run, now: p.now.clone(), used: p.used.Clone(), runs: p.runs.Clone(),
		asks: p.asks.Clone(), above: p.above.Clone(), size: p.size, req: req, every: req.Form == formAll}
	c.span, _ = schema.ParseCursor(req.Span)
	c.pass, _ = strconv.Atoi(req.Form)
	if req.Form == formWhole {
		c.pass = int(^uint(0) >> 1)
	}
	return c
}

// Size is about what is remembered, in bytes.
func (p *projector) Size() int {
	return 512 + p.chat.Size() + p.size + 64*(p.used.Len()+p.runs.Len()+p.above.Len()) + 160*p.asks.Len() + p.now.size()
}

// Admit lets everyone at a run.
func (p *projector) Admit(dialect.Request) error { return nil }

// Span finds a response.
func (p *projector) Span(req dialect.Request) dialect.Span { return p.chat.Spans.Find(req.Span) }

// Chat is what the run is.
func (p *projector) Chat() *chat.Reader { return p.chat }

// Project makes the events of the next record.
func (p *projector) Project(out *dialect.Frames, r schema.Record) error {
	events, err := p.chat.Next(r)
	if err != nil {
		return err
	}
	if p.run == "" {
		_, _, run := r.Envelope()
		p.run = string(run)
	}
	p.out, p.rec, p.nth, p.call = out, r, 0, ""
	if len(r.Child) == 0 && string(r.Type) == schema.TypeCommandMessage {
		p.name(r.Seq)
	}
	for i := range events {
		p.event(&events[i])
	}
	under := p.chat.UnderWay()
	if under > 0 && under != p.now.response {
		p.beginResponse(under)
	}
	if len(r.Child) == 0 && p.now.response > 0 && !p.chat.Again() {
		p.converse()
	}
	p.out, p.rec = nil, schema.Record{}
	return nil
}

// name remembers the id that a client gave to its run.
func (p *projector) name(response schema.Seq) {
	id := p.text("ag_ui_run_id")
	if id != "" && len(id) <= chat.MaxID {
		p.runs.Set(id, response)
		p.size += len(id)
	}
}

func (p *projector) text(field string) string { return jsonscan.DecodeString(p.chat.Field(field)) }

// converse reads what a person is asked, and what is answered.
func (p *projector) converse() {
	id := p.text("request_id")
	switch string(p.rec.Type) {
	case schema.TypeInputRequested:
		if id != "" && len(id) <= chat.MaxID && p.chat.IsWaiting(id) {
			p.ask(id)
			p.pause()
		}
	case schema.TypeInputAnswered, "command.answer":
		a, ok := p.asks.Get(id)
		if !ok || a.answered || a.response != p.now.response {
			return
		}
		a.answered, a.answer = true, sum(p.chat.Field("answer"))
		p.asks.Set(id, a)
		p.now.asked.Delete(id)
		p.name(a.response)
		p.resume()
		if len(p.waiting()) > 0 {
			p.pause()
		}
	}
}

// ask remembers a question.
func (p *projector) ask(id string) {
	a := ask{response: p.now.response, call: p.call}
	prompt, form := p.chat.Field("prompt"), p.chat.Field("schema")
	if jsonscan.IsString(prompt) && len(prompt) <= maxAsk {
		a.prompt = bytes.Clone(prompt)
	}
	if len(form) > 0 && form[0] == '{' && len(form) <= maxAsk {
		a.form = bytes.Clone(form)
	}
	p.asks.Set(id, a)
	p.now.asked.Set(id, struct{}{})
	p.size += len(id) + len(a.prompt) + len(a.form) + len(a.call)
}

// waiting returns the questions of the response that wait, oldest first.
func (p *projector) waiting() (ids []string) {
	for id := range p.now.asked.All() {
		if p.chat.IsWaiting(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// sum is that of an answer, however it is spaced.
func sum(answer []byte) uint64 {
	var b bytes.Buffer
	if json.Compact(&b, answer) != nil {
		b.Reset()
	}
	h := fnv.New64a()
	_, _ = h.Write(b.Bytes()) // it returns no error
	return h.Sum64()
}

// event makes the events of AG-UI of an event of the response.
func (p *projector) event(e *chat.Event) {
	if e.Kind == chat.Empty && e.Response != p.now.response { // one that never was under way
		kept := p.now
		p.beginResponse(e.Response)
		p.finish(e)
		p.now = kept
		return
	}
	if e.Response != p.now.response {
		p.beginResponse(e.Response)
	}
	switch e.Kind {
	case chat.Message:
		p.now.heads.Delete(e.Lane)
	case chat.TextStart, chat.TextDelta, chat.TextEnd:
		p.textEvent(e)
	case chat.Ask:
		p.call = p.callID(e.Lane, e.Call)
	case chat.Usage:
		p.now.use(e.Name, e.Value)
	case chat.File:
		p.custom("file", e.Lane, jsonscan.Object("{").Str("mimeType", e.Name).Inner("data", e.Text).End())
	case chat.Data:
		p.data(e)
	case chat.ChildState:
		p.child(e)
	case chat.Done, chat.Aborted, chat.Failed, chat.Empty:
		p.finish(e)
	case chat.Begin:
	default:
		p.callEvent(e)
	}
}

// data makes events of what is no message.
func (p *projector) data(e *chat.Event) {
	values := p.chat.Field("values")
	switch {
	case e.Name == "input" && e.Lane == "": // see converse
	case e.Name == "state" && e.Lane == "" && values != nil:
		p.resume()
		p.emit("STATE_SNAPSHOT", "", func(o jsonscan.Object) jsonscan.Object { return o.Raw("snapshot", values) })
	case e.Name == "state-update" && e.Lane == "" && len(values) > 0 && values[0] == '{':
		p.resume()
		p.emit("STATE_DELTA", "", func(o jsonscan.Object) jsonscan.Object { return append(o.Name("delta"), patch(values)...) })
	default:
		p.custom(e.Name, e.Lane, e.Value)
	}
}

// patch is a JSON Patch (RFC 6902) that sets the members of an object.
func patch(values []byte) []byte {
	list := []byte{'['}
	for name, value := range jsonscan.Members(values) {
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = jsonscan.Object(append(list, '{')).Str("op", "add").Str("path",
			"/"+pointer.Replace(string(name))).Raw("value", value).End()
	}
	return append(list, ']')
}

// child makes events of the state of a child.
func (p *projector) child(e *chat.Event) {
	if _, known := p.above.Get(e.Lane); !known && e.Call != "" {
		p.above.Set(e.Lane, e.Call)
		p.size += len(e.Lane) + len(e.Call)
	}
	state := schema.RunState(e.Name)
	if !p.enter(e.Lane, e.Value) || !state.Final() {
		return
	}
	why := p.text("reason")
	if why == "" {
		why = e.Name
	}
	p.leave(e.Lane, state, why)
}
