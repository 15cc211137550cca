package persistertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

const acme = "acme"

func (s *suite) catalog() Catalog {
	s.Helper()
	c, ok := s.store.(Catalog)
	if !ok {
		s.Fatalf("%T has no list of runs", s.store)
	}
	return c
}

func (s *suite) list(tenant string, q schema.RunsQuery) []schema.RunInfo {
	s.Helper()
	if q.Limit == 0 {
		q.Limit = many
	}
	runs, err := s.catalog().Runs(s.Context(), tenant, q)
	if err != nil {
		s.Fatal(err)
	}
	if len(runs) > q.Limit {
		s.Fatalf("%d runs, limit %d", len(runs), q.Limit)
	}
	return runs
}

func idsOf(runs []schema.RunInfo) []string {
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	return ids
}

func (s *suite) wantRuns(tenant string, q schema.RunsQuery, want ...string) {
	s.Helper()
	if got := idsOf(s.list(tenant, q)); !slices.Equal(got, want) {
		s.Fatalf("runs are %q, want %q", got, want)
	}
}

func (s *suite) runs() {
	if got := s.list(acme, schema.RunsQuery{}); len(got) != 0 {
		s.Fatalf("an empty store lists %+v", got)
	}
	w := NewWriter(key, day)
	silent := w.Texts("", 2)
	begun := time.Date(2026, 2, 28, 23, 59, 1, 0, time.UTC)
	check := func(want schema.RunInfo) {
		s.Helper()
		got := s.list(key.Tenant, schema.RunsQuery{})
		if len(got) != 1 || got[0].ID != want.ID || got[0].State != want.State || got[0].Reason != want.Reason ||
			got[0].Last != want.Last ||
			!got[0].Started.Equal(want.Started) || !got[0].Updated.Equal(want.Updated) ||
			got[0].Usage.String() != want.Usage.String() {
			s.Fatalf("list is %+v\nwant %+v", got, want)
		}
		if ended := got[0].EndTime(); ended.IsZero() == want.State.Final() || want.State.Final() &&
			!ended.Equal(want.Updated) {
			s.Fatalf("state %s ended at %v", want.State, ended)
		}
	}
	at := func(n int) time.Time { return begun.Add(time.Duration(n-1) * time.Second) }
	s.append(silent)
	check(schema.RunInfo{ID: key.Run, Last: 2, Started: begun, Updated: at(2)})
	s.append(w.Pack("", Lifecycle(schema.StateRunning)), w.Pack("kid", Lifecycle(schema.StateError)))
	check(schema.RunInfo{ID: key.Run, State: schema.StateRunning, Last: 4, Started: begun, Updated: at(4)})
	s.append(w.Pack("", Event(schema.TypeRunLifecycle, `{"state":"paused","reason":"lunch ☕"}`)), w.Texts("kid", 1))
	check(schema.RunInfo{ID: key.Run, State: schema.StatePaused, Reason: "lunch ☕", Last: 6, Started: begun,
		Updated: at(6)})
	s.append(w.Pack("", Event(schema.TypeRunLifecycle, `{"state":"aborted","reason":"by hand"}`)))
	check(schema.RunInfo{ID: key.Run, State: schema.StateAborted, Reason: "by hand", Last: 7, Started: begun,
		Updated: at(7)})
	// A follow-up opens the run again: the reason of its end is not shown any more.
	s.append(w.Pack("", Event(schema.TypeCommandMessage, `{"text":"go on"}`)))
	check(schema.RunInfo{ID: key.Run, State: schema.StatePlanning, Last: 8, Started: begun, Updated: at(8)})
	if other := s.list("globex", schema.RunsQuery{}); len(other) != 0 {
		s.Fatalf("another tenant sees %+v", other)
	}
}

