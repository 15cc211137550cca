package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister/blob"
	"agentstream/persister/blob/s3"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestArchivers: two processes' archivers over the same tables and objects archive every run once, hole
// or not, and leave no orphan.
func TestArchivers(t *testing.T) {
	for name, open := range map[string]func(testing.TB) tables{"sqlite": openSQLite, "postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			const runs = 60
			tables := open(t)
			store, base := openFolder(t)
			var archived, holes, puts atomic.Int64
			change := func(c *blob.ArchiverConfig) {
				c.Store = counting{store, &puts}
				c.Hooks = blob.Hooks{
					Archived: func(schema.RunKey, *blob.Index, int64, time.Duration) { archived.Add(1) },
					Failed: func(key schema.RunKey, err error) {
						if !errors.Is(err, blob.ErrHole) || key.Run != "run_hole" {
							t.Errorf("%s: %v", key, err)
						}
						holes.Add(1)
					},
				}
			}
			one, two := newBench(t, tables, store, base, change), newBench(t, tables, store, base, change)
			want := make(map[schema.RunKey][]byte)
			for i := range runs {
				key := schema.RunKey{Tenant: fmt.Sprintf("tenant_%d", i%3), Run: fmt.Sprintf("run_%d", i)}
				want[key] = bodyOf(one.run(persistertest.NewWriter(key, day), 20+i))
			}
			open := schema.RunKey{Tenant: "acme", Run: "run_open"}
			one.append(persistertest.NewWriter(open, day).Texts("", 5))
			hole := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_hole"}, day)
			first, lost := hole.Texts("", 5), hole.Texts("", 5)
			one.append(first, hole.Pack("", persistertest.Lifecycle(schema.StateDone)))

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for _, b := range []*bench{one, two} {
				wg.Go(func() {
					if err := b.archiver.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			until(t, ctx, func() bool { return archived.Load() >= runs && holes.Load() > 0 })
			cancel()
			wg.Wait()
			if n := puts.Load(); n != runs+1 {
				t.Errorf("%d objects were written for %d runs and one with a hole", n, runs)
			}
			if n := len(one.objects()); n != runs {
				t.Errorf("%d objects, want %d", n, runs)
			}
			a := one.reader(cooled{tables, cold})
			for key, body := range want {
				if got := read(t, a, key, 0, schema.MaxSeq, nil); !bytes.Equal(got, body) {
					t.Errorf("%s differs", key)
				}
			}
			// What was missing comes.
			one.append(lost)
			if err := one.archiver.One(t.Context(), hole.Key); err != nil || one.place(hole.Key).Archived != hole.Head.Last {
				t.Errorf("a run whose hole was filled: %v, %+v", err, one.place(hole.Key))
			}
			if n, err := tables.Backlog(t.Context(), 0, 10); err != nil || n != 0 {
				t.Errorf("backlog %d, %v", n, err)
			}
		})
	}
}

// counting counts what is put.
type counting struct {
	blob.ObjectStore
	puts *atomic.Int64
}

func (c counting) Put(ctx context.Context, name string, body io.Reader) error {
	c.puts.Add(1)
	return c.ObjectStore.Put(ctx, name, body)
}

func until(t testing.TB, ctx context.Context, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it did not come to pass")
		}
	}
}

