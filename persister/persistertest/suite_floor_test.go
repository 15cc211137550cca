package persistertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"agentstream/persister"
	"agentstream/schema"
)

// setFloor removes the rows up to floor from a store; with schema.MaxSeq the run is deleted. It stands for what
// archives and retention do.
type setFloor func(key schema.RunKey, floor schema.Seq)

// runFloors tests rows that arrive again after they were removed, against Memory.
func runFloors(t *testing.T, open func(t *testing.T) (SuiteStore, setFloor)) {
	t.Run("dropped", func(t *testing.T) {
		store, set := open(t)
		s := &suite{T: t, store: store}
		s.dropped(set)
	})
	t.Run("changed", func(t *testing.T) {
		store, set := open(t)
		s := &suite{T: t, store: store}
		s.changedNotForgotten(set)
	})
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			store, set := open(t)
			m := NewMemory()
			f := &floors{T: t, store: store, memory: m, random: rand.New(rand.NewPCG(seed, 1))}
			f.set = func(key schema.RunKey, floor schema.Seq) {
				m.SetFloor(key, floor)
				set(key, floor)
			}
			f.run()
		})
	}
}

func (s *suite) dropped(set setFloor) {
	w := NewWriter(key, day)
	a, b, c := w.Pack("", messageEnd(`{"n":1}`)), w.Texts("kid", 4), w.Pack("", messageEnd(`{"n":10}`))
	s.append(a, b, c)
	set(key, 3)
	res := s.append(a, b, c)
	if s.result(res, 0, 3, 0); res.Dropped != 3 {
		s.Fatalf("%d rows dropped, want 3", res.Dropped)
	}
	s.wantUsage(acme, `{"n":11}`)
	forged := NewWriter(key, day).Pack("", messageEnd(`{"n":100}`)) // seq 1 again: the store cannot know its content
	if res := s.append(forged); res.Dropped != 1 || len(res.Conflicts) != 0 {
		s.Fatalf("%+v", res)
	}
	d := w.Texts("", 2)
	if res := s.append(c, d); res.Inserted != 2 || res.Repeated != 1 || res.Dropped != 0 {
		s.Fatalf("%+v", res)
	}
	s.head(key, "", headOf(d))
	s.wantUsage(acme, `{"n":11}`)
	set(key, schema.MaxSeq)
	other := NewWriter(schema.RunKey{Tenant: key.Tenant, Run: "other"}, day).Texts("", 1)
	if res := s.append(d, w.Texts("kid2", 3), other, NewWriter(key, "20260301").Texts("", 2)); res.Inserted != 1 ||
		res.Dropped != 7 || len(res.Conflicts) != 0 {
		s.Fatalf("a run that is to be forgotten: %+v", res)
	}
}

// floors sends the same packs to a store and to Memory.
type floors struct {
	*testing.T
	store  SuiteStore
	memory *Memory
	set    setFloor
	random *rand.Rand
}

func (f *floors) run() {
	var packs []schema.Pack
	keys := make([]schema.RunKey, 4)
	for i := range keys {
		keys[i] = schema.RunKey{Tenant: acme, Run: fmt.Sprint("run_", i)}
		packs = append(packs, f.write(NewWriter(keys[i], day))...)
		packs = append(packs, f.write(NewWriter(keys[i], day))[:3]...) // other packs with the same seqs
	}
	packs = append(packs, NewWriter(keys[0], "20260301").Texts("", 3))
	forgotten := map[schema.RunKey]bool{}
	for range 60 {
		batch := make([]schema.Pack, 1+f.random.IntN(12))
		for i := range batch {
			batch[i] = packs[f.random.IntN(len(packs))]
		}
		f.append(batch)
		key := keys[f.random.IntN(len(keys))]
		switch n := f.random.IntN(10); {
		case forgotten[key]:
		case n == 0 && len(forgotten) == 0:
			f.set(key, schema.MaxSeq)
			forgotten[key] = true
		case n < 3:
			if h, _ := f.memory.Head(f.Context(), key, ""); h.Last > 0 {
				floor := 1 + schema.Seq(f.random.Int64N(int64(h.Last)))
				f.set(key, max(floor, f.memory.Floor(key)))
			}
		}
		f.compare(keys, forgotten)
	}
}

func (f *floors) write(w *Writer) (packs []schema.Pack) {
	for range 12 {
		child := []string{"", "", "kid"}[f.random.IntN(3)]
		switch f.random.IntN(3) {
		case 0:
			packs = append(packs, w.Pack(child, messageEnd(fmt.Sprintf(`{"n":%d}`, f.random.IntN(1000)))))
		case 1:
			packs = append(packs, w.Pack("", Lifecycle([]schema.RunState{schema.StateRunning,
				schema.StatePaused}[f.random.IntN(2)])))
		default:
			packs = append(packs, w.Texts(child, 1+f.random.IntN(140)))
		}
	}
	return packs
}

func (f *floors) append(packs []schema.Pack) {
	f.Helper()
	var results [2]persister.Result
	for i, store := range []SuiteStore{f.store, f.memory} {
		chunks, err := persister.Chunks(packs...)
		if err != nil {
			f.Fatal(err)
		}
		if results[i], err = tablesOf(f.T, store).Append(f.Context(), chunks); err != nil {
			f.Fatal(err)
		}
		slices.SortFunc(results[i].Conflicts, func(a, b persister.Conflict) int { return 2*(a.Chunk-b.Chunk) + sign(a.Row-b.Row) })
	}
	if got, want := results[0], results[1]; got.Inserted != want.Inserted || got.Repeated != want.Repeated ||
		got.Dropped != want.Dropped ||
		!slices.Equal(got.Conflicts, want.Conflicts) {
		f.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func sign(n int) int { return min(max(n, -1), 1) }

// compare compares all runs that are not deleted.
func (f *floors) compare(keys []schema.RunKey, forgotten map[schema.RunKey]bool) {
	f.Helper()
	for _, key := range keys {
		if forgotten[key] {
			continue
		}
		got, err := f.store.Head(f.Context(), key, "")
		if err != nil {
			f.Fatal(err)
		}
		want, _ := f.memory.Head(f.Context(), key, "")
		sameHead(f.T, got, want)
		// An iteration ends at a gap. One begins at each place where a gap may be.
		for after := f.memory.Floor(key); after < want.Last; after += 50 {
			if a, b := f.lines(f.store, key, after), f.lines(f.memory, key, after); !bytes.Equal(a, b) {
				f.Fatalf("%s after %d: %s", key, after, difference(a, b))
			}
		}
	}
	q := schema.RunsQuery{Limit: many}
	got, err := f.store.(Catalog).Runs(f.Context(), acme, q)
	if err != nil {
		f.Fatal(err)
	}
	want, _ := f.memory.Runs(f.Context(), acme, q)
	gone := func(r schema.RunInfo) bool { return forgotten[schema.RunKey{Tenant: acme, Run: r.ID}] }
	got, want = slices.DeleteFunc(got, gone), slices.DeleteFunc(want, gone)
	for i := range want {
		if i >= len(got) || got[i].ID != want[i].ID || got[i].State != want[i].State || got[i].Last != want[i].Last ||
			!reflect.DeepEqual(got[i].Usage.String(), want[i].Usage.String()) {
			f.Fatalf("runs\n got %+v\nwant %+v", got, want)
		}
	}
}

func (f *floors) lines(store SuiteStore, key schema.RunKey, after schema.Seq) (body []byte) {
	f.Helper()
	for p, err := range store.Packs(f.Context(), key, after, all) {
		if err != nil {
			f.Fatal(err)
		}
		body = append(body, p.Body...)
	}
	return body
}
