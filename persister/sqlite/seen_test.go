package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestSeenByTwoStores: an event that another process has stored is known to the store that has seen the run from its
// beginning: what repeats it is marked.
func TestSeenByTwoStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	stores := []*Store{opened(t, path), opened(t, path)}
	events := []schema.Event{
		persistertest.Event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		persistertest.Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant","model":"x"}`),
		persistertest.Event(schema.TypeMessageEnd, `{"message_id":"m","usage":{"input_tokens":1}}`),
		persistertest.Event(schema.TypeToolStart, `{"call_id":"c","tool":"t","input":{}}`),
		persistertest.Event(schema.TypeToolEnd, `{"call_id":"c","ok":true}`),
	}
	for of := 1; of < len(events); of++ {
		run := fmt.Sprint("run_", of)
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run}, "20260228")
		for i, e := range events {
			by := stores[0]
			if i == of {
				by = stores[1]
			}
			persistertest.Put(t, by, w.Pack("", e))
		}
		persistertest.Put(t, stores[0], w.Pack("", events[of]))
		got := stores[0].firstColumn(t)(`select cast(seq as text) from agent_run_repeats where run_id = $1`, run)
		if want := []string{fmt.Sprint(len(events) + 1)}; !slices.Equal(got, want) {
			t.Errorf("%s twice: %q are marked, want %q", events[of].Type, got, want)
		}
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNewFramesAskNothing: of a run that a store has seen from its beginning no start and no end is looked up, and with
// the same id it is.
func TestNewFramesAskNothing(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, day)
	call := func(typ string, id int) schema.Event {
		return persistertest.Event(typ, fmt.Sprintf(`{"call_id":"c%d","tool":"t","ok":true}`, id))
	}
	persistertest.Put(t, s, w.Texts("", 1))
	other, err := s.write.Prepare(`select 1`)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.statements[stNamed].Close(); err != nil {
		t.Fatal(err)
	}
	s.statements[stNamed] = other // who asks, fails
	for id := range 20 {
		persistertest.Put(t, s, w.Pack("", call(schema.TypeToolStart, id)))
		persistertest.Put(t, s, w.Pack("", call(schema.TypeToolEnd, id), call(schema.TypeToolEnd, 100+id)))
	}
	c, err := persister.Chunks(w.Pack("", call(schema.TypeToolStart, 7)))
	if err == nil {
		_, err = s.Append(t.Context(), c)
	}
	if err == nil {
		t.Error("a call that starts once more was not looked up")
	}
}

// TestSeenIsBounded: however many runs and frames there are, a store remembers a bounded number of them, and the newest.
func TestSeenIsBounded(t *testing.T) {
	var s seenRuns
	s.expectVersion(1)
	size := func() (n int) {
		for _, runs := range []map[schema.RunKey]*seenRun{s.young, s.old} {
			for _, r := range runs {
				n += runWeight + len(r.frames)
			}
		}
		return n
	}
	for i := range 3000 {
		chunk := &persister.Chunk{Key: schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}}
		r := &seenRun{whole: true}
		s.add(chunk.Key, r)
		for j := range 1 + i%300 {
			row := &persister.BatchRow{Row: persister.Row{Seq: schema.Seq(j + 1), Type: schema.TypeToolStart}, Chunk: chunk}
			if !s.addFrame(r, frame{row: row, sum: frameSum(row.Type, "", fmt.Sprint("c", j))}) {
				t.Fatal("a new call repeats something")
			}
		}
		if s.find(chunk.Key) != r {
			t.Fatal("the newest run is forgotten")
		}
		if n := size(); n > 2*mostSeen {
			t.Fatalf("%d are remembered", n)
		}
	}
	s.expectVersion(2)
	if size() > 0 {
		t.Error("another process has written, and something is remembered")
	}
}
