package schema

import (
	"slices"
	"strings"

	"agentstream/schema/jsonscan"
)

// FoldCommand is a command that the agent has not obeyed yet.
type FoldCommand struct {
	Name    string // without "command."
	Child   string // whom it is for; "" is the run itself
	Seq     Seq
	Actor   string
	Payload []byte
	lane    *foldLane
	kind    commandKind
	settled bool
}

// commandKind is a kind of commands that are settled in the same way.
type commandKind int

const (
	commandCancel commandKind = iota
	commandPause
	commandResume
	commandRedirect
	commandApprove
	commandReject
	commandAnswer
	commandMessage
	commandKinds
)

// commandPrefix begins the type of every command.
const commandPrefix = "command."

var commandNames = [commandKinds]string{
	commandCancel: "cancel", commandPause: "pause", commandResume: "resume", commandRedirect: "redirect",
	commandApprove: "approve_plan", commandReject: "reject_plan", commandAnswer: "answer", commandMessage: "message",
}

func commandKindOf(typ string) (commandKind, bool) {
	name, ok := strings.CutPrefix(typ, commandPrefix)
	if !ok {
		return 0, false
	}
	i := slices.Index(commandNames[:], name)
	return commandKind(i), i >= 0
}

// Commands returns the commands that wait, in order. What settles one: for cancel a final run.lifecycle
// of its lane; for pause paused, or a resume after it; for resume a state that is not paused; for
// redirect redirecting; for approve_plan and reject_plan, which wait only while the state is
// awaiting_approval, a state that is neither that nor paused; for answer the request's input.answered;
// for message the next message of the assistant. A final state of its lane or of the root settles
// every command.
func (f *Fold) Commands() []*FoldCommand {
	return slices.DeleteFunc(slices.Clone(f.commands), func(c *FoldCommand) bool { return c.settled })
}

// HasWaiting reports whether a command of that name (without "command.") waits for a lane.
func (f *Fold) HasWaiting(child, name string) bool {
	i := slices.Index(commandNames[:], name)
	l := f.lanes[child]
	return i >= 0 && l != nil && len(l.waiting[i]) > 0
}

func (f *Fold) command(ev *foldEvent, kind commandKind, p jsonscan.Fields) {
	l := ev.lane
	state := f.StateOf(l.id())
	switch kind {
	case commandMessage:
		if !f.light {
			f.addUserMessage(ev, p)
		}
		if state.Final() && l.child == nil && p.Str("role") != roleSystem {
			f.State, f.Reason, f.StateSeq, f.StateTS = StatePlanning, "", ev.seq, string(f.ts)
		}
	case commandResume:
		f.settle(l, commandPause)
	case commandApprove, commandReject:
		if !f.decide(ev, kind, p) || state != StateAwaitingApproval {
			return
		}
	case commandAnswer:
		f.answer(ev)
		return
	}
	if f.State.Final() {
		return // nobody takes what follows the end
	}
	if kind == commandMessage && !f.light || kind != commandMessage && !state.Final() {
		f.wait(ev, kind)
	}
}

// wait adds a command to those that wait.
func (f *Fold) wait(ev *foldEvent, kind commandKind) *FoldCommand {
	l := ev.lane
	c := &FoldCommand{Name: commandNames[kind], Child: l.id(), Seq: ev.seq, Actor: ev.actor,
		Payload: f.keep(ev.payload), lane: l, kind: kind}
	f.size += otherCost
	f.commands = append(f.commands, c)
	l.waiting[kind] = append(l.waiting[kind], c)
	return c
}

// addUserMessage adds what a person writes as a message.
func (f *Fold) addUserMessage(ev *foldEvent, p jsonscan.Fields) {
	m := &FoldMessage{ID: p.Str("message_id"), Child: ev.lane.id(), Role: "user", Start: ev.seq, End: ev.seq}
	f.content(m, p.Raw("content"))
	m.closeBlocks()
	m.byIndex, m.byCall = nil, nil
	f.addMessage(m)
}

// decide lets a command decide the open plan. It reports whether it did.
func (f *Fold) decide(ev *foldEvent, kind commandKind, p jsonscan.Fields) bool {
	plan := f.Plan
	if plan == nil || plan.Decided != 0 || plan.Child != ev.lane.id() {
		return false
	}
	if id := p.Str("plan_id"); id != "" && id != plan.ID {
		return false
	}
	plan.Decision, plan.Decided = "approved", ev.seq
	if kind == commandReject {
		plan.Decision = "rejected"
	}
	return true
}

// settleState settles what a lane's new state answers.
func (f *Fold) settleState(l *foldLane, st RunState) {
	switch {
	case st.Final() && l.child == nil:
		f.settleAll()
		return
	case st.Final():
		for kind := range commandKinds {
			f.settle(l, kind)
		}
		return
	case st == StatePaused:
		f.settle(l, commandPause)
		return
	}
	f.settle(l, commandResume)
	if st == StateRedirecting {
		f.settle(l, commandRedirect)
	}
	if st != StateAwaitingApproval {
		f.settle(l, commandApprove)
		f.settle(l, commandReject)
	}
}

// settle drops a lane's waiting commands of one kind.
func (f *Fold) settle(l *foldLane, kind commandKind) {
	for _, c := range l.waiting[kind] {
		f.dropCommand(c)
	}
	l.waiting[kind] = nil
}

func (f *Fold) settleAll() {
	for _, c := range f.commands {
		if !c.settled {
			c.settled = true
			f.size -= otherCost + len(c.Payload)
		}
		c.lane.waiting[c.kind] = nil
	}
	f.commands, f.settled = nil, 0
}

// dropCommand drops one command, and makes room when half of them have been dropped.
func (f *Fold) dropCommand(c *FoldCommand) {
	if c.settled {
		return
	}
	c.settled = true
	f.size -= otherCost + len(c.Payload)
	if f.settled++; f.settled > 32 && f.settled*2 > len(f.commands) {
		f.commands = slices.DeleteFunc(f.commands, func(c *FoldCommand) bool { return c.settled })
		f.settled = 0
	}
}
