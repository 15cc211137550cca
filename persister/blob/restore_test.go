package blob_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"testing"

	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// into returns a store as a restore writes to it.
func into(t testing.TB, s tables) blob.RestoreTables {
	t.Helper()
	r, ok := s.(blob.RestoreTables)
	if !ok {
		t.Fatalf("nothing can be restored into %T", s)
	}
	return r
}

func restorer(t testing.TB, s tables, to blob.RestoreTables, from blob.ObjectStore, base string) *blob.Restorer {
	t.Helper()
	r, err := blob.NewRestorer(blob.RestoreConfig{Tables: s, Into: to, Store: from, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ended returns packs of a run that has ended.
func ended(run string, n int) []schema.Pack {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run}, day)
	var packs []schema.Pack
	for ; n > 0; n -= 1000 {
		packs = append(packs, w.Texts("", min(n, 1000)))
	}
	packs = append(packs, w.Texts("child_1", 3))
	return append(packs, w.Pack("", persistertest.Lifecycle(schema.StateDone)))
}

// TestRestore: from objects alone, tables get every row and every run as they were, byte for byte, with what is derived
// from them. A restore that was interrupted goes on, and one that is repeated does nothing.
func TestRestore(t *testing.T) {
	for name, open := range map[string]func(testing.TB) tables{"sqlite": openSQLite, "postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			store, base := openFolder(t)
			before := newBench(t, open(t), store, base, nil)
			all := make(map[schema.RunKey][]schema.Pack)
			for i := range 5 {
				packs := ended(fmt.Sprint("run_", i), 50+3000*(i%2))
				before.append(packs...)
				all[packs[0].Key] = packs
				if err := before.archiver.One(t.Context(), packs[0].Key); err != nil {
					t.Fatal(err)
				}
			}
			fresh := open(t)
			failing := &failingTables{RestoreTables: into(t, fresh), after: 2}
			if _, err := restorer(t, fresh, failing, store, base).Objects(t.Context(), ""); !errors.Is(err, errTables) {
				t.Fatalf("interrupted: %v", err)
			}
			r := restorer(t, fresh, into(t, fresh), store, base)
			got, err := r.Objects(t.Context(), "")
			if err != nil || got.Objects != 5 || got.Runs < 1 || got.Failed != 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			after := newBench(t, fresh, store, base, nil)
			for key, packs := range all {
				was, is := before.place(key), after.place(key)
				if was != is {
					t.Errorf("%s: %+v, it was %+v", key, is, was)
				}
				if body := read(t, after.archive, key, 0, schema.MaxSeq, nil); !bytes.Equal(body, bodyOf(packs)) {
					t.Errorf("%s: %d bytes, there were %d", key, len(body), len(bodyOf(packs)))
				}
				was1, err1 := before.tables.Head(t.Context(), key, "")
				is1, err2 := after.tables.Head(t.Context(), key, "")
				was1.Lane, is1.Lane = schema.Lane{}, schema.Lane{} // owners are not in objects
				if err1 != nil || err2 != nil || was1 != is1 {
					t.Errorf("%s: head %+v, it was %+v, %v, %v", key, is1, was1, err2, err1)
				}
			}
			for _, prefix := range []string{"", "acme/", "acme/" + day + "/run_1", "umbrella/"} {
				if got, err := r.Objects(t.Context(), prefix); err != nil || got.Runs != 0 || got.Events != 0 ||
					(got.Objects == 0) != (prefix == "umbrella/") {
					t.Errorf("again, %q: %+v, %v", prefix, got, err)
				}
			}
		})
	}
}

var errTables = errors.New("test: the tables are away")

// failingTables fail from a number of appends on.
type failingTables struct {
	blob.RestoreTables
	after int
}

func (f *failingTables) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	if f.after--; f.after < 0 {
		return persister.Result{}, errTables
	}
	return f.RestoreTables.Append(ctx, chunks)
}

