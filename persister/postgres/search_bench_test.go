package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkSearches is the list of 100,000 runs of one tenant, searched in every way.
func BenchmarkSearches(b *testing.B) {
	admin, dsn := owned(b)
	s, p := open(b, dsn), pool(b, admin)
	exec(b, p, `insert into agent_runs (`+persistertest.SearchedColumns+`, run_day, first_ts, last_ts)
		select `+strings.ReplaceAll(persistertest.SearchedValues, `'{"output_tokens":5}'`, `'{"output_tokens":5}'::jsonb`)+`, '2026-01-01',
		'2026-01-01'::timestamptz + make_interval(secs => (i * 7919) % 1000003),
		'2026-01-01'::timestamptz + make_interval(secs => (i * 7919) % 1000003 + i % 3600) from generate_series(1, 100000) i`)
	exec(b, p, `vacuum analyze agent_runs`)
	persistertest.BenchSearches(b, s.Runs, func(q schema.RunsQuery) string {
		text, args := s.RunsQuery("acme", q)
		rows, err := p.Query(b.Context(), "explain (costs off) "+text, args...)
		if err != nil {
			b.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			b.Fatal(err)
		}
		return strings.Join(lines[:min(12, len(lines))], "\n")
	})
}
