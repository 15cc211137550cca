package persistertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentstream/schema"
)

// described returns the description of a listed run, "" when it has none.
func (s *suite) described(key schema.RunKey) string {
	s.Helper()
	for _, r := range s.list(key.Tenant, schema.RunsQuery{Sessions: true, Archived: true}) {
		if r.ID == key.Run {
			return string(r.Session)
		}
	}
	s.Fatalf("%s is not listed", key)
	return ""
}

func (s *suite) wantSession(key schema.RunKey, want string) {
	s.Helper()
	if got := s.described(key); got != want {
		s.Fatalf("session is %s\nwant %s", got, want)
	}
}

// sessions: the events of a session are merged as they arrive.
func (s *suite) sessions() {
	w := NewWriter(key, day)
	s.append(w.Texts("", 2))
	s.wantSession(key, ``)
	created := w.Pack("", Event(schema.TypeSessionCreated,
		`{"agent":{"id":"agent_1", "n":1.50},"title":"caf\u00e9 \u0000\ud800","metadata":{"a":"1","b":"2"}}`))
	s.append(created)
	const first = `{"agent":{"id":"agent_1", "n":1.50},"title":"caf\u00e9 \u0000\ud800","metadata":{"a":"1","b":"2"}}`
	s.wantSession(key, first)
	s.append(w.Texts("", 30), w.Texts("kid", 3))
	s.wantSession(key, first)
	// Together with many others, which makes them rows of a COPY where there is one; and those of a child are not its own.
	s.append(w.Texts("", 40), w.Pack("", Event(schema.TypeSessionUpdated, `{"title":null,"metadata":{"b":null,"c":"3"}}`)),
		w.Pack("kid", Event(schema.TypeSessionUpdated, `{"title":"kid"}`), Event(schema.TypeSessionArchived, `{}`)),
		w.Texts("", 5))
	const second = `{"agent":{"id":"agent_1", "n":1.50},"metadata":{"a":"1","c":"3"}}`
	s.wantSession(key, second)
	s.append(created) // again
	s.wantSession(key, second)
	s.append(w.Pack("", Event(schema.TypeSessionArchived, `{}`)))
	s.wantSession(key, strings.TrimSuffix(second, "}")+`,"archived_at":"`+w.now.UTC().Format(schema.TimeLayout)+`"}`)
	forger := NewWriter(key, day)
	forger.Texts("", 2)
	s.append(forger.Pack("", Event(schema.TypeSessionCreated, `{"forged":true}`))) // another content of seq 3
	if got := s.described(key); strings.Contains(got, "forged") {
		s.Fatalf("what is not stored is merged: %s", got)
	}
	if got := s.list("globex", schema.RunsQuery{}); len(got) != 0 {
		s.Fatalf("another tenant sees %+v", got)
	}
}

// sessionsAnyOrder: events may be repeated, in any order and in any transactions. The session is that of their order
// in the log.
func (s *suite) sessionsAnyOrder() {
	for round := range 6 {
		k := schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%d", round)}
		w := NewWriter(k, day)
		var packs []schema.Pack
		var want json.RawMessage
		for i := range 14 {
			e := Event(schema.TypeSessionUpdated,
				fmt.Sprintf(`{"title":"%d","f%d":%d,"metadata":{"k%d":"%d","k%d":null}}`, i, i%5, i, i%4, i, (i+1)%4))
			switch {
			case i == 0:
				e.Type = schema.TypeSessionCreated
			case i%6 == 5:
				e = Event(schema.TypeSessionUpdated, `{"metadata":null,"title":null}`)
			case i == 12:
				e = Event(schema.TypeSessionArchived, `{}`)
			}
			p := w.Pack("", e, Event(schema.TypeTextDelta, `{"text":""}`))
			for line := range schema.Lines(p.Body) {
				if r, err := schema.ScanLine(line); err == nil {
					_, ts, _ := r.Envelope()
					want = schema.MergeSession(want, string(r.Type), string(ts), r.Payload())
				}
			}
			packs = append(packs, p, w.Texts([]string{"", "kid"}[i%2], 3))
		}
		s.appendMixed(2, 12, packs...)
		if got := s.described(k); sorted(s, got) != sorted(s, string(want)) {
			s.Fatalf("%s is\n%s, want\n%s", k, got, want)
		}
	}
}

