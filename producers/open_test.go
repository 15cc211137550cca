package producers_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

var update = flag.Bool("update", false, "write the golden files")

// moment brings a run to a point where it may be interrupted.
type moment struct {
	name string
	act  func(*stage)
}

// stage is a run in a test. The first error ends the test.
type stage struct {
	t    *testing.T
	ctx  context.Context
	sink *told
	run  *producers.Run
	turn *producers.Turn
}

func (s *stage) message() *producers.Message {
	m, err := s.turn.Message(producers.MessageInfo{Model: "m1"})
	must(s.t, err)
	return m
}

func (s *stage) call(m *producers.Message, id string, pieces ...string) *producers.Call {
	c, err := m.Call(id, "tool_"+id)
	must(s.t, err)
	for _, p := range pieces {
		must(s.t, c.Input(p))
	}
	return c
}

// asked is a complete message with calls that wait for their tools.
func (s *stage) asked(ids ...string) (calls []*producers.Call) {
	m := s.message()
	must(s.t, m.Text("I call."))
	for _, id := range ids {
		c := s.call(m, id, `{"n":`, `1}`)
		must(s.t, c.Ready(nil))
		calls = append(calls, c)
	}
	must(s.t, m.End("tool_use", map[string]int{"output_tokens": 7}))
	return calls
}

func (s *stage) spawn(from *producers.Lane, id, call string) (*producers.Lane, *stage) {
	l, err := from.Spawn(s.ctx, id, "work", call)
	must(s.t, err)
	turn, err := l.Turn(s.ctx)
	must(s.t, err)
	return l, &stage{s.t, s.ctx, s.sink, s.run, turn}
}

// moments are the cases of metis digest §7, and what lies between them.
var moments = []moment{
	{"before-the-first-word", func(*stage) {}},
	{"message-begun", func(s *stage) { s.message() }},
	{"in-reasoning", func(s *stage) { must(s.t, s.message().Reasoning("so \"far\"")) }},
	{"in-text", func(s *stage) {
		m := s.message()
		must(s.t, m.Reasoning("a"), m.Sign("sig"), m.Text("b"), m.Text("c"))
	}},
	{"in-a-model-call", func(s *stage) {
		must(s.t, s.run.Emit(s.ctx, schema.TypeModelStart, map[string]string{"call_id": "model_1"}))
		must(s.t, s.message().Text("The"))
	}},
	{"model-asked", func(s *stage) {
		must(s.t, s.run.Emit(s.ctx, schema.TypeModelStart, map[string]string{"call_id": "model_1"}))
	}},
	{"in-tool-input", func(s *stage) {
		m := s.message()
		must(s.t, m.Text("I call."))
		s.call(m, "c1", `{"path":"a`)
	}},
	{"in-parallel-inputs", func(s *stage) {
		m := s.message()
		must(s.t, s.call(m, "c1", `{}`).Ready(nil))
		s.call(m, "c2", `{"x`)
		s.call(m, "c3")
	}},
	{"in-an-image", func(s *stage) {
		m := s.message()
		must(s.t, m.Data("image", "image/png", "chart", []byte("\x89PNG")), m.Text("as you see"))
	}},
	{"seam", func(s *stage) { s.asked("c1", "c2") }},
	{"tools-running", func(s *stage) {
		c := s.asked("c1", "c2", "c3")
		must(s.t, c[0].Output("1\n"), c[1].Finish("done"), c[2].Output("2\n"))
	}},
	{"between-tools-and-model", func(s *stage) { must(s.t, s.asked("c1")[0].Finish("done")) }},
	{"later-call", func(s *stage) {
		must(s.t, s.asked("c1")[0].Finish("done"))
		must(s.t, s.message().Text("The file says"))
	}},
	{"delegation", func(s *stage) {
		s.asked("c1")
		_, child := s.spawn(&s.run.Lane, "run_a", "c1")
		must(s.t, child.message().Text("I am"))
	}},
	{"delegation-of-two-with-tools", func(s *stage) {
		s.asked("c1", "c2", "c3")
		_, a := s.spawn(&s.run.Lane, "run_a", "c1")
		_, b := s.spawn(&s.run.Lane, "run_b", "c2")
		a.asked("ca")
		must(s.t, b.message().Reasoning("let me"))
	}},
	{"delegation-below-a-child", func(s *stage) {
		s.asked("c1")
		l, a := s.spawn(&s.run.Lane, "run_a", "c1")
		a.asked("ca")
		_, b := s.spawn(l, "run_b", "ca")
		must(s.t, b.message().Text("deep"))
	}},
	{"one-child-is-done", func(s *stage) {
		c := s.asked("c1", "c2")
		l, a := s.spawn(&s.run.Lane, "run_a", "c1")
		must(s.t, a.turn.End("end_turn"), l.Finish(s.ctx), c[0].Finish("a's"))
		_, b := s.spawn(&s.run.Lane, "run_b", "c2")
		must(s.t, b.message().Text("still"))
	}},
	{"task-and-question", func(s *stage) {
		_, err := s.turn.Task("index")
		must(s.t, err, s.run.Ask(s.ctx, "q1", "Which?", []string{"a", "b"}, nil))
	}},
	{"turn-is-over", func(s *stage) { must(s.t, s.turn.End("end_turn")) }},
}

