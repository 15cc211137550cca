package schema

import (
	"fmt"

	"agentstream/schema/jsonscan"
)

// ParseSnapshot reads what AppendSnapshot wrote and returns a fold that goes on where that one was: the
// same events behind it lead to the same snapshots. The error wraps ErrMalformed. It is lenient: a
// field that is missing or of an unexpected kind counts as null.
func ParseSnapshot(data []byte) (*Fold, error) {
	if err := checkNested(data, maxViewDepth); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	p := jsonscan.Fields(nil).Read(data)
	if p == nil || p.Array("messages") == nil {
		return nil, fmt.Errorf("snapshot: not one: %w", ErrMalformed)
	}
	f := &Fold{
		Run: p.Str("run_id"), Last: seqOf(p, "last_seq"), id: []byte(p.Str("last_id")), ts: []byte(p.Str("last_ts")),
		State: RunState(p.Str("state")), Reason: p.Str("reason"), StateSeq: seqOf(p, "state_seq"), StateTS: p.Str("state_ts"),
		Gate: p.Str("planning_gate"),
	}
	f.newLane("", nil).restoreBorders(p, f.State, f.StateSeq)
	f.Session = f.keep(p.Object("session"))
	f.waits.setState("", f.State)
	f.eachObject(p, "children", f.restoreChild)
	f.restorePlan(p.Object("plan"))
	f.eachObject(p, "messages", f.restoreMessage)
	f.eachObject(p, "starts", f.restoreStart)
	f.eachObject(p, "tool_calls", f.restoreCall)
	f.eachObject(p, "inputs", f.restoreInput)
	f.eachObject(p, "waits", f.restoreWait)
	f.eachObject(p, "settled", f.restoreSettled)
	answered := make(map[Seq][]*FoldInput)
	for _, in := range f.Inputs {
		answered[in.Answered] = append(answered[in.Answered], in)
	}
	f.eachObject(p, "commands", func(p jsonscan.Fields) { f.restoreCommand(p, answered) })
	f.Usage.restore(f, p.Object("usage"))
	return f, nil
}

func seqOf(l jsonscan.Fields, name string) Seq {
	n, _ := l.Integer(name)
	return Seq(n)
}

func (f *Fold) eachObject(p jsonscan.Fields, name string, fn func(jsonscan.Fields)) {
	for v := range jsonscan.Elements(p.Array(name)) {
		if q := jsonscan.Fields(nil).Read(v); q != nil {
			fn(q)
		}
	}
}

func (l *foldLane) restoreBorders(p jsonscan.Fields, state RunState, since Seq) {
	l.turn, l.final = seqOf(p, "turn_seq"), seqOf(p, "final_seq")
	if l.final == 0 && state.Final() {
		l.final = since
	}
}

// restoreLane returns the lane of an entry.
func (f *Fold) restoreLane(p jsonscan.Fields) *foldLane {
	id := p.Str("child_id")
	if l := f.lanes[id]; l != nil {
		return l
	}
	return f.newLane(id, &FoldChild{ID: id})
}

func (f *Fold) restoreChild(p jsonscan.Fields) {
	id := p.Str("child_id")
	if id == "" || f.lanes[id] != nil {
		return
	}
	c := &FoldChild{
		ID: id, Parent: p.Str("parent_id"), Prompt: f.word(p.Str("prompt")), Tools: f.keep(p.Array("tools_allowed")),
		Spawned: seqOf(p, "spawn_seq"), State: RunState(p.Str("state")), Reason: f.word(p.Str("reason")),
		StateSeq: seqOf(p, "state_seq"),
	}
	f.newLane(id, c).restoreBorders(p, c.State, c.StateSeq)
	f.waits.setState(id, c.State)
}

func (f *Fold) restoreStart(p jsonscan.Fields) {
	l := f.restoreLane(p)
	m := &FoldMessage{
		ID: p.Str("message_id"), Child: l.id(), Role: p.Str("role"), Model: p.Str("model"), Usage: f.keep(p.Object("usage")),
		Start: seqOf(p, "start_seq"),
	}
	if l.open == nil && l.named[m.ID] != nil {
		f.holdStart(l, m)
	}
}

func (f *Fold) restorePlan(raw []byte) {
	p := jsonscan.Fields(nil).Read(raw)
	if p == nil {
		return
	}
	f.Plan = &FoldPlan{
		ID: p.Str("plan_id"), Child: p.Str("child_id"), Seq: seqOf(p, "seq"), Gate: p.Str("gate"),
		Decision: p.Str("decision"), Decided: seqOf(p, "decided_seq"), Payload: f.keep(p.Object("payload")),
	}
}

func (f *Fold) restoreMessage(p jsonscan.Fields) {
	l := f.restoreLane(p)
	m := &FoldMessage{
		ID: p.Str("message_id"), Child: l.id(), Role: p.Str("role"), Model: p.Str("model"), implicit: !p.Yes("announced"),
		Start: seqOf(p, "start_seq"), End: seqOf(p, "end_seq"), StopReason: f.word(p.Str("stop_reason")),
		Usage: f.keep(p.Object("usage")), Error: f.keep(p.Some("error")),
	}
	f.eachObject(p, "blocks", func(p jsonscan.Fields) { f.restoreBlock(m, p) })
	if m.End == 0 {
		l.open = m
		f.talking.Set(l, struct{}{})
	} else {
		m.byIndex, m.byCall = nil, nil
	}
	f.addMessage(m)
}

