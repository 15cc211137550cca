package serve_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/protocols/metis/serve"
	"agentstream/schema"
)

func TestCreate(t *testing.T) {
	n := start(t, serve.Config{})
	o := n.do("POST", path, `{"workspace_path":"/w","initial_active_model":"m1"}`).OK(201)
	if o.Str("workspace_path") != "/w" || o.Str("active_model") != "m1" || o.Str("id") != o.Str("session_id") ||
		o.At("attach_token") != nil {
		t.Errorf("%v", o)
	}
	a, b := n.do("POST", path, `{"workspace_path":"/w"}`, "Idempotency-Key", "k"), join(t, n.Nodes,
		serve.Config{}).do("POST", path, `{"workspace_path":"/w"}`, "Idempotency-Key", "k")
	if a.OK(201).Str("id") != b.OK(201).Str("id") || a.Body != b.Body || b.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", a.Body, b.Body)
	}
	n.do("POST", path, `{"workspace_path":"/other"}`, "Idempotency-Key", "k").refused(422, "key_reused")
	for _, body := range []string{``, `[]`, `null`, `{`, `{}`, `{"workspace_path":""}`, `{"workspace_path":1}`,
		`{"workspace_path":"/w","initial_active_model":{}}`, `{"workspace_path":"/w"} x`} {
		n.do("POST", path, body).refused(400, "invalid_request")
	}
	n.do("POST", path, `{"workspace_path":"/w"}`, "Content-Type", "text/html").refused(415, "unsupported_media_type")
}

func TestGet(t *testing.T) {
	n := start(t, serve.Config{Root: true})
	id := n.create()
	a, b := n.do("GET", path+"/"+id, "", "Host", "agents.example:8421").OK(200), n.do("GET", "/sessions/"+id, "").OK(200)
	if token := a.Str("attach_token"); !strings.HasPrefix(token, "atk_") || token == b.Str("attach_token") ||
		a.Str("ws_url") != "ws://agents.example:8421/metis/sessions/"+id+"/stream?attach="+token {
		t.Errorf("%v", a)
	}
	at, err := url.Parse(b.Str("ws_url"))
	if err != nil || at.Host != n.Host || at.Path != "/sessions/"+id+"/stream" {
		t.Fatalf("%v: %v", err, b)
	}
	k := n.dial(at.RequestURI())
	k.subscribed(chat, "", true)
	k.want("snapshot")
	public := join(t, n.Nodes, serve.Config{PublicURL: "https://agents.example/api/"})
	if o := public.do("GET", path+"/"+id, "").OK(200); !strings.HasPrefix(o.Str("ws_url"),
		"wss://agents.example/api/metis/sessions/"+id+"/stream?attach=atk_") {
		t.Errorf("%v", o)
	}
	public.do("GET", "/sessions/"+id, "") // it is not served there
	n.do("GET", path+"/nobody", "").refused(404, "session_not_found")
	n.do("GET", path+"/"+id, "", as, "tenant:other").refused(404, "session_not_found")
	n.do("GET", path+"/%00", "").refused(404, "session_not_found")
	n.do("GET", path+"/"+id+"/nothing", "").refused(404, "no_such_path")
	n.do("PUT", path+"/"+id, "").refused(405, "method_not_allowed")
}

// TestScopes: reading takes read, beginning and ending sessions write, and what agents are told command.
func TestScopes(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	turn := n.submit(id)
	for _, tt := range []struct{ method, path, body, needs string }{
		{"POST", "", `{"workspace_path":"/w"}`, "write"}, {"GET", "/" + id, "", "read"},
		{"GET", "/" + id + "/messages", "", "read"}, {"GET", "/" + id + "/events", "", "read"},
		{"POST", "/" + id + "/turns/" + turn + "/confirmations/r", `{"decision":"allow"}`, "command"},
		{"POST", "/" + id + "/turns/" + turn + "/cancel", "", "command"},
		{"POST", "/" + id + "/turns", hello, "command"}, {"DELETE", "/" + n.create(), "", "write,command"},
	} {
		others := slices.DeleteFunc([]string{"read", "write", "command"},
			func(s string) bool { return s == strings.Split(tt.needs, ",")[0] })
		n.do(tt.method, path+tt.path, tt.body, as, "may:"+strings.Join(others, ",")).refused(403, "forbidden")
		if a := n.do(tt.method, path+tt.path, tt.body, as, "may:"+tt.needs); a.Status == 403 {
			t.Errorf("%s: %s", a.Asked, a.Body)
		}
		n.do(tt.method, path+tt.path, tt.body, as, "nobody").refused(401, "unauthorized")
	}
	reader := n.attach(n.create(), as, "may:read")
	reader.subscribed(chat, "", false)
	reader.say(`{"type":"cancel","turn_id":"x"}`)
	reader.ends(1008, `"forbidden"`)
}

