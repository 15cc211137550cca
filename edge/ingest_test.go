package edge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestIngestForms(t *testing.T) {
	h := newHouse(t)
	a, b := `{"type":"text.delta","payload":{"text":"a"}}`, `{"type":"text.delta","child_id":"kid","payload":{"text":"b"}}`
	for i, tt := range []struct{ name, body, contentType string }{
		{"NDJSON", a + "\n" + b + "\n", "application/x-ndjson"},
		{"NDJSON, CR LF, no end", a + "\r\n" + b, "application/x-ndjson; charset=utf-8"},
		{"NDJSON without a type", a + "\n\n" + b, ""},
		{"array", "[" + a + " , " + b + "]", "application/json"},
		{"array over lines", "[\n  " + a + ",\n  " + b + "\n]\n", "application/json; charset=UTF-8"},
		{"text", a + "\n" + b, "text/plain"},
	} {
		run := fmt.Sprintf("run_%d", i)
		var headers []string
		if tt.contentType != "" {
			headers = []string{"Content-Type", tt.contentType}
		}
		if got := h.do("POST", "/v1/agent/runs/"+run+"/events", tt.body, headers...); got.status != 200 || got.body != `{"first_seq":1,"last_seq":2}`+"\n" {
			t.Errorf("%s: %d %s", tt.name, got.status, got.body)
		}
		got := h.do("POST", "/v1/agent/runs/"+run+"/events", "{\n \"type\": \"progress\"\n}", "Content-Type", "application/json")
		if got.status != 200 || got.body != `{"first_seq":3,"last_seq":3}`+"\n" {
			t.Errorf("%s, one object: %d %s", tt.name, got.status, got.body)
		}
		if h.last(run) != 3 {
			t.Errorf("%s: newest is %d", tt.name, h.last(run))
		}
	}
}

func TestIngestKeepsWhatEventsBring(t *testing.T) {
	h := newHouse(t)
	line := `{"id":"evt_own","ts":"2020-01-02T03:04:05.678Z","type":"text.delta","run_id":"run","child_id":null,"seq":1,"turn_id":"t1","cause":"evt_0","actor":"agent","x_vendor":{ "a" : 1 },"payload":{"text":"a"}}`
	if a := h.do("POST", "/v1/agent/runs/run/events", line); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	want := `{"events":[` + line + `],"next_after":1,"has_more":false}` + "\n"
	if a := h.do("GET", "/v1/agent/runs/run/events", ""); a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
}

// TestEveryScenarioIsTaken holds that the catalogue's JSON Schemas refuse nothing that is good.
func TestEveryScenarioIsTaken(t *testing.T) {
	h := newHouse(t)
	for _, s := range append(schematest.All(), schematest.Generate(300, 7)) {
		var body []byte
		for i := range s.Events {
			e := s.Events[i]
			e.RunID, e.ID, e.TS, e.Seq = "", "", "", 0
			doc := map[string]any{"type": e.Type, "payload": e.Payload}
			if e.ChildID != "" {
				doc["child_id"] = e.ChildID
			}
			line, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			body = append(append(body, line...), '\n')
		}
		a := h.do("POST", "/v1/agent/runs/s-"+s.Name+"/events", string(body))
		if want := fmt.Sprintf(`{"first_seq":1,"last_seq":%d}`+"\n", len(s.Events)); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %s", s.Name, a.status, a.body)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	h := newHouse(t)
	post := func(run, key, body string) answer {
		return h.do("POST", "/v1/agent/runs/"+run+"/events", body, "Idempotency-Key", key)
	}
	for _, key := range []string{"k", strings.Repeat("~", 255), "a b !"} {
		run := fmt.Sprintf("run-%d", len(key))
		first := post(run, key, good)
		if first.status != 200 || first.header.Get("Idempotency-Replayed") != "" {
			t.Fatalf("%d %v %s", first.status, first.header, first.body)
		}
		h.do("POST", "/v1/agent/runs/"+run+"/events", good) // somebody else goes on
		again := post(run, key, good)
		if again.status != 200 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%d %v %s, first %s", again.status, again.header, again.body, first.body)
		}
		if h.last(run) != 2 {
			t.Errorf("newest is %d", h.last(run))
		}
		post(run, key, good+"\n"+good).expect(t, 422, "KEY-REUSED")
		if other := post(run+"x", key, good); other.status != 200 || other.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("the key of another run: %d %s", other.status, other.body)
		}
	}
}

