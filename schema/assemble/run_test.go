package assemble

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"agentstream/schema"
)

// keptBy counts what the messages keep.
func keptBy(a *Run) (n int) {
	for _, l := range a.lanes {
		if l.Message != nil {
			n += l.Message.kept
		}
	}
	return n
}

func copiesGoOn(t *testing.T, seed uint64, limits Limits) {
	t.Helper()
	list := records(t, stream(seed))
	want := make([]string, len(list))
	a := New(limits)
	copies := []*Run{a.Clone()}
	for i, r := range list {
		want[i] = written(next(t, a, r))
		copies = append(copies, a.Clone())
	}
	for at, c := range copies {
		size := c.Size()
		other := c.Clone()
		for i := at; i < min(len(list), at+6); i++ {
			if got := written(next(t, c, list[i])); got != want[i] {
				t.Fatalf("seed %d: the copy at %d means at %d\n%s, the original\n%s", seed, at, i, got, want[i])
			}
		}
		if got := other.Size(); got != size {
			t.Fatalf("seed %d: the copy at %d has changed from %d to %d bytes", seed, at, size, got)
		}
	}
}

// TestCopiesOfOne: copies of one Run may be made and fed at the same time.
func TestCopiesOfOne(t *testing.T) {
	list := records(t, stream(3))
	a := New(keeping)
	for _, r := range list[:len(list)/2] {
		next(t, a, r)
	}
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() {
			c := a.Clone()
			for _, r := range list[len(list)/2:] {
				steps, _ := c.Next(r)
				got[i] += written(steps)
			}
		})
	}
	wg.Wait()
	for _, g := range got {
		if g != got[0] || g == "" {
			t.Errorf("copies differ:\n%s\n%s", g, got[0])
		}
	}
}

