package langgraph

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// The modes of the older API, in which clients stream one run or the runs of a thread.
const (
	modeValues mode = 1 << iota
	modeUpdates
	modeMessages
	modeCustom
	modeTasks
	modeCheckpoints
	modeTools
)

// mode is a set of them.
type mode uint

var modes = map[string]mode{"values": modeValues, "updates": modeUpdates, "messages-tuple": modeMessages,
	"custom": modeCustom,
	"tasks":  modeTasks, "checkpoints": modeCheckpoints, "tools": modeTools,
	// Of a thread's stream.
	"run_modes": modeValues | modeUpdates | modeMessages | modeCustom, "lifecycle": 0, "state_update": modeValues}

// Legacy is what a client of the older API asks for: a stream of a run, or of all runs of a thread.
type Legacy struct {
	Thread, Run string   // Run "": all
	Modes       []string // none: what a client that does not say it may need
	Subgraphs   bool     // namespaces below the root as well
	LastEventID string   // "-1": from the first event on; "": that too for a run, from the newest on for a thread
}

// formLegacy begins Request.Form of a Legacy.
const formLegacy = "legacy "

// Request returns the request. The error wraps dialect.ErrUnprocessable for a mode that there is not, schema.ErrBadID
// or schema.ErrBadCursor.
func (q Legacy) Request() (dialect.Request, error) {
	wants := mode(0)
	if len(q.Modes) > dialect.MaxList {
		return dialect.Request{}, dialect.Refuse(dialect.ErrUnprocessable, "stream_mode has more than %d modes",
			dialect.MaxList)
	}
	for _, name := range q.Modes {
		m, ok := modes[name]
		if !ok {
			return dialect.Request{}, dialect.Refuse(dialect.ErrUnprocessable, "there is no stream mode %s here",
				quoteWord(name))
		}
		wants |= m
	}
	if len(q.Modes) == 0 {
		wants = modes["run_modes"] | modeTools
	}
	req := dialect.Request{Run: q.Thread, Span: q.Run, Stream: StreamName, Detail: dialect.DetailFull,
		Form: formLegacy + strconv.Itoa(int(wants)) + " " + strconv.FormatBool(q.Subgraphs)}
	if err := schema.ValidRunID(q.Thread); err != nil {
		return req, err
	}
	switch q.LastEventID {
	case "":
		req.Newest = q.Run == ""
	case "-1":
	default:
		at, err := ParseEventID(q.Thread, q.LastEventID)
		if err != nil {
			return req, err
		}
		req.Cursor.Place = at
	}
	return req, nil
}

// older is how a Legacy is shown; nil: the request is none.
type older struct {
	wants mode
	deep  bool
}

func olderOf(req dialect.Request) *older {
	form, ok := strings.CutPrefix(req.Form, formLegacy)
	if !ok {
		return nil
	}
	wants, deep, _ := strings.Cut(form, " ")
	n, _ := strconv.Atoi(wants) // Request wrote it
	return &older{mode(n), deep == "true"}
}

// said is an event that is told in the older words. What is told twice is so first without an id, in a form that may
// come again.
type said struct {
	p    *Projector
	from source
	at   dialect.Place
	data jsonscan.Fields
	raw  []byte
}

func (s *said) add(event string, data []byte, id, last bool) {
	out := s.p.rec.out
	name := out.Text([]byte(event))
	for e := range jsonscan.Elements(s.from.namespace) {
		name = out.Text(name, []byte("|"), []byte(strings.NewReplacer("\n", " ", "\r", " ").Replace(text(e))))
	}
	f := dialect.Frame{Event: name, Data: out.Text(data), Slot: s.at.Slot, Last: last}
	if id {
		f.Token = out.Text(appendID(nil, s.p.thread, s.at))
	}
	out.Add(f)
}

// addMode adds an event in a mode, if that is wanted.
func (s *said) addMode(m mode, event string, data []byte) {
	if s.p.older.wants&m != 0 {
		s.add(event, data, true, false)
	}
}

