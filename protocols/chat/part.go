package chat

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// part is a text that is open.
type part struct {
	lane     string
	start    schema.Seq // of its message
	place    int
	thinking bool
	id       string
	notes    []byte // members of what it ends with
}

// maxNotes bounds what a text ends with, in bytes.
const maxNotes = 16 << 10

// callKey is a call of a lane.
type callKey struct{ lane, id string }

// call is one as events have it.
type call struct {
	nth   int // how often its id was used in the response, from 1
	tool  string
	input bool // CallInput or CallBroken was returned
	over  bool
}

// step reads a transition.
func (r *Reader) step(t *assemble.Transition) {
	if r.now.first == 0 {
		return
	}
	child := t.Lane.Child
	switch t.Kind {
	case assemble.TurnBegin:
		r.now.turn = r.now.turn || child == ""
	case assemble.TurnEnd:
		if child == "" && (string(r.typ) == schema.TypeTurnEnd || string(r.typ) == schema.TypeTurnStart) {
			r.turnEnds()
		}
	case assemble.ChildBegin:
		r.add(Event{Kind: ChildState, Lane: child, Call: t.Lane.Parent, Name: string(t.Lane.State), Value: r.Field("prompt")})
	case assemble.StateChange:
		switch {
		case child != "" && t.Lane.Since() != r.seq: // it has that state already
		case child != "":
			r.add(Event{Kind: ChildState, Lane: child, Call: t.Lane.Parent, Name: string(t.Lane.State)})
		case t.Lane.State.Final() && t.Value != nil:
			r.runEnds(t.Lane.State)
		}
	case assemble.MessageOpen:
		if t.Message.Role == "assistant" {
			r.endTexts(child, false)
			r.now.model = r.text("model")
			r.add(Event{Kind: Message, Lane: child, Name: r.now.model})
		}
	case assemble.MessageClose:
		if t.Message.Role == "assistant" && string(r.typ) == schema.TypeMessageEnd {
			r.add(Event{Kind: Usage, Lane: child, Name: r.now.model, Value: r.payload})
		}
	case assemble.CallStart:
		r.callStarts(t)
	case assemble.CallEnd:
		r.callEnds(t)
	case assemble.InputRequest:
		r.question(child, t.Item.ID)
	default:
		if t.Message != nil && t.Message.Role == "assistant" {
			r.block(t)
		}
	}
}

// block reads a part of a message.
func (r *Reader) block(t *assemble.Transition) {
	switch b := t.Block; {
	case b == nil:
	case b.IsCall:
		r.callBlock(t)
	case b.Kind == assemble.Data:
		if t.Kind == assemble.BlockClose {
			r.endFile()
		}
	case b.Kind == assemble.Text || b.Kind == assemble.Thinking:
		r.textBlock(t)
	}
}

// textBlock reads a text or a thought, which begins with what is not empty.
func (r *Reader) textBlock(t *assemble.Transition) {
	lane := t.Lane.Child
	open, _ := r.now.parts.Get(lane)
	i := slices.IndexFunc(open, func(pt part) bool { return pt.start == t.Message.Start && pt.place == t.Block.Place })
	switch {
	case t.Kind == assemble.BlockText && (len(t.Text) > 0 || t.Low != 0):
		if i < 0 {
			i = len(open)
			id := t.Message.Start.String() + "-" + strconv.Itoa(t.Block.Place)
			begun := part{lane: lane, start: t.Message.Start, place: t.Block.Place, id: id}
			begun.thinking = t.Block.Kind == assemble.Thinking
			open = append(slices.Clone(open), begun)
			r.now.parts.Set(lane, open)
			r.addText(TextStart, &open[i], Event{})
		}
		r.addText(TextDelta, &open[i], Event{Low: t.Low, Text: t.Text})
	case i < 0:
	case t.Kind == assemble.BlockSignature && len(t.Value) <= maxNotes:
		r.note(open, i, "signature", t.Value)
	case t.Kind == assemble.BlockCitations && len(t.Value) <= maxNotes:
		r.note(open, i, "citations", t.Value)
	case t.Kind == assemble.BlockClose:
		r.endText(&open[i])
		if len(open) == 1 {
			r.now.parts.Delete(lane)
			return
		}
		r.now.parts.Set(lane, slices.Concat(open[:i], open[i+1:]))
	}
}

// note keeps what belongs to an open part until it ends. Copies of the Reader share the list, so it is made anew.
func (r *Reader) note(open []part, i int, name string, value []byte) {
	open = slices.Clone(open)
	open[i].notes = jsonscan.Object(bytes.Clone(open[i].notes)).Raw(name, value)
	r.now.parts.Set(open[i].lane, open)
}

