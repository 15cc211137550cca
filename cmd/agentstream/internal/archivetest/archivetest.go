package archivetest

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/sqlite"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// Filled is a store with runs in it.
type Filled struct {
	Args  []string // name it to the command
	Store interface {
		persistertest.SuiteStore
		persistertest.Tables
	}
	Runs map[schema.RunKey][]string // lines
}

// FillStores returns both stores, with every scenario as a run of two tenants.
func FillStores(t *testing.T) map[string]Filled {
	t.Helper()
	stores := map[string]Filled{"sqlite": SQLiteStore(t)}
	t.Run("postgres", func(t2 *testing.T) { // where there is none, that alone is skipped
		testkit.StartPostgres(t2)
		stores["postgres"] = PostgresStore(t)
	})
	scenarios := append(schematest.All(), schematest.Generate(3000, 7))
	for _, f := range stores {
		for i, s := range scenarios {
			s.Name = "run_" + strings.ReplaceAll(s.Name, " ", "-")
			for _, tenant := range []string{"acme", "globex"}[:1+i%2] {
				f.Add(t, schema.RunKey{Tenant: tenant, Run: s.Name}, s)
			}
		}
	}
	return stores
}

// SQLiteStore returns an empty archive in a file.
func SQLiteStore(t *testing.T) Filled {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "archive.db")
	if _, err := sqlite.Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return Filled{[]string{"--data", dir}, s, map[schema.RunKey][]string{}}
}

// PostgresStore returns an empty archive in PostgreSQL.
func PostgresStore(t *testing.T) Filled {
	t.Helper()
	dsn := testkit.StartPostgres(t).Database(t)
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return Filled{[]string{"--postgres", dsn}, s, map[schema.RunKey][]string{}}
}

// Add stores a scenario as a run.
func (f Filled) Add(t *testing.T, key schema.RunKey, s schematest.Scenario) {
	t.Helper()
	packs := schematest.Packs(key, s, 100)
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Append(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	f.Runs[key] = schematest.Lines(packs)
}
