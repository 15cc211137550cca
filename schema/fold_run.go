package schema

import (
	"bytes"

	"agentstream/schema/jsonscan"
)

// FoldPlan is a proposed plan.
type FoldPlan struct {
	ID       string // plan.id of the payload
	Child    string // child that proposed it; "" is the run itself
	Seq      Seq
	Gate     string // required, preview or ""
	Decision string // "", approved or rejected
	Decided  Seq    // seq of the command that decided it; 0: open
	Payload  []byte // of plan.proposal
}

// FoldUsage sums the whole numbers of message.end's usage by their names.
type FoldUsage struct {
	Total  UsageCount
	models []*modelUsage
	byName map[string]*modelUsage
}

type modelUsage struct {
	model string
	count UsageCount
}

// UsageCount holds sums by name, in the order in which the names came. Sums stop at 2^53-1.
type UsageCount struct {
	names []string
	sums  map[string]int64
}

// Get returns one sum.
func (u *UsageCount) Get(name string) int64 { return u.sums[name] }

// Names returns the names of what is summed, in the order in which they came. It must not be changed.
func (u *UsageCount) Names() []string { return u.names }

func (u *UsageCount) add(name string, n int64) (cost int) {
	if u.sums == nil {
		u.sums = make(map[string]int64)
	}
	if _, ok := u.sums[name]; !ok {
		u.names = append(u.names, name)
		cost = len(name) + 64
	}
	u.sums[name] = min(u.sums[name]+n, int64(MaxSeq))
	return cost
}

// add counts what a message used.
func (u *FoldUsage) add(f *Fold, model string, usage []byte) {
	if usage == nil {
		return
	}
	m := u.byName[model]
	if m == nil {
		m = u.model(model)
		f.size += otherCost + len(model)
	}
	for _, field := range jsonscan.Fields(nil).Read(usage) {
		if n, ok := jsonscan.WholeNumber(field.Value); ok {
			f.size += u.Total.add(string(field.Name), n) + m.count.add(string(field.Name), n)
		}
	}
}

func (u *FoldUsage) model(name string) *modelUsage {
	if u.byName == nil {
		u.byName = make(map[string]*modelUsage)
	}
	m := &modelUsage{model: name}
	u.byName[name] = m
	u.models = append(u.models, m)
	return m
}

// Of returns the sums of one model.
func (u *FoldUsage) Of(model string) UsageCount {
	if m := u.byName[model]; m != nil {
		return m.count
	}
	return UsageCount{}
}

func (f *Fold) lifecycle(ev *foldEvent, p jsonscan.Fields) {
	st := RunState(p.Str("state"))
	if !st.valid() {
		return
	}
	l := ev.lane
	if l.child == nil {
		if f.State != st { // else it has been so for longer
			f.StateSeq, f.StateTS = ev.seq, string(f.ts)
		}
		f.State, f.Reason = st, f.word(p.Str("reason"))
		if gate := gateOf(p); gate != "" {
			f.Gate = gate
		}
	} else {
		if l.child.State != st {
			l.child.StateSeq = ev.seq
		}
		l.child.State, l.child.Reason = st, f.word(p.Str("reason"))
	}
	f.settleState(l, st)
	if !st.Final() {
		return
	}
	l.final = ev.seq
	if l.child != nil {
		if l.open != nil {
			f.closeMessage(l, ev.seq)
		}
		return
	}
	for talking := range f.talking.All() {
		f.closeMessage(talking, ev.seq)
	}
}

// describe merges what is said of the run. Of children nothing is kept.
func (f *Fold) describe(ev *foldEvent) {
	if ev.lane.child != nil {
		return
	}
	before := len(f.Session)
	f.Session = MergeSession(f.Session, ev.typ, string(f.ts), ev.payload)
	f.size += len(f.Session) - before
}

func gateOf(p jsonscan.Fields) string {
	switch gate := p.Str("planning_gate"); gate {
	case "required", "preview":
		return gate
	}
	return ""
}

// propose takes a plan. The one that is there, once more, changes nothing, unless it was rejected: then it is proposed
// again.
func (f *Fold) propose(ev *foldEvent, p jsonscan.Fields) {
	if was := f.Plan; was != nil && was.Child == ev.lane.id() && was.Decision != "rejected" &&
		bytes.Equal(was.Payload, ev.payload) {
		return
	}
	plan := &FoldPlan{Child: ev.lane.id(), Seq: ev.seq, Gate: gateOf(p), Payload: f.keep(ev.payload)}
	if plan.Gate == "" {
		plan.Gate = f.Gate
	}
	plan.ID = jsonscan.Fields(nil).Read(p.Object("plan")).Str("id")
	if f.Plan != nil {
		f.size -= len(f.Plan.Payload)
	}
	f.Plan = plan
}