// runPages: pages contain every run once, also runs that begin at the same time, while others are added.
func (s *suite) runPages() {
	var want []schema.RunCursor
	add := func(run, day string) {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: run}, day)
		s.append(w.Texts("", 1))
		w.Key.Tenant = "globex"
		s.append(NewWriter(w.Key, day).Texts("", 1))
	}
	days := []string{"20260227", "20260228", "20260301"}
	for i := range 60 {
		run := fmt.Sprintf("run_%02d", rand.IntN(1000)*60+i)
		add(run, days[i%3])
		start, _ := time.Parse("20060102", days[i%3])
		want = append(want, schema.RunCursor{Started: start.Add(23*time.Hour + 59*time.Minute + time.Second), ID: run})
	}
	slices.SortFunc(want, newestFirst)
	for _, limit := range []int{1, 7, 20, 59, 60, 61} {
		var got []schema.RunCursor
		for after := (schema.RunCursor{}); ; {
			page := s.list(acme, schema.RunsQuery{Limit: limit, After: after})
			for i := range page {
				got = append(got, page[i].Cursor())
			}
			if len(page) < limit {
				break
			}
			parsed, err := schema.ParseRunCursor(page[len(page)-1].Cursor().String())
			if err != nil {
				s.Fatal(err)
			}
			after = parsed
			if limit == 7 { // newer ones are on a page that was seen
				add(fmt.Sprintf("new_%d", len(got)), "20260302")
			}
		}
		got = slices.DeleteFunc(got, func(c schema.RunCursor) bool { return strings.HasPrefix(c.ID, "new_") })
		if !slices.EqualFunc(got, want, func(a, b schema.RunCursor) bool { return newestFirst(a, b) == 0 }) {
			s.Fatalf("pages of %d:\n got %v\nwant %v", limit, got, want)
		}
	}
}

func (s *suite) runFilters() {
	states := []schema.RunState{schema.StateRunning, schema.StateDone, schema.StatePaused, schema.StateError}
	for i := range 12 {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%02d", i)}, fmt.Sprintf("202602%02d", 10+i/4))
		s.append(w.Pack("", Lifecycle(states[i%4])))
	}
	in := func(states ...schema.RunState) schema.RunsQuery { return schema.RunsQuery{States: states} }
	s.wantRuns(acme, in(schema.StateRunning), "run_08", "run_04", "run_00")
	s.wantRuns(acme, in(schema.StateError, schema.StateDone), "run_11", "run_09", "run_07", "run_05", "run_03", "run_01")
	s.wantRuns(acme, in(schema.StatePlanning))
	q := in(schema.StateError, schema.StateDone)
	q.Limit = 4
	page := s.list(acme, q)
	q.After = page[3].Cursor()
	s.wantRuns(acme, q, "run_03", "run_01")
	first := func(day int) time.Time { return time.Date(2026, 2, day, 23, 59, 1, 0, time.UTC) }
	s.wantRuns(acme, schema.RunsQuery{Since: first(12)}, "run_11", "run_10", "run_09", "run_08")
	s.wantRuns(acme, schema.RunsQuery{Since: first(12).Add(time.Microsecond)})
	s.wantRuns(acme, schema.RunsQuery{Until: first(11)}, "run_03", "run_02", "run_01", "run_00")
	s.wantRuns(acme, schema.RunsQuery{Until: first(11).Add(time.Microsecond), Since: first(11),
		States: []schema.RunState{schema.StatePaused}}, "run_06")
}

func (s *suite) wantUsage(tenant string, want ...string) {
	s.Helper()
	runs := s.list(tenant, schema.RunsQuery{})
	got := make([]string, len(runs))
	for i := range runs {
		got[i] = runs[i].Usage.String()
	}
	if !slices.Equal(got, want) {
		s.Fatalf("usage is %q, want %q", got, want)
	}
}

