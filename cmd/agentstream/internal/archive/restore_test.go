package archive

import (
	"bytes"
	"log/slog"
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

// openTables returns the tables of a folder as dev makes them.
func openTables(t *testing.T, data string) *sqlite.Store {
	t.Helper()
	path := filepath.Join(data, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestRestoreCommand: runs come back from objects; what was recorded as lost and is there again is not lost any more,
// what is not stays; what had left the log before anything was stored is noted as made good. A prefix restores its runs
// alone.
func TestRestoreCommand(t *testing.T) {
	folder, log := filepath.Join(t.TempDir(), "blobs"), slog.New(slog.DiscardHandler)
	flags := ArchiverFlags{BlobFlags: BlobFlags{Blobs: folder}}
	b, err := flags.OpenBlobs()
	if err != nil {
		t.Fatal(err)
	}
	first := openTables(t, t.TempDir())
	a, err := flags.NewArchiver(first, first, nil, b, blob.Hooks{}, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"run_1", "run_2"} {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "default", Run: run}, "20260228")
		chunks, err := persister.Chunks(w.Texts("", 20), w.Pack("", persistertest.Lifecycle(schema.StateDone)))
		if err == nil {
			_, err = first.Append(t.Context(), chunks)
		}
		if err == nil {
			err = a.One(t.Context(), schema.RunKey{Tenant: "default", Run: run})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data := t.TempDir()
	second := openTables(t, data)
	lost := func(run string, last schema.Seq) persister.RunLoss {
		return persister.RunLoss{Key: schema.RunKey{Tenant: "default", Run: run}, First: 3, Last: last,
			Reason: persister.LossDropped}
	}
	_, err = second.Transfer(t.Context(), &persister.Transfer{To: persister.Offset{Stream: "AGENT_0", Identity: "x",
		Position: 9},
		Losses:    []persister.Loss{{Stream: "AGENT_0", Identity: "x", First: 1, Last: 9, Reason: persister.LossBefore}},
		RunLosses: []persister.RunLoss{lost("run_1", 12), lost("run_2", 40), lost("run_3", 5)}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	restore := func(prefix, want string, left int, open bool) {
		t.Helper()
		out.Reset()
		c := RestoreCmd{TablesFlags: TablesFlags{ArchiverFlags: flags,
			StoreFlags: StoreFlags{Data: data, Streams: cli.Streams{Out: &out, Err: &out}}}, Prefix: prefix}
		if err := c.Run(t.Context(), log); err != nil || !strings.Contains(out.String(), want) {
			t.Fatalf("%v, %s", err, out.String())
		}
		_, all, err := second.RunLosses(t.Context(), EveryTenant, 10)
		losses, failed := second.Losses(t.Context())
		if err != nil || failed != nil || all != left || len(losses) != 1 || losses[0].Open() != open {
			t.Errorf("%d ranges are lost, %+v, %v, %v", all, losses, err, failed)
		}
	}
	restore("default/20260228/run_2", "1 objects, 1 restored with 21 events", 3, true)
	restore("", "2 objects, 1 restored with 21 events", 2, false)
	restore("", "2 objects, 0 restored with 0 events", 2, false)
}