// TestMoved: a run that goes on while its object is being written keeps what it had, and the object goes.
func TestMoved(t *testing.T) {
	store, base := openFolder(t)
	tables := openSQLite(t)
	w := persistertest.NewWriter(key, day)
	var during func()
	b := newBench(t, tables, store, base, func(c *blob.ArchiverConfig) { c.Store = interrupted{store, &during} })
	packs := b.run(w, 50)
	during = func() {
		p := w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"wait"}`))
		packs = append(packs, p)
		b.append(p)
	}
	if err := b.archiver.One(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if p := b.place(key); p.URI != "" || p.Archived != 0 || len(b.objects()) != 0 {
		t.Fatalf("%+v, objects %q", p, b.objects())
	}
	// An attempt that died before it could name its object has left one: it is taken, not written again.
	end := w.Pack("", persistertest.Lifecycle(schema.StateDone))
	b.append(end)
	during = nil
	name := blob.Name(key, day, w.Head.Last)
	var left bytes.Buffer
	lw, err := blob.NewWriter(&left, key, schema.Head{Day: day})
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range b.archive.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err == nil {
			err = lw.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), name, &left); err != nil {
		t.Fatal(err)
	}
	if err := b.archiver.One(t.Context(), key); err != nil || b.place(key).Archived != w.Head.Last {
		t.Fatalf("%+v, %v", b.place(key), err)
	}
}

// interrupted lets something happen before an object is put.
type interrupted struct {
	blob.ObjectStore
	during *func()
}

func (i interrupted) Put(ctx context.Context, name string, body io.Reader) error {
	err := i.ObjectStore.Put(ctx, name, body)
	if *i.during != nil {
		(*i.during)()
	}
	return err
}

// TestReadBack: what a store has not kept as it came is not named by the run, and is written again.
func TestReadBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "f")
	store, err := blob.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	damage := func() {}
	b := newBench(t, openSQLite(t), store, blob.FolderBase,
		func(c *blob.ArchiverConfig) { c.Store = interrupted{store, &damage} })
	w := persistertest.NewWriter(key, day)
	b.run(w, 500)
	path := filepath.Join(folder, filepath.FromSlash(blob.Name(key, day, w.Head.Last)))
	damage = func() {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 1
		write(t, path, data)
	}
	if err := b.archiver.One(t.Context(), key); !errors.Is(err, blob.ErrCorrupt) {
		t.Fatalf("a damaged object: %v", err)
	}
	if p := b.place(key); p.URI != "" || len(b.objects()) > 0 {
		t.Fatalf("%+v, objects %q", p, b.objects())
	}
	damage = nil
	if err := b.archiver.One(t.Context(), key); err != nil || b.place(key).URI == "" {
		t.Fatalf("%+v, %v", b.place(key), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file has mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder has mode %v, %v", info.Mode(), err)
	}
	if _, err := blob.Verify(t.Context(), store, blob.Name(key, day, w.Head.Last)); err != nil {
		t.Error(err)
	}
}

// TestAudit: what no run needs goes, once it is old; what may be the only copy stays.
func TestAudit(t *testing.T) {
	store, base := openFolder(t)
	b := newBench(t, openSQLite(t), store, base, func(c *blob.ArchiverConfig) { c.Grace = -1 })
	w := persistertest.NewWriter(key, day)
	b.run(w, 50)
	if err := b.archiver.One(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	named := blob.Name(key, day, w.Head.Last)
	keep := []string{named, blob.Name(key, day, w.Head.Last+9),
		blob.Name(schema.RunKey{Tenant: "acme", Run: "run_unknown"}, day, 3)}
	for _, name := range append(keep[1:], blob.Name(key, day, 4)) {
		if err := store.Put(t.Context(), name, bytes.NewReader([]byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	young := newBench(t, b.tables, store, base, nil)
	if r, err := young.archiver.Audit(t.Context(), true); err != nil || r != (blob.Audit{Objects: 4}) {
		t.Fatalf("%+v, %v", r, err)
	}
	for range 2 {
		if r, err := b.archiver.Audit(t.Context(), false); err != nil ||
			r != (blob.Audit{Objects: 4, Removed: 1, Unknown: 2}) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if r, err := b.archiver.Audit(t.Context(), true); err != nil || r.Removed != 1 || len(b.objects()) != 3 {
		t.Fatalf("%+v, %v, %q", r, err, b.objects())
	}
}

// TestOutage: while the store of objects is away runs fail and wait; when it is back they are archived.
func TestOutage(t *testing.T) {
	server := testkit.S3(t)
	store, err := s3.Open(s3.Config{Bucket: server.Bucket, Endpoint: "http://" + server.Endpoint, Region: server.Region,
		PathStyle: true, AccessKey: server.AccessKey, SecretKey: server.SecretKey, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	tables := openSQLite(t)
	b := newBench(t, tables, store, store.Base(), func(c *blob.ArchiverConfig) {
		c.Lease = 200 * time.Millisecond
		c.Hooks.Failed = func(schema.RunKey, error) { failed.Add(1) }
	})
	w := persistertest.NewWriter(key, day)
	packs := b.run(w, 50)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.archiver.Run(ctx) }()
	until(t, ctx, func() bool { return failed.Load() > 0 })
	if err := b.archive.Ping(ctx); err == nil {
		t.Error("a store that is away answers")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, func() bool { return b.place(key).URI != "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := read(t, b.reader(cooled{tables, cold}), key, 0, schema.MaxSeq, nil); !bytes.Equal(got, bodyOf(packs)) {
		t.Error("replay differs")
	}
}
