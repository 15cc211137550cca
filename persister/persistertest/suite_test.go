package persistertest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentstream/persister"
	"agentstream/schema"
)

// runSuite runs the cases. open returns an empty store that lives as long as its test.
func runSuite(t *testing.T, open func(t *testing.T) SuiteStore) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"append", (*suite).appends},
		{"empty", (*suite).empty},
		{"redelivery", (*suite).redelivery},
		{"redelivery out of order", (*suite).outOfOrder},
		{"conflict", (*suite).conflict},
		{"conflict within one batch", (*suite).conflictInBatch},
		{"conflict of the day", (*suite).conflictOfDay},
		{"hostile payloads", (*suite).hostile},
		{"optional fields", (*suite).optionalFields},
		{"paging", (*suite).paging},
		{"paging by bytes", (*suite).pagingBytes},
		{"cursors", (*suite).cursors},
		{"holes", (*suite).holes},
		{"tenants", (*suite).tenants},
		{"heads", (*suite).heads},
		{"lanes", (*suite).lanes},
		{"midnight", (*suite).midnight},
		{"dead letters", (*suite).deadLetters},
		{"all or nothing", (*suite).allOrNothing},
		{"concurrent runs", (*suite).concurrentRuns},
		{"concurrent same packs", (*suite).concurrentSame},
		{"concurrent days", (*suite).concurrentDays},
		{"runs", (*suite).runs},
		{"runs in pages", (*suite).runPages},
		{"runs of states and times", (*suite).runFilters},
		{"usage", (*suite).usage},
		{"usage under redelivery", (*suite).usageOnce},
		{"usage and reason of hostile payloads", (*suite).hostileUsage},
		{"title, model and cost of runs", (*suite).runModels},
		{"runs that are found", (*suite).runsFound},
		{"start of a run", (*suite).runStart},
		{"sessions", (*suite).sessions},
		{"sessions in any order", (*suite).sessionsAnyOrder},
		{"sessions of hostile payloads", (*suite).hostileSessions},
		{"lists of sessions", (*suite).sessionLists},
		{"turns", (*suite).turns},
		{"turns in any order", (*suite).turnsAnyOrder},
		{"turns of hostile payloads", (*suite).hostileTurns},
		{"questions", (*suite).asks},
		{"questions in any order", (*suite).asksAnyOrder},
		{"questions of hostile payloads", (*suite).hostileAsks},
		{"parents", (*suite).parents},
		{"who has runs", (*suite).whoHasRuns},
		{"runs that have changed", (*suite).changedSince},
		{"offsets", (*suite).offsets},
		{"offsets that are overtaken", (*suite).overtaken},
		{"transfer without rows", (*suite).transferAlone},
		{"transfer with conflicts", (*suite).transferConflicts},
		{"transfer of another day", (*suite).transferOtherDay},
		{"transfer on an ended context", (*suite).transferEnded},
		{"concurrent transfers", (*suite).concurrentTransfers},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(&suite{T: t, store: open(t)}) })
	}
}

type suite struct {
	*testing.T
	store SuiteStore
}

const (
	day  = "20260228"
	all  = schema.MaxSeq
	many = 1000
)

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

func (s *suite) tables() Tables { return tablesOf(s.T, s.store) }

func (s *suite) append(packs ...schema.Pack) persister.Result {
	s.Helper()
	chunks, err := persister.Chunks(packs...)
	if err != nil {
		s.Fatal(err)
	}
	res, err := s.tables().Append(s.Context(), chunks)
	if err != nil {
		s.Fatal(err)
	}
	return res
}

// read returns the packs of an iteration, and checks that they are valid and follow each other.
func (s *suite) read(key schema.RunKey, after, through schema.Seq) (packs []schema.Pack, body []byte) {
	s.Helper()
	next := after + 1
	for p, err := range s.store.Packs(s.Context(), key, after, through) {
		if err != nil {
			s.Fatal(err)
		}
		if err := p.Check(); err != nil {
			s.Fatalf("a pack of the walk does not hold: %v", err)
		}
		if p.First != next || p.Last() > through || p.Count > 128 || p.Key != key {
			s.Fatalf("walk after %d through %d: pack of %s %d…%d where %d was next", after, through, p.Key, p.First,
				p.Last(), next)
		}
		if p.Head.Last != p.Last() {
			s.Fatalf("head of pack %d…%d says %d", p.First, p.Last(), p.Head.Last)
		}
		next = p.Last() + 1
		packs = append(packs, p)
		body = append(body, p.Body...)
	}
	return packs, body
}

