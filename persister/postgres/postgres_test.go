package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

const day = "20260228"

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

func pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func ask[T any](t testing.TB, p *pgxpool.Pool, query string, args ...any) (v T) {
	t.Helper()
	if err := p.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func exec(t testing.TB, p *pgxpool.Pool, statement string) {
	t.Helper()
	if _, err := p.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func chunks(t testing.TB, packs ...schema.Pack) []persister.Chunk {
	t.Helper()
	c, err := persister.Chunks(packs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func appendPacks(t testing.TB, s *postgres.Store, packs ...schema.Pack) persister.Result {
	t.Helper()
	res, err := s.Append(t.Context(), chunks(t, packs...))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func replayed(t testing.TB, s *postgres.Store, key schema.RunKey) (body []byte) {
	t.Helper()
	for p, err := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, p.Body...)
	}
	return body
}

func TestMigrate(t *testing.T) {
	dsn := testkit.Postgres(t)
	p := pool(t, dsn)
	planned, err := tables.Migrate(t.Context(), dsn, true)
	if err != nil || len(planned) == 0 {
		t.Fatalf("dry run: %q, %v", planned, err)
	}
	if n := ask[int](t, p, `select count(*) from pg_tables where schemaname = 'public'`); n != 0 {
		t.Fatalf("a dry run has made %d tables", n)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "migrate") {
		t.Fatalf("ping without tables: %v", err)
	}
	var wg sync.WaitGroup
	ran := make([][]string, 6)
	for i := range ran {
		wg.Go(func() {
			var err error
			if ran[i], err = tables.Migrate(t.Context(), dsn, false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, names := range ran {
		total += len(names)
	}
	if total != len(planned) {
		t.Fatalf("%d migrations ran in six processes, %d were planned", total, len(planned))
	}
	if again, err := tables.Migrate(t.Context(), dsn, true); err != nil || len(again) != 0 {
		t.Fatalf("afterwards still to do: %q, %v", again, err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	if _, err := postgres.Open(t.Context(), postgres.Config{}); err == nil {
		t.Error("no DSN is taken")
	}
	_, err := postgres.Open(t.Context(), postgres.Config{DSN: "postgres://u:sec ret@h/%zz"})
	if err == nil || strings.Contains(err.Error(), "sec") {
		t.Errorf("a broken DSN: %v", err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: "postgres://u@/d?host=" + t.TempDir()})
	if err != nil {
		t.Fatalf("a database that is away keeps the store from opening: %v", err)
	}
	defer s.Close()
	w := persistertest.NewWriter(key, day)
	if _, err := s.Append(t.Context(), chunks(t, w.Texts("", 1))); err == nil || errors.Is(err, persister.ErrPoison) {
		t.Errorf("append without a database: %v", err)
	}
	for _, err := range s.Packs(t.Context(), key, 0, 10) {
		if err == nil {
			t.Error("a walk without a database yields")
		}
	}
}

// TestColumns pins the columns of the protocol, and payload beside line.
func TestColumns(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	var packs []schema.Pack
	for _, payload := range persistertest.Hostile() {
		packs = append(packs, w.Pack("kid", persistertest.Event(schema.TypeTextDelta, payload)))
	}
	appendPacks(t, s, packs...)
	for i, payload := range persistertest.Hostile() {
		var text *string
		err := p.QueryRow(t.Context(), `select payload::text from agent_run_events where koder_user_id = $1 and run_day = $2
			and run_id = $3 and seq = $4 and child_id = 'kid' and type = 'text.delta' and id like 'evt\_%'
			and ts between '2026-02-28' and '2026-03-02'`, key.Tenant, "2026-02-28", key.Run, i+1).Scan(&text)
		if err != nil {
			t.Fatalf("row %d: %v", i+1, err)
		}
		var want *string // what the database itself makes of it, if it takes it
		direct := p.QueryRow(t.Context(), `select $1::text::jsonb::text`, payload).Scan(&want)
		switch {
		case text != nil && (direct != nil || *text != *want):
			t.Errorf("%.60s: payload %.60s, want %.60v (%v)", payload, *text, want, direct)
		case text == nil && direct == nil && len(payload) < 10_000 && !strings.Contains(payload, "1E-200000"):
			t.Errorf("%.60s: payload is null, jsonb would take it", payload)
		}
	}
	if n := ask[int](t, p, `select count(*) from agent_run_events_20260228`); n != len(packs) {
		t.Errorf("the day's partition has %d rows of %d", n, len(packs))
	}
}

// TestSurpriseDataError: jsonb refuses a payload that looked fine. The row is stored without it. A
// line that cannot be stored is poison, and so is nothing beside it.
func TestSurpriseDataError(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	exec(t, p, `alter table agent_run_events add check (payload is null or payload->>'text' <> 'surprise')`)
	exec(t, p, `alter table agent_run_events add check (line not like '%POISON%')`)
	w := persistertest.NewWriter(key, day)
	text := func(v string) schema.Pack {
		return w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"`+v+`"}`))
	}
	good, surprise, poison := text("good"), text("surprise"), text("POISON")
	if _, err := s.Append(t.Context(), chunks(t, good, surprise, poison)); !errors.Is(err, persister.ErrPoison) {
		t.Fatalf("a batch with poison: %v", err)
	}
	if got := replayed(t, s, key); len(got) != 0 {
		t.Fatalf("a refused batch has left %s", got)
	}
	appendPacks(t, s, good)
	appendPacks(t, s, surprise)
	if _, err := s.Append(t.Context(), chunks(t, poison)); !errors.Is(err, persister.ErrPoison) {
		t.Fatalf("poison alone: %v", err)
	}
	if got := replayed(t, s, key); !bytes.Equal(got, append(bytes.Clone(good.Body), surprise.Body...)) {
		t.Fatalf("stored: %s", got)
	}
	if n := ask[int](t, p, `select count(*) from agent_run_events where payload is null`); n != 1 {
		t.Fatalf("%d rows have no payload", n)
	}
}

// TestPartitions: one that was dropped by retention is made again for a straggler, one that was
// detached is attached, and days are not made twice.
func TestPartitions(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	a, b, c := w.Texts("", 1), w.Texts("", 1), w.Texts("", 1)
	appendPacks(t, s, a)
	exec(t, p, `drop table agent_run_events_20260228`)
	appendPacks(t, s, a, b)
	exec(t, p, `alter table agent_run_events detach partition agent_run_events_20260228`)
	appendPacks(t, s, c)
	if got := replayed(t, s, key); !bytes.Equal(got, bytes.Join([][]byte{a.Body, b.Body, c.Body}, nil)) {
		t.Fatalf("stored: %s", got)
	}
	other := open(t, dsn)
	if res := appendPacks(t, other, a, b, c); res.Repeated != 3 {
		t.Fatalf("another process: %+v", res)
	}
}

// frameTypes are the types that the index is of: those that change a state, and those that framed what was open before.
var frameTypes = append(slices.Clone(persister.StateTypes), schema.TypeMessageStart, schema.TypeMessageEnd)

// TestFrameIndex: the list of types stands in the index, in the query and in the code.
func TestFrameIndex(t *testing.T) {
	dsn := migrated(t)
	open(t, dsn)
	p := pool(t, dsn)
	def := ask[string](t, p, `select indexdef from pg_indexes where indexname = 'agent_run_events_frames'`)
	if n := strings.Count(def, "::text"); n < len(frameTypes) {
		t.Fatalf("index: %s", def)
	}
	for _, typ := range frameTypes {
		if !strings.Contains(def, "'"+typ+"'") {
			t.Errorf("%s is not in %s", typ, def)
		}
	}
	if strings.Count(def, "'")/2 != len(frameTypes) {
		t.Errorf("index: %s", def)
	}
}

// TestReadsTouchOnePartition: with many days and rows a page is an index scan in one partition.
func TestReadsTouchOnePartition(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	for d := 1; d <= 9; d++ {
		for r := range 5 {
			w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", d, "_", r)},
				fmt.Sprintf("2026020%d", d))
			appendPacks(t, s, w.Texts("", 500))
		}
	}
	exec(t, p, `analyze agent_run_events`)
	rows, err := p.Query(t.Context(), `explain select seq, child_id, line from agent_run_events
		where koder_user_id = 'acme' and run_day = '2026-02-05' and run_id = 'run_5_1' and seq > 100 and seq <= 9000 order by seq limit 100`)
	if err != nil {
		t.Fatal(err)
	}
	plan := ""
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan += line + "\n"
	}
	if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") ||
		!strings.Contains(plan, "agent_run_events_20260205_pkey") ||
		strings.Contains(plan, "20260204") {
		t.Errorf("plan:\n%s", plan)
	}
}
