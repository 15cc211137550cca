package otlp

import (
	"bytes"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	w3c "agentstream/schema/trace"
)

// Options say what is in spans.
type Options struct {
	Contents bool // what people, models and tools have said
	Pending  bool // a marker when a span begins
	Links    bool // no span of another's is a parent: what a run was begun from is linked to
}

// made is a span that a record has made.
type made struct {
	seq  schema.Seq
	span *tracepb.Span
	use  *chatUse // of a request to a model that has ended; nil of everything else
}

// tracer makes the spans of one run out of its records, in the order of the log.
type tracer struct {
	key     schema.RunKey
	options Options
	run     *assemble.Run
	last    schema.Seq // newest record that was read
	lanes   map[string]*laneSpans

	record schema.Record // at hand
	seq    schema.Seq    // its number
	now    uint64        // its time; where it has none, that of the one before it
	nth    int           // spans that it has begun
	spawns bool          // it announces a child
	begun  []*openSpan
	ends   []*openSpan
	spent  map[*assemble.Message]*chat // what its message.ends have closed: their usage follows
	model  *chat                       // the same, of its model.end
	full   []*chat                     // requests that it has ended

	out  []made // what was made and is not sent
	size int    // bytes of spans that are open, about
}

// laneSpans are the spans of a lane: the run itself or a child.
type laneSpans struct {
	child string
	self  *openSpan // invoke_agent; the newest, also when it has ended
	turn  *openSpan // nil: there is none
	open  map[itemKey]*openSpan
	chats []*chat // that are open
	tasks []itemKey
	heard []chatMessage // with Options.Contents: what was said since the last request to a model
}

// itemKey is what stands for an item while it is open: items are replaced, and this stays.
type itemKey struct {
	kind assemble.Kind
	seq  schema.Seq
	id   string
}

func keyOf(it *assemble.Item) itemKey { return itemKey{it.Kind, it.Seq, it.ID} }

// What is kept of the content of messages, in bytes.
const (
	keptMessage = 256 << 10
	keptRun     = 1 << 20
)

// newTracer returns a tracer of a run that has no records yet.
func newTracer(key schema.RunKey, o Options) *tracer {
	var limits assemble.Limits
	if o.Contents {
		limits = assemble.Limits{Message: keptMessage, All: keptRun}
	}
	return &tracer{key: key, options: o, run: assemble.New(limits), lanes: map[string]*laneSpans{},
		spent: map[*assemble.Message]*chat{}}
}

// next reads the next record of the run. at is the record's time. A record without a payload means nothing.
func (t *tracer) next(r schema.Record, at time.Time) {
	t.record, t.seq, t.nth, t.last, t.model = r, r.Seq, 0, r.Seq, nil
	defer func() { t.record = schema.Record{} }() // its bytes are the caller's
	if !at.IsZero() {
		t.now = unixNano(at)
	}
	t.spawns = string(r.Type) == schema.TypeChildSpawn
	clear(t.spent)
	steps, err := t.run.Next(r)
	if err != nil {
		return
	}
	root := t.lanes[""]
	if root == nil {
		root = t.laneOf("")
		t.beginRun(root, nil)
	}
	for i := range steps {
		t.step(&steps[i])
	}
	t.hear(string(r.Type), string(r.Child))
	if len(t.begun)+len(t.ends) > 0 {
		t.settle()
	}
}

// memory returns about how much memory the tracer holds, in bytes.
func (t *tracer) memory() int {
	n := t.run.Size() + t.size + 512*len(t.lanes) + spanCost*len(t.out)
	for _, l := range t.lanes {
		for i := range l.heard {
			n += len(l.heard[i])
		}
	}
	return n
}

// maxLanes bounds the lanes that are remembered. Those that have ended are forgotten then: what comes of them yet
// hangs on the run.
const maxLanes = 1 << 14

func (t *tracer) laneOf(child string) *laneSpans {
	l := t.lanes[child]
	if l != nil {
		return l
	}
	if len(t.lanes) >= maxLanes {
		for id, old := range t.lanes {
			if id != "" && old.self.ended && len(old.open)+len(old.chats) == 0 && old.turn == nil {
				delete(t.lanes, id)
			}
		}
	}
	l = &laneSpans{child: child, open: map[itemKey]*openSpan{}}
	if root := t.lanes[""]; root != nil {
		l.self = root.self
	}
	t.lanes[child] = l
	return l
}

// step reads one transition.
func (t *tracer) step(s *assemble.Transition) {
	l := t.laneOf(s.Lane.Child)
	switch s.Kind {
	case assemble.ChildBegin:
		t.beginChild(l, s.Lane.Parent)
	case assemble.ChildEnd:
		t.endLane(l, s.Lane.State)
	case assemble.TurnBegin:
		t.beginTurn(l, s.ID)
	case assemble.TurnEnd:
		t.finish(l.turn)
		l.turn = nil
	case assemble.MessageOpen:
		t.openMessage(l, s.Message)
	case assemble.MessageClose:
		t.closeMessage(l, s)
	case assemble.ModelStart:
		t.beginModel(l, s.Item)
	case assemble.ModelEnd:
		t.endModel(l, s)
	case assemble.CallStart, assemble.TaskStart, assemble.InputRequest:
		t.beginItem(l, s.Item)
	case assemble.CallRun:
		t.note(l.open[keyOf(s.Item)], "agentstream.tool.run")
	case assemble.CallEnd, assemble.TaskEnd, assemble.InputAnswer:
		t.endItem(l, s)
	case assemble.StateChange:
		t.changeState(l, s)
	case assemble.UsageAdd:
		t.addUsage(s)
	}
}

