package schema

import (
	"cmp"
	"slices"

	"agentstream/schema/jsonscan"
)

// FoldInput is one request for input of a person. One that comes again while it waits is the same; after its end it is
// another one.
type FoldInput struct {
	ID       string
	Child    string
	Prompt   string
	Options  []byte
	Schema   []byte
	Seq      Seq
	Answer   []byte
	Answered Seq // seq of the first answer; 0: there is none
	Ended    Seq // seq of the event that ended it without an answer; 0: there is none
	waiting  *FoldCommand
}

// Open reports whether the request waits for an answer.
func (in *FoldInput) Open() bool { return in.Answered == 0 && in.Ended == 0 }

func inputKey(child, id string) laneKey { return laneKey{child, askID(id)} }

// Questions returns those that wait. It must not be changed.
func (f *Fold) Questions() *Waits { return &f.waits }

// ask looks what an event means for the questions.
func (f *Fold) ask(ev *foldEvent, p jsonscan.Fields) {
	e, ok := ReadAsk(ev.seq, ev.typ, ev.lane.id(), p)
	if !ok {
		return
	}
	ev.call = e.Call
	ev.ended, ev.asked = f.waits.Apply(&e)
	for _, a := range ev.ended {
		in := f.inputs[laneKey{a.Child, a.Request}]
		if a.Request == "" || in == nil || !in.Open() {
			continue
		}
		if e.Answer() {
			in.Answered, in.Answer = ev.seq, f.keep(p.Raw("answer"))
		} else {
			in.Ended = ev.seq
		}
	}
}

// request adds a request for input, unless it waits already.
func (f *Fold) request(ev *foldEvent, p jsonscan.Fields) {
	if !ev.asked {
		return
	}
	f.addInput(&FoldInput{
		ID: p.Str("request_id"), Child: ev.lane.id(), Seq: ev.seq,
		Prompt: f.word(p.Str("prompt")), Options: f.keep(p.Array("options")), Schema: f.keep(p.Object("schema")),
	})
}

func (f *Fold) addInput(in *FoldInput) {
	if f.inputs == nil {
		f.inputs, f.named = make(map[laneKey]*FoldInput), make(map[string]*FoldInput)
	}
	f.inputs[inputKey(in.Child, in.ID)], f.named[in.ID] = in, in
	f.Inputs = append(f.Inputs, in)
	f.size += otherCost + len(in.ID) + len(in.Child)
}

// Input returns the newest request of that id: of a lane, or of any when the lane has none; nil when there is none.
func (f *Fold) Input(child, id string) *FoldInput {
	if in := f.inputs[inputKey(child, id)]; in != nil {
		return in
	}
	return f.named[id]
}

// answer takes a client's answer. It waits for the agent, like any command.
func (f *Fold) answer(ev *foldEvent) {
	var waiting *FoldCommand
	for _, a := range ev.ended {
		in := f.inputs[laneKey{a.Child, a.Request}]
		if a.Request == "" || in == nil || f.State.Final() || f.StateOf(ev.lane.id()).Final() {
			continue
		}
		if waiting == nil {
			waiting = f.wait(ev, commandAnswer)
		}
		in.waiting = waiting
	}
}

// applyAnswer takes the agent's report of an answer: the client's is obeyed.
func (f *Fold) applyAnswer(ev *foldEvent, p jsonscan.Fields) {
	in := f.Input(ev.lane.id(), p.Str("request_id"))
	if in != nil && in.waiting != nil {
		f.dropCommand(in.waiting)
		in.waiting = nil
	}
}

// OpenInputs returns the requests that wait for an answer, in order.
func (f *Fold) OpenInputs() []*FoldInput {
	return slices.DeleteFunc(slices.Clone(f.Inputs), func(in *FoldInput) bool { return !in.Open() })
}

// Wait is something that a run waits for.
type Wait struct {
	For   string // WaitsForAnswer, WaitsForApproval, WaitsForResume
	ID    string // of the request or the call, or of the plan; "" when it has none
	Child string // whose it is; "" is the run itself
}

// Waiting returns what somebody has to do so that the run goes on: questions, oldest first, the plan, and who is
// paused.
func (f *Fold) Waiting() (list []Wait) {
	for _, a := range f.waits.Open() {
		list = append(list, Wait{WaitsForAnswer, cmp.Or(a.Request, a.Call), a.Child})
	}
	if f.PlanWaits() {
		list = append(list, Wait{WaitsForApproval, f.Plan.ID, f.Plan.Child})
	}
	if f.State == StatePaused {
		list = append(list, Wait{For: WaitsForResume})
	}
	if f.State.Final() {
		return list
	}
	for _, c := range f.Children {
		if c.State == StatePaused {
			list = append(list, Wait{WaitsForResume, "", c.ID})
		}
	}
	return list
}

// PlanWaits reports whether the plan can be approved or rejected. With the gate "required" it waits for that in
// awaiting_approval. With "preview" the agent goes on meanwhile, so it waits as long as the run goes on.
func (f *Fold) PlanWaits() bool {
	if f.Plan == nil || f.Plan.Decided != 0 || f.State.Final() {
		return false
	}
	state := f.StateOf(f.Plan.Child)
	return state == StateAwaitingApproval || f.Plan.Gate == "preview" && !state.Final()
}

// IsWaiting reports whether the run, or one of its children, goes on when a person or a client has done
// something: answered a question, decided on a plan, resumed what is paused. It does not when that was done
// already, or when it was told to cancel: then its agent is to go on.
func (f *Fold) IsWaiting() bool {
	if f.State.Final() {
		return false
	}
	if f.waits.isWaiting() || f.isHeld("", f.State, f.StateSeq) {
		return true
	}
	for _, c := range f.Children {
		if f.isHeld(c.ID, c.State, c.StateSeq) {
			return true
		}
	}
	return false
}

// isHeld reports whether a lane is in a state that a client has to end, and no command to go on or to cancel
// has come since.
func (f *Fold) isHeld(child string, state RunState, since Seq) bool {
	l := f.lanes[child]
	if l == nil || state != StatePaused && state != StateAwaitingApproval {
		return false
	}
	kinds := []commandKind{commandCancel, commandRedirect}
	if state == StatePaused {
		kinds = append(kinds, commandResume)
	} else if p := f.Plan; p != nil && p.Child == child && p.Decided > since {
		return false
	}
	for _, kind := range kinds {
		if list := l.waiting[kind]; len(list) > 0 && list[len(list)-1].Seq > since {
			return false
		}
	}
	return true
}
