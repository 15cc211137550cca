package langgraph

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// state is what a thread's state is made of.
type state struct {
	newest     snapshot // the newest stored state of the root
	checkpoint checkpoint
	requests   ordered.Map[requestKey, request]
	asked      []string      // ids of requests; only appended to: copies share it
	spans      []contentSpan // messages and results of the root, in their order; only appended to: copies share it
}

// snapshot is a stored state.
type snapshot struct {
	at     dialect.Place
	ts     string
	run    string // of LangGraph
	values []byte // never changed
}

type checkpoint struct {
	id, parent, source, ts string
	step                   int64
}

// contentSpan is where a message or a result is: the records with which it begins and ends, and the time of the
// first.
type contentSpan struct {
	start, end schema.Seq
	ts         string
	size       int // of its content, in bytes
}

const (
	// maxSpans bounds the messages that are remembered. Of more the newest are.
	maxSpans = 1 << 14
	// maxState bounds the content of the messages that a state is made of, in bytes. Of more the newest are in it.
	maxState = 4 << 20
	// maxGap is how many records between two messages are read with them.
	maxGap = 512
)

func (s *state) clone() state {
	c := *s
	c.requests, c.spans, c.asked = s.requests.Clone(), slices.Clip(s.spans), slices.Clip(s.asked)
	return c
}

func (s *state) size() int {
	return len(s.newest.values) + 56*len(s.spans) + 256*s.requests.Len() + 64*len(s.asked) + requestSize(s)
}

// requestSize returns how many bytes the payloads of the open requests have.
func requestSize(s *state) (n int) {
	for _, r := range s.requests.All() {
		n += len(r.payload)
	}
	return n
}

// formMessages is Request.Form of MessagesRequest.
const formMessages = "messages"

// MessagesRequest returns the request for the messages of a thread as its state has them: a frame for each that is
// complete and for each result of a tool. The message of a frame may have begun with a record before.
func MessagesRequest(thread string) dialect.Request {
	return dialect.Request{Run: thread, Stream: StreamName, Form: formMessages}
}

// list notes a message that is complete. write writes its members.
func (p *Projector) list(at contentSpan, write func(object) object) {
	if len(p.spans) >= maxSpans {
		p.spans = slices.Clone(p.spans[maxSpans/4:])
	}
	p.spans = append(p.spans, at)
	slot := p.rec.kept
	p.rec.kept++
	if p.rec.out != nil && p.req.Form == formMessages {
		p.rec.out.Add(dialect.Frame{Data: p.rec.out.Text(write(object{'{'}).End()), Slot: slot,
			Token: p.rec.out.Number(int64(at.start))})
	}
}

// noteMessage notes a message of the root.
func (p *Projector) noteMessage(m *openMessage, t *assemble.Transition, usage []byte, stop string) {
	if t.Lane.Child != "" {
		return
	}
	p.list(contentSpan{m.start, p.rec.seq, m.ts, len(t.Value)}, func(o object) object {
		var parts [][]byte
		if jsonscan.IsString(t.Value) {
			parts = [][]byte{append(object{'{'}.Str("type", "text").Raw("text", t.Value), '}')}
		} else {
			parts = slices.Collect(jsonscan.Elements(t.Value))
		}
		o = o.Str("type", m.role).Str("id", m.id).Raw("content", partsOf(parts))
		o = append(o.Name("tool_calls"), '[')
		for _, raw := range parts {
			if c := assemble.ReadPart(raw); text(c.Type) == "tool_use" {
				if call := contentOf(&c); bytes.HasPrefix(call, []byte(`{"type":"tool_call"`)) {
					o = append(sepList(o), call...)
				}
			}
		}
		o = append(append(append(o, ']').OptRaw("usage_metadata", usage).Name("response_metadata"),
			'{').OptStr("finish_reason", finishReason(stop)), '}')
		return o
	})
}

// result notes the result of a tool of the root.
func (p *Projector) result(t *assemble.Transition, output []byte, ok bool, problem string) {
	if t.Lane.Child != "" {
		return
	}
	content := output
	if !ok {
		content = quote(problem)
	} else if !jsonscan.IsString(output) {
		content = quote(string(output))
	}
	p.list(contentSpan{p.rec.seq, p.rec.seq, p.rec.ts, len(content)}, func(o object) object {
		o = o.Str("type", "tool").Str("id", "tool_"+modelRunID(p.thread, "", p.rec.seq)).Raw("content",
			content).Str("tool_call_id", t.Item.ID).OptStr("name", t.Item.Tool)
		if !ok {
			return o.Str("status", "error")
		}
		return o.Str("status", "success")
	})
}

