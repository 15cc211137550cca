package otlp

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"agentstream/persister"
	"agentstream/schema"
	"agentstream/schema/schematest"
	"agentstream/tap"
)

// langgraphRun is a run of three nodes with a pause, an approval, and a worker that is killed: another one takes its
// message up.
func langgraphRun(tb testing.TB) schematest.Scenario {
	tb.Helper()
	text, err := os.ReadFile("testdata/nodes.run")
	if err != nil {
		tb.Fatal(err)
	}
	s := schematest.Short(string(text))
	s.Name = "nodes"
	return s
}

// worlds returns runs of all kinds, each of which has ended.
func worlds(tb testing.TB, seeds uint64) (all []schematest.Scenario) {
	done := schematest.Short(`run.lifecycle {"state":"done"}`).Events
	for _, s := range append(schematest.All(), langgraphRun(tb)) {
		if s.Name != "long" { // it says the same again and again
			all = append(all, s)
		}
	}
	for seed := range seeds {
		damaged := schematest.MakeDamaged(seed, 3).Scenario
		damaged.Events = append(damaged.Events, done...) // the end may be what is missing
		all = append(all, damaged, schematest.Telling(seed), schematest.Generate(60, seed))
	}
	return all
}

// errCut is a connection that breaks before the answer comes.
var errCut = errors.New("connection reset")

// TestAnyRestartGivesTheSameSpans: a tap delivers at least once, in batches of any size. It is killed before or after
// a batch has reached the collector, goes on at a place before that, forgets runs, and divides batches. The collector
// has the same spans all the same, each in one form, and each with its parent. Every one of a hundred runs is killed
// at several places.
func TestAnyRestartGivesTheSameSpans(t *testing.T) {
	kills := 0
	for i, s := range worlds(t, 5) {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		o := Options{Contents: i%2 == 0, Pending: i%3 != 0}
		events := eventsOf(t, acme, s)
		want := trace(t, o, events)
		got := newStore()
		got.fail = func() (bool, error) {
			switch rng.IntN(4) {
			case 0:
				return false, errCut
			case 1:
				return true, errCut
			}
			return true, nil
		}
		cfg := Config{Options: o, Sender: got, History: history(events)}
		x := New(cfg)
		for place := 0; place < len(events); {
			n := min(1+rng.IntN(12), len(events)-place)
			kill := rng.IntN(4)
			if kill == 0 { // before the batch
				x = New(cfg)
				kills++
			}
			if rng.IntN(8) == 0 {
				cfg.Held = 1 // forgets everything between two batches
				x = New(cfg)
			}
			deliver(t, x, events[place:place+n])
			if kill == 1 { // after it, and before the place has moved
				x = New(cfg)
				kills++
				continue
			}
			place += n
		}
		if diff := got.difference(want); diff != "" {
			t.Fatalf("%s: %s", s.Name, diff)
		}
		for _, span := range got.orphans() {
			t.Errorf("%s: orphan %v", s.Name, span)
		}
	}
	if kills < 100 {
		t.Errorf("only %d kills", kills)
	}
}

// deliver writes a batch as the engine does: again after an error.
func deliver(t *testing.T, x *Exporter, batch []tap.Event) {
	t.Helper()
	for range 100 {
		refused, err := x.Write(t.Context(), batch)
		switch {
		case errors.Is(err, persister.ErrPoison):
			deliver(t, x, batch[:len(batch)/2])
			deliver(t, x, batch[len(batch)/2:])
			return
		case err == nil && len(refused) > 0:
			t.Fatal(refused)
		case err == nil:
			return
		}
	}
	t.Fatal("never delivered")
}

// TestPoison: what a collector never accepts is found by dividing, and is the letter of its own event. The rest is
// delivered.
func TestPoison(t *testing.T) {
	events := eventsOf(t, acme, langgraphRun(t))
	s := newStore()
	bad := schema.Seq(11)
	x := New(Config{Options: Options{Pending: true}, Sender: &picky{store: s, name: "execute_tool search"}})
	var letters []schema.Seq
	var write func(batch []tap.Event)
	write = func(batch []tap.Event) {
		refused, err := x.Write(t.Context(), batch)
		if errors.Is(err, persister.ErrPoison) && len(batch) > 1 {
			write(batch[:len(batch)/2])
			write(batch[len(batch)/2:])
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refused {
			letters = append(letters, batch[r.Event].Seq)
		}
	}
	write(events)
	if len(letters) != 2 || letters[0] != bad || letters[1] != 24 {
		t.Errorf("letters for %v, want the start and the end of the call", letters)
	}
	if whole := trace(t, Options{Pending: true}, events); len(s.spans) != len(whole.spans)-2 {
		t.Errorf("%d spans of %d", len(s.spans), len(whole.spans))
	}
}

// TestBeginningIsThereAtOnce: what begins is with the collector when the batch is that has its record, and what ends
// too.
func TestBeginningIsThereAtOnce(t *testing.T) {
	s := newStore()
	x := New(Config{Options: Options{Pending: true}, Sender: s})
	for _, e := range eventsOf(t, acme, langgraphRun(t)) {
		before := len(s.spans)
		deliver(t, x, []tap.Event{e})
		switch e.Type {
		case schema.TypeTaskStart, schema.TypeTaskEnd, schema.TypeModelStart, schema.TypeModelEnd, schema.TypeToolStart,
			schema.TypeToolEnd, schema.TypeTurnStart, schema.TypeTurnEnd, schema.TypeInputRequested,
			schema.TypeInputAnswered, schema.TypeChildSpawn:
			if len(s.spans) != before+1 {
				t.Errorf("seq %d %s has made %d spans", e.Seq, e.Type, len(s.spans)-before)
			}
		case schema.TypeTextDelta:
			if len(s.spans) != before {
				t.Errorf("seq %d %s has made %d spans", e.Seq, e.Type, len(s.spans)-before)
			}
		}
	}
}
