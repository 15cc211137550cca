package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// listedPage is the answer of GET /v1/agent/runs.
type listedPage struct {
	Runs       []map[string]any `json:"runs"`
	NextCursor *string          `json:"next_cursor"`
}

func (p listedPage) ids() (ids []string) {
	for _, r := range p.Runs {
		ids = append(ids, r["run_id"].(string))
	}
	return ids
}

func listRuns(h *edgetest.House, query string, headers ...string) listedPage {
	h.T.Helper()
	a := h.Do("GET", "/v1/agent/runs"+query, "", headers...)
	var p listedPage
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != 200 || p.Runs == nil {
		h.T.Fatalf("%s: %d %v %s", query, a.Status, err, a.Body)
	}
	return p
}

// withRuns returns a house whose catalog holds runs run_00 … of two tenants.
func withRuns(t *testing.T, n int) (*edgetest.House, *persistertest.Memory) {
	store := persistertest.NewMemory()
	for i := range n {
		for _, tenant := range []string{"acme", "globex"} {
			w := persistertest.NewWriter(schema.RunKey{Tenant: tenant, Run: fmt.Sprintf("run_%02d", i)},
				fmt.Sprintf("202602%02d", 1+i/3))
			states := []schema.RunState{schema.StateRunning, schema.StateDone, schema.StateError}
			persistertest.Put(t, store, w.Texts("kid", 2), w.Pack("", persistertest.Lifecycle(states[i%3])))
		}
	}
	return edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = store }), store
}

func TestListRuns(t *testing.T) {
	store := persistertest.NewMemory()
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = store })
	if a := h.Do("GET", "/v1/agent/runs", ""); a.Body != `{"runs":[],"next_cursor":null}`+"\n" ||
		a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", a.Body, a.Header)
	}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	persistertest.Put(t, store, w.Texts("", 1),
		w.Pack("", persistertest.Event(schema.TypeMessageEnd,
			`{"message_id":"m","usage":{"output_tokens":7,"input_tokens":3}}`)))
	want := `{"run_id":"run_1","state":"","reason":null,"last_seq":2,"started_at":"2026-02-28T23:59:01.000Z",` +
		`"updated_at":"2026-02-28T23:59:02.000Z","ended_at":null,"waits_for":null,"asked_at":null,"waits_since":null,"usage":{"input_tokens":3,"output_tokens":7},"title":null,"opening":null,"tags":[],"metadata":null,"agent":null,"model":null,"cost_usd":null,"unpriced_models":[""]}`
	if a := h.Do("GET", "/v1/agent/runs", ""); a.Body != `{"runs":[`+want+`],"next_cursor":null}`+"\n" {
		t.Errorf("%s", a.Body)
	}
	persistertest.Put(t, store, w.Pack("kid", persistertest.Event(schema.TypeInputRequested, `{"request_id":"q"}`)))
	if l := listRuns(h, "?waits=true"); len(l.Runs) != 1 || l.Runs[0]["waits_for"] != "answer" ||
		l.Runs[0]["asked_at"] != "2026-02-28T23:59:03.000Z" || l.Runs[0]["waits_since"] != l.Runs[0]["asked_at"] {
		t.Errorf("%v", l)
	}
	persistertest.Put(t, store, w.Pack("", persistertest.Event("command.answer", `{"request_id":"q"}`)))
	if l := listRuns(h, "?waits=true"); len(l.Runs) != 0 || listRuns(h, "?waits=false").Runs[0]["waits_for"] != nil {
		t.Errorf("%v", l)
	}
	persistertest.Put(t, store, w.Pack("", persistertest.Event(schema.TypeRunLifecycle,
		`{"state":"error","reason":"out of \"tokens\" <&>"}`)))
	if r := listRuns(h, "").Runs[0]; r["state"] != "error" || r["reason"] != `out of "tokens" <&>` ||
		r["ended_at"] != "2026-02-28T23:59:05.000Z" || r["last_seq"] != 5.0 {
		t.Errorf("%v", r)
	}
	if a := h.Do("HEAD", "/v1/agent/runs", ""); a.Status != 200 || a.Body != "" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}

func TestListRunsInPages(t *testing.T) {
	h, store := withRuns(t, 40)
	for _, limit := range []int{1, 7, 39, 40, 41, 200} {
		var ids []string
		query := fmt.Sprintf("?limit=%d", limit)
		for more, page := query, 0; ; page++ {
			p := listRuns(h, more)
			ids = append(ids, p.ids()...)
			if p.NextCursor == nil {
				break
			}
			if len(p.Runs) != limit {
				t.Fatalf("page %d of %d has %d runs and a cursor", page, limit, len(p.Runs))
			}
			if limit == 7 { // a newer run does not move what follows
				w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("new_%d", page)}, "20270101")
				persistertest.Put(t, store, w.Texts("", 1))
			}
			more = query + "&cursor=" + url.QueryEscape(*p.NextCursor)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return strings.HasPrefix(id, "new_") })
		if len(ids) != 40 || !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Fatalf("pages of %d: %q", limit, ids)
		}
	}
}

