package edge_test

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
	"agentstream/producers"
	"agentstream/schema"
)

const (
	askPlan     = `{"type":"plan.proposal","payload":{"plan":{"id":"p1","steps":[]},"planning_gate":"required"}}`
	showPlan    = `{"type":"plan.proposal","payload":{"plan":{"id":"p1","steps":[]},"planning_gate":"preview"}}`
	askInput    = `{"type":"input.requested","payload":{"request_id":"q1","prompt":"Which?"}}`
	askCall     = `{"type":"tool.start","payload":{"call_id":"q1","tool":"delete","input":{},"permission":"ask"}}`
	askCall2    = `{"type":"tool.start","payload":{"call_id":"c2","tool":"ask","input":{},"custom":true}}`
	childAsks   = `{"type":"input.requested","child_id":"kid","payload":{"request_id":"k1","prompt":"Where?"}}`
	askOfCall   = `{"type":"input.requested","payload":{"request_id":"q1","call_id":"q1"}}`
	endCall     = `{"type":"tool.end","payload":{"call_id":"q1","ok":false,"error":"KAI-TOOL-CANCEL-0001"}}`
	childSpeaks = `{"type":"run.lifecycle","child_id":"kid","payload":{"state":"running"}}`
)

func lifecycle(state string) string {
	return `{"type":"run.lifecycle","payload":{"state":"` + state + `"}}`
}

func endTurn(why string) string {
	return `{"type":"turn.end","payload":{"turn_id":"t","stop_reason":"` + why + `"}}`
}

func commandLine(name, payload string) string {
	return `{"type":"command.` + name + `","actor":"user","payload":` + payload + `}`
}

// situations are runs in each state that a command may meet, with the commands that they take.
var situations = []struct {
	name  string
	lines []string
	takes string
}{
	{"nothing said of its state", []string{`{"type":"text.delta","payload":{"text":"hi"}}`}, "pause redirect cancel messages"},
	{"planning", []string{lifecycle("planning")}, "pause redirect cancel messages"},
	{"plan shown, approval not awaited yet", []string{lifecycle("planning"), askPlan}, "pause redirect cancel messages"},
	{"approval awaited", []string{lifecycle("planning"), askPlan, lifecycle("awaiting_approval")}, "approve_plan reject_plan redirect cancel messages"},
	{"approved", []string{lifecycle("planning"), askPlan, lifecycle("awaiting_approval"), commandLine("approve_plan", `{}`)}, "redirect cancel messages"},
	{"rejected", []string{lifecycle("planning"), askPlan, lifecycle("awaiting_approval"), commandLine("reject_plan", `{}`)}, "redirect cancel messages"},
	{"approval awaited without a plan", []string{lifecycle("awaiting_approval")}, "redirect cancel messages"},
	{"preview, planning", []string{lifecycle("planning"), showPlan}, "approve_plan reject_plan pause redirect cancel messages"},
	{"preview, running", []string{lifecycle("planning"), showPlan, lifecycle("running")}, "approve_plan reject_plan pause redirect cancel messages"},
	{"preview, done", []string{lifecycle("planning"), showPlan, lifecycle("done")}, "messages"},
	{"running", []string{lifecycle("running")}, "pause redirect cancel messages"},
	{"told to pause", []string{lifecycle("running"), commandLine("pause", `{}`)}, "resume redirect cancel messages"},
	{"told to pause and not to", []string{lifecycle("running"), commandLine("pause", `{}`), commandLine("resume", `{}`)}, "pause redirect cancel messages"},
	{"paused", []string{lifecycle("running"), lifecycle("paused")}, "resume redirect cancel messages"},
	{"told to resume", []string{lifecycle("paused"), commandLine("resume", `{}`)}, "redirect cancel messages"},
	{"redirecting", []string{lifecycle("redirecting")}, "redirect cancel messages"},
	{"told to cancel", []string{lifecycle("running"), commandLine("cancel", `{}`)}, "pause redirect messages"},
	{"asked", []string{lifecycle("running"), askInput}, "pause redirect cancel answer messages"},
	{"asked and answered", []string{lifecycle("running"), askInput, commandLine("answer", `{"request_id":"q1","answer":1}`)}, "pause redirect cancel messages"},
	{"asked and over", []string{lifecycle("running"), askInput, lifecycle("aborted")}, "messages"},
	{"asked, and the turn cancelled", []string{lifecycle("running"), askInput, endTurn("cancelled")}, "pause redirect cancel messages"},
	{"asked, and the turn interrupted by it", []string{lifecycle("running"), askInput, endTurn("interrupted")}, "pause redirect cancel answer messages"},
	{"asked about a call that has ended", []string{lifecycle("running"), askCall, askOfCall, endCall}, "pause redirect cancel messages"},
	{"a call asks", []string{lifecycle("running"), askCall}, "pause redirect cancel answer messages"},
	{"a call has asked", []string{lifecycle("running"), askCall, endCall}, "pause redirect cancel messages"},
	{"asked, and told to cancel", []string{lifecycle("running"), askInput, commandLine("cancel", `{}`)}, "pause redirect answer messages"},
	{"asked, and cancelled behind the turn", []string{lifecycle("running"), askInput, endTurn("end_turn"), commandLine("cancel", `{}`)}, "pause redirect messages"},
	{"asked, aborted and begun anew", []string{lifecycle("running"), askInput, lifecycle("aborted"), commandLine("message", `{"content":"and?"}`)}, "pause redirect cancel messages"},
	{"done", []string{lifecycle("done")}, "messages"},
	{"aborted", []string{lifecycle("aborted")}, "messages"},
	{"error", []string{lifecycle("error")}, "messages"},
	{"taken up again", []string{lifecycle("done"), commandLine("message", `{"content":"and?"}`)}, "pause redirect cancel messages"},
}

