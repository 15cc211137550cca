package metis

import (
	"bytes"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// Projector reads the records of one run, all of them in order, and makes the events of one session under one filter.
// Its request is one of Subscribe.Request, EventsRequest or MessagesRequest.
type Projector struct {
	story
	req dialect.Request
	rec record // the one at hand

	frame dialect.Frame   // the event at hand
	buf   jsonscan.Object // its JSON
}

var _ dialect.Stateful = (*Projector)(nil)

// limits bounds what is kept of the content of messages, for those that end without it and for snapshots. A client
// replaces what it was streamed by the final content (catalog §3.3), so what a person reads must be in it.
var limits = assemble.Limits{Message: 8 << 20, All: 16 << 20}

// record is the record at hand with what is needed of it.
type record struct {
	seq     schema.Seq
	typ     []byte
	ts      []byte
	payload []byte
	actor   string
	slot    int    // of the next event, at least
	name    string // of an event of no family
	over    bool   // it ends its lane, or the run
	input   []byte // of the block that begins or ends with it
	call    string // id of the call that the block asks for, of one that begins with it
	listed  int    // messages
	out     *dialect.Frames
}

func newProjector(req dialect.Request) *Projector {
	return &Projector{story: story{reading: assemble.New(limits)}, req: req}
}

// For returns a copy for a request, or for nobody in particular when it is zero.
func (p *Projector) For(req dialect.Request) dialect.Stateful {
	return &Projector{story: p.story.clone(), req: req}
}

// Size is about what is remembered, in bytes.
func (p *Projector) Size() int { return p.story.size() }

// Admit refuses a session that is deleted or unknown, and a cursor of another session.
func (p *Projector) Admit(req dialect.Request) error {
	if p.deleted || req.Child != "" && p.sessions[req.Child] == nil {
		return Refuse(CodeSessionNotFound, "there is no such session")
	}
	if c := req.Cursor; c.Place.Seq > 0 && c.ID != EventID(p.run, c.Place) {
		return Refuse(CodeCursorExpired, "since is not an event of this session")
	}
	return nil
}

// Project appends the frames of the next record: {"type":"event","event":{…}}, one for each event. The Token of a frame
// is its event's id. A payload that does not fit its type is passed over: the log is older than its readers.
func (p *Projector) Project(out *dialect.Frames, r schema.Record) error {
	steps, err := p.reading.Next(r)
	if err != nil {
		return err
	}
	head := p.reading.Head()
	_, ts, run := r.Envelope()
	p.rec = record{seq: r.Seq, typ: r.Type, ts: ts, payload: head.Payload, actor: head.Actor, out: out}
	if p.run == "" {
		p.noteFirst(string(run))
	}
	p.last = r.Seq
	if p.is(schema.TypeRunLifecycle) {
		p.rec.over = schema.RunState(text(p.field("state"))).Final()
	}
	if p.is(schema.TypeTurnEnd) {
		p.cutOff(string(r.Child))
	}
	for i := range steps {
		p.step(&steps[i])
	}
	if f := others[string(r.Type)]; f != nil {
		f(p, p.of(string(r.Child)))
	} else if bytes.HasPrefix(r.Type, []byte(customPrefix)) {
		p.custom(p.of(string(r.Child)))
	}
	p.rec = record{}
	return nil
}

// Types that the schema has no names for.
const (
	customPrefix = "custom."
	typeCancel   = "command.cancel"
	typeAnswer   = "command.answer"
)

// others are the types that mean something which assemble does not read.
var others = map[string]func(*Projector, *session){
	schema.TypeCommandMessage:  (*Projector).message,
	typeCancel:                 (*Projector).cancel,
	typeAnswer:                 (*Projector).answer,
	schema.TypeCommandsTaken:   (*Projector).readTaken,
	schema.TypeToolOutputDelta: (*Projector).noteRunning,
	schema.TypeSessionCreated:  (*Projector).describe,
	schema.TypeSessionUpdated:  (*Projector).describe,
	schema.TypeSessionDeleted:  (*Projector).describe,
	schema.TypeLoss:            (*Projector).loss,
}

// is reports whether the record at hand is of a type.
func (p *Projector) is(typ string) bool { return string(p.rec.typ) == typ }

// field returns a field of the payload at hand, nil when there is none.
func (p *Projector) field(name string) []byte { return p.reading.Field(name) }

func (p *Projector) step(t *assemble.Transition) {
	switch t.Kind {
	case assemble.ChildBegin:
		p.addWorker(t)
		return
	case assemble.TurnEnd, assemble.ModelEnd, assemble.CallEnd, assemble.InputAnswer, assemble.ChildEnd:
		if p.rec.over { // all that ends with a lane ends in the order of this protocol: ends
			return
		}
	}
	s := p.of(t.Lane.Child)
	switch t.Kind {
	case assemble.TurnBegin:
		if !t.Repaired { // else its end is all that there is
			p.turnBegins(s)
		}
	case assemble.TurnEnd:
		p.turnEnds(s, t.Repaired)
	case assemble.MessageOpen:
		p.messageOpens(s, t)
	case assemble.MessageClose:
		p.messageCloses(s, t)
	case assemble.BlockOpen, assemble.BlockText, assemble.BlockInput, assemble.BlockSignature, assemble.BlockEnd, assemble.BlockClose:
		p.block(s, t)
	case assemble.ModelStart:
		p.modelStarts(s, t.Item)
	case assemble.ModelEnd:
		p.modelEnds(s, t)
	case assemble.CallAsk, assemble.CallStart:
		p.callBegins(s, t)
	case assemble.CallRun:
		if c := s.find(t.Item.ID); c != nil {
			p.dispatch(s, c)
		}
	case assemble.CallEnd:
		p.callEnds(s, t)
	case assemble.InputRequest:
		p.readRequest(s, t.Item)
	case assemble.InputAnswer:
		p.readAnswer(s, t)
	case assemble.ChildEnd: // too many are known
		p.endSession(s, schema.StateError)
	case assemble.StateChange:
		p.readState(s, t)
	}
}

// slots is how far apart the kinds of one record's events are, as long as they come in the order of their kinds.
const slots = 256

// beginEvent begins an event of a session and reports whether the payload is to be written, into p.buf, and
// endEvent to be called. turn is the seq of its turn, 0 for none, and parent its cause. Every event takes a
// slot and counts, shown or not. The slots do not depend on what else is known of the run, as a rule, so that
// ids stay when the run's beginning goes.
func (p *Projector) beginEvent(s *session, k kind, a actor, turn schema.Seq, parent dialect.Place) (at dialect.Place,
	shown bool) {
	if s.child != "" {
		a = worker
	}
	at = dialect.Place{Seq: p.rec.seq, Slot: max(p.rec.slot, slots*int(min(k, published)))}
	if k == own {
		at.Slot = max(p.rec.slot, slots*int(published))
	}
	if at.Slot > dialect.MaxSlot { // of thousands that end with one record
		return at, false
	}
	p.rec.slot = at.Slot + 1
	s.newest, p.newest = at, at
	s.tally.add(k, a)
	if s.child != "" {
		p.workers.add(k, a)
	}
	if p.rec.out == nil || p.req.Form != formEvents || p.req.Child != "" && !s.within(p.req.Child) {
		return at, false
	}
	p.frame = dialect.Frame{Slot: at.Slot, Lane: s.path, Kind: int(k)<<3 | int(a), Last: k == sessionEnded &&
		p.req.Child == s.child && s.child != ""}
	b := append(p.buf[:0], `{"type":"event","event":{"id":"`...)
	b = appendID(b, eventPrefix, p.run, at)
	b = p.appendTime(append(b, `","timestamp":"`...))
	b = append(append(b, `","session_id":"`...), s.id(p.run)...)
	if b = append(b, `","turn_id":`...); turn == 0 {
		b = append(b, `null`...)
	} else {
		b = append(appendID(append(b, '"'), turnPrefix, p.run, dialect.Place{Seq: turn}), '"')
	}
	if b = append(b, `,"parent_event_id":`...); parent.Seq == 0 {
		b = append(b, `null`...)
	} else {
		b = append(appendID(append(b, '"'), eventPrefix, p.run, parent), '"')
	}
	name := catalogue[k].name
	if k == own {
		name = p.rec.name
	}
	b = append(append(b, `,"type":"`...), name...)
	b = append(append(b, `","actor":"`...), actors[a]...)
	p.buf = append(b, `","payload":{`...)
	return at, true
}

// Where an event's object begins in a frame, and where its id.
const (
	eventAt = len(`{"type":"event","event":`)
	idAt    = len(`{"type":"event","event":{"id":"`)
	idLen   = len(eventPrefix) + 20
)

// endEvent ends the event that beginEvent has begun.
func (p *Projector) endEvent() { p.raw(append(p.buf, '}')) }

// raw ends an event whose payload is complete.
func (p *Projector) raw(b jsonscan.Object) {
	k := p.frame.Kind >> 3
	p.buf = append(append(append(b, `,"sensitivity":"`...), catalogue[k].floor...), `"}}`...)
	p.frame.Data = p.rec.out.Text(p.buf)
	p.frame.Token = p.frame.Data[idAt : idAt+idLen : idAt+idLen]
	p.rec.out.Add(p.frame)
}

// EventOf returns the event of a frame that Project has made.
func EventOf(frame []byte) []byte { return frame[eventAt : len(frame)-1] }

// appendTime appends the record's time.
func (p *Projector) appendTime(b []byte) []byte { return appendMicros(b, p.rec.ts) }

// appendMicros appends a time of the log in UTC with microseconds.
func appendMicros(b, ts []byte) []byte {
	if len(ts) == len("2006-01-02T15:04:05.000Z") && ts[23] == 'Z' && ts[19] == '.' {
		return append(append(b, ts[:23]...), `000Z`...)
	}
	t, err := time.Parse(time.RFC3339Nano, string(ts))
	if err != nil {
		return append(b, ts...)
	}
	return t.UTC().AppendFormat(b, microLayout)
}

const microLayout = "2006-01-02T15:04:05.000000Z07:00"

// tally counts events by type and actor.
type tally []count

type count struct {
	k kind
	a actor
	n int64
}

func (t *tally) add(k kind, a actor) {
	for i := range *t {
		if c := &(*t)[i]; c.k == k && c.a == a {
			c.n++
			return
		}
	}
	*t = append(*t, count{k, a, 1})
}

// countShown counts the events that a selection shows.
func (t tally) countShown(by *selection) (n int64) {
	for _, c := range t {
		if by.has(c.k, c.a) {
			n += c.n
		}
	}
	return n
}

// Count returns how many events of those so far the projector's request shows. The difference of two states of a run is
// the number of events between them.
func (p *Projector) Count() (n int64) {
	by, ok := p.req.Select.(*selection)
	if !ok {
		return 0
	}
	for _, s := range p.sessions {
		if child := p.req.Child; s.child == child || by.workers && child != "" && s.within(child) {
			n += s.tally.countShown(by)
		}
	}
	if by.workers && p.req.Child == "" {
		n += p.workers.countShown(by)
	}
	return n
}

// CountThrough returns what Count would be behind the event at a slot of the next record, which is given to the
// projector.
func (p *Projector) CountThrough(r schema.Record, slot int) (int64, error) {
	var frames dialect.Frames
	if err := p.Project(&frames, r); err != nil {
		return 0, err
	}
	n := p.Count()
	for i := range frames.List {
		if f := &frames.List[i]; f.Slot > slot && p.req.Select.Match(f) {
			n--
		}
	}
	return n, nil
}
