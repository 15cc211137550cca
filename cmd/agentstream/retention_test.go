package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	retentioncmd "agentstream/cmd/agentstream/internal/retention"
	"agentstream/edge"
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
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// keptStore is a store, by what is asked of it.
type keptStore struct {
	appends
	edge.Catalog
	archive.Tables
	blob.Queue
	keptRuns
	retention.Trash
	keptGraves
	retention.Settings
	retention.Forgetting
	archive.HoldStore
	keptMarks
}

// A field is called after its type, and would hide a method of that name.
type (
	keptRuns   interface{ retention.Runs }
	keptGraves interface{ retention.Tombstones }
	keptMarks  interface {
		IsForgotten(ctx context.Context, key schema.RunKey) (bool, error)
	}
	appends interface {
		Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error)
	}
)

// keptHouse is an edge over a real log, an archive and a folder of blobs.
type keptHouse struct {
	*testing.T
	server *testkit.Server
	store  keptStore
	where  archive.StoreFlags // for commands
	blobs  *archive.Blobs
	folder string
	purger *natsjs.Purger
	url    string
	now    time.Time
}

// bothHouses runs a test on both stores.
func bothHouses(t *testing.T, test func(h *keptHouse)) {
	t.Run("sqlite", func(t *testing.T) { test(sqliteHouse(t)) })
	t.Run("postgres", func(t *testing.T) {
		dsn := testkit.PostgresCopy(t, "migrated", func(ctx context.Context, dsn string) error {
			_, err := tables.Migrate(ctx, dsn, false)
			return err
		})
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		test(newKeptHouse(t, keptStore{s, s, s, s, s, s, s, s, s, s, s},
			archive.StoreFlags{PostgresFlags: cli.PostgresFlags{Postgres: dsn}}))
	})
}