// endings are the ways to end what is open.
var endings = []struct {
	name string
	end  func(*stage) error
}{
	{"cancel", func(s *stage) error { return s.run.Cancel(s.ctx, "the user said stop") }},
	{"cancel-turn", func(s *stage) error { return s.turn.Cancel("the user said stop") }},
	{"fail", func(s *stage) error { return s.run.Fail(s.ctx, errors.New("model: overloaded")) }},
	{"recover", func(s *stage) error { return s.run.Recover(s.ctx, "the agent began again") }},
}

// TestEndings is the matrix: at each moment, each ending, as golden files. Each ending is said once,
// also when it is asked for twice, and what a second writer makes of the log alone is the same.
func TestEndings(t *testing.T) {
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			var all strings.Builder
			for _, e := range endings {
				s := &stage{t: t, ctx: t.Context(), sink: new(told)}
				s.run = newRun(t, s.sink)
				must(t, s.run.State(s.ctx, schema.StateRunning, ""))
				var err error
				s.turn, err = s.run.Turn(s.ctx)
				must(t, err)
				m.act(s)
				before := slices.Clone(s.sink.events)
				must(t, e.end(s), e.end(s), s.turn.Close())
				told := &told{events: s.sink.events[len(before):]}
				fmt.Fprintf(&all, "# %s\n%s", e.name, told.story())
				checkFromLog(t, e.name, before, told.events)
			}
			golden(t, filepath.Join("testdata", "endings", m.name+".txt"), all.String())
		})
	}
}

// checkFromLog holds what the agent said to what somebody says who has only the log: the reaper.
func checkFromLog(t *testing.T, ending string, before, said []schema.Event) {
	t.Helper()
	var o producers.Open
	for i := range before {
		o.See(&before[i])
	}
	c := map[string]producers.Closing{
		"cancel": {Reason: "the user said stop"}, "cancel-turn": {TurnOnly: true, Reason: "the user said stop"},
		"fail": {Failed: true, Reason: "model: overloaded"}, "recover": {TurnOnly: true, Failed: true, Reason: "the agent began again"},
	}[ending]
	other := &told{events: o.Close(c)}
	if got, want := other.story(), (&told{events: said}).story(); got != want {
		t.Errorf("%s from the log\n%swant\n%s", ending, got, want)
	}
	for i := range other.events {
		o.See(&other.events[i])
	}
	if again := o.Close(c); len(again) > 0 {
		t.Errorf("%s: closed twice: %v", ending, again)
	}
	if o.Any("") {
		t.Errorf("%s: something is open still", ending)
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s (go test -update writes it)\ngot\n%swant\n%s", file, got, want)
	}
}
