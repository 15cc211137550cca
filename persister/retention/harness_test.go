package retention_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/retention"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// store is a store, by what is asked of it.
type store struct {
	kept
	persistertest.Catalog
	marker
	retention.Trash
	graves
	retention.Forgetting
	retention.Settings
	retention.Feeds
	scales
	holder
	placer
}

// A field is called after its type, and would hide a method of that name.
type (
	kept interface {
		persistertest.SuiteStore
		persistertest.Tables
	}
	marker interface{ retention.Runs }
	graves interface{ retention.Tombstones }
)

type scales interface {
	Weigh(ctx context.Context, runs []persister.EndedRun) (rows, bytes int64, err error)
	LiveRuns(ctx context.Context, day string) (runs int, partition bool, err error)
}

type holder interface {
	AddHold(ctx context.Context, key schema.RunKey, reason string) (bool, error)
	RemoveHold(ctx context.Context, key schema.RunKey) (bool, error)
}

type placer interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
	SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool, error)
	IsForgotten(ctx context.Context, key schema.RunKey) (bool, error)
}

// both runs a test on both stores, each on an empty one.
func both(t *testing.T, test func(t *testing.T, s store)) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, store{s, s, s, s, s, s, s, s, s, s, s})
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: migrated(t), MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		test(t, store{s, s, s, s, s, s, s, s, s, s, s})
	})
}

// migrated returns a fresh, migrated database.
func migrated(t testing.TB) string {
	t.Helper()
	return testkit.PostgresCopy(t, "migrated", func(ctx context.Context, dsn string) error {
		_, err := tables.Migrate(ctx, dsn, false)
		return err
	})
}

// folder is a folder of blobs as a Worker sees it.
type folder struct{ *blob.Folder }

func (f folder) Remove(ctx context.Context, key schema.RunKey, uri string) error {
	return blob.Remover{Store: f}.Remove(ctx, key, uri)
}

func (f folder) Check(ctx context.Context, key schema.RunKey, place persister.Place) error {
	_, _, err := f.Read(ctx, blob.Name(key, place.Day, place.Archived), 0, 1)
	return err
}

