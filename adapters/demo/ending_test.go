package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// What may end how, written from the rules (metis digest §7) and not from the code that obeys them. A
// ledger holds what a run has open, checks each event against it, and says which events must follow when
// the run is cancelled now.
type ledger struct {
	lanes map[string]*ledgerLane
	order []*ledgerLane
	calls map[string]bool // ever begun
	ended bool
}

type ledgerLane struct {
	id, parent   string
	state        schema.RunState
	turn, model  string
	message      string
	role         string
	blocks       []*ledgerBlock
	tools, tasks []string // open, as they began
}

type ledgerBlock struct {
	kind, call string
	said       string
	open       bool
	complete   bool
}

func newLedger() *ledger {
	root := &ledgerLane{}
	return &ledger{lanes: map[string]*ledgerLane{"": root}, order: []*ledgerLane{root}, calls: map[string]bool{}}
}

// members are those of payloads that the rules speak of.
type members struct {
	State      schema.RunState
	Reason     string
	ChildID    string `json:"child_id"`
	CallID     string `json:"call_id"`
	TurnID     string `json:"turn_id"`
	MessageID  string `json:"message_id"`
	TaskID     string `json:"task_id"`
	Role, Kind string
	Text, Data string
	Index      int
	OK         *bool
	Complete   *bool
	StopReason string `json:"stop_reason"`
	Content    []struct {
		Type, Text, Thinking, ID string
		Partial                  *string `json:"partial_json"`
		Input                    json.RawMessage
	}
	Error  json.RawMessage       // of tool.end a code, of model.end an object
	Detail struct{ Type string } `json:"error_detail"`
}

var errRule = errors.New("rule broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRule, fmt.Sprintf(format, args...))
}

// take checks the next event and books it.
func (l *ledger) take(e *schema.Event) error {
	if strings.HasPrefix(e.Type, "command") {
		return nil
	}
	var p members
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return broken("%s: %v", e.Type, err)
	}
	lane := l.lanes[e.ChildID]
	switch {
	case l.ended:
		return broken("%s behind the end of the run", e.Type)
	case lane == nil:
		return broken("%s of %s, which nobody announced", e.Type, e.ChildID)
	case lane.state.Final():
		return broken("%s of %s behind its end", e.Type, e.ChildID)
	case lane.turn != "" && e.TurnID != lane.turn:
		return broken("%s is of turn %q and not %q", e.Type, e.TurnID, lane.turn)
	}
	if err := l.book(lane, e.Type, p); err != nil {
		return fmt.Errorf("%s of %q %s: %w", e.Type, e.ChildID, e.Payload, err)
	}
	return nil
}

func (l *ledger) book(lane *ledgerLane, typ string, p members) error {
	inTurn := lane.turn != ""
	switch typ {
	case schema.TypeRunLifecycle:
		lane.state = p.State
		if !p.State.Final() {
			return nil
		}
		l.ended = lane.id == ""
		if open := l.open(lane); len(open) > 1 { // its own state is the last
			return broken("it ends with %v open", open)
		}
	case schema.TypeChildSpawn:
		if l.lanes[p.ChildID] != nil || p.ChildID == "" {
			return broken("it exists")
		}
		c := &ledgerLane{id: p.ChildID, parent: lane.id}
		l.lanes[p.ChildID], l.order = c, append(l.order, c)
	case schema.TypeTurnStart:
		return begin(&lane.turn, p.TurnID)
	case schema.TypeTurnEnd:
		if open := l.open(lane); len(open) != 2 {
			return broken("it ends with %v open", open)
		}
		return end(&lane.turn, p.TurnID)
	case schema.TypeModelStart:
		return errors.Join(must(inTurn, "no turn"), begin(&lane.model, p.CallID))
	case schema.TypeModelEnd:
		return errors.Join(must(lane.message == "", "in a message"), end(&lane.model, p.CallID))
	case schema.TypeTaskStart:
		return add(&lane.tasks, p.TaskID)
	case schema.TypeTaskEnd:
		return remove(&lane.tasks, p.TaskID)
	case schema.TypeToolStart:
		i := slices.IndexFunc(lane.blocks, func(b *ledgerBlock) bool { return b.call == p.CallID && b.complete && !b.open })
		err := errors.Join(must(inTurn && i >= 0, "no message asks for it"),
			must(!l.calls[p.CallID], "it began before"), add(&lane.tools, p.CallID))
		l.calls[p.CallID] = true
		return err
	case schema.TypeToolOutputDelta:
		return must(slices.Contains(lane.tools, p.CallID), "it does not run")
	case schema.TypeToolEnd:
		return errors.Join(must(p.OK != nil, "no ok"), remove(&lane.tools, p.CallID))
	case schema.TypeMessageStart, schema.TypeMessageEnd, schema.TypeBlockStart, schema.TypeBlockEnd,
		schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta, schema.TypeDataDelta:
		return lane.bookMessage(typ, p)
	}
	return nil
}