// sorted returns an object with its fields sorted.
func sorted(s *suite, object string) string {
	s.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		s.Fatalf("%q: %v", object, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

// hostileSessions: any payload is stored, and the list can be read.
func (s *suite) hostileSessions() {
	long := strings.Repeat("a", 5000)
	for i, payload := range append(Hostile(), `{"agent":"`+long+`"}`, `{"agent":"a\u0000"}`,
		`{"agent":{"id":"\ud800"}}`, `{"archived_at":"x","deleted_at":"y"}`,
		`{"title":"`+strings.Repeat("x", schema.MaxSession+1)+`"}`, `{"metadata":{"\u0000":"\ud800","":1e400}}`,
		`{"agent":null,"metadata":null}`) {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%03d", i)}, day)
		p := w.Pack("", Event(schema.TypeSessionCreated, payload), Event(schema.TypeSessionUpdated, payload))
		s.append(p)
		s.same(w.Key, p)
		got := s.described(w.Key)
		if len(got) > schema.MaxSession+100 || got != "" && !json.Valid([]byte(got)) {
			s.Fatalf("%.80s: %d bytes, %.80s", payload, len(got), got)
		}
	}
	all := s.list(acme, schema.RunsQuery{})
	if got := s.list(acme, schema.RunsQuery{Sessions: true}); len(got) != len(all) {
		s.Fatalf("%d of %d runs are open sessions", len(got), len(all))
	}
	for _, agent := range []string{long, "a\x00", "\xed\xa0\x80", "\xff"} {
		s.wantRuns(acme, schema.RunsQuery{Agent: agent})
	}
}

// sessionLists: both orders, archived and deleted sessions, and agents, in pages.
func (s *suite) sessionLists() {
	for i := range 12 {
		w := NewWriter(schema.RunKey{Tenant: acme, Run: fmt.Sprintf("run_%02d", i)}, fmt.Sprintf("202602%02d", 10+i/4))
		events := []schema.Event{Lifecycle([]schema.RunState{schema.StateRunning, schema.StatePaused}[i%2])}
		if i%4 != 3 { // the others are runs that no session API has opened
			events = slices.Insert(events, 0, Event(schema.TypeSessionCreated, fmt.Sprintf(`{"agent":{"id":"agent_%d"}}`, i%3)))
		}
		if i == 1 || i == 4 {
			events = append(events, Event(schema.TypeSessionArchived, `{}`))
		}
		if i == 2 || i == 4 {
			events = append(events, Event(schema.TypeSessionDeleted, `{}`))
		}
		s.append(w.Pack("", events...))
	}
	newest := strings.Fields("run_11 run_10 run_09 run_08 run_07 run_06 run_05 run_04 run_03 run_02 run_01 run_00")
	without := func(ids ...string) []string {
		return slices.DeleteFunc(slices.Clone(newest), func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, tt := range []struct {
		q    schema.RunsQuery
		want []string
	}{
		{schema.RunsQuery{}, newest},
		{schema.RunsQuery{Archived: true}, newest}, // says nothing without Sessions
		{schema.RunsQuery{Sessions: true}, without("run_01", "run_02", "run_04")},
		{schema.RunsQuery{Sessions: true, Archived: true}, without("run_02", "run_04")},
		{schema.RunsQuery{Agent: "agent_0"}, []string{"run_09", "run_06", "run_00"}},
		{schema.RunsQuery{Agent: "agent_1"}, []string{"run_10", "run_04", "run_01"}},
		{schema.RunsQuery{Agent: "agent_1", Sessions: true}, []string{"run_10"}},
		{schema.RunsQuery{Agent: "agent_1", Sessions: true, Archived: true}, []string{"run_10", "run_01"}},
		{schema.RunsQuery{Agent: "agent_"}, nil},
		{schema.RunsQuery{Sessions: true, States: []schema.RunState{schema.StatePaused}},
			[]string{"run_11", "run_09", "run_07", "run_05", "run_03"}},
		{schema.RunsQuery{Sessions: true, States: []schema.RunState{schema.StateRunning, schema.StatePaused},
			Agent: "agent_2"}, []string{"run_08", "run_05"}},
		{schema.RunsQuery{Sessions: true, Since: time.Date(2026, 2, 11, 0, 0, 0, 0, time.UTC),
			Until: time.Date(2026, 2, 12, 0, 0, 0, 0, time.UTC)}, []string{"run_07", "run_06", "run_05"}},
	} {
		for _, limit := range []int{many, 1, 2} {
			tt.q.Oldest, tt.q.Limit = false, limit
			s.wantPages(tt.q, tt.want)
			tt.q.Oldest = true
			oldest := slices.Clone(tt.want)
			slices.Reverse(oldest)
			s.wantPages(tt.q, oldest)
		}
	}
}

// wantPages reads a list page by page.
func (s *suite) wantPages(q schema.RunsQuery, want []string) {
	s.Helper()
	var got []string
	for {
		page := s.list(acme, q)
		got = append(got, idsOf(page)...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1].Cursor()
	}
	if !slices.Equal(got, want) {
		s.Fatalf("%+v\n got %q\nwant %q", q, got, want)
	}
}
