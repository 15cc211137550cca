package openai

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// projector makes the events of one response of a run.
type projector struct {
	run     *assemble.Run
	id      string     // of the run
	first   schema.Seq // first record that was fed
	session bool       // its turns are responses
	spans   dialect.Spans
	totals  []int // events of the responses that have ended; only appended to
	now     response
	open    ordered.Map[itemKey, item] // of the response under way

	req dialect.Request
	nth int        // response of the request
	typ string     // of the record at hand
	seq schema.Seq // its number
	out *dialect.Frames
	buf jsonscan.Object
}

// response is the newest one.
type response struct {
	n       int  // among the run's, from 1; 0: there is none
	open    bool // it has not ended
	events  int
	created int64 // seconds
	status  string
	model   string
	asked   []byte // what was asked for besides the input, a JSON object
	why     string // of a failure
	lacks   string // of what was not completed
	usage   map[string]int64
	items   int
	output  ordered.Map[int, []byte] // items that are done, by output_index
	size    int
	elided  bool // there was too much output
}

// Bounds of what is remembered.
const (
	maxOutput = 4 << 20 // bytes of a response's output
	maxText   = 1 << 20 // bytes of an item's text; a longer one goes on in another item
	maxAsked  = 8 << 10 // bytes of a member of a request
	maxOpen   = 1 << 10 // items
	statusNew = "queued"
	statusNow = "in_progress"
)

// Projector returns one that has seen nothing yet.
func (Dialect) Projector(req dialect.Request) dialect.Projector {
	return (&projector{run: assemble.New(assemble.Limits{})}).For(req)
}

// For returns a copy for a request.
func (p *projector) For(req dialect.Request) dialect.Stateful {
	c := &projector{run: p.run.Clone(), id: p.id, first: p.first, session: p.session, spans: p.spans.Clone(),
		totals: slices.Clip(p.totals), now: p.now, req: req}
	c.now.output = p.now.output.Clone()
	c.open = p.open.Copy(func(it item) item { it.text = slices.Clip(it.text); return it })
	c.nth, _ = strconv.Atoi(req.Span)
	return c
}

// Size is about what is remembered, in bytes.
func (p *projector) Size() int {
	n := 1024 + p.run.Size() + p.spans.Size() + 8*len(p.totals) + p.now.size + len(p.now.asked) + 64*p.now.output.Len()
	for _, it := range p.open.All() {
		n += 256 + len(it.text) + len(it.id)
	}
	return n
}

// Admit refuses numbers that no event has yet, and runs whose beginning is no longer kept: their events cannot be
// counted.
func (p *projector) Admit(req dialect.Request) error {
	if p.first > 1 {
		return &fanout.ExpiredError{First: p.first}
	}
	n, _ := strconv.Atoi(req.Span)
	total := 0
	switch {
	case n > 0 && n <= len(p.totals):
		total = p.totals[n-1]
	case n == p.now.n:
		total = p.now.events
	}
	if req.Cursor.Frames > total && n <= p.now.n {
		return refuse("cursor_ahead", "starting_after is beyond the newest event of this response, %d", total-1)
	}
	return nil
}

// Span finds a response.
func (p *projector) Span(req dialect.Request) dialect.Span { return p.spans.Find(req.Span) }

// Project makes the events of the next record.
func (p *projector) Project(out *dialect.Frames, r schema.Record) error {
	steps, err := p.run.Next(r)
	if err != nil {
		return err
	}
	root := len(r.Child) == 0
	if p.first == 0 {
		_, _, run := r.Envelope()
		p.id, p.first, p.session = string(run), r.Seq, root && string(r.Type) == schema.TypeSessionCreated
	}
	p.out, p.typ, p.seq = out, string(r.Type), r.Seq
	if p.now.n == 0 || !p.now.open && root && p.isWork(steps) {
		p.beginResponse(r)
	}
	if p.now.open && root {
		p.readRequest()
	}
	for i := range steps {
		if p.now.open && steps[i].Lane.Child == "" {
			p.step(&steps[i])
		}
	}
	p.out = nil
	return nil
}

// isWork reports whether a record shows that the root is at work, or is to be.
func (p *projector) isWork(steps []assemble.Transition) bool {
	if p.typ == schema.TypeCommandMessage {
		return p.text("role") != "system"
	}
	return slices.ContainsFunc(steps, func(t assemble.Transition) bool { return t.Lane.Child == "" && p.isWorkStep(&t) })
}

// isWorkStep reports whether a step is work.
func (p *projector) isWorkStep(t *assemble.Transition) bool {
	switch t.Kind {
	case assemble.MessageOpen:
		return t.Message.Role == "assistant"
	case assemble.TurnBegin:
		return p.typ == schema.TypeTurnStart
	case assemble.CallAsk, assemble.CallStart, assemble.ModelStart:
		return p.typ != schema.TypeToolEnd
	}
	return false
}

func (p *projector) text(name string) string { return jsonscan.DecodeString(p.run.Field(name)) }

