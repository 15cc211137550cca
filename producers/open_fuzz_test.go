package producers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// FuzzOpen feeds arbitrary events in arbitrary order: whatever was said, what closes it can be stored, closes
// everything, and is said once.
func FuzzOpen(f *testing.F) {
	f.Add("message.start {\"message_id\":\"m\"}\nblock.start {\"index\":3,\"kind\":\"text\"}\ntext.delta {\"text\":\"x\",\"index\":0}\ntext.delta {\"text\":\"y\",\"index\":0}")
	f.Add("a/b/c tool.start {\"call_id\":\"1\",\"tool\":\"t\",\"index\":1e0,\"kind\":{}}\n/ child.spawn {\"child_id\":\"a b\"}")
	f.Add("run_1/a turn.start {\"turn_id\":\"t\"}\na/a model.start {\"call_id\":\"m\"}\nb/a/b run.lifecycle {\"state\":\"done\"}")
	f.Add("a run.lifecycle {\"state\":\"done\"}\na/b turn.start {\"turn_id\":\"t\"}\na turn.start {\"turn_id\":\"t\"}")
	f.Add("message.start {\"message_id\":\"m\",\"usage\":5}\ndata.delta {\"media_type\":\"a\",\"data\":\"\"}\nblock.end {\"index\":0,\"input\":1,\"signature\":2}")
	for seed := range uint64(300) {
		f.Add(strange(rand.New(rand.NewPCG(seed, 7)), 60))
	}
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) > 1<<16 {
			return
		}
		var o producers.Open
		var head schema.Head
		var events []schema.Event
		for line := range strings.Lines(script) {
			if e, ok := parse(strings.TrimSuffix(line, "\n")); ok && head.Advance(e.Type, e.ChildID, "", e.Payload) == nil {
				o.See(&e)
				events = append(events, e)
			}
		}
		for _, c := range []producers.Closing{{Child: "a", Reason: "r"}, {TurnOnly: true, Failed: true},
			{Failed: true, Actor: "closer", Reason: strings.Repeat("é\x00", 9000)}} {
			closing := o.Close(c)
			for i := range closing {
				e := &closing[i]
				if err := e.Prepare("run_1"); err != nil {
					t.Fatalf("%s %.200s: %v", e.Type, e.Payload, err)
				}
				if err := head.Advance(e.Type, e.ChildID, "", e.Payload); err != nil {
					t.Fatal(err)
				}
				o.See(e)
			}
			events = append(events, closing...)
			if o.Any(c.Child) {
				t.Fatalf("something is open still in %q", c.Child)
			}
			if again := o.Close(c); len(again) > 0 {
				t.Fatalf("closed twice: %s %s", again[0].Type, again[0].Payload)
			}
		}
		if s := o.State(""); !s.Final() {
			t.Fatalf("state %q", s)
		}
		checkNothingOpen(t, events)
	})
}

// checkNothingOpen looks at the events as readers do.
func checkNothingOpen(t *testing.T, events []schema.Event) {
	t.Helper()
	var f schema.Fold
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		if !f.State.Final() {
			continue
		}
		if i < len(events)-1 || e.Actor != "closer" {
			return // it ended by itself, and its lanes with it, without a word of their own
		}
		for _, c := range f.Children {
			if schema.ValidRunID(c.ID) == nil && c.ID != "run_1" && !c.State.Final() {
				t.Fatalf("child %s is %q at the end of the run", c.ID, c.State)
			}
		}
	}
	for _, m := range f.Messages {
		if m.End == 0 {
			t.Fatalf("message %s is open", m.ID)
		}
	}
}

// parse reads a line: lanes with slashes between them, type, payload. false: no such event gets into a log.
func parse(line string) (e schema.Event, ok bool) {
	if lanes, rest, found := strings.Cut(line, " "); found && !strings.Contains(lanes, ".") {
		line = rest
		if path := strings.Split(lanes, "/"); path[0] != "" {
			e.ChildID = path[len(path)-1]
			if len(path) > 1 {
				e.Path = append([]string{"run_1"}, path...)
			}
		}
	}
	typ, payload, _ := strings.Cut(line, " ")
	e.Type, e.RunID, e.Payload = typ, "run_1", json.RawMessage(payload)
	return e, e.Prepare("run_1") == nil
}

// strange is a script of n events that no agent of sound mind says.
func strange(rng *rand.Rand, n int) string {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	var b strings.Builder
	for range n {
		b.WriteString(pick("", "", "", "a ", "a/b ", "b ", "a/b/c ", "c ", "c/a ", "b/a ", "run_1/d ", "d/d "))
		id := pick(`"1"`, `"2"`, `"3"`, `""`, `7`, `null`, `"\ud800"`, `"`+strings.Repeat(`\u0001`, rng.IntN(400))+`"`)
		index := pick(`,"index":0`, `,"index":1`, `,"index":7`, `,"index":1e0`, `,"index":-1`, `,"index":"x"`, "", "")
		switch rng.IntN(12) {
		case 0:
			fmt.Fprintf(&b, `run.lifecycle {"state":"%s"}`, pick("running", "paused", "done", "error"))
		case 1:
			fmt.Fprintf(&b, `child.spawn {"child_id":"%s"}`, pick("a", "b", "c", "d", "run_1", "x y", "-"))
		case 2:
			fmt.Fprintf(&b, `turn.%s {"turn_id":%s,"tool":{}}`, pick("start", "start", "end"), id)
		case 3:
			fmt.Fprintf(&b, `model.%s {"call_id":%s,"kind":1}`, pick("start", "start", "end"), id)
		case 4:
			fmt.Fprintf(&b, `tool.%s {"call_id":%s,"CALL_ID":"other","tool":%s%s,"input":{}}`,
				pick("start", "start", "end"), id, pick(`"t"`, `5`), index)
		case 5:
			fmt.Fprintf(&b, `task.%s {"task_id":%s}`, pick("start", "start", "end"), id)
		case 6:
			fmt.Fprintf(&b, `message.%s {"message_id":%s,"usage":%s}`, pick("start", "start", "start", "end"), id,
				pick("{}", "null", "5"))
		case 7:
			fmt.Fprintf(&b, `block.start {"kind":%s,"call_id":%s,"block":%s%s}`,
				pick(`"text"`, `"tool_use"`, `"x"`, `1`), id, pick(`{"type":"x"}`, `[]`, `null`), index)
		case 8:
			fmt.Fprintf(&b, `block.end {"complete":%s,"input":%s,"signature":%s%s}`, pick("true", "false", "1"),
				pick("null", "{}", "3"), pick("null", `"s"`), index)
		case 9:
			fmt.Fprintf(&b, `data.delta {"media_type":%s,"data":"AA=="%s}`, pick(`"a"`, `1`), index)
		case 10:
			fmt.Fprintf(&b, `command.message {"content":"x"}`)
		default:
			fmt.Fprintf(&b, `%s {"text":"%s","call_id":%s%s}`,
				pick("text.delta", "reasoning.delta", "tool.input.delta"), pick("x", `\ud83d`, `{`, ``), id, index)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