// bodies are what each command brings in these tests.
var bodies = map[string]string{
	"approve_plan": `{"plan_id":"p1"}`, "reject_plan": `{"reason":"dear"}`, "pause": ``, "resume": `{}`,
	"redirect": `{"instruction":"look at <latency> & cost"}`, "cancel": `{"reason":null}`,
	"answer": `{"request_id":"q1","answer":{"choice":[1,2]}}`, "messages": `{"content":"and readers?","message_id":"u1"}`,
}

func (h *house) tell(run string, lines ...string) {
	h.t.Helper()
	if a := h.do("POST", "/v1/agent/runs/"+run+"/events", strings.Join(lines, "\n")); a.status != 200 {
		h.t.Fatalf("%d %s", a.status, a.body)
	}
}

func (h *house) order(run, name, body string, headers ...string) answer {
	h.t.Helper()
	return h.do("POST", "/v1/agent/runs/"+run+"/"+name, body, headers...)
}

// event reads one event back.
func (h *house) event(run string, seq schema.Seq) schema.Event {
	h.t.Helper()
	a := h.do("GET", fmt.Sprintf("/v1/agent/runs/%s/events?after=%d&limit=1", run, seq-1), "")
	var page struct{ Events []schema.Event }
	if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Events) != 1 {
		h.t.Fatalf("%v: %s", err, a.body)
	}
	return page.Events[0]
}

