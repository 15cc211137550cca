package blob_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/blob/s3"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	pgtables "agentstream/persister/postgres/tables"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

const day = "20260228"

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

// tables is a store as the archive and the archiver see it.
type tables interface {
	persistertest.SuiteStore
	persistertest.Tables
	blob.Tables
	blob.Queue
}

func openSQLite(t testing.TB) tables { s, _ := openFile(t); return s }

// openFile returns also a connection that looks into the file from outside.
func openFile(t testing.TB) (*sqlite.Store, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return s, db
}

func openPostgres(t testing.TB) tables {
	t.Helper()
	dsn := testkit.PostgresCopy(t, "migrated", func(ctx context.Context, dsn string) error {
		_, err := pgtables.Migrate(ctx, dsn, false)
		return err
	})
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func openFolder(t testing.TB) (blob.ObjectStore, string) {
	t.Helper()
	f, err := blob.OpenFolder(filepath.Join(t.TempDir(), "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	return f, blob.FolderBase
}

func openS3(t testing.TB) (blob.ObjectStore, string) {
	t.Helper()
	server := testkit.S3(t)
	s, err := s3.Open(s3.Config{Bucket: server.Bucket, Prefix: "some/where", Endpoint: "http://" + server.Endpoint,
		Region:    server.Region,
		PathStyle: true, AccessKey: server.AccessKey, SecretKey: server.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Base()
}

// bench is all that archives and reads.
type bench struct {
	testing.TB
	tables   tables
	store    blob.ObjectStore
	archiver *blob.Archiver
	archive  *blob.Archive
}

func newBench(t testing.TB, tables tables, store blob.ObjectStore, base string,
	change func(*blob.ArchiverConfig)) *bench {
	t.Helper()
	cfg := blob.ArchiverConfig{Tables: tables, Queue: tables, Store: store, Base: base, Frame: 2000, Settle: -1,
		Poll: 10 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	a, err := blob.NewArchiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, tables: tables, store: store, archiver: a}
	b.archive = b.reader(cfg.Tables)
	return b
}

func (b *bench) reader(tables blob.Tables) *blob.Archive {
	b.Helper()
	a, err := blob.New(blob.Config{Tables: tables, Heads: b.tables, Store: b.store})
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func (b *bench) append(packs ...schema.Pack) {
	b.Helper()
	for part := range slices.Chunk(packs, 200) {
		chunks, err := persister.Chunks(part...)
		if err != nil {
			b.Fatal(err)
		}
		if res, err := b.tables.Append(b.Context(), chunks); err != nil || len(res.Conflicts) > 0 {
			b.Fatalf("%+v, %v", res, err)
		}
	}
}

func (b *bench) place(key schema.RunKey) persister.Place {
	b.Helper()
	p, err := b.tables.Place(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// objects returns the names of all objects.
func (b *bench) objects() (names []string) {
	b.Helper()
	for o, err := range b.store.List(b.Context(), "") {
		if err != nil {
			b.Fatal(err)
		}
		names = append(names, o.Name)
	}
	return names
}

// cooled hides the rows of runs up to a floor, as tables do that have given them up.
type cooled struct {
	tables
	floor func(persister.Place) schema.Seq
}

func (c cooled) Place(ctx context.Context, key schema.RunKey) (persister.Place, error) {
	p, err := c.tables.Place(ctx, key)
	p.Floor = c.floor(p)
	return p, err
}

func (c cooled) Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]persister.Line,
	error) {
	p, err := c.Place(ctx, key)
	if err != nil || after < p.Floor {
		return nil, err
	}
	return c.tables.Page(ctx, key, day, after, through)
}

func (c cooled) Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]persister.Frame,
	error) {
	p, err := c.Place(ctx, key)
	if err != nil {
		return nil, err
	}
	frames, err := c.tables.Frames(ctx, key, day, through)
	return slices.DeleteFunc(frames, func(f persister.Frame) bool { return f.Seq <= p.Floor }), err
}

// read collects a walk and checks that its packs are well made, follow each other, and have the heads
// that the log's writer had there.
func read(t testing.TB, a *blob.Archive, key schema.RunKey, after, through schema.Seq,
	heads []schema.Head) (body []byte) {
	t.Helper()
	return walked(t, a, key, after, through, after+1, heads)
}

// readFrom is read of a run whose events before next are no more.
func readFrom(t testing.TB, a *blob.Archive, key schema.RunKey, after, next schema.Seq, heads []schema.Head) []byte {
	t.Helper()
	return walked(t, a, key, after, schema.MaxSeq, next, heads)
}

func walked(t testing.TB, a *blob.Archive, key schema.RunKey, after, through, next schema.Seq,
	heads []schema.Head) (body []byte) {
	t.Helper()
	for p, err := range a.Packs(t.Context(), key, after, through) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("a pack of the walk does not hold: %v", err)
		}
		if p.First != next || p.Last() > through || p.Count > 128 || p.Key != key || p.Head.Last != p.Last() {
			t.Fatalf("walk after %d through %d: pack of %s %d…%d, head %d, where %d was next", after, through, p.Key,
				p.First, p.Last(), p.Head.Last, next)
		}
		if heads != nil {
			want := heads[p.Last()-1]
			if p.Head.State != want.State || p.Head.LastID != want.LastID || p.Head.Day != want.Day {
				t.Fatalf("after %d: head behind %d\n got %+v\nwant %+v", after, p.Last(), p.Head, want)
			}
		}
		next = p.Last() + 1
		body = append(body, p.Body...)
	}
	return body
}

// lineOffsets returns where the line of each event begins in the stream's bytes, and the end.
func lineOffsets(body []byte) []int {
	offsets := []int{0}
	for i, c := range body {
		if c == '\n' {
			offsets = append(offsets, i+1)
		}
	}
	return offsets
}

func bodyOf(packs []schema.Pack) []byte {
	var b bytes.Buffer
	for _, p := range packs {
		b.Write(p.Body)
	}
	return b.Bytes()
}

func headsOf(packs []schema.Pack) (heads []schema.Head) {
	for _, p := range packs {
		heads = append(heads, p.Head)
	}
	return heads
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
