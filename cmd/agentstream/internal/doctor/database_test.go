package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/internal/testkit"
	"agentstream/persister/postgres/tables"
)

// TestTables plants a database without tables, one whose row security is off, and a role that it does not hold.
func TestTables(t *testing.T) {
	admin := testkit.Postgres(t)
	x := examine()
	x.tables(t.Context(), admin)
	if len(x.found) != 2 || !strings.Contains(x.found[1], "superuser") {
		t.Errorf("as a superuser: %q", x.found)
	}
	dsn := testkit.GiveToOwner(t, admin)
	x = examine()
	x.tables(t.Context(), dsn)
	one(t, x, "migrations are missing", "agentstream migrate")
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	x = examine()
	x.tables(t.Context(), dsn)
	one(t, x)
	db, err := tables.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `alter table agent_runs no force row level security`); err != nil {
		t.Fatal(err)
	}
	x = examine()
	x.tables(t.Context(), dsn)
	one(t, x, "row security is off", "force row level security")
	x = examine()
	x.tables(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	one(t, x, "cannot be reached", "--postgres")
}

// TestCommand: without an archive the command looks at what is around, prints it in both forms, and its status says
// whether there was something.
func TestCommand(t *testing.T) {
	server := testkit.NATS(t)
	c := &SetupCmd{}
	var out bytes.Buffer
	c.NATS, c.Out, c.Err = server.Server.ClientURL(), &out, &out
	if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); err != nil || out.Len() > 0 {
		t.Errorf("in order: %v %s", err, &out)
	}
	c.NATS, c.JSON = "nats://127.0.0.1:1", true
	if err := c.Run(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, archive.ErrFindings) {
		t.Errorf("without NATS: %v", err)
	}
	var said struct{ Wrong []string }
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || len(said.Wrong) != 1 {
		t.Errorf("%v %s", err, &out)
	}
}
