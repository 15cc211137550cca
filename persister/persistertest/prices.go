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
	Costs(ctx context.Context, tenant string, q schema.CostsQuery) ([]schema.Cost, error)
}

// CheckPrices holds that messages are priced by the price of their day, in lists and in SQL, for all kinds of tokens,
// that another list takes the place of the first, and that prices which somebody has entered stay. text returns the
// text that a statement selects; enter enters a price.
func CheckPrices(t *testing.T, s SuiteStore, p Priced, text func(query string) string,
	enter func(model, from string, price float64)) {
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
	message("run_cache", "2026-02-10", "dear-1",
		`{"input_tokens":0,"cache_read_input_tokens":1000000,"cache_creation_input_tokens":100000}`)
	message("run_thoughts", "2026-02-10", "dear-1",
		`{"promptTokenCount":1000000,"candidatesTokenCount":10000,"thoughtsTokenCount":90000,"cachedContentTokenCount":1000000}`)
	message("run_both", "2026-02-10", "dear-1", `{"input_tokens":1000000,"cost_usd":0.5}`)
	message("run_both", "2026-02-10", "nobody's", `{"input_tokens":1000000}`)
	message("run_early", "2025-01-01", "dear-1", `{"input_tokens":1000000}`)
	from := func(model, day string, input float64) prices.Price {
		return prices.Price{Model: model, From: day, Input: input, Output: 10 * input, CacheRead: input / 10,
			CacheWrite: input * 1.25}
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
		checkCosts(t, step, p, runs, sum)
	}
	list := prices.List{Source: "one.json",
		Prices: []prices.Price{from("dear-*", "2026-01-01", 1), from("dear-*", "2026-02-01", 2)}}
	check("by day", list, map[string]float64{"run_old": 2, "run_new": 4, "run_cache": 0.45, "run_thoughts": 2.2,
		"run_both": 0.5})
	list = prices.List{Source: "two.json", Prices: []prices.Price{from("dear-*", "2024-01-01", 1)}}
	check("another list", list, map[string]float64{"run_old": 2, "run_new": 2, "run_cache": 0.225, "run_thoughts": 1.1,
		"run_both": 0.5, "run_early": 1})
	enter("dear-1", "2026-02-10", 0)
	check("entered", list, map[string]float64{"run_old": 2, "run_new": 0, "run_cache": 0, "run_thoughts": 0,
		"run_both": 0.5, "run_early": 1})
	checkStrangeCosts(t, s, p)
}

// checkStrangeCosts holds that a list names the costs of runs whose messages cost more than a number can be, and whose
// models have names of several lines.
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

