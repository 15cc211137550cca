package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestWipe: of a run, and of a tenant, also what is being written goes, and nothing of neighbours.
func TestWipe(t *testing.T) {
	for name, open := range map[string]func(testing.TB) (blob.ObjectStore, string){"folder": openFolder, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			store, _ := open(t)
			put := func(tenant, run string, last schema.Seq) string {
				name := blob.Name(schema.RunKey{Tenant: tenant, Run: run}, day, last)
				if err := store.Put(t.Context(), name, strings.NewReader("x")); err != nil {
					t.Fatal(err)
				}
				return name
			}
			put("acme", "run_1", 3)
			put("acme", "run_1", 7)
			other := put("acme_2", "run_1", 3)
			keep := []string{put("acme", "run_10", 3), other}
			// Two that are being written: their first part is out.
			writing := make(map[string]*io.PipeWriter)
			done := make(map[string]chan error)
			for _, run := range []string{"run_1", "run_10"} {
				r, w := io.Pipe()
				writing[run], done[run] = w, make(chan error, 1)
				go func() {
					err := store.Put(context.WithoutCancel(t.Context()), blob.Name(schema.RunKey{Tenant: "acme", Run: run}, day, 9), r)
					_ = r.CloseWithError(io.ErrClosedPipe)
					done[run] <- err
				}()
				if _, err := w.Write(make([]byte, 17<<20)); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := (blob.Remover{Store: store}).Wipe(t.Context(), key, day); err != nil || n != 2 {
				t.Fatal(n, err)
			}
			for run, w := range writing {
				_ = w.Close()
				if err := <-done[run]; (err == nil) != (run == "run_10") {
					t.Errorf("%s: %v", run, err)
				}
			}
			keep = append(keep, blob.Name(schema.RunKey{Tenant: "acme", Run: "run_10"}, day, 9))
			b := &bench{TB: t, store: store}
			if got := b.objects(); !slices.Equal(sorted(got), sorted(keep)) {
				t.Fatalf("%q, want %q", got, keep)
			}
			if n, err := (blob.Remover{Store: store}).Wipe(t.Context(), schema.RunKey{Tenant: "acme"},
				""); err != nil || n != 2 {
				t.Fatal(n, err)
			}
			if got := b.objects(); !slices.Equal(got, []string{other}) {
				t.Fatalf("%q", got)
			}
		})
	}
}

func sorted(names []string) []string { slices.Sort(names); return names }

// TestWipeKilled: a file that a writer which was killed has left goes with its run, and no other does.
func TestWipeKilled(t *testing.T) {
	root := t.TempDir()
	store, err := blob.OpenFolder(root)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	var temp []string
	for _, run := range []string{"run_1", "run_10"} {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- store.Put(t.Context(), blob.Name(schema.RunKey{Tenant: "acme", Run: run}, day, 9), r) }()
		if _, err := w.Write([]byte("secret")); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(root, "acme", day, ".part-"+run+".*"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		data, err := os.ReadFile(found[0])
		_ = w.CloseWithError(broken)
		if perr := <-done; !errors.Is(perr, broken) || err != nil {
			t.Fatal(perr, err)
		}
		write(t, found[0], data) // as if nobody had cleaned up
		temp = append(temp, found[0])
	}
	if _, err := (blob.Remover{Store: store}).Wipe(t.Context(), key, day); err != nil {
		t.Fatal(err)
	}
	for i, path := range temp {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) != (i == 0) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestCheck: an object that is not there, is damaged, or holds less than the row names cannot replace rows.
func TestCheck(t *testing.T) {
	store, base := openFolder(t)
	b := newBench(t, openSQLite(t), store, base, nil)
	w := persistertest.NewWriter(key, day)
	b.run(w, 50)
	if err := b.archiver.One(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r, place := blob.Remover{Store: store}, b.place(key)
	if err := r.Check(t.Context(), key, place); err != nil {
		t.Fatal(err)
	}
	more := place
	more.Archived++
	if err := r.Check(t.Context(), key, more); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("an object that ends early: %v", err)
	}
	if err := r.Check(t.Context(), schema.RunKey{Tenant: "beta", Run: key.Run}, place); err == nil {
		t.Error("an object of another tenant")
	}
	name := blob.Name(key, day, place.Last)
	data, _, err := store.Read(t.Context(), name, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data[3] ^= 1 // in a frame: the index is whole
	if err := errors.Join(store.Delete(t.Context(), name),
		store.Put(t.Context(), name, bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), key, place); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("a damaged object: %v", err)
	}
	if err := store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), key, place); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("no object: %v", err)
	}
	if err := b.archiver.One(t.Context(), key); err != nil { // the rows are there
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), key, place); err != nil {
		t.Errorf("written again: %v", err)
	}
}
