package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// changedKeys is the number of keys of a page.
const changedKeys = 1000

// ChangedSince walks the runs of all tenants whose rows were written at t or later, in the order of their keys,
// without those that are deleted. The time of a write is that at which its transaction began, by the
// database's clock. It reads the whole table, a page at a time.
func (s *Store) ChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error] {
	return persister.Keys(func(after schema.RunKey) (page []schema.RunKey, err error) {
		err = s.query(ctx, everyTenant, func(rows pgx.Rows) (err error) {
			page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[schema.RunKey])
			return err
		}, `select koder_user_id, id from agent_runs where (koder_user_id, id) > ($1, $2) and updated_at >= $3 and deleted_at is null
			order by koder_user_id, id limit $4`, after.Tenant, after.Run, t, changedKeys)
		if err != nil {
			return nil, fmt.Errorf("postgres: runs changed since %v: %w", t, err)
		}
		return page, nil
	})
}
