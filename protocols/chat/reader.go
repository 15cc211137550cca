package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// Kind is what an Event is.
type Kind uint8

// The kinds.
const (
	// Begin is the first event of a response that has any.
	Begin Kind = iota + 1
	// Message means that a message of the assistant begins. Name is its model.
	Message
	// TextStart, TextDelta and TextEnd are of a text, or a thought if Thinking is set. It starts with its first
	// delta, which is not empty. Value of TextEnd is an object with signature and citations, nil for none.
	TextStart
	TextDelta
	TextEnd
	// CallStart means that a call of a tool is known, whose input may come in pieces (CallDelta). Each call has one
	// CallInput, with its whole input, or one CallBroken, with why there is none. Name is the tool.
	CallStart
	CallDelta
	CallInput
	CallBroken
	// CallResult, CallFailed and CallDenied end a call. Value of CallResult is the output.
	CallResult
	CallFailed
	CallDenied
	// Ask is a question about an open call: ID is the question's, Call the call's, Nth its number in the response,
	// from 1. Value is the payload.
	Ask
	// Usage is the end of a message. Name is its model, Value the payload.
	Usage
	// File is a file, base64 in Text. Name is its media type as it is written.
	File
	// Data is all else that a page may show. Name is what it is, ID what it replaces, "" for nothing.
	Data
	// ChildState means that a child has begun or has another state, which is Name. Value is the prompt that it was
	// given.
	ChildState
	// Done, Aborted and Failed end a response. Why is the reason of its end, or of the last stop.
	Done
	Aborted
	Failed
	// Empty ends a response that has nothing.
	Empty
)

// Event is one thing that happens in a response. It is valid until the next record is read.
type Event struct {
	Kind     Kind
	Response schema.Seq // first record of the response
	Lane     string     // child; "" is the run itself
	ID       string
	Name     string
	Call     string
	Why      string
	Thinking bool
	Nth      int
	Low      uint16 // low surrogate before Text
	Text     []byte // inside of a JSON string
	Value    []byte // JSON
}

// Question is one that waits for a person, or has waited.
type Question struct {
	Response schema.Seq
	Nth      int        // among the response's, from 1
	Seq      schema.Seq // of the record that asks
	Call     string     // as events have it
	Answered bool
	Approved bool

	key callKey
}

// Reader follows the responses of a run. Make it with New.
type Reader struct {
	Spans     dialect.Spans                   // responses, by the number of their first record
	Said      ordered.Map[string, schema.Seq] // responses, by the id of the message that they answer
	Questions ordered.Map[string, Question]   // by their ids

	run       *assemble.Run
	queue     []schema.Seq // responses that wait for the one under way
	now       response
	calls     ordered.Map[callKey, call] // of the response under way
	size      int                        // of ids, in bytes
	cancelled schema.Seq                 // the newest command to cancel
	plan      jsonscan.Sum               // of the newest proposal that was not rejected
	events    []Event
	again     bool   // the record at hand says once more, or too late, what is known: it means nothing
	typ       []byte // of the record at hand
	seq       schema.Seq
	payload   []byte
}

// response is the one under way.
type response struct {
	first   schema.Seq // 0: none is
	message bool       // a person has asked for it
	started bool
	turn    bool                        // its agent has begun a turn
	parts   ordered.Map[string, []part] // open texts and thoughts, by lane
	asks    int
	model   string
	media   string
	file    []byte
}

// Bounds of what is remembered.
const (
	maxQueue = 256
	maxFile  = 1 << 20 // bytes of a file, base64
	// MaxID is the longest id of a message or a question that is known, in bytes.
	MaxID = 256
)

// New returns a Reader of a run that has no records yet.
func New() *Reader { return &Reader{run: assemble.New(assemble.Limits{})} }

// Clone returns a copy.
func (r *Reader) Clone() *Reader {
	c := *r
	c.Spans, c.Said, c.Questions = r.Spans.Clone(), r.Said.Clone(), r.Questions.Clone()
	c.run, c.calls = r.run.Clone(), r.calls.Clone()
	c.queue, c.now.parts, c.now.file = slices.Clip(r.queue), r.now.parts.Clone(), slices.Clip(r.now.file)
	c.events, c.payload = nil, nil
	return &c
}

// Size is about what is remembered, in bytes.
func (r *Reader) Size() int {
	const each = 96
	known := r.Said.Len() + r.Questions.Len() + r.calls.Len()
	return 512 + r.run.Size() + r.Spans.Size() + r.size + each*known + len(r.now.file)
}

// UnderWay returns the first record of the response under way, 0 when none is.
func (r *Reader) UnderWay() schema.Seq { return r.now.first }