func (s *suite) usage() {
	w := NewWriter(key, day)
	s.append(w.Texts("", 1))
	s.wantUsage(acme, `{}`)
	s.append(w.Pack("", messageEnd(`{"input_tokens":10,"output_tokens":5,"cost":0.5,"deep":{"x":1}}`)),
		w.Pack("kid", messageEnd(`{"output_tokens":1}`)))
	s.wantUsage(acme, `{"input_tokens":10,"output_tokens":6}`)
	// The end of a model call reports what its message's end reports as well.
	s.append(w.Pack("", Event(schema.TypeModelEnd, `{"usage":{"output_tokens":5}}`),
		messageEnd(`{"output_tokens":100,"reasoning":7}`), Event(schema.TypeMessageEnd, `{"message_id":"m"}`)))
	s.wantUsage(acme, `{"input_tokens":10,"output_tokens":106,"reasoning":7}`)
	s.append(NewWriter(schema.RunKey{Tenant: "globex", Run: key.Run}, day).Pack("", messageEnd(`{"output_tokens":3}`)))
	s.wantUsage(acme, `{"input_tokens":10,"output_tokens":106,"reasoning":7}`)
	s.wantUsage("globex", `{"output_tokens":3}`)
}

// usageOnce: events may be repeated, in any order and in any transactions. Each is counted once.
func (s *suite) usageOnce() {
	w, forger := NewWriter(key, day), NewWriter(key, day)
	var packs []schema.Pack
	for i := range 60 {
		packs = append(packs, w.Pack([]string{"", "kid"}[i%2], messageEnd(fmt.Sprintf(`{"n":%d,"one":1}`, i)),
			Event(schema.TypeTextDelta, `{"text":""}`)))
	}
	want := fmt.Sprintf(`{"n":%d,"one":60}`, 60*59/2)
	forged := forger.Pack("", messageEnd(`{"n":1000000}`)) // seq 1 again, with another content
	s.append(packs[0], packs[0], forged)
	s.appendMixed(3, 20, packs...)
	s.append(forged)
	s.wantUsage(acme, want)
	// Only stored events are counted.
	chunks, err := persister.Chunks(w.Pack("", messageEnd(`{"n":1}`)))
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.tables().Append(ctx, chunks); err == nil {
		s.Fatal("an append on an ended context succeeds")
	}
	s.wantUsage(acme, want)
}

func (s *suite) hostileUsage() {
	w := NewWriter(key, day)
	for _, usage := range []string{
		`{"\u0000":1,"\ud800":2,"a":1}`, `{"a":9223372036854775807}`, `{"a":1e400,"b":18446744073709551616}`,
		`{"":1,"x y":2}`,
		`{` + strings.Repeat(`"a":1,`, 5000) + `"a":1}`, `{"a":` + strings.Repeat("9", 1000) + `}`,
		`{"` + strings.Repeat("n", 5000) + `":1}`,
	} {
		s.append(w.Pack("", messageEnd(usage)))
	}
	s.append(w.Pack("", Event(schema.TypeRunLifecycle,
		`{"state":"error","reason":"a\u0000b\ud800 `+strings.Repeat("é", 5000)+`"}`)))
	got := s.list(acme, schema.RunsQuery{})
	if len(got) != 1 || got[0].Usage.String() != `{"a":9223372036854775807}` {
		s.Fatalf("%d runs, usage %s", len(got), got[0].Usage)
	}
	if r := got[0].Reason; !strings.HasPrefix(r, "a\uFFFDb\uFFFD é") || len(r) > schema.MaxReason ||
		len(r) < schema.MaxReason-4 {
		s.Fatalf("reason of %d bytes: %.40q", len(r), r)
	}
}

// runStart: a run begins with its first event, also when others were stored before and the clocks of its writers
// differ.
func (s *suite) runStart() {
	w, ahead := NewWriter(key, day), NewWriter(key, day)
	a, b := w.Texts("", 1), w.Texts("", 1)
	s.append(b)
	s.append(a)
	if got := s.list(acme, schema.RunsQuery{}); len(got) != 1 ||
		!got[0].Started.Equal(time.Date(2026, 2, 28, 23, 59, 1, 0, time.UTC)) {
		s.Fatalf("%+v", got)
	}
	ahead.Key.Run = "run_2"
	early := ahead.Texts("", 1)
	ahead.now = ahead.now.Add(-48 * time.Hour) // a child on a machine whose clock is behind
	late := ahead.Texts("kid", 1)
	s.append(early)
	s.append(late)
	if got := s.list(acme, schema.RunsQuery{}); len(got) != 2 || got[0].ID != "run_2" ||
		!got[0].Started.Equal(got[1].Started) {
		s.Fatalf("%+v", got)
	}
}