// legacy emits an event in the words of the older API. data is the event's.
func (p *Projector) legacy(c channel, from source, at dialect.Place, data []byte) {
	root := string(from.namespace) == "[]"
	if p.req.Span != "" && p.req.Span != p.run.id || !root && !p.older.deep {
		return
	}
	s := &said{p: p, from: from, at: at, raw: data, data: jsonscan.Fields(nil).Read(data)}
	switch c {
	case lifecycle:
		if root {
			s.lifecycle()
		}
	case messages:
		s.message()
	case tools:
		s.tool()
	case input:
		s.input()
	case values:
		s.addValues()
	case updates:
		node := cmp.Or(text(s.data.Raw("node")), text(from.node), p.graph, "agent")
		s.addMode(modeUpdates, "updates", append(append(append(append(object{'{'}, quote(node)...), ':'),
			orNull(s.data.Raw("values"))...), '}'))
	case checkpoints:
		s.checkpoint()
	case tasks:
		s.addMode(modeTasks, "tasks", data)
	case custom:
		if s.data.Raw("name") == nil {
			data = orNull(s.data.Raw("payload"))
		}
		s.addMode(modeCustom, "custom", data)
	}
}

func orNull(v []byte) []byte {
	if len(v) == 0 {
		return []byte("null")
	}
	return v
}

// lifecycle emits which run has begun, and how it ends: with that a stream of the run ends.
func (s *said) lifecycle() {
	switch event := text(s.data.Raw("event")); event {
	case "running":
		s.add("metadata", object{'{'}.Str("run_id", s.p.run.id).Str("thread_id", s.p.thread).End(), true, false)
	case failed:
		s.add("error", object{'{'}.Str("error", "RunError").Raw("message", s.data.Raw("error")).End(), true,
			s.p.req.Span != "")
	default:
		s.addEnd(statusOf(event))
	}
}

// addEnd adds the end of a run's stream.
func (s *said) addEnd(status string) {
	s.add("end", object{'{'}.Str("run_id", cmp.Or(s.p.req.Span, s.p.run.id)).Str("status", status).End(), true,
		s.p.req.Span != "")
}

// endDropped ends the stream of a run that has not begun and never will.
func (p *Projector) endDropped(run string) {
	if p.rec.out != nil && p.older != nil && p.req.Span == run {
		s := said{p: p, from: source{namespace: []byte("[]")}, at: dialect.Place{Seq: p.rec.seq, Slot: slotLast - 1}}
		s.addEnd(interrupted)
	}
}

// input adds a request for input: updates have it alone, values with all that wait.
func (s *said) input() {
	if s.data.Raw("interrupt_id") == nil {
		return
	}
	one := object{'['}
	one = append(one, '{')
	one = append(one.Raw("id", s.data.Raw("interrupt_id")).Raw("value", s.data.Raw("value")), `}]`...)
	alone := object{'{'}.Raw(interruptsName, one).End()
	both := modeUpdates | modeValues
	if s.p.older.wants&both == both {
		s.add("updates", alone, false, false)
	}
	if s.p.older.wants&modeValues != 0 {
		all := joinLists(s.others([]string{text(s.data.Raw("interrupt_id"))}), one)
		s.add("values", object{'{'}.Raw(interruptsName, all).End(), true, false)
	} else {
		s.addMode(modeUpdates, "updates", alone)
	}
}

func (s *said) checkpoint() {
	at := func(o object, name string, id []byte) object {
		o = append(append(o.Name(name), '{').Name("configurable"), '{').Str("thread_id",
			s.p.thread).Str("checkpoint_ns", s.namespace())
		return o.Raw("checkpoint_id", id).End().End()
	}
	o := at(object{'{'}, "config", s.data.Raw("id"))
	if parent := s.data.Raw("parent_id"); parent != nil {
		o = at(o, "parent_config", parent)
	}
	o = append(o.Name("metadata"), '{').Raw("source", s.data.Raw("source")).Raw("step", s.data.Raw("step")).End()
	s.addMode(modeCheckpoints, "checkpoints", append(o, `,"values":{},"next":[],"tasks":[]}`...))
}

