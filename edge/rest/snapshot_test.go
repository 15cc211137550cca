package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// foldTo is what the snapshot of a run at a seq must be.
func foldTo(run string, s schematest.Scenario, through int) string {
	var f schema.Fold
	for _, e := range schematest.NumberEvents(run, s)[:through] {
		f.Add(&e)
	}
	return string(f.AppendSnapshot(nil))
}

// TestSnapshots: of every scenario, at its newest event and at earlier ones, whatever was asked before.
func TestSnapshots(t *testing.T) {
	h := edgetest.NewHouse(t)
	for i, s := range schematest.All() {
		run := fmt.Sprintf("run_%d", i)
		h.Fill(run, s, 7)
		n := len(s.Events)
		for _, at := range []int{n / 2, 1, n, n / 3} { // behind and before what is kept by then
			a := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/snapshot?at=%d", run, at), "")
			if a.Status != 200 || a.Body != foldTo(run, s, at) || a.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s at %d: %d %.200s", s.Name, at, a.Status, a.Body)
			}
		}
		a := h.Do("GET", "/v1/agent/runs/"+run+"/snapshot", "")
		if a.Status != 200 || a.Body != foldTo(run, s, n) {
			t.Errorf("%s: %d %.200s", s.Name, a.Status, a.Body)
		}
		p := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/snapshot?at=%d", run, n+1), "").Expect(t, 409, "CURSOR-AHEAD")
		if p.LastSeq != n {
			t.Errorf("%s: last_seq %d, want %d", s.Name, p.LastSeq, n)
		}
	}
}

func TestSnapshotRefusals(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.ByName("children"), 5)
	for query, code := range map[string]string{
		"?at=0": "BAD-REQUEST", "?at=": "BAD-REQUEST", "?at=1&at=1": "BAD-REQUEST", "?at=x": "BAD-CURSOR",
		"?at=-1": "BAD-CURSOR", "?at=%zz": "BAD-REQUEST",
	} {
		h.Do("GET", "/v1/agent/runs/run/snapshot"+query, "").Expect(t, 400, code)
	}
	missing := h.Do("GET", "/v1/agent/runs/gone/snapshot", "").Expect(t, 404, "NOT-FOUND")
	foreign := h.Do("GET", "/v1/agent/runs/run/snapshot", "", edgetest.TenantHeader, "rival").Expect(t, 404, "NOT-FOUND")
	if missing.Message != foreign.Message {
		t.Errorf("missing %q, foreign %q", missing.Message, foreign.Message)
	}
	h.Log.Down.Store(true)
	h.Do("GET", "/v1/agent/runs/run/snapshot", "").Expect(t, 503, "UNAVAILABLE")
	h.Log.Down.Store(false)
	if a := h.Do("GET", "/v1/agent/runs/run/snapshot", ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := h.Do("HEAD", "/v1/agent/runs/run/snapshot", ""); a.Status != 200 || a.Body != "" ||
		a.Header.Get("Content-Length") == "0" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestSnapshotOfChild: by its own id, in its own numbers.
func TestSnapshotOfChild(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = edgetest.Family{} })
	h.Fill("run", schematest.ByName("children"), 5)
	var got struct {
		RunID    string `json:"run_id"`
		LastSeq  int    `json:"last_seq"`
		State    string
		Messages []struct {
			ChildID *string `json:"child_id"`
			Blocks  []struct{ Text string }
		}
	}
	a := h.Do("GET", "/v1/agent/runs/"+schematest.ChildB+"/snapshot", "")
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || got.RunID != schematest.ChildB ||
		got.State != "done" || got.LastSeq != 10 ||
		len(got.Messages) != 1 || got.Messages[0].ChildID != nil ||
		got.Messages[0].Blocks[0].Text != "There are many readers." {
		t.Errorf("%v %d %s", err, a.Status, a.Body)
	}
	if a := h.Do("GET", "/v1/agent/runs/"+schematest.ChildB+"/snapshot?at=4", ""); a.Status != 200 ||
		!strings.Contains(a.Body, `"last_seq":4,`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	h.Do("GET", "/v1/agent/runs/"+schematest.ChildB+"/snapshot?at=11", "").Expect(t, 409, "CURSOR-AHEAD")
	h.Do("GET", "/v1/agent/runs/"+schematest.ChildB+"/snapshot", "", edgetest.TenantHeader, "rival").Expect(t, 404,
		"NOT-FOUND")
}

