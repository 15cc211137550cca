package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// metisNoFrame is how a socket ends whose token is not good for it.
func metisNoFrame(t *testing.T, m metis, session, at string) {
	t.Helper()
	c := m.dial(session, at)
	typ, frame, err := c.frame()
	if end, ok := err.(*metisClosed); !ok || end.code != 1008 || typ != "" {
		t.Errorf("%s: %s %v", at, frame, err)
	}
}

func metisBadInput(t *testing.T, m metis) {
	session, other := m.create(), m.create()
	out := m.must(200, "GET", "/sessions/"+session, nil)
	at, _ := out["ws_url"].(string)
	base, token, _ := strings.Cut(at, "?attach=")
	c := m.dial(session, at)
	metisNoFrame(t, m, session, at) // it is used
	if code := c.subscribe(metisFull, "", true); code != "" {
		t.Error(code)
	}
	metisNoFrame(t, m, session, base)
	metisNoFrame(t, m, session, base+"?attach=atk_"+strings.Repeat("x", len(token)-4))
	metisNoFrame(t, m, other, strings.Replace(m.must(200, "GET", "/sessions/"+session, nil)["ws_url"].(string), session,
		other, 1))
	metisNoFrame(t, m, "none", strings.Replace(m.must(200, "GET", "/sessions/"+session, nil)["ws_url"].(string),
		session, "none", 1))

	for text, code := range map[string]int{`nonsense`: 1008, `[1]`: 1008, `"x"`: 1008, ``: 1008} {
		c := m.attach(session)
		c.write(opText, []byte(text))
		if end := c.closed(); end.code != code || !strings.Contains(end.reason, `"bad_frame"`) {
			t.Errorf("%s: %v", text, end)
		}
	}
	c = m.attach(session)
	c.write(opBinary, []byte(`{"type":"subscribe"}`))
	if end := c.closed(); end.code != 1003 {
		t.Errorf("binary: %v", end)
	}
	c = m.attach(session)
	c.write(opText, []byte(`{"type":"subscribe","filter":"`+strings.Repeat("x", 2<<20)+`"}`))
	if end := c.closed(); end.code != 1009 && end.code != 1006 { // the reset may be faster
		t.Errorf("too large: %v", end)
	}

	c = m.watch(session, metisFull, "", true)
	for _, frame := range []string{`{"type":"ack"}`, `{"type":"future","x":1}`, `{"x":1}`, `{"type":7}`,
		`{"type":"pong","nonce":"never sent"}`,
		`{"type":"subscribe","filter":"preset:chat","since":null,"snapshot":true}`,
		`{"type":"cancel","turn_id":"turn_0"}`, `{"type":"cancel"}`,
		`{"type":"cancel","turn_id":{"x":1}}`} {
		c.write(opText, []byte(frame))
		if got := c.quiet(); got != "" {
			t.Errorf("%s is answered with %s", frame, got)
		}
	}
	c.send(map[string]any{"type": "ping", "nonce": "n\"1"})
	if typ, frame, _ := c.frame(); typ != "pong" || !strings.Contains(string(frame), `"n\"1"`) {
		t.Errorf("%s", frame)
	}
	early := m.attach(session)
	if got := early.quiet(); got != "" {
		t.Errorf("a ping before subscribe is answered with %s", got)
	}
	silent := m.attach(session)
	if end := silent.closed(); end.code != 1008 {
		t.Errorf("no subscribe: %v", end)
	}
	waits := m.attach(session)
	if code := waits.subscribe("preset:none", "", false); code != "invalid_filter" {
		t.Error(code)
	}
	if end := waits.closed(); end.code != 1008 {
		t.Errorf("no other subscribe: %v", end)
	}
}

func metisBadRequests(t *testing.T, m metis) {
	session := m.create()
	c := m.watch(session, metisFull, "", true)
	turn := m.say(session, "hello")
	c.turnEnd()
	content := func(blocks ...any) any { return map[string]any{"content": blocks} }
	text := map[string]any{"type": "text", "text": "x"}
	for _, q := range []struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		{"GET", "/sessions/none", nil, 404, "session_not_found"},
		{"DELETE", "/sessions/none", nil, 404, "session_not_found"},
		{"POST", "/sessions/none/turns", content(text), 404, "session_not_found"},
		{"GET", "/sessions/none/messages", nil, 404, "session_not_found"},
		{"GET", "/sessions/none/events", nil, 404, "session_not_found"},
		{"POST", "/sessions/" + session + "/turns/none/cancel", map[string]any{}, 404, "turn_not_found"},
		{"POST", "/sessions/" + session + "/turns/" + turn + "/cancel", map[string]any{}, 409, "turn_already_completed"},
		{"POST", "/sessions/" + session + "/turns/" + turn + "/confirmations/none", map[string]any{"decision": "allow"},
			404, "confirmation_not_found"},
		{"POST", "/sessions/" + session + "/turns", content(), 400, "invalid_content"},
		{"POST", "/sessions/" + session + "/turns", content(map[string]any{"type": "text"}), 400, "invalid_content"},
		{"POST", "/sessions/" + session + "/turns", content("x"), 400, "invalid_content"},
		{"POST", "/sessions/" + session + "/turns",
			content(map[string]any{"type": "tool_use", "id": "a", "name": "b", "input": map[string]any{}}), 400,
			"invalid_content"},
		{"POST", "/sessions/" + session + "/turns", "nonsense", 400, "invalid_request"},
		{"POST", "/sessions/" + session + "/turns", "[]", 400, "invalid_request"},
		{"POST", "/sessions", "nonsense", 400, "invalid_request"},
		{"POST", "/sessions", map[string]any{"workspace_path": 7}, 400, "invalid_request"},
		{"GET", "/sessions/" + session + "/messages?limit=x", nil, 400, "invalid_request"},
		{"GET", "/sessions/" + session + "/messages?before=none", nil, 400, "invalid_request"},
		{"GET", "/sessions/" + session + "/events?limit=0", nil, 400, "invalid_request"},
		{"GET", "/sessions/" + session + "/events?event_types=made.up", nil, 400, "invalid_request"},
	} {
		status, out := m.do(q.method, q.path, q.body)
		e, _ := out["error"].(map[string]any)
		if status != q.status || e["code"] != q.code || e["message"] == "" || e["details"] == nil {
			t.Errorf("%s %s %v: %d %v, want %d %s", q.method, q.path, q.body, status, out, q.status, q.code)
		}
	}
	m.say(session, "long")
	c.until("text.delta")
	if status, out := m.do("POST", "/sessions/"+session+"/turns", content(text)); status != 409 ||
		!strings.Contains(fmt.Sprint(out), "turn_in_flight") {
		t.Errorf("a turn in flight: %d %v", status, out)
	}
	_, one := m.do("POST", "/sessions", map[string]any{"workspace_path": "/w"}, "Idempotency-Key", session)
	_, two := m.do("POST", "/sessions", map[string]any{"workspace_path": "/w"}, "Idempotency-Key", session)
	if one["id"] == nil || one["id"] != two["id"] {
		t.Errorf("one key made %v and %v", one, two)
	}
}