// namespace is that of the event as the older API has it in one text.
func (s *said) namespace() string {
	var segments []string
	for e := range jsonscan.Elements(s.from.namespace) {
		segments = append(segments, text(e))
	}
	return strings.Join(segments, "|")
}

// tuple adds a piece of a message, with where it is from. Pieces of one message add up by its id.
func (s *said) tuple(piece object) {
	o := append(append(object{'['}, piece.End()...), `,{`...)
	o = o.Str("run_id", s.p.run.id).Str("thread_id", s.p.thread).Str("langgraph_node",
		cmp.Or(text(s.from.node), s.p.graph, "agent"))
	s.addMode(modeMessages, "messages", append(o.Str("langgraph_checkpoint_ns", s.namespace()), `,"tags":[]}]`...))
}

// types are those of messages, by role.
var types = map[string]string{"ai": "AIMessageChunk", "human": "human", "system": "system"}

// message emits a piece of a message: text as text where it is the first block, all else as blocks with an index.
func (s *said) message() {
	typ := types[text(s.data.Raw("role"))]
	if typ == "" { // results of tools come as such
		return
	}
	o := object{'{'}.Str("type", typ).Raw("id", s.data.Raw("message_id"))
	index := s.data.Raw("index")
	switch text(s.data.Raw("event")) {
	case "content-block-start":
		if b := jsonscan.Fields(nil).Read(s.data.Raw("content")); text(b.Raw("type")) == "tool_call_chunk" {
			s.tuple(callChunk(o, index, b, []byte(`""`)))
		}
	case "content-block-delta":
		d := jsonscan.Fields(nil).Read(s.data.Raw("delta"))
		switch text(d.Raw("type")) {
		case "text-delta":
			if string(index) == "0" {
				s.tuple(o.Raw("content", d.Raw("text")))
				return
			}
			s.tuple(contentBlock(o, index, object{'{'}.Str("type", "text").Raw("text", d.Raw("text")).End()))
		case "reasoning-delta":
			s.tuple(contentBlock(o, index, object{'{'}.Str("type", "reasoning").Raw("reasoning", d.Raw("reasoning")).End()))
		case "block-delta":
			s.tuple(callChunk(o, index, nil, d.Raw("tail")))
		}
	case "content-block-finish":
		s.finish(o, index)
	case "message-finish", "usage":
		if typ != types["ai"] {
			return
		}
		o = append(o.Str("content", "").OptRaw("usage_metadata", s.data.Raw("usage")).Name("response_metadata"), '{')
		s.tuple(o.OptStr("finish_reason", text(s.data.Raw("reason"))).End())
	}
}

// finish emits what was not emitted of a block when it ends.
func (s *said) finish(o object, index []byte) {
	whole := s.data.Raw("content")
	b := jsonscan.Fields(nil).Read(whole)
	tail := s.data.Raw("tail") // of a call whose arguments have streamed
	switch typ := text(b.Raw("type")); {
	case typ == "tool_call" || typ == "invalid_tool_call":
		if tail == nil {
			if tail = b.Raw("args"); !jsonscan.IsString(tail) {
				tail = quote(string(tail))
			}
			s.tuple(callChunk(o, index, b, tail))
		} else if len(tail) > 2 {
			s.tuple(callChunk(o, index, nil, tail))
		}
	case typ == "text" || s.data.Raw("streamed") != nil:
	default:
		s.tuple(contentBlock(o, index, whole))
	}
}

func contentBlock(o object, index, block []byte) object {
	o = append(o.Name("content"), `[{`...).Raw("index", index)
	return append(o.Members(block, "index"), `}]`...)
}

