package persistertest

import (
	"fmt"
	"testing"

	"agentstream/persister"
	"agentstream/schema"
)

// Listed is what a store lists, for tests of migrations.
type Listed struct {
	Runs    []string // one line each, newest first
	Parents map[string]string
}

// FillRuns stores n runs of two tenants with children, ends, reasons and usage, and returns their packs.
func FillRuns(t testing.TB, s SuiteStore, n int) (packs []schema.Pack) {
	t.Helper()
	for i := range n {
		w := NewWriter(schema.RunKey{Tenant: tenants[i%2], Run: fmt.Sprintf("run_%05d", i)}, fmt.Sprintf("202602%02d", 1+i%5))
		if i%3 == 0 {
			w.Lanes[kid(i)] = schema.Lane{Owner: "owner", Epoch: 2}
		}
		packs = append(packs, w.Texts("", 1+i%3), w.Texts(kid(i), 1))
		if i%5 == 0 {
			packs = append(packs, w.Pack(kid(i), Event(schema.TypeInputRequested, `{"request_id":"q"}`)))
		}
		if i%10 == 0 {
			packs = append(packs, w.Pack("", Event(schema.TypeInputAnswered, `{"request_id":"q"}`)))
		}
		switch i % 4 {
		case 1:
			packs = append(packs, w.Pack("", messageEnd(fmt.Sprintf(`{"output_tokens":%d,"x":1.5}`, i))),
				w.Pack(kid(i), messageEnd(`{"output_tokens":1}`)))
		case 2:
			packs = append(packs, w.Pack("", Event(schema.TypeRunLifecycle, `{"state":"error","reason":"broken \u0000 ☂"}`)))
		case 3:
			packs = append(packs, w.Pack("", Event(schema.TypeRunLifecycle, `{"state":"done","reason":"over"}`)),
				w.Pack("", Event(schema.TypeCommandMessage, `{"text":"more"}`)))
		}
	}
	Put(t, s, packs...)
	return packs
}

// messageEnd returns the end of a message with a usage.
func messageEnd(usage string) schema.Event {
	return Event(schema.TypeMessageEnd, `{"content":[{"type":"text","text":"\u0000"}],"usage":`+usage+`}`)
}

// SampleDeadLetters returns dead letters of different reasons, with and without a run, for tests of the view.
func SampleDeadLetters() []persister.DeadLetter {
	return []persister.DeadLetter{
		{Stream: "A", Position: 7, Seq: 3, Key: schema.RunKey{Tenant: "acme", Run: "run_1"}, Subject: "s",
			Header: map[string][]string{"H": {"v"}},
			Body:   []byte(`{"x":1`), Reason: persister.ReasonBadEvent, Detail: "no JSON"},
		{Stream: "B", Position: 8, Subject: "t", Header: map[string][]string{"H": {"\xff"}}, Body: []byte("\x00\xff"),
			Reason: persister.ReasonBadMessage, Detail: "no pack"},
	}
}

// Put stores packs, as a persister does.
func Put(t testing.TB, s SuiteStore, packs ...schema.Pack) {
	t.Helper()
	chunks, err := persister.Chunks(packs...)
	if err == nil {
		_, err = tablesOf(t, s).Append(t.Context(), chunks)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var tenants = []string{"acme", "globex"}

func kid(i int) string { return fmt.Sprintf("kid_%05d", i) }

// ListRuns lists all runs of FillRuns and the root of each child.
func ListRuns(t testing.TB, s SuiteStore) Listed {
	t.Helper()
	c, ok := s.(Catalog)
	if !ok {
		t.Fatalf("%T has no list of runs", s)
	}
	out := Listed{Parents: make(map[string]string)}
	for _, tenant := range tenants {
		runs, err := c.Runs(t.Context(), tenant, schema.RunsQuery{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			out.Runs = append(out.Runs, fmt.Sprintf("%s/%s %s %q %d %v %v %s %s", tenant, r.ID, r.State, r.Reason, r.Last,
				r.Started.UTC(), r.Updated.UTC(), r.Usage, r.Waiting()))
		}
		for i := range len(runs) * len(tenants) {
			run, err := c.Parent(t.Context(), tenant, kid(i))
			if err != nil {
				t.Fatal(err)
			}
			out.Parents[tenant+"/"+kid(i)] = run
		}
	}
	return out
}

// SameRuns fails unless a store lists what is wanted.
func SameRuns(t testing.TB, s SuiteStore, want Listed) {
	t.Helper()
	got := ListRuns(t, s)
	if len(got.Runs) != len(want.Runs) || len(got.Runs) == 0 {
		t.Fatalf("%d runs, want %d", len(got.Runs), len(want.Runs))
	}
	for i := range got.Runs {
		if got.Runs[i] != want.Runs[i] {
			t.Fatalf("run %d\n got %s\nwant %s", i, got.Runs[i], want.Runs[i])
		}
	}
	found := 0
	for child, run := range want.Parents {
		if got.Parents[child] != run {
			t.Fatalf("the root of %s is %q, want %q", child, got.Parents[child], run)
		}
		if run != "" {
			found++
		}
	}
	if found != len(want.Runs) {
		t.Fatalf("%d children have a root, want %d", found, len(want.Runs))
	}
}
