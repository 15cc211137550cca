package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"

	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// atLog are blobs of runs by their refs, as the log would have them.
type atLog map[string]string

func refOf(content string) string { return schema.BlobRef(sha256.Sum256([]byte(content))) }

func (l atLog) List(context.Context, schema.RunKey) (list []schema.Blob, err error) {
	for ref, content := range l {
		list = append(list, schema.Blob{Ref: ref, Size: int64(len(content))})
	}
	return list, nil
}

func (l atLog) Get(_ context.Context, _ schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error) {
	content, ok := l[ref]
	if !ok {
		return schema.Blob{}, nil, schema.ErrNoBlob
	}
	return schema.Blob{Ref: ref, Type: "text/plain; charset=utf-8",
			Size: int64(len(content))}, func(yield func([]byte, error) bool) {
			for piece := range slices.Chunk([]byte(content), schema.BlobPiece) {
				if !yield(piece, nil) {
					return
				}
			}
		}, nil
}

// content reads a blob of the archive.
func (b *bench) content(key schema.RunKey, ref string) (schema.Blob, string, error) {
	found, pieces, err := b.archive.Blob(b.Context(), key, ref)
	if err != nil {
		return found, "", err
	}
	var text strings.Builder
	for piece, err := range pieces {
		if err != nil {
			return found, text.String(), err
		}
		text.Write(piece)
	}
	return found, text.String(), nil
}

// TestBlobsAreArchived: a run's blobs become objects with it, are read from there when the log has lost them, stay
// while the run does, and go with its object.
func TestBlobsAreArchived(t *testing.T) {
	for name, open := range map[string]func(testing.TB) (blob.ObjectStore, string){"folder": openFolder, "s3": openS3} {
		t.Run(name, func(t *testing.T) {
			store, base := open(t)
			log := atLog{}
			for _, content := range []string{"", "small", strings.Repeat("0123456789abcdef", schema.BlobPiece/16),
				strings.Repeat("large", schema.BlobPiece/2)} {
				log[refOf(content)] = content
			}
			b := newBench(t, openSQLite(t), store, base, func(c *blob.ArchiverConfig) { c.Grace, c.Large = -1, log })
			w := persistertest.NewWriter(key, day)
			b.run(w, 50)
			if _, _, err := b.content(key, refOf("small")); !errors.Is(err, schema.ErrNoBlob) {
				t.Fatalf("before: %v", err)
			}
			for range 2 { // again: what is there is left as it is
				if err := b.archiver.One(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			for ref, want := range log {
				found, got, err := b.content(key, ref)
				if err != nil || got != want || found != (schema.Blob{Ref: ref, Type: "text/plain; charset=utf-8",
					Size: int64(len(want))}) {
					t.Errorf("%+v: %d bytes of %d, %v", found, len(got), len(want), err)
				}
				if n, err := blob.VerifyLarge(t.Context(), store, blob.LargeName(key, day, ref)); err != nil ||
					n != int64(len(want)) {
					t.Errorf("verify: %d, %v", n, err)
				}
			}
			for _, of := range []schema.RunKey{{Tenant: "acme", Run: "run_10"}, {Tenant: "other", Run: "run_1"}} {
				if _, _, err := b.content(of, refOf("small")); !errors.Is(err, schema.ErrNoBlob) {
					t.Errorf("%s: %v", of, err)
				}
			}
			if r, err := b.archiver.Audit(t.Context(), true); err != nil || r != (blob.Audit{Objects: 1 + len(log)}) {
				t.Fatalf("%+v, %v", r, err)
			}
			neighbour := blob.LargeName(schema.RunKey{Tenant: "acme", Run: "run_10"}, day, refOf("x"))
			if err := store.Put(t.Context(), neighbour, strings.NewReader("{}\n")); err != nil {
				t.Fatal(err)
			}
			uri := b.place(key).URI
			if err := (blob.Remover{Store: store, Places: b.tables}).Remove(t.Context(), key, uri); err != nil {
				t.Fatal(err)
			}
			if left := b.objects(); len(left) != 1 || left[0] != neighbour {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// placed returns where a run is.
type placed persister.Place

func (p placed) Place(context.Context, schema.RunKey) (persister.Place, error) {
	return persister.Place(p), nil
}

// TestBlobsStayWithALongerObject: removing an object that a longer one followed leaves the blobs that both name.
func TestBlobsStayWithALongerObject(t *testing.T) {
	store, base := openFolder(t)
	name, old := blob.LargeName(key, day, refOf("x")), blob.Name(key, day, 4)
	for _, n := range []string{name, old} {
		if err := store.Put(t.Context(), n, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	r := blob.Remover{Store: store, Places: placed{Day: day, Last: 9, Archived: 9, Expired: 4,
		URI: base + blob.Name(key, day, 9)}}
	if err := r.Remove(t.Context(), key, base+old); err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, store: store}
	if left := b.objects(); len(left) != 1 || left[0] != name {
		t.Errorf("left: %q", left)
	}
	if n, err := r.Wipe(t.Context(), key, day); err != nil || n != 1 {
		t.Errorf("wipe: %d, %v", n, err)
	}
}

// TestDamagedBlobs: every reader reports an object that does not match its name.
func TestDamagedBlobs(t *testing.T) {
	store, base := openFolder(t)
	log := atLog{refOf("good"): "evil"}
	b := newBench(t, openSQLite(t), store, base, func(c *blob.ArchiverConfig) { c.Large = log })
	w := persistertest.NewWriter(key, day)
	b.run(w, 5)
	if err := b.archiver.One(t.Context(), key); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("archived: %v", err)
	}
	if left := slices.DeleteFunc(b.objects(),
		func(n string) bool { return !strings.HasSuffix(n, ".blob") }); len(left) != 0 || b.place(key).URI != "" {
		t.Errorf("left: %q, %+v", left, b.place(key))
	}
	for i, body := range []string{"", "{", "{}", `{"bytes":3}` + "\nab", `{"bytes":-1}` + "\n", `{"bytes":4}` + "\nevil"} {
		name := blob.LargeName(key, day, refOf(fmt.Sprint(i)))
		if err := store.Put(t.Context(), name, io.NopCloser(bytes.NewReader([]byte(body)))); err != nil {
			t.Fatal(err)
		}
		if _, err := blob.VerifyLarge(t.Context(), store, name); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("%q: %v", body, err)
		}
	}
}
