package postgres

import (
	"context"
	"fmt"
	"time"

	"agentstream/persister"
)

// Weigh returns the number of rows of runs above their floors, and the bytes of their lines.
func (s *Store) Weigh(ctx context.Context, runs []persister.EndedRun) (count, bytes int64, err error) {
	ranges := make(map[string]*rowRange)
	for _, r := range runs {
		if ranges[r.Place.Day] == nil {
			ranges[r.Place.Day] = new(rowRange)
		}
		ranges[r.Place.Day].add(&persister.Scrap{Key: r.Key, After: r.Place.Floor}, r.Place.Last)
	}
	for day, g := range ranges {
		var n, size int64
		date, err := time.Parse(dayLayout, day)
		if err == nil {
			err = s.queryRow(ctx, everyTenant, []any{&n, &size}, `select count(*), coalesce(sum(octet_length(e.line)), 0)
				from agent_run_events e join unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) as x(t, r, lo, hi)
					on e.koder_user_id = x.t and e.run_id = x.r and e.seq > x.lo and e.seq <= x.hi
				where e.run_day = $1`, date, g.tenant, g.run, g.lo, g.hi)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("postgres: weigh %d runs of %s: %w", len(g.run), day, err)
		}
		count, bytes = count+n, bytes+size
	}
	return count, bytes, nil
}
