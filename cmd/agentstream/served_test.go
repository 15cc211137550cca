package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// TestServedTables: roles wait for everything that migrate makes, alive and not ready, end at once when a newer
// program has been there, and start through an outage.
func TestServedTables(t *testing.T) {
	nats, err := natskit.Serve(natskit.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { nats.Shutdown(); nats.WaitForShutdown() }()
	url := nats.ClientURL()
	dsn := testkit.Postgres(t)
	quiet := slog.New(slog.DiscardHandler)
	migrate := func() {
		t.Helper()
		c := MigrateCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
			Streams: cli.Streams{Out: io.Discard}}
		if err := c.Run(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
	}
	waitForMigrate(t, url, dsn, migrate)
	refused := func(want error, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a role that starts would run on
		defer cancel()
		persist := &PersistCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
			AdminListen: "off"}
		edge := &EdgeCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
			InsecureNoAuth: true,
			ListenFlags:    node.ListenFlags{Listen: "127.0.0.1:0", AdminListen: "off", Tenant: "default"}}
		for name, run := range map[string]func(context.Context, *slog.Logger) error{"persist": persist.Run, "edge": edge.Run} {
			if err := run(ctx, quiet); !errors.Is(err, want) || !strings.Contains(err.Error(), text) || ctx.Err() != nil {
				t.Errorf("%s: %v, want %q", name, err, text)
			}
		}
	}
	if s, err := node.OpenServed(t.Context(), dsn, 0, quiet); err != nil {
		t.Errorf("tables of this version: %v", err)
	} else {
		s.Close()
	}
	newerTables(t, url, dsn)
	refused(tables.ErrNewer, "newer program")

	var said bytes.Buffer
	s, err := node.OpenServed(t.Context(), "postgres://u:secret@127.0.0.1:1/x", 0,
		slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatalf("an outage: %v", err)
	}
	s.Close()
	if text := said.String(); !strings.Contains(text, "starting without it") || strings.Contains(text, "secret") {
		t.Errorf("said: %s", text)
	}
}

// newerTables makes the tables newer under an edge: first such as it reads, then such as it does not.
func newerTables(t *testing.T, url, dsn string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	at := testkit.FreeAddr(t)
	edge := &EdgeCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
		InsecureNoAuth: true,
		ListenFlags:    node.ListenFlags{Listen: "127.0.0.1:0", AdminListen: at, Tenant: "default"}}
	ended := make(chan error, 1)
	statement(t, dsn, "insert into agentstream_migrations (version_id, is_applied) values (9999, true)")
	go func() { ended <- edge.Run(ctx, slog.New(slog.DiscardHandler)) }()
	says(t, at, http.StatusOK, fmt.Sprintf(`"tables_version":%d`, tables.Version()))
	says(t, at, http.StatusOK, `"tables":"ok"`)
	statement(t, dsn, "create or replace function agent_readable_from() returns bigint language sql immutable as 'select 9999::bigint'")
	says(t, at, http.StatusServiceUnavailable, "they are at 9999 and for programs from 9999 on")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// says waits until a role's /readyz has the status and the text.
func says(t *testing.T, admin string, status int, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		if got, body := ready(t, admin); got == status && strings.Contains(body, text) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s says %d %s, want %d %s", admin, got, body, status, text)
		}
	}
}

// waitForMigrate starts roles before migrate, and ends them once before it and once after it.
func waitForMigrate(t *testing.T, url, dsn string, migrate func()) {
	t.Helper()
	for _, made := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		var admins []string
		for _, role := range []string{"edge", "persist"} {
			at := testkit.FreeAddr(t)
			admins = append(admins, at)
			run := (&PersistCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
				AdminListen: at}).Run
			if role == "edge" {
				run = (&EdgeCmd{NATSFlags: cli.NATSFlags{NATS: url}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
					InsecureNoAuth: true,
					ListenFlags:    node.ListenFlags{Listen: "127.0.0.1:0", AdminListen: at, Tenant: "default"}}).Run
			}
			go func() { ended <- run(ctx, slog.New(slog.DiscardHandler)) }()
		}
		for _, at := range admins {
			says(t, at, http.StatusServiceUnavailable, `"migrate":"`)
		}
		if made {
			migrate()
			for _, at := range admins {
				says(t, at, http.StatusOK, `"nats":"ok"`)
			}
		}
		stop()
		for range admins {
			if err := <-ended; err != nil {
				t.Errorf("told to end, with everything made %t: %v", made, err)
			}
		}
	}
}

// ready asks a role's /readyz; 0 when it does not answer.
func ready(t *testing.T, admin string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
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
	dsn := testkit.Postgres(t)
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	const partitions = 8
	s, err := node.OpenServed(t.Context(), dsn, node.PersistConns(partitions), slog.New(slog.DiscardHandler))
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
