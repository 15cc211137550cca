package schema

import "fmt"

// ParseSnapshot reads what AppendSnapshot wrote and gives a fold that goes on where that one was: the
// same events behind it lead to the same snapshots. The error wraps ErrMalformed. It is lenient: a
// field that is missing or of an unexpected kind counts as null.
func ParseSnapshot(data []byte) (*Fold, error) {
	if err := checkNested(data, maxViewDepth); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	p := fieldList(nil).read(data)
	if p == nil || p.array("messages") == nil {
		return nil, fmt.Errorf("snapshot: not one: %w", ErrMalformed)
	}
	f := &Fold{
		Run: p.str("run_id"), Last: p.seq("last_seq"), id: []byte(p.str("last_id")), ts: []byte(p.str("last_ts")),
		State: RunState(p.str("state")), Reason: p.str("reason"), StateSeq: p.seq("state_seq"), StateTS: p.str("state_ts"),
		Gate: p.str("planning_gate"),
	}
	f.newLane("", nil)
	f.eachObject(p, "children", f.restoreChild)
	f.restorePlan(p.object("plan"))
	f.eachObject(p, "messages", f.restoreMessage)
	f.eachObject(p, "tool_calls", f.restoreCall)
	f.eachObject(p, "inputs", f.restoreInput)
	f.eachObject(p, "commands", f.restoreCommand)
	f.Usage.restore(f, p.object("usage"))
	return f, nil
}

func (l fieldList) seq(name string) Seq {
	n, _ := l.integer(name)
	return Seq(n)
}

func (f *Fold) eachObject(p fieldList, name string, fn func(fieldList)) {
	each(p.array(name), func(v []byte) {
		if q := fieldList(nil).read(v); q != nil {
			fn(q)
		}
	})
}

// restoreLane returns the lane of an entry.
func (f *Fold) restoreLane(p fieldList) *foldLane {
	id := p.str("child_id")
	if l := f.lanes[id]; l != nil {
		return l
	}
	return f.newLane(id, &FoldChild{ID: id})
}

func (f *Fold) restoreChild(p fieldList) {
	id := p.str("child_id")
	if id == "" || f.lanes[id] != nil {
		return
	}
	f.newLane(id, &FoldChild{
		ID: id, Parent: p.str("parent_id"), Prompt: f.word(p.str("prompt")), Tools: f.keep(p.array("tools_allowed")),
		Spawned: p.seq("spawn_seq"), State: RunState(p.str("state")), Reason: f.word(p.str("reason")), StateSeq: p.seq("state_seq"),
	})
}

func (f *Fold) restorePlan(raw []byte) {
	p := fieldList(nil).read(raw)
	if p == nil {
		return
	}
	f.Plan = &FoldPlan{
		ID: p.str("plan_id"), Child: p.str("child_id"), Seq: p.seq("seq"), Gate: p.str("gate"),
		Decision: p.str("decision"), Decided: p.seq("decided_seq"), Payload: f.keep(p.object("payload")),
	}
}

func (f *Fold) restoreMessage(p fieldList) {
	l := f.restoreLane(p)
	m := &FoldMessage{
		ID: p.str("message_id"), Child: l.id(), Role: p.str("role"), Model: p.str("model"), implicit: !p.yes("announced"),
		Start: p.seq("start_seq"), End: p.seq("end_seq"), StopReason: f.word(p.str("stop_reason")),
		Usage: f.keep(p.object("usage")), Error: f.keep(p.some("error")),
	}
	f.eachObject(p, "blocks", func(p fieldList) { f.restoreBlock(m, p) })
	if m.End == 0 {
		l.open = m
		f.talking[l] = struct{}{}
	} else {
		m.byIndex, m.byCall = nil, nil
	}
	f.addMessage(m)
}

func (f *Fold) restoreBlock(m *FoldMessage, p fieldList) {
	b := &FoldBlock{
		Index: int(p.seq("index")), Kind: p.str("kind"), Call: p.str("call_id"), Tool: p.str("tool"), Input: f.keep(p.raw("input")),
		Complete: p.yes("complete"), Raw: f.keep(p.some("block")), MediaType: f.word(p.str("media_type")), Name: f.word(p.str("name")),
		closed: !p.yes("open"),
	}
	b.Text.inner = f.keep(p.inner("text"))
	each(p.array("data"), func(v []byte) {
		b.Data = append(b.Data, f.word(decodeExact(v)))
		f.size += 32
	})
	f.addBlock(m, b)
}

func (f *Fold) restoreCall(p fieldList) {
	l := f.restoreLane(p)
	c := &FoldCall{
		ID: p.str("call_id"), Child: l.id(), Tool: f.word(p.str("tool")), Input: f.keep(p.some("input")),
		Done: p.str("state") != "running", OK: p.str("state") == "ok", Output: f.keep(p.some("output")), Error: f.keep(p.some("error")),
		Duration: f.keep(p.number("duration_ms")), Blob: f.word(p.str("blob_ref")), Start: p.seq("start_seq"), End: p.seq("end_seq"),
	}
	c.Stream.inner = f.keep(p.inner("streamed"))
	if l.calls == nil {
		l.calls = make(map[string]*FoldCall)
	}
	l.calls[c.ID] = c
	f.Calls = append(f.Calls, c)
	f.size += otherCost + len(c.ID) + len(c.Child)
}

func (f *Fold) restoreInput(p fieldList) {
	in := &FoldInput{
		ID: p.str("request_id"), Child: p.str("child_id"), Prompt: f.word(p.str("prompt")), Options: f.keep(p.array("options")),
		Schema: f.keep(p.object("schema")), Seq: p.seq("seq"), Answer: f.keep(p.some("answer")), Answered: p.seq("answered_seq"),
	}
	if f.inputs == nil {
		f.inputs = make(map[string]*FoldInput)
	}
	f.inputs[in.ID] = in
	f.Inputs = append(f.Inputs, in)
	f.size += otherCost + len(in.ID) + len(in.Child)
}

func (f *Fold) restoreCommand(p fieldList) {
	kind, ok := commandKindOf(commandPrefix + p.str("command"))
	if !ok {
		return
	}
	ev := foldEvent{seq: p.seq("seq"), actor: p.str("actor"), lane: f.restoreLane(p), payload: p.object("payload")}
	c := f.wait(&ev, kind)
	if kind != commandAnswer {
		return
	}
	if in := f.inputs[fieldList(nil).read(c.Payload).str("request_id")]; in != nil && in.Answered == c.Seq {
		in.waiting = c
	}
}

func (u *FoldUsage) restore(f *Fold, raw []byte) {
	p := fieldList(nil).read(raw)
	count := func(into *UsageCount, obj []byte) {
		for _, field := range fieldList(nil).read(obj) {
			if n, ok := wholeNumber(field.value); ok {
				f.size += into.add(string(field.name), n)
			}
		}
	}
	count(&u.Total, p.object("total"))
	for _, m := range fieldList(nil).read(p.object("by_model")) {
		count(&u.model(string(m.name)).count, m.value)
		f.size += otherCost + len(m.name)
	}
}