func sqliteHouse(t *testing.T) *keptHouse {
	t.Helper()
	data := t.TempDir()
	path := filepath.Join(data, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return newKeptHouse(t, keptStore{s, s, s, s, s, s, s, s, s, s, s}, archive.StoreFlags{Data: data})
}

func newKeptHouse(t *testing.T, store keptStore, where archive.StoreFlags) *keptHouse {
	t.Helper()
	h := &keptHouse{T: t, server: testkit.NATS(t), store: store, where: where, now: time.Now()}
	h.folder = filepath.Join(t.TempDir(), "blobs")
	f := archive.BlobFlags{Blobs: h.folder}
	var err error
	if h.blobs, err = f.OpenBlobs(); err != nil {
		t.Fatal(err)
	}
	if h.purger, err = natsjs.NewPurger(t.Context(), h.server.Dial(t), natskit.KeysBucket); err != nil {
		t.Fatal(err)
	}
	h.url = h.node()
	return h
}

// node starts an edge, and returns where its runs are.
func (h *keptHouse) node() string {
	t := h.T
	t.Helper()
	joined, err := archive.Join(h.store, h.blobs)
	if err != nil {
		t.Fatal(err)
	}
	flags := &node.ListenFlags{Listen: "127.0.0.1:0", AdminListen: "off", KeepAlive: time.Second,
		WriteLimit: 10 * time.Second, Tenant: "acme"}
	logger := slog.New(slog.DiscardHandler)
	n, err := node.New(t.Context(), node.Config{Conn: h.server.Dial(t), Live: h.server.Dial(t), Archive: joined,
		Runs:  h.store,
		Flags: flags, Metrics: process.NewMetrics(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := process.Listen(t.Context(), "--listen", flags.Listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- process.RunStages(ctx, n.Stages(ln)...) }()
	t.Cleanup(func() { stop(); <-done })
	return "http://" + ln.Addr().String() + "/v1/agent/runs"
}

// stored puts packs into the archive alone: the log's window is over.
func (h *keptHouse) stored(packs ...schema.Pack) {
	h.Helper()
	chunks, err := persister.Chunks(packs...)
	if err == nil {
		_, err = h.store.Append(h.Context(), chunks)
	}
	if err != nil {
		h.Fatal(err)
	}
}

func (h *keptHouse) logged(packs ...schema.Pack) {
	h.Helper()
	log, err := pubjs.Open(h.Context(), h.server.Dial(h))
	for i := range packs {
		if err == nil {
			var head schema.Head
			head, err = log.Head(h.Context(), packs[i].Key, "")
			if err == nil {
				_, err = log.Append(h.Context(), &packs[i], head.Stored)
			}
		}
	}
	if err != nil {
		h.Fatal(err)
	}
}

// deleteRun runs the command that deletes a run, and returns what it printed.
func (h *keptHouse) deleteRun(run string) (string, error) {
	var out bytes.Buffer
	c := retentioncmd.DeleteRunCmd{Tenant: "acme", RunID: run}
	c.StoreFlags = h.where
	c.NATS, c.Blobs, c.Yes, c.Out, c.Err = h.server.Server.ClientURL(), h.folder, true, &out, io.Discard
	err := c.Run(h.Context(), slog.New(slog.DiscardHandler))
	return out.String(), err
}

// keep passes when it is so much later.
func (h *keptHouse) keep(later time.Duration, policy retention.Policy) retention.Report {
	h.Helper()
	cfg := retentioncmd.ConfigFor(h.store, h.store, h.purger, h.blobs, policy, retention.Hooks{}, nil)
	cfg.Now = func() time.Time { return h.now.Add(later) }
	k, err := retention.New(cfg)
	if err != nil {
		h.Fatal(err)
	}
	r, err := k.Pass(h.Context())
	if err != nil || r.Failed > 0 {
		h.Fatalf("%+v, %v", r, err)
	}
	return r
}

func (h *keptHouse) do(method, path, body string, header ...string) (int, string) {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(b)
}

var upgrade = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
	"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}

// wantGone asks for the beginning of a run in every way.
func (h *keptHouse) wantGone(run string, first schema.Seq) {
	h.Helper()
	for _, path := range []string{"/stream", "/stream?after=1", "/stream?detail=full", "/stream?snapshot=true",
		"/events", "/events?after=1", "/replay.jsonl", "/snapshot", "ws"} {
		var header []string
		if path == "ws" {
			path, header = "/stream", upgrade
		}
		status, body := h.do("GET", "/"+run+path, "", header...)
		var p struct {
			Error struct {
				Code     string     `json:"code"`
				FirstSeq schema.Seq `json:"first_seq"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != 410 ||
			p.Error.Code != schema.CodeCursorExpired || p.Error.FirstSeq != first {
			h.Errorf("%s%s: %d %s, want 410 from %d", run, path, status, body, first)
		}
	}
}

func endedRun(run string, n int) (*persistertest.Writer, schema.Pack) {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run},
		time.Now().UTC().AddDate(0, 0, -1).Format("20060102"))
	events := make([]schema.Event, n)
	for i := range events {
		events[i] = persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"%d"}`, i))
	}
	events[0], events[n-1] = persistertest.Lifecycle(schema.StateRunning), persistertest.Lifecycle(schema.StateDone)
	return w, w.Pack("", events...)
}

func goOn(w *persistertest.Writer) schema.Pack {
	return w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`),
		persistertest.Lifecycle(schema.StateDone))
}

// TestExpiredAtTheEdge walks every way of reading over runs that have expired whole, in part, and that are cold.
func TestExpiredAtTheEdge(t *testing.T) { bothHouses(t, expiredAtTheEdge) }

func expiredAtTheEdge(h *keptHouse) {
	t := h.T
	_, whole := endedRun("whole", 10)
	part, partly := endedRun("part", 10)
	logged, begun := endedRun("logged", 10)
	cold, chilled := endedRun("cold", 10)
	h.stored(whole, partly, begun, chilled)
	if status, body := h.do("GET", "/whole/snapshot", ""); status != 200 {
		// the fold that is kept must not be given out later
		t.Fatalf("%d %s", status, body)
	}
	a, err := (&archive.ArchiverFlags{}).NewArchiver(h.store, h.store, nil, h.blobs, blob.Hooks{},
		slog.New(slog.DiscardHandler))
	if err == nil {
		err = a.One(t.Context(), chilled.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.SetOverride(t.Context(), "acme", persister.Override{}); err != nil {
		t.Fatal(err)
	}
	if r := h.keep(time.Hour, retention.Policy{Rows: time.Minute}); r.Cooled != 1 || r.Expired != 0 {
		t.Fatalf("%+v", r)
	}
	more := goOn(cold)
	h.stored(more)
	if _, err := h.store.AddHold(t.Context(), chilled.Key, "cold"); err != nil {
		t.Fatal(err)
	}
	if r := h.keep(100*24*time.Hour, retention.Policy{}); r.Expired != 3 {
		t.Fatalf("%+v", r)
	}
	h.stored(goOn(part))
	h.logged(goOn(logged))
	time.Sleep(1100 * time.Millisecond) // what is kept of folds and pages is believed for a second

	h.wantGone("whole", 11)
	h.wantGone("part", 11)
	h.wantGone("logged", 11)
	if status, _ := h.do("GET", "/whole/stream?after=10", ""); status != 204 {
		t.Errorf("behind the end: %d", status)
	}
	if status, body := h.do("GET", "/part/replay.jsonl?after=10", ""); status != 200 || strings.Count(body, "\n") != 2 {
		t.Errorf("what is kept: %d %s", status, body)
	}
	if status, body := h.do("GET", "/logged/replay.jsonl?after=10", ""); status != 200 || strings.Count(body, "\n") != 2 {
		t.Errorf("what the log has: %d %s", status, body)
	}
	if status, body := h.do("GET", "/cold/replay.jsonl", ""); status != 200 ||
		body != string(chilled.Body)+string(more.Body) {
		t.Errorf("cold: %d, %d bytes", status, len(body))
	}
	_, list := h.do("GET", "", "")
	for run, listed := range map[string]bool{"whole": false, "part": true, "cold": true} {
		if strings.Contains(list, `"`+run+`"`) != listed {
			t.Errorf("%s in the list: %s", run, list)
		}
	}
}

// TestDeleteEverywhere: a run that is deleted is a run that never was, for readers, watchers and writers.
func TestDeleteEverywhere(t *testing.T) { bothHouses(t, deleteEverywhere) }

func deleteEverywhere(h *keptHouse) {
	t := h.T
	const create = `{"type":"run.lifecycle","payload":{"state":"running","reason":null}}`
	post := func(run, body, key string) (int, string) {
		t.Helper()
		return h.do("POST", "/"+run+"/events", body, "Content-Type", "application/x-ndjson", "Idempotency-Key", key)
	}
	if status, body := post("doomed", create+"\n"+`{"type":"text.delta","payload":{"text":"secret"}}`,
		"k1"); status > 299 {
		t.Fatalf("%d %s", status, body)
	}
	_, old := endedRun("archived", 10)
	h.stored(old)
	if _, body := h.do("GET", "/doomed/snapshot", ""); !strings.Contains(body, "secret") {
		t.Fatal(body)
	}
	// A watcher that has everything.
	req, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+"/doomed/stream?detail=full", nil)
	watch, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	ended := make(chan error, 1)
	lines := bufio.NewReader(watch.Body)
	for seen := false; !seen; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		seen = strings.Contains(line, "secret")
	}
	go func() { _, err := io.Copy(io.Discard, lines); ended <- err }()

	if _, err := h.store.AddHold(t.Context(), schema.RunKey{Tenant: "acme", Run: "archived"}, "case"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.deleteRun("archived"); err == nil || !strings.Contains(err.Error(), "legal hold") {
		t.Fatalf("a held run: %v", err)
	}
	if _, err := h.store.RemoveHold(t.Context(), schema.RunKey{Tenant: "acme", Run: "archived"}); err != nil {
		t.Fatal(err)
	}
	if out, err := h.deleteRun("archived"); err != nil || !strings.Contains(out, "1 runs, 10 events") {
		t.Fatalf("%s, %v", out, err)
	}
	if out, err := h.deleteRun("doomed"); err != nil || !strings.Contains(out, "1 messages, 1 idempotency keys") ||
		!strings.Contains(out, "left: nothing") {
		t.Fatalf("%s, %v", out, err)
	}
	if _, err := h.deleteRun("unheard"); err == nil {
		t.Fatal("a run that never was is deleted")
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watcher's stream ends as if the run had")
		}
	case <-time.After(40 * time.Second):
		t.Error("the watcher is not told")
	}
	for _, run := range []string{"doomed", "archived"} {
		for _, path := range []string{"", "/stream", "/events", "/replay.jsonl", "/snapshot"} {
			status, body := h.do("GET", "/"+run+path, "", "X-Request-Id", "same")
			never, want := h.do("GET", "/never_was"+path, "", "X-Request-Id", "same")
			if status != 404 || never != status || withoutID(body) != withoutID(want) {
				t.Errorf("%s%s: %d %s\nnever was: %d %s", run, path, status, body, never, want)
			}
		}
	}
	if status, body := post("doomed", create, "k1"); status != 409 {
		t.Errorf("a write behind the mark: %d %s", status, body)
	}
	if r := h.keep(time.Hour, retention.Policy{}); r.Tombstones != 2 {
		t.Fatalf("%+v", r)
	}
	if status, body := post("doomed", create, "k1"); status > 299 { // a new run, and the key is free
		t.Errorf("begun anew: %d %s", status, body)
	}
	if status, body := h.do("GET", "/doomed/snapshot", ""); status != 200 || strings.Contains(body, "secret") {
		t.Errorf("%d %s", status, body)
	}
}

func withoutID(body string) string {
	before, rest, _ := strings.Cut(body, `"request_id":"`)
	_, after, _ := strings.Cut(rest, `"`)
	return before + after
}
