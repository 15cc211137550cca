package rest_test

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
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestIngestForms(t *testing.T) {
	h := edgetest.NewHouse(t)
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
		if got := h.Do("POST", "/v1/agent/runs/"+run+"/events", tt.body, headers...); got.Status != 200 ||
			got.Body != `{"first_seq":1,"last_seq":2}`+"\n" {
			t.Errorf("%s: %d %s", tt.name, got.Status, got.Body)
		}
		got := h.Do("POST", "/v1/agent/runs/"+run+"/events", "{\n \"type\": \"progress\"\n}", "Content-Type",
			"application/json")
		if got.Status != 200 || got.Body != `{"first_seq":3,"last_seq":3}`+"\n" {
			t.Errorf("%s, one object: %d %s", tt.name, got.Status, got.Body)
		}
		if h.Last(run) != 3 {
			t.Errorf("%s: newest is %d", tt.name, h.Last(run))
		}
	}
}

func TestIngestKeepsWhatEventsBring(t *testing.T) {
	h := edgetest.NewHouse(t)
	line := `{"id":"evt_own","ts":"2020-01-02T03:04:05.678Z","type":"text.delta","run_id":"run","child_id":null,"seq":1,"turn_id":"t1","cause":"evt_0","actor":"agent","x_vendor":{ "a" : 1 },"payload":{"text":"a"}}`
	if a := h.Do("POST", "/v1/agent/runs/run/events", line); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	want := `{"events":[` + line + `],"next_after":1,"has_more":false}` + "\n"
	if a := h.Do("GET", "/v1/agent/runs/run/events", ""); a.Body != want {
		t.Errorf("got  %s\nwant %s", a.Body, want)
	}
}

// TestEveryScenarioIsTaken holds that the catalogue's JSON Schemas refuse nothing that is good.
func TestEveryScenarioIsTaken(t *testing.T) {
	h := edgetest.NewHouse(t)
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
		a := h.Do("POST", "/v1/agent/runs/s-"+s.Name+"/events", string(body))
		if want := fmt.Sprintf(`{"first_seq":1,"last_seq":%d}`+"\n", len(s.Events)); a.Status != 200 || a.Body != want {
			t.Errorf("%s: %d %s", s.Name, a.Status, a.Body)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	h := edgetest.NewHouse(t)
	post := func(run, key, body string) edgetest.Reply {
		return h.Do("POST", "/v1/agent/runs/"+run+"/events", body, "Idempotency-Key", key)
	}
	for _, key := range []string{"k", strings.Repeat("~", 255), "a b !"} {
		run := fmt.Sprintf("run-%d", len(key))
		first := post(run, key, edgetest.GoodLine)
		if first.Status != 200 || first.Header.Get("Idempotency-Replayed") != "" {
			t.Fatalf("%d %v %s", first.Status, first.Header, first.Body)
		}
		h.Do("POST", "/v1/agent/runs/"+run+"/events", edgetest.GoodLine) // somebody else goes on
		again := post(run, key, edgetest.GoodLine)
		if again.Status != 200 || again.Body != first.Body || again.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%d %v %s, first %s", again.Status, again.Header, again.Body, first.Body)
		}
		if h.Last(run) != 2 {
			t.Errorf("newest is %d", h.Last(run))
		}
		post(run, key, edgetest.GoodLine+"\n"+edgetest.GoodLine).Expect(t, 422, "KEY-REUSED")
		if other := post(run+"x", key, edgetest.GoodLine); other.Status != 200 ||
			other.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("the key of another run: %d %s", other.Status, other.Body)
		}
	}
}

