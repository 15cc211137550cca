package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// TestMigrate: a dry run says what would be done to streams, buckets and tables and does none of it; then it is
// done, and nothing is left to do.
func TestMigrate(t *testing.T) {
	server := testkit.NATS(t)
	dsn := testkit.Postgres(t)
	migrate := func(change func(*MigrateCmd)) (migrated, string) {
		t.Helper()
		c := MigrateCmd{NATSFlags: cli.NATSFlags{NATS: server.Server.ClientURL()},
			PostgresFlags: cli.PostgresFlags{Postgres: dsn}, JSON: true}
		change(&c)
		var out bytes.Buffer
		c.Out = &out
		for deadline := time.Now().Add(30 * time.Second); ; <-time.After(50 * time.Millisecond) {
			err := c.Run(t.Context(), slog.New(slog.DiscardHandler))
			if err == nil {
				break
			}
			// The server may still be at doing away with a stream that was deleted.
			if !strings.Contains(err.Error(), "creating store") || time.Now().After(deadline) {
				t.Fatal(err)
			}
			out.Reset()
		}
		var m migrated
		if c.JSON {
			if err := json.Unmarshal(out.Bytes(), &m); err != nil {
				t.Fatalf("%s: %v", out.Bytes(), err)
			}
		}
		return m, out.String()
	}
	js, err := jetstream.New(server.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	for name := range js.StreamNames(t.Context()).Name() { // the kit has declared some
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	dry := func(c *MigrateCmd) { c.DryRun, c.Partitions = true, 4 }
	var planned migrated
	for range 2 {
		planned, _ = migrate(dry)
		if len(planned.Streams) != 8 || !planned.Streams[0].New || len(planned.Migrations) < 6 || !planned.DryRun ||
			!planned.Tables {
			t.Fatalf("planned: %+v", planned)
		}
	}
	if _, err := natskit.ReadLayout(t.Context(), js); !errors.Is(err, natskit.ErrNotDeclared) {
		t.Fatalf("a dry run has declared streams: %v", err)
	}
	if text := func() string { _, s := migrate(func(c *MigrateCmd) { dry(c); c.JSON = false }); return s }(); !strings.Contains(text, "would be made") || !strings.Contains(text, "would apply") {
		t.Errorf("in words: %s", text)
	}
	if done, _ := migrate(func(c *MigrateCmd) { c.Partitions = 4 }); len(done.Streams) != 8 ||
		strings.Join(done.Migrations, " ") != strings.Join(planned.Migrations, " ") {
		t.Errorf("done: %+v, planned %+v", done, planned)
	}
	if m, _ := migrate(func(c *MigrateCmd) { c.DryRun = true }); len(m.Streams)+len(m.Migrations) != 0 ||
		m.Partitions != 4 {
		t.Errorf("left to do: %+v", m)
	}
	m, _ := migrate(func(c *MigrateCmd) { c.DryRun, c.Window = true, time.Hour })
	if len(m.Streams) != 4 || len(m.Streams[3].Fields) != 1 || m.Streams[3].Fields[0] != "window: 72h0m0s → 1h0m0s" {
		t.Errorf("another window: %+v", m)
	}
	if have, err := natskit.ReadLayout(t.Context(), js); err != nil || have.MaxAge != 72*time.Hour {
		t.Errorf("a dry run has changed the window: %+v, %v", have, err)
	}
	c := MigrateCmd{NATSFlags: cli.NATSFlags{NATS: server.Server.ClientURL()},
		LayoutFlags: cli.LayoutFlags{Partitions: 5}, DryRun: true}
	if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a dry run finds nothing wrong with another number of partitions")
	}
	waitsForTables(t, server.Server.ClientURL())
	if s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn}); err != nil || s.Ping(t.Context()) != nil {
		t.Error("the tables are not there")
	} else {
		s.Close()
	}
}

// waitsForTables: migrate waits for a database that is starting, and for no other failure.
func waitsForTables(t *testing.T, nats string) {
	t.Helper()
	pg := testkit.StartPostgres(t)
	dsn := pg.Database(t)
	c := MigrateCmd{NATSFlags: cli.NATSFlags{NATS: nats}, PostgresFlags: cli.PostgresFlags{Postgres: dsn},
		Streams: cli.Streams{Out: &bytes.Buffer{}}}
	c.Postgres = strings.Replace(dsn, "@/", "@/nowhere_", 1)
	if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || errors.Is(err, tables.ErrAway) {
		t.Errorf("no such database: %v", err)
	}
	c.Postgres = dsn
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	waits, done := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("waiting for PostgreSQL")) {
			once.Do(func() { close(waits) })
		}
		return len(p), nil
	}), nil))
	go func() { done <- c.Run(t.Context(), log) }()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	}
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
