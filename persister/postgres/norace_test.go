//go:build !race

package postgres_test

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestFloors compares the store with Memory after every batch, of eight random orders.
func TestFloors(t *testing.T) {
	persistertest.Floors(t, func(t *testing.T) (persistertest.Store, persistertest.SetFloor) {
		dsn := migrated(t)
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
