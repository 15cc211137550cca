package persistertest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// whoHasRuns checks that each tenant is returned once, in bytewise order.
func (s *suite) whoHasRuns() {
	tenants := []string{"Zeta", "acme", "acme-2", "b"} // capitals come first, whatever the locale
	for _, tenant := range []string{"b", "acme", "Zeta", "acme-2"} {
		for _, run := range []string{"run_1", "run_2"} {
			w := NewWriter(schema.RunKey{Tenant: tenant, Run: run}, day)
			s.append(w.Pack("", Lifecycle(schema.StateRunning)))
		}
	}
	var got []string
	for after := ""; ; {
		next, err := s.catalog().NextTenant(s.Context(), after)
		if err != nil {
			s.Fatal(err)
		}
		if next == "" {
			break
		}
		got = append(got, next)
		after = next
	}
	if !slices.Equal(got, tenants) {
		s.Fatalf("tenants are %q, want %q", got, tenants)
	}
}

// NextTenant returns the first tenant after after.
func (m *Memory) NextTenant(ctx context.Context, after string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := ""
	for key := range m.runs {
		if key.Tenant > after && (next == "" || key.Tenant < next) {
			next = key.Tenant
		}
	}
	return next, ctx.Err()
}

// changed returns the keys of RunsChangedSince.
func (s *suite) changed(since time.Time) (keys []schema.RunKey) {
	s.Helper()
	for key, err := range s.catalog().RunsChangedSince(s.Context(), since) {
		if err != nil {
			s.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// pause waits until the stores' clocks have advanced.
func (s *suite) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.Context().Done():
	}
}

// changedSince lists the runs of all tenants that were written to, in pages.
func (s *suite) changedSince() {
	if got := s.changed(time.Time{}); len(got) != 0 {
		s.Fatalf("an empty store has %v", got)
	}
	var want []schema.RunKey
	var packs []schema.Pack
	for i := range 1100 {
		key := schema.RunKey{Tenant: []string{"acme", "Zeta", "b"}[i%3], Run: fmt.Sprint("run_", i)}
		want, packs = append(want, key), append(packs, NewWriter(key, day).Texts("", 1))
	}
	slices.SortFunc(want, compareKeys)
	before := time.Now()
	s.append(packs...)
	for _, since := range []time.Time{{}, before.Add(-time.Minute)} {
		if got := s.changed(since); !slices.Equal(got, want) {
			s.Fatalf("since %v: %d runs, or another order; want %d", since, len(got), len(want))
		}
	}
	if got := s.changed(time.Now().Add(time.Minute)); len(got) != 0 {
		s.Fatalf("%d runs have changed after now", len(got))
	}
	s.pause(20 * time.Millisecond)
	middle := time.Now()
	s.pause(20 * time.Millisecond)
	s.append(packs[7], NewWriter(key, day).Texts("", 1)) // one that was there, and one more
	if got := s.changed(middle); !slices.Equal(got, []schema.RunKey{packs[7].Key, key}) &&
		!slices.Equal(got, []schema.RunKey{key, packs[7].Key}) {
		s.Fatalf("two runs were written to, the walk gives %v", got)
	}
	for range s.catalog().RunsChangedSince(s.Context(), before) {
		break // a reader that stops
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for _, err := range s.catalog().RunsChangedSince(ctx, before) {
		if err == nil {
			s.Fatal("a walk on an ended context yields keys")
		}
	}
}

// changedNotForgotten: a deleted run is left out.
func (s *suite) changedNotForgotten(set setFloor) {
	other := schema.RunKey{Tenant: key.Tenant, Run: "run_2"}
	s.append(NewWriter(key, day).Texts("", 3), NewWriter(other, day).Texts("", 3))
	set(key, 2)
	if got := s.changed(time.Time{}); !slices.Equal(got, []schema.RunKey{key, other}) {
		s.Fatalf("%v", got)
	}
	set(key, schema.MaxSeq)
	if got := s.changed(time.Time{}); !slices.Equal(got, []schema.RunKey{other}) {
		s.Fatalf("%v", got)
	}
}

// RunsChangedSince iterates over the runs that were written to at t or later.
func (m *Memory) RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error] {
	return persister.Keys(func(after schema.RunKey) (keys []schema.RunKey, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for key, r := range m.runs {
			if compareKeys(key, after) > 0 && !r.changed.Before(t) && r.floor != schema.MaxSeq {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, compareKeys)
		return keys, ctx.Err()
	})
}

func compareKeys(a, b schema.RunKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Run, b.Run))
}
