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
	if was := f.Plan; was != nil && was.Child == ev.lane.id() && was.Decision != "rejected" && bytes.Equal(was.Payload, ev.payload) {
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