// callChunk writes a piece of a call. of is the block that says which, nil behind the first piece.
func callChunk(o object, index []byte, of jsonscan.Fields, args []byte) object {
	o = append(o.Str("content", "").Name("tool_call_chunks"), `[{`...).Str("type", "tool_call_chunk").Raw("index",
		index).Raw("args", args)
	if of != nil {
		o = o.Raw("id", of.Raw("id")).Raw("name", of.Raw("name"))
	}
	return append(o, `}]`...)
}

// tool emits what becomes of a call: to those who watch tools, and its result as a message.
func (s *said) tool() {
	event := text(s.data.Raw("event"))
	o := object{'{'}.Raw("toolCallId", s.data.Raw("tool_call_id")).OptRaw("name", s.data.Raw("tool_name"))
	result, status := s.data.Raw("output"), "success"
	switch event {
	case "tool-started":
		o = o.Str("event", "on_tool_start").Raw("input", s.data.Raw("input"))
	case "tool-output-delta":
		o = o.Str("event", "on_tool_event").Raw("data", s.data.Raw("delta"))
	case "tool-finished":
		o = o.Str("event", "on_tool_end").Raw("output", result)
	default:
		result, status = s.data.Raw("message"), "error"
		o = o.Str("event", "on_tool_error").Raw("error", result)
	}
	if event == "tool-started" || event == "tool-output-delta" || s.data.Raw("tool_name") == nil ||
		s.p.older.wants&modeMessages == 0 {
		s.addMode(modeTools, "tools", o.End())
		return
	}
	if s.p.older.wants&modeTools != 0 {
		s.add("tools", o.End(), false, false)
	}
	if !jsonscan.IsString(result) {
		result = quote(string(orNull(result)))
	}
	m := object{'{'}.Str("type", "tool").Str("id", "tool_"+modelRunID(s.p.thread, "", s.p.rec.seq)).Raw("content", result)
	s.tuple(m.Raw("tool_call_id", s.data.Raw("tool_call_id")).Raw("name", s.data.Raw("tool_name")).Str("status", status))
}

// Stretch is a run of LangGraph: a part of its thread.
type Stretch struct {
	ID          string
	First, Last schema.Seq // records; Last 0: it goes on
	Status      string     // pending, running, interrupted, success or error
	Error       string     // of one that failed
}

// maxStretches bounds the runs that are remembered once they have ended. Of more the newest are.
const maxStretches = 1 << 14

// statusOf is the status of a run with a terminal.
func statusOf(terminal string) string {
	switch terminal {
	case completed:
		return "success"
	case failed:
		return "error"
	}
	return interrupted
}

// noteEnd notes the end of a run.
func (p *Projector) noteEnd(id string, first schema.Seq, how, why string) {
	if len(p.over) >= maxStretches {
		p.over = slices.Clone(p.over[maxStretches/4:])
	}
	p.over = append(p.over, Stretch{id, first, p.rec.seq, statusOf(how), why})
}

// Runs returns the runs of LangGraph in their order, those that wait last.
func (p *Projector) Runs() []Stretch {
	list := slices.Clone(p.over)
	if p.run.active {
		status := "running"
		if !p.run.running {
			status = "pending"
		}
		list = append(list, Stretch{ID: p.run.id, First: p.run.begin, Status: status})
	}
	for _, seq := range p.waiting.own {
		list = append(list, Stretch{ID: RunID(p.thread, seq), First: seq, Status: "pending"})
	}
	return list
}

// Find returns a run of LangGraph; ok is false when there is none with the id.
func (p *Projector) Find(run string) (s Stretch, ok bool) {
	list := p.Runs()
	i := slices.IndexFunc(list, func(s Stretch) bool { return s.ID == run })
	if i < 0 {
		return s, false
	}
	return list[i], true
}

// Span finds the run that a request of the older API streams.
func (p *Projector) Span(req dialect.Request) dialect.Span {
	s, _ := p.Find(req.Span)
	return dialect.Span{Number: 1, First: s.First, Last: s.Last}
}