func TestSubmit(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	at := path + "/" + id + "/turns"
	body := `{"content":[{"type":"text","text":"look"},
		{"type":"image","source":{"kind":"base64","data":"AAAA"},"media_type":"image/png"}],"per_message_override":"big"}`
	first := n.do("POST", at, body, "Idempotency-Key", "k")
	o := first.OK(202)
	if o.Str("session_id") != id || o.Str("turn_id") == "" || o.Str("user_message_id") == "" ||
		len(o.Str("submitted_at")) != len("2026-05-08T00:00:00.000000Z") {
		t.Errorf("%v", o)
	}
	n.do("POST", at, hello).refused(409, "turn_in_flight")
	n.Say(id, answers("t1")...)
	n.submit(id)
	if again := n.do("POST", at, body, "Idempotency-Key", "k"); again.Body != first.Body {
		t.Errorf("%s\n%s", again.Body, first.Body)
	}
	if n := count(n.Types(id), schema.TypeCommandMessage); n != 2 {
		t.Errorf("%d messages", n)
	}
	var events struct {
		Events []struct {
			Type      string
			Turn      string `json:"turn_id"`
			Timestamp string
			Payload   map[string]any
		}
	}
	a := n.do("GET", path+"/"+id+"/events?event_types=turn.started,route.decided", "")
	if err := json.Unmarshal([]byte(a.Body), &events); err != nil || len(events.Events) != 3 {
		t.Fatalf("%v: %s", err, a.Body)
	}
	if e := events.Events[0]; e.Turn != o.Str("turn_id") || e.Timestamp != o.Str("submitted_at") ||
		e.Payload["has_images"] != true {
		t.Errorf("%v", e)
	}
	if e := events.Events[1]; e.Type != "route.decided" || e.Payload["chosen_model"] == nil {
		t.Errorf("%v", e)
	}
	for _, content := range []string{`null`, `[]`, `{}`, `"text"`, `[null]`, `[1]`, `[{}]`, `[{"type":"text"}]`,
		`[{"type":"text","text":1}]`, `[{"type":"image"}]`,
		`[{"type":"image","source":{"kind":"url"},"media_type":"image/png"}]`, `[{"type":"tool_result"}]`,
		`[{"type":"text","text":"a"},{"type":"thinking","text":"b"}]`} {
		n.do("POST", at, `{"content":`+content+`}`).refused(400, "invalid_content")
	}
	n.do("POST", at, `{"content":[{"type":"text","text":"a"}],"per_message_override":1}`).refused(400, "invalid_request")
	n.do("POST", at, `{`).refused(400, "invalid_request")
	n.do("POST", path+"/nobody/turns", hello).refused(404, "session_not_found")
	n.do("POST", at, hello, as, "tenant:other").refused(404, "session_not_found")
	n.do("POST", at, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 600<<10)+`"}]}`).refused(413, "too_large")
}

