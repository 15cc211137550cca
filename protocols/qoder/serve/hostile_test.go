package serve_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

// queries are parameters that no list takes.
func queries(token, id string) []string {
	return []string{
		"limit=0", "limit=1001", "limit=-1", "limit=x", "limit=1.5", "limit=99999999999999999999", "limit=1&limit=2",
		"limit=%31%00",
		"order=up", "order=ASC", "order=asc&order=desc",
		"page=x", "page=%00", "page=" + strings.Repeat("A", 2000), "page=MWFmMS4wLjEyMzQ", "page=" + token + "A",
		"page=" + token[:len(token)-2], "page=" + token + "&order=desc",
		"page=" + token + "&after_id=" + id, "after_id=" + id + "&before_id=" + id, "page=" + token + "&page=" + token,
		"after_id=x", "after_id=evt_", "after_id=evt_" + strings.Repeat("0", 32),
		"before_id=evt_" + strings.Repeat("f", 32), "after_id=" + strings.Repeat("x", 3000),
		"created_at[gt]=yesterday", "created_at[lte]=2026-13-01T00:00:00Z", "created_at[gt]=1&created_at[gt]=2",
		"types=" + strings.TrimSuffix(strings.Repeat("a,", 200), ","), "%zz=1", "limit=%zz",
	}
}

// TestHostileQueries asks lists for what they cannot give: always a refusal, never a fault.
func TestHostileQueries(t *testing.T) {
	h := newHouse(t, true)
	h.fill("run", schematest.ByName("session"), 8)
	h.fill("run_2", schematest.ByName("children"), 8)
	thread := h.threadsOf("run")[1]
	events := h.page(eventsPath("run", "") + "?limit=1")
	for _, path := range []string{eventsPath("run", ""), eventsPath("run", thread), cloud + "/run/threads", cloud} {
		for _, q := range queries(*events.Next, *events.FirstID) {
			if strings.HasPrefix(q, "types=") && !strings.HasSuffix(path, "/events") ||
				strings.HasPrefix(q, "created_at") && strings.HasSuffix(path, "/threads") {
				continue // not a parameter of this list
			}
			a := h.do("GET", path+"?"+q, "")
			a.refused(400, "invalid_request_error")
			if len(a.Body) > 2000 {
				t.Errorf("%s: the refusal has %d bytes", a.Asked, len(a.Body))
			}
		}
	}
	// A place of another session, or thread, is none of this one.
	other := h.page(eventsPath("run_2", "") + "?limit=1")
	h.do("GET", eventsPath("run", "")+"?page="+*other.Next, "").refused(400, "invalid_request_error")
	h.do("GET", eventsPath("run", "")+"?after_id="+*other.FirstID, "").refused(400, "invalid_request_error")
	h.do("GET", eventsPath("run", thread)+"?page="+*events.Next, "").refused(400, "invalid_request_error")
	for _, thread := range h.threadsOf("run_2")[1:] {
		for _, f := range h.frames("run_2", thread) {
			shownThere := false
			for _, g := range h.frames("run_2", "") {
				shownThere = shownThere || g.id == f.id
			}
			a := h.do("GET", eventsPath("run_2", "")+"?after_id="+f.id, "")
			if shownThere != (a.Status == 200) {
				t.Fatalf("event %s of thread %s, shown %v: %d", f.id, thread, shownThere, a.Status)
			}
		}
	}
	for _, q := range []string{"statuses=asleep", "include_archived=maybe", "agent_id=a&agent_id=b"} {
		h.do("GET", cloud+"?"+q, "").refused(400, "invalid_request_error")
	}
	for _, q := range []string{"agent_id=" + url.QueryEscape("'; drop table agent_runs; --\x00\xff"),
		"agent_id=" + strings.Repeat("x", 4000), "unknown=1", "page="} {
		h.do("GET", cloud+"?"+q, "").OK(200)
	}
}

