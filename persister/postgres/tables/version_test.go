package tables_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres/tables"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// answers are the rows that a database gives, one for each query.
type answers struct {
	values []int64
	err    error
}

func (a *answers) QueryRow(context.Context, string, ...any) pgx.Row { return a }
func (a *answers) Scan(into ...any) error {
	if a.err != nil {
		return a.err
	}
	*into[0].(*int64) = a.values[0]
	a.values = a.values[1:]
	return nil
}

// Tables are for a program when they have its version, or a newer one that says so.
func TestCheckVersion(t *testing.T) {
	own, away := tables.Version(), errors.New("away")
	for name, c := range map[string]struct {
		db   answers
		want error
	}{
		"the same":         {answers{values: []int64{own}}, nil},
		"older":            {answers{values: []int64{own - 1}}, tables.ErrOlder},
		"none":             {answers{values: []int64{0}}, tables.ErrOlder},
		"newer, readable":  {answers{values: []int64{own + 5, own}}, nil},
		"newer, for newer": {answers{values: []int64{own + 5, own + 1}}, tables.ErrNewer},
		"away":             {answers{err: away}, away},
	} {
		if err := tables.CheckVersion(t.Context(), &c.db); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An empty database is brought up to the program's version, once; a dry run says what would happen and does nothing.
// Rights are granted to a role that exists, and to no other.
func TestMigrateAndGrant(t *testing.T) {
	dsn := testkit.Postgres(t)
	would, err := tables.Migrate(t.Context(), dsn, true)
	if err != nil || len(would) == 0 {
		t.Fatalf("a dry run: %q, %v", would, err)
	}
	did, err := tables.Migrate(t.Context(), dsn, false)
	if err != nil || fmt.Sprint(did) != fmt.Sprint(would) {
		t.Fatalf("ran %q, want %q, %v", did, would, err)
	}
	if again, err := tables.Migrate(t.Context(), dsn, false); err != nil || len(again) != 0 {
		t.Errorf("ran again: %q, %v", again, err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := tables.CheckVersion(t.Context(), conn); err != nil {
		t.Error(err)
	}
	if err := tables.GrantReader(t.Context(), dsn, "nobody_of_this_name"); err == nil ||
		!strings.Contains(err.Error(), "nobody_of_this_name") {
		t.Errorf("a role that is not there: %v", err)
	}
	if _, err := tables.Migrate(t.Context(), "postgres://u:sec ret@h/%zz", true); err == nil ||
		strings.Contains(err.Error(), "sec") {
		t.Errorf("a broken DSN: %v", err)
	}
}