// same checks that an iteration yields exactly the lines of these packs.
func (s *suite) same(key schema.RunKey, want ...schema.Pack) {
	s.Helper()
	var body []byte
	for _, p := range want {
		body = append(body, p.Body...)
	}
	if _, got := s.read(key, 0, all); !bytes.Equal(got, body) {
		s.Fatalf("replay of %s differs: %s", key, difference(got, body))
	}
}

func difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	part := func(b []byte) string { return string(b[max(0, min(i-40, len(b))):min(i+60, len(b))]) }
	return "got …" + part(got) + "… want …" + part(want) + "…"
}

func (s *suite) result(got persister.Result, inserted, repeated, conflicts int) {
	s.Helper()
	if got.Inserted != inserted || got.Repeated != repeated || len(got.Conflicts) != conflicts {
		s.Fatalf("inserted %d, repeated %d, conflicts %d; want %d, %d, %d", got.Inserted, got.Repeated,
			len(got.Conflicts), inserted, repeated, conflicts)
	}
}

func (s *suite) head(key schema.RunKey, lane string, want schema.Head) {
	s.Helper()
	got, err := s.store.Head(s.Context(), key, lane)
	if err != nil {
		s.Fatal(err)
	}
	sameHead(s.T, got, want)
}

func sameHead(t *testing.T, got, want schema.Head) {
	t.Helper()
	if got.Last != want.Last || got.LastID != want.LastID || got.Day != want.Day || got.State != want.State ||
		got.Lane != want.Lane || got.Stored != 0 {
		t.Fatalf("head\n got %+v\nwant %+v, stored 0", got, want)
	}
}

func (s *suite) appends() {
	w := NewWriter(key, day)
	packs := []schema.Pack{w.Texts("", 3), w.Texts("child_a", 2), w.Texts("", 1), w.Pack("", Lifecycle(schema.StateDone))}
	s.result(s.append(packs[:2]...), 5, 0, 0)
	s.result(s.append(packs[2:]...), 2, 0, 0)
	s.same(key, packs...)
	if err := s.tables().Ping(s.Context()); err != nil {
		s.Fatal(err)
	}
	got, _ := s.read(key, 0, all)
	var lanes []string
	for _, p := range got {
		lanes = append(lanes, p.Child)
	}
	if !slices.Equal(lanes, []string{"", "child_a", ""}) {
		s.Fatalf("lanes of the packs are %q", lanes)
	}
}

