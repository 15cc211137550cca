package archive

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// TestArchiveCommands: a run is archived by name, listed, verified, and found to be damaged; --blobs takes
// folders in each of their forms and repeats no secret.
func TestArchiveCommands(t *testing.T) {
	data, folder := t.TempDir(), filepath.Join(t.TempDir(), "blobs")
	path := filepath.Join(data, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "default", Run: "run_1"}, "20260228")
	chunks, err := persister.Chunks(w.Texts("", 20), w.Pack("", persistertest.Lifecycle(schema.StateDone)))
	if err == nil {
		_, err = store.Append(t.Context(), chunks)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	log := slog.New(slog.DiscardHandler)
	flags := BlobFlags{Blobs: "file://" + folder}
	var out bytes.Buffer
	streams := cli.Streams{Out: &out}
	expect := func(err error, words ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(out.String(), word) {
				t.Fatalf("%q is not in %q", word, out.String())
			}
		}
		out.Reset()
	}
	run := RunCmd{TablesFlags: TablesFlags{ArchiverFlags: ArchiverFlags{BlobFlags: flags},
		StoreFlags: StoreFlags{Data: data, Streams: streams}},
		Tenant: "default", Runs: []string{"run_1"}}
	const name = "default/20260228/run_1.21.jsonl.zst"
	expect(run.Run(t.Context(), log), "21 events", "file:"+name)
	flags.Blobs = folder
	expect((&ListCmd{BlobFlags: flags, Streams: streams}).Run(t.Context()), name)
	verify := &VerifyCmd{BlobFlags: flags, Streams: streams}
	expect(verify.Run(t.Context()), "ok", name, "21 events")
	run.Runs = []string{"run_none"}
	if err := run.Run(t.Context(), log); err == nil {
		t.Error("a run that is not there is archived")
	}
	audit := AuditCmd{TablesFlags: run.TablesFlags}
	expect(audit.Run(t.Context(), log), "1 objects, 0 that")
	file := filepath.Join(folder, filepath.FromSlash(name))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[5] ^= 4
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify.Run(t.Context()); err == nil || !strings.Contains(out.String(), "BAD\t"+name) {
		t.Errorf("%v, %q", err, out.String())
	}
	for _, bad := range []string{"s3://id:hush@bucket", "http://id:hush@host/x", "file://hush/x", "s3://bucket?key=hush"} {
		if _, err := (&BlobFlags{Blobs: bad}).OpenBlobs(); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := requireBlobs((&BlobFlags{}).OpenBlobs()); err == nil {
		t.Error("no --blobs is taken")
	}
}

// TestArchived: without --blobs a store's rows are the history.
func TestArchived(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	a, err := Join(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	f := ArchiverFlags{BlobFlags: BlobFlags{Blobs: t.TempDir()}}
	b, err := f.OpenBlobs()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := f.Archiver(store, store, nil, b, blob.Hooks{}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil || len(parts) != 1 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	if none, err := f.Archiver(store, store, nil, nil, blob.Hooks{}, nil); err != nil || len(none) != 0 {
		t.Errorf("%d parts without objects, %v", len(none), err)
	}
}