func TestCancel(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	turn := n.submit(id)
	at := path + "/" + id + "/turns/" + turn + "/cancel"
	n.Say(id, answers("t1")[:5]...)
	for _, body := range []string{`{"reason":"enough of that"}`, ``, `{}`} { // twice is once
		if o := n.do("POST", at, body).OK(202); o.Str("turn_id") != turn || o.Str("session_id") != id {
			t.Errorf("%v", o)
		}
	}
	if n := count(n.Types(id), "command.cancel"); n != 1 {
		t.Errorf("%d cancellations", n)
	}
	n.Say(id, event(schema.TypeTurnEnd, `{"turn_id":"t1","stop_reason":"cancelled"}`))
	n.do("POST", at, "").refused(409, "turn_already_completed")
	a := n.do("GET", path+"/"+id+"/events?event_types=turn.cancelled", "")
	if !strings.Contains(a.Body, `"reason":"user_cancel","reason_text":"enough of that"`) {
		t.Error(a.Body)
	}
	for _, other := range []string{"x", "turn_00000000000", strings.Replace(turn, "turn_", "evt_", 1),
		n.submit(n.create())} {
		n.do("POST", path+"/"+id+"/turns/"+other+"/cancel", "").refused(404, "turn_not_found")
	}
	n.do("POST", at, `[]`).refused(400, "invalid_request")
	n.do("POST", at, `{"reason":1}`).refused(400, "invalid_request")
	n.do("POST", path+"/nobody/turns/"+turn+"/cancel", "").refused(404, "session_not_found")
	n.do("POST", at, "", as, "tenant:other").refused(404, "session_not_found")
}

