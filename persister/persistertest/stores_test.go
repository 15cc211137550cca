package persistertest

import (
	"context"
	"database/sql"
	_ "embed"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/sqlite"
	"agentstream/schema"
)

// TestConformance runs the suite on every store, and on PostgreSQL as the tables' owner, whom row security holds.
func TestConformance(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) SuiteStore{
		"sqlite":         func(t *testing.T) SuiteStore { s, _ := freshSQLite(t); return s },
		"sqlite/earlier": func(t *testing.T) SuiteStore { return earlierSQLite(t) },
		"postgres":       func(t *testing.T) SuiteStore { return openPostgres(t, ownedPostgres(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuite(t, open)
			runArchive(t, open)
			runLosses(t, open)
		})
	}
	t.Run("memory", func(t *testing.T) { runSuite(t, func(*testing.T) SuiteStore { return NewMemory() }) })
}

// TestDeadLetters runs the suite of dead letters on every store.
func TestDeadLetters(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		runDeadLetters(t, func(t *testing.T) (SuiteStore, func(string) func()) {
			s, exec := freshSQLite(t)
			return s, func(text string) func() {
				exec(`create trigger refuse before insert on agent_run_events when new.line like '%` + text +
					`%' begin select raise(abort, 'refused'); end`)
				return func() { exec(`drop trigger refuse`) }
			}
		})
	})
	t.Run("postgres", func(t *testing.T) {
		runDeadLetters(t, func(t *testing.T) (SuiteStore, func(string) func()) {
			s, exec := freshPostgres(t)
			return s, func(text string) func() {
				exec(`alter table agent_run_events add constraint refuse check (line not like '%` + text + `%')`)
				return func() { exec(`alter table agent_run_events drop constraint refuse`) }
			}
		})
	})
}

// emptySQLite returns what sqlite.Migrate makes of no file. It is made once in a test process.
var emptySQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "agentstream-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "empty.db")
	if _, err := sqlite.Migrate(context.Background(), path, false); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// freshSQLite returns a store on a migrated file without rows, and what executes a statement beside it.
func freshSQLite(t *testing.T) (*sqlite.Store, func(statement string, args ...any)) {
	t.Helper()
	text, err := emptySQLite()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "it's 100% a ?#&.db")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

//go:embed testdata/earlier_events.sql
var earlierEvents string

// earlierSQLite returns a store on a file that an earlier program has made.
func earlierSQLite(t *testing.T) *sqlite.Store {
	t.Helper()
	s, exec := freshSQLite(t)
	exec(earlierEvents)
	return s
}

// freshPostgres returns a store on a migrated database without rows, and what executes a statement beside it.
func freshPostgres(t *testing.T) (*postgres.Store, func(statement string, args ...any)) {
	t.Helper()
	dsn := testkit.PostgresCopy(t, "migrated", func(ctx context.Context, dsn string) error {
		_, err := tables.Migrate(ctx, dsn, false)
		return err
	})
	return openPostgres(t, dsn), func(statement string, args ...any) {
		t.Helper()
		onPostgres(t, dsn, statement, args...)
	}
}

func onPostgres(t *testing.T, dsn, statement string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func openPostgres(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ownedPostgres returns the DSN of a database whose tables a role has made that is no superuser.
func ownedPostgres(t *testing.T) string {
	t.Helper()
	const role = "owner_of_tables"
	as := func(dsn string) string { return strings.Replace(dsn, "//postgres@", "//"+role+"@", 1) }
	admin := testkit.PostgresCopy(t, "owned", func(ctx context.Context, dsn string) error {
		onPostgres(t, dsn, `create role `+role+` login`)
		onPostgres(t, dsn, `grant all on schema public to `+role)
		_, err := tables.Migrate(ctx, as(dsn), false)
		return err
	})
	onPostgres(t, admin, `do $$ begin execute 'alter database ' || quote_ident(current_database()) || ' owner to `+role+
		`'; end $$`)
	return as(admin)
}

// sqliteFloor and postgresFloor do to a run what archives and retention do.

func sqliteFloor(t *testing.T) (SuiteStore, setFloor) {
	s, exec := freshSQLite(t)
	return s, func(key schema.RunKey, floor schema.Seq) {
		exec(`update agent_runs set floor_seq = ?3, deleted_at = iif(?3 = 9007199254740991, 'now', null) where koder_user_id = ?1 and id = ?2`, key.Tenant, key.Run, int64(floor))
		exec(`delete from agent_run_events where koder_user_id = ?1 and run_id = ?2 and seq <= ?3`, key.Tenant, key.Run,
			int64(floor))
	}
}

func postgresFloor(t *testing.T) (SuiteStore, setFloor) {
	s, exec := freshPostgres(t)
	return s, func(key schema.RunKey, floor schema.Seq) {
		exec(`update agent_runs set floor_seq = $3::bigint, deleted_at = case when $3::bigint = $4::bigint then now() end where koder_user_id = $1 and id = $2`,
			key.Tenant, key.Run, int64(floor), int64(schema.MaxSeq))
		exec(`delete from agent_run_events where koder_user_id = $1 and run_id = $2 and seq <= $3`, key.Tenant, key.Run,
			int64(floor))
	}
}
