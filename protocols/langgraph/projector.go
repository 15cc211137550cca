package langgraph

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// Projector reads the records of one run, all of them in order, and makes the events of the thread that it is. Its
// request is one of Subscribe.Request or MessagesRequest.
type Projector struct {
	story
	req   dialect.Request
	older *older // how the events of a request of the older API are written; nil: it is of the protocol
	rec   record // the one at hand
	buf   []byte // the data of the frame at hand
}

var (
	_ dialect.Stateful = (*Projector)(nil)
	_ dialect.Opener   = (*Projector)(nil)
	_ dialect.Spanner  = (*Projector)(nil)
)

// limits bounds what is kept of open messages: the text of each block and of all, for their finishes.
var limits = assemble.Limits{Message: 384 << 10, All: 4 << 20, Text: 256 << 10, Texts: 4 << 20}

// story is what is known of the thread.
type story struct {
	reading *assemble.Run
	thread  string
	lanes   map[string]*lane
	spaces  map[string]string // child of each namespace, JSON
	by      *atomic.Bool      // of those that may be changed; set when a copy shares lanes and spaces
	turns
	state
}

// lane is what the protocol knows of the run itself or of a child.
type lane struct {
	child     string
	segments  []string     // its namespace
	namespace []byte       // the same, JSON
	call      string       // id of the call that has spawned it
	silent    bool         // its agent says itself what becomes of its namespaces
	open      *openMessage // the lane's open message
	by        *atomic.Bool
}

// record is the record at hand with what is needed of it.
type record struct {
	seq     schema.Seq
	typ     []byte
	ts      string
	child   string
	payload []byte
	slot    int // of the next frame, at least
	whole   *openMessage
	input   []byte // of the call that ends with it
	own     []byte // see ownOf
	kept    int    // messages and results for MessagesRequest
	out     *dialect.Frames
}

func newProjector(req dialect.Request) *Projector {
	p := &Projector{story: story{reading: assemble.New(limits), lanes: map[string]*lane{}, spaces: map[string]string{},
		by: new(atomic.Bool)},
		req: req, older: olderOf(req)}
	p.lanes[""] = &lane{namespace: []byte("[]"), by: p.by}
	p.noteNamespace(p.lanes[""])
	return p
}

// For returns a copy for a request, or for nobody in particular when it is zero.
func (p *Projector) For(req dialect.Request) dialect.Stateful {
	p.by.Store(true)
	c := &Projector{story: p.story, req: req, older: olderOf(req)}
	c.reading = p.reading.Clone()
	c.turns, c.state = p.turns.clone(), p.state.clone()
	return c
}

// Size is about what is remembered, in bytes.
func (p *Projector) Size() int {
	return p.reading.Size() + 512*len(p.lanes) + p.turns.size() + p.state.size()
}

// Admit takes every request for a thread that was not deleted: it is there as soon as it has a record, and its cursors
// were read with its id.
func (p *Projector) Admit(dialect.Request) error {
	if p.deleted {
		return dialect.Refuse(dialect.ErrNotFound, "the thread was deleted")
	}
	return nil
}

// lane returns a lane that may be changed.
func (p *Projector) lane(child string) *lane {
	if p.by.Load() {
		p.lanes, p.spaces, p.by = maps.Clone(p.lanes), maps.Clone(p.spaces), new(atomic.Bool)
	}
	l := p.lanes[child]
	if l == nil { // it was forgotten
		l = p.below(child, "", "", "")
	}
	if l.by != p.by {
		c := *l
		c.by = p.by
		if l.open != nil {
			c.open = l.open.clone()
		}
		l = &c
		p.lanes[child] = l
	}
	return l
}

// below adds a lane below another one. The segment of a child of a call is tools:CALL. That of another one is its id,
// behind its name where it has one.
func (p *Projector) below(child, parent, call, name string) *lane {
	up := p.lanes[parent]
	if up == nil {
		up = p.lanes[""]
	}
	segment := child
	if call != "" {
		segment = "tools:" + segmentOf(call)
	} else if name != "" {
		segment = strings.ReplaceAll(segmentOf(name), ":", "_") + ":" + child
	}
	segments := append(up.segments[:len(up.segments):len(up.segments)], segment)
	other := p.lanes[p.spaces[string(namespaceOf(segments))]]
	if call != "" && other != nil && other.call == call { // a second one of the call
		segments[len(segments)-1] += "-" + child
	}
	l := &lane{child: strings.Clone(child), segments: segments, namespace: namespaceOf(segments), call: call, by: p.by}
	p.lanes[l.child] = l
	p.noteNamespace(l)
	return l
}

