package serve_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

const hello = `{"events":[{"type":"user.message","content":[{"type":"text","text":"hello"}]}]}`

func TestCreate(t *testing.T) {
	h := newHouse(t, false)
	for _, base := range qoder.Bases() {
		o := h.do("POST", base+"/sessions?beta=true",
			`{"id":"mine","agent":{"id":"agent_1","type":"agent","version":1},"environment_id":"env_1",`+
				`"title":"T","metadata":{"a":"1"},"incremental_streaming_enabled":true}`, "Content-Type",
			"application/json").OK(200)
		id, _ := o["id"].(string)
		if !strings.HasPrefix(id, "sess_") || len(id) != 5+32 || o["type"] != "session" || o["status"] != "idle" ||
			o["incremental_streaming_enabled"] != true || o["title"] != "T" {
			t.Errorf("%v", o)
		}
		got := h.do("GET", base+"/sessions/"+id, "").OK(200)
		if fmt.Sprint(got) != fmt.Sprint(o) {
			t.Errorf("created %v, got %v", o, got)
		}
		if types := h.types(id); !slices.Equal(types, []string{schema.TypeSessionCreated}) {
			t.Errorf("%v", types)
		}
	}
}

func TestCreateAgain(t *testing.T) {
	h := newHouse(t, false)
	first := h.do("POST", cloud, plainBody, "Idempotency-Key", "k")
	id := first.OK(200)["id"].(string)
	h.do("POST", cloud+"/"+id, `{"title":"another"}`).OK(200)
	again := h.do("POST", v1, plainBody, "Idempotency-Key", "k")
	if again.Body != first.Body || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", first.Body, again.Body)
	}
	if other := h.do("POST", cloud, plainBody, "Idempotency-Key", "k2").OK(200)["id"]; other == id {
		t.Error("another key is the same session")
	}
	if theirs := h.do("POST", cloud, plainBody, "Idempotency-Key", "k", as, "tenant:globex").OK(200)["id"]; theirs == id {
		t.Error("another tenant's key is the same session")
	}
	h.do("POST", cloud, `{"agent":"b","environment_id":"env_1"}`, "Idempotency-Key", "k").refused(422,
		"invalid_request_error")
	h.keys.Forget() // they are not kept for ever
	h.do("POST", cloud, plainBody, "Idempotency-Key", "k").refused(409, "")
	if n := count(h.types(id), schema.TypeSessionCreated); n != 1 {
		t.Errorf("a session was created %d times", n)
	}
	if got := h.create(plainBody); got == h.create(plainBody) {
		t.Error("two sessions have one id")
	}
}

func TestUpdate(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(`{"agent":"a","environment_id":"e","metadata":{"keep":"1","drop":"2"}}`)
	for _, method := range []string{"POST", "PATCH"} {
		o := h.do(method, v1+"/"+id, `{"title":"`+method+`","metadata":{"drop":null,"new":"3"}}`).OK(200)
		if o["title"] != method || fmt.Sprint(o["metadata"]) != "map[keep:1 new:3]" {
			t.Errorf("%v", o)
		}
	}
	h.do("POST", v1+"/"+id, `{"title":"x"}`, "Idempotency-Key", "u").OK(200)
	h.do("POST", v1+"/"+id, `{"title":"y"}`).OK(200)
	if o := h.do("POST", v1+"/"+id, `{"title":"x"}`, "Idempotency-Key", "u").OK(200); o["title"] != "x" {
		t.Errorf("a repeat answers %v", o["title"])
	}
	if o := h.do("GET", v1+"/"+id, "").OK(200); o["title"] != "y" {
		t.Errorf("a repeat has changed the title to %v", o["title"])
	}
}

