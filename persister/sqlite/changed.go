package sqlite

import (
	"context"
	"fmt"
	"iter"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// changedKeys is the number of keys of a page.
const changedKeys = 1000

// ChangedSince iterates over the runs of all tenants whose rows were written at t or later, in the order of their
// keys, without deleted ones. It reads the whole table, a page at a time.
func (s *Store) ChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error] {
	return persister.Keys(func(after schema.RunKey) (page []schema.RunKey, err error) {
		err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
			var key schema.RunKey
			err := scan(&key.Tenant, &key.Run)
			page = append(page, key)
			return true, err
		}, `select koder_user_id, id from agent_runs where (koder_user_id, id) > (?, ?) and updated_at >= ? and deleted_at is null
			order by koder_user_id, id limit ?`, after.Tenant, after.Run, t.UTC().Format(updatedLayout), changedKeys)
		if err != nil {
			return nil, fmt.Errorf("sqlite: runs changed since %v: %w", t, err)
		}
		return page, nil
	})
}
