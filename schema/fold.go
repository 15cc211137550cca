package schema

import (
	"strings"

	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// Fold sums a run's events up: lifecycle, plan, messages with their blocks, tool calls, children,
// usage, requests for input, commands that wait. Feed it every event in order with Add or AddRecord;
// AppendSnapshot writes what it holds. The zero value is ready. It is a pure state machine; one
// goroutine at a time. What its fields point at belongs to the fold and must not be changed.
//
// Merged deltas (those with a first_seq) result in the same fold as their members. Producers that emit
// only the eight native types frame no messages; for them a message begins with its first delta, a
// block with a change of kind or a tool call, and both end with the step, or what else is a border (IsBorder).
//
// The rules, which clients in other languages follow to the letter, are in
// contracts/snapshot.schema.json. Strings are decoded; a surrogate without its other half, which JSON
// can write and UTF-8 cannot, is kept as three bytes, so that it is written as it came.
type Fold struct {
	Run  string // root run, of the first event
	Last Seq

	State    RunState // of the root; "" before the first run.lifecycle
	Reason   string
	StateSeq Seq    // seq of the event that set State
	StateTS  string // its time
	Gate     string // planning_gate of the run: required, preview or ""

	Plan     *FoldPlan // last plan.proposal; nil when there was none
	Messages []*FoldMessage
	Calls    []*FoldCall
	Children []*FoldChild // in the order in which they became known; a parent stands before its children
	Inputs   []*FoldInput
	Usage    FoldUsage
	Session  []byte // of MergeSession: title, tags, metadata and more; nil when nothing is said of the run

	commands []*FoldCommand // some may be settled
	settled  int
	lanes    map[string]*foldLane
	talking  ordered.Map[*foldLane, struct{}]     // lanes with an open message
	starts   ordered.Map[*foldLane, *FoldMessage] // message.starts of ended ids: repeats, unless something comes
	inputs   map[laneKey]*FoldInput               // newest of each lane and id
	named    map[string]*FoldInput                // newest of each id, in whatever lane
	waits    Waits
	lane     *foldLane // of the last event
	id, ts   []byte    // of the last event
	size     int
	light    bool
	fields   jsonscan.Fields // of the payload at hand; reused
}

// foldLane is what Add needs to know of the root or of one child.
type foldLane struct {
	child   *FoldChild // nil for the root
	open    *FoldMessage
	named   map[string]*FoldMessage // newest of each id, but of what people write
	calls   map[string]*FoldCall    // newest of each id
	asked   map[string]asking       // by the id of the call
	heard   Seq                     // where a person has said something, the newest
	turn    Seq                     // newest turn.start
	final   Seq                     // newest final state
	waiting [commandKinds][]*FoldCommand
}

// reuseSeq returns where ids of a lane may be used again: where a person has said something, a turn has
// started, or the lane's state has changed. What has ended since and begins once more is a repeat.
func (f *Fold) reuseSeq(l *foldLane) Seq {
	state, since := f.State, f.StateSeq
	if l.child != nil {
		state, since = l.child.State, l.child.StateSeq
	}
	if state.Final() {
		since = 0
	}
	return max(l.heard, l.turn, since)
}

func (l *foldLane) id() string {
	if l.child == nil {
		return ""
	}
	return l.child.ID
}

// FoldChild is one child, of the run or of another child.
type FoldChild struct {
	ID       string
	Parent   string // child that spawned it; "" is the run itself
	Prompt   string
	Tools    []byte // tools_allowed as it came; nil when absent
	Spawned  Seq    // 0: it was never announced
	State    RunState
	Reason   string
	StateSeq Seq
}

// LastID returns the id of the last event.
func (f *Fold) LastID() string { return string(f.id) }

// LastTS returns the time of the last event.
func (f *Fold) LastTS() string { return string(f.ts) }

// Size returns an estimate of the memory that the fold holds, and of the length of its snapshot, in bytes.
func (f *Fold) Size() int { return f.size }

// foldEvent is an event as the fold reads it.
type foldEvent struct {
	typ     string
	seq     Seq
	first   Seq
	actor   string
	lane    *foldLane
	payload []byte
	call    string // that its question, or its start or end of a call, is about
	asked   bool   // it is a new question
	ended   []Ask  // questions that it has ended
}

// Add takes the next event. Events that do not change a fold only move Last. A payload that does not fit its type is
// passed over: the log is older than any reader's opinion of it. Payloads must be valid JSON.
func (f *Fold) Add(e *Event) {
	if f.Run == "" {
		f.Run = e.RunID
	}
	f.Last = e.Seq
	f.id, f.ts = append(f.id[:0], e.ID...), append(f.ts[:0], e.TS...)
	l := f.laneOf([]byte(e.ChildID))
	if l == nil {
		l = f.meet(e.ChildID, e.Path)
	}
	f.apply(&foldEvent{typ: e.Type, seq: e.Seq, first: e.First(), actor: e.Actor, lane: l, payload: e.Payload})
}

// AddRecord is Add for a line of the log or of a native view. It decodes no more than it needs and
// keeps none of the record's bytes. A run.snapshot of a view replaces what the fold holds; when that
// cannot be read it is passed over.
func (f *Fold) AddRecord(r Record) {
	id, ts, run := r.envelope()
	if f.Run == "" {
		f.Run = string(run)
	}
	f.Last = r.Seq
	f.id, f.ts = append(f.id[:0], id...), append(f.ts[:0], ts...)
	l := f.laneOf(r.Child)
	if l == nil {
		l = f.meet(string(r.Child), pathOf(r.Attributes()))
	}
	i, ok := catalogueIndex[string(r.Type)]
	if !ok {
		f.takeView(r)
		return
	}
	ev := foldEvent{typ: catalogue[i].Name, seq: r.Seq, first: r.First(), lane: l, payload: r.Payload()}
	if catalogue[i].Family == FamilyCommand || catalogue[i].Name == TypeMessageEnd {
		ev.actor = attribute(r.Attributes(), "actor")
	}
	f.apply(&ev)
}

// takeView reads the types that exist in views alone.
func (f *Fold) takeView(r Record) {
	switch string(r.Type) {
	case "delta.bundle":
		f.bundle(r)
	case "run.snapshot":
		if g, err := ParseSnapshot(r.Payload()); err == nil {
			g.Last = r.Seq
			*f = *g
		}
	}
}

// bundle reads deltas of several lanes that a view sends as one event.
func (f *Fold) bundle(r Record) {
	list := f.fields.Read(r.Payload())
	for part := range jsonscan.Elements(list.Array("deltas")) {
		p := jsonscan.Fields(nil).Read(part)
		l := f.laneOf([]byte(p.Str("child_id")))
		if l == nil {
			l = f.meet(p.Str("child_id"), ReadPath(p.Raw("path")))
		}
		f.apply(&foldEvent{typ: p.Str("type"), seq: r.Seq, first: r.First(), lane: l, payload: p.Raw("payload")})
	}
}

// apply adds an event to the fold.
func (f *Fold) apply(ev *foldEvent) {
	switch ev.typ { // nearly all events; they neither ask nor end anything
	case TypeTextDelta, TypeReasoningDelta, TypeToolInputDelta:
		if !f.light {
			f.applyText(ev)
		}
		return
	}
	light := f.light && heavy(ev.typ)
	asks := isOfAsks(ev.typ)
	if light && !asks {
		return
	}
	p := f.read(ev)
	if p == nil {
		return
	}
	if ev.typ == TypeTurnStart {
		ev.lane.turn = ev.seq
	}
	if asks {
		f.ask(ev, p)
	}
	if light {
		return
	}
	if IsBorder(ev.typ) {
		f.endImplicit(ev.lane, ev.seq)
	}
	switch ev.typ {
	case TypeDataDelta:
		f.data(ev, p)
	case TypeToolStart, TypeToolRun, TypeToolEnd, TypeToolOutputDelta:
		f.tool(ev, p)
	case TypeMessageStart:
		f.startMessage(ev, p)
	case TypeMessageEnd:
		f.endMessage(ev, p)
	case TypeBlockStart:
		f.startBlock(ev, p)
	case TypeBlockEnd:
		f.endBlock(ev, p)
	case TypeChildSpawn:
		f.spawn(ev, p)
	case TypePlanProposal:
		f.propose(ev, p)
	case TypeRunLifecycle:
		f.lifecycle(ev, p)
		f.forgetStart(ev.lane)
	case TypeInputRequested:
		f.request(ev, p)
	case TypeInputAnswered:
		f.applyAnswer(ev, p)
	case TypeSessionCreated, TypeSessionUpdated, TypeSessionArchived, TypeSessionDeleted:
		f.describe(ev)
	default:
		if kind, ok := commandKindOf(ev.typ); ok {
			f.command(ev, kind, p)
		}
	}
}

// read returns the fields of an event's payload, nil where it is no object. They are used until the next event.
func (f *Fold) read(ev *foldEvent) jsonscan.Fields {
	if len(ev.payload) == 0 {
		ev.payload = []byte("{}")
	}
	p := f.fields.Read(ev.payload)
	if p != nil {
		f.fields = p
	}
	return p
}

// applyText adds a delta of a text to its block.
func (f *Fold) applyText(ev *foldEvent) {
	p := f.read(ev)
	if p == nil {
		return
	}
	switch ev.typ {
	case TypeTextDelta:
		f.write(f.block(ev, "text", p).appendText(p))
	case TypeReasoningDelta:
		f.write(f.block(ev, "reasoning", p).appendText(p))
	default:
		f.write(f.inputBlock(ev, p).appendText(p))
	}
}

// Costs of what a fold holds, beside its text: its structures, and what the snapshot writes around
// the values.
const (
	messageCost = 400
	blockCost   = 250
	otherCost   = 300
)

func (f *Fold) write(n int) { f.size += n }

// keep copies a part of a payload.
func (f *Fold) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	f.size += len(b)
	return append([]byte(nil), b...)
}

