package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(migrateVariable); dsn != "" {
		if _, err := postgres.Migrate(context.Background(), dsn, false); err != nil {
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
	if _, err := postgres.Migrate(t.Context(), dsn, false); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestConformance(t *testing.T) {
	fresh := func(t *testing.T) persistertest.Store { return open(t, testkit.Postgres(t)) }
	persistertest.Run(t, fresh)
	persistertest.RunArchive(t, fresh)
}

func TestFloors(t *testing.T) {
	persistertest.Floors(t, func(t *testing.T) (persistertest.Store, persistertest.SetFloor) {
		dsn := testkit.Postgres(t)
		p := pool(t, dsn)
		return open(t, dsn), func(key schema.RunKey, floor schema.Seq) {
			for text, args := range map[string][]any{
				`update agent_runs set floor_seq = $3::bigint, deleted_at = case when $3::bigint = $4::bigint then now() end where koder_user_id = $1 and id = $2`: {key.Tenant, key.Run, int64(floor), int64(schema.MaxSeq)},
				`delete from agent_run_events where koder_user_id = $1 and run_id = $2 and seq <= $3`:                                                              {key.Tenant, key.Run, int64(floor)},
			} {
				if _, err := p.Exec(t.Context(), text, args...); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