func (s *suite) empty() {
	s.head(key, "", schema.Head{})
	if packs, _ := s.read(key, 0, all); len(packs) != 0 {
		s.Fatalf("an unknown run has %d packs", len(packs))
	}
	res, err := s.tables().Append(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.result(res, 0, 0, 0)
	if err := s.tables().PutDeadLetters(s.Context(), nil); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) redelivery() {
	w := NewWriter(key, day)
	a, b, c := w.Texts("", 60), w.Texts("x", 70), w.Texts("", 1)
	s.append(a, b)
	s.result(s.append(a, b), 0, 130, 0)
	s.result(s.append(b, c), 1, 70, 0)
	s.result(s.append(a, a, a), 0, 180, 0)
	s.same(key, a, b, c)
	s.head(key, "", headOf(c))
}

// headOf returns the head that a store must have after a pack: without the log's position.
func headOf(p schema.Pack) schema.Head {
	h := p.Head
	h.Stored = 0
	return h
}

func (s *suite) outOfOrder() {
	w := NewWriter(key, day)
	var packs []schema.Pack
	for range 40 {
		packs = append(packs, w.Pack("", Event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`)),
			w.Texts("", 3))
	}
	mixed := slices.Concat(packs, packs, packs)
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	newest := schema.Head{}
	for part := range slices.Chunk(mixed, 7) {
		s.append(part...)
		for _, p := range part {
			if p.Head.Last > newest.Last {
				newest = headOf(p)
			}
		}
		s.head(key, "", newest)
	}
	s.same(key, packs...)
}

func (s *suite) conflict() {
	w, forger := NewWriter(key, day), NewWriter(key, day)
	a := w.Texts("", 10)
	s.append(a)
	b := w.Texts("", 2)
	forged := forger.Pack("", Event(schema.TypeTextDelta, `{"text":"other"}`)) // seq 1 again
	chunks, err := persister.Chunks(b, forged)
	if err != nil {
		s.Fatal(err)
	}
	res, err := s.tables().Append(s.Context(), chunks)
	if err != nil {
		s.Fatal(err)
	}
	s.result(res, 2, 0, 1)
	if res.Conflicts[0] != (persister.Conflict{Chunk: 1, Row: 0}) {
		s.Fatalf("the conflict is said to be %+v", res.Conflicts[0])
	}
	s.same(key, a, b)
	s.head(key, "", headOf(b))
	s.result(s.append(forged), 0, 0, 1) // again: it is never stored
	s.same(key, a, b)
}

func (s *suite) conflictInBatch() {
	w, forger := NewWriter(key, day), NewWriter(key, day)
	good, forged := w.Texts("", 3), forger.Pack("", Event(schema.TypeTextDelta, `{"text":"other"}`))
	s.result(s.append(good, forged), 3, 0, 1)
	s.same(key, good)
}

func (s *suite) conflictOfDay() {
	w, other := NewWriter(key, day), NewWriter(key, "20260301")
	a, b := w.Texts("", 2), w.Texts("", 2)
	forged := other.Texts("", 5)
	s.append(a)
	s.result(s.append(forged, b), 2, 0, 5)
	s.result(s.append(forged), 0, 0, 5)
	s.same(key, a, b)
	s.head(key, "", headOf(b))
}

func (s *suite) hostile() {
	w := NewWriter(key, day)
	var packs []schema.Pack
	for _, payload := range Hostile() {
		packs = append(packs, w.Pack("", Event(schema.TypeTextDelta, payload)))
	}
	s.append(packs...)
	s.same(key, packs...)
	s.result(s.append(packs...), 0, len(packs), 0)
}

func (s *suite) optionalFields() {
	w := NewWriter(key, day)
	p := w.Pack("kid", schema.Event{
		Type: "custom.x", FirstSeq: 0, TurnID: "turn \" é", Path: []string{key.Run, "kid"}, Cause: "evt_x", Actor: "tool",
		Extra: []byte(`"vendor":{"k":[1, 2.50]},"b":null`), Payload: []byte(`{"text":1}`),
	})
	s.append(p)
	s.same(key, p)
}

func (s *suite) paging() {
	w := NewWriter(key, day)
	var packs []schema.Pack
	for range 6 {
		packs = append(packs, w.Texts("", 128), w.Texts("c", 1))
	}
	s.append(packs...)
	s.same(key, packs...)
	n := 0
	for range s.store.Packs(s.Context(), key, 0, all) {
		if n++; n == 3 {
			break // a reader that stops in the middle
		}
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for _, err := range s.store.Packs(ctx, key, 0, all) {
		if _, memory := s.store.(*Memory); err == nil && !memory {
			s.Fatal("a walk on an ended context yields packs")
		}
	}
}

func (s *suite) pagingBytes() {
	w := NewWriter(key, day)
	big := `{"text":"` + strings.Repeat("0123456789abcdef", 300<<10/16) + `"}`
	var packs []schema.Pack
	for range 5 {
		packs = append(packs, w.Pack("", Event(schema.TypeTextDelta, big), Event(schema.TypeTextDelta, `{"text":"x"}`)))
	}
	s.append(packs...)
	s.same(key, packs...)
	got, _ := s.read(key, 0, all)
	for _, p := range got {
		if len(p.Body) > schema.MaxPackBytes {
			s.Fatalf("a pack of %d bytes", len(p.Body))
		}
	}
}
