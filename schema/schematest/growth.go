package schematest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"agentstream/schema"
)

// Growth is a kind of runs of any size, by which one shows how the cost of reading a run grows with it.
type Growth struct {
	Name string
	Make func(n int) []schema.Event
}

// pair is a kind of things that begin and end.
type pair struct {
	name       string
	begin, end func(i int) []schema.Event
}

// happening makes one event of a kind, or several that belong together.
type happening struct {
	name string
	make func(i int) []schema.Event
}

// order is in which order n things begin and end: i+1 begins the thing i, -i-1 ends it.
type order struct {
	name string
	make func(n int) []int
}

// window is how many things are open at a time where they are interleaved.
const window = 300

var orders = []order{
	{"never ended", func(n int) []int { return openAll(n) }},
	{"ended in order", func(n int) []int { return append(openAll(n), closeAll(n)...) }},
	{"ended in reverse", func(n int) []int {
		back := closeAll(n)
		slices.Reverse(back)
		return append(openAll(n), back...)
	}},
	{"ended in any order", func(n int) []int {
		any := closeAll(n)
		rand.New(rand.NewPCG(1, uint64(n))).Shuffle(n, func(i, j int) { any[i], any[j] = any[j], any[i] })
		return append(openAll(n), any...)
	}},
	{"one after the other", func(n int) (all []int) {
		for i := range n {
			all = append(all, i+1, -i-1)
		}
		return all
	}},
	{"interleaved", func(n int) (all []int) {
		for i := range n + window {
			if i < n {
				all = append(all, i+1)
			}
			if i >= window {
				all = append(all, window-i-1)
			}
		}
		return all
	}},
	{"all but every tenth ended", func(n int) (all []int) {
		all = openAll(n)
		for i := range n {
			if i%10 != 0 {
				all = append(all, -i-1)
			}
		}
		return append(all, openAll(n/2)...)
	}},
	{"ends of nothing", func(n int) []int { return closeAll(n) }},
	{"begun again", func(n int) []int { return append(openAll(n), openAll(n)...) }},
}

// openAll opens n things in order: their numbers from 1.
func openAll(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// closeAll ends n things in order: their numbers, negative.
func closeAll(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = -i - 1
	}
	return all
}

// Growths returns every kind of things that begin and end in every order, and everything else that a run says many
// times. About n things begin in a run that is made with n.
func Growths() (all []Growth) {
	for _, p := range pairs {
		for _, o := range orders {
			all = append(all, Growth{p.name + ", " + o.name, func(n int) []schema.Event { return p.run(o.make(n)) }})
		}
	}
	for _, h := range happenings {
		all = append(all, Growth{h.name, func(n int) []schema.Event { return h.run(n) }})
	}
	return all
}

// Mixes returns everything that a run says many times in a run in which n things of each kind are open.
func Mixes() (all []Growth) {
	for _, p := range pairs {
		for _, h := range happenings {
			all = append(all, Growth{h.name + " in a run with " + p.name, func(n int) []schema.Event {
				return append(p.run(openAll(n)), h.run(n)...)
			}})
		}
	}
	return all
}

func (p pair) run(steps []int) (all []schema.Event) {
	all = opening()
	for _, s := range steps {
		if s > 0 {
			all = append(all, p.begin(s-1)...)
		} else {
			all = append(all, p.end(-s-1)...)
		}
	}
	return all
}

func (h happening) run(n int) (all []schema.Event) {
	all = opening()
	for i := range n {
		all = append(all, h.make(i)...)
	}
	return all
}

func opening() []schema.Event {
	return []schema.Event{
		event("", schema.TypeSessionCreated, `{"agent":"a"}`),
		event("", schema.TypeCommandMessage, `{"content":"go"}`),
		event("", schema.TypeRunLifecycle, `{"state":"running"}`),
	}
}

func event(child, typ, payload string) schema.Event {
	e := schema.Event{Type: typ, ChildID: child, Payload: json.RawMessage(payload)}
	if child != "" {
		e.Path = []string{Root, child}
	}
	return e
}

