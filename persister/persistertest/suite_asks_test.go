package persistertest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"agentstream/schema"
)

// askedOf returns what a listed run waits for. It checks that lists of waiting runs, and of one state, agree.
func (s *suite) askedOf(key schema.RunKey) string {
	s.Helper()
	find := func(q schema.RunsQuery) *schema.RunInfo {
		for _, r := range s.list(key.Tenant, q) {
			if r.ID == key.Run {
				return &r
			}
		}
		return nil
	}
	r := find(schema.RunsQuery{})
	if r == nil {
		s.Fatalf("%s is not in the list", key)
	}
	for _, q := range []schema.RunsQuery{{Waits: true}, {Waits: true, States: []schema.RunState{r.State}},
		{Waits: true, Oldest: true, Sessions: true}} {
		if same := find(q); (same != nil) != (r.Waiting() != "") || same != nil && !same.Asked.Equal(r.Asked) {
			s.Fatalf("%s waits for %q; the list of %+v has %+v", key, r.Waiting(), q, same)
		}
	}
	return r.Waiting()
}

// asks: a question is open until it is answered, its call ends, or no client waits for an answer any more.
func (s *suite) asks() {
	request := func(id, call string) schema.Event {
		return Event(schema.TypeInputRequested, fmt.Sprintf(`{"request_id":%q,"call_id":%q,"prompt":"?"}`, id, call))
	}
	answer := func(id string) schema.Event {
		return Event("command.answer", fmt.Sprintf(`{"answer":1,"request_id":%q}`, id))
	}
	answered := func(id string) schema.Event {
		return Event(schema.TypeInputAnswered, fmt.Sprintf(`{"request_id":%q}`, id))
	}
	tool := func(id, more string) schema.Event {
		return Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":%q,"tool":"t","input":{"permission":"ask"}%s}`, id, more))
	}
	toolEnd := func(id string) schema.Event {
		return Event(schema.TypeToolEnd, fmt.Sprintf(`{"call_id":%q,"ok":true}`, id))
	}
	turnEnd := func(why string) schema.Event {
		return Event(schema.TypeTurnEnd, fmt.Sprintf(`{"turn_id":"t","stop_reason":%q}`, why))
	}
	long := strings.Repeat("x", 300)
	type step struct {
		want   string
		child  string
		events []schema.Event
	}
	for i, steps := range [][]step{
		{{"answer", "", []schema.Event{request("q1", "")}},
			{"answer", "", []schema.Event{answer("other"), answered("")}}, {"", "", []schema.Event{answer("q1")}},
			{"", "", []schema.Event{answered("q1")}}},
		{{"answer", "kid", []schema.Event{request("q1", "")}}, {"answer", "", []schema.Event{request("q2", "")}},
			{"answer", "", []schema.Event{answered("q2")}}, {"", "", []schema.Event{answered("q1")}}},
		{{"answer", "", []schema.Event{request(long, "")}}, {"", "", []schema.Event{answer(long)}},
			{"", "", []schema.Event{request(long, "")}},
			{"answer", "", []schema.Event{Event(schema.TypeTurnStart, `{"turn_id":"t"}`), request(long, ""),
				request(long, "")}}, {"", "", []schema.Event{answer(long)}}},
		{{"", "", []schema.Event{tool("c1", ""), tool("c2", `,"permission":"allow"`)}},
			{"answer", "", []schema.Event{tool("c3", `,"permission":"ask"`)}},
			{"answer", "kid", []schema.Event{toolEnd("c3")}}, {"", "", []schema.Event{toolEnd("c3")}}},
		{{"answer", "kid", []schema.Event{tool("c1", `,"custom":true`)}}, {"answer", "", []schema.Event{toolEnd("c1")}},
			{"", "kid", []schema.Event{answer("c1")}}},
		{{"answer", "", []schema.Event{tool("c1", `,"evaluated_permission":"ask"`), request("q1", "c1")}},
			{"", "", []schema.Event{answer("q1")}}},
		{{"answer", "", []schema.Event{tool("c1", `,"permission":"ask"`), request("q1", "c1")}},
			{"", "", []schema.Event{answer("c1")}}},
		{{"answer", "", []schema.Event{request("q1", "")}}, {"answer", "", []schema.Event{turnEnd("end_turn")}},
			{"answer", "kid", []schema.Event{turnEnd("cancelled")}}, {"", "", []schema.Event{turnEnd("cancelled")}}},
		{{"answer", "kid", []schema.Event{request("q1", "")}}, {"answer", "", []schema.Event{turnEnd("failed")}},
			{"", "kid", []schema.Event{Lifecycle(schema.StateDone)}}},
		{{"answer", "kid", []schema.Event{request("q1", "")}}, {"", "", []schema.Event{Lifecycle(schema.StateDone)}},
			{"", "", []schema.Event{Event(schema.TypeCommandMessage, `{"content":"go on"}`)}}},
		{{"resume", "", []schema.Event{request("q1", ""), Lifecycle(schema.StatePaused)}},
			{"answer", "", []schema.Event{Lifecycle(schema.StateRunning)}},
			{"approval", "", []schema.Event{Lifecycle(schema.StateAwaitingApproval)}},
			{"approval", "", []schema.Event{answer("q1")}}, {"", "", []schema.Event{Lifecycle(schema.StateRunning)}}},
	} {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%d", i)}, day)
		var all []schema.Pack
		for j, step := range steps {
			p := w.Pack(step.child, step.events...)
			all = append(all, p)
			together := []schema.Pack{p}
			if !w.Head.State.Final() { // with many others, which makes them rows of a COPY where there is one
				together = append(together, w.Texts("", (i+j)%2*12+1))
			}
			s.append(together...)
			if got := s.askedOf(w.Key); got != step.want {
				s.Fatalf("run %d waits for %q after step %d, want %q", i, got, j, step.want)
			}
			s.append(all...) // again
			if got := s.askedOf(w.Key); got != step.want {
				s.Fatalf("run %d waits for %q after a repeat of step %d, want %q", i, got, j, step.want)
			}
		}
	}
}

