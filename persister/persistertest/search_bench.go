package persistertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/schema"
)

// SearchedRuns are columns of runs and what they hold in SQL, i being the number of the run: names of teams, models and
// tags that many share, and words that a few or none have.
const (
	SearchedColumns = "koder_user_id, id, state, last_seq, last_id, usage, title, tags, opening, model, words, reason, reason_of"
	SearchedValues  = `'acme', 'run_' || i, case when (i % 100) = 0 then 'running' when (i % 11) = 0 then 'error' else 'done' end,
		i * 37 % 1000 + 2, 'evt', '{"output_tokens":5}', 'Task ' || (i % 500) || ' of team ' || (i % 7), ',tag' || (i % 20) || ',',
		'please look at item ' || i, 'model-' || (i % 5),
		'task ' || (i % 500) || ' of team ' || (i % 7) || ' tag' || (i % 20) || ' model-' || (i % 5) || ' please look at item ' || i ||
		case when (i % 25000) = 0 then ' zebra' else '' end || ' ` + `and what else people write in the first words of a message',
		case when (i % 11) = 0 then 'timeout after ' || (i % 60) || ' s' else '' end,
		case when (i % 100) = 0 then 'running' when (i % 11) = 0 then 'error' else 'done' end`
)

// searches are what people ask a list for.
func searches() map[string]schema.RunsQuery {
	day := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	return map[string]schema.RunsQuery{
		"none": {}, "common word": {Words: []string{"team"}}, "two words": {Words: []string{"team", "499"}},
		"rare word": {Words: []string{"zebra"}}, "absent word": {Words: []string{"giraffe"}},
		"an id": {Words: []string{"run_77777"}}, "title": {Title: "Task 77 of team 0"}, "absent title": {Title: "x"},
		"tag": {Tag: "tag7"}, "model": {Model: "model-3"}, "reason": {Reason: "timeout after 44"},
		"word and state": {Words: []string{"zebra"}, States: []schema.RunState{schema.StateError, schema.StateRunning}},
		"word and time":  {Words: []string{"team"}, Since: day, Until: day.AddDate(0, 0, 1)},
		"by events":      {Order: schema.OrderEvents}, "by duration": {Order: schema.OrderDuration},
		"by end": {Order: schema.OrderUpdated}, "word by events": {Words: []string{"giraffe"}, Order: schema.OrderEvents},
		"oldest": {Words: []string{"zebra"}, Oldest: true},
	}
}

// BenchSearches asks a store of many runs for the first page of each search, and reports the median of its times.
func BenchSearches(b *testing.B, runs func(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error),
	plan func(q schema.RunsQuery) string) {
	all := searches()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			q := all[name]
			q.Limit, q.Models = 51, true
			var took []time.Duration
			found := 0
			for b.Loop() {
				begun := time.Now()
				page, err := runs(b.Context(), "acme", q)
				if err != nil {
					b.Fatal(err)
				}
				took, found = append(took, time.Since(begun)), len(page)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(found), "found")
			b.ReportMetric(0, "ns/op")
			b.Logf("%s\n%s", name, plan(q))
		})
	}
}
