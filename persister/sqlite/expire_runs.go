package sqlite

import (
	"context"
	"fmt"

	"agentstream/persister"
)

// Weigh returns the number of rows of runs above their floors, and the bytes of their lines.
func (s *Store) Weigh(ctx context.Context, runs []persister.EndedRun) (count, bytes int64, err error) {
	for _, r := range runs {
		var n, size int64
		err := s.read.QueryRowContext(ctx, `select count(*), coalesce(sum(octet_length(line)), 0) from agent_run_events
			where koder_user_id = ? and run_id = ? and seq > ? + 0`, r.Key.Tenant, r.Key.Run, int64(r.Place.Floor)).Scan(&n, &size)
		if err != nil {
			return 0, 0, fmt.Errorf("sqlite: weigh run %s: %w", r.Key, err)
		}
		count, bytes = count+n, bytes+size
	}
	return count, bytes, nil
}

// LiveRuns returns 0 and false: there are no partitions.
func (s *Store) LiveRuns(context.Context, string) (runs int, partition bool, err error) {
	return 0, false, nil
}
