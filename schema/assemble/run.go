package assemble

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// Limits bounds what a Run keeps of the content of open messages, in bytes. The transitions do not depend on it, but
// for the content of messages whose producer does not send it, and for BlockPart. The zero Limits keeps nothing.
type Limits struct {
	// Message is for each message that was announced. A longer one is not kept at all. One that was not announced is
	// kept whole, unless Message is 0: it ends at 256 KiB.
	Message int
	// All is for all messages together. The message that goes beyond it is not kept.
	All int
	// Blocks is how many blocks are remembered of an announced message, 256 at least.
	Blocks int
	// Text is for the text of each open block, or the input of its call: see BlockPart. With 0 none is kept. It does
	// not depend on whether the message's content is kept.
	Text int
	// Texts is for those of all blocks together.
	Texts int
}

// Run is the reading of one run: what has begun and has not ended. The zero value keeps no content.
type Run struct {
	limits Limits
	run    string // id, of the first record
	lanes  map[string]*Lane
	live   ordered.Map[string, struct{}] // those that the end of the run may have to end
	by     *atomic.Bool                  // set when a copy shares lanes; nil with lanes
	known  int                           // lanes that were ever known
	kept   int                           // bytes of the content of open messages
	texts  int                           // bytes of the texts of open blocks
	items  int                           // of all lanes
	told   schema.Seq                    // newest command or answer: turns and tasks may go on under their ids

	newest *Lane // of the record at hand
	head   Head
	seq    schema.Seq
	apart  bool            // fields are those of the payload at hand
	fields jsonscan.Fields // nil for one that is no object
	spare  jsonscan.Fields // memory for them
	names  []byte          // of an event
	out    []Transition

	pasts     int           // of all lanes
	questions *schema.Waits // of asker alone; nil before the first
	asker     *atomic.Bool
	again     bool         // the record at hand asks what waits already
	lapsed    []schema.Ask // questions that it has ended without an answer
}

// New returns the reading of a run that has no records yet.
func New(limits Limits) *Run { return &Run{limits: limits} }

// Clone returns a copy. The copies share what neither changes. Copies of a Run that is not fed may be made at the same
// time.
func (a *Run) Clone() *Run {
	if a.by != nil {
		a.by.Store(true)
	}
	c := *a
	c.live = a.live.Clone()
	c.newest, c.head, c.apart, c.fields, c.spare, c.names, c.out = nil, Head{}, false, nil, nil, nil, nil
	c.lapsed = nil
	return &c
}

// Size returns about how much memory the Run holds, in bytes.
func (a *Run) Size() int {
	n := 512 + 224*a.items + 96*a.pasts + a.kept + a.texts + 256*a.Questions().Len()
	for _, l := range a.lanes {
		n += 256 + len(l.Child) + len(l.Parent) + len(l.Turn)
		for _, id := range l.Path {
			n += 16 + len(id)
		}
		for it := range l.Items() {
			n += len(it.ID) + len(it.Tool) + len(it.Server)
		}
		if m := l.Message; m != nil {
			n += 256 + len(m.ID) + 256*len(m.Blocks)
		}
	}
	return n
}

// Head returns what the record at hand has beside its number, type and lane. It is valid until the next record.
func (a *Run) Head() *Head { return &a.head }

// Next takes the next record of the run and returns what it means, in order. The result is valid until the next call.
// A payload that does not fit its type means nothing. The error wraps schema.ErrMalformed: the record has no payload.
func (a *Run) Next(r schema.Record) ([]Transition, error) {
	if a.run == "" {
		_, _, run := r.Envelope()
		a.run = string(run)
	}
	if !a.head.read(r) {
		return nil, fmt.Errorf("seq %d has no payload: %w", r.Seq, schema.ErrMalformed)
	}
	return a.apply(r.Seq, r.Type, r.Child), nil
}

// NextEvent is Next for an event that is decoded.
func (a *Run) NextEvent(e *schema.Event) []Transition {
	if a.run == "" {
		a.run = e.RunID
	}
	a.head = Head{Payload: e.Payload, Turn: e.TurnID, Actor: e.Actor, Cause: e.Cause, ids: e.Path}
	a.names = append(append(a.names[:0], e.Type...), e.ChildID...)
	n := len(e.Type)
	return a.apply(e.Seq, a.names[:n], a.names[n:])
}