func (r *Reader) addText(k Kind, pt *part, e Event) {
	e.Kind, e.Lane, e.ID, e.Thinking = k, pt.lane, pt.id, pt.thinking
	r.add(e)
}

func (r *Reader) endText(pt *part) {
	e := Event{}
	if pt.notes != nil {
		e.Value = append(append([]byte{'{'}, pt.notes...), '}')
	}
	r.addText(TextEnd, pt, e)
}

// endTexts ends the texts of a lane, or of all, and the file.
func (r *Reader) endTexts(lane string, all bool) {
	if all {
		for of, open := range r.now.parts.All() {
			r.endLane(of, open)
		}
	} else if open, ok := r.now.parts.Get(lane); ok {
		r.endLane(lane, open)
	}
	if all || lane == "" {
		r.endFile()
	}
}

// endLane ends the texts of one lane.
func (r *Reader) endLane(lane string, open []part) {
	for i := range open {
		r.endText(&open[i])
	}
	r.now.parts.Delete(lane)
}

// addCall appends an event of a call. A call whose id is used again has a number in its id.
func (r *Reader) addCall(k Kind, key callKey, e Event) {
	c, _ := r.calls.Get(key)
	e.Kind, e.Lane, e.ID, e.Name = k, key.lane, key.id, c.tool
	if c.nth > 1 {
		e.ID += "#" + strconv.Itoa(c.nth)
	}
	r.add(e)
}

// open makes a call known, if it is new or its id is used again.
func (r *Reader) open(key callKey, tool string) call {
	c, ok := r.calls.Get(key)
	if ok && !c.over {
		return c
	}
	c = call{nth: c.nth + 1, tool: tool}
	r.calls.Set(key, c)
	r.addCall(CallStart, key, Event{})
	return c
}

// input returns the input of a call, once; nil is an empty one.
func (r *Reader) input(key callKey, c call, input []byte) {
	if c.input {
		return
	}
	if len(input) == 0 {
		input = []byte("{}")
	}
	c.input = true
	r.calls.Set(key, c)
	r.addCall(CallInput, key, Event{Value: input})
}

// callBlock reads a block that asks for a call.
func (r *Reader) callBlock(t *assemble.Transition) {
	key := callKey{t.Lane.Child, t.Block.CallID}
	c, ok := r.calls.Get(key)
	if t.Kind == assemble.BlockOpen && key.id != "" {
		c, ok = r.open(key, t.Block.Tool), true
	}
	if !ok || c.input || c.over {
		return
	}
	switch t.Kind {
	case assemble.BlockText:
		if t.Input && len(t.Text) > 0 {
			r.addCall(CallDelta, key, Event{Text: t.Text, Low: t.Low})
		}
	case assemble.BlockInput:
		r.input(key, c, t.Value)
	case assemble.BlockEnd:
		switch input := r.Field("input"); {
		case string(r.Field("complete")) == "false":
			c.input, c.over = true, true
			r.calls.Set(key, c)
			r.addCall(CallBroken, key, Event{Value: input, Why: jsonscan.FirstText("the input was cut off", r.Field("problem"))})
		case input != nil:
			r.input(key, c, input)
		}
	}
}

// callStarts reads the start of a call. One that is missing, of a call that was asked for in an earlier response, is
// none of this one: the call was shown there, and what comes of it is data.
func (r *Reader) callStarts(t *assemble.Transition) {
	key, it := callKey{t.Lane.Child, t.Item.ID}, t.Item
	_, known := r.calls.Get(key)
	earlier := it.AskSeq() > 0 && it.AskSeq() < r.now.first
	if it.ID == "" || t.Repaired && earlier && !known {
		return
	}
	r.input(key, r.open(key, it.Tool), r.Field("input"))
}

// callEnds reads a result, or that there is none.
func (r *Reader) callEnds(t *assemble.Transition) {
	key := callKey{t.Lane.Child, t.Item.ID}
	c, ok := r.calls.Get(key)
	if !ok && !t.Repaired {
		r.add(Event{Kind: Data, Lane: key.lane, Name: "tool-end", Value: r.payload})
	}
	if !ok || c.over {
		return
	}
	r.input(key, c, nil)
	c.input, c.over = true, true
	r.calls.Set(key, c)
	switch output := r.Field("output"); {
	case t.Repaired:
		r.addCall(CallFailed, key, Event{Why: "the call did not end"})
	case string(r.Field("ok")) != "true":
		r.addCall(CallFailed, key, Event{Why: jsonscan.FirstText("the tool failed", r.Field("error_detail"),
			r.Field("error"), output)})
	case output == nil && r.Field("blob_ref") != nil:
		r.addCall(CallResult, key, Event{Value: jsonscan.Object("{").Raw("blob_ref", r.Field("blob_ref")).End()})
	case output == nil:
		r.addCall(CallResult, key, Event{Value: []byte("null")})
	default:
		r.addCall(CallResult, key, Event{Value: output})
	}
}

