package edge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/internal/testkit"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// childNode is a nodeOn with the native streams.
func childNode(t testing.TB, k *testkit.Server, change ...func(*edge.Config)) *house {
	t.Helper()
	return nodeOn(t, k, nil, append(change, func(c *edge.Config) { c.Protocols = speak(native.Dialect{}) })...)
}

// say appends one event and gives the answer.
func (h *house) say(run, typ, payload string, headers ...string) answer {
	h.t.Helper()
	return h.do("POST", "/v1/agent/runs/"+run+"/events", `{"type":"`+typ+`","payload":`+payload+`}`, headers...)
}

// must fails the test unless an event is taken.
func (h *house) must(run, typ, payload string, headers ...string) answer {
	h.t.Helper()
	a := h.say(run, typ, payload, headers...)
	if a.status != http.StatusOK {
		h.t.Fatalf("%s to %s: %d %s", typ, run, a.status, a.body)
	}
	return a
}

func (h *house) spawn(run, child string) answer {
	h.t.Helper()
	return h.must(run, schema.TypeChildSpawn, `{"child_id":"`+child+`"}`)
}

// lines are the events of a run as its file has them.
func (h *house) lines(run string) (events []schema.Event) {
	h.t.Helper()
	a := h.do("GET", "/v1/agent/runs/"+run+"/replay.jsonl", "")
	if a.status != http.StatusOK {
		h.t.Fatalf("%s: %d %s", run, a.status, a.body)
	}
	for line := range strings.Lines(a.body) {
		e, err := schema.DecodeLine([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			h.t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// told returns the child and the text of each event.
func toldBy(events []schema.Event) (list []string) {
	for _, e := range events {
		text := struct {
			Text  string
			State string
		}{}
		_ = json.Unmarshal(e.Payload, &text)
		list = append(list, strings.TrimSpace(e.ChildID+" "+e.Type+" "+text.Text+text.State))
	}
	return list
}

// A child that publishes under its own id writes into its root's log, at any node, at once after its spawn was
// acknowledged; and everything that reads a run by its id reads the child by its own, as its stream does.
func TestChildPublishesUnderItsOwnID(t *testing.T) {
	k := testkit.NATS(t)
	a, b := childNode(t, k), childNode(t, k)
	b.do("GET", "/v1/agent/runs/kid/events", "").expect(t, 404, "NOT-FOUND")
	a.must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	a.spawn("root", "kid")
	b.do("GET", "/v1/agent/runs/kid/events", "").expect(t, 404, "NOT-FOUND") // it has not spoken
	if got := b.must("kid", schema.TypeRunLifecycle, `{"state":"running"}`); got.body != `{"first_seq":3,"last_seq":3,"root_run_id":"root"}`+"\n" {
		t.Error(got.body)
	}
	a.must("root", schema.TypeTextDelta, `{"text":"r1"}`)
	a.must("kid", schema.TypeTextDelta, `{"text":"k1"}`)
	b.must("kid", schema.TypeChildSpawn, `{"child_id":"grandkid"}`)
	a.must("grandkid", schema.TypeTextDelta, `{"text":"g1"}`)
	b.must("kid", schema.TypeTextDelta, `{"text":"k2"}`)
	b.must("kid", schema.TypeRunLifecycle, `{"state":"done"}`)
	a.must("root", schema.TypeTextDelta, `{"text":"r2"}`) // the child's end is not the root's

	want := "run.lifecycle running,child.spawn,kid run.lifecycle running,text.delta r1,kid text.delta k1,kid child.spawn,grandkid text.delta g1,kid text.delta k2,kid run.lifecycle done,text.delta r2"
	if got := strings.Join(toldBy(a.lines("root")), ","); got != want {
		t.Errorf("the root's log is\n%s\nwant\n%s", got, want)
	}
	for i, h := range []*house{a, b, childNode(t, k)} { // the last one has just begun
		own := h.lines("kid")
		if got := strings.Join(toldBy(own), ","); got != "run.lifecycle running,text.delta k1,child.spawn,text.delta k2,run.lifecycle done" {
			t.Errorf("node %d: %s", i, got)
		}
		h.readsAsItsStream(t, "kid", 5)
		for n, e := range own {
			if e.Seq != schema.Seq(n+1) || e.RunID != "kid" {
				t.Errorf("node %d: %+v", i, e)
			}
		}
		var sum struct {
			RunID string `json:"run_id"`
			State string `json:"state"`
			Last  int    `json:"last_seq"`
			Began string `json:"started_at"`
			Ended string `json:"ended_at"`
		}
		got := h.do("GET", "/v1/agent/runs/kid", "")
		if err := json.Unmarshal([]byte(got.body), &sum); err != nil || sum.RunID != "kid" || sum.State != "done" || sum.Last != 5 || sum.Began != own[0].TS || sum.Ended != own[4].TS {
			t.Errorf("node %d: %d %s %v", i, got.status, got.body, err)
		}
		h.do("GET", "/v1/agent/runs/kid", "", tenantHeader, "zeta").expect(t, 404, "NOT-FOUND")
	}
	a.must("kid", schema.TypeTextDelta, `{"text":"late"}`) // as any event of a child, until the root ends
	a.must("root", schema.TypeRunLifecycle, `{"state":"done"}`)
	b.say("kid", schema.TypeTextDelta, `{"text":"later"}`).expect(t, 409, "RUN-ENDED")
}

// readsAsItsStream compares a child's pages, both ways, file and snapshot with its stream.
func (h *house) readsAsItsStream(t *testing.T, child string, last int) {
	t.Helper()
	var file bytes.Buffer
	for line := range strings.Lines(h.do("GET", "/v1/agent/runs/"+child+"/stream?detail=full", "").body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			file.WriteString(data)
		}
	}
	got := h.do("GET", "/v1/agent/runs/"+child+"/replay.jsonl", "")
	if got.body != file.String() || got.header.Get("Last-Seq") != fmt.Sprint(last) || !strings.Contains(got.header.Get("Content-Disposition"), child) {
		t.Errorf("the file is\n%s%v\nthe stream\n%s", got.body, got.header, file.String())
	}
	whole := strings.Split(strings.TrimSuffix(file.String(), "\n"), "\n")
	for limit := 1; limit <= last+1; limit++ {
		up, _ := h.walk(child, "&order=asc", false, limit)
		down, _ := h.walk(child, "&order=desc", true, limit)
		for i := range whole {
			if len(up) != last || len(down) != last || up[i] != whole[i] || down[last-1-i] != whole[i] {
				t.Fatalf("pages of %d: up %q, down %q, want %q", limit, up, down, whole)
			}
		}
	}
	if p := h.events(child, "?types=text.delta&limit=1&after=2"); len(p.Events) != 1 || string(p.Events[0]) != whole[3] || *p.NextAfter != 4 {
		t.Errorf("%s %v", p.Events, p.NextAfter)
	}
	for k := range last {
		got := h.do("GET", fmt.Sprintf("/v1/agent/runs/%s/replay.jsonl?after=%d&through=%d", child, k, k+1), "")
		if got.body != whole[k]+"\n" || got.header.Get("Last-Seq") != fmt.Sprint(k+1) {
			t.Errorf("after %d: %s", k, got.body)
		}
		var snapshot struct {
			Last int `json:"last_seq"`
		}
		sum := h.do("GET", fmt.Sprintf("/v1/agent/runs/%s/snapshot?at=%d", child, k+1), "")
		if err := json.Unmarshal([]byte(sum.body), &snapshot); err != nil || snapshot.Last != k+1 {
			t.Errorf("at %d: %s", k+1, sum.body)
		}
	}
	h.do("GET", fmt.Sprintf("/v1/agent/runs/%s/events?after=%d", child, last+1), "").expect(t, 409, "CURSOR-AHEAD")
	h.do("GET", fmt.Sprintf("/v1/agent/runs/%s/replay.jsonl?after=%d", child, last+1), "").expect(t, 409, "CURSOR-AHEAD")
}

// A spawn and the child's first events race at several nodes. Whatever was sent behind the acknowledged spawn is in
// the root's log; and a child's events are in one log, never in two.
func TestSpawnRacesWithTheFirstEvent(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*house{childNode(t, k), childNode(t, k), childNode(t, k)}
	children, own := 0, 0
	for round := range 60 {
		root, kid := fmt.Sprint("root_", round), fmt.Sprint("kid_", round)
		nodes[0].must(root, schema.TypeRunLifecycle, `{"state":"running"}`)
		var wg sync.WaitGroup
		acked := make(chan struct{})
		wg.Go(func() {
			defer close(acked)
			nodes[round%3].spawn(root, kid)
		})
		for w := range 3 {
			wg.Go(func() {
				for range round % 5 { // so that either may be first
					nodes[w].must(fmt.Sprint("other_", w), schema.TypeProgress, `{}`)
				}
				nodes[w].must(kid, schema.TypeTextDelta, fmt.Sprintf(`{"text":"early %d"}`, w))
				<-acked
				nodes[(w+1)%3].must(kid, schema.TypeTextDelta, fmt.Sprintf(`{"text":"late %d"}`, w))
			})
		}
		wg.Wait()
		in := map[string]int{}
		for _, e := range nodes[round%3].lines(root) {
			if e.Type == schema.TypeTextDelta && e.ChildID == kid {
				in["root"]++
			}
		}
		for _, e := range nodes[(round+1)%3].lines(kid) {
			if e.Type == schema.TypeTextDelta {
				in["kid"]++
			}
		}
		switch {
		case in["kid"] != 6 || in["root"] != 0 && in["root"] != 6:
			t.Fatalf("round %d: %d events in the root's log, %d by the child's id, of 6", round, in["root"], in["kid"])
		case in["root"] == 6:
			children++
		default:
			own++ // it began by itself before it was spawned, and stays a run of its own
		}
	}
	t.Logf("%d times a child, %d times a run of its own", children, own)
}

// Right behind the acknowledged spawn every node knows the child.
func TestChildIsKnownAtOnceAtEveryNode(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*house{childNode(t, k), childNode(t, k)}
	for round := range 40 {
		root, kid := fmt.Sprint("root_", round), fmt.Sprint("kid_", round)
		if round%2 == 0 {
			nodes[0].do("GET", "/v1/agent/runs/"+kid, "").expect(t, 404, "NOT-FOUND")
		}
		nodes[0].spawn(root, kid)
		if got := nodes[1].must(kid, schema.TypeTextDelta, `{"text":"a"}`); got.body != fmt.Sprintf(`{"first_seq":2,"last_seq":2,"root_run_id":%q}`+"\n", root) {
			t.Fatalf("round %d: %s", round, got.body)
		}
		if got := toldBy(nodes[0].lines(kid)); len(got) != 1 {
			t.Fatalf("round %d: %v", round, got)
		}
	}
}

// A run that has begun by itself stays a run of its own, whoever spawns a child of that name; and so does that of
// another tenant.
func TestSpawnTakesNoRunOver(t *testing.T) {
	k := testkit.NATS(t)
	a, b := childNode(t, k), childNode(t, k)
	a.must("alone", schema.TypeTextDelta, `{"text":"mine"}`)
	b.spawn("root", "alone")
	b.spawn("root", "root") // nobody is a child of its own
	b.must("alone", schema.TypeTextDelta, `{"text":"mine too"}`)
	b.must("root", schema.TypeTextDelta, `{"text":"r"}`)
	if got := strings.Join(toldBy(a.lines("alone")), ","); got != "text.delta mine,text.delta mine too" {
		t.Error(got)
	}
	if got := strings.Join(toldBy(a.lines("root")), ","); got != "child.spawn,child.spawn,text.delta r" {
		t.Error(got)
	}
	b.spawn("root", "shared")
	foreign := a.must("shared", schema.TypeTextDelta, `{"text":"zeta's"}`, tenantHeader, "zeta")
	if foreign.body != `{"first_seq":1,"last_seq":1}`+"\n" {
		t.Errorf("another tenant's run of that name: %s", foreign.body)
	}
	a.do("GET", "/v1/agent/runs/shared", "").expect(t, 404, "NOT-FOUND")
	a.must("shared", schema.TypeTextDelta, `{"text":"acme's"}`)
	if got := strings.Join(toldBy(b.lines("shared")), ","); got != "text.delta acme's" {
		t.Error(got)
	}
	// Two roots name one child: the later one has it.
	b.spawn("other", "shared")
	if got := a.must("shared", schema.TypeTextDelta, `{"text":"x"}`); !strings.Contains(got.body, `"root_run_id":"other"`) {
		t.Error(got.body)
	}
}

// What else a run's id takes, for a child's.
func TestChildsIDInOtherRequests(t *testing.T) {
	k := testkit.NATS(t)
	a, b := childNode(t, k), childNode(t, k)
	post := func(h *house, run, body string, headers ...string) answer {
		return h.do("POST", "/v1/agent/runs/"+run+"/events", body, headers...)
	}
	text := `{"type":"text.delta","payload":{"text":"a"}}`
	a.spawn("root", "kid")
	// A key's scope is the id that was named, at every node.
	first := post(a, "kid", text, "Idempotency-Key", "k")
	again := post(b, "kid", text, "Idempotency-Key", "k")
	if first.status != 200 || identical(first, again) != nil || again.header.Get("Idempotency-Replayed") == "" || first.header.Get("Etag") != `"2"` {
		t.Errorf("%v: %s", identical(first, again), again.body)
	}
	if got := post(b, "root", text, "Idempotency-Key", "k"); got.body != `{"first_seq":3,"last_seq":3}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	post(b, "kid", good, "Idempotency-Key", "k").expect(t, 422, "KEY-REUSED")
	// Conditions and numbers are the root's.
	post(b, "kid", text, "If-Match", `"2"`).expect(t, 412, "PRECONDITION-FAILED")
	post(b, "kid", text, "If-None-Match", `*`).expect(t, 412, "PRECONDITION-FAILED")
	if got := post(b, "kid", text, "If-Match", `"3"`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	post(a, "kid", `{"type":"text.delta","seq":3,"payload":{"text":"a"}}`).expect(t, 409, "SEQ-MISMATCH")
	if got := post(a, "kid", `{"type":"text.delta","seq":5,"payload":{"text":"a"}}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	// The envelope is that of the child's own run.
	post(a, "kid", `{"type":"text.delta","run_id":"root","payload":{"text":"a"}}`).expect(t, 400, schema.CodeMalformed)
	post(a, "kid", `{"type":"text.delta","child_id":"kid","payload":{"text":"a"}}`).expect(t, 400, schema.CodeMalformed)
	if got := post(a, "kid", `{"type":"text.delta","run_id":"kid","child_id":"below","payload":{"text":"b"}}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := toldBy(b.lines("root")); got[len(got)-1] != "below text.delta b" {
		t.Errorf("%v", got)
	}
	// To begin it is to store its first event in its root's log, once.
	a.do("POST", "/v1/agent/runs", `{"run_id":"kid"}`).expect(t, 409, "RUN-EXISTS")
	a.spawn("root", "late")
	b.do("PUT", "/v1/agent/runs/late", "", tenantHeader, "zeta")
	got := b.do("PUT", "/v1/agent/runs/late", "")
	if got.status != 201 || got.body != `{"first_seq":8,"last_seq":8,"run_id":"late","state":"running","root_run_id":"root"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got = a.do("PUT", "/v1/agent/runs/late", ""); got.status != 200 || got.body != `{"first_seq":1,"last_seq":1,"run_id":"late","state":"running"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.do("POST", "/v1/agent/runs", `{"run_id":"late"}`).expect(t, 409, "RUN-EXISTS")
	// Commands go to the child.
	if got := b.do("POST", "/v1/agent/runs/late/pause", "{}"); got.status != 202 || !strings.Contains(got.body, `"first_seq":9`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := toldBy(a.lines("late")); strings.Join(got, ",") != "run.lifecycle running,command.pause" {
		t.Errorf("%v", got)
	}
	// Over NATS as over HTTP.
	answers := b.srv.Take(t.Context(), runOf("kid"), postsOf(text), nil)
	if answers[0].Refusal != nil || answers[0].First != 10 {
		t.Errorf("%s", fate(answers[0]))
	}
}

// A credential for the child alone writes as the child alone.
func TestCredentialOfOneChild(t *testing.T) {
	k := testkit.NATS(t)
	a := childNode(t, k)
	kid := childNode(t, k, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll, Run: "kid"}, nil
		}
	})
	a.spawn("root", "kid")
	a.spawn("root", "sister")
	a.must("sister", schema.TypeTextDelta, `{"text":"a"}`)
	kid.must("kid", schema.TypeTextDelta, `{"text":"a"}`)
	post := func(run, body string) answer { return kid.do("POST", "/v1/agent/runs/"+run+"/events", body) }
	if p := post("kid", good+"\n"+`{"type":"text.delta","child_id":"sister","payload":{"text":"a"}}`).expect(t, 400, schema.CodeMalformed); p.Line != 2 {
		t.Errorf("%+v", p)
	}
	post("root", good).expect(t, 404, "NOT-FOUND")
	kid.do("POST", "/v1/agent/runs/kid/cancel", `{"child_id":"sister"}`).expect(t, 404, "NOT-FOUND")
	if got := kid.do("POST", "/v1/agent/runs/kid/cancel", `{}`); got.status != 202 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := len(a.lines("root")); n != 5 {
		t.Errorf("%d events", n)
	}
}
