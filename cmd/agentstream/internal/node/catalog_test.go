package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/fanout"
	"agentstream/internal/backoff"
	"agentstream/schema"
)

// roots is an archive and a log that know roots of children, with what it costs to ask them.
type roots struct {
	mu      sync.Mutex
	known   map[string]string // child → root
	err     error
	asked   int
	running int
	most    int
	took    time.Duration
}

func (r *roots) Parent(ctx context.Context, tenant, child string) (string, error) {
	r.mu.Lock()
	r.asked++
	r.running++
	r.most = max(r.most, r.running)
	run, err, took := r.known[tenant+"/"+child], r.err, r.took
	r.mu.Unlock()
	if took > 0 {
		backoff.Sleep(ctx, took)
	}
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
	return run, err
}

func (r *roots) Runs(_ context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	return []schema.RunInfo{{ID: tenant, Last: schema.Seq(q.Limit)}}, r.err
}

func TestCatalogParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		archive := &roots{known: map[string]string{"acme/old": "root_1"}}
		log := &roots{known: map[string]string{"acme/young": "root_2"}, took: 10 * time.Millisecond}
		c := newCatalog(archive, log.Parent)
		ask := func(tenant, child, want string, wantErr error, archived, searched int) {
			t.Helper()
			archive.asked, log.asked = 0, 0
			run, err := c.Parent(t.Context(), tenant, child)
			if run != want || !errors.Is(err, wantErr) || archive.asked != archived || log.asked != searched {
				t.Errorf("%s/%s: %q, %v; archive asked %d times, log %d; want %q, %v, %d, %d", tenant, child, run, err,
					archive.asked, log.asked, want, wantErr, archived, searched)
			}
		}
		ask("acme", "old", "root_1", nil, 1, 0) // what is persisted is not searched for
		ask("acme", "old", "root_1", nil, 0, 0)
		ask("acme", "young", "root_2", nil, 1, 1)
		ask("acme", "young", "root_2", nil, 0, 0)
		ask("globex", "old", "", nil, 1, 1)
		ask("globex", "old", "", nil, 0, 0)
		time.Sleep(catalogMissed + time.Millisecond)
		archive.known["globex/old"] = "root_3"
		ask("globex", "old", "root_3", nil, 1, 0) // it has come into being meanwhile
		time.Sleep(catalogFound)
		ask("acme", "old", "root_1", nil, 1, 0)

		time.Sleep(catalogFound)
		archive.err = fmt.Errorf("database: %w", schema.ErrUnavailable)
		ask("acme", "young", "root_2", nil, 1, 1) // the log knows it all the same
		ask("acme", "nobody", "", schema.ErrUnavailable, 1, 1)
		ask("acme", "nobody", "", schema.ErrUnavailable, 1, 1) // that is not "no such child"
		log.err = errors.New("no responders")
		ask("acme", "other", "", log.err, 1, 1)
	})
}

// TestCatalogSearchesFew: many who ask for children that nobody has keep the log at two searches at a
// time, many who ask for one child cost one search, and who is tired of waiting goes.
func TestCatalogSearchesFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &roots{known: map[string]string{"acme/kid": "root"}, took: 100 * time.Millisecond}
		c := newCatalog(nil, log.Parent)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if run, err := c.Parent(t.Context(), "acme", "kid"); run != "root" || err != nil {
					t.Errorf("%q, %v", run, err)
				}
			})
		}
		wg.Wait()
		if log.asked > catalogSearches {
			t.Errorf("%d searches for one child", log.asked)
		}
		log.most = 0
		for i := range 20 {
			wg.Go(func() {
				if run, err := c.Parent(t.Context(), "acme", fmt.Sprint("nobody_", i)); run != "" || err != nil {
					t.Errorf("%q, %v", run, err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Parent(ctx, "acme", "late"); !errors.Is(err, fanout.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		began := time.Now()
		if _, err := c.Parent(t.Context(), "other", "kid"); err != nil || time.Since(began) > log.took {
			t.Errorf("another tenant, after %v: %v", time.Since(began), err)
		}
		wg.Wait()
		if log.most != catalogSearches+1 {
			t.Errorf("%d searches at a time", log.most)
		}
	})
}

func TestCatalogKeepsSoMuch(t *testing.T) {
	e := newExpiring(3, time.Hour)
	key := func(i int) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: fmt.Sprint(i)} }
	for i := range 3 {
		e.put(key(i), fmt.Sprint("root_", i))
	}
	e.get(key(0)) // used: it stays
	e.put(key(3), "root_3")
	e.put(key(3), "root_3")
	for i, want := range []bool{true, false, true, true} {
		if run, ok := e.get(key(i)); ok != want || ok && run != fmt.Sprint("root_", i) {
			t.Errorf("%d: %q, %v", i, run, ok)
		}
	}
	if len(e.entries) != 3 || e.used.Len() != 3 {
		t.Errorf("%d entries, %d used", len(e.entries), e.used.Len())
	}
	other := schema.RunKey{Tenant: "other", Run: "kid"}
	e.put(other, "root")
	for i := range 100 {
		e.put(key(i), "root")
	}
	if run, ok := e.get(other); !ok || run != "root" || len(e.entries) != 3 {
		t.Errorf("%d entries, and what another tenant has asked for is gone: %v", len(e.entries), !ok)
	}
}

func TestCatalogRuns(t *testing.T) {
	if _, err := newCatalog(nil, nil).Runs(t.Context(), "acme", schema.RunsQuery{}); !errors.Is(err, edge.ErrNoRuns) {
		t.Error(err)
	}
	runs, err := newCatalog(&roots{}, nil).Runs(t.Context(), "acme", schema.RunsQuery{Limit: 7})
	if err != nil || len(runs) != 1 || runs[0].ID != "acme" || runs[0].Last != 7 {
		t.Errorf("%+v, %v", runs, err)
	}
}