// failCalls ends the calls that are open.
func (r *Reader) failCalls() {
	for key, c := range r.calls.All() {
		if c.over {
			continue
		}
		r.input(key, c, nil)
		c.input, c.over = true, true
		r.calls.Set(key, c)
		r.addCall(CallFailed, key, Event{Why: "the call did not end"})
	}
}

// question reads what a person is asked. One about an open call of the root is a question of the response.
func (r *Reader) question(lane, id string) {
	key := callKey{lane, r.text("call_id")}
	c, ok := r.calls.Get(key)
	if !ok || c.over || lane != "" || id == "" || len(id) > MaxID {
		r.add(Event{Kind: Data, Lane: lane, Name: "input", ID: id, Value: r.payload})
		return
	}
	r.input(key, c, nil)
	r.endTexts("", false)
	r.now.asks++
	q := Question{Response: r.now.first, Nth: r.now.asks, Seq: r.seq, Call: key.id, key: key}
	if c.nth > 1 {
		q.Call += "#" + strconv.Itoa(c.nth)
	}
	r.Questions.Set(id, q)
	r.size += len(id) + len(key.id)
	r.add(Event{Kind: Ask, ID: id, Call: q.Call, Nth: q.Nth, Value: r.payload})
}

// answer reads an answer.
func (r *Reader) answer(lane string) {
	id := r.text("request_id")
	q, ok := r.Questions.Get(id)
	if !ok {
		r.add(Event{Kind: Data, Lane: lane, Name: "input", ID: id, Value: r.payload})
		return
	}
	if q.Answered || q.Response != r.now.first {
		return
	}
	q.Answered, q.Approved = true, IsApproval(r.Field("answer"))
	r.Questions.Set(id, q)
	if c, ok := r.calls.Get(q.key); ok && !q.Approved && !c.over {
		c.over = true
		r.calls.Set(q.key, c)
		r.addCall(CallDenied, q.key, Event{})
	}
}

// IsApproval reads an answer: true, a word, or an object with a decision as one of the protocols has it.
func IsApproval(answer []byte) bool {
	word := jsonscan.DecodeString(answer)
	if len(answer) > 0 && answer[0] == '{' {
		f := jsonscan.Fields(nil).Read(answer)
		if f.Yes("approved") {
			return true
		}
		word = f.Str("result") + f.Str("decision")
	}
	switch strings.ToLower(word) {
	case "allow", "approve", "yes":
		return true
	}
	return string(answer) == "true"
}

// datas are the types of data, with their names and the field that is the id.
var datas = map[string][2]string{
	schema.TypeToolOutputDelta: {"tool-output", ""}, schema.TypeStateValues: {"state", ""},
	schema.TypeStateUpdate: {"state-update", ""}, schema.TypeTaskStart: {"task", "task_id"},
	schema.TypeTaskEnd: {"task", "task_id"}, schema.TypeProgress: {"progress", ""}, schema.TypeLoss: {"loss", ""},
}

// record reads what assemble does not.
func (r *Reader) record(lane string) {
	e := Event{Kind: Data, Lane: lane, Value: r.payload}
	switch string(r.typ) {
	case schema.TypeInputAnswered, "command.answer":
		r.answer(lane)
		return
	case schema.TypePlanProposal:
		e.Name, e.Value = "plan", r.Field("plan")
		e.ID = jsonscan.DecodeString(schema.Field(e.Value, "id"))
	case schema.TypeDataDelta:
		if lane == "" {
			r.addFile()
		}
		return
	default:
		name, own := strings.CutPrefix(string(r.typ), "custom.")
		of, known := datas[string(r.typ)]
		if !own && !known {
			return
		}
		e.Name = name
		if known {
			e.Name, e.ID = of[0], r.text(of[1])
		}
		if e.Name == "state" {
			e.ID = "state"
		}
	}
	r.add(e)
}

// addFile keeps a piece of a file. Pieces are encoded each by itself, so only those fit together that have no
// padding.
func (r *Reader) addFile() {
	piece := jsonscan.Inner(r.Field("data"))
	if bytes.HasSuffix(r.now.file, []byte("=")) || len(r.now.file)+len(piece) > maxFile {
		r.endFile()
	}
	if len(piece) > maxFile {
		r.add(Event{Kind: Data, Name: "loss", Value: []byte(`{"reason":"a file is too large"}`)})
		return
	}
	r.now.media = r.text("media_type")
	r.now.file = append(r.now.file, piece...)
}

func (r *Reader) endFile() {
	if len(r.now.file) > 0 {
		r.add(Event{Kind: File, Name: r.now.media, Text: r.now.file})
		r.now.file = nil
	}
}