// word keeps a decoded string.
func (f *Fold) word(s string) string {
	f.size += len(s)
	return s
}

// laneOf finds the lane of an event; nil when it is not known yet.
func (f *Fold) laneOf(child []byte) *foldLane {
	if l := f.lane; l != nil && l.id() == string(child) {
		return l
	}
	l := f.lanes[string(child)]
	if l != nil {
		f.lane = l
	}
	return l
}

// meet makes a lane known that has not been announced. Its ancestors are in its path, from the root
// to itself.
func (f *Fold) meet(child string, path []string) *foldLane {
	if child == "" {
		return f.newLane("", nil)
	}
	parent := ""
	if n := len(path); n > 1 && path[n-1] == child {
		for _, id := range path[1 : n-1] {
			if f.lanes[id] == nil {
				f.newLane(id, &FoldChild{ID: id, Parent: parent})
			}
			parent = id
		}
	}
	if l := f.lanes[child]; l != nil {
		return l
	}
	return f.newLane(child, &FoldChild{ID: child, Parent: parent})
}

func (f *Fold) newLane(id string, c *FoldChild) *foldLane {
	if f.lanes == nil {
		f.lanes = make(map[string]*foldLane)
	}
	l := &foldLane{child: c}
	f.lanes[id] = l
	if c != nil {
		f.size += otherCost + len(c.ID) + len(c.Parent)
		f.Children = append(f.Children, c)
	}
	return l
}

