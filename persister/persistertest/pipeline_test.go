package persistertest_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

func openSQLite(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestLogToStore goes the whole way: packs in JetStream, hostile payloads among them, with messages
// in between that nobody of ours has published.
func TestLogToStore(t *testing.T) {
	for name, open := range map[string]func(*testing.T) persistertest.SuiteStore{
		"postgres": func(t *testing.T) persistertest.SuiteStore { return open(t, testkit.Postgres(t)) },
		"sqlite":   func(t *testing.T) persistertest.SuiteStore { return openSQLite(t, filepath.Join(t.TempDir(), "s.db")) },
		"memory":   func(*testing.T) persistertest.SuiteStore { return persistertest.NewMemory() },
	} {
		t.Run(name, func(t *testing.T) { logToStore(t, open(t)) })
	}
}

func logToStore(t *testing.T, store persistertest.SuiteStore) {
	log := testkit.NATS(t)
	put := func(subject string, header map[string][]string, body []byte) {
		t.Helper()
		if _, err := log.JS.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	var runs [][]schema.Pack
	for i, id := range []string{"alpha", "beta", "gamma", "delta", "epsilon"} {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: id}, "20260228")
		packs := []schema.Pack{w.Pack("", persistertest.Lifecycle(schema.StateRunning))}
		for j, payload := range persistertest.Hostile() {
			if j%5 == i {
				packs = append(packs, w.Pack("kid", persistertest.Event(schema.TypeTextDelta, payload)))
			}
		}
		packs = append(packs, w.Texts("", 200), w.Pack("", persistertest.Lifecycle(schema.StateDone)))
		runs = append(runs, packs)
	}
	for i := range 4 {
		for _, packs := range runs {
			p := packs[i]
			subject := schema.Subject(p.Key, p.Child, log.Partitions)
			put(subject, p.Headers(), p.Body)
			put(subject, nil, []byte("poison \x00 \xff"))
			// nothing to store
			put(schema.ChildSubject(schema.RunKey{Tenant: "acme", Run: "silent"}, p.Key.Run, log.Partitions), nil, nil)
			put(subject, p.Headers(), bytes.Replace(p.Body, []byte(`"run_id":"`), []byte(`"run_id":"x`), 1))
		}
	}
	for _, packs := range runs {
		for _, p := range packs[4:] {
			put(schema.Subject(p.Key, p.Child, log.Partitions), p.Headers(), p.Body)
		}
	}
	p, stop := persist(t, log, store, persister.Hooks{})
	begin := time.Now()
	for _, packs := range runs {
		var want []byte
		for _, p := range packs {
			want = append(want, p.Body...)
		}
		until(t, func() bool {
			var got []byte
			for p, err := range store.Packs(t.Context(), packs[0].Key, 0, schema.MaxSeq) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p.Body...)
			}
			return bytes.Equal(got, want)
		})
		head, err := store.Head(t.Context(), packs[0].Key, "")
		if last := packs[len(packs)-1].Head; err != nil || head.Last != last.Last || head.LastID != last.LastID ||
			head.State != schema.StateDone {
			t.Errorf("head %+v, want %+v (%v)", head, last, err)
		}
	}
	until(t, func() bool { return status(p, lagging) == nil })
	t.Logf("all is stored after %v", time.Since(begin))
	stop()
	deadLetters, err := store.DeadLetters(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	reasons := make(map[string]int)
	for _, l := range deadLetters {
		reasons[l.Reason]++
	}
	// 20 raw messages; 20 packs of which one line each was changed.
	if reasons[persister.ReasonBadMessage] != 20 || reasons[persister.ReasonBadEvent] != 20 || len(reasons) != 2 {
		t.Errorf("dead letters: %v", reasons)
	}
	again, stop := persist(t, log, store, persister.Hooks{})
	until(t, func() bool { return status(again, lagging) == nil })
	stop()
	if n := commits(again); n != 0 {
		t.Errorf("a second persister found %d new rows", n)
	}
}