// TestRepairs: what producers leave out is added, as the package says.
func TestRepairs(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"no framing": {
			`text.delta {"text":"a"}
			 reasoning.delta {"text":"b"}
			 tool.start {"call_id":"c","tool":"t"}`,
			`message.open (repaired)
			 block.open 0 {"type":"text","text":""} (repaired)
			 text 0 "a"
			 block.open 1 {"type":"thinking","thinking":""} (repaired)
			 text 1 "b"
			 block.close 0
			 block.close 1
			 message.close [{"type":"text","text":"a"},{"type":"thinking","thinking":"b"}] (repaired)
			 call.start c`,
		},
		"a message that is cut by the next": {
			`message.start {"message_id":"m","role":"assistant"}
			 text.delta {"text":"a"}
			 message.start {"message_id":"n","role":"assistant"}
			 message.end {"message_id":"n","content":[{"type":"text","text":"b"}]}`,
			`message.open
			 block.open 0 {"type":"text","text":""} (repaired)
			 text 0 "a"
			 block.close 0
			 message.close [{"type":"text","text":"a"}] (repaired)
			 message.open
			 block.open 0 {"type":"text","text":""}
			 text 0 "b"
			 block.close 0
			 message.close [{"type":"text","text":"b"}]`,
		},
		"an end beside an open message": {
			`message.start {"message_id":"m","role":"assistant"}
			 message.end {"message_id":"n","content":[]}
			 message.end {"message_id":"m","content":[]}`,
			`message.open
			 message.open (repaired)
			 message.close []
			 message.close []`,
		},
		"what was not streamed": {
			`message.start {"message_id":"m","role":"assistant"}
			 text.delta {"text":"\ud83d","index":0}
			 message.end {"message_id":"m","content":[{"type":"text","text":"😀!"},{"type":"tool_use","id":"c","name":"t","input":{"a":1}}]}`,
			`message.open
			 block.open 0 {"type":"text","text":""} (repaired)
			 text 0 "\ud83d"
			 text 0 de00 "!"
			 block.close 0
			 block.open 1 {"type":"tool_use","id":"c","name":"t","input":{}}
			 input 1 {"a":1}
			 block.close 1
			 message.close [{"type":"text","text":"😀!"},{"type":"tool_use","id":"c","name":"t","input":{"a":1}}]`,
		},
		"one index for two blocks": {
			`message.start {"message_id":"m","role":"assistant"}
			 text.delta {"text":"a","index":0}
			 reasoning.delta {"text":"b","index":0}
			 text.delta {"text":"c","index":0}
			 message.end {"message_id":"m"}`,
			`message.open
			 block.open 0 {"type":"text","text":""} (repaired)
			 text 0 "a"
			 block.open 1 {"type":"thinking","thinking":""} (repaired)
			 text 1 "b"
			 text 0 "c"
			 block.close 0
			 block.close 1
			 message.close [{"type":"text","text":"ac"},{"type":"thinking","thinking":"b"}]`,
		},
		"lanes mingled, and a child that nobody announced": {
			`text.delta {"text":"a"}
			 kid:text.delta {"text":"b"}
			 text.delta {"text":"c"}
			 kid:run.lifecycle {"state":"done"}`,
			`message.open (repaired)
			 block.open 0 {"type":"text","text":""} (repaired)
			 text 0 "a"
			 child.begin @kid (repaired)
			 message.open @kid (repaired)
			 block.open @kid 0 {"type":"text","text":""} (repaired)
			 text @kid 0 "b"
			 text 0 "c"
			 block.close @kid 0
			 message.close @kid [{"type":"text","text":"b"}] (repaired)
			 child.end @kid
			 state @kid {"state":"done"}`,
		},
		"tools that work": {
			`tool.run {"call_id":"c"}
			 tool.start {"call_id":"c","tool":"t"}
			 tool.run {"call_id":"c"}
			 tool.run {"call_id":"c"}
			 block.start {"kind":"tool_use","call_id":"d","tool":"u"}
			 tool.run {"call_id":"d"}
			 tool.end {"call_id":"c","ok":true}
			 tool.run {"call_id":"c"}`,
			`call.start c
			 call.run c
			 message.open (repaired)
			 block.open 0 {"type":"tool_use","id":"d","name":"u","input":{}}
			 call.ask d
			 call.start d (repaired)
			 call.run d
			 input 0 {}
			 block.close 0
			 message.close [{"type":"tool_use","id":"d","name":"u","input":{}}] (repaired)
			 call.end c`,
		},
		"ends without beginnings, and the end of the run": {
			`tool.end {"call_id":"c","ok":true}
			 turn.end {"turn_id":"t"}
			 turn.start {"turn_id":"u"}
			 model.start {"call_id":"m"}
			 input.requested {"request_id":"r"}
			 task.start {"task_id":"k"}
			 block.start {"kind":"tool_use","call_id":"d","tool":"t"}
			 run.lifecycle {"state":"error"}`,
			`call.start c (repaired)
			 call.end c
			 turn.begin t (repaired)
			 turn.end t
			 turn.begin u
			 model.start m
			 input.request r
			 task.start k
			 message.open (repaired)
			 block.open 0 {"type":"tool_use","id":"d","name":"t","input":{}}
			 call.ask d
			 input 0 {}
			 block.close 0
			 message.close [{"type":"tool_use","id":"d","name":"t","input":{}}] (repaired)
			 model.end m (repaired)
			 input.answer r (repaired)
			 task.end k (repaired)
			 call.end d (repaired)
			 turn.end u (repaired)
			 state {"state":"error"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, got := New(keeping), ""
			for _, r := range records(t, scenario(c.log)) {
				got += written(next(t, a, r))
			}
			if want := strings.ReplaceAll(c.want, "\t", ""); strings.TrimSpace(got) != strings.ReplaceAll(want, "\n ", "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func number(i int) string {
	const digits = "0123456789"
	return string([]byte{digits[i/10000%10], digits[i/1000%10], digits[i/100%10], digits[i/10%10], digits[i%10]})
}

// TestNoPayload: a record without a payload is an error.
func TestNoPayload(t *testing.T) {
	if _, err := new(Run).Next(schema.Record{}); err == nil {
		t.Error("a record of nothing is read")
	}
}

func delta(tb testing.TB) (*Run, schema.Record) {
	list := records(tb, scenario(`message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":" about twenty bytes","index":0}`))
	a := New(Limits{})
	for _, r := range list {
		next(tb, a, r)
	}
	return a, list[2]
}

// TestDeltaCosts: a delta costs no allocation when no content is kept.
func TestDeltaCosts(t *testing.T) {
	a, r := delta(t)
	if n := testing.AllocsPerRun(1000, func() { _, _ = a.Next(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	runtime.KeepAlive(a)
}

func BenchmarkDelta(b *testing.B) {
	a, r := delta(b)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.Next(r)
	}
}