// TestFoldsAreBounded: a run that is too large has no snapshot and takes commands all the same; the
// folds that are kept are the ones used last, and each answer is right whether kept or not.
func TestFoldsAreBounded(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxFoldBytes, c.StateBytes = 40<<10, 100<<10 })
	h.Tell("big", edgetest.Lifecycle("planning"), edgetest.AskPlan, edgetest.Lifecycle("awaiting_approval"))
	for range 3 {
		h.Tell("big", `{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 20<<10)+`"}}`)
	}
	p := h.Do("GET", "/v1/agent/runs/big/snapshot", "").Expect(t, 413, schema.CodeMalformed)
	if !strings.Contains(p.Message, "replay.jsonl") {
		t.Errorf("no way out: %q", p.Message)
	}
	if a := orderOnce(h, "big", "approve_plan", `{"plan_id":"p1"}`); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	orderOnce(h, "big", "approve_plan", ``).Expect(t, 409, "STATE-FORBIDS")
	h.Do("GET", "/v1/agent/runs/big/snapshot", "").Expect(t, 413, schema.CodeMalformed)
	if a := h.Do("GET", "/v1/agent/runs/big/snapshot?at=4", ""); a.Status != 200 { // it was small once
		t.Errorf("%d %s", a.Status, a.Body)
	}

	asks := []string{edgetest.Lifecycle("running")}
	for i := range 200 {
		asks = append(asks, fmt.Sprintf(`{"type":"input.requested","payload":{"request_id":"q%d","prompt":"%0200d"}}`, i, i))
	}
	h.Tell("asks", asks...) // what decides is too large as well: the state alone does
	for name, status := range map[string]int{"pause": 202, "resume": 409, "answer": 409, "cancel": 202,
		"approve_plan": 409, "messages": 202} {
		if a := orderOnce(h, "asks", name, edgetest.Bodies[name]); a.Status != status {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}

	s := schematest.ByName("plain")
	for round := range 2 {
		for i := range 60 {
			run := fmt.Sprintf("run_%d", i)
			if round == 0 {
				h.Fill(run, s, 5)
			}
			if a := h.Do("GET", "/v1/agent/runs/"+run+"/snapshot", ""); a.Body != foldTo(run, s, len(s.Events)) {
				t.Fatalf("%s: %d %.200s", run, a.Status, a.Body)
			}
		}
	}
}

// TestSnapshotsWhileWritten: many readers while the run grows; each gets the fold of some moment, and
// never an older one than before.
func TestSnapshotsWhileWritten(t *testing.T) {
	h := edgetest.NewHouse(t)
	s := schematest.Generate(600, 3)
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, s, 3)
	h.Store(packs[:1])
	ctx, done := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var read atomic.Int64
	for range 8 {
		readers.Go(func() {
			for last := 0; ctx.Err() == nil; {
				a := h.Do("GET", "/v1/agent/runs/run/snapshot", "")
				var got struct {
					LastSeq int `json:"last_seq"`
				}
				if err := json.Unmarshal([]byte(a.Body), &got); err != nil || got.LastSeq < last {
					t.Errorf("%d after %d: %v", got.LastSeq, last, err)
					return
				}
				if last = got.LastSeq; a.Body != foldTo("run", s, last) {
					t.Errorf("another fold at %d", last)
					return
				}
				read.Add(1)
			}
		})
	}
	for i := range packs[1:] {
		h.Store(packs[i+1 : i+2])
		if n := read.Load(); i%10 == 0 && !t.Failed() {
			edgetest.Eventually(t, "readers go on", func() bool { return read.Load() > n || t.Failed() })
		}
	}
	done()
	readers.Wait()
}

// natsNode is an edge over JetStream whose caches are cold.
func natsNode(t testing.TB, k *testkit.Server) (*httptest.Server, *producers.Appender) {
	t.Helper()
	writer, err := pubjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := fanjs.Open(t.Context(), k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := fanout.New(fanout.Config{Stream: reader, Tail: reader})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: writer})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := edge.New(edge.Config{Hub: hub, Appender: app, Authenticate: edgetest.ByTenant})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv.Handler())
	t.Cleanup(ts.Close)
	return ts, app
}

// fillDeltas stores a message of n deltas as a busy publisher does, and returns its text.
func fillDeltas(t testing.TB, app *producers.Appender, key schema.RunKey, n int) string {
	t.Helper()
	const perPack = 20
	var text strings.Builder
	events := []schema.Event{
		{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)},
		{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m","role":"assistant"}`)},
	}
	for i := range n {
		word := fmt.Sprintf("word %d, ", i)
		text.WriteString(word)
		events = append(events, schema.Event{Type: schema.TypeTextDelta,
			Payload: fmt.Appendf(nil, `{"text":%q,"index":0}`, word)})
		if len(events) >= perPack || i == n-1 {
			if _, err := app.Append(t.Context(), key, events, producers.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			events = events[:0]
		}
	}
	return text.String()
}

// TestFoldWithoutBeginning: a run whose beginning is no longer kept has no snapshot; commands are
// decided by what is left and by the state, which travels in the head.
func TestFoldWithoutBeginning(t *testing.T) {
	h := edgetest.NewHouse(t)
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	h.Tell("run", edgetest.Lifecycle("running"), `{"type":"progress","payload":{}}`)
	h.Tell("run", `{"type":"progress","payload":{}}`)
	h.Tell("run", edgetest.AskInput, `{"type":"progress","payload":{}}`)
	h.Log.Log.Expire(key, 3)
	p := h.Do("GET", "/v1/agent/runs/run/snapshot", "").Expect(t, 410, schema.CodeCursorExpired)
	if p.FirstSeq != 4 {
		t.Errorf("first_seq %d", p.FirstSeq)
	}
	orderOnce(h, "run", "resume", "").Expect(t, 409, "STATE-FORBIDS")
	orderOnce(h, "run", "answer", `{"request_id":"q0"}`).Expect(t, 409, "STATE-FORBIDS")
	for _, name := range []string{"answer", "pause", "cancel"} {
		if a := orderOnce(h, "run", name, edgetest.Bodies[name]); a.Status != 202 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	orderOnce(h, "run", "cancel", "").Expect(t, 409, "STATE-FORBIDS")
	h.Do("GET", "/v1/agent/runs/run/snapshot", "").Expect(t, 410, schema.CodeCursorExpired)
}
