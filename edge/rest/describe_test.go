package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// session returns what is said of a run.
func session(h *edgetest.House, run string) string {
	var f struct {
		Session json.RawMessage `json:"session"`
	}
	if err := json.Unmarshal([]byte(h.Do("GET", "/v1/agent/runs/"+run+"/snapshot", "").Body), &f); err != nil {
		h.T.Error(err)
	}
	return string(f.Session)
}

// TestDescribedWhereItBegins holds that a run has the title, tags and metadata of the request that begins it, by body
// and by headers, once, and that later requests with the same headers say nothing.
func TestDescribedWhereItBegins(t *testing.T) {
	h := edgetest.NewHouse(t)
	headers := []string{schema.HeaderTitle, "%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82 100%25", schema.HeaderTags,
		"nightly, a%20b", schema.HeaderMetadata, "team=log,n=1"}
	const want = `{"title":"Привет 100%","tags":["nightly","a b"],"metadata":{"n":"1","team":"log"}}`
	const line = `{"type":"progress"}`
	for name, first := range map[string]func(run string) edgetest.Reply{
		"events": func(run string) edgetest.Reply {
			return h.Do("POST", "/v1/agent/runs/"+run+"/events", line, headers...)
		},
		"keyed": func(run string) edgetest.Reply {
			keyed := append([]string{"Idempotency-Key", "k"}, headers...)
			a := h.Do("POST", "/v1/agent/runs/"+run+"/events", line, keyed...)
			if b := h.Do("POST", "/v1/agent/runs/"+run+"/events", line, keyed...); b.Body != a.Body {
				t.Errorf("a repeat: %s, first %s", b.Body, a.Body)
			}
			return a
		},
		"condition": func(run string) edgetest.Reply {
			return h.Do("POST", "/v1/agent/runs/"+run+"/events", line, append([]string{"If-None-Match", "*"}, headers...)...)
		},
		"put": func(run string) edgetest.Reply { return h.Do("PUT", "/v1/agent/runs/"+run, "", headers...) },
		"body": func(run string) edgetest.Reply {
			return h.Do("POST", "/v1/agent/runs", `{"run_id":"`+run+`",`+want[1:], "Content-Type", "application/json")
		},
	} {
		a := first(name)
		if a.Status/100 != 2 || !strings.Contains(a.Body, `"first_seq":1,"last_seq":2`) {
			t.Fatalf("%s: %d %s", name, a.Status, a.Body)
		}
		got := session(h, name)
		if name == "body" {
			if !strings.HasSuffix(got, `,"title":"Привет 100%"}`) {
				t.Errorf("%s: %s", name, got)
			}
			continue // fields are sorted
		}
		if got != want {
			t.Errorf("%s: %s", name, got)
		}
		h.Do("POST", "/v1/agent/runs/"+name+"/events", line, schema.HeaderTitle, "another")
		if h.Last(name) != 3 || !strings.Contains(session(h, name), "Привет") {
			t.Errorf("%s: a later request has described it: %s", name, session(h, name))
		}
	}
	a := h.Do("POST", "/v1/agent/runs/bad/events", line+"\n{}", headers...)
	if a.Status != http.StatusBadRequest || !strings.Contains(a.Body, `"line":2`) {
		t.Errorf("a bad line is told as %s", a.Body)
	}
}