// beginResponse begins a response with a record.
func (p *projector) beginResponse(r schema.Record) {
	n := p.now.n + 1
	p.spans.Begin(strconv.Itoa(n), r.Seq)
	_, ts, _ := r.Envelope()
	at, _ := time.Parse(time.RFC3339Nano, string(ts)) // the log has checked it
	p.now = response{n: n, open: true, created: at.Unix(), status: statusNow, model: p.now.model}
	p.open = ordered.Map[itemKey, item]{}
	family, _, _ := strings.Cut(p.typ, ".")
	switch {
	case len(r.Child) > 0:
	case family == "command", family == "session", family == "plan",
		p.text("state") == string(schema.StateAwaitingApproval):
		p.now.status = statusNew
	}
	p.readRequest()
	p.response("created", false)
	if p.now.status == statusNow {
		p.response(statusNow, false)
	}
}

// readRequest reads what a response is asked for.
func (p *projector) readRequest() {
	switch p.typ {
	case schema.TypeSessionCreated:
		agent := p.run.Field("agent")
		if f := jsonscan.Fields(nil).Read(agent); f != nil {
			agent = f.Raw("id")
		}
		p.noteModel(jsonscan.DecodeString(agent))
		if m := p.run.Field("metadata"); len(m) > 2 && len(m) <= maxAsked && m[0] == '{' {
			p.now.asked = jsonscan.Object("{").Raw("metadata", m).End()
		}
	case schema.TypeCommandMessage:
		f := jsonscan.Fields(nil).Read(p.run.Field("openai"))
		if f == nil {
			return
		}
		p.now.asked = echo(f)
		p.noteModel(f.Str("model"))
	case schema.TypeMessageStart, schema.TypeModelStart:
		p.noteModel(p.text("model"))
	}
}

// noteModel notes the model.
func (p *projector) noteModel(model string) {
	if model != "" && len(model) <= maxAsked {
		p.now.model = model
	}
}

// step makes the events of a step of the root.
func (p *projector) step(t *assemble.Transition) {
	running := t.Kind == assemble.StateChange && t.Lane.State == schema.StateRunning
	if p.now.status == statusNew && (running || p.isWorkStep(t)) {
		p.now.status = statusNow
		p.response(statusNow, false)
	}
	switch t.Kind {
	case assemble.TurnEnd:
		if p.session && p.typ == schema.TypeTurnEnd {
			p.turnEnds()
		}
	case assemble.StateChange:
		if t.Lane.State.Final() && t.Value != nil {
			p.runEnds(t.Lane.State)
		}
	case assemble.CallStart:
		p.callStarts(t.Item)
	case assemble.CallEnd:
		p.callEnds(t)
	case assemble.UsageAdd:
		p.addUsage(t)
	default:
		if t.Block != nil && t.Message.Role == "assistant" {
			p.block(t)
		}
	}
}

// addUsage adds up what the messages have used.
func (p *projector) addUsage(t *assemble.Transition) {
	if t.Message == nil {
		return
	}
	sum := map[string]int64{}
	f := jsonscan.Fields(nil).Read(t.Value)
	for _, name := range []string{"input_tokens", "output_tokens", "cache_read_input_tokens"} {
		n, _ := f.Integer(name)
		sum[name] = p.now.usage[name] + max(n, 0)
	}
	p.now.usage = sum // copies may share the other
}

// turnEnds ends the response with its turn.
func (p *projector) turnEnds() {
	switch stop := p.text("stop_reason"); stop {
	case "cancelled", "canceled", "aborted", "interrupted":
		p.endResponse("incomplete", "cancelled")
	case "error", "failed", "retries_exhausted":
		p.now.why = p.text("reason")
		p.endResponse("failed", "failed")
	case "max_tokens", "length":
		p.now.lacks = "max_output_tokens"
		p.endResponse("incomplete", "incomplete")
	case "refusal", "content_filter":
		p.now.lacks = "content_filter"
		p.endResponse("incomplete", "incomplete")
	default:
		p.endResponse("completed", "completed")
	}
}

// runEnds ends the response with the run.
func (p *projector) runEnds(state schema.RunState) {
	switch state {
	case schema.StateAborted:
		p.endResponse("incomplete", "cancelled")
	case schema.StateError:
		p.now.why = p.text("reason")
		p.endResponse("failed", "failed")
	default:
		p.endResponse("completed", "completed")
	}
}

// endResponse ends the response with an event. There is none for what was cancelled.
func (p *projector) endResponse(event, status string) {
	for p.open.Len() > 0 {
		oldest, _, _ := p.open.First()
		p.closeItem(oldest, status == "completed")
	}
	p.now.status = status
	p.response(event, true)
	p.now.open = false
	p.totals = append(p.totals, p.now.events)
	p.spans.End(strconv.Itoa(p.now.n), p.seq)
}

// emit makes an event with the fields that fill adds, and counts it.
func (p *projector) emit(typ string, last bool, fill func(jsonscan.Object) jsonscan.Object) {
	n := p.now.events
	p.now.events++
	if p.out == nil || p.now.n != p.nth {
		return
	}
	p.buf = fill(append(p.buf[:0], '{').Str("type", "response."+typ).Int("sequence_number", int64(n)))
	name := p.out.Text([]byte("response."), []byte(typ))
	p.out.Add(dialect.Frame{Event: name, Data: p.out.Text(p.buf.End()), Last: last})
}

// response makes an event with the whole response.
func (p *projector) response(typ string, last bool) {
	p.emit(typ, last, func(o jsonscan.Object) jsonscan.Object { return p.appendResponse(o.Name("response")) })
}
