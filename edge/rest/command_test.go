package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/schema"
)

func orderOnce(h *edgetest.House, run, name, body string, headers ...string) edgetest.Reply {
	h.T.Helper()
	return h.Do("POST", "/v1/agent/runs/"+run+"/"+name, body, headers...)
}

// TestCommandMatrix: every command in every situation is taken or refused as the table says; what is
// taken is an event, what is refused leaves no trace.
func TestCommandMatrix(t *testing.T) {
	h := edgetest.NewHouse(t)
	for i, s := range edgetest.Situations {
		for name, body := range edgetest.Bodies {
			run := fmt.Sprintf("run_%d_%s", i, name)
			h.Tell(run, s.Lines...)
			last := h.Last(run)
			a := orderOnce(h, run, name, body)
			if !slices.Contains(strings.Fields(s.Takes), name) {
				if p := a.Expect(t, http.StatusConflict, "STATE-FORBIDS"); schema.Seq(p.LastSeq) != last ||
					!strings.HasPrefix(p.Message, name+" is not possible in state ") {
					t.Errorf("%s in %q: %+v", name, s.Name, p)
				}
				if h.Last(run) != last {
					t.Errorf("%s in %q was refused and stored", name, s.Name)
				}
				continue
			}
			if want := fmt.Sprintf(`{"first_seq":%d,"last_seq":%d,"command":%q}`+"\n", last+1, last+1,
				name); a.Status != http.StatusAccepted || a.Body != want {
				t.Errorf("%s in %q: %d %s, want %s", name, s.Name, a.Status, a.Body, want)
				continue
			}
			e := h.Event(run, last+1)
			if want := "command." + strings.TrimSuffix(name, "s"); e.Type != want || e.Actor != "user" || e.ChildID != "" {
				t.Errorf("%s in %q became %+v", name, s.Name, e)
			}
			if body == "" {
				body = "{}"
			}
			if !sameJSON(t, string(e.Payload), body) {
				t.Errorf("%s: payload %s, body %s", name, e.Payload, body)
			}
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatalf("%s, %s", a, b)
	}
	one, _ := json.Marshal(x)
	other, _ := json.Marshal(y)
	return string(one) == string(other)
}

// TestCommandRefusals: what a client gets wrong, and what it may not see.
func TestCommandRefusals(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("r", edgetest.Lifecycle("planning"), edgetest.AskPlan, edgetest.Lifecycle("awaiting_approval"),
		edgetest.ChildSpeaks)
	for _, tt := range []struct {
		name, run, body string
		headers         []string
		status          int
		code, field     string
	}{
		{"approve_plan", "r", `{"plan_id":"p2"}`, nil, 409, "STATE-FORBIDS", ""},
		{"approve_plan", "r", `{"plan_id":7}`, nil, 400, "BAD-REQUEST", "/plan_id"},
		{"approve_plan", "r", `{"plan_id":""}`, nil, 400, "BAD-REQUEST", "/plan_id"},
		{"approve_plan", "r", `{"child_id":"kid"}`, nil, 409, "STATE-FORBIDS", ""},
		{"pause", "r", `{"child_id":"nobody"}`, nil, 404, "NOT-FOUND", ""},
		{"pause", "r", `{"child_id":"bad id"}`, nil, 400, "BAD-ID", ""},
		{"pause", "r", `{"child_id":"r"}`, nil, 400, schema.CodeMalformed, ""},
		{"cancel", "r", `{"reason":7}`, nil, 400, schema.CodeMalformed, "/reason"},
		{"cancel", "r", `[]`, nil, 400, "BAD-REQUEST", ""},
		{"cancel", "r", `null`, nil, 400, "BAD-REQUEST", ""},
		{"cancel", "r", `{`, nil, 400, "BAD-REQUEST", ""},
		{"cancel", "r", `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, nil, 400,
			schema.CodeMalformed, ""},
		{"cancel", "r", `{"reason":"` + strings.Repeat("x", 600<<10) + `"}`, nil, 413, schema.CodeMalformed, ""},
		{"messages", "r", ``, nil, 400, schema.CodeMalformed, ""},
		{"messages", "r", `{"content":7}`, nil, 400, schema.CodeMalformed, "/content"},
		{"answer", "r", `{"answer":1}`, nil, 400, schema.CodeMalformed, ""},
		{"answer", "r", `{"request_id":"q9"}`, nil, 409, "STATE-FORBIDS", ""},
		{"cancel", "r", `{}`, []string{"Content-Type", "text/html"}, 415, "UNSUPPORTED-MEDIA-TYPE", ""},
		{"cancel", "r", `{}`, []string{"Idempotency-Key", ""}, 400, "BAD-REQUEST", ""},
		{"cancel", "r", `{}`, []string{edgetest.TenantHeader, "rival"}, 404, "NOT-FOUND", ""},
		{"cancel", "missing", `{}`, nil, 404, "NOT-FOUND", ""},
		{"cancel", "bad%20id", `{}`, nil, 400, "BAD-ID", ""},
		{"cancel", "r", `{}`, []string{edgetest.TenantHeader, "nobody"}, 401, "UNAUTHORIZED", ""},
	} {
		p := orderOnce(h, tt.run, tt.name, tt.body, tt.headers...).Expect(t, tt.status, tt.code)
		if p.Field != tt.field {
			t.Errorf("%s %.60s: field %q, want %q (%s)", tt.name, tt.body, p.Field, tt.field, p.Message)
		}
	}
	if n := h.Last("r"); n != 4 {
		t.Errorf("%d events", n)
	}
	if h.Last("missing") != 0 {
		t.Error("a command began a run")
	}
	foreign, missing := orderOnce(h, "r", "cancel", `{}`, edgetest.TenantHeader, "rival"), orderOnce(h, "gone",
		"cancel", `{}`)
	if a, b := foreign.Problem(t).Message, missing.Problem(t).Message; a != b {
		t.Errorf("foreign %q, missing %q", a, b)
	}
}

// TestCommandBy: who gives a command is said by its credential alone, and scopes count.
func TestCommandBy(t *testing.T) {
	who := auth.Caller{Tenant: "acme", Subject: `ann "a" <x>`, Scopes: auth.ScopeAll}
	var mu sync.Mutex
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) { mu.Lock(); defer mu.Unlock(); return who, nil }
	})
	h.Tell("r", edgetest.Lifecycle("running"))
	if a := orderOnce(h, "r", "pause", `{"by":"the boss","reason":"lunch","x":{"b":1,"a":1.50}}`); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if got, want := string(h.Event("r", 2).Payload), `{"by":"ann \"a\" <x>","reason":"lunch","x":{"b":1,"a":1.50}}`; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}
	mu.Lock()
	who.Scopes = auth.ScopeRead | auth.ScopeWrite
	mu.Unlock()
	orderOnce(h, "r", "resume", "").Expect(t, http.StatusForbidden, "FORBIDDEN")
}

// parents knows the roots of children.
type parents map[string]string

func (p parents) Parent(_ context.Context, tenant, child string) (string, error) {
	if tenant != "acme" {
		return "", nil
	}
	return p[child], nil
}

func (parents) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return nil, nil
}

// TestCommandForChild: by child_id in the run, and by the child's own id.
func TestCommandForChild(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = parents{"kid": "r"} })
	h.Tell("r", edgetest.Lifecycle("running"), `{"type":"child.spawn","payload":{"child_id":"kid"}}`, edgetest.ChildSpeaks)
	if a := orderOnce(h, "r", "pause", `{"child_id":"kid"}`); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	orderOnce(h, "kid", "pause", ``).Expect(t, 409, "STATE-FORBIDS")
	if a := orderOnce(h, "r", "pause", ``); a.Status != 202 { // the run itself was not told
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if a := orderOnce(h, "kid", "resume", ``); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for seq, want := range map[schema.Seq]string{4: "kid command.pause {}", 5: " command.pause {}",
		6: "kid command.resume {}"} {
		if e := h.Event("r", seq); e.ChildID+" "+e.Type+" "+string(e.Payload) != want {
			t.Errorf("%d is %+v", seq, e)
		}
	}
	orderOnce(h, "other", "pause", ``).Expect(t, 404, "NOT-FOUND")
	h.Tell("r", edgetest.Lifecycle("done"))
	orderOnce(h, "kid", "cancel", ``).Expect(t, 409, "STATE-FORBIDS")
	orderOnce(h, "kid", "messages", `{"content":"x"}`).Expect(t, 409, "RUN-ENDED")
}

// TestCommandRepeats: a repeat with its key gets the first answer, also when the state would refuse
// it by now. A refusal is not remembered.
func TestCommandRepeats(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("r", edgetest.Lifecycle("planning"), edgetest.AskPlan)
	orderOnce(h, "r", "approve_plan", `{}`, "Idempotency-Key", "k").Expect(t, 409, "STATE-FORBIDS")
	h.Tell("r", edgetest.Lifecycle("awaiting_approval"))
	const want = `{"first_seq":4,"last_seq":4,"command":"approve_plan"}` + "\n"
	if a := orderOnce(h, "r", "approve_plan", `{}`, "Idempotency-Key", "k"); a.Status != 202 || a.Body != want ||
		a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%d %s %v", a.Status, a.Body, a.Header)
	}
	h.Tell("r", edgetest.Lifecycle("running"), edgetest.Lifecycle("done"))
	for range 2 {
		if a := orderOnce(h, "r", "approve_plan", `{}`, "Idempotency-Key", "k"); a.Status != 200 || a.Body != want ||
			a.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%d %s %v", a.Status, a.Body, a.Header)
		}
	}
	orderOnce(h, "r", "approve_plan", `{"plan_id":"p1"}`, "Idempotency-Key", "k").Expect(t, 422, "KEY-REUSED")
	orderOnce(h, "r", "approve_plan", `{}`).Expect(t, 409, "STATE-FORBIDS")
	if n := h.Last("r"); n != 6 {
		t.Errorf("%d events", n)
	}
}

// TestOneApprovalCounts: of clients that decide at the same time, on two nodes, one does.
func TestOneApprovalCounts(t *testing.T) {
	h := edgetest.NewHouse(t)
	other := newHouseBeside(t, h)
	for round := range 10 {
		run := fmt.Sprintf("run_%d", round)
		h.Tell(run, edgetest.Lifecycle("planning"), edgetest.AskPlan, edgetest.Lifecycle("awaiting_approval"))
		var wg sync.WaitGroup
		answers := make([]edgetest.Reply, 20)
		for i := range answers {
			node := []*edgetest.House{h, other}[i%2]
			name := []string{"approve_plan", "reject_plan"}[i/2%2]
			wg.Go(func() { answers[i] = orderOnce(node, run, name, "") })
		}
		noise := make(chan error, 1)
		go func() { // an agent that speaks meanwhile
			for i := range 20 {
				e := schema.Event{Type: "progress", Payload: fmt.Appendf(nil, `{"done":%d}`, i)}
				if _, err := h.Appender.Append(context.Background(), schema.RunKey{Tenant: "acme", Run: run},
					[]schema.Event{e}, producers.AppendOptions{}); err != nil {
					noise <- err
					return
				}
			}
			noise <- nil
		}()
		wg.Wait()
		if err := <-noise; err != nil {
			t.Fatal(err)
		}
		taken := 0
		for _, a := range answers {
			if a.Status == 202 {
				taken++
				continue
			}
			a.Expect(t, 409, "STATE-FORBIDS")
		}
		if n := h.Last(run); taken != 1 || n != 24 {
			t.Errorf("round %d: %d were taken, %d events", round, taken, n)
		}
	}
}

// newHouseBeside is another node on the log of h.
func newHouseBeside(t *testing.T, h *edgetest.House) *edgetest.House {
	t.Helper()
	return edgetest.NewHouse(t, func(c *edge.Config) {
		app, err := producers.NewAppender(producers.AppenderConfig{Log: h.Log})
		if err != nil {
			t.Fatal(err)
		}
		c.Appender, c.Hub = app, h.Hub
	})
}

// TestCommandsAreSeen: a command is an event on every stream; a watcher that goes away is no command.
func TestCommandsAreSeen(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("r", edgetest.Lifecycle("running"))
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	watch := func(query string) *http.Response {
		req := h.Request("GET", "/v1/agent/runs/r/stream"+query, "")
		resp, err := h.Client.Do(req.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	streams := []*http.Response{watch(""), watch("?detail=full")}
	for _, name := range []string{"pause", "resume", "redirect", "messages"} {
		if a := orderOnce(h, "r", name, edgetest.Bodies[name]); a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for i, resp := range streams {
		got, buf := "", make([]byte, 4096)
		for !strings.Contains(got, "command.message") {
			n, err := resp.Body.Read(buf)
			if got += string(buf[:n]); err != nil {
				t.Fatalf("stream %d: %v after %q", i, err, got)
			}
		}
		for _, typ := range []string{"pause", "resume", "redirect"} {
			if !strings.Contains(got, `"type":"command.`+typ+`"`) {
				t.Errorf("stream %d lacks %s: %q", i, typ, got)
			}
		}
	}
	goAway()
	logged := func() int {
		return strings.Count(h.Logs.String(), `"message":"stream"`) + strings.Count(h.Logs.String(), `"msg":"stream"`)
	}
	edgetest.Eventually(t, "both streams ended", func() bool { return logged() == 2 })
	if a := orderOnce(h, "r", "cancel", ""); a.Status != 202 || h.Last("r") != 6 {
		t.Errorf("%d %s, %d events", a.Status, a.Body, h.Last("r"))
	}
}

// TestConflictNamesWhatWaits: a refusal names what the run waits for instead, and of many answers at once to one
// question one is taken.
func TestConflictNamesWhatWaits(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("r", edgetest.Lifecycle("running"), edgetest.AskInput, edgetest.AskCall2, edgetest.ChildSpeaks,
		edgetest.ChildAsks)
	a := orderOnce(h, "r", "answer", `{"request_id":"gone","answer":1}`).Expect(t, http.StatusConflict, "STATE-FORBIDS")
	if !strings.Contains(a.Message, `waits for answer "q1", answer "c2", answer "k1" of "kid"`) {
		t.Errorf("%q", a.Message)
	}
	var all sync.WaitGroup
	status := make([]int, 8)
	for i := range status {
		all.Go(func() {
			status[i] = orderOnce(h, "r", "answer", fmt.Sprintf(`{"request_id":"q1","answer":%d}`, i)).Status
		})
	}
	all.Wait()
	slices.Sort(status)
	if fmt.Sprint(status) != "[202 409 409 409 409 409 409 409]" {
		t.Errorf("eight answers to one question: %v", status)
	}
}