// noteNamespace notes which lane has a namespace: the first that it was given to.
func (p *Projector) noteNamespace(l *lane) {
	space := string(l.namespace)
	if _, taken := p.spaces[space]; !taken {
		p.spaces[space] = l.child
	}
}

// forget lets go of a lane.
func (p *Projector) forget(l *lane) {
	p.unname(l)
	delete(p.lanes, l.child)
}

func (p *Projector) unname(l *lane) {
	if space := string(l.namespace); p.spaces[space] == l.child {
		delete(p.spaces, space)
	}
}

func namespaceOf(segments []string) []byte {
	o := object{'['}
	for i, s := range segments {
		if i > 0 {
			o = append(o, ',')
		}
		o = jsonscan.AppendString(o, s)
	}
	return append(o, ']')
}

// Project appends the frames of the next record. The Token of a frame is its event_id. A payload that does not fit its
// type is passed over: the log is older than its readers.
func (p *Projector) Project(out *dialect.Frames, r schema.Record) error {
	if r.Seq > MaxNumber>>slotBits {
		return fmt.Errorf("seq %d has no number in this protocol: %w", r.Seq, schema.ErrMalformed)
	}
	steps, err := p.reading.Next(r)
	if err != nil {
		return err
	}
	_, ts, run := r.Envelope()
	p.rec = record{seq: r.Seq, typ: r.Type, ts: string(ts), child: string(r.Child), payload: p.reading.Head().Payload,
		out: out}
	if p.thread == "" {
		p.thread = string(run)
	}
	p.rec.own = p.ownOf()
	p.readCommand()
	for i := range steps {
		p.step(&steps[i])
	}
	for _, q := range p.reading.AsksWithoutAnswer() {
		p.requests.Delete(requestKey{q.Child, q.Request})
	}
	if f := others[string(r.Type)]; f != nil {
		f(p)
	} else if name, ok := bytes.CutPrefix(r.Type, []byte("custom.")); ok {
		p.showCustom(string(name))
	}
	p.settle()
	p.rec = record{}
	return nil
}

// others are the types of which not all is in the transitions.
var others = map[string]func(*Projector){
	schema.TypeCommandMessage:  (*Projector).human,
	schema.TypeCommandsTaken:   (*Projector).readTaken,
	schema.TypeToolOutputDelta: (*Projector).outputs,
	schema.TypeDataDelta:       (*Projector).media,
	schema.TypeStateValues:     (*Projector).showValues,
	schema.TypeStateUpdate:     (*Projector).showUpdate,
	schema.TypeCheckpoint:      (*Projector).showCheckpoint,
	schema.TypeStepBoundary:    (*Projector).showStep,
	schema.TypeProgress:        (*Projector).showOwn,
	schema.TypePlanProposal:    (*Projector).showOwn,
	schema.TypeLoss:            (*Projector).showOwn,
	schema.TypeSessionCreated:  (*Projector).readSession,
	schema.TypeSessionUpdated:  (*Projector).readSession,
	schema.TypeSessionDeleted:  (*Projector).noteRemoval,
}

// is reports whether the record at hand is of a type.
func (p *Projector) is(typ string) bool { return string(p.rec.typ) == typ }

// field returns a field of the payload at hand, nil when there is none.
func (p *Projector) field(name string) []byte { return p.reading.Field(name) }

// The slots of a record begin with what it ends or begins without saying so, so that those of what it says do not
// depend on what else is known of the run, as a rule. The last slot is that of the root's terminal alone.
const (
	slotEnds   = 0
	slotBegins = 1 << 13
	slotSays   = 1 << 14
	slotLast   = dialect.MaxSlot
)

// isWanted reports whether frames of events are to be written.
func (p *Projector) isWanted() bool { return p.rec.out != nil && p.req.Form != formMessages }

// at takes the next slot from one on. ok is false for one of thousands of frames of one record: see the dialect's page.
func (p *Projector) at(slot int) (at dialect.Place, ok bool) {
	at = dialect.Place{Seq: p.rec.seq, Slot: max(p.rec.slot, slot)}
	if at.Slot >= slotLast && slot != slotLast {
		return at, false
	}
	p.rec.slot = at.Slot + 1
	return at, true
}

// source is where a frame is from: its namespace and its node.
type source struct {
	lane      []byte // as laneOf writes it
	namespace []byte // JSON
	node      []byte // a JSON string; nil when it has none
}

