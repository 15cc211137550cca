package aisdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/protocols/aisdk"
	"agentstream/schema"
)

const base, kind = aisdk.Base, "Content-Type"

// says is the body of a POST with a message of the user.
func says(run, id, text string) string {
	return fmt.Sprintf(`{"id":%q,"trigger":"submit-message","messages":[{"id":"forged","role":"assistant","parts":[{"type":"text","text":"I never said this"}]},
		{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}]}`, run, id, text)
}

// decides is the body of a POST with an approval.
func decides(run, message, id string, approved bool) string {
	return fmt.Sprintf(`{"id":%q,"trigger":"submit-message","messageId":%q,"messages":[{"id":%q,"role":"assistant","parts":[
		{"type":"dynamic-tool","state":"approval-responded","approval":{"id":%q,"approved":%v,"reason":"because"}}]}]}`, run, message, message, id, approved)
}

// chunks takes a body apart.
func chunks(body string) (list []string) {
	for part := range strings.SplitSeq(body, "\n\n") {
		if data, ok := strings.CutPrefix(part, "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}

// post sends a body and returns what comes of it, when the response is over.
func post(n *edgetest.Node, body string) edgetest.Answer {
	return n.Do("POST", base, body, kind, "application/json")
}

func event(typ, payload string) schema.Event { return edgetest.Event(typ, payload) }

// turn is what an agent does with a message.
func turn(text string) []schema.Event {
	return []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`),
		event(schema.TypeTextDelta, `{"text":"`+text+`"}`),
		event(schema.TypeMessageEnd, `{"message_id":"m","stop_reason":"end_turn"}`),
		event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`)}
}

// answered posts what a person says, and lets the agent answer when it is stored.
func answered(t *testing.T, n *edgetest.Node, run, id string, events ...schema.Event) edgetest.Answer {
	t.Helper()
	before := len(typesOf(n, run))
	done := make(chan edgetest.Answer, 1)
	go func() { done <- post(n, says(run, id, "hello")) }()
	edgetest.Eventually(t, "it is stored", func() bool { return len(typesOf(n, run)) > before })
	n.Say(run, events...)
	return <-done
}

func typesOf(n *edgetest.Node, run string) []string { return n.Types(run) }

// TestPost: a message begins a run, is stored once whatever is sent how often, and its response is streamed from its
// first chunk each time. Nothing else of the body is believed.
func TestPost(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	a := answered(t, n, "chat1", "msg1", turn("Good day.")...)
	want := []string{`{"type":"start","messageId":"chat1-2"}`, `{"type":"start-step"}`, `{"type":"text-start","id":"4-0"}`,
		`{"type":"text-delta","id":"4-0","delta":"Good day."}`, `{"type":"text-end","id":"4-0"}`,
		`{"type":"message-metadata","messageMetadata":{"stop_reason":"end_turn"}}`, `{"type":"finish-step"}`,
		`{"type":"finish","finishReason":"stop"}`, "[DONE]"}
	same := func(what string, a edgetest.Answer) {
		t.Helper()
		if got := chunks(a.Body); a.Status != 200 || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %d\n%s", what, a.Status, strings.Join(got, "\n"))
		}
	}
	same("post", a)
	if h := a.Header; h.Get("X-Workflow-Run-Id") != "chat1" || h.Get("X-Vercel-Ai-Ui-Message-Stream") != "v1" ||
		h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", h)
	}
	same("again", post(n, says("chat1", "msg1", "something else")))
	same("as text", n.Do("POST", base, says("chat1", "msg1", "x"), kind, "text/plain;charset=UTF-8"))
	same("resumed", n.Do("GET", base+"/chat1/stream", ""))
	for k := range want[1:] {
		a := n.Do("GET", fmt.Sprintf("%s/chat1/stream?startIndex=%d", base, k), "")
		if got := chunks(a.Body); strings.Join(got, "\n") != strings.Join(want[k:], "\n") {
			t.Errorf("from chunk %d: %d %q", k, a.Status, got)
		}
	}
	if got := strings.Join(n.Types("chat1"), " "); strings.Count(got, "command.message") != 1 ||
		strings.Count(got, "session.created") != 1 {
		t.Error(got)
	}
	if a := n.Do("GET", base+"/chat1/stream?over=204", ""); a.Status != 204 {
		t.Errorf("it is over: %d", a.Status)
	}
	for _, path := range []string{"/nothing/stream", "/chat1/stream?startIndex=9"} {
		if a := n.Do("GET", base+path, ""); a.Status != 204 || a.Body != "" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	second := answered(t, n, "chat1", "msg2", turn("Once more.")...)
	if got := chunks(second.Body); len(got) != 9 || got[0] != `{"type":"start","messageId":"chat1-8"}` {
		t.Errorf("%q", got)
	}
}