// IsWaiting reports whether a question waits for its answer.
func (r *Reader) IsWaiting(id string) bool { return r.run.Questions().Request("", id) }

// maxNamed bounds what an error names of what waits.
const maxNamed = 8

// RefuseUnknown refuses an answer to a question that nobody has asked, and names what waits.
func (r *Reader) RefuseUnknown(id string) error {
	return dialect.Refuse(dialect.ErrNotFound, "no question %.100q is asked here%s", id, r.waiting())
}

// RefuseOther refuses another answer to a question that has one, and names what waits.
func (r *Reader) RefuseOther(id string) error {
	return dialect.Refuse(dialect.ErrGone, "the question %.100q was given another answer before%s", id, r.waiting())
}

// RefuseLate refuses an answer to a question that is over without one, and names what waits.
func (r *Reader) RefuseLate(id string) error {
	return dialect.Refuse(dialect.ErrGone, "nobody waits for an answer to %.100q any more%s", id, r.waiting())
}

// waiting names the questions that wait, for the words of a refusal.
func (r *Reader) waiting() string {
	var ids []string
	for _, a := range r.run.Questions().Open() {
		if a.Child == "" && a.Request != "" && len(ids) < maxNamed {
			ids = append(ids, fmt.Sprintf("%.100q", a.Request))
		}
	}
	if ids == nil {
		return "; nothing waits"
	}
	return "; these wait: " + strings.Join(ids, ", ")
}

// CountAnswers returns how many questions of a response have answers.
func (r *Reader) CountAnswers(response schema.Seq) (n int) {
	for _, q := range r.Questions.All() {
		if q.Response == response && q.Answered {
			n = max(n, q.Nth)
		}
	}
	return n
}

// Field returns a field of the payload of the record at hand.
func (r *Reader) Field(name string) []byte { return r.run.Field(name) }

func (r *Reader) text(name string) string { return jsonscan.DecodeString(r.run.Field(name)) }

// Next reads the next record of the run and returns what it means. The error wraps schema.ErrMalformed.
func (r *Reader) Next(rec schema.Record) ([]Event, error) {
	asked := r.run.Questions().Len()
	steps, err := r.run.Next(rec)
	if err != nil {
		return nil, err
	}
	r.events, r.typ, r.seq, r.payload = r.events[:0], rec.Type, rec.Seq, r.run.Head().Payload
	r.again = r.isRepeat(steps, r.run.Questions().Len() < asked)
	if len(rec.Child) == 0 && !r.again {
		r.follow()
	}
	for i := range steps {
		r.step(&steps[i])
	}
	if r.now.first > 0 && !r.again && !piece(rec.Type) {
		r.record(string(rec.Child))
	}
	return r.events, nil
}

// Again reports whether the record at hand says once more, or too late, what is known: it means nothing.
func (r *Reader) Again() bool { return r.again }

// isRepeat finds out what Again reports.
func (r *Reader) isRepeat(steps []assemble.Transition, answered bool) bool {
	has := func(kinds ...assemble.Kind) bool {
		return slices.ContainsFunc(steps, func(t assemble.Transition) bool { return slices.Contains(kinds, t.Kind) })
	}
	switch string(r.typ) {
	case schema.TypePlanProposal:
		was := r.plan
		r.plan = jsonscan.SumOf(r.payload)
		return was == r.plan
	case "command.reject_plan": // it may be proposed again
		r.plan = jsonscan.Sum{}
	case schema.TypeTaskStart, schema.TypeTaskEnd:
		return r.text("task_id") != "" && !has(assemble.TaskStart, assemble.TaskEnd)
	case schema.TypeInputAnswered, "command.answer":
		return !answered && !has(assemble.InputAnswer)
	case schema.TypeTurnStart, schema.TypeMessageStart, schema.TypeBlockStart, schema.TypeToolStart, schema.TypeToolRun,
		schema.TypeInputRequested:
		return len(steps) == 0
	}
	return false
}

// piece reports whether a record is all that assemble has read of it, as most are.
func piece(typ []byte) bool {
	switch string(typ) {
	case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta:
		return true
	}
	return false
}

// add appends an event of the response under way.
func (r *Reader) add(e Event) {
	e.Response = r.now.first
	if !r.now.started && e.Kind != Empty {
		r.now.started = true
		r.events = append(r.events, Event{Kind: Begin, Response: e.Response})
	}
	r.events = append(r.events, e)
}