// TestDescriptionsAreBounded holds that what is beyond the bounds is refused with its field, and stores nothing.
func TestDescriptionsAreBounded(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Tell("run", edgetest.Lifecycle("running"))
	many := func(n int, each func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = each(i)
		}
		return strings.Join(parts, ",")
	}
	for body, field := range map[string]string{
		`{"title":1}`: "/title", `{"title":"` + strings.Repeat("ж", schema.MaxTitle+1) + `"}`: "/title",
		`{"tags":"a"}`: "/tags", `{"tags":["a","a"]}`: "/tags", `{"tags":["a,b"]}`: "/tags", `{"tags":[""]}`: "/tags",
		`{"tags":[1]}`: "/tags",
		`{"tags":[` + many(schema.MaxTags+1, func(i int) string { return fmt.Sprintf(`"t%d"`, i) }) + `]}`: "/tags",
		`{"tags":["` + strings.Repeat("t", schema.MaxTag+1) + `"]}`:                                        "/tags",
		`{"metadata":[]}`:       "/metadata",
		`{"metadata":{"a":1}}`:  "/metadata",
		`{"metadata":{"":"x"}}`: "/metadata",
		`{"metadata":{` + many(schema.MaxPairs+1, func(i int) string { return fmt.Sprintf(`"k%d":""`, i) }) +
			`}}`: "/metadata",
		`{"metadata":{"a":"` + strings.Repeat("v", schema.MaxPairValue+1) +
			`"}}`: "/metadata",
		`{"agent":"x"}`: "/agent",
	} {
		a := h.Do("POST", "/v1/agent/runs/run/update", body, "Content-Type", "application/json")
		if a.Status != 400 || !strings.Contains(a.Body, `"field":"`+field+`"`) {
			t.Errorf("%.60s: %d %s", body, a.Status, a.Body)
		}
		if field != "/agent" {
			if a := h.Do("POST", "/v1/agent/runs", body, "Content-Type", "application/json"); a.Status != 400 {
				t.Errorf("begun with %.60s: %d %s", body, a.Status, a.Body)
			}
		}
	}
	for _, headers := range [][]string{
		{schema.HeaderTitle, "100%"}, {schema.HeaderTitle, "%FF"},
		{schema.HeaderTitle, strings.Repeat("t", schema.MaxTitle+1)},
		{schema.HeaderTags, "a,a"}, {schema.HeaderTags, "a%2Cb"}, {schema.HeaderMetadata, "a"},
		{schema.HeaderMetadata, "a=1,a=2"}, {schema.HeaderMetadata, "=1"},
	} {
		if a := h.Do("POST", "/v1/agent/runs/new/events", `{"type":"progress"}`, headers...); a.Status != 400 {
			t.Errorf("%.40q: %d %s", headers, a.Status, a.Body)
		}
	}
	if h.Last("run") != 1 || h.Last("new") != 0 {
		t.Error("something was stored")
	}
	for i := range 4 {
		h.Do("POST", "/v1/agent/runs/run/update",
			`{"metadata":{`+many(schema.MaxPairs, func(k int) string { return fmt.Sprintf(`"k%d":"v"`, i*100+k) })+`}}`)
	}
	if a := h.Do("POST", "/v1/agent/runs/run/update", `{"metadata":{"more":"x"}}`); a.Status != 400 || h.Last("run") != 5 {
		t.Errorf("a pair too much: %d %s, %d events", a.Status, a.Body, h.Last("run"))
	}
}

// TestDescribedLater holds that a command changes what is said of a run, also of one that is over, for who may command.
func TestDescribedLater(t *testing.T) {
	h, who := housedAs(t)
	h.Tell("run", edgetest.Lifecycle("running"), edgetest.Lifecycle("done"))
	update := func(run, body string, want int) {
		t.Helper()
		if a := h.Do("POST", "/v1/agent/runs/"+run+"/update", body, "Content-Type", "application/json"); a.Status != want {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	update("run", `{"title":"One","tags":["a"],"metadata":{"k":"v","l":"w"}}`, 202)
	update("run", `{"title":"Two","tags":null,"metadata":{"k":null}}`, 202)
	update("run", `{}`, 400)
	update("none", `{"title":"x"}`, 404)
	if got := session(h, "run"); got != `{"metadata":{"l":"w"},"title":"Two"}` || h.Last("run") != 4 {
		t.Errorf("%s, %d events", got, h.Last("run"))
	}
	who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: auth.ScopeWrite | auth.ScopeRead})
	update("run", `{"title":"x"}`, 403)
}