func TestCreateRun(t *testing.T) {
	h := newHouse(t)
	type created struct {
		RunID    string `json:"run_id"`
		FirstSeq int    `json:"first_seq"`
		LastSeq  int    `json:"last_seq"`
		State    string `json:"state"`
	}
	create := func(body string, headers ...string) (answer, created) {
		t.Helper()
		a := h.do("POST", "/v1/agent/runs", body, headers...)
		var c created
		if a.status == http.StatusCreated {
			if err := json.Unmarshal([]byte(a.body), &c); err != nil {
				t.Fatal(err)
			}
			if c.FirstSeq != 1 || c.LastSeq != 1 || a.header.Get("Location") != "/v1/agent/runs/"+c.RunID {
				t.Errorf("%v %s", a.header, a.body)
			}
			if at := h.do("GET", a.header.Get("Location"), ""); at.status != 200 {
				t.Errorf("nothing at %s: %d", a.header.Get("Location"), at.status)
			}
		}
		return a, c
	}
	for body, state := range map[string]string{
		"": "running", "{}": "running", `{"planning_gate":"required"}`: "planning", `{"planning_gate":"preview","model":"x"}`: "planning",
		`{"planning_gate":"off","run_id":null}`: "running",
	} {
		a, c := create(body)
		if a.status != 201 || len(c.RunID) != len("run_")+26 || !strings.HasPrefix(c.RunID, "run_") || c.State != state {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
		page := h.do("GET", "/v1/agent/runs/"+c.RunID+"/events", "").body
		if !strings.Contains(page, `"type":"run.lifecycle"`) || !strings.Contains(page, `"state":"`+state+`","reason":null`) {
			t.Errorf("%s: %s", body, page)
		}
	}
	if a, c := create(`{"run_id":"mine"}`, "Idempotency-Key", "k"); a.status != 201 || c.RunID != "mine" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a, _ := create(`{"run_id":"mine"}`)
	if a.expect(t, 409, "RUN-EXISTS"); a.header.Get("Location") != "" {
		t.Error("a refusal has a location")
	}
	if a, c := create(`{"run_id":"mine"}`, "Idempotency-Key", "k"); a.status != 201 || c.RunID != "mine" || a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeat: %d %v %s", a.status, a.header, a.body)
	}
	if h.last("mine") != 1 {
		t.Errorf("newest is %d", h.last("mine"))
	}
	if a := h.do("POST", "/v1/agent/runs", `{"run_id":"mine"}`, tenantHeader, "other"); a.status != 201 {
		t.Errorf("the same id in another tenant: %d %s", a.status, a.body)
	}
}

func TestSummary(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("run", schematest.Named("plain"), 2)
	last := packs[len(packs)-1].Last()
	ts := func(seq schema.Seq) string {
		return schematest.Epoch.Add(time.Duration(seq-1) * schematest.Tick).Format(schema.TimeLayout)
	}
	want := fmt.Sprintf(`{"run_id":"run","state":"done","last_seq":%d,"started_at":"%s","updated_at":"%s","ended_at":"%[3]s"}`+"\n", last, ts(1), ts(last))
	if a := h.do("GET", "/v1/agent/runs/run", ""); a.status != 200 || a.body != want {
		t.Errorf("got  %d %s\nwant %s", a.status, a.body, want)
	}
	h.log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 3)
	want = strings.Replace(want, `"started_at":"`+ts(1)+`"`, `"started_at":null`, 1)
	if a := h.do("GET", "/v1/agent/runs/run", ""); a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
	h.do("POST", "/v1/agent/runs/open/events", `{"type":"progress","ts":"2026-01-02T03:04:05Z"}`)
	if a := h.do("GET", "/v1/agent/runs/open", ""); a.body != `{"run_id":"open","state":"","last_seq":1,"started_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","ended_at":null}`+"\n" {
		t.Errorf("%s", a.body)
	}
}

