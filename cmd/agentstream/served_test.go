package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// TestServedTables: roles end at once when the tables are not theirs, and start through an outage.
func TestServedTables(t *testing.T) {
	url := testkit.NATS(t).Server.ClientURL()
	dsn := testkit.StartPostgres(t).Database(t)
	quiet := slog.New(slog.DiscardHandler)
	refused := func(want error, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a role that starts would run on
		defer cancel()
		persist := &PersistCmd{NATSFlags: NATSFlags{NATS: url}, PostgresFlags: PostgresFlags{Postgres: dsn}, AdminListen: "off"}
		edge := &EdgeCmd{NATSFlags: NATSFlags{NATS: url}, PostgresFlags: PostgresFlags{Postgres: dsn}, InsecureNoAuth: true,
			ListenFlags: ListenFlags{Listen: "127.0.0.1:0", AdminListen: "off", Tenant: "default"}}
		for name, run := range map[string]func(context.Context, *slog.Logger) error{"persist": persist.Run, "edge": edge.Run} {
			if err := run(ctx, quiet); !errors.Is(err, want) || !strings.Contains(err.Error(), text) || ctx.Err() != nil {
				t.Errorf("%s: %v, want %q", name, err, text)
			}
		}
	}
	refused(postgres.ErrOlder, "agentstream migrate")
	if _, err := postgres.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	if s, err := openServed(t.Context(), dsn, 0, quiet); err != nil {
		t.Errorf("tables of this version: %v", err)
	} else {
		s.Close()
	}
	statement(t, dsn, "insert into agentstream_migrations (version_id, is_applied) values (9999, true)")
	refused(postgres.ErrNewer, "newer program")

	var said bytes.Buffer
	s, err := openServed(t.Context(), "postgres://u:secret@127.0.0.1:1/x", 0, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatalf("an outage: %v", err)
	}
	s.Close()
	if text := said.String(); !strings.Contains(text, "starting without it") || strings.Contains(text, "secret") {
		t.Errorf("said: %s", text)
	}
}

func statement(t *testing.T, dsn, sql string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// TestStuckPartitionsLeaveConnections: while all partitions but one wait for locks, that one goes on, and
// the store can be asked.
func TestStuckPartitionsLeaveConnections(t *testing.T) {
	dsn := testkit.StartPostgres(t).Database(t)
	if _, err := postgres.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	const partitions = 8
	s, err := openServed(t.Context(), dsn, persistConns(partitions), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write := func(ctx context.Context, run int) error {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run", run)}
		chunks, err := persister.Chunks(persistertest.NewWriter(key, "20260228").Texts("", 1))
		if err == nil {
			_, err = s.Append(ctx, chunks)
		}
		return err
	}
	for run := range partitions {
		if err := write(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table agent_runs in share mode"); err != nil { // writers wait, readers do not
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stuck sync.WaitGroup
	for run := range partitions - 1 {
		stuck.Go(func() { _ = write(ctx, run) })
	}
	defer stuck.Wait()
	defer cancel()
	for deadline := time.Now().Add(30 * time.Second); ; {
		var waiting int
		if err := tx.QueryRow(t.Context(), "select count(*) from pg_locks where not granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting == partitions-1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d wait for the lock: the others have no connection", waiting, partitions-1)
		}
		<-time.After(20 * time.Millisecond)
	}
	once, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	if err := s.Ping(once); err != nil {
		t.Errorf("the store cannot be asked: %v", err)
	}
}