func TestCreateRun(t *testing.T) {
	h := edgetest.NewHouse(t)
	type created struct {
		RunID    string `json:"run_id"`
		FirstSeq int    `json:"first_seq"`
		LastSeq  int    `json:"last_seq"`
		State    string `json:"state"`
	}
	create := func(body string, headers ...string) (edgetest.Reply, created) {
		t.Helper()
		a := h.Do("POST", "/v1/agent/runs", body, headers...)
		var c created
		if a.Status == http.StatusCreated {
			if err := json.Unmarshal([]byte(a.Body), &c); err != nil {
				t.Fatal(err)
			}
			if c.FirstSeq != 1 || c.LastSeq != 1 || a.Header.Get("Location") != "/v1/agent/runs/"+c.RunID {
				t.Errorf("%v %s", a.Header, a.Body)
			}
			if at := h.Do("GET", a.Header.Get("Location"), ""); at.Status != 200 {
				t.Errorf("nothing at %s: %d", a.Header.Get("Location"), at.Status)
			}
		}
		return a, c
	}
	for body, state := range map[string]string{
		"": "running", "{}": "running", `{"planning_gate":"required"}`: "planning",
		`{"planning_gate":"preview","model":"x"}`: "planning",
		`{"planning_gate":"off","run_id":null}`:   "running",
	} {
		a, c := create(body)
		if a.Status != 201 || len(c.RunID) != len("run_")+26 || !strings.HasPrefix(c.RunID, "run_") || c.State != state {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
		page := h.Do("GET", "/v1/agent/runs/"+c.RunID+"/events", "").Body
		if !strings.Contains(page, `"type":"run.lifecycle"`) || !strings.Contains(page, `"state":"`+state+`","reason":null`) {
			t.Errorf("%s: %s", body, page)
		}
	}
	if a, c := create(`{"run_id":"mine"}`, "Idempotency-Key", "k"); a.Status != 201 || c.RunID != "mine" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	a, _ := create(`{"run_id":"mine"}`)
	if a.Expect(t, 409, "RUN-EXISTS"); a.Header.Get("Location") != "" {
		t.Error("a refusal has a location")
	}
	if a, c := create(`{"run_id":"mine"}`, "Idempotency-Key", "k"); a.Status != 201 || c.RunID != "mine" ||
		a.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeat: %d %v %s", a.Status, a.Header, a.Body)
	}
	if h.Last("mine") != 1 {
		t.Errorf("newest is %d", h.Last("mine"))
	}
	if a := h.Do("POST", "/v1/agent/runs", `{"run_id":"mine"}`, edgetest.TenantHeader, "other"); a.Status != 201 {
		t.Errorf("the same id in another tenant: %d %s", a.Status, a.Body)
	}
}

func TestSummary(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.ByName("plain"), 2)
	last := packs[len(packs)-1].Last()
	ts := func(seq schema.Seq) string {
		return schematest.Epoch.Add(time.Duration(seq-1) * schematest.Tick).Format(schema.TimeLayout)
	}
	want := fmt.Sprintf(`{"run_id":"run","state":"done","last_seq":%d,"started_at":"%s","updated_at":"%s","ended_at":"%[3]s"}`+"\n", last, ts(1), ts(last))
	if a := h.Do("GET", "/v1/agent/runs/run", ""); a.Status != 200 || a.Body != want {
		t.Errorf("got  %d %s\nwant %s", a.Status, a.Body, want)
	}
	h.Log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 3)
	want = strings.Replace(want, `"started_at":"`+ts(1)+`"`, `"started_at":null`, 1)
	if a := h.Do("GET", "/v1/agent/runs/run", ""); a.Body != want {
		t.Errorf("got  %s\nwant %s", a.Body, want)
	}
	h.Do("POST", "/v1/agent/runs/open/events", `{"type":"progress","ts":"2026-01-02T03:04:05Z"}`)
	if a := h.Do("GET", "/v1/agent/runs/open",
		""); a.Body != `{"run_id":"open","state":"","last_seq":1,"started_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","ended_at":null}`+"\n" {
		t.Errorf("%s", a.Body)
	}
}