func (s *suite) parents() {
	parent := func(tenant, child, want string) {
		s.Helper()
		got, err := s.catalog().Parent(s.Context(), tenant, child)
		if err != nil {
			s.Fatal(err)
		}
		if got != want {
			s.Fatalf("the root of %s/%s is %q, want %q", tenant, child, got, want)
		}
	}
	parent(acme, "kid", "")
	w := NewWriter(schema.RunKey{Tenant: acme, Run: "root_b"}, day)
	w.Lanes["owned"] = schema.Lane{Owner: "o", Epoch: 3}
	s.append(w.Texts("", 1), w.Texts("kid", 1), w.Texts("owned", 1))
	parent(acme, "kid", "root_b")
	parent(acme, "owned", "root_b")
	parent("globex", "kid", "")
	parent(acme, "", "")
	parent(acme, "root_b", "")
	parent(acme, "ki", "")
	parent(acme, "%", "")
	parent(acme, "KID", "")
	// Another root has the child join later, though it began earlier and its name sorts first.
	s.append(NewWriter(schema.RunKey{Tenant: acme, Run: "root_a"}, "20260101").Texts("kid", 1))
	parent(acme, "kid", "root_a")
	s.append(w.Texts("kid", 5)) // the first goes on: that is not taking it up
	parent(acme, "kid", "root_a")
	s.append(NewWriter(schema.RunKey{Tenant: "globex", Run: "root_x"}, day).Texts("kid", 1))
	parent(acme, "kid", "root_a")
	parent("globex", "kid", "root_x")
}

// runModels: a list that asks for it has what sessions are called, whose model they use, and what providers reported as
// cost.
func (s *suite) runModels() {
	w := NewWriter(key, day)
	s.append(w.Pack("", Event(schema.TypeSessionCreated, `{"title":"Find it","agent":{"id":"finder"}}`),
		Event(schema.TypeMessageStart, `{"message_id":"m","model":"m-1"}`)))
	asked := schema.RunsQuery{Models: true}
	if r := s.list(acme, asked)[0]; r.Model != "" || r.Cost != nil || schema.FactsOf(r.Session).Title != "Find it" ||
		schema.FactsOf(r.Session).Agent != "finder" {
		s.Fatalf("before a message has ended: %+v", r)
	}
	s.append(w.Pack("", messageEnd(`{"cost_usd":0.25}`)),
		w.Pack("kid", Event(schema.TypeMessageStart, `{"message_id":"k","model":"m-2"}`), messageEnd(`{"cost_usd":0.5}`)),
		w.Pack("", Event(schema.TypeMessageStart, `{"message_id":"n"}`), messageEnd(`{"output_tokens":3}`)))
	if r := s.list(acme, asked)[0]; r.Model != "m-2" || r.Cost == nil || *r.Cost != 0.75 {
		s.Fatalf("model %q, cost %v", r.Model, r.Cost)
	}
	if r := s.list(acme, asked)[0]; !slices.Equal(r.Unpriced, []string{""}) {
		s.Fatalf("cost of %q is not known", r.Unpriced)
	}
	asked.States = []schema.RunState{schema.StateDone}
	s.append(w.Pack("", Event(schema.TypeRunLifecycle, `{"state":"done"}`)))
	if r := s.list(acme, asked)[0]; r.Model != "m-2" || r.Cost == nil || len(r.Session) == 0 {
		s.Fatalf("of one state: %+v", r)
	}
	if r := s.list(acme, schema.RunsQuery{})[0]; r.Model != "" || r.Cost != nil || r.Session != nil {
		s.Fatalf("not asked for: %+v", r)
	}
}

