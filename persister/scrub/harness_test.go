package scrub_test

import (
	"context"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/retention"
	"agentstream/persister/scrub"
	"agentstream/persister/sqlite"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/redact/redacttest"
)

// store is a store, by what the tests ask of it.
type store struct {
	scrub.RunStore
	scrub.Letters
	appender
	tables blob.Tables
	heads  blob.Heads
	queue  blob.Queue
	kept   keeper
}

type appender interface {
	Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error)
	PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error
	Vacuum(ctx context.Context) error
	AddHold(ctx context.Context, key schema.RunKey, reason string) (bool, error)
}

type keeper interface {
	retention.Runs
	retention.Trash
	retention.Tombstones
}

// world is a store, a log and a folder of objects.
type world struct {
	*testing.T
	store   store
	files   []string // folders with what the store keeps
	dump    func(queries ...string) string
	made    []string // queries of what is made of events
	server  *testkit.Server
	log     *natsjs.Purger
	objects *blob.Folder
	folder  string
	archive *blob.Archive
	rules   *redact.Rules
}

// both runs a test on both stores.
func both(t *testing.T, test func(w *world)) {
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "s.db")
		if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		dump := func(q ...string) string { return dumpSQLite(t, path, q...) }
		test(newWorld(t, store{s, s, s, s, s, s, s}, dir, dump, madeInSQLite))
	})
	t.Run("postgres", func(t *testing.T) {
		server := testkit.StartPostgres(t)
		dsn := server.Database(t)
		if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
			t.Fatal(err)
		}
		if err := tables.SetSearch(t.Context(), dsn, true); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		dump := func(q ...string) string { return dumpPostgres(t, dsn, q...) }
		test(newWorld(t, store{s, s, s, s, s, s, s}, filepath.Join(server.Socket(), "data"), dump, madeInPostgres))
	})
}

func newWorld(t *testing.T, s store, files string, dump func(...string) string, made []string) *world {
	t.Helper()
	w := &world{T: t, store: s, files: []string{files}, dump: dump, made: made, server: testkit.NATS(t),
		folder: filepath.Join(t.TempDir(), "objects")}
	var err error
	if w.log, err = natsjs.NewPurger(t.Context(), w.server.Dial(t), natskit.KeysBucket); err != nil {
		t.Fatal(err)
	}
	if w.objects, err = blob.OpenFolder(w.folder); err != nil {
		t.Fatal(err)
	}
	if w.archive, err = blob.New(blob.Config{Tables: s.tables, Heads: s.heads, Store: w.objects}); err != nil {
		t.Fatal(err)
	}
	book, err := redact.Parse([]byte(redacttest.Rules))
	if err != nil {
		t.Fatal(err)
	}
	w.rules = book.Of("acme")
	return w
}

// offsets says that everything is stored.
func (w *world) offsets(context.Context) (all []persister.StoredOffset, err error) {
	for p := range w.server.Partitions {
		all = append(all, persister.StoredOffset{Offset: persister.Offset{Stream: natskit.StreamName(p), Position: math.MaxInt64}})
	}
	return all, nil
}

func (w *world) config() scrub.Config {
	w.Helper()
	objects, err := blob.NewReviser(blob.ArchiverConfig{Tables: w.store.tables, Queue: w.store.queue, Store: w.objects, Frame: 2000})
	if err != nil {
		w.Fatal(err)
	}
	return scrub.Config{Rules: func(string) *redact.Rules { return w.rules }, Store: w.store, Letters: w.store,
		History: w.reader(), Objects: objects, Log: w.log, Blobs: w.log, Offsets: w.offsets}
}

// reader returns an archive without what was read before.
func (w *world) reader() *blob.Archive {
	w.Helper()
	a, err := blob.New(blob.Config{Tables: w.store.tables, Heads: w.store.heads, Store: w.objects})
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) scrub(cfg scrub.Config, key schema.RunKey) (scrub.Done, error) {
	w.Helper()
	s, err := scrub.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return s.Run(w.Context(), key)
}

