package retention_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// noLog is a log whose window is over.
type noLog struct{}

func (noLog) Head(context.Context, schema.RunKey) (h schema.Head, err error) { return }
func (noLog) RunsOf(context.Context, string) (ids []string, err error)       { return }

func (noLog) Holding(context.Context, []schema.RunKey) (keys []schema.RunKey, err error) { return }

func (noLog) Purge(context.Context, schema.RunKey, schema.Seq) (messages, keys int, err error) {
	return
}

// TestKeepAsOwner: an owner without any other right, whom row security binds, archives, cools, expires, drops
// partitions and deletes, with no more connections than it takes.
func TestKeepAsOwner(t *testing.T) {
	admin := testkit.Postgres(t)
	look, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close(context.WithoutCancel(t.Context()))
	ask := func(into any, text string) {
		t.Helper()
		if err := look.QueryRow(t.Context(), text).Scan(into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	owner := testkit.GiveToOwner(t, admin)
	if _, err := tables.Migrate(t.Context(), owner, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: owner, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	files, err := blob.OpenFolder(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	store := func(p schema.Pack) persister.Result {
		t.Helper()
		chunks, err := persister.Chunks(p)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Append(t.Context(), chunks)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	packs := make(map[string]schema.Pack)
	for _, name := range []string{"acme/expires", "acme/held", "acme/deleted", "globex/expires", "globex/stays"} {
		tenant, run, _ := strings.Cut(name, "/")
		day := "20260105"
		if run != "expires" {
			day = "20260106"
		}
		w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: run}, day)
		w.At(time.Now().Add(-10 * persister.Day))
		packs[name] = w.Pack("", persistertest.Lifecycle(schema.StateRunning),
			persistertest.Event(schema.TypeCommandMessage, `{"content":"x"}`),
			persistertest.Lifecycle(schema.StateDone))
		store(packs[name])
		if err := s.PutDeadLetters(t.Context(),
			[]persister.DeadLetter{{Stream: "S", Position: uint64(len(packs)), Key: w.Key, Subject: "s",
				Body: []byte(name), Reason: persister.ReasonRefused}}); err != nil {
			t.Fatal(err)
		}
	}
	a, err := blob.NewArchiver(blob.ArchiverConfig{Tables: s, Queue: s, Store: files, Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := s.Claim(t.Context(), 0, time.Minute, 10)
	if err != nil || len(keys) != 5 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if err := a.One(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AddHold(t.Context(), packs["acme/held"].Key, "case"); err != nil {
		t.Fatal(err)
	}
	never := persister.KeepForEver
	if err := s.SetOverride(t.Context(), "globex", persister.Override{Ended: &never}); err != nil {
		t.Fatal(err)
	}
	cfg := retention.Config{Runs: s, Trash: s, Tombstones: s, Log: noLog{}, Blobs: blob.Remover{Store: files},
		Pause: -1, Policy: retention.Policy{Rows: time.Hour}}
	pass := func() retention.Report {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		k, err := retention.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r, err := k.Pass(ctx)
		if err != nil || r.Failed > 0 || r.More {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	if r := pass(); r.Cooled != 4 || r.Days != 1 || r.Events != 12 {
		t.Fatalf("%+v", r)
	}
	d, err := retention.NewDeleter(cfg, s, s)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := d.Run(t.Context(), packs["acme/deleted"].Key); err != nil || !out.Clean() || out.Runs != 1 ||
		out.Blobs != 1 || out.Letters != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if more := store(packs["globex/expires"]); more.Dropped != 3 { // redelivered
		t.Fatalf("%+v", more)
	}
	cfg.Policy = retention.Policy{Completed: persister.Day}
	if r := pass(); r.Expired != 3 || r.Blobs != 3 {
		t.Fatalf("%+v", r)
	}
	var n int
	if ask(&n, `select count(*) from agent_run_events`); n != 3 { // of the held one
		t.Fatalf("%d rows are left", n)
	}
	if out, err := d.Tenant(t.Context(), "globex", nil); err != nil || !out.Clean() || out.Runs != 2 || out.Letters != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	if _, got, err := replay(s.Packs(t.Context(), packs["acme/held"].Key, 0, schema.MaxSeq)); err != nil ||
		string(got) != string(packs["acme/held"].Body) {
		t.Fatalf("%q", got)
	}
	var tables string
	ask(&tables, `select string_agg(c.table_name, ' ') from information_schema.columns c
		join information_schema.tables t using (table_schema, table_name)
		where c.table_schema = 'public' and c.column_name = 'koder_user_id' and t.table_type = 'BASE TABLE'`)
	for _, table := range strings.Fields(tables) {
		if ask(&n, `select count(*) from `+table+` where koder_user_id = 'globex'`); n > 0 && table != "agent_runs" {
			t.Errorf("%s has %d rows of a tenant that was deleted", table, n)
		}
	}
}
