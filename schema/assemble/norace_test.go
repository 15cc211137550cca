//go:build !race

package assemble

import (
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestWellFormed: whatever a log says, what opens closes, once and in its place; nothing is open behind the end of the
// run; and events that are decoded mean the same as records.
func TestWellFormed(t *testing.T) {
	t.Parallel()
	var repaired, total int
	check := func(s schematest.Scenario) {
		a, b, c := New(keeping), New(keeping), newChecker()
		events := schematest.NumberEvents(schematest.Root, s)
		for i, r := range records(t, s) {
			steps := next(t, a, r)
			c.record++
			for j := range steps {
				if total++; steps[j].Repaired {
					repaired++
				}
				if wrong := c.see(&steps[j], string(r.Type) == schema.TypeMessageEnd); wrong != "" {
					t.Fatalf("%s: seq %d %s: %s in\n%s", s.Name, r.Seq, r.Line, wrong, written(steps))
				}
			}
			if got, want := written(b.NextEvent(&events[i])), written(steps); got != want {
				t.Fatalf("%s: seq %d: the event means\n%s the record\n%s", s.Name, r.Seq, got, want)
			}
			if got, want := a.kept, keptBy(a); got != want {
				t.Fatalf("%s: seq %d: %d bytes are counted, %d kept", s.Name, r.Seq, got, want)
			}
		}
		if left := c.left(); left != "" && a.Lane("").State.Final() {
			t.Fatalf("%s: open at the end: %s", s.Name, left)
		}
	}
	for _, s := range schematest.All() {
		check(s)
	}
	for seed := range uint64(streams) {
		check(stream(seed))
	}
	if repaired < streams || total < 50*streams {
		t.Errorf("only %d of %d transitions were repaired", repaired, total)
	}
}

// TestClones: a copy that is made behind any record goes on like the original, and neither disturbs the other.
func TestClones(t *testing.T) {
	t.Parallel()
	for seed := range uint64(streams) {
		copiesGoOn(t, seed, keeping)
	}
}

// TestBounded: however long a run is, and whatever it has open, the reading of it keeps a bounded amount.
func TestBounded(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 1000)
	long := strings.Repeat("i", 900)
	for name, c := range map[string]struct {
		line string // # is a number that changes
		most int
	}{
		"text":      {`text.delta {"text":"` + x + `"}`, 600 << 10},
		"blocks":    {`block.start {"index":#,"kind":"compaction","block":{"type":"c","content":"` + x + `"}}`, 800 << 10},
		"inputs":    {`tool.input.delta {"call_id":"` + long + `#","text":"` + x + `"}`, maxItems*1300 + 800<<10},
		"calls":     {`tool.start {"call_id":"` + long + `#","tool":"` + long + `"}`, maxItems * 2200},
		"models":    {`model.start {"call_id":"#"}`, maxItems * 300},
		"requests":  {`input.requested {"request_id":"` + long + long + `#"}`, maxItems * 300},
		"children":  {`child_#:text.delta {"text":"` + x + `"}`, keeping.All + maxLanes*1200},
		"announced": {`child.spawn {"child_id":"child_#"}`, maxLanes * 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(keeping)
			for i := range 18_000 {
				e := scenario(strings.ReplaceAll(c.line, "#", number(i))).Events[0]
				a.NextEvent(&e)
				if i%1000 == 999 && a.Size() > c.most {
					t.Fatalf("%d bytes behind %d records, want at most %d", a.Size(), i, c.most)
				}
			}
			for _, r := range records(t, scenario(`run.lifecycle {"state":"done"}`)) {
				next(t, a, r)
			}
			if a.items != 0 || a.kept != 0 {
				t.Errorf("behind the end %d items and %d bytes are open", a.items, a.kept)
			}
		})
	}
}