func TestCancel(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.do("POST", cloud+"/"+id+"/cancel", "").OK(200)
	if slices.Contains(h.types(id), "command.cancel") {
		t.Error("an idle session was cancelled")
	}
	h.says(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`))
	o := h.do("POST", cloud+"/"+id+"/cancel", `{}`).OK(202)
	if o["id"] != id || o["type"] != "session" || o["status"] != "canceling" {
		t.Errorf("%v", o)
	}
	if types := h.types(id); types[len(types)-1] != "command.cancel" {
		t.Errorf("%v", types)
	}
}

func TestArchive(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	first := h.do("POST", cloud+"/"+id+"/archive", "")
	if o := first.OK(200); o["archived_at"] == nil {
		t.Errorf("%v", o)
	}
	if again := h.do("POST", cloud+"/"+id+"/archive", ""); again.Status != 200 || again.Body != first.Body {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	last := h.head(id).Last
	h.do("POST", eventsPath(id, ""), hello).refused(409, "conflict_error")
	h.do("POST", cloud+"/"+id, `{"title":"x"}`).refused(409, "conflict_error")
	h.do("POST", cloud+"/"+id+"/cancel", "").OK(200)
	h.do("GET", cloud+"/"+id, "").OK(200)
	if p := h.page(eventsPath(id, "")); len(p.Data) == 0 {
		t.Error("an archived session cannot be read")
	}
	if h.head(id).Last != last {
		t.Errorf("an archived session has changed: %v", h.types(id))
	}
	h.do("DELETE", cloud+"/"+id, "").OK(200)
}

func TestDelete(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	thread := idOf(h.page(cloud + "/" + id + "/threads").Data[0])
	first := h.do("DELETE", cloud+"/"+id, "", "Idempotency-Key", "d")
	if o := first.OK(200); len(o) != 2 || o["id"] != id || o["type"] != "session_deleted" {
		t.Errorf("%v", o)
	}
	if again := h.do("DELETE", cloud+"/"+id, "", "Idempotency-Key", "d"); again.Body != first.Body {
		t.Errorf("a repeat answers %d %s", again.Status, again.Body)
	}
	h.nothing(id, thread)
	if types := h.types(id); !slices.Equal(types, []string{schema.TypeSessionCreated, schema.TypeSessionDeleted}) {
		t.Errorf("%v", types)
	}
}

// nothing holds that all routes answer 404 for a session.
func (h *house) nothing(id, thread string, headers ...string) {
	h.t.Helper()
	for _, rt := range []string{
		"GET ", "POST ", "PATCH ", "DELETE ", "POST /archive", "POST /cancel", "POST /events", "GET /events", "GET /threads",
		"GET /threads/" + thread, "POST /threads/" + thread + "/archive", "GET /threads/" + thread + "/events",
		"GET /events/stream", "GET /threads/" + thread + "/stream",
	} {
		method, path, _ := strings.Cut(rt, " ")
		body := ""
		switch {
		case path == "/events" && method == "POST":
			body = hello
		case method == "POST" || method == "PATCH":
			body = `{"title":"x"}`
		}
		h.do(method, cloud+"/"+id+path, body, headers...).refused(404, "not_found_error")
	}
}

// TestForeign holds that what belongs to others is not there.
func TestForeign(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	thread := idOf(h.page(cloud + "/" + id + "/threads").Data[0])
	last := h.head(id).Last
	h.nothing(id, thread, as, "tenant:globex")
	h.nothing(id, thread, as, "run:another")
	h.nothing("sess_0000", thread)
	h.nothing("no%20id%2F", thread)
	if h.head(id).Last != last {
		t.Error("somebody else has changed it")
	}
	mine := "run:" + id
	h.do("GET", cloud+"/"+id, "", as, mine).OK(200)
	h.do("POST", eventsPath(id, ""), hello, as, mine).OK(200)
	h.do("GET", cloud, "", as, mine).refused(404, "not_found_error")
	h.do("POST", cloud, plainBody, as, mine).refused(404, "not_found_error")
}

func TestScopes(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	for _, c := range []struct{ method, path, body, needs string }{
		{"GET", "/" + id, "", "read"},
		{"GET", "/" + id + "/events", "", "read"},
		{"GET", "/" + id + "/threads", "", "read"},
		{"POST", "/" + id + "/cancel", "", "command"},
		{"POST", "/" + id + "/events", hello, "command"},
		{"POST", "/" + id, `{"title":"x"}`, "write"},
		{"POST", "", plainBody, "write"},
		{"POST", "/" + id + "/archive", "", "write,command"},
		{"DELETE", "/" + id, "", "write,command"},
	} {
		others := slices.DeleteFunc([]string{"read", "write", "command"},
			func(s string) bool { return s == strings.Split(c.needs, ",")[0] })
		h.do(c.method, cloud+c.path, c.body, as, "may:"+strings.Join(others, ",")).refused(403, "permission_error")
		h.do(c.method, cloud+c.path, c.body, as, "nobody").refused(401, "authentication_error")
		h.do(c.method, cloud+c.path, c.body, as, "may:"+c.needs).OK(200)
	}
}

func TestMethods(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	a := h.do("PUT", cloud+"/"+id, `{}`)
	a.refused(405, "invalid_request_error")
	if allow := a.Header.Get("Allow"); !strings.Contains(allow, "DELETE") || !strings.Contains(allow, "GET") {
		t.Errorf("allow %q", allow)
	}
	if a := h.do("HEAD", cloud+"/"+id, ""); a.Status != 200 || a.Body != "" || a.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %q %v", a.Status, a.Body, a.Header)
	}
	h.do("GET", cloud+"/"+id+"/nowhere", "").refused(404, "not_found_error")
}

// TestEnded changes sessions whose run is over: it stays over, as it was.
func TestEnded(t *testing.T) {
	for _, state := range []schema.RunState{schema.StateDone, schema.StateAborted, schema.StateError} {
		h := newHouse(t, false)
		end := fmt.Sprintf(`{"state":%q,"reason":"why \ud800 \u0041"}`, state)
		h.says("run", event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`),
			event(schema.TypeRunLifecycle, end))
		if o := h.do("POST", cloud+"/run", `{"title":"x"}`, "Idempotency-Key", "k").OK(200); o["title"] != "x" {
			t.Errorf("%v", o)
		}
		h.do("POST", cloud+"/run", `{"title":"x"}`, "Idempotency-Key", "k").OK(200)
		if h.head("run").State != state || h.head("run").Last != 3 { // and changed
			t.Fatalf("%s: %v", h.head("run").State, h.types("run"))
		}
		if got := h.end("run"); got != end {
			t.Errorf("%s, want %s", got, end)
		}
		shownTypes := func() (types []string) {
			for _, f := range h.frames("run", "") {
				types = append(types, f.typ)
			}
			return types
		}
		if types := shownTypes(); types[len(types)-1] != "session.updated" {
			t.Errorf("%v", types)
		}
		// What an ended run does not take is told to it all the same; a message begins it anew.
		h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt"}]}`).OK(200)
		if h.head("run").State != state {
			t.Errorf("an interrupt has made it %s", h.head("run").State)
		}
		h.do("POST", eventsPath("run", ""), `{"events":[{"type":"user.interrupt"},{"type":"user.message","content":[{"type":"text","text":"on"}]},{"type":"user.interrupt"}]}`).OK(200)
		if h.head("run").State.Final() {
			t.Error("a message has not begun it anew")
		}
		h.says("run", event(schema.TypeRunLifecycle, end))
		h.do("POST", cloud+"/run/archive", "").OK(200)
		h.do("DELETE", cloud+"/run", "").OK(200)
		if h.head("run").State != state {
			t.Errorf("it is %s", h.head("run").State)
		}
		h.do("GET", cloud+"/run", "").refused(404, "not_found_error")
	}
}

