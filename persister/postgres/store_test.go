package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(migrateVariable); dsn != "" {
		if _, err := tables.Migrate(context.Background(), dsn, false); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// open returns a store on a fresh, migrated database.
func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	if _, err := tables.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// migrated returns a fresh, migrated database.
func migrated(t testing.TB) string {
	t.Helper()
	return testkit.PostgresCopy(t, "migrated", func(ctx context.Context, dsn string) error {
		_, err := tables.Migrate(ctx, dsn, false)
		return err
	})
}
