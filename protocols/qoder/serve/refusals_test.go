package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/protocols/qoder"
	"agentstream/protocols/qoder/serve"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestEmptySegments asks every path with nothing where an id belongs: nothing is there, whatever is asked and however.
func TestEmptySegments(t *testing.T) {
	h := newHouse(t, true)
	h.fill("run", schematest.ByName("children"), 8)
	type path struct{ method, path string }
	var paths []path
	seen := map[string]bool{}
	for _, rt := range routesOf() {
		method, pattern, _ := strings.Cut(rt, " ")
		for _, at := range []string{"{run}", "{thread}"} {
			if !strings.Contains(pattern, at) {
				continue
			}
			p := strings.NewReplacer("{run}", "run", "{thread}", "thread").Replace(strings.Replace(pattern, at, "", 1))
			if !seen[method+p] {
				seen[method+p] = true
				paths = append(paths, path{method, p})
			}
		}
	}
	if len(paths) < 3*18 {
		t.Fatalf("only %d paths", len(paths))
	}
	body := `{"events":[{"type":"user.message","content":"x"}]}`
	for _, p := range paths {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			a := h.do(p.method, p.path, map[bool]string{true: body}[p.method == "POST" || p.method == "PATCH"],
				"Accept", accept, "Content-Type", "application/json")
			if a.Status == http.StatusBadRequest || a.Status == http.StatusMethodNotAllowed &&
				strings.HasSuffix(p.path, "/sessions/") {
				a.refused(a.Status, "invalid_request_error") // a body that the other route does not take
				continue
			}
			a.refused(404, "not_found_error")
		}
	}
	// What is encoded is a name, and none that anything has.
	for _, thread := range []string{"%20", "%00", ".", "%2e", "%2F", "%2f%2f", "%25", "%E2%80%8B"} {
		for _, tail := range []string{"", "/events", "/stream"} {
			h.do("GET", cloud+"/run/threads/"+thread+tail, "").refused(404, "not_found_error")
		}
	}
}

// routesOf returns the patterns of all routes and streams of the dialect.
func routesOf() (patterns []string) {
	for _, rt := range serve.Protocol(spoken).Routes {
		patterns = append(patterns, rt.Pattern)
	}
	for _, st := range serve.Protocol(spoken).Streams {
		patterns = append(patterns, st.Pattern)
	}
	return patterns
}

// TestOpenServerSaysWhoMay: a name that is not of this machine is told so in the dialect's words.
func TestOpenServerSaysWhoMay(t *testing.T) {
	o, err := auth.NewOpen(auth.Caller{Tenant: tenant, Scopes: auth.ScopeAll}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, false, func(c *edge.Config) { c.Authenticate = o.Authenticate })
	for _, base := range qoder.Bases() {
		a := h.do("GET", base+"/sessions/run/events", "", "Host", "agents.example")
		a.refused(403, "permission_error")
		if !strings.Contains(a.Body, "without authentication") || !strings.Contains(a.Body, `"code":"forbidden"`) {
			t.Errorf("%s: %s", base, a.Body)
		}
	}
}

// TestBodiesAreUTF8: fields that nobody reads as well.
func TestBodiesAreUTF8(t *testing.T) {
	h := newHouse(t, false)
	h.fill("run", schematest.ByName("session"), 8)
	last := h.head("run").Last
	for _, c := range []struct{ method, path, body string }{
		{"POST", cloud, "{\"agent\":\"a\",\"environment_id\":\"e\",\"note\":\"\xff\"}"},
		{"POST", cloud + "/run", "{\"title\":\"x\",\"note\":\"\xff\"}"},
		{"PATCH", cloud + "/run", "{\"title\":\"x\",\"\xff\":1}"},
		{"POST", cloud + "/run/events", "{\"events\":[{\"type\":\"user.message\",\"content\":\"x\"}],\"note\":\"\xff\"}"},
		{"POST", cloud + "/run/events", "{\"events\":[{\"type\":\"user.interrupt\",\"note\":{\"a\":[\"\xff\"]}}]}"},
	} {
		a := h.do(c.method, c.path, c.body)
		a.refused(400, "invalid_request_error")
		if !strings.Contains(a.Body, "UTF-8") {
			t.Errorf("%s: %s", a.Asked, a.Body)
		}
	}
	if now := h.head("run").Last; now != last {
		t.Errorf("newest event is %d, was %d", now, last)
	}
}

// TestAnsweredBehindAnInterrupt: a result is taken behind an interrupt, until the turn has ended.
func TestAnsweredBehindAnInterrupt(t *testing.T) {
	h := newHouse(t, false)
	for _, over := range []bool{false, true} {
		id := h.create(plainBody)
		body := fmt.Sprintf(`{"events":[{"type":"user.tool_confirmation","tool_use_id":%q,"result":"allow"}]}`, h.waits(id))
		h.do("POST", eventsPath(id, ""), `{"events":[{"type":"user.interrupt"}]}`).OK(200)
		if !over {
			h.do("POST", eventsPath(id, ""), body).OK(200)
			continue
		}
		h.says(id, event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
		a := h.do("POST", eventsPath(id, ""), body)
		a.refused(400, "invalid_request_error")
		if !strings.Contains(a.Body, "is no tool use of this session that waits or is open") {
			t.Errorf("%s", a.Body)
		}
	}
}
