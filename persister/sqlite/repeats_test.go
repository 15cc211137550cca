package sqlite

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

var damaged = flag.Uint64("damaged", 60, "how many damaged logs are stored")

// TestDamagedLogs: in logs in which any control event is doubled, missing or late, lists and views show what a fold
// has.
func TestDamagedLogs(t *testing.T) {
	s := temp(t)
	persistertest.CheckRepeats(t, s, *damaged, s.firstColumn(t))
}

// TestModels: a run has the model of its newest message.
func TestModels(t *testing.T) {
	s := temp(t)
	persistertest.CheckModels(t, s, s.firstColumn(t))
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

// TestAppendsPrepareNothing: after the first batch no statement is prepared, whatever frames the events are: to prepare
// one costs more than to run it. SQLite asks its authorizer whenever it prepares.
func TestAppendsPrepareNothing(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, day)
	put := func(n int) {
		persistertest.Put(t, s, w.Pack("", persistertest.Lifecycle(schema.StateRunning),
			persistertest.Event(schema.TypeTurnStart, fmt.Sprintf(`{"turn_id":"t%d"}`, n)),
			persistertest.Event(schema.TypeMessageStart, fmt.Sprintf(`{"message_id":"m%d","role":"assistant","model":"x"}`, n)),
			persistertest.Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":"c%d","tool":"t"}`, n)),
			persistertest.Event(schema.TypeToolEnd, fmt.Sprintf(`{"call_id":"c%d","ok":true}`, n)),
			persistertest.Event(schema.TypeToolStart, `{"call_id":"in every turn","tool":"t"}`),
			persistertest.Event(schema.TypeToolEnd, `{"call_id":"in every turn","ok":true}`),
			persistertest.Event(schema.TypeSessionUpdated, fmt.Sprintf(`{"title":"title %d"}`, n)),
			persistertest.Event(schema.TypeInputRequested, fmt.Sprintf(`{"request_id":"q%d","question":"?"}`, n)),
			persistertest.Event(schema.TypeMessageEnd, fmt.Sprintf(`{"message_id":"m%d","usage":{"input_tokens":1}}`, n))))
	}
	put(0)
	prepared := watchPrepares(t, s)
	put(1) // SQLite prepares all statements again for the authorizer
	*prepared = nil
	put(2)
	if n := len(*prepared); n > 0 {
		t.Errorf("a batch prepared statements: %q", (*prepared)[:min(n, 20)])
	}
	other := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_2"}, day)
	persistertest.Put(t, s, other.Pack("", persistertest.Twice()...))
	put(3)
	*prepared = nil
	put(4)
	if n := len(*prepared); n > 0 {
		t.Errorf("beside a run that repeats, a batch prepared statements: %q", (*prepared)[:min(n, 20)])
	}
}

// watchPrepares collects what statements of the writer are prepared to read or to change.
func watchPrepares(t *testing.T, s *Store) *[]string {
	t.Helper()
	conn, err := s.write.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	prepared := new([]string)
	if err := conn.Raw(func(driver any) error {
		return driver.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(
			func(action sqlite.AuthorizerActionCode, what, column, _, _ string) sqlite.AuthorizerReturnCode {
				if action != sqlite.AuthTransaction {
					*prepared = append(*prepared, what+"."+column)
				}
				return sqlite.AuthorizerOK
			})
	}); err != nil {
		t.Fatal(err)
	}
	return prepared
}

// TestRepeatsInAnyOrder: events that come twice, in whatever order they are stored and stored again, are shown once,
// and ids that begin again in another turn are shown again. What was marked goes with its events.
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

// TestRepeatsOfOlderTables: what came twice before tables knew of repeats is shown once after the migration, and what
// comes twice after it too.
func TestRepeatsOfOlderTables(t *testing.T) {
	kept, path := filepath.Join(t.TempDir(), "kept.db"), filepath.Join(t.TempDir(), "s.db")
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	events := persistertest.Twice()
	last := len(events) - 1 // the end of a call
	s := opened(t, kept)
	persistertest.Put(t, s, w.Pack("", events[:last]...))
	if _, err := s.write.Exec(`update agent_runs set usage = '{"input_tokens":12}'`); err != nil {
		// as every event was counted
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
