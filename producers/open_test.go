package producers_test

import (
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

// endings are the ways to end what is open.
var endings = []struct {
	name string
	end  func(*stage) error
}{
	{"cancel", func(s *stage) error { return s.run.Cancel(s.ctx, "the user said stop") }},
	{"cancel-turn", func(s *stage) error { return s.turns[""].Cancel("the user said stop") }},
	{"fail", func(s *stage) error { return s.run.Fail(s.ctx, errors.New("model: overloaded")) }},
	{"recover", func(s *stage) error { return s.run.Recover(s.ctx, "the agent began again") }},
}

// TestEndings is the matrix: at each moment, each ending, as golden files, which the writer in Python is held to as
// well. Each ending is said once,
// also when it is asked for twice, and what a second writer makes of the log alone is the same.
func TestEndings(t *testing.T) {
	for _, m := range readMoments(t) {
		t.Run(m.Name, func(t *testing.T) {
			s := newStage(t)
			s.play(m)
			golden(t, filepath.Join("testdata", "moments", m.Name+".txt"), s.sink.story())
			var all strings.Builder
			for _, e := range endings {
				s := newStage(t)
				s.play(m)
				before := slices.Clone(s.sink.events)
				turn := s.turns[""]
				must(t, e.end(s), e.end(s), turn.Close())
				told := &told{events: s.sink.events[len(before):]}
				fmt.Fprintf(&all, "# %s\n%s", e.name, told.story())
				checkFromLog(t, e.name, before, told.events)
			}
			golden(t, filepath.Join("testdata", "endings", m.Name+".txt"), all.String())
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
		"fail":    {Failed: true, Reason: "model: overloaded"},
		"recover": {TurnOnly: true, Failed: true, Reason: "the agent began again"},
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
