//go:build !race

package producers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestCutAtEveryByte: wherever an answer breaks off, the run ends, everything in it has one end, and what
// was said is a beginning of the whole.
func TestCutAtEveryByte(t *testing.T) {
	dir := providertest.Dir(t)
	for name, decoder := range cutRecordings {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
			must(t, err)
			whole := said(answerOf(t, decoder, string(body)))
			step := 1
			if testing.Short() {
				step = 23
			}
			for at := 0; at < len(body); at += step {
				events := answerOf(t, decoder, string(body[:at]))
				if complaint := unbalanced(events); complaint != "" {
					t.Fatalf("cut at %d: %s", at, complaint)
				}
				got := said(events)
				for kind, text := range got {
					if !strings.HasPrefix(whole[kind], text) {
						t.Fatalf("cut at %d: %s %q is no beginning of %q", at, kind, text, whole[kind])
					}
				}
			}
		})
	}
}

// TestOpenSaysWhatMessagesSay: what somebody says who has to end a recorded answer in its midst has the same
// blocks as readers have seen.
func TestOpenSaysWhatMessagesSay(t *testing.T) {
	recordings(t, func(t *testing.T, decoder func(provider.Config) *provider.Decoder, body string) {
		events := answerOf(t, decoder, body)
		step := max(1, len(events)/40)
		for at := 1; at < len(events); at += step {
			var o producers.Open
			for i := range events[:at] {
				o.See(&events[i])
			}
			cut := append(slices.Clone(events[:at]), o.Close(producers.Closing{Reason: "stop"})...)
			if complaint := unbalanced(cut); complaint != "" {
				t.Fatalf("cut behind event %d: %s", at, complaint)
			}
			checkFolds(t, cut)
		}
	})
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
			tooLarge("signature", m.Sign(text))
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