// runsFound: a list finds runs by what is said of them, by their models and first words, in whatever order events come,
// and stands in the order that is asked for, page by page.
func (s *suite) runsFound() {
	user := func(text string) schema.Event { return Event(schema.TypeCommandMessage, `{"content":"`+text+`"}`) }
	a, b, c := NewWriter(schema.RunKey{Tenant: acme, Run: "run_A"},
		day), NewWriter(schema.RunKey{Tenant: acme, Run: "run_B"},
		day), NewWriter(schema.RunKey{Tenant: acme, Run: "run_c"}, day)
	first, second := a.Pack("", user("Hello, wörld of 100% logs")), a.Pack("", user("and another"))
	s.append(second)
	s.append(first, a.Pack("", Event(schema.TypeSessionUpdated,
		`{"title":"Find THE Leak","tags":["nightly","a b"],"metadata":{"k":"v"}}`)))
	s.append(b.Pack("", Event(schema.TypeSessionUpdated, `{"title":"Other","tags":["night"],"agent":"finder"}`),
		Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant","model":"m-1"}`),
		Event(schema.TypeMessageEnd, `{"message_id":"m","content":[{"type":"text","text":"It was_me"}]}`)))
	s.append(b.Texts("", 7), b.Pack("kid", user("not of the root")),
		b.Pack("", Event(schema.TypeRunLifecycle, `{"state":"error","reason":"Upstream 529"}`)))
	s.append(c.Texts("", 1))
	s.append(NewWriter(schema.RunKey{Tenant: "globex", Run: "run_x"}, day).Pack("", user("hello")))
	for _, t := range []struct {
		q    schema.RunsQuery
		want []string
	}{
		{schema.RunsQuery{Words: []string{"hello"}}, []string{"run_A"}},
		{schema.RunsQuery{Words: []string{"wörld", "leak"}}, []string{"run_A"}},
		{schema.RunsQuery{Words: []string{"100%"}}, []string{"run_A"}},
		{schema.RunsQuery{Words: []string{"hello", "other"}}, nil},
		{schema.RunsQuery{Words: []string{"was_me"}}, []string{"run_B"}},
		{schema.RunsQuery{Words: []string{"another"}}, nil},
		{schema.RunsQuery{Words: []string{"root"}}, nil},
		{schema.RunsQuery{Words: []string{"run_a"}}, []string{"run_A"}},
		{schema.RunsQuery{Words: []string{"finder"}}, []string{"run_B"}},
		{schema.RunsQuery{Words: []string{"m-1"}, States: []schema.RunState{schema.StateError, schema.StateDone}},
			[]string{"run_B"}},
		{schema.RunsQuery{Words: []string{"m-1"}, States: []schema.RunState{schema.StateDone}}, nil},
		{schema.RunsQuery{Tag: "nightly"}, []string{"run_A"}},
		{schema.RunsQuery{Tag: "night"}, []string{"run_B"}},
		{schema.RunsQuery{Title: "Other"}, []string{"run_B"}},
		{schema.RunsQuery{Model: "m-1"}, []string{"run_B"}},
		{schema.RunsQuery{Reason: "upstream"}, []string{"run_B"}},
		{schema.RunsQuery{Order: schema.OrderEvents}, []string{"run_B", "run_A", "run_c"}},
		{schema.RunsQuery{Order: schema.OrderEvents, Oldest: true}, []string{"run_c", "run_A", "run_B"}},
		{schema.RunsQuery{Order: schema.OrderDuration, Words: []string{"run_"}}, []string{"run_B", "run_A", "run_c"}},
	} {
		t.q.Limit = 10
		s.wantRuns(acme, t.q, t.want...)
		var paged []string
		for q := t.q; ; {
			q.Limit = 1
			page := s.list(acme, q)
			if len(page) == 0 {
				break
			}
			paged = append(paged, page[0].ID)
			after, err := schema.ParseRunCursor(page[0].Cursor().String())
			if err != nil {
				s.Fatal(err)
			}
			q.After = after
		}
		if !slices.Equal(paged, t.want) {
			s.Errorf("%+v: pages of one run are %q, want %q", t.q, paged, t.want)
		}
	}
	if r := s.list(acme, schema.RunsQuery{Models: true, Tag: "nightly", Limit: 1}); len(r) != 1 ||
		r[0].Opening != "Hello, wörld of 100% logs" {
		s.Errorf("opening: %+v", r)
	}
}