// Child returns what is known of a child; nil when nothing is.
func (f *Fold) Child(id string) *FoldChild {
	if l := f.lanes[id]; l != nil {
		return l.child
	}
	return nil
}

// StateOf returns the state of the root ("") or of a child.
func (f *Fold) StateOf(child string) RunState {
	if child == "" {
		return f.State
	}
	if c := f.Child(child); c != nil {
		return c.State
	}
	return ""
}

// Text joins the blocks of one kind over all messages of a child, in order.
func (f *Fold) Text(child, kind string) string {
	var b strings.Builder
	for _, m := range f.Messages {
		if m.Child != child {
			continue
		}
		for _, bl := range m.Blocks {
			if bl.Kind == kind {
				b.WriteString(bl.Text.String())
			}
		}
	}
	return b.String()
}

// Lighten drops messages, tool calls and usage, now and for all events to come. What is left is what
// decides on commands: states, the plan, requests for input, the commands that wait (but messages),
// children, what is said of the run. The fold of a very long run stays small then; it has no snapshot any more.
func (f *Fold) Lighten() {
	f.light = true
	f.Messages, f.Calls, f.Usage = nil, nil, FoldUsage{}
	f.talking, f.starts = ordered.Map[*foldLane, struct{}]{}, ordered.Map[*foldLane, *FoldMessage]{}
	for _, l := range f.lanes {
		l.open, l.named, l.calls, l.asked = nil, nil, nil, nil
		f.settle(l, commandMessage)
	}
	f.size = len(f.Session)
	for _, c := range f.Children {
		f.size += otherCost + len(c.ID) + len(c.Parent) + len(c.Prompt) + len(c.Tools) + len(c.Reason)
	}
	for _, in := range f.Inputs {
		f.size += otherCost + len(in.ID) + len(in.Child) + len(in.Prompt) + len(in.Options) + len(in.Schema) + len(in.Answer)
	}
	for _, c := range f.Commands() {
		f.size += otherCost + len(c.Payload)
	}
	if f.Plan != nil {
		f.size += len(f.Plan.Payload)
	}
}

// Light reports whether Lighten was called.
func (f *Fold) Light() bool { return f.light }

// heavy reports whether a type changes nothing in a light fold.
func heavy(typ string) bool {
	switch typ {
	case TypeChildSpawn, TypePlanProposal, TypeRunLifecycle, TypeInputRequested, TypeInputAnswered,
		TypeSessionCreated, TypeSessionUpdated, TypeSessionArchived, TypeSessionDeleted:
		return false
	}
	_, command := commandKindOf(typ)
	return !command
}