func (f *Fold) restoreBlock(m *FoldMessage, p jsonscan.Fields) {
	b := &FoldBlock{
		Index: int(seqOf(p, "index")), Kind: p.Str("kind"), Call: p.Str("call_id"), Tool: p.Str("tool"),
		Input:    f.keep(p.Raw("input")),
		Complete: p.Yes("complete"), Raw: f.keep(p.Some("block")), MediaType: f.word(p.Str("media_type")),
		Name:   f.word(p.Str("name")),
		closed: !p.Yes("open"),
	}
	b.Text.inner = f.keep(p.Inner("text"))
	for v := range jsonscan.Elements(p.Array("data")) {
		b.Data = append(b.Data, f.word(jsonscan.DecodeString(v)))
		f.size += 32
	}
	f.addBlock(m, b)
}

func (f *Fold) restoreCall(p jsonscan.Fields) {
	l := f.restoreLane(p)
	c := &FoldCall{
		ID: p.Str("call_id"), Child: l.id(), Tool: f.word(p.Str("tool")), Input: f.keep(p.Some("input")),
		Done: p.Str("state") != "running", OK: p.Str("state") == "ok", Output: f.keep(p.Some("output")),
		Error:    f.keep(p.Some("error")),
		Duration: f.keep(p.Number("duration_ms")), Blob: f.word(p.Str("blob_ref")), Start: seqOf(p, "start_seq"),
		End:      seqOf(p, "end_seq"),
		implicit: p.Raw("announced") != nil && !p.Yes("announced"),
	}
	c.Stream.inner = f.keep(p.Inner("streamed"))
	if l.calls == nil {
		l.calls = make(map[string]*FoldCall)
	}
	l.calls[c.ID] = c
	f.Calls = append(f.Calls, c)
	f.size += otherCost + len(c.ID) + len(c.Child)
	if said := c.sum(); said != 0 && !c.Done {
		f.waits.start(c.Child, askID(c.ID), said)
	}
}

func (f *Fold) restoreInput(p jsonscan.Fields) {
	in := &FoldInput{
		ID: p.Str("request_id"), Child: p.Str("child_id"), Prompt: f.word(p.Str("prompt")),
		Options: f.keep(p.Array("options")), Schema: f.keep(p.Object("schema")), Seq: seqOf(p, "seq"),
		Answer:   f.keep(p.Some("answer")),
		Answered: seqOf(p, "answered_seq"), Ended: seqOf(p, "ended_seq"),
	}
	f.addInput(in)
}

// restoreSettled restores what has ended and is not asked again.
func (f *Fold) restoreSettled(p jsonscan.Fields) {
	a := Ask{Child: p.Str("child_id"), Request: p.Str("request_id"), Call: p.Str("call_id")}
	a.Said = f.sumOf(&a)
	f.waits.remember(a)
}

// sumOf returns Ask.Said of a question, or of one that has ended: what it said is in the newest request, or
// call, of its id.
func (f *Fold) sumOf(a *Ask) uint32 {
	if a.Request != "" {
		if in := f.inputs[laneKey{a.Child, a.Request}]; in != nil {
			return sumWords([]byte(in.Prompt), in.Options, in.Schema)
		}
		return 0
	}
	l := f.lanes[a.Child]
	if l == nil || l.calls[a.Call] == nil {
		return 0
	}
	return l.calls[a.Call].sum()
}

func (f *Fold) restoreWait(p jsonscan.Fields) {
	a := Ask{
		Seq: seqOf(p, "seq"), Child: p.Str("child_id"), Request: p.Str("request_id"), Call: p.Str("call_id"),
		Told: p.Yes("cancelling"), Idle: p.Yes("turn_ended"),
	}
	a.Said = f.sumOf(&a)
	if a.Request != "" && !f.waits.Request(a.Child, a.Request) || a.Request == "" && a.Call != "" &&
		f.waits.own(a.Child, a.Call) == nil {
		f.waits.add(a)
	}
}

func (f *Fold) restoreCommand(p jsonscan.Fields, answered map[Seq][]*FoldInput) {
	kind, ok := commandKindOf(commandPrefix + p.Str("command"))
	if !ok {
		return
	}
	ev := foldEvent{seq: seqOf(p, "seq"), actor: p.Str("actor"), lane: f.restoreLane(p), payload: p.Object("payload")}
	c := f.wait(&ev, kind)
	if kind != commandAnswer {
		return
	}
	for _, in := range answered[c.Seq] {
		in.waiting = c
	}
}

func (u *FoldUsage) restore(f *Fold, raw []byte) {
	p := jsonscan.Fields(nil).Read(raw)
	count := func(into *UsageCount, obj []byte) {
		for _, field := range jsonscan.Fields(nil).Read(obj) {
			if n, ok := jsonscan.WholeNumber(field.Value); ok {
				f.size += into.add(string(field.Name), n)
			}
		}
	}
	count(&u.Total, p.Object("total"))
	for _, m := range jsonscan.Fields(nil).Read(p.Object("by_model")) {
		count(&u.model(string(m.Name)).count, m.Value)
		f.size += otherCost + len(m.Name)
	}
}