func TestPages(t *testing.T) {
	h := newHouse(t)
	s := schematest.Generate(2500, 3)
	packs := h.fill("run", s, 13)
	lines := schematest.Lines(packs)
	type page struct {
		Events    []json.RawMessage `json:"events"`
		NextAfter int               `json:"next_after"`
		HasMore   *bool             `json:"has_more"`
	}
	get := func(query string) page {
		t.Helper()
		a := h.do("GET", "/v1/agent/runs/run/events"+query, "")
		var p page
		if err := json.Unmarshal([]byte(a.body), &p); a.status != 200 || err != nil || p.Events == nil || p.HasMore == nil {
			t.Fatalf("%s: %d %v %.200s", query, a.status, err, a.body)
		}
		return p
	}
	for limit, size := range map[string]int{"": 100, "&limit=1000": 1000, "&limit=7": 7, "&limit=1": 1} {
		after := 0
		for {
			p := get(fmt.Sprintf("?after=%d%s", after, limit))
			if want := min(size, len(lines)-after); len(p.Events) != want || p.NextAfter != after+want || *p.HasMore != (after+want < len(lines)) {
				t.Fatalf("limit %q after %d: %d events, next %d, more %v", limit, after, len(p.Events), p.NextAfter, *p.HasMore)
			}
			for i, e := range p.Events {
				if string(e) != lines[after+i] {
					t.Fatalf("event %d differs", after+i+1)
				}
			}
			if after = p.NextAfter; !*p.HasMore || size == 1 && after > 30 {
				break
			}
		}
	}
	if p := get("?after=2500"); len(p.Events) != 0 || p.NextAfter != 2500 || *p.HasMore {
		t.Errorf("behind the end: %+v", p)
	}
	// A page is bounded in bytes as well.
	for range 20 {
		if a := h.do("POST", "/v1/agent/runs/fat/events", `{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := h.do("GET", "/v1/agent/runs/fat/events?limit=1000", "")
	if len(a.body) > 5<<20 || !strings.HasSuffix(a.body, `"has_more":true}`+"\n") {
		t.Errorf("%d bytes, ends %q", len(a.body), a.body[len(a.body)-60:])
	}
}

func TestHealthAndReadiness(t *testing.T) {
	fail := make(chan error, 1)
	fail <- errors.New("dial tcp 10.9.8.7: refused")
	h := newHouse(t, func(c *edge.Config) {
		c.Durability = "acknowledged events survive a crash of the process"
		c.Checks = []edge.Check{
			{Name: "log", Run: func(context.Context) error { return nil }},
			{Name: "archive", Run: func(ctx context.Context) error {
				if _, ok := ctx.Deadline(); !ok {
					t.Error("a check has no deadline")
				}
				select {
				case err := <-fail:
					return err
				default:
					return nil
				}
			}},
		}
	})
	if a := h.do("GET", "/healthz", "", tenantHeader, "nobody"); a.status != 200 || a.body != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := h.do("GET", "/readyz", "", tenantHeader, "nobody")
	if a.status != 503 || !strings.Contains(a.body, `{"ready":false,"durability":"acknowledged`) || !strings.Contains(a.body, `{"name":"archive","ok":false`) || strings.Contains(a.body, "10.9.8.7") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if !strings.Contains(h.logs.String(), "10.9.8.7") {
		t.Error("why it is not ready is not in the log")
	}
	if a := h.do("GET", "/readyz", ""); a.status != 200 || !strings.Contains(a.body, `"ready":true`) || !strings.Contains(a.body, `{"name":"log","ok":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestConfig(t *testing.T) {
	h := newHouse(t)
	ok := edge.Config{Hub: h.hub, Appender: h.app}
	if _, err := edge.New(ok); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*edge.Config){
		"no hub":         func(c *edge.Config) { c.Hub = nil },
		"no appender":    func(c *edge.Config) { c.Appender = nil },
		"bad tenant":     func(c *edge.Config) { c.DefaultTenant = "a.b" },
		"negative limit": func(c *edge.Config) { c.MaxStreams = -1 },
		"negative time":  func(c *edge.Config) { c.KeepAlive = -1 },
		"short drain":    func(c *edge.Config) { c.DrainWindow, c.DrainLimit = 2, 1 },
		"nameless check": func(c *edge.Config) { c.Checks = []edge.Check{{Run: func(context.Context) error { return nil }}} },
		"bad retry":      func(c *edge.Config) { c.Retry = -1 },
		"a dialect twice": func(c *edge.Config) {
			c.Protocols = append(c.Protocols, speak(odd{pattern: "GET /a/{x}"}, odd{pattern: "GET /a/{y}"})...)
		},
		"bad pattern": func(c *edge.Config) { c.Protocols = append(c.Protocols, speak(odd{pattern: "/a"})...) },
		"other transport": func(c *edge.Config) {
			c.Protocols = append(c.Protocols, speak(odd{pattern: "GET /a", transport: "pigeon"})...)
		},
	} {
		cfg := ok
		change(&cfg)
		if _, err := edge.New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestZeroConfigServesOneTenant(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.Authenticate = nil })
	if a := h.do("POST", "/v1/agent/runs/run/events", good); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, err := h.app.Append(context.Background(), schema.RunKey{Tenant: "default", Run: "run"}, []schema.Event{{Type: "progress"}}, producers.AppendOptions{MustBeNew: true}); !errors.Is(err, producers.ErrExists) {
		t.Errorf("the run is not the default tenant's: %v", err)
	}
}

// A repeated creation under one key is one run, although the caller never learned its id.
func TestCreateRunAgainUnderItsKey(t *testing.T) {
	h := newHouse(t)
	create := func(key string) answer { return h.do("POST", "/v1/agent/runs", "", "Idempotency-Key", key) }
	first := create("k1")
	if first.status != 201 || first.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	again := create("k1")
	if again.status != 201 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" ||
		again.header.Get("Location") != first.header.Get("Location") {
		t.Fatalf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	if other := create("k2"); other.status != 201 || other.body == first.body {
		t.Fatalf("another key: %d %s", other.status, other.body)
	}
}