func metisConfirmations(t *testing.T, m metis) {
	for decision, want := range map[string]string{
		"allow": "tool.confirmation_requested tool.confirmation_resolved tool.called tool.completed",
		"deny":  "tool.confirmation_requested tool.confirmation_resolved tool.failed",
	} {
		session := m.create()
		c := m.watch(session, metisChat, "", true)
		turn := m.say(session, "confirm")
		asked := c.until("tool.confirmation_requested")
		path := "/sessions/" + session + "/turns/" + turn + "/confirmations/" + asked.p.RequestID
		if status, out := m.do("POST", path, map[string]any{"decision": "perhaps"}); status != 400 {
			t.Errorf("%d %v", status, out)
		}
		var all sync.WaitGroup
		var wins, losses int
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				status, out := m.do("POST", path, map[string]any{"decision": decision, "scope": "once"})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case status == 200 && out["request_id"] == asked.p.RequestID && out["decision"] == decision &&
					out["applied"] == true:
					wins++
				case status == 409 && strings.Contains(fmt.Sprint(out), "confirmation_already_resolved"):
					losses++
				default:
					t.Errorf("%d %v", status, out)
				}
			})
		}
		all.Wait()
		c.turnEnd()
		if wins != 1 || losses != 3 || !strings.Contains(c.story(), want) {
			t.Errorf("%s: %d wins, %d losses, %s", decision, wins, losses, c.story())
		}
		failed := slices.ContainsFunc(c.events,
			func(e metisEvent) bool { return e.Type == "tool.failed" && e.p.ErrorClass == "user_denied" })
		if failed != (decision == "deny") {
			t.Errorf("%s: %s", decision, c.story())
		}
	}
}

func metisEnds(t *testing.T, m metis) {
	session := m.create()
	c := m.watch(session, metisChat, "", true)
	full := m.watch(session, metisFull, "", true)
	m.say(session, "long")
	c.until("text.delta")
	m.must(200, "DELETE", "/sessions/"+session, nil)
	for _, c := range []*metisConn{c, full} {
		if end := c.closed(); end.code != 1000 {
			t.Errorf("%v behind %s", end, c.story())
		}
	}
	if got := c.story(); !strings.HasSuffix(got, "message.complete llm.call_failed turn.cancelled") {
		t.Errorf("chat: %s", got)
	}
	if got := full.story(); !strings.HasSuffix(got, "message.complete llm.call_failed turn.cancelled session.ended") {
		t.Errorf("full: %s", got)
	}
	if status, out := m.do("POST", "/sessions/"+session+"/turns",
		map[string]any{"content": []any{map[string]any{"type": "text", "text": "x"}}}); status != 409 ||
		!strings.Contains(fmt.Sprint(out), "session_already_ended") {
		t.Errorf("a turn of an ended session: %d %v", status, out)
	}
	if status, out := m.do("DELETE", "/sessions/"+session, nil); status != 409 ||
		!strings.Contains(fmt.Sprint(out), "session_already_ended") {
		t.Errorf("ended twice: %d %v", status, out)
	}
	again := m.watch(session, metisFull, full.events[2].ID, false)
	if end := again.closed(); end.code != 1000 || !slices.Equal(bytesOf(again.events), bytesOf(full.events[3:])) {
		t.Errorf("%v behind %s", end, again.story())
	}
	snap := m.watch(session, metisFull, "", true)
	if end := snap.closed(); end.code != 1000 || len(snap.events) != 0 {
		t.Errorf("a snapshot of an ended session: %v, %s", end, snap.story())
	}
	messages := m.must(200, "GET", "/sessions/"+session+"/messages?limit=1", nil)
	list, _ := messages["messages"].([]any)
	if len(list) != 1 || messages["has_more_before"] != true || messages["has_more_after"] != false {
		t.Errorf("the newest message: %v", messages)
	}
	before := m.must(200, "GET", "/sessions/"+session+"/messages?before="+list[0].(map[string]any)["id"].(string), nil)
	if list, _ := before["messages"].([]any); len(list) != 1 || before["has_more_before"] != false ||
		before["has_more_after"] != true {
		t.Errorf("those before it: %v", before)
	}
}