// asksAnyOrder: events may be repeated or late, in any order and in any transactions. The result is that of the log's
// order.
func (s *suite) asksAnyOrder() {
	for round := range 24 {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%d", round)}, day)
		rng := rand.New(rand.NewPCG(uint64(round), 17))
		var packs []schema.Pack
		var events []schema.AskEvent
		for range 14 {
			id := rng.IntN(3)
			e := []schema.Event{
				Event(schema.TypeInputRequested, fmt.Sprintf(`{"request_id":"q%d"}`, id)),
				Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":"c%d","permission":"ask"}`, id)),
				Event(schema.TypeInputRequested, fmt.Sprintf(`{"request_id":"p%d","call_id":"c%d"}`, id, id)),
				Event(schema.TypeInputAnswered, fmt.Sprintf(`{"request_id":"q%d"}`, id)),
				Event("command.answer", fmt.Sprintf(`{"request_id":"p%d"}`, id)),
				Event(schema.TypeToolEnd, fmt.Sprintf(`{"call_id":"c%d"}`, id)),
				Event(schema.TypeTurnEnd, `{"stop_reason":"cancelled"}`),
			}[rng.IntN(7)]
			child := []string{"", "", "kid"}[rng.IntN(3)]
			p := w.Pack(child, e)
			if a, ok := schema.AskEventOf(p.First, w.now, e.Type, child, e.Payload); ok {
				events = append(events, a)
			}
			packs = append(packs, p, w.Texts([]string{"", "kid"}[rng.IntN(2)], 1+rng.IntN(12)))
		}
		want := ""
		if len(schema.MergeAsks(nil, events)) > 0 {
			want = schema.WaitsForAnswer
		}
		s.appendMixed(2, 6, packs...)
		if got := s.askedOf(w.Key); got != want {
			s.Fatalf("round %d: waits for %q, want %q", round, got, want)
		}
	}
}

// hostileAsks: any payload is stored, and the list can be read.
func (s *suite) hostileAsks() {
	for i, payload := range append(Hostile(), `{"request_id":"\u0000\ud800","call_id":"\ud800"}`,
		`{"request_id":{"a":1},"permission":"ask"}`) {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%03d", i)}, day)
		var packs []schema.Pack
		for _, typ := range schema.AskTypes {
			if typ != schema.TypeRunLifecycle {
				packs = append(packs, w.Pack("", Event(typ, payload)))
			}
		}
		s.append(packs...)
		s.same(w.Key, packs...)
		s.askedOf(w.Key)
	}
}
