package persistertest

import (
	"context"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"agentstream/persister/prices"
	"agentstream/schema"
)

// Priced has the prices of a store, and lists its runs.
type Priced interface {
	SetPrices(ctx context.Context, list prices.List) error
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
}

// CheckPrices holds that messages are priced by the price of their day, in lists and in SQL, for all kinds
// of tokens, that another list takes the place of the first, and that prices which somebody has entered stay. text returns
// the text that a statement selects; enter enters a price.
func CheckPrices(t *testing.T, s SuiteStore, p Priced, text func(query string) string, enter func(model, from string, price float64)) {
	t.Helper()
	writers := map[string]*Writer{}
	message := func(run, on, model, usage string) {
		t.Helper()
		if writers[run] == nil {
			writers[run] = NewWriter(schema.RunKey{Tenant: "acme", Run: run}, "20260101")
		}
		noon, err := time.Parse(time.DateOnly, on)
		if err != nil {
			t.Fatal(err)
		}
		writers[run].At(noon.Add(12 * time.Hour))
		Put(t, s, writers[run].Pack("", Event(schema.TypeMessageStart, `{"message_id":"`+model+`","model":"`+model+`"}`),
			Event(schema.TypeMessageEnd, `{"message_id":"`+model+`","usage":`+usage+`}`)))
	}
	message("run_old", "2026-01-10", "dear-1", `{"input_tokens":1000000,"output_tokens":100000}`)
	message("run_new", "2026-02-10", "dear-1", `{"input_tokens":1000000,"output_tokens":100000}`)
	message("run_cache", "2026-02-10", "dear-1", `{"input_tokens":0,"cache_read_input_tokens":1000000,"cache_creation_input_tokens":100000}`)
	message("run_thoughts", "2026-02-10", "dear-1", `{"promptTokenCount":1000000,"candidatesTokenCount":10000,"thoughtsTokenCount":90000,"cachedContentTokenCount":1000000}`)
	message("run_both", "2026-02-10", "dear-1", `{"input_tokens":1000000,"cost_usd":0.5}`)
	message("run_both", "2026-02-10", "nobody's", `{"input_tokens":1000000}`)
	message("run_early", "2025-01-01", "dear-1", `{"input_tokens":1000000}`)
	from := func(model, day string, input float64) prices.Price {
		return prices.Price{Model: model, From: day, Input: input, Output: 10 * input, CacheRead: input / 10, CacheWrite: input * 1.25}
	}
	check := func(step string, list prices.List, want map[string]float64) {
		t.Helper()
		if err := p.SetPrices(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		runs, err := p.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 99, Models: true})
		if err != nil || len(runs) != len(writers) {
			t.Fatalf("%s: %d runs, %v", step, len(runs), err)
		}
		for _, r := range runs {
			cost := 0.0
			if r.Cost != nil {
				cost = *r.Cost
			}
			known, ok := want[r.ID]
			if ok != (r.Cost != nil) || math.Abs(known-cost) > 1e-9 || !ok == (len(r.Unpriced) == 0) && r.ID != "run_both" {
				t.Errorf("%s: %s costs %v without %q, want %v", step, r.ID, cost, r.Unpriced, known)
			}
			if r.ID == "run_both" && !slices.Equal(r.Unpriced, []string{"nobody's"}) {
				t.Errorf("%s: %s lacks the costs of %q", step, r.ID, r.Unpriced)
			}
		}
		sum := 0.0
		for _, cost := range want {
			sum += cost
		}
		got, err := strconv.ParseFloat(text(`select cast(sum(cost) as text) from agent_v_usage_daily where koder_user_id = 'acme'`), 64)
		if err != nil || math.Abs(got-sum) > 1e-5 {
			t.Errorf("%s: all days cost %v, %v; the runs %v", step, got, err, sum)
		}
	}
	list := prices.List{Source: "one.json", Prices: []prices.Price{from("dear-*", "2026-01-01", 1), from("dear-*", "2026-02-01", 2)}}
	check("by day", list, map[string]float64{"run_old": 2, "run_new": 4, "run_cache": 0.45, "run_thoughts": 2.2, "run_both": 0.5})
	list = prices.List{Source: "two.json", Prices: []prices.Price{from("dear-*", "2024-01-01", 1)}}
	check("another list", list, map[string]float64{"run_old": 2, "run_new": 2, "run_cache": 0.225, "run_thoughts": 1.1, "run_both": 0.5, "run_early": 1})
	enter("dear-1", "2026-02-10", 0)
	check("entered", list, map[string]float64{"run_old": 2, "run_new": 0, "run_cache": 0, "run_thoughts": 0, "run_both": 0.5, "run_early": 1})
	checkStrangeCosts(t, s, p)
}

// checkStrangeCosts holds that a list names the costs of runs whose messages cost more than a number can be, and whose models
// have names of several lines.
func checkStrangeCosts(t *testing.T, s SuiteStore, p Priced) {
	t.Helper()
	w := NewWriter(schema.RunKey{Tenant: "globex", Run: "run_vast"}, "20260101")
	for _, usage := range []string{`{"cost_usd":1e308}`, `{"cost_usd":1e308}`, `{"cost_usd":0.25}`} {
		Put(t, s, w.Pack("", Event(schema.TypeMessageStart, `{"model":"two\n9 1 9 lines"}`),
			Event(schema.TypeMessageEnd, `{"usage":`+usage+`}`)))
	}
	runs, err := p.Runs(t.Context(), "globex", schema.RunsQuery{Limit: 9, Models: true})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs with vast costs, %v", len(runs), err)
	}
	const model = "two 9 1 9 lines"
	r := runs[0]
	if r.Cost == nil || *r.Cost != 0.25 || r.Model != model || !slices.Equal(r.Unpriced, []string{model}) {
		t.Errorf("vast costs: %v of %q, without %q", r.Cost, r.Model, r.Unpriced)
	}
}
