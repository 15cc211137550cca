package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// BenchmarkSearches is the list of 100,000 runs of one tenant, searched in every way.
func BenchmarkSearches(b *testing.B) {
	s := temp(b)
	if _, err := s.write.ExecContext(b.Context(), `with recursive seq(i) as (select 1 union all select i + 1 from seq where i < 100000)
		insert into agent_runs (`+persistertest.SearchedColumns+`, run_day, first_ts, last_ts)
		select `+persistertest.SearchedValues+`, '20260101',
		strftime('%Y-%m-%dT%H:%M:%S', 1767225600 + (i * 7919) % 1000003, 'unixepoch') || '.000000000Z',
		strftime('%Y-%m-%dT%H:%M:%S', 1767225600 + (i * 7919) % 1000003 + i % 3600, 'unixepoch') || '.000000000Z' from seq`); err != nil {
		b.Fatal(err)
	}
	persistertest.BenchSearches(b, s.Runs, func(q schema.RunsQuery) string {
		text, args := s.RunsQuery("acme", q)
		var plan []string
		err := s.each(b.Context(), sqlstore.EveryTenant, func(scan func(...any) error) (bool, error) {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return len(plan) < 4, err
		}, "explain query plan "+text, args...)
		return fmt.Sprint(strings.Join(plan, "\n"), err)
	})
}