func (lane *ledgerLane) bookMessage(typ string, p members) error {
	if typ == schema.TypeMessageStart {
		lane.blocks, lane.role = nil, p.Role
		return errors.Join(must(lane.turn != "" && (p.Role == "user") == (lane.model == ""), "no call of a model"),
			begin(&lane.message, p.MessageID))
	}
	if lane.message == "" {
		return broken("no message")
	}
	switch typ {
	case schema.TypeMessageEnd:
		for i, b := range lane.blocks {
			if b.open || i >= len(p.Content) {
				return broken("block %d is open", i)
			}
			c := p.Content[i]
			said := c.Text + c.Thinking + string(c.Input)
			if c.Partial != nil {
				said += *c.Partial
			}
			if said != b.said && b.kind != "image" || c.ID != b.call || (c.Partial == nil) != (b.complete || b.call == "") {
				return broken("block %d says %q, and its deltas %q", i, said, b.said)
			}
		}
		return errors.Join(must(len(p.Content) == len(lane.blocks), "other blocks"), end(&lane.message, p.MessageID))
	case schema.TypeBlockStart:
		lane.blocks = append(lane.blocks, &ledgerBlock{kind: p.Kind, call: p.CallID, open: true})
		return must(p.Index == len(lane.blocks)-1 && p.MessageID == lane.message, "index or message")
	}
	if p.Index >= len(lane.blocks) || !lane.blocks[p.Index].open {
		return broken("block %d is not open", p.Index)
	}
	b := lane.blocks[p.Index]
	if typ == schema.TypeBlockEnd {
		b.open, b.complete = false, p.Complete == nil || *p.Complete
		return must(p.CallID == b.call && p.MessageID == lane.message, "call or message")
	}
	b.said += p.Text
	kind := map[string]string{schema.TypeTextDelta: "text", schema.TypeReasoningDelta: "reasoning",
		schema.TypeToolInputDelta: "tool_use", schema.TypeDataDelta: "image"}[typ]
	return must(kind == b.kind && p.CallID == b.call, "another kind of block")
}

func must(ok bool, what string) error {
	if !ok {
		return broken("%s", what)
	}
	return nil
}

func begin(slot *string, id string) error {
	was := *slot
	*slot = id
	return must(was == "" && id != "", was+" is open")
}

func end(slot *string, id string) error {
	was := *slot
	*slot = ""
	return must(was == id && id != "", was+" is open and not this one")
}

func add(list *[]string, id string) error {
	was := slices.Contains(*list, id)
	*list = append(*list, id)
	return must(!was && id != "", "it is open")
}

func remove(list *[]string, id string) error {
	i := slices.Index(*list, id)
	if i < 0 {
		return broken("it is not open")
	}
	*list = slices.Delete(*list, i, i+1)
	return nil
}