// TestRestoreOverTables: what the tables have stays, what they lack is filled in, and what contradicts them, or is
// damaged, is refused and said.
func TestRestoreOverTables(t *testing.T) {
	store, base := openFolder(t)
	whole := newBench(t, openSQLite(t), store, base, nil)
	packs := make(map[string][]schema.Pack)
	for _, run := range []string{"older", "same", "other", "damaged", "deleted", "longer", "holed"} {
		packs[run] = ended("run_"+run, 40)
		whole.append(packs[run]...)
		if err := whole.archiver.One(t.Context(), packs[run][0].Key); err != nil {
			t.Fatal(err)
		}
	}
	fresh, db := openFile(t)
	b := newBench(t, fresh, store, base, nil)
	b.append(packs["older"][0])
	b.append(packs["same"]...)
	b.append(persistertest.NewWriter(packs["other"][0].Key, day).Texts("", 5))
	b.append(packs["deleted"]...)
	exec(t, db, `update agent_runs set deleted_at = '2026-01-01T00:00:00Z' where id = 'run_deleted'`)
	w := persistertest.NewWriter(packs["longer"][0].Key, day)
	more := w.Texts("", 40)
	b.append(more, w.Texts("child_1", 3), w.Pack("", persistertest.Lifecycle(schema.StateDone)),
		w.Pack("", persistertest.Lifecycle(schema.StateRunning)))
	b.append(packs["holed"]...)
	w = persistertest.NewWriter(packs["holed"][0].Key, day)
	w.Texts("", 44)
	b.append(w.Pack("", persistertest.Lifecycle(schema.StateRunning)))
	exec(t, db, `delete from agent_run_events where run_id = 'run_holed' and seq between 10 and 20`)
	damage(t, store, blob.Name(packs["damaged"][0].Key, day, 44))
	var failed []string
	r, err := blob.NewRestorer(blob.RestoreConfig{Tables: fresh, Into: fresh, Store: store, Base: base,
		Failed: func(name string, _ error) { failed = append(failed, name) }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Objects(t.Context(), "")
	if err != nil || got.Objects != 7 || got.Failed != 2 || len(failed) != 2 {
		t.Fatalf("%+v, failed %q, %v", got, failed, err)
	}
	for _, run := range []string{"older", "same"} {
		key := packs[run][0].Key
		if body := read(t, b.archive, key, 0, schema.MaxSeq, nil); !bytes.Equal(body, bodyOf(packs[run])) ||
			b.place(key).Archived != 44 {
			t.Errorf("%s: %d bytes, %+v", run, len(body), b.place(key))
		}
	}
	if body := read(t, b.archive, packs["holed"][0].Key, 0, 44, nil); !bytes.Equal(body, bodyOf(packs["holed"])) {
		t.Errorf("holed: %d bytes of %d", len(body), len(bodyOf(packs["holed"])))
	}
	if p := b.place(packs["other"][0].Key); p.Archived != 0 {
		t.Errorf("an object that contradicts the rows is named: %+v", p)
	}
	if p := b.place(packs["damaged"][0].Key); p.Day != "" {
		t.Errorf("a damaged object has made a run: %+v", p)
	}
	if p := b.place(packs["deleted"][0].Key); !p.Deleted {
		t.Errorf("a deleted run is back: %+v", p)
	}
}

func exec(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// damage changes a byte of an object.
func damage(t *testing.T, store blob.ObjectStore, name string) {
	t.Helper()
	b, _, err := store.Read(t.Context(), name, 0, 1<<20)
	if err == nil {
		b[7] ^= 4
		err = store.Delete(t.Context(), name)
	}
	if err == nil {
		err = store.Put(t.Context(), name, bytes.NewReader(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingObjects: the tables name objects that do not exist. A run with its rows is written again. Of one whose
// rows have left, what another object has is restored, and the rest is reported as lost; its numbers stay taken.
func TestMissingObjects(t *testing.T) {
	store, base := openFolder(t)
	fresh, db := openFile(t)
	b := newBench(t, fresh, store, base, nil)
	keys, all := make(map[string]schema.RunKey), make(map[string][]schema.Pack)
	for _, run := range []string{"rows", "cold", "shorter", "there"} {
		packs := ended("run_"+run, 40)
		b.append(packs...)
		keys[run], all[run] = packs[0].Key, packs
		if err := b.archiver.One(t.Context(), keys[run]); err != nil {
			t.Fatal(err)
		}
	}
	// The run went on, and was archived again; the bucket is as it was before.
	exec(t, db, `update agent_runs set replay_uri = replace(replay_uri, '.44.', '.60.'), archived_seq = 60, last_seq = 60, floor_seq = 60 where id = 'run_shorter'`)
	exec(t, db, `delete from agent_run_events where run_id in ('run_shorter', 'run_cold')`)
	exec(t, db, `update agent_runs set floor_seq = 44 where id = 'run_cold'`)
	for _, run := range []string{"rows", "cold"} {
		if err := store.Delete(t.Context(), blob.Name(keys[run], day, 44)); err != nil {
			t.Fatal(err)
		}
	}
	r := restorer(t, fresh, fresh, store, base)
	each := func() iter.Seq2[schema.RunKey, error] {
		return func(yield func(schema.RunKey, error) bool) {
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
		}
	}
	found, err := r.CheckRuns(t.Context(), each())
	if err != nil || len(found.Freed) != 1 || found.Freed[0] != keys["rows"] || len(found.Lost) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, l := range found.Lost {
		want := persister.RunLoss{Key: keys["cold"], First: 1, Last: 44, Reason: persister.LossObject}
		if l.Key == keys["shorter"] {
			want = persister.RunLoss{Key: l.Key, First: 45, Last: 60, Reason: persister.LossObject}
		}
		if l != want {
			t.Errorf("lost %+v, want %+v", l, want)
		}
	}
	if err := b.archiver.One(t.Context(), keys["rows"]); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.Verify(t.Context(), store, blob.Name(keys["rows"], day, 44)); err != nil {
		t.Error(err)
	}
	if body := read(t, b.archive, keys["shorter"], 0, 44, nil); !bytes.Equal(body, bodyOf(all["shorter"])) {
		t.Errorf("%d bytes of the shorter object are restored", len(body))
	}
	for run, last := range map[string]schema.Seq{"cold": 44, "shorter": 60} {
		if head, err := fresh.Head(t.Context(), keys[run], ""); err != nil || head.Last != last {
			t.Errorf("%s: the newest number is %d, %v", run, head.Last, err)
		}
	}
	again, err := r.CheckRuns(t.Context(), each())
	if err != nil || len(again.Freed) != 0 || len(again.Lost) != 1 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestRowsAreRestored: rows that are gone of a run whose row names its object are made again, those before the run's
// floor not.
func TestRowsAreRestored(t *testing.T) {
	for name, tt := range map[string]struct {
		gone  string
		floor int
		want  int // rows that are made
	}{
		"all": {"seq <= 44", 0, 44}, "first": {"seq <= 7", 0, 7}, "middle": {"seq between 10 and 20", 0, 11},
		"last": {"seq > 40", 0, 4}, "none": {"seq > 44", 0, 0},
		"floor": {"seq <= 30", 20, 10}, "left": {"seq <= 44", 44, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store, base := openFolder(t)
			s, db := openFile(t)
			b := newBench(t, s, store, base, nil)
			packs := ended("run_1", 40)
			key := packs[0].Key
			b.append(packs...)
			if err := b.archiver.One(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			place := b.place(key)
			exec(t, db, "delete from agent_run_events where "+tt.gone)
			exec(t, db, fmt.Sprintf("update agent_runs set floor_seq = %d", tt.floor))
			r := restorer(t, s, s, store, base)
			for round, want := range []int{tt.want, 0} { // the second time nothing is missing
				got, err := r.Objects(t.Context(), "")
				if err != nil || got.Events != want || got.Failed > 0 || got.Runs != min(want, 1) {
					t.Errorf("round %d: %+v, %v", round, got, err)
				}
			}
			var rows int
			if err := db.QueryRow("select count(*) from agent_run_events").Scan(&rows); err != nil || rows != 44-tt.floor {
				t.Errorf("%d rows, %v", rows, err)
			}
			if p := b.place(key); p.Archived != place.Archived || p.URI != place.URI {
				t.Errorf("the run's row was %+v, is %+v", place, p)
			}
			if body := read(t, b.archive, key, 0, schema.MaxSeq, nil); !bytes.Equal(body, bodyOf(packs)) {
				t.Errorf("%d bytes are served", len(body))
			}
		})
	}
}

// TestRowsGone: rows of a run are missing that its object has: all of them, the first, some in the middle, the last
// before newer ones. The run is served from the object, and goes on with its rows after it.
func TestRowsGone(t *testing.T) {
	for name, gone := range map[string]string{"all": "seq <= 44", "first": "seq <= 7",
		"middle": "seq between 10 and 20", "last": "seq between 40 and 44", "one": "seq = 1"} {
		t.Run(name, func(t *testing.T) {
			store, base := openFolder(t)
			s, db := openFile(t)
			b := newBench(t, s, store, base, nil)
			w := persistertest.NewWriter(key, day)
			packs := []schema.Pack{w.Texts("", 40), w.Texts("child_1", 3), w.Pack("", persistertest.Lifecycle(schema.StateDone))}
			b.append(packs...)
			if err := b.archiver.One(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			packs = append(packs, w.Pack("", persistertest.Lifecycle(schema.StateRunning)), w.Texts("", 5))
			b.append(packs[3:]...)
			exec(t, db, "delete from agent_run_events where "+gone)
			for _, after := range []schema.Seq{0, 6, 12, 41, 44, 46} {
				var want []byte
				for seq, line := range bytes.SplitAfter(bodyOf(packs), []byte("\n")) {
					if schema.Seq(seq) >= after {
						want = append(want, line...)
					}
				}
				if got := read(t, b.archive, key, after, schema.MaxSeq, nil); !bytes.Equal(got, want) {
					t.Errorf("after %d: %d bytes are served of %d", after, len(got), len(want))
				}
			}
		})
	}
}