func TestListRunsOfStatesAndTimes(t *testing.T) {
	h, _ := withRuns(t, 12)
	for query, want := range map[string]string{
		"?state=error":                       "run_11 run_08 run_05 run_02",
		"?state=running,done&limit=3":        "run_10 run_09 run_07",
		"?state=running&state=running,":      "run_09 run_06 run_03 run_00",
		"?state=paused":                      "",
		"?since=2026-02-04T00:00:00Z":        "run_11 run_10 run_09",
		"?since=2026-02-05T00:59:01%2B01:00": "run_11 run_10 run_09",
		"?since=2026-02-04T23:59:01.001Z":    "",
		"?until=2026-02-01T23:59:01.001Z":    "run_02 run_01 run_00",
		"?until=2026-02-01T23:59:01Z":        "",
		"?since=2026-02-02T00:00:00Z&until=2026-02-03T00:00:00Z&order=started": "run_05 run_04 run_03",
		"?unknown=1&limit=1":                  "run_11",
		"?q=RUN_1":                            "run_11 run_10",
		"?q=run_0+3&state=running":            "run_03",
		"?order=events&direction=asc&limit=2": "run_00 run_01",
	} {
		if got := strings.Join(listRuns(h, query).ids(), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestListRunsRefuses(t *testing.T) {
	h, _ := withRuns(t, 1)
	for query, code := range map[string]string{
		"?cursor=garbage": "BAD-CURSOR", "?cursor=17": "BAD-CURSOR", "?cursor=MS43LjAuKg": "BAD-CURSOR",
		"?cursor=%00": "BAD-CURSOR", "?cursor=" + strings.Repeat("A", 4000): "BAD-CURSOR",
		"?cursor=a&cursor=b": "BAD-REQUEST", "?limit=0": "BAD-REQUEST", "?limit=201": "BAD-REQUEST",
		"?limit=x": "BAD-REQUEST", "?limit=1&limit=1": "BAD-REQUEST",
		"?state=dead": "BAD-REQUEST", "?state=Running": "BAD-REQUEST", "?state=running,x'--": "BAD-REQUEST",
		"?since=yesterday": "BAD-REQUEST", "?until=2026-02-30T00:00:00Z": "BAD-REQUEST",
		"?since=1&since=2": "BAD-REQUEST", "?order=cost": "BAD-REQUEST", "?direction=up": "BAD-REQUEST",
		"?q=" + strings.Repeat("x", 201): "BAD-REQUEST", "?q=a+b+c+d+e+f+g+h+i": "BAD-REQUEST",
		"?tag=%FF": "BAD-REQUEST", "?order=desc": "BAD-REQUEST", "?a;b": "BAD-REQUEST",
	} {
		h.Do("GET", "/v1/agent/runs"+query, "").Expect(t, 400, code)
	}
	h.Do("GET", "/v1/agent/runs", "", edgetest.TenantHeader, "nobody").Expect(t, 401, "UNAUTHORIZED")
	if p := listRuns(h, "", edgetest.TenantHeader, "initech"); len(p.Runs) != 0 {
		t.Errorf("another tenant sees %v", p.Runs)
	}
	if p := listRuns(h, "", edgetest.TenantHeader, "globex"); len(p.Runs) != 1 {
		t.Errorf("globex sees %v", p.Runs)
	}
}

// away is a catalog whose database does not answer.
type away struct{ edgetest.Family }

func (away) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return nil, errors.New("dial tcp 10.1.2.3:5432: refused")
}

func TestListRunsWithoutArchive(t *testing.T) {
	h := edgetest.NewHouse(t)
	if p := h.Do("GET", "/v1/agent/runs", "").Expect(t, 501, "NO-CATALOG"); !strings.Contains(p.Message, "archive") {
		t.Error(p.Message)
	}
	h = edgetest.NewHouse(t, func(c *edge.Config) { c.Catalog = away{} })
	a := h.Do("GET", "/v1/agent/runs", "")
	if p := a.Expect(t, 503, "UNAVAILABLE"); strings.Contains(p.Message, "10.1.2.3") || a.Header.Get("Retry-After") == "" {
		t.Errorf("%+v %v", p, a.Header)
	}
}

// A credential for one run does not see the names of the others.
func TestListRunsNeedsMoreThanOneRun(t *testing.T) {
	_, store := withRuns(t, 3)
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Catalog = store
		c.Authenticate = func(*http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead, Run: "run_01"}, nil
		}
	})
	h.Do("GET", "/v1/agent/runs", "").Expect(t, 404, "NOT-FOUND")
}