// from returns the source of the record at hand: its lane's, unless the payload has a namespace and a node of its own,
// as that of a LangGraph agent has.
func (p *Projector) from(l *lane) source {
	s := source{laneOf(nil, l.segments), l.namespace, nil}
	if v := p.field("node"); jsonscan.IsString(v) {
		s.node = bytes.Clone(v)
	}
	if v := p.field("namespace"); len(v) > 1 && v[0] == '[' {
		var segments []string
		for e := range jsonscan.Elements(v) {
			if !jsonscan.IsString(e) {
				return s
			}
			segments = append(segments, segmentOf(text(e)))
		}
		s.lane, s.namespace = laneOf(nil, segments), namespaceOf(segments)
	}
	return s
}

// emit adds a frame whose data is given. Every frame takes its slot, shown or not.
func (p *Projector) emit(c channel, method string, s source, slot int, data func(object) object) {
	at, ok := p.at(slot)
	own := p.own(slot)
	if !ok || !p.isWanted() {
		return
	}
	p.addFrame(c, method, s, at, func(o object) object {
		if own != nil {
			return append(o, own...)
		}
		return data(append(o, '{')).End()
	})
}

// addFrame adds the frame of an event whose data a function writes, or what it is in the words of the older
// API.
func (p *Projector) addFrame(c channel, method string, s source, at dialect.Place, data func(object) object) {
	if p.older != nil {
		p.legacy(c, s, at, data(nil))
		return
	}
	p.rec.out.Add(p.frame(p.rec.out, c, method, s, at, data))
}

// frame writes the envelope of an event, and its data by a function.
func (p *Projector) frame(out *dialect.Frames, c channel, method string, s source, at dialect.Place,
	data func(object) object) dialect.Frame {
	b := append(p.buf[:0], `{"type":"event","event_id":"`...)
	from := len(b)
	if c == lifecycle && len(s.lane) == 0 {
		b = append(append(append(b, synth...), p.run.id...), ':')
	}
	b = appendID(b, p.thread, at)
	through := len(b)
	b = strconv.AppendInt(append(b, `","seq":`...), Number(at), 10)
	o := object(b).OptStr("run_id", p.run.id).Name("method")
	named := len(o) + 1
	o = jsonscan.AppendString(o, method)
	o = append(o.Name("params"), '{').Raw("namespace", s.namespace).Int("timestamp", millis(p.rec.ts)).OptRaw("node",
		s.node)
	o = data(o.Name("data"))
	p.buf = append(o, `}}`...)
	f := dialect.Frame{Data: out.Text(p.buf), Slot: at.Slot, Lane: s.lane, Kind: int(c)}
	f.Token = f.Data[from:through:through]
	f.Event = f.Data[named : named+len(method) : named+len(method)]
	return f
}

// millis returns a time of the log in milliseconds since the epoch.
func millis(ts string) int64 {
	t, err := time.Parse(time.RFC3339Nano, ts)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

func (p *Projector) step(t *assemble.Transition) {
	switch t.Kind {
	case assemble.ChildBegin:
		p.childBegins(t)
		return
	case assemble.ChildEnd:
		p.childEnds(t)
		return
	case assemble.StateChange:
		p.readState(t)
		return
	case assemble.TurnEnd:
		p.turnEnds(t)
		return
	}
	if !t.Repaired || t.Kind == assemble.MessageOpen {
		p.noteWork(t)
	}
	l := p.lane(t.Lane.Child)
	switch t.Kind {
	case assemble.TurnBegin:
		if t.Lane.Child == "" {
			p.run.over, p.run.stop, p.run.reason = false, "", ""
		}
	case assemble.MessageOpen:
		p.messageOpens(l, t)
	case assemble.BlockOpen, assemble.BlockText, assemble.BlockPart, assemble.BlockInput, assemble.BlockCitations, assemble.BlockSignature,
		assemble.BlockEnd, assemble.BlockClose:
		if m := p.message(l); m != nil {
			p.block(m, t)
		}
	case assemble.MessageClose:
		p.messageCloses(l, t)
	case assemble.CallStart:
		p.callStarts(l, t)
	case assemble.CallEnd:
		p.callEnds(l, t)
	case assemble.TaskStart, assemble.TaskEnd:
		p.task(l, t)
	case assemble.InputRequest:
		p.showRequest(l, t)
	case assemble.InputAnswer:
		p.showAnswer(l, t)
	}
}

// slotOf is where the slots of a transition begin: begins and ends that no record has come first.
func slotOf(t *assemble.Transition, repaired int) int {
	if t.Repaired {
		return repaired
	}
	return slotSays
}