// one makes a function of one event, whose payload has the number at %d.
func one(typ, payload string) func(int) []schema.Event {
	return func(i int) []schema.Event { return []schema.Event{event("", typ, fmt.Sprintf(payload, i))} }
}

func same(typ, payload string) func(int) []schema.Event {
	return func(int) []schema.Event { return []schema.Event{event("", typ, payload)} }
}

// in makes one of a lane of its own for each number.
func in(typ, payload string) func(int) []schema.Event {
	return func(i int) []schema.Event { return []schema.Event{event(childOf(i), typ, payload)} }
}

func childOf(i int) string { return "run_c" + strconv.Itoa(i) }

// both makes the events of several functions.
func both(fns ...func(int) []schema.Event) func(int) []schema.Event {
	return func(i int) (all []schema.Event) {
		for _, fn := range fns {
			all = append(all, fn(i)...)
		}
		return all
	}
}

// deepEvent makes an event of a lane that is below up to eight others.
func deepEvent(typ, payload string) func(int) []schema.Event {
	return func(i int) []schema.Event {
		e := event(childOf(i), typ, payload)
		e.Path = []string{Root}
		for up := i - i%8; up <= i; up++ {
			e.Path = append(e.Path, childOf(up))
		}
		return []schema.Event{e}
	}
}