// follow begins a response with the record that is its first.
func (r *Reader) follow() {
	switch typ := r.typ; string(typ) {
	case schema.TypeCommandMessage:
		r.ask()
	case schema.TypeCommandsTaken:
		n, _ := jsonscan.WholeNumber(r.Field("through"))
		r.dequeue(schema.Seq(n))
	case "command.cancel":
		r.cancelled = r.seq
	default:
		if r.now.first == 0 && isWork(typ) {
			r.Spans.Begin(r.seq.String(), r.seq)
			r.now = response{first: r.seq}
		}
	}
}

// dequeue reads that the agent has dealt with commands: messages that it has accepted into the response under way, and
// those that were cancelled before it began with them.
func (r *Reader) dequeue(through schema.Seq) {
	for len(r.queue) > 0 && r.queue[0] <= through && r.now.started {
		r.close(r.queue[0])
		r.queue = r.queue[1:]
	}
	for r.now.message && !r.now.started && !r.now.turn && r.now.first < r.cancelled && r.cancelled <= through {
		r.endResponse(Aborted, "cancelled")
	}
}

// isWork reports whether an agent that answers no message begins a response with a record.
func isWork(typ []byte) bool {
	switch family, _, _ := bytes.Cut(typ, []byte(".")); string(family) {
	case "message", "block", "text", "reasoning", "tool", "data", "plan":
		return !bytes.HasSuffix(typ, []byte(".end"))
	}
	return string(typ) == schema.TypeTurnStart || string(typ) == schema.TypeInputRequested
}

// ask begins the response to what a person says, or lets it wait for the one that is under way.
func (r *Reader) ask() {
	if r.text("role") == "system" {
		return
	}
	if id := r.text("message_id"); id != "" && len(id) <= MaxID {
		r.Said.Set(id, r.seq)
		r.size += len(id)
	}
	r.Spans.Begin(r.seq.String(), r.seq)
	lane := r.run.Lane("")
	switch idle := !r.now.turn && lane != nil && lane.Message == nil && !r.busy(); {
	case r.now.first == 0:
	case !r.now.message && !r.now.started: // it was nothing yet
		r.endResponse(Empty, "")
	case idle && r.now.started: // of an agent that records no turns
		r.endResponse(Done, "")
	case len(r.queue) < maxQueue:
		r.queue = append(slices.Clip(r.queue), r.seq)
		return
	default:
		r.close(r.seq)
		return
	}
	r.now = response{first: r.seq, message: true}
}

// Open reports whether the root has a text, a thought or a call that has not ended.
func (r *Reader) Open() bool {
	for key, c := range r.calls.All() {
		if key.lane == "" && !c.over {
			return true
		}
	}
	_, open := r.now.parts.Get("")
	return open
}

// busy reports whether a call of the response is open.
func (r *Reader) busy() bool {
	for _, c := range r.calls.All() {
		if !c.over {
			return true
		}
	}
	return false
}

// close ends a response that has nothing.
func (r *Reader) close(first schema.Seq) {
	r.Spans.End(first.String(), r.seq)
	r.events = append(r.events, Event{Kind: Empty, Response: first})
}

// endResponse ends the response under way. The next one that waits is under way then.
func (r *Reader) endResponse(how Kind, why string) {
	r.endTexts("", true)
	if how == Aborted || how == Failed { // nobody will tell what becomes of them
		r.failCalls()
	}
	if how == Empty {
		r.close(r.now.first)
	} else {
		r.add(Event{Kind: how, Why: why})
		r.Spans.End(r.now.first.String(), r.seq)
	}
	r.now, r.calls = response{}, ordered.Map[callKey, call]{}
	if len(r.queue) > 0 {
		r.now = response{first: r.queue[0], message: true}
		r.queue = r.queue[1:]
	}
}

// turnEnds ends the response with its turn.
func (r *Reader) turnEnds() {
	if string(r.typ) == schema.TypeTurnStart { // another one has begun
		r.endResponse(Done, "")
		r.follow()
		return
	}
	stop := r.text("stop_reason")
	switch stop {
	case "cancelled", "canceled", "aborted", "interrupted":
		r.endResponse(Aborted, stop)
	case "error", "failed", "retries_exhausted":
		r.endResponse(Failed, r.text("reason"))
	default:
		r.endResponse(Done, stop)
	}
}

// runEnds ends the response with the run, and those that wait for it.
func (r *Reader) runEnds(state schema.RunState) {
	how, why := map[schema.RunState]Kind{schema.StateAborted: Aborted, schema.StateError: Failed}[state], r.text("reason")
	if how == 0 {
		how, why = Done, ""
	}
	for r.now.first > 0 {
		r.endResponse(how, why)
	}
}