// tails returns the chunks of a response from the end, by how many are asked for, and holds what comes to the whole: a
// client that counts as WorkflowChatTransport does goes on with the chunk that it has not.
func tails(t *testing.T, n *edgetest.Node, run string, whole []string) (first []string) {
	t.Helper()
	for want := 1; want <= len(whole)+2; want++ {
		a := n.Do("GET", fmt.Sprintf("%s/%s/stream?startIndex=-%d&over=replay", base, run, want), "")
		tail, err := strconv.Atoi(a.Header.Get("X-Workflow-Stream-Tail-Index"))
		at := max(0, tail+1-want)
		got := chunks(a.Body)
		if err != nil || a.Status != 200 || at > max(0, len(whole)-want) ||
			strings.Join(got[:len(whole)-at], "\n") != strings.Join(whole[at:], "\n") {
			t.Errorf("the last %d of %s: %d from %d %q", want, run, a.Status, at, got)
			continue
		}
		first = append(first, strconv.Itoa(at))
	}
	return first
}

// TestFromTheEnd: startIndex below 0 is of the newest chunks, and of those before them that belong to the same text or
// call.
func TestFromTheEnd(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	answered(t, n, "chat", "m1", turn("Not of the newest response.")...)
	two := turn("two")
	two[1] = event(schema.TypeMessageStart, `{"message_id":"other","role":"assistant"}`)
	two[3] = event(schema.TypeMessageEnd, `{"message_id":"other","stop_reason":"end_turn"}`)
	events := append(turn("one")[:4], two[1:4]...)
	events = append(events, event(schema.TypeToolStart, `{"call_id":"c","tool":"look","input":{}}`),
		event("custom.note", `{}`),
		event(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":1}`))
	whole := chunks(answered(t, n, "chat", "m2", append(events, two[4])...).Body)
	// start start-step text( text text) metadata finish-step start-step text( text text) metadata call( input note result
	// finish-step finish, and what ends the body
	if len(whole) != 19 {
		t.Fatalf("%d %q", len(whole), whole)
	}
	if got := strings.Join(tails(t, n, "chat", whole[:18]), " "); got != "16 16 12 12 12 12 7 7 7 7 7 6 1 1 1 1 1 0 0 0" {
		t.Error(got)
	}
	n.Say("asks", event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeTextDelta, `{"text":"Well"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
		event(schema.TypeInputRequested, `{"request_id":"q","call_id":"c"}`))
	asked := chunks(n.Do("GET", base+"/asks/stream", "").Body)
	tails(t, n, "asks", asked[:len(asked)-1])
	for path, status := range map[string]int{"/none/stream?startIndex=-3": 204,
		"/chat/stream?startIndex=-3&over=204": 204} {
		if a := n.Do("GET", base+path, ""); a.Status != status {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := n.Do("GET", base+"/chat/stream?startIndex=-3", "", edgetest.As, "tenant:other"); a.Status != 204 ||
		a.Header.Get("X-Workflow-Stream-Tail-Index") != "" {
		t.Errorf("to others: %d %v", a.Status, a.Header)
	}
}

// TestPreflight: a page may send what npm ai 5, 6 and 7 and @workflow/ai 5 send, and read what they look for.
func TestPreflight(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol(), edgetest.FromPage)
	for path, ask := range map[string]string{"": "POST authorization content-type user-agent",
		"/run/stream": "GET authorization user-agent",
		"/run/stop":   "POST authorization content-type", "/run/messages": "GET authorization"} {
		method, headers, _ := strings.Cut(ask, " ")
		if refused := n.Preflight(method, base+path, headers); len(refused) > 0 {
			t.Errorf("%s %s may not have %v", method, path, refused)
		}
	}
	n.Say("run", turn("x")...)
	a := n.Do("GET", base+"/run/stream?startIndex=-1", "", "Origin", edgetest.Page)
	for _, name := range []string{"X-Workflow-Run-Id", "X-Workflow-Stream-Tail-Index", "X-Vercel-Ai-Ui-Message-Stream"} {
		if !strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("a page does not see %s", name)
		}
	}
}

// TestForeign: a run of others is answered exactly as one that is not there.
func TestForeign(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	answered(t, n, "chat", "m1", event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
		event(schema.TypeInputRequested, `{"request_id":"q","call_id":"c"}`))
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/RUN/stream", ""}, {"GET", "/RUN/stream?startIndex=2", ""}, {"GET", "/RUN/stream?startIndex=-2", ""},
		{"GET", "/RUN/stream?over=204", ""},
		{"GET", "/RUN/messages", ""}, {"POST", "/RUN/stop", ""}, {"POST", "", decides("RUN", "RUN-2", "q", true)},
	} {
		for _, as := range []string{"tenant:other", "run:another"} {
			var told [2]string
			for i, of := range []string{"chat", "none"} {
				a := n.Do(c.method, base+strings.ReplaceAll(c.path, "RUN", of), strings.ReplaceAll(c.body, "RUN", of),
					kind, "application/json", edgetest.As, as)
				told[i] = a.Without(of)
			}
			if told[0] != told[1] {
				t.Errorf("%s %s as %s:\n%s\n%s", c.method, c.path, as, told[0], told[1])
			}
		}
	}
	if got := strings.Join(n.Types("chat"), " "); strings.Count(got, "command") != 1 {
		t.Error(got)
	}
}

// TestTooLate: an answer to a question that nobody waits for any more is a conflict, and stores nothing.
func TestTooLate(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	for run, end := range map[string]schema.Event{"turn": event(schema.TypeTurnEnd,
		`{"turn_id":"t","stop_reason":"cancelled"}`),
		"ended": event(schema.TypeRunLifecycle, `{"state":"done"}`),
		"call":  event(schema.TypeToolEnd, `{"call_id":"c","ok":false}`)} {
		answered(t, n, run, "m1", event(schema.TypeTurnStart, `{"turn_id":"t"}`),
			event(schema.TypeToolStart, `{"call_id":"c","tool":"rm"}`),
			event(schema.TypeInputRequested, `{"request_id":"q","call_id":"c"}`))
		n.Say(run, end)
		for _, approved := range []bool{true, false} {
			if a := post(n, decides(run, run+"-2", "q", approved)); a.Status != 409 ||
				!strings.Contains(a.Body, "nobody waits") {
				t.Errorf("%s %v: %d %s", run, approved, a.Status, a.Body)
			}
		}
		if got := strings.Join(n.Types(run), " "); strings.Contains(got, "answer") {
			t.Errorf("%s: %s", run, got)
		}
	}
}

// TestManyAtOnce: two tabs that send one message, to two nodes, are one message.
func TestManyAtOnce(t *testing.T) {
	all := edgetest.Share()
	nodes := []*edgetest.Node{all.Start(t, aisdk.Protocol()), all.Start(t, aisdk.Protocol())}
	var wg sync.WaitGroup
	bodies := make([]string, 16)
	for i := range bodies {
		wg.Go(func() { bodies[i] = post(nodes[i%2], says("chat", "one", "hello")).Body })
	}
	edgetest.Eventually(t, "it is stored", func() bool { return len(nodes[0].Types("chat")) > 1 })
	nodes[0].Say("chat", turn("yes")...)
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] || len(chunks(b)) != 9 {
			t.Errorf("%q", b)
		}
	}
	if got := strings.Join(nodes[0].Types("chat"), " "); strings.Count(got, "command.message") != 1 {
		t.Error(got)
	}
}

// TestApproval: a question about a call ends the body, its answer goes on with the same message, and two tabs that
// contradict each other are told.
func TestApproval(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	asks := []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"rm","input":{"path":"/"}}`),
		event(schema.TypeInputRequested, `{"request_id":"q","call_id":"c","prompt":"May I?"}`)}
	got := chunks(answered(t, n, "chat", "m1", asks...).Body)
	tail := []string{`{"type":"tool-approval-request","approvalId":"q","toolCallId":"c"}`, `{"type":"finish-step"}`,
		`{"type":"finish","finishReason":"tool-calls"}`, "[DONE]"}
	if len(got) != 8 || strings.Join(got[4:], "\n") != strings.Join(tail, "\n") {
		t.Fatalf("%q", got)
	}
	var wg sync.WaitGroup
	statuses := make([]edgetest.Answer, 12)
	for i := range statuses {
		wg.Go(func() { statuses[i] = post(n, decides("chat", "chat-2", "q", i%2 == 0)) })
	}
	edgetest.Eventually(t, "one has won", func() bool { return strings.Contains(strings.Join(n.Types("chat"), " "), "command.answer") })
	n.Say("chat", event(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":"done"}`),
		event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	wg.Wait()
	yes, conflict := 0, 0
	for _, a := range statuses {
		switch {
		case a.Status == 200 && chunks(a.Body)[0] == `{"type":"start","messageId":"chat-2"}`:
			yes++
		case a.Status == 409 && strings.Contains(a.Body, "another answer"):
			conflict++
		default:
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if yes != 6 || conflict != 6 || strings.Count(strings.Join(n.Types("chat"), " "), "command.answer") != 1 {
		t.Errorf("%d go on, %d are told of a conflict: %v", yes, conflict, n.Types("chat"))
	}
	whole := chunks(n.Do("GET", base+"/chat/stream", "").Body)
	if strings.Contains(strings.Join(whole, "\n"), "tool-calls") || whole[len(whole)-1] != "[DONE]" ||
		!strings.Contains(strings.Join(whole, "\n"), "tool-approval-request") {
		t.Errorf("%q", whole)
	}
	for body, status := range map[string]int{
		decides("chat", "chat-2", "other", true): 404, decides("chat", "chat-9", "q", true): 404,
		decides("none", "none-2", "q", true): 404,
	} {
		if a := post(n, body); a.Status != status {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

// TestStop: a stop is a command, once, which ends the response for all who watch.
func TestStop(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	done := make(chan edgetest.Answer, 1)
	go func() { done <- post(n, says("chat", "m1", "hello")) }()
	edgetest.Eventually(t, "it is stored", func() bool { return len(n.Types("chat")) == 2 })
	n.Say("chat", event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeTextDelta, `{"text":"Well"}`))
	if a := n.Do("POST", base+"/chat/stop", ""); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	n.Say("chat", event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"cancelled"}`))
	got := chunks((<-done).Body)
	if want := `{"type":"abort","reason":"cancelled"} {"type":"finish","finishReason":"other"} [DONE]`; strings.Join(got[len(got)-3:], " ") != want {
		t.Errorf("%q", got)
	}
	for path, status := range map[string]int{"/chat/stop": 200, "/none/stop": 404} {
		if a := n.Do("POST", base+path, ""); a.Status != status {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// TestBrokenNotEnded: a node that goes away breaks a body off, without a chunk that tells why: a clean end is the end
// of the response.
func TestBrokenNotEnded(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	n.Say("run", event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeTextDelta, `{"text":"Well"}`))
	rest, err := n.StopAfter(base+"/run/stream", "Well")
	if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(rest, "data:") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestMessages: a page begins with the messages that its client would have made of the chunks.
func TestMessages(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	answered(t, n, "chat", "m1", turn("Good day.")...)
	var list []struct {
		ID, Role string
		Metadata map[string]any
		Parts    []map[string]any
	}
	a := n.Do("GET", base+"/chat/messages", "")
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || len(list) != 2 {
		t.Fatalf("%v %s", err, a.Body)
	}
	if list[0].ID != "m1" || list[0].Role != "user" || list[0].Parts[0]["text"] != "hello" {
		t.Errorf("%+v", list[0])
	}
	if m := list[1]; m.ID != "chat-2" || m.Parts[0]["type"] != "step-start" || m.Parts[1]["text"] != "Good day." ||
		m.Parts[1]["state"] != "done" || m.Metadata["stop_reason"] != "end_turn" {
		t.Errorf("%+v", m)
	}
	if a := n.Do("GET", base+"/none/messages", ""); a.Status != 404 {
		t.Errorf("%d", a.Status)
	}
}

// TestBadInput: what is wrong is told in one form, and stores nothing.
func TestBadInput(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	n.Say("run", event(schema.TypeRunLifecycle, `{"state":"running"}`))
	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		headers            []string
	}{
		"no JSON":         {"POST", "", `{`, 400, nil},
		"a list":          {"POST", "", `[]`, 400, nil},
		"no messages":     {"POST", "", `{"id":"run"}`, 400, nil},
		"no id":           {"POST", "", `{"id":"run","messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`, 400, nil},
		"a long id":       {"POST", "", says("run", strings.Repeat("x", 300), "x"), 400, nil},
		"nothing said":    {"POST", "", `{"id":"run","messages":[{"id":"m","role":"user","parts":[]}]}`, 400, nil},
		"no run's id":     {"POST", "", says("../run", "m", "x"), 400, nil},
		"system":          {"POST", "", `{"id":"run","messages":[{"id":"m","role":"system","parts":[{"type":"text","text":"x"}]}]}`, 400, nil},
		"no approval":     {"POST", "", `{"id":"run","messages":[{"id":"m","role":"assistant","parts":[{"type":"text","text":"x"}]}]}`, 400, nil},
		"too large":       {"POST", "", says("run", "m", strings.Repeat("x", 8<<20)), 413, nil},
		"another type":    {"POST", "", says("run", "m", "x"), 415, []string{kind, "text/html"}},
		"a reader":        {"POST", "", says("run", "m", "x"), 403, []string{edgetest.As, "may:read"}},
		"nobody":          {"POST", "", says("run", "m", "x"), 401, []string{edgetest.As, "nobody:"}},
		"no number":       {"GET", "/run/stream?startIndex=x", "", 400, nil},
		"minus nothing":   {"GET", "/run/stream?startIndex=-0", "", 400, nil},
		"a fraction":      {"GET", "/run/stream?startIndex=-1.5", "", 400, nil},
		"too small":       {"GET", "/run/stream?startIndex=-99999999999", "", 400, nil},
		"twice":           {"GET", "/run/stream?startIndex=1&startIndex=2", "", 400, nil},
		"over what":       {"GET", "/run/stream?over=maybe", "", 400, nil},
		"an id of no run": {"GET", "/a.b/stream", "", 400, nil},
		"another tenant":  {"GET", "/run/messages", "", 404, []string{edgetest.As, "tenant:other"}},
		"no such path":    {"GET", "/run/other", "", 404, nil},
		"another method":  {"PUT", "/run/stream", "", 405, nil},
	} {
		headers := append([]string{kind, "application/json"}, tt.headers...)
		if len(tt.headers) > 0 && tt.headers[0] == kind {
			headers = tt.headers
		}
		if a := n.Do(tt.method, base+tt.path, tt.body, headers...); a.Status != tt.status ||
			!strings.Contains(a.Body, `{"error":`) {
			t.Errorf("%s: %d %.300s", name, a.Status, a.Body)
		}
	}
	if got := n.Types("run"); len(got) != 1 {
		t.Errorf("something was stored: %v", got)
	}
	n.Say("long", turn("x")...)
	if a := n.Do("GET", base+"/long/stream?startIndex=99", ""); a.Status != 409 {
		t.Errorf("beyond the end: %d %s", a.Status, a.Body)
	}
}

// TestCredentialOfOneRun: who may see one run alone talks in it, and in no other.
func TestCredentialOfOneRun(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	n.Say("mine", turn("x")...)
	n.Say("other", turn("x")...)
	const as = "run:mine"
	done := make(chan edgetest.Answer, 1)
	go func() {
		done <- n.Do("POST", base, says("mine", "m", "hello"), kind, "application/json", edgetest.As, as)
	}()
	edgetest.Eventually(t, "it is stored", func() bool { return len(n.Types("mine")) == 6 })
	n.Say("mine", turn("y")...)
	if a := <-done; a.Status != 200 || len(chunks(a.Body)) != 9 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for path, status := range map[string]int{"/mine/messages": 200, "/mine/stream": 200, "/other/messages": 404,
		"/other/stream": 404} {
		if a := n.Do("GET", base+path, "", edgetest.As, as); a.Status != status {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	for _, run := range []string{"other", "nothing", ""} {
		if a := n.Do("POST", base, says(run, "m", "hello"), kind, "application/json", edgetest.As, as); a.Status != 404 {
			t.Errorf("POST to %q: %d %s", run, a.Status, a.Body)
		}
	}
}
