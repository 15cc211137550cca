package edge_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// TestPutRun: the first PUT begins the run, every later one tells where it stands and stores nothing,
// whatever its body asks for.
func TestPutRun(t *testing.T) {
	h := edgetest.NewHouse(t)
	const path = "/v1/agent/runs/run"
	put := func(body string, status int, want string) edgetest.Reply {
		t.Helper()
		a := h.Do("PUT", path, body, "Content-Type", "application/json")
		if a.Status != status || a.Body != want+"\n" {
			t.Errorf("PUT %s: %d %s, want %d %s", body, a.Status, a.Body, status, want)
		}
		return a
	}
	a := put(`{"planning_gate":"required","run_id":"run"}`, 201,
		`{"first_seq":1,"last_seq":1,"run_id":"run","state":"planning"}`)
	if a.Header.Get("Location") != path {
		t.Errorf("location %q", a.Header.Get("Location"))
	}
	for _, body := range []string{"", "{}", `{"planning_gate":"off"}`, `{"run_id":null,"unknown":1}`} {
		a := put(body, 200, `{"first_seq":1,"last_seq":1,"run_id":"run","state":"planning"}`)
		if a.Header.Get("Location") != "" {
			t.Errorf("%s: location %q, and nothing was created", body, a.Header.Get("Location"))
		}
	}
	h.Do("POST", path+"/events", `{"type":"progress"}`+"\n"+
		`{"type":"run.lifecycle","payload":{"state":"done","reason":null}}`)
	put("", 200, `{"first_seq":1,"last_seq":3,"run_id":"run","state":"done"}`)
	if n := h.Last("run"); n != 3 {
		t.Errorf("the run holds %d events", n)
	}
	events := h.Do("GET", path+"/events", "")
	if n := strings.Count(events.Body, `"run.lifecycle"`); n != 2 {
		t.Errorf("%d lifecycle events: %s", n, events.Body)
	}

	// A run that began with an event has no state yet, and POST and PUT begin the same run.
	h.Do("POST", "/v1/agent/runs/bare/events", `{"type":"progress"}`)
	if a := h.Do("PUT", "/v1/agent/runs/bare", ""); a.Status != 200 ||
		a.Body != `{"first_seq":1,"last_seq":1,"run_id":"bare","state":""}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	h.Do("POST", "/v1/agent/runs", `{"run_id":"run"}`).Expect(t, 409, "RUN-EXISTS")
}

// TestPutRunRefuses: what is not understood begins nothing.
func TestPutRunRefuses(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, tt := range []struct {
		path, body, ctype string
		status            int
		code              string
	}{
		{"run", `{"run_id":"other"}`, "application/json", 400, "BAD-REQUEST"},
		{"run", `{"run_id":""}`, "application/json", 400, "BAD-REQUEST"},
		{"run", `{"run_id":7}`, "application/json", 400, "BAD-REQUEST"},
		{"run", `{"planning_gate":"open"}`, "application/json", 400, "BAD-REQUEST"},
		{"run", `[]`, "application/json", 400, "BAD-REQUEST"},
		{"run", `{`, "application/json", 400, "BAD-REQUEST"},
		{"run", `{}{}`, "application/json", 400, "BAD-REQUEST"},
		{"run", "\xff", "text/plain", 400, "BAD-REQUEST"},
		{"run", `{}`, "application/x-ndjson", 415, "UNSUPPORTED-MEDIA-TYPE"},
		{"run", strings.Repeat(" ", 9<<20), "application/json", 413, schema.CodeMalformed},
		{"-", `{}`, "application/json", 400, "BAD-ID"},
		{"a.b", `{}`, "application/json", 400, "BAD-ID"},
		{"a%2Fb", `{}`, "application/json", 400, "BAD-ID"},
		{strings.Repeat("a", 129), `{}`, "application/json", 400, "BAD-ID"},
	} {
		h.Do("PUT", "/v1/agent/runs/"+tt.path, tt.body, "Content-Type", tt.ctype).Expect(t, tt.status, tt.code)
	}
	if n := h.Last("run"); n != 0 {
		t.Errorf("a refused request stored %d events", n)
	}
}

// TestPutRunTenants: a run of the same name belongs to each tenant by itself, and the answer tells
// nothing of the other's.
func TestPutRunTenants(t *testing.T) {
	m := newMatrix(t)
	m.has("acme", "run")
	if a := m.Do("PUT", "/v1/agent/runs/run", "", edgetest.TenantHeader, "zeta"); a.Status != 201 ||
		!strings.Contains(a.Body, `"last_seq":1,`) {
		t.Errorf("zeta's own: %d %s", a.Status, a.Body)
	}
	if a := m.Do("PUT", "/v1/agent/runs/run", "", edgetest.TenantHeader, "acme"); a.Status != 200 ||
		strings.Contains(a.Body, `"last_seq":1,`) {
		t.Errorf("acme's, which has a pack of three: %d %s", a.Status, a.Body)
	}
}

// TestPutRunAtOnce: of many that ask at the same time one begins the run, and the log has one event.
func TestPutRunAtOnce(t *testing.T) {
	h := edgetest.NewHouse(t)
	for round := range 5 {
		run := fmt.Sprintf("run_%d", round)
		var all sync.WaitGroup
		got := make([]edgetest.Reply, 16)
		for i := range got {
			all.Go(func() { got[i] = h.Do("PUT", "/v1/agent/runs/"+run, "") })
		}
		all.Wait()
		created := 0
		for _, a := range got {
			if a.Status == 201 {
				created++
			} else if a.Status != 200 {
				t.Errorf("%s: %d %s", run, a.Status, a.Body)
			}
			if !strings.HasPrefix(a.Body, `{"first_seq":1,"last_seq":1,`) {
				t.Errorf("%s: %s", run, a.Body)
			}
		}
		if created != 1 || h.Last(run) != 1 {
			t.Errorf("%s: begun %d times, %d events", run, created, h.Last(run))
		}
	}
}
