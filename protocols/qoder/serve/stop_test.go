package serve_test

import (
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
)

// TestStopped holds that who closes a session stops its agent: a turn that is under way, and a message that nobody
// has begun to answer.
func TestStopped(t *testing.T) {
	const cancel = "command.cancel"
	for _, tt := range []struct {
		name string
		says []schema.Event
		want bool // there is something to stop
	}{
		{"new", nil, false},
		{"running", []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`)}, true},
		{"waiting", []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeToolStart, `{"call_id":"c","tool":"x","custom":true}`)}, true},
		{"over", []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`)}, false},
		{"ended", []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)}, false},
		{"asked", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`)}, true},
		{"asked after the end", []schema.Event{event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`),
			event(schema.TypeCommandMessage, `{"content":"a"}`)}, true},
		{"asked, and ended", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`),
			event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)}, false},
		{"asked for more", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`),
			event(schema.TypeCommandMessage, `{"content":"b"}`),
			event(schema.TypeCommandsTaken, `{"through":1}`), event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeTurnEnd, `{"turn_id":"t"}`), event(schema.TypeCommandsTaken, `{"through":2}`)}, true},
		{"asked for an outcome", []schema.Event{event("command.redirect",
			`{"instruction":"a","event":{"type":"user.define_outcome","description":"a"}}`)}, true},
		{"redirected", []schema.Event{event("command.redirect", `{"instruction":"a"}`)}, false},
		{"told something", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a","role":"system"}`)}, false},
		{"answered and taken", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`),
			event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeTurnEnd, `{"turn_id":"t"}`), event(schema.TypeCommandsTaken, `{"through":2}`)}, false},
		{"answered", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`),
			event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeTurnEnd, `{"turn_id":"t"}`)}, false},
		{"cancelled", []schema.Event{event(schema.TypeCommandMessage, `{"content":"a"}`), event(cancel, `{}`)}, false},
	} {
		h := newHouse(t, false)
		for _, how := range []string{"POST /cancel", "POST /archive", "DELETE "} {
			id := h.create(plainBody)
			for _, e := range tt.says {
				h.says(id, e)
			}
			before := h.types(id)
			method, path, _ := strings.Cut(how, " ")
			a := h.do(method, cloud+"/"+id+path, "", "Idempotency-Key", how)
			if a.Status != 200 && a.Status != 202 {
				t.Fatalf("%s: %d %s", tt.name, a.Status, a.Body)
			}
			added := h.types(id)[len(before):]
			if got := slices.Contains(added, cancel); got != tt.want || got && added[0] != cancel {
				t.Errorf("%s, %s: %v", tt.name, how, added)
			}
			if path == "/cancel" && (a.Status == 202) != tt.want {
				t.Errorf("%s, cancel: %d", tt.name, a.Status)
			}
			n := len(h.types(id))
			if again := h.do(method, cloud+"/"+id+path, "", "Idempotency-Key", how); again.Status != a.Status ||
				again.Body != a.Body || len(h.types(id)) != n {
				t.Errorf("%s, %s: a repeat answers %d %s, and stores %v", tt.name, how, again.Status, again.Body, h.types(id)[n:])
			}
		}
	}
}

// TestStoppedThread: the same for the thread of a child.
func TestStoppedThread(t *testing.T) {
	h := newHouse(t, false)
	id := h.create(plainBody)
	h.says(id, event(schema.TypeChildSpawn, `{"child_id":"kid"}`),
		of("kid", event(schema.TypeTurnStart, `{"turn_id":"t"}`)))
	kid := idOf(h.page(cloud + "/" + id + "/threads").Data[1])
	h.do("POST", cloud+"/"+id+"/threads/"+kid+"/archive", "").OK(200)
	var last []string
	h.records(id, func(r schema.Record) { last = append(last, string(r.Type)+" of "+string(r.Child)) })
	if last = last[len(last)-2:]; !slices.Equal(last, []string{"command.cancel of kid", "session.archived of kid"}) {
		t.Errorf("%v", last)
	}
}
