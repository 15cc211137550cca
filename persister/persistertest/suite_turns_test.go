package persistertest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"agentstream/schema"
)

// turnOf returns the turn of a listed run, with its stop reason. It checks that lists of one state agree.
func (s *suite) turnOf(key schema.RunKey) string {
	s.Helper()
	of := func(q schema.RunsQuery) schema.RunInfo {
		for _, r := range s.list(key.Tenant, q) {
			if r.ID == key.Run {
				return r
			}
		}
		s.Fatalf("%s is not in the list of %+v", key, q)
		return schema.RunInfo{}
	}
	r := of(schema.RunsQuery{})
	if same := of(schema.RunsQuery{Sessions: true, States: []schema.RunState{r.State}}); same.Turn != r.Turn ||
		same.Stop != r.Stop {
		s.Fatalf("the list of state %q has turn %q %q, that of all %q %q", r.State, same.Turn, same.Stop, r.Turn, r.Stop)
	}
	return strings.TrimSpace(string(r.Turn) + " " + r.Stop)
}

func (s *suite) wantTurn(want string) {
	s.Helper()
	if got := s.turnOf(key); got != want {
		s.Fatalf("turn is %q, want %q", got, want)
	}
}

// turns: the newest event that begins or ends a turn decides, on the root lane only.
func (s *suite) turns() {
	w := NewWriter(key, day)
	begin, end := Event(schema.TypeTurnStart, `{"turn_id":"t"}`), Event(schema.TypeTurnEnd,
		`{"turn_id":"t","stop_reason":"end_turn"}`)
	cancelled := Event(schema.TypeTurnEnd, `{"stop_reason":"canc\u0065lled"}`)
	var first schema.Pack
	for i, c := range []struct {
		want   string
		child  string
		events []schema.Event
	}{
		{"", "", []schema.Event{Event(schema.TypeCommandMessage, `{"content":"x"}`)}},
		{"", "kid", []schema.Event{begin, end, begin}},
		{"open", "", []schema.Event{begin}},
		{"open", "kid", []schema.Event{end, Lifecycle(schema.StateDone)}},
		{"closed end_turn", "", []schema.Event{end}},
		{"closed end_turn", "kid", []schema.Event{begin}},
		{"open", "", []schema.Event{end, begin}},
		{"closed cancelled", "", []schema.Event{cancelled}},
		{"closed", "", []schema.Event{begin, Event(schema.TypeTurnEnd, `{"stop_reason":null}`)}},
		{"open", "", []schema.Event{Lifecycle(schema.StateRunning)}},
		{"held", "", []schema.Event{begin, Lifecycle(schema.StatePaused)}},
		{"open", "", []schema.Event{begin}},
		{"closed error", "", []schema.Event{Lifecycle(schema.StateError)}},
		{"closed error", "", []schema.Event{Event(schema.TypeCommandMessage, `{"content":"go on"}`)}},
		{"open", "", []schema.Event{begin}},
		{"closed done", "", []schema.Event{end, Lifecycle(schema.StateDone)}},
	} {
		p := w.Pack(c.child, c.events...)
		if i <= 2 {
			first = p
		}
		together := []schema.Pack{p}
		if !w.Head.State.Final() { // with many others, which makes them rows of a COPY where there is one
			together = append(together, w.Texts("", i%2*12+1), w.Texts("kid", 2))
		}
		s.append(together...)
		s.wantTurn(c.want)
		s.append(p, first) // again, and one that is long over
		s.wantTurn(c.want)
	}
	if got := s.list("globex", schema.RunsQuery{}); len(got) != 0 {
		s.Fatalf("another tenant sees %+v", got)
	}
}

// turnsAnyOrder: events may be repeated or late, in any order and in any transactions. The newest decides.
func (s *suite) turnsAnyOrder() {
	for round := range 8 {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%d", round)}, day)
		var packs []schema.Pack
		want := ""
		for i := range 12 {
			e := Event(schema.TypeTurnStart, fmt.Sprintf(`{"turn_id":"%d"}`, i))
			want = "open"
			if (i+round)%2 == 1 {
				e, want = Event(schema.TypeTurnEnd, fmt.Sprintf(`{"stop_reason":"%d"}`, i)), fmt.Sprintf("closed %d", i)
			} else if i == 11 && round%4 == 1 {
				e, want = Lifecycle(schema.StatePaused), "held"
			}
			packs = append(packs, w.Pack("", e), w.Texts([]string{"", "kid"}[i%2], 1+rand.IntN(12)))
		}
		s.appendMixed(2, 6, packs...)
		if got := s.turnOf(w.Key); got != want {
			s.Fatalf("round %d: turn is %q, want %q", round, got, want)
		}
	}
}

// hostileTurns: any payload is stored, and the list can be read.
func (s *suite) hostileTurns() {
	for i, payload := range append(Hostile(), `{"stop_reason":"`+strings.Repeat("é", schema.MaxReason)+`"}`,
		`{"stop_reason":"\u0000\ud800"}`, `{"stop_reason":{"a":1}}`) {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%03d", i)}, day)
		p := w.Pack("", Event(schema.TypeTurnStart, payload))
		s.append(p)
		if got := s.turnOf(w.Key); got != "open" {
			s.Fatalf("%.80s: %s", payload, got)
		}
		q := w.Pack("", Event(schema.TypeTurnEnd, payload))
		s.append(q)
		s.same(w.Key, p, q)
		if got := s.turnOf(w.Key); !strings.HasPrefix(got, "closed") || len(got) > schema.MaxReason+10 ||
			strings.Contains(got, "\x00") {
			s.Fatalf("%.80s: %.80q", payload, got)
		}
	}
}