// spawn announces a child. One that is known already keeps its parent.
func (f *Fold) spawn(ev *foldEvent, p jsonscan.Fields) {
	id := p.Str("child_id")
	if id == "" {
		return
	}
	l := f.lanes[id]
	if l == nil {
		l = f.newLane(id, &FoldChild{ID: id, Parent: ev.lane.id()})
	}
	if l.child.Spawned == 0 {
		l.child.Spawned, l.child.Prompt, l.child.Tools = ev.seq, f.word(p.Str("prompt")), f.keep(p.Array("tools_allowed"))
	}
}

// FoldCall is one tool call. An id that comes again behind its end is another call, unless it is the same start once
// more.
type FoldCall struct {
	ID         string
	Child      string
	Tool       string
	Input      []byte
	Done       bool
	OK         bool
	Output     []byte
	Error      []byte
	Duration   []byte   // duration_ms as it came
	Blob       string   // blob_ref
	Stream     JSONText // tool.output.delta
	Start, End Seq

	implicit bool // no tool.start of it has come
}

// tool takes what becomes of a call. Its first start and its first end count. One whose start is missing has its name
// from the message that asked for it, and what its start says when that comes late.
func (f *Fold) tool(ev *foldEvent, p jsonscan.Fields) {
	id := p.Same("call_id", ev.call)
	c := ev.lane.calls[id]
	if ev.typ == TypeToolStart {
		f.startCall(ev, c, id, p)
		return
	}
	by := ev.lane.asked[id]
	askedAgain := c != nil && f.isCallOver(ev.lane, c) && by.message != nil && by.message.Start > c.Start
	if ev.typ == TypeToolRun && (by.block == nil || c != nil && !askedAgain) {
		return
	}
	if c == nil || askedAgain { // its start is missing
		c = f.addCall(ev, id)
		c.implicit = true
		if by.block != nil {
			c.Tool, c.Input = f.word(by.block.Tool), f.keep(by.block.Input)
		}
	}
	switch {
	case ev.typ == TypeToolOutputDelta:
		text := p.Inner("text")
		c.Stream.inner = append(c.Stream.inner, text...)
		f.size += len(text)
	case ev.typ == TypeToolEnd && !c.Done:
		c.Done, c.OK, c.End = true, p.Yes("ok"), ev.seq
		c.Output, c.Error = f.keep(p.Raw("output")), f.keep(toolError(p))
		c.Duration, c.Blob = f.keep(p.Number("duration_ms")), f.word(p.Str("blob_ref"))
	}
}

// startCall takes the start of a call of which c is the newest with its id.
func (f *Fold) startCall(ev *foldEvent, c *FoldCall, id string, p jsonscan.Fields) {
	if m := ev.lane.open; m != nil && m.implicit {
		m.closeBlocks()
	}
	tool, input := p.Str("tool"), p.Some("input")
	switch {
	case c == nil:
		c = f.addCall(ev, id)
	case f.isCallOver(ev.lane, c) && f.mayAskAgain(ev.lane, c):
		c = f.addCall(ev, id)
	case c.implicit: // this is late, whatever the call is known by
		if c.Start == c.End {
			c.Start = ev.seq
		}
	case c.Tool == tool && bytes.Equal(c.Input, input):
		return
	default:
		c = f.addCall(ev, id)
	}
	c.Tool, c.Input, c.implicit = f.word(tool), f.keep(input), false
}

// sum returns Ask.Said of the call; 0 when its start is missing.
func (c *FoldCall) sum() uint32 {
	if c.implicit {
		return 0
	}
	return sumWords([]byte(c.Tool), c.Input)
}

// asking is the newest block that asks for a call, and its message.
type asking struct {
	message *FoldMessage
	block   *FoldBlock
}

// isCallOver reports whether a call has ended, or its lane or the run has since it began.
func (f *Fold) isCallOver(l *foldLane, c *FoldCall) bool {
	final := l.final
	if root := f.lanes[""]; root != nil {
		final = max(final, root.final)
	}
	return c.Done || final > c.Start
}

// mayAskAgain reports whether a call that is over may have been asked for once more since it began: ids may
// be used again, or a later message asks for it, or one of which nothing is known but that it has begun.
func (f *Fold) mayAskAgain(l *foldLane, c *FoldCall) bool {
	if m := l.open; m != nil && !m.implicit && len(m.Blocks) == 0 && m.Start > c.Start {
		return true
	}
	if by := l.asked[c.ID]; by.message != nil && by.message.Start > c.Start {
		return true
	}
	return f.reuseSeq(l) > c.Start
}

// addCall adds a call, which is the newest of its id from then on.
func (f *Fold) addCall(ev *foldEvent, id string) *FoldCall {
	l := ev.lane
	if l.calls == nil {
		l.calls = make(map[string]*FoldCall)
	}
	c := &FoldCall{ID: id, Child: l.id(), Start: ev.first}
	f.size += otherCost + len(c.ID) + len(c.Child)
	l.calls[id] = c
	f.Calls = append(f.Calls, c)
	return c
}

// toolError returns what is known of a call's error: the detail, or else the code, which was an object once.
func toolError(p jsonscan.Fields) []byte {
	if detail := p.Some("error_detail"); detail != nil {
		return detail
	}
	return p.Some("error")
}