// bodies are what no route takes as it is meant.
var bodies = []string{
	"", " ", "x", "null", "1", `"x"`, "[]", "{", "{}", `{"events":null}`, `{"events":{}}`, `{"events":"x"}`,
	`{"events":[null]}`, `{"events":[[]]}`,
	`{"events":[{"type":null}]}`, `{"events":[{"type":"user.message"}]}`,
	`{"events":[{"type":"user.message","content":1}]}`,
	`{"events":[{"type":"user.message","content":null}]}`, `{"events":[{"type":"user.message","content":[1]}]}`,
	`{"events":[{"type":"user.tool_confirmation","tool_use_id":"x","result":"maybe"}]}`,
	`{"events":[{"type":"user.custom_tool_result","custom_tool_use_id":7}]}`,
	`{"events":[{"type":"user.interrupt","session_thread_id":7}]}`, `{"events":[{"type":"user.define_outcome"}]}`,
	`{"events":[{"type":"user.message","content":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}]}`,
	`{"events":[{"type":"user.message","content":"` + "\xff\xfe" + `"}]}`,
	"{\"events\":[{\"type\":\"user.message\",\"content\":\"\x00\"}]}",
	`{"agent":1}`, `{"agent":[]}`, `{"agent":{}}`, `{"agent":{"id":7}}`, `{"agent":"a","environment_id":7}`,
	`{"agent":"a","environment_id":"e","metadata":7}`,
	`{"agent":"a","environment_id":"e","metadata":{"a":{"b":1}}}`, `{"agent":"a","environment_id":"e","resources":7}`,
	`{"agent":"a","environment_id":"e","incremental_streaming_enabled":"yes"}`, `{"title":7}`, `{"title":null}`,
	`{"agent":"a","environment_id":"e","title":"` + strings.Repeat("x", 200<<10) + `"}`,
	`{"metadata":{"k":"` + strings.Repeat("x", 200<<10) + `"}}`,
	`{"agent":"a","environment_id":"e","archived_at":"2026-01-01T00:00:00Z","deleted_at":"2026-01-01T00:00:00Z"}`,
	`{"agent":"a","agent":"b","environment_id":"e"}`, `{"archived_at":null}`,
}

// TestHostileBodies sends what is not what a route takes: never a fault, and what is taken can be read.
func TestHostileBodies(t *testing.T) {
	h := newHouse(t, false)
	for i, body := range bodies {
		run := fmt.Sprintf("run_%d", i)
		h.fill(run, schematest.ByName("tool"), 8)
		for _, rt := range []string{"POST ", "POST /" + run, "PATCH /" + run, "POST /" + run + "/events",
			"POST /" + run + "/cancel", "POST /" + run + "/archive", "DELETE /" + run} {
			method, path, _ := strings.Cut(rt, " ")
			a := h.do(method, cloud+path, body)
			if a.Status >= 500 {
				t.Errorf("%s with %.100q: %d %.300s", rt, body, a.Status, a.Body)
			}
			if a.Status >= 400 {
				a.refused(a.Status, map[int]string{400: "invalid_request_error", 409: "conflict_error"}[a.Status])
			}
			if strings.HasPrefix(rt, "DELETE") {
				continue
			}
			h.do("GET", cloud+"/"+run, "").OK(200)
			h.page(eventsPath(run, "") + "?limit=1000")
		}
	}
	h.do("POST", cloud, plainBody, "Content-Type", "image/png").refused(415, "invalid_request_error")
	h.do("POST", cloud, strings.Repeat(" ", 9<<20)).refused(413, "")
	h.do("POST", cloud, plainBody, "Idempotency-Key", strings.Repeat("k", 300)).refused(400, "invalid_request_error")
	h.do("POST", cloud, plainBody, "Idempotency-Key", "a", "Idempotency-Key", "b").refused(400, "invalid_request_error")
}

// TestHostileRuns reads runs whose payloads are hostile.
func TestHostileRuns(t *testing.T) {
	h := newHouse(t, false)
	h.fill("run", schematest.ByName("hostile"), 4)
	h.do("GET", cloud+"/run", "").OK(200)
	for _, thread := range h.threadsOf("run") {
		same(t, thread, concat(h.walk(eventsPath("run", thread), url.Values{}, func() int { return 5 })),
			ask{}.of(h.frames("run", thread)))
	}
}

func concat(pages [][]string) (all []string) {
	for _, p := range pages {
		all = append(all, p...)
	}
	return all
}

// TestWords shows that refusals are in words for people: no trail of what was done here, and no name of a part.
func TestWords(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.do("POST", cloud+"/"+id+"/archive", "").OK(200)
	for _, c := range []struct {
		method, path, body, contentType, want string
		status                                int
	}{
		{"POST", eventsPath(id, ""), hello, "application/json", "session is archived", 409},
		{"POST", cloud, plainBody, "application/x-www-form-urlencoded",
			"send application/json or text/plain, in UTF-8, and say so in Content-Type", 415},
		{"GET", eventsPath(id, "") + "?after_id=evt_1", "", "", "id is not an event's", 400},
		{"GET", eventsPath(id, "") + "?limit=0", "", "", `limit must be a whole number from 1 to 1000, not \"0\"`, 400},
	} {
		a := h.do(c.method, c.path, c.body, "Content-Type", c.contentType)
		if want := `"message":"` + c.want + `"`; a.Status != c.status || !strings.Contains(a.Body, want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, a.Status, a.Body, c.status, want)
		}
	}
}