// TestCommandMatrix: every command in every situation is taken or refused as the table says; what is
// taken is an event, what is refused leaves no trace.
func TestCommandMatrix(t *testing.T) {
	h := newHouse(t)
	for i, s := range situations {
		for name, body := range bodies {
			run := fmt.Sprintf("run_%d_%s", i, name)
			h.tell(run, s.lines...)
			last := h.last(run)
			a := h.order(run, name, body)
			if !slices.Contains(strings.Fields(s.takes), name) {
				if p := a.expect(t, http.StatusConflict, "STATE-FORBIDS"); schema.Seq(p.LastSeq) != last || !strings.HasPrefix(p.Message, name+" in state ") {
					t.Errorf("%s in %q: %+v", name, s.name, p)
				}
				if h.last(run) != last {
					t.Errorf("%s in %q was refused and stored", name, s.name)
				}
				continue
			}
			if want := fmt.Sprintf(`{"first_seq":%d,"last_seq":%d,"command":%q}`+"\n", last+1, last+1, name); a.status != http.StatusAccepted || a.body != want {
				t.Errorf("%s in %q: %d %s, want %s", name, s.name, a.status, a.body, want)
				continue
			}
			e := h.event(run, last+1)
			if want := "command." + strings.TrimSuffix(name, "s"); e.Type != want || e.Actor != "user" || e.ChildID != "" {
				t.Errorf("%s in %q became %+v", name, s.name, e)
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
	h := newHouse(t)
	h.tell("r", lifecycle("planning"), askPlan, lifecycle("awaiting_approval"), childSpeaks)
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
		{"cancel", "r", `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, nil, 400, schema.CodeMalformed, ""},
		{"cancel", "r", `{"reason":"` + strings.Repeat("x", 600<<10) + `"}`, nil, 413, schema.CodeMalformed, ""},
		{"messages", "r", ``, nil, 400, schema.CodeMalformed, ""},
		{"messages", "r", `{"content":7}`, nil, 400, schema.CodeMalformed, "/content"},
		{"answer", "r", `{"answer":1}`, nil, 400, schema.CodeMalformed, ""},
		{"answer", "r", `{"request_id":"q9"}`, nil, 409, "STATE-FORBIDS", ""},
		{"cancel", "r", `{}`, []string{"Content-Type", "text/html"}, 415, "UNSUPPORTED-MEDIA-TYPE", ""},
		{"cancel", "r", `{}`, []string{"Idempotency-Key", ""}, 400, "BAD-REQUEST", ""},
		{"cancel", "r", `{}`, []string{tenantHeader, "rival"}, 404, "NOT-FOUND", ""},
		{"cancel", "missing", `{}`, nil, 404, "NOT-FOUND", ""},
		{"cancel", "bad%20id", `{}`, nil, 400, "BAD-ID", ""},
		{"cancel", "r", `{}`, []string{tenantHeader, "nobody"}, 401, "UNAUTHORIZED", ""},
	} {
		p := h.order(tt.run, tt.name, tt.body, tt.headers...).expect(t, tt.status, tt.code)
		if p.Field != tt.field {
			t.Errorf("%s %.60s: field %q, want %q (%s)", tt.name, tt.body, p.Field, tt.field, p.Message)
		}
	}
	if n := h.last("r"); n != 4 {
		t.Errorf("%d events", n)
	}
	if h.last("missing") != 0 {
		t.Error("a command began a run")
	}
	foreign, missing := h.order("r", "cancel", `{}`, tenantHeader, "rival"), h.order("gone", "cancel", `{}`)
	if a, b := foreign.problem(t).Message, missing.problem(t).Message; a != b {
		t.Errorf("foreign %q, missing %q", a, b)
	}
}

// TestCommandBy: who gives a command is said by its credential alone, and scopes count.
func TestCommandBy(t *testing.T) {
	who := auth.Caller{Tenant: "acme", Subject: `ann "a" <x>`, Scopes: auth.ScopeAll}
	var mu sync.Mutex
	h := newHouse(t, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) { mu.Lock(); defer mu.Unlock(); return who, nil }
	})
	h.tell("r", lifecycle("running"))
	if a := h.order("r", "pause", `{"by":"the boss","reason":"lunch","x":{"b":1,"a":1.50}}`); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got, want := string(h.event("r", 2).Payload), `{"by":"ann \"a\" <x>","reason":"lunch","x":{"b":1,"a":1.50}}`; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}
	mu.Lock()
	who.Scopes = auth.ScopeRead | auth.ScopeWrite
	mu.Unlock()
	h.order("r", "resume", "").expect(t, http.StatusForbidden, "FORBIDDEN")
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
	h := newHouse(t, func(c *edge.Config) { c.Catalog = parents{"kid": "r"} })
	h.tell("r", lifecycle("running"), `{"type":"child.spawn","payload":{"child_id":"kid"}}`, childSpeaks)
	if a := h.order("r", "pause", `{"child_id":"kid"}`); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	h.order("kid", "pause", ``).expect(t, 409, "STATE-FORBIDS")
	if a := h.order("r", "pause", ``); a.status != 202 { // the run itself was not told
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := h.order("kid", "resume", ``); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for seq, want := range map[schema.Seq]string{4: "kid command.pause {}", 5: " command.pause {}", 6: "kid command.resume {}"} {
		if e := h.event("r", seq); e.ChildID+" "+e.Type+" "+string(e.Payload) != want {
			t.Errorf("%d is %+v", seq, e)
		}
	}
	h.order("other", "pause", ``).expect(t, 404, "NOT-FOUND")
	h.tell("r", lifecycle("done"))
	h.order("kid", "cancel", ``).expect(t, 409, "STATE-FORBIDS")
	h.order("kid", "messages", `{"content":"x"}`).expect(t, 409, "RUN-ENDED")
}

// TestCommandRepeats: a repeat with its key gets the first answer, also when the state would refuse
// it by now. A refusal is not remembered.
func TestCommandRepeats(t *testing.T) {
	h := newHouse(t)
	h.tell("r", lifecycle("planning"), askPlan)
	h.order("r", "approve_plan", `{}`, "Idempotency-Key", "k").expect(t, 409, "STATE-FORBIDS")
	h.tell("r", lifecycle("awaiting_approval"))
	const want = `{"first_seq":4,"last_seq":4,"command":"approve_plan"}` + "\n"
	if a := h.order("r", "approve_plan", `{}`, "Idempotency-Key", "k"); a.status != 202 || a.body != want || a.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	h.tell("r", lifecycle("running"), lifecycle("done"))
	for range 2 {
		if a := h.order("r", "approve_plan", `{}`, "Idempotency-Key", "k"); a.status != 200 || a.body != want || a.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
	}
	h.order("r", "approve_plan", `{"plan_id":"p1"}`, "Idempotency-Key", "k").expect(t, 422, "KEY-REUSED")
	h.order("r", "approve_plan", `{}`).expect(t, 409, "STATE-FORBIDS")
	if n := h.last("r"); n != 6 {
		t.Errorf("%d events", n)
	}
}

// TestOneApprovalCounts: of clients that decide at the same time, on two nodes, one does.
func TestOneApprovalCounts(t *testing.T) {
	h := newHouse(t)
	other := newHouseBeside(t, h)
	for round := range 10 {
		run := fmt.Sprintf("run_%d", round)
		h.tell(run, lifecycle("planning"), askPlan, lifecycle("awaiting_approval"))
		var wg sync.WaitGroup
		answers := make([]answer, 20)
		for i := range answers {
			node := []*house{h, other}[i%2]
			name := []string{"approve_plan", "reject_plan"}[i/2%2]
			wg.Go(func() { answers[i] = node.order(run, name, "") })
		}
		noise := make(chan error, 1)
		go func() { // an agent that speaks meanwhile
			for i := range 20 {
				e := schema.Event{Type: "progress", Payload: fmt.Appendf(nil, `{"done":%d}`, i)}
				if _, err := h.app.Append(context.Background(), schema.RunKey{Tenant: "acme", Run: run}, []schema.Event{e}, producers.AppendOptions{}); err != nil {
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
			if a.status == 202 {
				taken++
				continue
			}
			a.expect(t, 409, "STATE-FORBIDS")
		}
		if n := h.last(run); taken != 1 || n != 24 {
			t.Errorf("round %d: %d were taken, %d events", round, taken, n)
		}
	}
}

// newHouseBeside is another node on the log of h.
func newHouseBeside(t *testing.T, h *house) *house {
	t.Helper()
	return newHouse(t, func(c *edge.Config) {
		app, err := producers.NewAppender(producers.AppenderConfig{Log: h.log})
		if err != nil {
			t.Fatal(err)
		}
		c.Appender, c.Hub = app, h.hub
	})
}

// TestCommandsAreSeen: a command is an event on every stream; a watcher that goes away is no command.
func TestCommandsAreSeen(t *testing.T) {
	h := newHouse(t)
	h.tell("r", lifecycle("running"))
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	watch := func(query string) *http.Response {
		req := h.request("GET", "/v1/agent/runs/r/stream"+query, "")
		resp, err := h.client.Do(req.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	streams := []*http.Response{watch(""), watch("?detail=full")}
	for _, name := range []string{"pause", "resume", "redirect", "messages"} {
		if a := h.order("r", name, bodies[name]); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
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
		return strings.Count(h.logs.String(), `"message":"stream"`) + strings.Count(h.logs.String(), `"msg":"stream"`)
	}
	eventually(t, "both streams ended", func() bool { return logged() == 2 })
	if a := h.order("r", "cancel", ""); a.status != 202 || h.last("r") != 6 {
		t.Errorf("%d %s, %d events", a.status, a.body, h.last("r"))
	}
}

// TestConflictNamesWhatWaits: a refusal names what the run waits for instead, and of many answers at once to one question one is taken.
func TestConflictNamesWhatWaits(t *testing.T) {
	h := newHouse(t)
	h.tell("r", lifecycle("running"), askInput, askCall2, childSpeaks, childAsks)
	a := h.order("r", "answer", `{"request_id":"gone","answer":1}`).expect(t, http.StatusConflict, "STATE-FORBIDS")
	if !strings.Contains(a.Message, `waits for answer "q1", answer "c2", answer "k1" of kid`) {
		t.Errorf("%q", a.Message)
	}
	var all sync.WaitGroup
	status := make([]int, 8)
	for i := range status {
		all.Go(func() { status[i] = h.order("r", "answer", fmt.Sprintf(`{"request_id":"q1","answer":%d}`, i)).status })
	}
	all.Wait()
	slices.Sort(status)
	if fmt.Sprint(status) != "[202 409 409 409 409 409 409 409]" {
		t.Errorf("eight answers to one question: %v", status)
	}
}
