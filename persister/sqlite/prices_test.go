package sqlite

import (
	"strings"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestPrices(t *testing.T) {
	s := temp(t)
	persistertest.CheckPrices(t, s, s, func(query string) (text string) {
		if err := s.read.QueryRowContext(t.Context(), query).Scan(&text); err != nil {
			t.Error(err)
		}
		return text
	}, func(model, from string, price float64) {
		if _, err := s.write.ExecContext(t.Context(),
			`insert into agent_model_prices (model, valid_from, input, output) values (?, ?, ?, ?)`, model, from, price,
			price); err != nil {
			t.Error(err)
		}
	})
}

func TestCostsOfChildren(t *testing.T) {
	s := temp(t)
	persistertest.CheckCostsOfChildren(t, s, s)
	plan := func(q schema.CostsQuery) string {
		text, args, err := s.CostsQuery("acme", q)
		if err != nil {
			t.Fatal(err)
		}
		return explain(t, s, text, args...)
	}
	page := plan(schema.CostsQuery{Run: "run_kids", After: 9, Limit: 9})
	if !strings.Contains(page, "SEARCH u USING PRIMARY KEY (koder_user_id=? AND run_id=? AND seq>?)") {
		t.Errorf("a page of messages:\n%s", page)
	}
	days := plan(schema.CostsQuery{By: schema.ByDay, Since: time.Now(), Until: time.Now(), Limit: 9})
	if !strings.Contains(days, "SEARCH u USING INDEX agent_run_usage_days (koder_user_id=? AND day>? AND day<?)") {
		t.Errorf("a day:\n%s", days)
	}
}

// TestCostsStay: what a run has cost stays when its events expire, without its repeats, and goes when the run is
// deleted.
func TestCostsStay(t *testing.T) {
	s := temp(t)
	persistertest.CheckCostsOfChildren(t, s, s)
	costs := func() (n int64) {
		t.Helper()
		all, err := s.Costs(t.Context(), "acme", schema.CostsQuery{Run: "run_kids", By: schema.ByChild, Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			n += all[i].Messages
		}
		return n
	}
	exec := func(text string) {
		t.Helper()
		if _, err := s.write.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	exec(`delete from agent_run_events`)
	exec(`delete from agent_run_repeats`)
	if n := costs(); n != 3 {
		t.Errorf("%d messages after the events have expired", n)
	}
	exec(`update agent_runs set deleted_at = '2026-01-01'`)
	if n := costs(); n != 0 {
		t.Errorf("%d messages of a deleted run", n)
	}
}