// waits makes a turn in which a tool waits for somebody.
func waits(n *node) (id, turn string) {
	id = n.create()
	turn = n.submit(id)
	n.Say(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"rm","input":{}}`),
		event(schema.TypeInputRequested, `{"request_id":"req","call_id":"c","prompt":"?"}`))
	return id, turn
}

func TestConfirm(t *testing.T) {
	n := start(t, serve.Config{})
	id, turn := waits(n)
	at := path + "/" + id + "/turns/" + turn + "/confirmations/"
	for _, body := range []string{`{}`, `{"decision":"maybe"}`, `{"decision":"allow","scope":"ever"}`, `{"decision":1}`,
		`x`} {
		n.do("POST", at+"req", body).refused(400, "invalid_request")
	}
	n.do("POST", at+"none", `{"decision":"allow"}`).refused(404, "confirmation_not_found")
	n.do("POST", path+"/"+id+"/turns/x/confirmations/req", `{"decision":"allow"}`).refused(404, "turn_not_found")
	n.do("POST", at+"req", `{"decision":"allow"}`, as, "tenant:other").refused(404, "session_not_found")
	first := n.do("POST", at+"req", `{"decision":"deny","scope":"once"}`, "Idempotency-Key", "k")
	if o := first.OK(200); o.Str("request_id") != "req" || o.Str("decision") != "deny" || o.At("applied") != true {
		t.Errorf("%v", o)
	}
	if again := n.do("POST", at+"req", `{"decision":"deny","scope":"once"}`, "Idempotency-Key",
		"k"); again.Body != first.Body {
		t.Errorf("%s", again.Body)
	}
	n.do("POST", at+"req", `{"decision":"allow"}`).refused(409, "confirmation_already_resolved")
	n.Say(id, event(schema.TypeInputAnswered, `{"request_id":"req"}`))
	n.do("POST", at+"req", `{"decision":"allow"}`).refused(409, "confirmation_already_resolved")
	if n := count(n.Types(id), "command.answer"); n != 1 {
		t.Errorf("%d answers", n)
	}
}

// TestOneWins sends two requests that exclude each other at the same time to two nodes: one is stored.
func TestOneWins(t *testing.T) {
	n := start(t, serve.Config{})
	nodes := []*node{n, join(t, n.Nodes, serve.Config{})}
	race := func(what, code string, ok int, ask func(*node, int) answer) {
		t.Helper()
		var wg sync.WaitGroup
		got := make([]answer, 8)
		for i := range got {
			wg.Go(func() { got[i] = ask(nodes[i%2], i) })
		}
		wg.Wait()
		won := 0
		for _, a := range got {
			if a.Status == ok {
				won++
			} else {
				a.refused(409, code)
			}
		}
		if won != 1 {
			t.Errorf("%s: %d have won", what, won)
		}
	}
	for range 5 {
		id := n.create()
		race("submit", "turn_in_flight", 202, func(n *node, _ int) answer { return n.do("POST", path+"/"+id+"/turns", hello) })
		id, turn := waits(n)
		race("confirm", "confirmation_already_resolved", 200, func(n *node, i int) answer {
			return n.do("POST", path+"/"+id+"/turns/"+turn+"/confirmations/req",
				fmt.Sprintf(`{"decision":%q}`, []string{"allow", "deny"}[i%2]))
		})
		id = n.create()
		race("end", "session_already_ended", 200, func(n *node, _ int) answer { return n.do("DELETE", path+"/"+id, "") })
		if n := count(n.Types(id), schema.TypeRunLifecycle); n != 1 {
			t.Errorf("it has ended %d times", n)
		}
	}
}

// TestMeanwhile has the turn change between the look at it and the append: what was right no longer is, and nothing is
// stored.
func TestMeanwhile(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	turn := n.submit(id)
	n.Say(id, answers("t1")[:5]...)
	n.Nodes.Log.Once(func() { n.Say(id, answers("t1")[5:]...) })
	n.do("POST", path+"/"+id+"/turns/"+turn+"/cancel", "").refused(409, "turn_already_completed")
	n.Nodes.Log.Once(func() { n.Say(id, event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)) })
	n.do("POST", path+"/"+id+"/turns", hello).refused(409, "session_already_ended")
	id, turn = waits(n)
	n.Nodes.Log.Once(func() {
		n.Say(id, event(schema.TypeInputAnswered, `{"request_id":"req"}`),
			event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	})
	a := n.do("POST", path+"/"+id+"/turns/"+turn+"/confirmations/req", `{"decision":"allow"}`)
	if a.Status != 409 && a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, typ := range []string{"command.cancel", "command.answer"} {
		if count(n.Types(id), typ) != 0 {
			t.Errorf("%s is stored", typ)
		}
	}
}

// TestEnd ends a session, a turn in flight first.
func TestEnd(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	if o := n.do("DELETE", path+"/"+id, "", "Idempotency-Key", "k").OK(200); o.Str("id") != id {
		t.Errorf("%v", o)
	}
	n.do("DELETE", path+"/"+id, "", "Idempotency-Key", "k").OK(200)
	n.do("DELETE", path+"/"+id, "").refused(409, "session_already_ended")
	n.do("POST", path+"/"+id+"/turns", hello).refused(409, "session_already_ended")
	n.do("DELETE", path+"/nobody", "").refused(404, "session_not_found")

	id = n.create()
	n.submit(id)
	n.Say(id, answers("t1")[:5]...)
	k := n.attach(id)
	k.subscribed(`{"event_types":["message.complete","llm.call_failed","turn.cancelled","session.ended"]}`, "", false)
	over := make(chan answer)
	go func() { over <- n.do("DELETE", path+"/"+id, "") }()
	eventually(t, "the agent is told", func() bool { return count(n.Types(id), "command.cancel") == 1 })
	n.Say(id, endings("t1")...)
	(<-over).OK(200)
	k.want("message.complete", "llm.call_failed", "turn.cancelled", "session.ended")
	k.ends(1000, "")

	onClock(t, "nobody answers", func(t *testing.T, n *node) {
		id := n.create()
		n.submit(id)
		begun := time.Now()
		n.do("DELETE", path+"/"+id, "").OK(200)
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		a := n.do("GET", path+"/"+id+"/events", "")
		if !strings.Contains(a.Body, `"turn.cancelled"`) ||
			strings.Index(a.Body, `"turn.cancelled"`) > strings.Index(a.Body, `"session.ended"`) {
			t.Error(a.Body)
		}
	})
}

// TestMessages pages through messages in both directions.
func TestMessages(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	for i := range 6 {
		n.submit(id)
		n.Say(id, answers(fmt.Sprint("t", i))...)
	}
	type page struct {
		Messages []struct {
			ID, Role string
			Metadata struct{ Status string }
		}
		Before bool `json:"has_more_before"`
		After  bool `json:"has_more_after"`
	}
	read := func(query string) (p page, ids []string) {
		t.Helper()
		a := n.do("GET", path+"/"+id+"/messages"+query, "")
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != 200 {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		for _, m := range p.Messages {
			ids = append(ids, m.ID)
		}
		return p, ids
	}
	p, all := read("")
	if len(all) != 12 || p.Before || p.After || p.Messages[0].Role != "user" || p.Messages[1].Role != "assistant" ||
		p.Messages[1].Metadata.Status != "complete" || !slices.IsSorted(all) {
		t.Fatalf("%+v", p)
	}
	p, newest := read("?limit=5")
	if !slices.Equal(newest, all[7:]) || !p.Before || p.After {
		t.Errorf("%v %+v", newest, p)
	}
	p, before := read("?limit=5&before=" + newest[0])
	if !slices.Equal(before, all[2:7]) || !p.Before || !p.After {
		t.Errorf("%v %+v", before, p)
	}
	p, before = read("?limit=5&before=" + before[0])
	if !slices.Equal(before, all[:2]) || p.Before || !p.After {
		t.Errorf("%v %+v", before, p)
	}
	p, after := read("?limit=9&after=" + all[3])
	if !slices.Equal(after, all[4:]) || !p.Before || p.After {
		t.Errorf("%v %+v", after, p)
	}
	p, after = read("?limit=3&after=" + all[0])
	if !slices.Equal(after, all[1:4]) || !p.Before || !p.After {
		t.Errorf("%v %+v", after, p)
	}
	for _, query := range []string{"?limit=0", "?limit=201", "?limit=x", "?before=x",
		"?after=" + strings.Replace(all[0], "msg_", "evt_", 1), "?before=a&after=b", "?before=a&before=b",
		"?after=msg_" + strings.Repeat("0", 20)} {
		n.do("GET", path+"/"+id+"/messages"+query, "").refused(400, "invalid_request")
	}
	n.do("GET", path+"/nobody/messages", "").refused(404, "session_not_found")
}

// TestEvents pages through events: all of them, once each, as the stream has them.
func TestEvents(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	for i := range 3 {
		n.submit(id)
		n.Say(id, answers(fmt.Sprint("t", i))...)
	}
	read := func(query string) (list []string, next string) {
		t.Helper()
		var p struct {
			Events []json.RawMessage
			Next   *string `json:"next_cursor"`
		}
		a := n.do("GET", path+"/"+id+"/events"+query, "")
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != 200 {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		for _, e := range p.Events {
			list = append(list, fmt.Sprintf(`{"type":"event","event":%s}`, e))
		}
		if p.Next != nil {
			next = *p.Next
		}
		return list, next
	}
	whole, next := read("?limit=1000")
	if next != "" || len(whole) != 1+3*9 {
		t.Fatalf("%d events", len(whole))
	}
	if streamed := events(n, id, full, idOf(whole[0])); !slices.Equal(streamed, whole[1:]) {
		t.Errorf("%d events are streamed", len(streamed))
	}
	for _, query := range []string{"?limit=4", "?limit=4&event_types=text.delta&event_types=turn.started,turn.completed"} {
		var got []string
		for at := query; ; at = query + "&cursor=" + next {
			var list []string
			list, next = read(at)
			if got = append(got, list...); next == "" {
				break
			}
		}
		want := whole
		if strings.Contains(query, "types") {
			want = slices.DeleteFunc(slices.Clone(whole), func(e string) bool {
				return !strings.Contains(e, `"text.delta"`) && !strings.Contains(e, `"turn.started"`) &&
					!strings.Contains(e, `"turn.completed"`)
			})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d events, want %d", query, len(got), len(want))
		}
	}
	if got, _ := read("?since=" + idOf(whole[4]) + "&until=" + idOf(whole[9])); !slices.Equal(got, whole[5:10]) {
		t.Errorf("between two events: %d", len(got))
	}
	if got, _ := read("?since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z"); !slices.Equal(got, whole) {
		t.Errorf("between two moments: %d", len(got))
	}
	if got, _ := read("?until=2020-01-01T00:00:00Z"); len(got) != 0 {
		t.Errorf("before all: %d", len(got))
	}
	other := n.create()
	for _, query := range []string{"?limit=0", "?limit=1001", "?event_types=made.up", "?since=x",
		"?until=" + first(n, other), "?cursor=x", "?cursor=a&cursor=b"} {
		n.do("GET", path+"/"+id+"/events"+query, "").refused(400, "invalid_request")
	}
	n.do("GET", path+"/nobody/events", "").refused(404, "session_not_found")
}
