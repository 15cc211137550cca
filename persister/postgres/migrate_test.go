package postgres_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres/tables"
)

// migrateVariable makes a process of this test migrate a database and end.
const migrateVariable = "AGENTSTREAM_TEST_MIGRATE"

func migrateChild(t *testing.T, dsn string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), migrateVariable+"="+dsn)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestMigrateKilled: eight processes migrate at once, and the one that is at it is killed in the middle.
// The others finish, and each migration has run once.
func TestMigrateKilled(t *testing.T) {
	whole, kept := owned(t)
	s := open(t, kept)
	persistertest.FillRuns(t, s, 200)
	want := persistertest.ListRuns(t, s)
	admin, dsn := oldForm(t, pool(t, whole))
	p := pool(t, admin)
	tx, err := p.Begin(t.Context()) // a reader that does not end: the first change of a table waits for it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table agent_runs in access share mode`); err != nil {
		t.Fatal(err)
	}
	first := migrateChild(t, dsn)
	deadline := time.Now().Add(20 * time.Second)
	for ask[int](t, p, `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no migration waits for the lock")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	var others []*osexec.Cmd
	for range 7 {
		others = append(others, migrateChild(t, dsn))
	}
	readersGoOn(t, dsn)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range others {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := ask[int](t, p, `select count(*) - count(distinct version_id) from agentstream_migrations`); n != 0 {
		t.Errorf("%d migrations ran twice", n)
	}
	s = open(t, dsn)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	persistertest.SameRuns(t, s, want)
}

// readersGoOn: while a migration waits for a long reader, others wait for moments only.
func readersGoOn(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	// a reader that is stopped waits until the migrations have given up
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reads := 0
	for begun := time.Now(); time.Since(begun) < 4*time.Second; {
		if _, err := conn.Exec(ctx, `select count(*) from agent_runs`); err != nil {
			t.Fatalf("a migration that waits stops readers: %v", err)
		}
		reads++
	}
	t.Logf("%d reads beside waiting migrations", reads)
}

// TestNewer: tables of a newer version are refused by name, and left as they are.
func TestNewer(t *testing.T) {
	_, dsn := owned(t)
	s, p := open(t, dsn), pool(t, dsn)
	exec2 := func(q string) { exec(t, p, q) }
	exec2(`insert into agentstream_migrations (version_id, is_applied) values (9999, true)`)
	notFor(t, p)
	if err := s.Ping(t.Context()); !errors.Is(err, tables.ErrNewer) || !strings.Contains(err.Error(), "9999") {
		t.Errorf("ping: %v", err)
	}
	for _, dry := range []bool{true, false} {
		if _, err := tables.Migrate(t.Context(), dsn, dry); !errors.Is(err, tables.ErrNewer) {
			t.Errorf("migrate (dry %v): %v", dry, err)
		}
	}
	exec2(`delete from agentstream_migrations where version_id > 5`)
	if err := s.Ping(t.Context()); !errors.Is(err, tables.ErrOlder) {
		t.Errorf("ping of old tables: %v", err)
	}
	if _, err := tables.Migrate(t.Context(), "postgres://u:sec ret@h/%zz", true); err == nil ||
		strings.Contains(err.Error(), "sec") {
		t.Errorf("a broken DSN: %v", err)
	}
}

// notFor makes the tables require programs of version 9999.
func notFor(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	exec(t, p, `create or replace function agent_readable_from() returns bigint language sql immutable as 'select 9999::bigint'`)
}