// put stores packs in the tables and in the log.
func (w *world) put(packs ...schema.Pack) {
	w.Helper()
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		w.Fatal(err)
	}
	if res, err := w.store.Append(w.Context(), chunks); err != nil || len(res.Conflicts) > 0 {
		w.Fatalf("append: %+v, %v", res, err)
	}
	for _, p := range packs {
		m := &nats.Msg{Subject: schema.Subject(p.Key, p.Child, w.server.Partitions), Header: nats.Header(p.Headers()), Data: p.Body}
		if _, err := w.server.JS.PublishMsg(w.Context(), m); err != nil {
			w.Fatal(err)
		}
	}
}

// archived writes the object of a run that has ended.
func (w *world) archived(key schema.RunKey) {
	w.Helper()
	a, err := blob.NewArchiver(blob.ArchiverConfig{Tables: w.store.tables, Queue: w.store.queue, Store: w.objects, Large: large{w.log},
		Frame: 2000, Settle: -1})
	if err == nil {
		err = a.One(w.Context(), key)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// large reads blobs for an archiver.
type large struct{ *natsjs.Purger }

func (l large) List(ctx context.Context, key schema.RunKey) ([]schema.Blob, error) {
	return l.ListBlobs(ctx, key)
}

func (l large) Get(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error) {
	return l.Blob(ctx, key, ref)
}

// pass lets rows of archived runs leave the tables, and runs in state error expire.
func (w *world) pass() {
	w.Helper()
	k, err := retention.New(retention.Config{Runs: w.store.kept, Trash: w.store.kept, Tombstones: w.store.kept, Pause: -1,
		Blobs:  blob.Remover{Store: w.objects, Places: w.store},
		Policy: retention.Policy{Rows: time.Nanosecond, Completed: retention.Never, Ended: time.Nanosecond, Tombstones: retention.Never}})
	if err != nil {
		w.Fatal(err)
	}
	if r, err := k.Pass(w.Context()); err != nil || r.Failed > 0 || r.Cooled == 0 || r.Expired == 0 {
		w.Fatalf("pass: %+v, %v", r, err)
	}
}

// lines returns the events of a run, from the archive.
func (w *world) lines(key schema.RunKey) (lines []string) {
	w.Helper()
	for p, err := range w.reader().Packs(w.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			w.Fatal(err)
		}
		for line := range schema.Lines(p.Body) {
			lines = append(lines, string(line))
		}
	}
	return lines
}

// leaks returns where the secrets are: in files, in what is compressed in files, and in the tables.
func (w *world) leaks(list []redacttest.Secret) (leaks []string) {
	w.Helper()
	look := func(where string, b []byte) {
		for _, kind := range redacttest.Leak(b, list) {
			leaks = append(leaks, kind+" in "+where)
		}
	}
	look("tables", []byte(w.dump()))
	for _, dir := range append(w.files, w.folder, w.server.Server.JetStreamConfig().StoreDir) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "pg_wal") { // see docs/redaction.md
				return err
			}
			b, err := os.ReadFile(path)
			look(filepath.Base(dir)+"/"+filepath.Base(path), b)
			if strings.HasSuffix(path, ".zst") {
				d, _ := zstd.NewReader(nil)
				defer d.Close()
				text, err := d.DecodeAll(b, nil)
				if err != nil {
					return err
				}
				look("lines of "+filepath.Base(path), text)
			}
			return err
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return leaks
}

// letter is a dead letter with a text.
func letter(key schema.RunKey, n int, text string) persister.DeadLetter {
	l := persister.DeadLetter{Key: key, Stream: "AGENT_0", Position: uint64(n + 1), Subject: "agent.0.x",
		Header: map[string][]string{"Note": {text}}, Body: []byte("no event: " + text), Reason: "line", Detail: "of " + text}
	return l
}
