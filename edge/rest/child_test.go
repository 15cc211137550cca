package rest_test

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
	"agentstream/edge/edgetest"
	"agentstream/internal/testkit"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// childNode is a nodeOn with the native streams.
func childNode(t testing.TB, k *testkit.Server, change ...func(*edge.Config)) *edgetest.House {
	t.Helper()
	return nodeOn(t, k, nil, append(change, func(c *edge.Config) { c.Protocols = edgetest.Speak(native.Dialect{}) })...)
}

// linesOf are the events of a run as its file has them.
func linesOf(h *edgetest.House, run string) (events []schema.Event) {
	h.T.Helper()
	a := h.Do("GET", "/v1/agent/runs/"+run+"/replay.jsonl", "")
	if a.Status != http.StatusOK {
		h.T.Fatalf("%s: %d %s", run, a.Status, a.Body)
	}
	for line := range strings.Lines(a.Body) {
		e, err := schema.DecodeLine([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			h.T.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// toldBy returns the child and the text of each event.
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
	b.Do("GET", "/v1/agent/runs/kid/events", "").Expect(t, 404, "NOT-FOUND")
	a.Must("root", schema.TypeRunLifecycle, `{"state":"running"}`)
	a.Spawn("root", "kid")
	b.Do("GET", "/v1/agent/runs/kid/events", "").Expect(t, 404, "NOT-FOUND") // it has not spoken
	if got := b.Must("kid", schema.TypeRunLifecycle,
		`{"state":"running"}`); got.Body != `{"first_seq":3,"last_seq":3,"root_run_id":"root"}`+"\n" {
		t.Error(got.Body)
	}
	a.Must("root", schema.TypeTextDelta, `{"text":"r1"}`)
	a.Must("kid", schema.TypeTextDelta, `{"text":"k1"}`)
	b.Must("kid", schema.TypeChildSpawn, `{"child_id":"grandkid"}`)
	a.Must("grandkid", schema.TypeTextDelta, `{"text":"g1"}`)
	b.Must("kid", schema.TypeTextDelta, `{"text":"k2"}`)
	b.Must("kid", schema.TypeRunLifecycle, `{"state":"done"}`)
	a.Must("root", schema.TypeTextDelta, `{"text":"r2"}`) // the child's end is not the root's

	want := "run.lifecycle running,child.spawn,kid run.lifecycle running,text.delta r1,kid text.delta k1,kid child.spawn,grandkid text.delta g1,kid text.delta k2,kid run.lifecycle done,text.delta r2"
	if got := strings.Join(toldBy(linesOf(a, "root")), ","); got != want {
		t.Errorf("the root's log is\n%s\nwant\n%s", got, want)
	}
	for i, h := range []*edgetest.House{a, b, childNode(t, k)} { // the last one has just begun
		own := linesOf(h, "kid")
		if got := strings.Join(toldBy(own), ","); got != "run.lifecycle running,text.delta k1,child.spawn,text.delta k2,run.lifecycle done" {
			t.Errorf("node %d: %s", i, got)
		}
		checkRead(h, t, "kid", 5)
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
		got := h.Do("GET", "/v1/agent/runs/kid", "")
		if err := json.Unmarshal([]byte(got.Body), &sum); err != nil || sum.RunID != "kid" || sum.State != "done" ||
			sum.Last != 5 || sum.Began != own[0].TS || sum.Ended != own[4].TS {
			t.Errorf("node %d: %d %s %v", i, got.Status, got.Body, err)
		}
		h.Do("GET", "/v1/agent/runs/kid", "", edgetest.TenantHeader, "zeta").Expect(t, 404, "NOT-FOUND")
	}
	a.Must("kid", schema.TypeTextDelta, `{"text":"late"}`) // as any event of a child, until the root ends
	a.Must("root", schema.TypeRunLifecycle, `{"state":"done"}`)
	b.Say("kid", schema.TypeTextDelta, `{"text":"later"}`).Expect(t, 409, "RUN-ENDED")
}

// checkRead compares a child's pages, both ways, file and snapshot with its stream.
func checkRead(h *edgetest.House, t *testing.T, child string, last int) {
	t.Helper()
	var file bytes.Buffer
	for line := range strings.Lines(h.Do("GET", "/v1/agent/runs/"+child+"/stream?detail=full", "").Body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			file.WriteString(data)
		}
	}
	got := h.Do("GET", "/v1/agent/runs/"+child+"/replay.jsonl", "")
	if got.Body != file.String() || got.Header.Get("Last-Seq") != fmt.Sprint(last) ||
		!strings.Contains(got.Header.Get("Content-Disposition"), child) {
		t.Errorf("the file is\n%s%v\nthe stream\n%s", got.Body, got.Header, file.String())
	}
	whole := strings.Split(strings.TrimSuffix(file.String(), "\n"), "\n")
	for limit := 1; limit <= last+1; limit++ {
		up, _ := walk(h, child, "&order=asc", false, limit)
		down, _ := walk(h, child, "&order=desc", true, limit)
		for i := range whole {
			if len(up) != last || len(down) != last || up[i] != whole[i] || down[last-1-i] != whole[i] {
				t.Fatalf("pages of %d: up %q, down %q, want %q", limit, up, down, whole)
			}
		}
	}
	if p := listEvents(h, child, "?types=text.delta&limit=1&after=2"); len(p.Events) != 1 ||
		string(p.Events[0]) != whole[3] || *p.NextAfter != 4 {
		t.Errorf("%s %v", p.Events, p.NextAfter)
	}
	for k := range last {
		got := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/replay.jsonl?after=%d&through=%d", child, k, k+1), "")
		if got.Body != whole[k]+"\n" || got.Header.Get("Last-Seq") != fmt.Sprint(k+1) {
			t.Errorf("after %d: %s", k, got.Body)
		}
		var snapshot struct {
			Last int `json:"last_seq"`
		}
		sum := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/snapshot?at=%d", child, k+1), "")
		if err := json.Unmarshal([]byte(sum.Body), &snapshot); err != nil || snapshot.Last != k+1 {
			t.Errorf("at %d: %s", k+1, sum.Body)
		}
	}
	h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/events?after=%d", child, last+1), "").Expect(t, 409, "CURSOR-AHEAD")
	h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/replay.jsonl?after=%d", child, last+1), "").Expect(t, 409, "CURSOR-AHEAD")
}

// A spawn and the child's first events race at several nodes. Whatever was sent behind the acknowledged spawn is in
// the root's log; and a child's events are in one log, never in two.
func TestSpawnRacesWithTheFirstEvent(t *testing.T) {
	k := testkit.NATS(t)
	nodes := []*edgetest.House{childNode(t, k), childNode(t, k), childNode(t, k)}
	children, own := 0, 0
	for round := range 60 {
		root, kid := fmt.Sprint("root_", round), fmt.Sprint("kid_", round)
		nodes[0].Must(root, schema.TypeRunLifecycle, `{"state":"running"}`)
		var wg sync.WaitGroup
		acked := make(chan struct{})
		wg.Go(func() {
			defer close(acked)
			nodes[round%3].Spawn(root, kid)
		})
		for w := range 3 {
			wg.Go(func() {
				for range round % 5 { // so that either may be first
					nodes[w].Must(fmt.Sprint("other_", w), schema.TypeProgress, `{}`)
				}
				nodes[w].Must(kid, schema.TypeTextDelta, fmt.Sprintf(`{"text":"early %d"}`, w))
				<-acked
				nodes[(w+1)%3].Must(kid, schema.TypeTextDelta, fmt.Sprintf(`{"text":"late %d"}`, w))
			})
		}
		wg.Wait()
		in := map[string]int{}
		for _, e := range linesOf(nodes[round%3], root) {
			if e.Type == schema.TypeTextDelta && e.ChildID == kid {
				in["root"]++
			}
		}
		for _, e := range linesOf(nodes[(round+1)%3], kid) {
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
	nodes := []*edgetest.House{childNode(t, k), childNode(t, k)}
	for round := range 40 {
		root, kid := fmt.Sprint("root_", round), fmt.Sprint("kid_", round)
		if round%2 == 0 {
			nodes[0].Do("GET", "/v1/agent/runs/"+kid, "").Expect(t, 404, "NOT-FOUND")
		}
		nodes[0].Spawn(root, kid)
		if got := nodes[1].Must(kid, schema.TypeTextDelta,
			`{"text":"a"}`); got.Body != fmt.Sprintf(`{"first_seq":2,"last_seq":2,"root_run_id":%q}`+"\n", root) {
			t.Fatalf("round %d: %s", round, got.Body)
		}
		if got := toldBy(linesOf(nodes[0], kid)); len(got) != 1 {
			t.Fatalf("round %d: %v", round, got)
		}
	}
}

// A run that has begun by itself stays a run of its own, whoever spawns a child of that name; and so does that of
// another tenant.
func TestSpawnTakesNoRunOver(t *testing.T) {
	k := testkit.NATS(t)
	a, b := childNode(t, k), childNode(t, k)
	a.Must("alone", schema.TypeTextDelta, `{"text":"mine"}`)
	b.Spawn("root", "alone")
	b.Spawn("root", "root") // nobody is a child of its own
	b.Must("alone", schema.TypeTextDelta, `{"text":"mine too"}`)
	b.Must("root", schema.TypeTextDelta, `{"text":"r"}`)
	if got := strings.Join(toldBy(linesOf(a, "alone")), ","); got != "text.delta mine,text.delta mine too" {
		t.Error(got)
	}
	if got := strings.Join(toldBy(linesOf(a, "root")), ","); got != "child.spawn,child.spawn,text.delta r" {
		t.Error(got)
	}
	b.Spawn("root", "shared")
	foreign := a.Must("shared", schema.TypeTextDelta, `{"text":"zeta's"}`, edgetest.TenantHeader, "zeta")
	if foreign.Body != `{"first_seq":1,"last_seq":1}`+"\n" {
		t.Errorf("another tenant's run of that name: %s", foreign.Body)
	}
	a.Do("GET", "/v1/agent/runs/shared", "").Expect(t, 404, "NOT-FOUND")
	a.Must("shared", schema.TypeTextDelta, `{"text":"acme's"}`)
	if got := strings.Join(toldBy(linesOf(b, "shared")), ","); got != "text.delta acme's" {
		t.Error(got)
	}
	// Two roots name one child: the later one has it.
	b.Spawn("other", "shared")
	if got := a.Must("shared", schema.TypeTextDelta, `{"text":"x"}`); !strings.Contains(got.Body,
		`"root_run_id":"other"`) {
		t.Error(got.Body)
	}
}

// What else a run's id takes, for a child's.
func TestChildsIDInOtherRequests(t *testing.T) {
	k := testkit.NATS(t)
	a, b := childNode(t, k), childNode(t, k)
	post := func(h *edgetest.House, run, body string, headers ...string) edgetest.Reply {
		return h.Do("POST", "/v1/agent/runs/"+run+"/events", body, headers...)
	}
	text := `{"type":"text.delta","payload":{"text":"a"}}`
	a.Spawn("root", "kid")
	// A key's scope is the id that was named, at every node.
	first := post(a, "kid", text, "Idempotency-Key", "k")
	again := post(b, "kid", text, "Idempotency-Key", "k")
	if first.Status != 200 || identical(first, again) != nil || again.Header.Get("Idempotency-Replayed") == "" ||
		first.Header.Get("Etag") != `"2"` {
		t.Errorf("%v: %s", identical(first, again), again.Body)
	}
	if got := post(b, "root", text, "Idempotency-Key", "k"); got.Body != `{"first_seq":3,"last_seq":3}`+"\n" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	post(b, "kid", edgetest.GoodLine, "Idempotency-Key", "k").Expect(t, 422, "KEY-REUSED")
	// Conditions and numbers are the root's.
	post(b, "kid", text, "If-Match", `"2"`).Expect(t, 412, "PRECONDITION-FAILED")
	post(b, "kid", text, "If-None-Match", `*`).Expect(t, 412, "PRECONDITION-FAILED")
	if got := post(b, "kid", text, "If-Match", `"3"`); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	post(a, "kid", `{"type":"text.delta","seq":3,"payload":{"text":"a"}}`).Expect(t, 409, "SEQ-MISMATCH")
	if got := post(a, "kid", `{"type":"text.delta","seq":5,"payload":{"text":"a"}}`); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	// The envelope is that of the child's own run.
	post(a, "kid", `{"type":"text.delta","run_id":"root","payload":{"text":"a"}}`).Expect(t, 400, schema.CodeMalformed)
	post(a, "kid", `{"type":"text.delta","child_id":"kid","payload":{"text":"a"}}`).Expect(t, 400, schema.CodeMalformed)
	if got := post(a, "kid", `{"type":"text.delta","run_id":"kid","child_id":"below","payload":{"text":"b"}}`); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if got := toldBy(linesOf(b, "root")); got[len(got)-1] != "below text.delta b" {
		t.Errorf("%v", got)
	}
	// To begin it is to store its first event in its root's log, once.
	a.Do("POST", "/v1/agent/runs", `{"run_id":"kid"}`).Expect(t, 409, "RUN-EXISTS")
	a.Spawn("root", "late")
	b.Do("PUT", "/v1/agent/runs/late", "", edgetest.TenantHeader, "zeta")
	got := b.Do("PUT", "/v1/agent/runs/late", "")
	if got.Status != 201 || got.Body != `{"first_seq":8,"last_seq":8,"run_id":"late","state":"running","root_run_id":"root"}`+"\n" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	got = a.Do("PUT", "/v1/agent/runs/late", "")
	if got.Status != 200 ||
		got.Body != `{"first_seq":1,"last_seq":1,"run_id":"late","state":"running"}`+"\n" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	a.Do("POST", "/v1/agent/runs", `{"run_id":"late"}`).Expect(t, 409, "RUN-EXISTS")
	// Commands go to the child.
	if got := b.Do("POST", "/v1/agent/runs/late/pause", "{}"); got.Status != 202 ||
		!strings.Contains(got.Body, `"first_seq":9`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if got := toldBy(linesOf(a, "late")); strings.Join(got, ",") != "run.lifecycle running,command.pause" {
		t.Errorf("%v", got)
	}
	// Over NATS as over HTTP.
	answers := b.Server.StorePosts(t.Context(), edgetest.RunOf("kid"), postsOf(text), nil)
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
	a.Spawn("root", "kid")
	a.Spawn("root", "sister")
	a.Must("sister", schema.TypeTextDelta, `{"text":"a"}`)
	kid.Must("kid", schema.TypeTextDelta, `{"text":"a"}`)
	post := func(run, body string) edgetest.Reply { return kid.Do("POST", "/v1/agent/runs/"+run+"/events", body) }
	if p := post("kid", edgetest.GoodLine+"\n"+
		`{"type":"text.delta","child_id":"sister","payload":{"text":"a"}}`).Expect(t, 400,
		schema.CodeMalformed); p.Line != 2 {
		t.Errorf("%+v", p)
	}
	post("root", edgetest.GoodLine).Expect(t, 404, "NOT-FOUND")
	kid.Do("POST", "/v1/agent/runs/kid/cancel", `{"child_id":"sister"}`).Expect(t, 404, "NOT-FOUND")
	if got := kid.Do("POST", "/v1/agent/runs/kid/cancel", `{}`); got.Status != 202 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if n := len(linesOf(a, "root")); n != 5 {
		t.Errorf("%d events", n)
	}
}