func TestPages(t *testing.T) {
	h := edgetest.NewHouse(t)
	s := schematest.Generate(2500, 3)
	packs := h.Fill("run", s, 13)
	lines := schematest.Lines(packs)
	type page struct {
		Events    []json.RawMessage `json:"events"`
		NextAfter int               `json:"next_after"`
		HasMore   *bool             `json:"has_more"`
	}
	get := func(query string) page {
		t.Helper()
		a := h.Do("GET", "/v1/agent/runs/run/events"+query, "")
		var p page
		if err := json.Unmarshal([]byte(a.Body), &p); a.Status != 200 || err != nil || p.Events == nil || p.HasMore == nil {
			t.Fatalf("%s: %d %v %.200s", query, a.Status, err, a.Body)
		}
		return p
	}
	for limit, size := range map[string]int{"": 100, "&limit=1000": 1000, "&limit=7": 7, "&limit=1": 1} {
		after := 0
		for {
			p := get(fmt.Sprintf("?after=%d%s", after, limit))
			if want := min(size, len(lines)-after); len(p.Events) != want || p.NextAfter != after+want ||
				*p.HasMore != (after+want < len(lines)) {
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
		if a := h.Do("POST", "/v1/agent/runs/fat/events",
			`{"type":"text.delta","payload":{"text":"`+strings.Repeat("x", 400<<10)+`"}}`); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	a := h.Do("GET", "/v1/agent/runs/fat/events?limit=1000", "")
	if len(a.Body) > 5<<20 || !strings.HasSuffix(a.Body, `"has_more":true}`+"\n") {
		t.Errorf("%d bytes, ends %q", len(a.Body), a.Body[len(a.Body)-60:])
	}
}

func TestHealthAndReadiness(t *testing.T) {
	fail := make(chan error, 1)
	fail <- errors.New("dial tcp 10.9.8.7: refused")
	h := edgetest.NewHouse(t, func(c *edge.Config) {
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
	if a := h.Do("GET", "/healthz", "", edgetest.TenantHeader, "nobody"); a.Status != 200 ||
		a.Body != `{"status":"ok"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a := h.Do("GET", "/readyz", "", edgetest.TenantHeader, "nobody")
	if a.Status != 503 || !strings.Contains(a.Body, `{"ready":false,"durability":"acknowledged`) ||
		!strings.Contains(a.Body, `{"name":"archive","ok":false`) || strings.Contains(a.Body, "10.9.8.7") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if !strings.Contains(h.Logs.String(), "10.9.8.7") {
		t.Error("why it is not ready is not in the log")
	}
	edgetest.Eventually(t, "it is ready", func() bool { // what was found a moment ago is believed
		a = h.Do("GET", "/readyz", "")
		return a.Status == 200
	})
	if !strings.Contains(a.Body, `"ready":true`) || !strings.Contains(a.Body, `{"name":"log","ok":true`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestConfig(t *testing.T) {
	h := edgetest.NewHouse(t)
	ok := edge.Config{Hub: h.Hub, Appender: h.Appender}
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
			c.Protocols = append(c.Protocols, edgetest.Speak(edgetest.OddDialect{Pattern: "GET /a/{x}"},
				edgetest.OddDialect{Pattern: "GET /a/{y}"})...)
		},
		"bad pattern": func(c *edge.Config) {
			c.Protocols = append(c.Protocols, edgetest.Speak(edgetest.OddDialect{Pattern: "/a"})...)
		},
		"other transport": func(c *edge.Config) {
			c.Protocols = append(c.Protocols, edgetest.Speak(edgetest.OddDialect{Pattern: "GET /a", Transport: "pigeon"})...)
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
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Authenticate = nil })
	if a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if _, err := h.Appender.Append(context.Background(), schema.RunKey{Tenant: "default", Run: "run"},
		[]schema.Event{{Type: "progress"}}, producers.AppendOptions{MustBeNew: true}); !errors.Is(err, producers.ErrExists) {
		t.Errorf("the run is not the default tenant's: %v", err)
	}
}

// A repeated creation under one key is one run, although the caller never learned its id.
func TestCreateRunAgainUnderItsKey(t *testing.T) {
	h := edgetest.NewHouse(t)
	create := func(key string) edgetest.Reply { return h.Do("POST", "/v1/agent/runs", "", "Idempotency-Key", key) }
	first := create("k1")
	if first.Status != 201 || first.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	again := create("k1")
	if again.Status != 201 || again.Body != first.Body || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Header.Get("Location") != first.Header.Get("Location") {
		t.Fatalf("%d %s, then %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	if other := create("k2"); other.Status != 201 || other.Body == first.Body {
		t.Fatalf("another key: %d %s", other.Status, other.Body)
	}
}