// TestEndsMeanwhile ends a run between the look at it and the append.
func TestEndsMeanwhile(t *testing.T) {
	h := newHouse(t, false)
	for i, first := range []string{"running", "done"} {
		run := fmt.Sprintf("run_%d", i)
		h.says(run, event(schema.TypeRunLifecycle, `{"state":"running","reason":null}`))
		then := `{"state":"done","reason":null}`
		if first == "done" {
			h.says(run, event(schema.TypeRunLifecycle, then))
			then = `{"state":"running","reason":null}`
		}
		h.log.when(1, func() { h.says(run, event(schema.TypeRunLifecycle, then)) })
		if o := h.do("POST", cloud+"/"+run, `{"title":"x"}`, "Idempotency-Key", "k").OK(200); o["title"] != "x" {
			t.Errorf("%v", o)
		}
		if ended := h.head(run).State.Final(); ended != (first == "running") {
			t.Errorf("%s: %v", first, h.types(run))
		}
		n := 0
		for _, typ := range h.types(run) {
			if typ == schema.TypeSessionUpdated {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: updated %d times", first, n)
		}
	}
}

// TestAnyRunIsASession reads runs that no session was made for.
func TestAnyRunIsASession(t *testing.T) {
	h := newHouse(t, false)
	for _, s := range schematest.All() {
		h.fill(s.Name, s, 8)
		if o := h.do("GET", cloud+"/"+s.Name, "").OK(200); o["id"] != s.Name || o["type"] != "session" ||
			o["created_at"] == nil {
			t.Errorf("%v", o)
		}
		if s.Name == "session" || s.Name == "late" {
			continue // it is archived
		}
		h.do("POST", cloud+"/"+s.Name, `{"title":"x"}`).OK(200)
		h.do("POST", eventsPath(s.Name, ""), hello).OK(http.StatusOK)
	}
}

// TestInitialEvents creates sessions that begin with something said: in one pack with the session itself, or not at
// all.
func TestInitialEvents(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(`{"agent":"a","environment_id":"e","initial_events":[
		{"type":"user.message","content":"one"},{"type":"user.define_outcome","description":"two"}]}`)
	if types := h.types(id); !slices.Equal(types,
		[]string{schema.TypeSessionCreated, schema.TypeCommandMessage, "command.redirect"}) {
		t.Errorf("%v", types)
	}
	for body, param := range map[string]string{
		`[{"type":"user.interrupt"}]`:                                     "initial_events[0].type",
		`[{"type":"user.message","content":"a"},{"type":"user.message"}]`: "initial_events[1].content",
		`7`: "initial_events",
	} {
		a := h.do("POST", cloud, `{"agent":"a","environment_id":"e","initial_events":`+body+`}`)
		a.refused(400, "invalid_request_error")
		if want := `"param":"` + param + `"`; !strings.Contains(a.Body, want) {
			t.Errorf("%s: %s, want %s", body, a.Body, want)
		}
	}
}