// apply reads one record and returns what it begins and ends.
func (a *Run) apply(seq schema.Seq, typ, child []byte) []Transition {
	a.out, a.seq, a.apart, a.lapsed = a.out[:0], seq, false, nil
	l := a.lane(child)
	switch string(typ) {
	case schema.TypeTextDelta:
		a.delta(l, Text)
	case schema.TypeReasoningDelta:
		a.delta(l, Thinking)
	case schema.TypeToolInputDelta:
		a.delta(l, Call)
	case schema.TypeDataDelta:
		a.data(l)
	case schema.TypeMessageStart:
		a.question(l, typ)
		a.startMessage(l)
	case schema.TypeMessageEnd:
		a.endMessage(l)
	case schema.TypeBlockStart:
		a.startBlock(l)
	case schema.TypeBlockEnd:
		a.endBlock(l)
	case schema.TypeRunLifecycle:
		a.question(l, typ)
		a.lifecycle(l)
	case schema.TypeToolRun:
		a.work(l)
	case schema.TypeToolOutputDelta:
		a.output(l)
	case schema.TypeCommandMessage:
		a.question(l, typ)
		l.heard = a.seq
		if schema.IsFollowUp(schema.TypeCommandMessage, l.Child, a.head.Payload) && l.own.Final() {
			l.setState(schema.StatePlanning, a.seq)
		}
		if l.State.Final() && schema.IsFollowUp(schema.TypeCommandMessage, l.Child, a.head.Payload) {
			l.State = schema.StatePlanning
			a.add(Transition{Kind: StateChange, Lane: l, Repaired: true})
		}
	default:
		a.control(l, typ)
	}
	return a.out
}

// control takes the records that end a message which nobody announced, but for answers.
func (a *Run) control(l *Lane, typ []byte) {
	a.question(l, typ)
	if string(typ) == schema.TypeInputAnswered || schema.IsCommand(string(typ)) {
		a.told = a.seq
	}
	i := slices.IndexFunc(controls, func(c control) bool { return c.typ == string(typ) })
	if i < 0 {
		return
	}
	if string(typ) != schema.TypeInputAnswered { // a person answers at any time
		a.cutImplicit(l)
	}
	switch c := controls[i]; {
	case c.typ == schema.TypeTurnStart || c.typ == schema.TypeTurnEnd:
		a.turn(l, c.begins)
	case c.typ == schema.TypeChildSpawn:
		a.spawn(l)
	case c.kind != 0:
		a.item(l, c.kind, c.begins, c.id)
	}
	if string(typ) == schema.TypeModelEnd && a.hasEnded(ModelEnd) {
		a.usage(l)
	}
}

// control is a type of records and the item that it begins or ends.
type control struct {
	typ    string
	kind   Kind // 0: none
	begins bool
	id     string
}

var controls = []control{
	{schema.TypeToolStart, CallStart, true, "call_id"},
	{schema.TypeToolEnd, CallStart, false, "call_id"},
	{schema.TypeModelStart, ModelStart, true, "call_id"},
	{schema.TypeModelEnd, ModelStart, false, "call_id"},
	{schema.TypeTaskStart, TaskStart, true, "task_id"},
	{schema.TypeTaskEnd, TaskStart, false, "task_id"},
	{schema.TypeInputRequested, InputRequest, true, "request_id"},
	{schema.TypeInputAnswered, InputRequest, false, "request_id"},
	{schema.TypeTurnStart, 0, true, ""},
	{schema.TypeTurnEnd, 0, false, ""},
	{schema.TypeChildSpawn, 0, false, ""},
	{schema.TypeStepBoundary, 0, false, ""},
	{schema.TypePlanProposal, 0, false, ""},
}

func (a *Run) add(t Transition) {
	if t.Kind == MessageOpen && t.Message.Role == "user" {
		t.Lane.heard = max(t.Lane.heard, t.Message.Start)
	}
	a.out = append(a.out, t)
}

// hasEnded reports whether the record at hand has ended something of a kind. One without an id ends nothing
// that is known, and counts.
func (a *Run) hasEnded(kind Kind) bool {
	if !jsonscan.IsString(a.read().Raw("call_id")) {
		return true
	}
	return slices.ContainsFunc(a.out, func(t Transition) bool { return t.Kind == kind && !t.Repaired })
}

func (a *Run) usage(l *Lane) {
	if u := a.read().Object("usage"); u != nil {
		a.add(Transition{Kind: UsageAdd, Lane: l, Value: u})
	}
}

// Field returns a field of the payload at hand, nil when there is none. It is valid until the next record.
func (a *Run) Field(name string) []byte { return a.read().Raw(name) }

// read takes the payload at hand apart, once.
func (a *Run) read() jsonscan.Fields {
	if !a.apart {
		a.apart = true
		if a.fields = a.spare.Read(a.head.Payload); a.fields != nil {
			a.spare = a.fields
		}
	}
	return a.fields
}

// nameOf decodes a string by which something is known; "" when it is none, or too long.
func nameOf(v []byte) string {
	if len(v) > 6*maxID+2 {
		return ""
	}
	s, _ := jsonscan.Unquote(v)
	if len(s) > maxID {
		return ""
	}
	return s
}

// keyOf returns what stands for such a string. Halves of surrogate pairs, which cannot be written again, are
// not distinguished.
func keyOf(v []byte) jsonscan.Sum {
	if bytes.Contains(v, []byte(`\u`)) {
		if s, _ := jsonscan.Unquote(v); strings.ContainsRune(s, utf8.RuneError) {
			v = jsonscan.AppendString(nil, s)
		}
	}
	return jsonscan.SumOf(jsonscan.Inner(v))
}