func (f folder) Wipe(ctx context.Context, key schema.RunKey, day string) (n int, err error) {
	prefix := key.Tenant + "/"
	if key.Run != "" {
		prefix += day + "/" + key.Run + "."
	}
	for o, err := range f.List(ctx, prefix) {
		if err != nil {
			return n, err
		}
		if err := f.Delete(ctx, o.Name); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// world is a store, a log and a folder of blobs.
type world struct {
	*testing.T
	store  store
	server *testkit.Server
	log    *natsjs.Purger
	blobs  folder
	now    time.Time
	policy retention.Policy
}

func newWorld(t *testing.T, s store) *world {
	t.Helper()
	w := &world{T: t, store: s, server: testkit.NATS(t), now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}
	nc := w.server.Dial(t)
	var err error
	if w.log, err = natsjs.NewPurger(t.Context(), nc, natskit.KeysBucket); err != nil {
		t.Fatal(err)
	}
	f, err := blob.OpenFolder(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	w.blobs = folder{f}
	return w
}

func (w *world) config() retention.Config {
	return retention.Config{Runs: w.store, Trash: w.store, Tombstones: w.store, Forgetting: w.store, Feeds: w.store,
		Log: w.log, Blobs: w.blobs, Policy: w.policy,
		FeedRuns: schema.Feeds{Prefix: "feed-", Is: func(run string) bool { return run != "feed-other" }},
		Pause:    -1, Now: func() time.Time { return w.now }}
}

func (w *world) pass() retention.Report {
	w.Helper()
	k, err := retention.New(w.config())
	if err != nil {
		w.Fatal(err)
	}
	r, err := k.Pass(w.Context())
	if err != nil || r.Failed > 0 || r.More {
		w.Fatalf("pass at %s: %+v, %v", w.now, r, err)
	}
	return r
}

func (w *world) deleter() *retention.Deleter {
	w.Helper()
	d, err := retention.NewDeleter(w.config(), w.store, w.store)
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) append(packs ...schema.Pack) persister.Result {
	w.Helper()
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		w.Fatal(err)
	}
	res, err := w.store.Append(w.Context(), chunks)
	if err != nil || len(res.Conflicts) > 0 {
		w.Fatalf("append: %+v, %v", res, err)
	}
	return res
}

// logged puts packs into the log as well.
func (w *world) logged(packs ...schema.Pack) {
	w.Helper()
	for _, p := range packs {
		m := &nats.Msg{Subject: schema.Subject(p.Key, p.Child, w.server.Partitions), Header: nats.Header(p.Headers()),
			Data: p.Body}
		if _, err := w.server.JS.PublishMsg(w.Context(), m); err != nil {
			w.Fatal(err)
		}
	}
}

// archived writes a blob of a run and names it.
func (w *world) archived(key schema.RunKey) {
	w.Helper()
	place, err := w.store.Place(w.Context(), key)
	if err != nil {
		w.Fatal(err)
	}
	name := blob.Name(key, place.Day, place.Last)
	if err := w.blobs.Put(w.Context(), name, strings.NewReader("blob of "+key.String())); err != nil {
		w.Fatal(err)
	}
	if ok, err := w.store.SetArchived(w.Context(), key, place.Last, "file:"+name, 100); err != nil || !ok {
		w.Fatalf("archive %s: %v, %v", key, ok, err)
	}
}

func (w *world) blobNames() (names []string) {
	w.Helper()
	for o, err := range w.blobs.List(w.Context(), "") {
		if err != nil {
			w.Fatal(err)
		}
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// replay returns the first seq that is replayed, and the bytes.
func replay(packs iter.Seq2[schema.Pack, error]) (first schema.Seq, body []byte, err error) {
	for p, err := range packs {
		if err != nil {
			return first, body, err
		}
		if first == 0 {
			first = p.First
		}
		body = append(body, p.Body...)
	}
	return first, body, nil
}

// wantEvents checks what is kept of a run: these packs and nothing else.
func (w *world) wantEvents(key schema.RunKey, packs ...schema.Pack) {
	w.Helper()
	var want []byte
	for _, p := range packs {
		want = append(want, p.Body...)
	}
	first, got, err := replay(w.store.Packs(w.Context(), key, 0, schema.MaxSeq))
	if err != nil || !bytes.Equal(got, want) || len(packs) > 0 && first != packs[0].First {
		w.Fatalf("%s: %d bytes from %d, want %d, %v", key, len(got), first, len(want), err)
	}
}

func (w *world) wantListed(tenant string, want ...string) {
	w.Helper()
	runs, err := w.store.Runs(w.Context(), tenant, schema.RunsQuery{Limit: 100_000})
	if err != nil {
		w.Fatal(err)
	}
	got := make([]string, len(runs))
	for i := range runs {
		got[i] = runs[i].ID
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Fatalf("listed of %s: %d, want %d", tenant, len(got), len(want))
	}
}

func days(n int) time.Duration { return time.Duration(n) * persister.Day }

// run begins a run at a time and ends it, with n events in all.
func (w *world) run(tenant, id string, at time.Time, n int, state schema.RunState) (*persistertest.Writer,
	schema.Pack) {
	wr := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: id}, at.Format("20060102"))
	wr.At(at)
	events := make([]schema.Event, n)
	for i := range events {
		events[i] = persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"%d of %s"}`, i, id))
	}
	events[0] = persistertest.Lifecycle(schema.StateRunning)
	if state != "" {
		events[n-1] = persistertest.Lifecycle(state)
	}
	return wr, wr.Pack("", events...)
}

// followUp reopens a run at a time, and ends it when state is not "".
func followUp(wr *persistertest.Writer, at time.Time, state schema.RunState) schema.Pack {
	wr.At(at)
	events := []schema.Event{persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)}
	if state != "" {
		events = append(events, persistertest.Lifecycle(state))
	}
	return wr.Pack("", events...)
}
