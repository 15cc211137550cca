package producers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// huge is more than an event can hold, in kinds of bytes that matter to JSON.
var huge = map[string]string{
	"plain": strings.Repeat("x", 10<<20), "nul": strings.Repeat("\x00", 600<<10), "broken": strings.Repeat("\xff\xc3", 400<<10),
	"quotes": strings.Repeat("\"\\\n", 300<<10), "wide": strings.Repeat("日本€", 200<<10),
}

// TestHugeInput: however large or broken what an agent says is, what is stored are good lines, the call that
// goes too far says so, and the pen goes on.
func TestHugeInput(t *testing.T) {
	for name, text := range huge {
		t.Run(name, func(t *testing.T) {
			ctx, log, key := t.Context(), memory.New(), schema.RunKey{Tenant: "t", Run: "run_1"}
			pub, err := producers.New(producers.Config{Log: log, Key: key})
			must(t, err)
			r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: "run_1"})
			must(t, err)
			turn, err := r.Turn(ctx)
			must(t, err)
			tooLarge := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, schema.ErrTooLarge) || len(err.Error()) > 2000 {
					t.Errorf("%s: %.300v", what, err)
				}
			}
			_, err = turn.Message(producers.MessageInfo{ID: text})
			tooLarge("message id", err)
			_, err = turn.Message(producers.MessageInfo{Model: text})
			tooLarge("model", err)
			_, err = turn.BeginModel(text, "")
			tooLarge("provider", err)
			_, err = turn.Task(text)
			tooLarge("task", err)
			tooLarge("say", r.Emit(ctx, schema.TypeProgress, map[string]string{"message": text}))
			tooLarge("ask", r.Ask(ctx, "q", text, nil, nil))
			_, err = r.Spawn(ctx, "run_c", text, "")
			tooLarge("spawn", err)

			m, err := turn.Message(producers.MessageInfo{})
			must(t, err)
			_, err = m.Call(text, "t")
			tooLarge("call id", err)
			_, err = m.Call("", text)
			tooLarge("tool", err)
			tooLarge("data", m.Data("image", text, "", nil))
			must(t, m.Reasoning("a"))
			tooLarge("signature", m.Signed(text))
			must(t, m.Text(text), m.Reasoning(text))
			c, err := m.Call("c1", "bash")
			must(t, err)
			tooLarge("input", c.Ready(text))
			for range 3 {
				must(t, c.Input(text))
			}
			tooLarge("pieces of input", c.Ready(nil))
			must(t, c.Ready(json.RawMessage(`{"n":1}`)))
			d, err := m.Call("c2", "bash")
			must(t, err)
			must(t, d.Input(`{"after":"the content was full"}`), d.Ready(nil))
			if string(d.Args()) != `{"after":"the content was full"}` {
				t.Errorf("input %s", d.Args())
			}
			tooLarge("stop", m.End(text, nil))
			tooLarge("usage", m.End("tool_use", map[string]string{"u": text}))
			must(t, m.End("tool_use", nil), c.Output(text))
			tooLarge("output", c.Finish(text))
			must(t, c.Fail(errors.New(text)), d.Finish(nil))
			m, err = turn.Message(producers.MessageInfo{})
			must(t, err)
			must(t, m.Text("half"), m.Fail(errors.New(text)))
			call, err := turn.BeginModel("", "")
			must(t, err)
			must(t, call.Fail(errors.New(text)))
			tooLarge("turn", turn.End(text))
			must(t, r.Fail(ctx, errors.New(text)), pub.Close(ctx))
			events := stored(t, log, key)
			if complaint := unbalanced(events); complaint != "" {
				t.Error(complaint)
			}
			checkFolds(t, events)
		})
	}
}

// TestRawInput: JSON that is handed over as it is stays what it is, and what is no JSON does not get into an
// event, let alone change it.
func TestRawInput(t *testing.T) {
	for raw, good := range map[string]bool{
		"{\n  \"a\": [1,\r\n 2]\n}": true, `{"a":"\ud800"}`: true, `"\u0000"`: true, `1`: true, ` {} `: true, "null": true,
		`{"a":`: false, `1,"ok":false`: false, `{}}`: false, "\x00": false, "{\"a\":\"\xff\"}": false, `{} {}`: false, "\"\n\"": false,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): false,
	} {
		var s told
		r := newRun(t, &s)
		turn, err := r.Turn(t.Context())
		must(t, err)
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		c, err := m.Call("c1", "t")
		must(t, err)
		check := func(what string, err error) {
			t.Helper()
			if (err == nil) != good {
				t.Errorf("%s %.40q: %v", what, raw, err)
			}
		}
		check("input", c.Ready(json.RawMessage(raw)))
		if !good {
			must(t, c.Ready(json.RawMessage{}))
		}
		must(t, m.End("tool_use", nil))
		check("output", c.Finish(json.RawMessage(raw)))
		if !good {
			must(t, c.Finish(nil))
		}
		check("answer", r.Answered(t.Context(), "q", json.RawMessage(raw)))
		must(t, turn.End("end_turn"), r.Done(t.Context()))
		if complaint := unbalanced(s.events); complaint != "" || strings.Contains(s.story(), `"ok":false`) {
			t.Errorf("%q: %s\n%s", raw, complaint, s.story())
		}
		for _, e := range s.events {
			if strings.ContainsAny(string(e.Payload), "\r\n") {
				t.Errorf("several lines: %s", e.Payload)
			}
		}
	}
}