var pairs = []pair{
	{"calls", one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t","input":{}}`),
		one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true,"output":"o"}`)},
	{"calls of a client", one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t","custom":true}`),
		one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`)},
	{"calls that fail", one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`),
		one(schema.TypeToolEnd, `{"call_id":"c%d","ok":false,"error":"KAI-TOOL-CANCELLED"}`)},
	{"calls that are asked for", both(one(schema.TypeMessageStart, `{"message_id":"m%d","role":"assistant"}`),
		one(schema.TypeBlockStart, `{"index":0,"kind":"tool_use","call_id":"c%d","tool":"t"}`),
		one(schema.TypeMessageEnd, `{"message_id":"m%d"}`)),
		both(one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`),
			one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`))},
	{"calls of one request", both(one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`),
		one(schema.TypeToolRun, `{"call_id":"c%d"}`)),
		both(one(schema.TypeModelStart, `{"call_id":"q%d"}`), one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`),
			one(schema.TypeModelEnd, `{"call_id":"q%d"}`))},
	{"model calls", one(schema.TypeModelStart, `{"call_id":"q%d","model":"m"}`),
		one(schema.TypeModelEnd, `{"call_id":"q%d","ok":true,"usage":{"input_tokens":1}}`)},
	{"model calls with calls", both(one(schema.TypeModelStart, `{"call_id":"q%d"}`),
		one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`)),
		both(one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`), one(schema.TypeModelEnd, `{"call_id":"q%d"}`))},
	{"tasks", one(schema.TypeTaskStart, `{"task_id":"t%d","name":"n"}`),
		one(schema.TypeTaskEnd, `{"task_id":"t%d","ok":true}`)},
	{"requests for input", one(schema.TypeInputRequested, `{"request_id":"r%d","prompt":"p"}`),
		one(schema.TypeInputAnswered, `{"request_id":"r%d","answer":1}`)},
	{"requests about calls", both(one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`),
		one(schema.TypeInputRequested, `{"request_id":"r%d","call_id":"c%[1]d"}`)),
		both(one("command.answer", `{"request_id":"r%d","answer":true}`),
			one(schema.TypeInputAnswered, `{"request_id":"r%d"}`), one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`))},
	{"requests that clients answer", one(schema.TypeInputRequested, `{"request_id":"r%d"}`),
		one("command.answer", `{"request_id":"r%d","answer":1}`)},
	{"turns", one(schema.TypeTurnStart, `{"turn_id":"u%d"}`),
		one(schema.TypeTurnEnd, `{"turn_id":"u%d","stop_reason":"end_turn"}`)},
	{"messages", one(schema.TypeMessageStart, `{"message_id":"m%d","role":"assistant"}`),
		one(schema.TypeMessageEnd, `{"message_id":"m%d","content":[{"type":"text","text":"a"}]}`)},
	{"messages of people", one(schema.TypeMessageStart, `{"message_id":"m%d","role":"user"}`),
		one(schema.TypeMessageEnd, `{"message_id":"m%d","content":"a"}`)},
	{"blocks", one(schema.TypeBlockStart, `{"index":%d,"kind":"text"}`),
		one(schema.TypeBlockEnd, `{"index":%d,"complete":true}`)},
	{"blocks of a message", both(same(schema.TypeTextDelta, `{"text":"a"}`),
		one(schema.TypeBlockStart, `{"index":%d,"kind":"reasoning"}`)), one(schema.TypeBlockEnd, `{"index":%d}`)},
	{"blocks of calls", one(schema.TypeBlockStart, `{"index":%d,"kind":"tool_use","call_id":"c%[1]d","tool":"t"}`),
		one(schema.TypeBlockEnd, `{"index":%d,"call_id":"c%[1]d","input":{}}`)},
	{"children", in(schema.TypeRunLifecycle, `{"state":"running"}`), in(schema.TypeRunLifecycle, `{"state":"done"}`)},
	{"announced children", both(one(schema.TypeToolStart, `{"call_id":"c%d","tool":"t"}`),
		one(schema.TypeChildSpawn, `{"child_id":"run_c%d","call_id":"c%[1]d","prompt":"p"}`)),
		both(in(schema.TypeRunLifecycle, `{"state":"done"}`), one(schema.TypeToolEnd, `{"call_id":"c%d","ok":true}`))},
	{"children of one call", one(schema.TypeChildSpawn, `{"child_id":"run_c%d","call_id":"c"}`),
		in(schema.TypeRunLifecycle, `{"state":"aborted"}`)},
	{"nested children", deepEvent(schema.TypeRunLifecycle, `{"state":"running"}`),
		deepEvent(schema.TypeRunLifecycle, `{"state":"done"}`)},
	{"children with a call", both(in(schema.TypeToolStart, `{"call_id":"c","tool":"t"}`)),
		both(in(schema.TypeToolEnd, `{"call_id":"c","ok":true}`), in(schema.TypeRunLifecycle, `{"state":"done"}`))},
	{"children that ask", in(schema.TypeInputRequested, `{"request_id":"r"}`),
		both(in("command.answer", `{"request_id":"r"}`), in(schema.TypeInputAnswered, `{"request_id":"r"}`))},
	{"children that speak", in(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`),
		in(schema.TypeMessageEnd, `{"message_id":"m","content":[]}`)},
	{"children with deltas", in(schema.TypeTextDelta, `{"text":"a"}`),
		in(schema.TypeStepBoundary, `{"step_index":0,"step_kind":"text-only"}`)},
	{"children with turns", in(schema.TypeTurnStart, `{"turn_id":"u"}`),
		in(schema.TypeTurnEnd, `{"turn_id":"u","stop_reason":"cancelled"}`)},
	{"queued messages", one(schema.TypeCommandMessage, `{"content":"m%d"}`),
		one(schema.TypeCommandsTaken, `{"through":%d}`)},
	{"queued runs", one(schema.TypeCommandMessage, `{"content":"m%d","multitask_strategy":"enqueue"}`),
		both(one(schema.TypeCommandsTaken, `{"through":%d}`), one(schema.TypeTurnStart, `{"turn_id":"u%d"}`),
			one(schema.TypeTurnEnd, `{"turn_id":"u%d"}`))},
	{"messages to children", in(schema.TypeCommandMessage, `{"content":"m"}`),
		in(schema.TypeCommandsTaken, `{"through":9}`)},
	{"pauses", same("command.pause", `{}`), same("command.resume", `{}`)},
	{"ends of the run", same(schema.TypeRunLifecycle, `{"state":"done"}`),
		same(schema.TypeCommandMessage, `{"content":"again"}`)},
}

var happenings = []happening{
	{"plans", one(schema.TypePlanProposal, `{"plan":{"id":"p%d","steps":[]}}`)},
	{"decided plans", both(same(schema.TypeRunLifecycle, `{"state":"awaiting_approval"}`),
		one(schema.TypePlanProposal, `{"plan":{"id":"p%d","steps":[]}}`),
		one("command.approve_plan", `{"plan_id":"p%d"}`))},
	{"states", both(same(schema.TypeRunLifecycle, `{"state":"paused"}`),
		same(schema.TypeRunLifecycle, `{"state":"running"}`))},
	{"ended and begun again", both(same(schema.TypeRunLifecycle, `{"state":"done"}`),
		same(schema.TypeCommandMessage, `{"content":"again"}`), same(schema.TypeRunLifecycle, `{"state":"running"}`))},
	{"values", one(schema.TypeStateValues, `{"values":{"n":%d}}`)},
	{"updates", one(schema.TypeStateUpdate, `{"node":"n","values":{"n":%d}}`)},
	{"checkpoints", one(schema.TypeCheckpoint, `{"checkpoint_id":"k%d","step":1}`)},
	{"steps", one(schema.TypeStepBoundary, `{"step_index":%d,"step_kind":"plan","checkpoint_id":"k"}`)},
	{"progress", one(schema.TypeProgress, `{"done":%d,"total":1000000}`)},
	{"losses", one(schema.TypeLoss, `{"reason":"r","events":%d}`)},
	{"cancellations", both(same(schema.TypeCommandMessage, `{"content":"x","multitask_strategy":"interrupt"}`),
		same("command.cancel", `{"reason":"r"}`))},
	{"redirections", both(same("command.redirect", `{"instruction":"i"}`),
		same(schema.TypeRunLifecycle, `{"state":"redirecting"}`))},
	{"changes of the session", one(schema.TypeSessionUpdated, `{"title":"t%d"}`)},
	{"usage of many models", both(one(schema.TypeMessageStart,
		`{"message_id":"m%d","role":"assistant","model":"m%[1]d"}`),
		one(schema.TypeMessageEnd, `{"message_id":"m%d","usage":{"input_tokens":1}}`))},
	{"deltas", same(schema.TypeTextDelta, `{"text":"a"}`)},
	{"thoughts and deltas", both(same(schema.TypeReasoningDelta, `{"text":"a"}`),
		same(schema.TypeTextDelta, `{"text":"a"}`))},
	{"pieces of data", same(schema.TypeDataDelta, `{"media_type":"image/png","data":"AAAA"}`)},
	{"pieces of an input", same(schema.TypeToolInputDelta, `{"call_id":"ci","text":"a"}`)},
	{"pieces of many inputs", one(schema.TypeToolInputDelta, `{"call_id":"ci%d","text":"a"}`)},
	{"outputs", one(schema.TypeToolOutputDelta, `{"call_id":"c%d","text":"a"}`)},
	{"works of calls", one(schema.TypeToolRun, `{"call_id":"c%d"}`)},
	{"turns that end well", both(same(schema.TypeTurnStart, `{"turn_id":"v"}`),
		same(schema.TypeTurnEnd, `{"turn_id":"v","stop_reason":"end_turn"}`))},
	{"turns that fail", both(same(schema.TypeTurnStart, `{"turn_id":"v"}`),
		same(schema.TypeTurnEnd, `{"turn_id":"v","stop_reason":"error"}`))},
	{"whole messages", one(schema.TypeMessageEnd,
		`{"message_id":"w%d","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"x","name":"t","input":{}}]}`)},
	{"ends of children", both(one(schema.TypeChildSpawn, `{"child_id":"run_d%d"}`), func(i int) []schema.Event {
		return []schema.Event{event("run_d"+strconv.Itoa(i), schema.TypeRunLifecycle, `{"state":"done"}`)}
	})},
	{"one request again and again", both(same(schema.TypeInputRequested, `{"request_id":"s"}`),
		same("command.answer", `{"request_id":"s","answer":1}`),
		same(schema.TypeInputAnswered, `{"request_id":"s","answer":1}`))},
	{"one model call again and again", both(same(schema.TypeModelStart, `{"call_id":"s"}`),
		same(schema.TypeModelEnd, `{"call_id":"s"}`))},
	{"custom events", one("custom.x", `{"n":%d}`)},
}