// Open begins a stream that goes on behind the newest event with the newest state, under its own number.
func (p *Projector) Open(out *dialect.Frames, _ schema.Seq) error {
	if !p.req.Newest || p.newest.values == nil || p.older != nil {
		return nil
	}
	was, run := p.rec, p.run.id
	p.rec, p.run.id = record{seq: p.newest.at.Seq, ts: p.newest.ts}, p.newest.run
	f := p.frame(out, values, "values", source{namespace: []byte("[]")}, p.newest.at,
		func(o object) object { return append(o, p.newest.values...) })
	if p.rec, p.run.id = was, run; p.req.Select == nil || p.req.Select.Match(&f) {
		f.Token = nil // the client goes on behind the newest event, not behind this one
		out.Add(f)
	}
	return nil
}

// Status is the thread's: idle, busy, interrupted or error.
func (p *Projector) Status() string {
	switch {
	case p.run.active:
		return "busy"
	case p.asking():
		return interrupted
	case p.last == failed:
		return "error"
	}
	return "idle"
}

// Session is what the thread's session.* events say of it, as schema.MergeSession has it; nil when there are none.
func (p *Projector) Session() []byte { return p.session }

// Run is the id of the run under way, or of the newest, and whether it is under way.
func (p *Projector) Run() (id string, active bool) { return p.run.id, p.run.active }

// Records walks the records of the root run with after < seq ≤ through. What is no longer kept is left out, without an
// error.
type Records func(after, through schema.Seq) iter.Seq2[schema.Record, error]

// AppendState appends the state of the thread as GET /threads/{id}/state has it: the newest that was stored, or else
// one made of the messages that are complete. It reads the records of those.
func (p *Projector) AppendState(dst []byte, read Records) ([]byte, error) {
	o := append(object(dst), '{')
	ts, step := p.newest.ts, p.checkpoint.step
	if p.newest.values != nil {
		o = o.Raw("values", p.newest.values)
	} else {
		said, err := p.readMessages(newestOf(p.spans), read)
		if err != nil {
			return dst, err
		}
		o = append(append(o.Name("values"), '{').Name("messages"), '[')
		o = append(append(o, bytes.Join(said, []byte{','})...), `]}`...)
		if n := len(p.spans); n > 0 {
			ts, step = p.spans[n-1].ts, int64(n)
		}
	}
	node := quote(cmp.Or(p.graph, "agent"))
	o = p.appendWaiting(o, node, nil)
	o = append(o.Name("checkpoint"), '{').Str("thread_id", p.thread).Str("checkpoint_ns", "").Str("checkpoint_id",
		p.Checkpoint()).End()
	if o = o.Name("parent_checkpoint"); p.checkpoint.parent != "" {
		o = append(o, '{').Str("thread_id", p.thread).Str("checkpoint_ns", "").Str("checkpoint_id", p.checkpoint.parent).End()
	} else {
		o = append(o, `null`...)
	}
	o = append(o.Name("metadata"), '{').Int("step", step).Str("source", cmp.Or(p.checkpoint.source, "loop"))
	if n := len(p.spans) - len(newestOf(p.spans)); n > 0 && p.newest.values == nil {
		o = o.Int("omitted_messages", int64(n))
	}
	o = o.End()
	return o.Raw("created_at", quote(ts)).End(), nil
}

// newestOf returns the newest messages, as many as a state has room for.
func newestOf(spans []contentSpan) []contentSpan {
	from, room := len(spans), maxState
	for from > 0 && room >= 0 {
		from--
		room -= spans[from].size
	}
	if room < 0 && from < len(spans)-1 {
		from++
	}
	return spans[from:]
}

// readMessages reads messages from their records, in one pass where little is between them. Those whose records are not
// kept are left out.
func (p *Projector) readMessages(spans []contentSpan, read Records) (list [][]byte, err error) {
	var parts []contentSpan
	for _, at := range spans {
		for n := len(parts) - 1; n >= 0 && at.start <= parts[n].end+maxGap; n-- {
			at.start = min(at.start, parts[n].start)
			parts = parts[:n]
		}
		parts = append(parts, at)
	}
	found := make(map[schema.Seq][]byte, len(spans))
	for _, at := range spans {
		found[at.start] = nil
	}
	for _, at := range parts {
		if err := p.readPart(at, read, found); err != nil {
			return nil, err
		}
	}
	for _, at := range spans {
		if m := found[at.start]; m != nil {
			list = append(list, m)
		}
	}
	return list, nil
}

// readPart finds messages in a part of the run, by the records with which they begin.
func (p *Projector) readPart(at contentSpan, read Records, found map[schema.Seq][]byte) error {
	q := newProjector(MessagesRequest(p.thread))
	q.thread = p.thread
	var out dialect.Frames
	for r, err := range read(at.start-1, at.end) {
		if err == nil && len(r.Child) == 0 {
			err = q.Project(&out, r)
		}
		if err != nil {
			return err
		}
		for _, f := range out.List {
			n, _ := strconv.ParseInt(string(f.Token), 10, 64) // list wrote it
			if _, wanted := found[schema.Seq(n)]; wanted {
				found[schema.Seq(n)] = bytes.Clone(f.Data)
			}
		}
		out.Reset()
	}
	return nil
}
