package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres"
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
	if s, err := openServed(t.Context(), dsn, quiet); err != nil {
		t.Errorf("tables of this version: %v", err)
	} else {
		s.Close()
	}
	statement(t, dsn, "insert into agentstream_migrations (version_id, is_applied) values (9999, true)")
	refused(postgres.ErrNewer, "newer program")

	var said bytes.Buffer
	s, err := openServed(t.Context(), "postgres://u:secret@127.0.0.1:1/x", slog.New(slog.NewTextHandler(&said, nil)))
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