// parent returns what the next span of a lane is a part of.
func (l *laneSpans) parent() *openSpan {
	if len(l.tasks) == 1 { // of several that run at a time it is not known
		return l.open[l.tasks[0]]
	}
	if l.turn != nil {
		return l.turn
	}
	return l.self
}

// beginRun begins a trace: with the run, or with what follows up on its end.
func (t *tracer) beginRun(l *laneSpans, before *openSpan) {
	s := t.open(nil, l, "invoke_agent", tracepb.Span_SPAN_KIND_INTERNAL)
	from := t.seq
	if before == nil {
		from = 0
	}
	s.pb.TraceId, s.pb.SpanId = traceID(t.key, from), spanID("run", t.key, from, 0)
	s.add(text("gen_ai.operation.name", "invoke_agent"))
	t.join(s)
	if before != nil {
		s.follow(before)
	}
	l.self = s
}

// remote are the flags of a span whose parent is another system's.
const remote = sampled | 0x200

// join makes a span that begins a trace a part of the trace in which the record at hand was sent. Where nobody keeps
// that trace, or by Options.Links, it only has a link to it.
func (t *tracer) join(s *openSpan) {
	p, ok := w3c.Parse(t.record.Attribute(w3c.Field))
	switch {
	case !ok || bytes.Equal(p.Trace[:], s.pb.TraceId) || bytes.Equal(p.Span[:], s.pb.SpanId): // its own are no remote ones
	case p.IsSampled() && !t.options.Links:
		s.pb.TraceId, s.pb.ParentSpanId, s.pb.Flags = p.Trace[:], p.Span[:], remote
	default:
		s.pb.Links = append(s.pb.Links, &tracepb.Span_Link{TraceId: p.Trace[:], SpanId: p.Span[:],
			Flags: 0x300 | uint32(p.Flags&w3c.Sampled), Attributes: []attribute{text("agentstream.link", "request")}})
	}
}

// beginChild begins what a child does: below the call that has made it, where the record at hand names one.
func (t *tracer) beginChild(l *laneSpans, above string) {
	up := t.laneOf(above)
	parent := up.parent()
	if call, ok := jsonscan.Unquote(t.run.Field("call_id")); ok && t.spawns {
		for key, s := range up.open {
			if key.kind == assemble.CallStart && key.id == call {
				parent = s
			}
		}
	}
	before := l.self
	s := t.open(parent, l, "invoke_agent", tracepb.Span_SPAN_KIND_INTERNAL)
	s.add(text("gen_ai.operation.name", "invoke_agent"))
	if root := t.lanes[""]; before != nil && before != root.self && before.ended {
		s.follow(before)
	}
	l.self = s
}

// follow links a span to the one of the same lane that has ended before it.
func (s *openSpan) follow(before *openSpan) {
	s.pb.Links = append(s.pb.Links, &tracepb.Span_Link{TraceId: before.pb.TraceId, SpanId: before.pb.SpanId,
		Flags: sampled, Attributes: []attribute{text("agentstream.link", "follow_up")}})
}

// endLane ends what a lane does.
func (t *tracer) endLane(l *laneSpans, state schema.RunState) {
	if l.child != "" && l.self == t.lanes[""].self { // it was forgotten
		return
	}
	if state == schema.StateError && !l.self.ended {
		l.self.fail("")
	}
	t.finish(l.self)
}

func (t *tracer) beginTurn(l *laneSpans, id string) {
	s := t.open(l.self, l, "turn", tracepb.Span_SPAN_KIND_INTERNAL)
	s.addText("agentstream.turn.id", id)
	l.turn = s
}

// changeState notes the state of a lane. A final one of the run ends its trace. What begins the run again after that
// begins another.
func (t *tracer) changeState(l *laneSpans, s *assemble.Transition) {
	session := string(t.run.Field("session")) == "true"
	state := s.Lane.State
	if l.child == "" && l.self.ended && !state.Final() && !session {
		t.beginRun(l, l.self)
	}
	if session || l.self.ended {
		return
	}
	attributes := []attribute{text("agentstream.state", string(state))}
	if reason, ok := jsonscan.Unquote(t.run.Field("reason")); ok && t.options.Contents {
		attributes = append(attributes, text("agentstream.reason", clip(reason, maxContent)))
	}
	t.note(l.self, "agentstream.state", attributes...)
	if state.Final() {
		l.self.add(text("agentstream.state", string(state)))
		t.endLane(l, state)
	}
}
