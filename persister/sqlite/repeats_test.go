package sqlite

import (
	"flag"
	"path/filepath"
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

var damaged = flag.Uint64("damaged", 60, "how many damaged logs are stored")

// TestDamagedLogs: in logs in which any control event is doubled, missing or late, lists and views show what a fold has.
func TestDamagedLogs(t *testing.T) {
	s := temp(t)
	persistertest.CheckRepeats(t, s, *damaged, s.firstColumn(t))
}

// firstColumn returns a function that returns the first column of a query's result.
func (s *Store) firstColumn(t *testing.T) func(text, arg string) []string {
	return func(text, arg string) (all []string) {
		rows, err := s.read.QueryContext(t.Context(), text, arg)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return all
	}
}

// TestRepeatsInAnyOrder: events that come twice, in whatever order they are stored and stored again, are shown once, and
// ids that begin again in another turn are shown again. What was marked goes with its events.
func TestRepeatsInAnyOrder(t *testing.T) {
	s := temp(t)
	for round := range 12 {
		key := schema.RunKey{Tenant: "acme_" + string(rune('a'+round)), Run: "run_" + string(rune('a'+round))}
		w := persistertest.NewWriter(key, "20260228")
		var packs []schema.Pack
		for _, e := range persistertest.Twice() {
			packs = append(packs, w.Pack("", e))
		}
		for i := range packs { // all of them, in an order of the round
			p := packs[(i*(1+round)+round)%len(packs)]
			persistertest.Put(t, s, p)
		}
		persistertest.Put(t, s, packs...)
		persistertest.CheckTwice(t, key, s.firstColumn(t))
	}
}

// TestRepeatsOfOlderTables: what came twice before tables knew of repeats is shown once after the migration, and what comes
// twice after it too.
func TestRepeatsOfOlderTables(t *testing.T) {
	kept, path := filepath.Join(t.TempDir(), "kept.db"), filepath.Join(t.TempDir(), "s.db")
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	events := persistertest.Twice()
	last := len(events) - 1 // the end of a call
	s := opened(t, kept)
	persistertest.Put(t, s, w.Pack("", events[:last]...))
	if _, err := s.write.Exec(`update agent_runs set usage = '{"input_tokens":12}'`); err != nil { // as every event was counted
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyOlder(t, path, kept, 21)
	s = opened(t, path)
	defer s.Close()
	persistertest.Put(t, s, w.Pack("", events[last]))
	persistertest.Put(t, s, w.Pack("", events[last]))
	persistertest.CheckTwice(t, w.Key, s.firstColumn(t))
}
