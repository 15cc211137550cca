package natskit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// content returns size bytes that look like no others.
func content(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)})
	_, _ = r.Read(b)
	return b
}

func readBlob(t *testing.T, b *natskit.Blobs, key schema.RunKey, ref string) (schema.Blob, []byte, error) {
	t.Helper()
	blob, parts, err := b.Get(t.Context(), key, ref)
	if err != nil {
		return blob, nil, err
	}
	var all []byte
	for p, err := range parts {
		if err != nil {
			return blob, all, err
		}
		all = append(all, p...)
	}
	return blob, all, nil
}

func blobMessages(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), natskit.BlobStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func openBlobs(t *testing.T, k *testkit.Server) *natskit.Blobs {
	t.Helper()
	b, err := natskit.NewBlobs(k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What one connection has put another one reads, of every size around a piece; the same bytes are kept once; what a
// run has goes with one call, and nothing else does.
func TestBlobs(t *testing.T) {
	k := testkit.NATS(t)
	here, there := openBlobs(t, k), openBlobs(t, k)
	key, other := schema.RunKey{Tenant: "acme", Run: "run_1"}, schema.RunKey{Tenant: "acme", Run: "run_10"}
	var want int64
	sizes := []int{0, 1, schema.BlobPiece - 1, schema.BlobPiece, schema.BlobPiece + 1, 3*schema.BlobPiece + 7}
	for _, size := range sizes {
		body := content(size)
		for n, mediaType := range []string{"text/csv", "image/png"} {
			before := blobMessages(t, k.JS)
			blob, stored, err := here.Put(t.Context(), key, mediaType, schema.BlobPieces(body))
			if err != nil || stored != (n == 0) || blob.Type != "text/csv" ||
				blob.Ref != schema.BlobRef(sha256.Sum256(body)) || blob.Size != int64(size) {
				t.Fatalf("%d bytes, time %d: %+v, stored %v: %v", size, n, blob, stored, err)
			}
			if after := blobMessages(t, k.JS); n > 0 && after != before {
				t.Errorf("%d bytes: %d messages, %d when they are put again", size, before, after)
			}
			got, read, err := readBlob(t, there, key, blob.Ref)
			if err != nil || got != blob || !bytes.Equal(read, body) {
				t.Errorf("%d bytes: read %d of %+v: %v", size, len(read), got, err)
			}
			if _, _, err := readBlob(t, there, other, blob.Ref); !errors.Is(err, schema.ErrNoBlob) {
				t.Errorf("of another run: %v", err)
			}
		}
		want += int64(size)
	}
	if _, _, err := here.Put(t.Context(), other, "a/b", schema.BlobPieces(content(9))); err != nil {
		t.Fatal(err)
	}
	list, err := there.List(t.Context(), key)
	var sum int64
	for _, b := range list {
		sum += b.Size
	}
	if err != nil || len(list) != len(sizes) || sum != want {
		t.Errorf("listed %d blobs of %d bytes, want %d of %d: %v", len(list), sum, len(sizes), want, err)
	}
	if list, err = there.List(t.Context(), schema.RunKey{Tenant: "acme"}); err != nil || len(list) != len(sizes)+1 {
		t.Errorf("the tenant has %d: %v", len(list), err)
	}
	if _, err := here.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if list, err = there.List(t.Context(), key); err != nil || len(list) != 0 {
		t.Errorf("left %v: %v", list, err)
	}
	if n := blobMessages(t, k.JS); n != 2 { // the other run's mark and blob
		t.Errorf("%d messages are left", n)
	}
}

// Of a blob whose sender stops in the middle nothing is kept; many that put the same at once keep it once.
func TestBlobsCutAndAtOnce(t *testing.T) {
	k := testkit.NATS(t)
	b := openBlobs(t, k)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	cut := errors.New("cut")
	_, _, err := b.Put(t.Context(), key, "a/b", func(yield func([]byte, error) bool) {
		_ = yield(content(schema.BlobPiece), nil) && yield(nil, cut)
	})
	if !errors.Is(err, cut) || blobMessages(t, k.JS) != 1 {
		t.Fatalf("%v, and %d messages are left", err, blobMessages(t, k.JS))
	}
	body := content(2*schema.BlobPiece + 1)
	var wait sync.WaitGroup
	stored := make([]bool, 8)
	for i := range stored {
		wait.Go(func() {
			var err error
			if _, stored[i], err = b.Put(t.Context(), key, "a/b", schema.BlobPieces(body)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if i := slices.Index(stored, true); i < 0 || slices.Contains(stored[i+1:], true) {
		t.Errorf("stored: %v", stored)
	}
	if _, read, err := readBlob(t, b, key, schema.BlobRef(sha256.Sum256(body))); err != nil || !bytes.Equal(read, body) {
		t.Errorf("read %d bytes: %v", len(read), err)
	}
	if n := blobMessages(t, k.JS); n != 4 { // mark, two pieces, the rest
		t.Errorf("%d messages", n)
	}
}

// A stream of blobs that is full refuses in words, keeps nothing of what it refuses, and drops nothing.
func TestBlobsFull(t *testing.T) {
	k := testkit.NATS(t)
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{BlobBytes: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	if l, err := natskit.ReadLayout(t.Context(), k.JS); err != nil || l.BlobBytes != 2<<20 {
		t.Fatalf("%+v: %v", l, err)
	}
	b := openBlobs(t, k)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	first := content(1 << 20)
	blob, _, err := b.Put(t.Context(), key, "a/b", schema.BlobPieces(first))
	if err != nil {
		t.Fatal(err)
	}
	before := blobMessages(t, k.JS)
	if _, _, err := b.Put(t.Context(), key, "a/b", schema.BlobPieces(content(3<<20))); !errors.Is(err, schema.ErrFull) {
		t.Errorf("over the bound: %v", err)
	}
	if after := blobMessages(t, k.JS); after != before {
		t.Errorf("%d messages, %d before", after, before)
	}
	if _, read, err := readBlob(t, b, key, blob.Ref); err != nil || !bytes.Equal(read, first) {
		t.Errorf("the first: %d bytes: %v", len(read), err)
	}
}

// Blobs and the bound of their stream outlive a restart of the server, and what was put is read from each of three
// servers.
func TestBlobsOutliveServers(t *testing.T) {
	c := testkit.NATSCluster(t)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	body := content(schema.BlobPiece + 5)
	b, err := natskit.NewBlobs(c.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	blob, _, err := b.Put(ctx, key, "a/b", schema.BlobPieces(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		c.Stop(n)
		c.Start(t, n)
		if _, read, err := readBlob(t, b, key, blob.Ref); err != nil || !bytes.Equal(read, body) {
			t.Fatalf("behind the restart of server %d: %d bytes: %v", n, len(read), err)
		}
	}
}