// checkCosts holds that the costs of messages, of children and of days are those of the runs that are listed.
func checkCosts(t *testing.T, step string, p Priced, runs []schema.RunInfo, want float64) {
	t.Helper()
	add := func(what string, q schema.CostsQuery) (sum float64, costs []schema.Cost) {
		t.Helper()
		costs, err := p.Costs(t.Context(), "acme", q)
		if err != nil {
			t.Errorf("%s: costs by %s: %v", step, what, err)
		}
		for i := range costs {
			if costs[i].USD != nil {
				sum += *costs[i].USD
			}
		}
		return sum, costs
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: by %s %v, want %v", step, what, got, want)
		}
	}
	first, last := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 2, 10, 0, 0, 0, 0, time.UTC)
	days, _ := add("day", schema.CostsQuery{By: schema.ByDay, Since: first, Until: last, Limit: 99})
	near("day", days, want)
	var early, late float64
	for i := range runs {
		cost := 0.0
		if runs[i].Cost != nil {
			cost = *runs[i].Cost
		}
		if runs[i].ID == "run_old" || runs[i].ID == "run_early" {
			early += cost
		} else {
			late += cost
		}
		messages, all := add("message", schema.CostsQuery{Run: runs[i].ID, Limit: 99})
		near("message of "+runs[i].ID, messages, cost)
		children, one := add("child", schema.CostsQuery{Run: runs[i].ID, By: schema.ByChild, Limit: 99})
		near("child of "+runs[i].ID, children, cost)
		if len(one) != 1 || one[0].Messages != int64(len(all)) || (one[0].Unpriced == 0) != (len(runs[i].Unpriced) == 0) {
			t.Errorf("%s: %s has %d messages, by child %+v", step, runs[i].ID, len(all), one)
		}
		second, rest := add("page", schema.CostsQuery{Run: runs[i].ID, After: all[0].Seq, Limit: 1})
		if len(rest) != min(1, len(all)-1) || len(all) > 1 && all[1].Seq != rest[0].Seq {
			t.Errorf("%s: after %d of %s: %+v of %v", step, all[0].Seq, runs[i].ID, rest, second)
		}
	}
	got, _ := add("one day", schema.CostsQuery{By: schema.ByDay, Since: last, Until: last, Limit: 99})
	near("one day", got, late)
	got, _ = add("other days", schema.CostsQuery{By: schema.ByDay, Since: first, Until: last.AddDate(0, 0, -1), Limit: 99})
	near("other days", got, early)
	if costs, err := p.Costs(t.Context(), "globex", schema.CostsQuery{Run: runs[0].ID, Limit: 99}); err != nil ||
		len(costs) > 0 {
		t.Errorf("%s: another tenant reads %+v, %v", step, costs, err)
	}
}

// CheckCostsOfChildren holds that messages have the model and the cost of their own lane, in whatever order their
// events come, that repeats do not count, and that costs stay as long as the run does.
func CheckCostsOfChildren(t *testing.T, s SuiteStore, p Priced) {
	t.Helper()
	err := p.SetPrices(t.Context(), prices.List{Source: "kids.json", Prices: []prices.Price{
		{Model: "big", From: "2020-01-01", Input: 10}, {Model: "small", From: "2020-01-01", Input: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(schema.RunKey{Tenant: "acme", Run: "run_kids"}, "20260101")
	start := func(child, id, model string) schema.Pack {
		return w.Pack(child, Event(schema.TypeMessageStart, `{"message_id":"`+id+`","model":"`+model+`"}`))
	}
	end := func(child, id string) schema.Pack {
		return w.Pack(child, Event(schema.TypeMessageEnd, `{"message_id":"`+id+`","usage":{"input_tokens":1000000}}`))
	}
	packs := []schema.Pack{start("", "m1", "big"), start("kid", "k1", "small"), end("", "m1"), end("kid", "k1"),
		start("", "m2", "small"), end("", "m2"), end("", "m2")}
	for _, i := range []int{2, 3, 0, 5, 6, 1, 4} {
		Put(t, s, packs[i])
	}
	costs, err := p.Costs(t.Context(), "acme", schema.CostsQuery{Run: "run_kids", By: schema.ByChild, Limit: 9})
	if err != nil || len(costs) != 2 || costs[0].Child != "" || costs[1].Child != "kid" || *costs[0].USD != 11 ||
		*costs[1].USD != 1 || costs[0].Messages != 2 {
		t.Errorf("by child: %+v, %v", costs, err)
	}
	kid, root := "kid", ""
	for child, want := range map[*string]int{&kid: 1, &root: 2, nil: 3} {
		costs, err = p.Costs(t.Context(), "acme", schema.CostsQuery{Run: "run_kids", Child: child, Limit: 9})
		if err != nil || len(costs) != want {
			t.Errorf("messages of a child: %+v, %v", costs, err)
		}
	}
	costs, err = p.Costs(t.Context(), "acme",
		schema.CostsQuery{Run: "run_kids", By: schema.ByChild, Beyond: &root, Limit: 9})
	if err != nil || len(costs) != 1 || costs[0].Child != "kid" {
		t.Errorf("the page after the run itself: %+v, %v", costs, err)
	}
}