// TestManyOfEverything: the ending of very much fits the log, for the pen and for who has only the log.
func TestManyOfEverything(t *testing.T) {
	ctx, log, key := t.Context(), memory.New(), schema.RunKey{Tenant: "t", Run: "run_1"}
	pub, err := producers.New(producers.Config{Log: log, Key: key})
	must(t, err)
	r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: "run_1", Grace: 5 * time.Minute})
	must(t, err)
	turn, err := r.Turn(ctx)
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	for i := range 5000 {
		c, err := m.Call(fmt.Sprintf("c%d", i), "t")
		must(t, err)
		if i%2 == 0 {
			must(t, c.Ready(nil))
		}
	}
	for i := range 3000 {
		_, err := turn.Task(fmt.Sprint(i))
		must(t, err)
	}
	for i := range 60 {
		child, err := r.Spawn(ctx, fmt.Sprintf("kid_%d", i), "", "")
		must(t, err)
		_, err = child.Turn(ctx)
		must(t, err)
	}
	must(t, pub.Flush(ctx))
	o, _, err := producers.ReadOpen(ctx, log, key)
	must(t, err)
	for _, e := range o.Close(producers.Closing{Failed: true, Reason: huge["quotes"]}) {
		if err := e.Prepare("run_1"); err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
	}
	before := stored(t, log, key)
	must(t, r.Cancel(ctx, huge["plain"]), pub.Close(ctx))
	if got, want := len(stored(t, log, key))-len(before), 2500+1+2500+3000+1+60*2+1; got != want {
		t.Errorf("the ending has %d events, not %d", got, want)
	}
}

// TestDeepChildren: a child that could not say anything is not announced.
func TestDeepChildren(t *testing.T) {
	var s told
	r := newRun(t, &s)
	lane, err := &r.Lane, error(nil)
	deep := 0
	for ; ; deep++ {
		var next *producers.Lane
		if next, err = lane.Spawn(t.Context(), fmt.Sprintf("%0*d", schema.MaxRunID, deep), "", ""); err != nil {
			break
		}
		lane = next
	}
	before := len(s.events)
	if deep < 20 || !errors.Is(err, schema.ErrMalformed) || s.events[before-1].Type != schema.TypeRunLifecycle {
		t.Errorf("at a depth of %d: %v", deep, err)
	}
	must(t, r.Cancel(t.Context(), "enough"))
	if len(s.events) != before+deep+1 {
		t.Errorf("%d ends of %d lanes", len(s.events)-before, deep+1)
	}
}

// TestSpawnTwice: a child of an earlier life of the agent is not announced again.
func TestSpawnTwice(t *testing.T) {
	var s told
	r := newRun(t, &s)
	_, err := r.Spawn(t.Context(), "run_a", "", "")
	must(t, err)
	var o producers.Open
	for i := range s.events {
		o.See(&s.events[i])
	}
	second, err := producers.NewRun(producers.RunConfig{Sink: &s, RunID: "run_1", Open: &o})
	must(t, err)
	must(t, second.Recover(t.Context(), "again"))
	before := len(s.events)
	if _, err := second.Spawn(t.Context(), "run_a", "", ""); !errors.Is(err, producers.ErrOpen) || len(s.events) != before {
		t.Errorf("%v, %d events", err, len(s.events)-before)
	}
}

// TestOpenStaysSmall: what has ended takes no memory, and what a hostile producer leaves open a bounded one.
func TestOpenStaysSmall(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 50_000
	}
	const many = 20_000 // more than is kept of anything
	var o producers.Open
	say := func(typ, payload string, args ...any) {
		o.See(&schema.Event{Type: typ, RunID: "run_1", Payload: fmt.Appendf(nil, payload, args...)})
	}
	grown := func(what string, most int, act func()) {
		t.Helper()
		before := heap()
		act()
		if got := heap() - before; got > most<<20 {
			t.Errorf("%s: %d MiB, at most %d", what, got>>20, most)
		} else {
			t.Logf("%s: %.2f MiB", what, float64(got)/(1<<20))
		}
	}
	grown("ended", 1, func() {
		for i := range n / 10 {
			say("message.start", `{"message_id":"m%d"}`, i)
			say("block.start", `{"index":0,"kind":"text"}`)
			for range 3 {
				say("text.delta", `{"text":"some words","index":0}`)
			}
			say("block.start", `{"index":1,"kind":"tool_use","call_id":"c%d","tool":"t"}`, i)
			say("tool.input.delta", `{"call_id":"c%d","text":"{}","index":1}`, i)
			say("block.end", `{"index":1,"call_id":"c%d","input":{}}`, i)
			say("message.end", `{"message_id":"m%d"}`, i)
			say("tool.end", `{"call_id":"c%d","ok":true}`, i)
		}
	})
	grown("open calls", 64, func() {
		input := strings.Repeat("x", 2000)
		for i := range many {
			say("tool.start", `{"call_id":"c%d","tool":"t","input":"%s"}`, i, input)
			say("model.start", `{"call_id":"c%d"}`, i)
			say("task.start", `{"task_id":"c%d"}`, i)
			say("input.requested", `{"request_id":"c%d"}`, i)
		}
	})
	grown("open blocks", 12, func() {
		say("message.start", `{"message_id":"m"}`)
		for i := range many {
			say("text.delta", `{"text":"some words","index":%d}`, i)
			say("tool.input.delta", `{"call_id":"c%d","text":"%0300d","index":%d}`, i, i, i)
			if i%16 == 0 {
				say("block.end", `{"index":%d,"signature":"%0300d","input":"%0300d"}`, i, i, i)
			}
		}
	})
	closing := o.Close(producers.Closing{})
	ends := map[string]int{}
	for i := range closing {
		must(t, closing[i].Prepare("run_1"))
		ends[closing[i].Type]++
	}
	for typ, n := range ends {
		if n > 1<<14 {
			t.Errorf("%d times %s", n, typ)
		}
	}
	runtime.KeepAlive(&o)
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