// open returns what must be said to cancel a lane now: lane, type, and what it names. Children come first;
// then the message from the inside out, the model's call, the tools as they began, tasks, the turn.
func (l *ledger) open(lane *ledgerLane) (out []string) {
	for _, c := range l.order {
		if c.parent == lane.id && c != lane && !c.state.Final() {
			out = append(out, l.open(c)...)
		}
	}
	say := func(typ, what string) { out = append(out, fmt.Sprintf("%s %s %s", lane.id, typ, what)) }
	if lane.message != "" {
		for i, b := range lane.blocks {
			if b.open {
				say(schema.TypeBlockEnd, fmt.Sprintf("%s#%d false", lane.message, i))
			}
		}
		say(schema.TypeMessageEnd, lane.message+" cancelled")
	}
	if lane.model != "" {
		say(schema.TypeModelEnd, lane.model+" false cancelled")
	}
	for _, id := range lane.tools {
		say(schema.TypeToolEnd, id+" false cancelled")
	}
	for _, id := range lane.tasks {
		say(schema.TypeTaskEnd, id+" false")
	}
	if lane.turn != "" {
		say(schema.TypeTurnEnd, lane.turn+" cancelled")
	}
	say(schema.TypeRunLifecycle, "aborted")
	return out
}

// named is an event of an ending in the words of ledger.open.
func named(e *schema.Event) string {
	var p members
	_ = json.Unmarshal(e.Payload, &p) // what does not fit names nothing
	no := "true"
	if p.OK != nil && !*p.OK || p.Complete != nil && !*p.Complete {
		no = "false"
	}
	what := string(p.State)
	switch e.Type {
	case schema.TypeBlockEnd:
		what = fmt.Sprintf("%s#%d %s", p.MessageID, p.Index, no)
	case schema.TypeMessageEnd:
		what = p.MessageID + " " + p.StopReason
	case schema.TypeModelEnd:
		_ = json.Unmarshal(p.Error, &p.Detail)
		what = p.CallID + " " + no + " " + p.Detail.Type
	case schema.TypeToolEnd:
		what = p.CallID + " " + no + " " + p.Detail.Type
	case schema.TypeTaskEnd:
		what = p.TaskID + " " + no
	case schema.TypeTurnEnd:
		what = p.TurnID + " " + p.StopReason
	}
	return fmt.Sprintf("%s %s %s", e.ChildID, e.Type, what)
}

// same reports whether two events tell the same.
func same(a, b *schema.Event) bool {
	return a.Type == b.Type && a.ChildID == b.ChildID && a.TurnID == b.TurnID && slices.Equal(a.Path, b.Path) &&
		string(a.Payload) == string(b.Payload)
}

// checkEnding holds a run that was cancelled, or was not in time, to the rules: it tells the whole story
// up to some point, ends what is open there, each thing once and in order, and says nothing more.
func checkEnding(events, whole []schema.Event) error {
	l := newLedger()
	var told []schema.Event // without the commands
	for i := range events {
		if err := l.take(&events[i]); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if !strings.HasPrefix(events[i].Type, "command") {
			told = append(told, events[i])
		}
	}
	if !l.ended {
		return broken("it has no end")
	}
	n, at := 0, newLedger()
	for n < len(told) && n < len(whole) && same(&told[n], &whole[n]) {
		if err := at.take(&told[n]); err != nil {
			return err
		}
		n++
	}
	if n == len(whole) && n == len(told) {
		return nil // too late
	}
	var want, got []string
	if !at.ended {
		want = at.open(at.lanes[""])
	}
	for i := range told[n:] {
		got = append(got, named(&told[n+i]))
	}
	if !slices.Equal(want, got) {
		return broken("behind %d events of the story it ends with\n\t%s\nand not\n\t%s", n, strings.Join(got, "\n\t"),
			strings.Join(want, "\n\t"))
	}
	return nil
}
