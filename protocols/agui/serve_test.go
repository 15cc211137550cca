package agui_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/protocols/agui"
	"agentstream/schema"
)

const base, kind, jsonType = agui.Base, "Content-Type", "application/json"

// input is a RunAgentInput with messages, each "role id text".
func input(run, runID string, messages ...string) string {
	list := []string{}
	for _, m := range messages {
		parts := strings.SplitN(m, " ", 3)
		list = append(list, fmt.Sprintf(`{"id":%q,"role":%q,"content":%q}`, parts[1], parts[0], parts[2]))
	}
	return fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[],"state":{},"forwardedProps":{}}`, run, runID, strings.Join(list, ","))
}

// answers is a RunAgentInput that answers a question.
func answers(run, id, status, payload string) string {
	return strings.TrimSuffix(input(run, "r-"+id, "user m1 hello"), "}") +
		fmt.Sprintf(`,"resume":[{"interruptId":%q,"status":%q,"payload":%s}]}`, id, status, payload)
}

func post(n *edgetest.Node, body string, headers ...string) edgetest.Answer {
	return n.Do("POST", base, body, append([]string{kind, jsonType}, headers...)...)
}

// events takes a body apart: "id data".
func events(body string) (list []string) {
	for frame := range strings.SplitSeq(body, "\n\n") {
		id := ""
		for line := range strings.SplitSeq(frame, "\n") {
			if v, ok := strings.CutPrefix(line, "id: "); ok {
				id = v
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				list = append(list, id+" "+data)
			}
		}
	}
	return list
}

var typeWord = regexp.MustCompile(`"type":"([A-Z_]+)"`)

// types are those of the events of a body.
func types(body string) string {
	var list []string
	for _, e := range events(body) {
		list = append(list, typeWord.FindStringSubmatch(e)[1])
	}
	return strings.Join(list, " ")
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

// answered posts a body, and lets the agent answer when what it says is stored.
func answered(t *testing.T, n *edgetest.Node, run, body string, events ...schema.Event) edgetest.Answer {
	t.Helper()
	before := len(n.Types(run))
	done := make(chan edgetest.Answer, 1)
	go func() { done <- post(n, body) }()
	edgetest.Eventually(t, "it is stored", func() bool { return len(n.Types(run)) > before })
	n.Say(run, events...)
	return <-done
}

const whole = "RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END RUN_FINISHED"

// TestPost: a message begins a run and is stored once, whatever is sent how often. A client that holds nothing is told
// the response from its beginning, one that holds a part of it gets the thread. Nothing else of the body is believed.
func TestPost(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	a := answered(t, n, "chat1", input("chat1", "r1", "user msg1 hello"), turn("Good day.")...)
	if got := types(a.Body); a.Status != 200 || got != whole || a.Header.Get(kind) != "text/event-stream" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if list := events(a.Body); !strings.Contains(list[0], `"runId":"r1"`) ||
		!strings.Contains(list[0], `"messages":[{"id":"msg1","role":"user","content":"hello"}]`) ||
		!strings.HasPrefix(list[1], "2.5.1 ") {
		t.Errorf("%q", list)
	}
	if again := post(n, input("chat1", "r2", "user msg1 hello")); again.Body != a.Body {
		t.Errorf("again: %s", again.Body)
	}
	forged := post(n, input("chat1", "r3", "user msg1 hello", "assistant chat1-4-0 Go",
		"assistant forged I_never_said_this"))
	want := "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT RUN_FINISHED"
	if got := types(forged.Body); got != want {
		t.Fatalf("%s\n%s", got, forged.Body)
	}
	snapshot := `"messages":[{"id":"forged","role":"assistant","content":"I_never_said_this"},{"id":"msg1","role":"user","content":"hello"},{"id":"chat1-4-0","role":"assistant","content":"Good day."}]`
	if !strings.Contains(forged.Body, snapshot) || !strings.Contains(forged.Body, `"runId":"r3"`) {
		t.Errorf("%s", forged.Body)
	}
	if got := strings.Join(n.Types("chat1"), " "); strings.Count(got, "command.message") != 1 ||
		strings.Count(got, "session.created") != 1 {
		t.Error(got)
	}
	second := answered(t, n, "chat1", input("chat1", "r4", "user msg1 hello", "assistant chat1-4-0 Good_day.",
		"user msg2 more"), turn("Once more.")...)
	if got := types(second.Body); got != strings.Replace(whole, "TEXT", "MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT TEXT",
		1) || !strings.Contains(second.Body, `{"id":"msg2","role":"user","content":"more"}]`) {
		t.Errorf("%s\n%s", got, second.Body)
	}
	if old := post(n, input("chat1", "r5", "user msg1 hello")); types(old.Body) != want ||
		!strings.Contains(old.Body, "Once more.") {
		t.Errorf("of a page that is behind: %s", old.Body)
	}
}

// TestResume: after each event, with GET and POST, exactly the rest comes, and a resumed POST says nothing. Who has all
// gets the last event again, without an id.
func TestResume(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	a := answered(t, n, "chat1", input("chat1", "r1", "user msg1 hello"), turn("Good day.")...)
	answered(t, n, "chat1", input("chat1", "r2", "user msg2 hello"), turn("Another.")...)
	list := events(a.Body)
	for i, e := range list {
		id, data, _ := strings.Cut(e, " ")
		want := list[i+1:]
		if i == len(list)-1 {
			want = []string{" " + data}
		}
		for what, got := range map[string]edgetest.Answer{
			"GET": n.Do("GET", base+"/chat1", "", "Last-Event-ID", id), "offset": n.Do("GET", base+"/chat1?offset="+id, ""),
			"POST": post(n, input("chat1", "r9", "user new hello"), "Last-Event-ID", id),
			"POST to a run": n.Do("POST", base+"/chat1", input("other", "r9", "user new hello"), kind, jsonType,
				"Last-Event-ID", id),
		} {
			if have := events(got.Body); got.Status != 200 || !slices.Equal(have, want) {
				t.Errorf("%s after %s: %d %q, want %q", what, id, got.Status, have, want)
			}
		}
	}
	if got := n.Do("GET", base+"/chat1?offset=-1&runId=r1", ""); got.Body != a.Body {
		t.Errorf("of a run of AG-UI: %s", got.Body)
	}
	if got := n.Do("GET", base+"/chat1", ""); !strings.Contains(got.Body, "Another.") || types(got.Body) != whole {
		t.Errorf("the newest: %s", got.Body)
	}
	if got := n.Do("GET", base+"/chat1?offset=now",
		""); types(got.Body) != "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT RUN_FINISHED" {
		t.Errorf("from here on: %s", got.Body)
	}
	if got := strings.Join(n.Types("chat1"), " "); strings.Count(got, "command.message") != 2 {
		t.Error(got)
	}
}

// TestMessageWithoutAnID: a page that sends back what was said without an id says nothing.
func TestMessageWithoutAnID(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	n.Say("run", event(schema.TypeCommandMessage, `{"content":"hello"}`))
	n.Say("run", turn("Good day.")...)
	if a := n.Do("GET", base+"/run", ""); !strings.Contains(a.Body, `{"id":"run-1","role":"user","content":"hello"}`) {
		t.Errorf("%s", a.Body)
	}
	if a := post(n, input("run", "r", "user run-1 hello",
		"assistant run-3-0 Go")); types(a.Body) != "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT RUN_FINISHED" {
		t.Errorf("%s", a.Body)
	}
	if got := strings.Join(n.Types("run"), " "); strings.Count(got, "command.message") != 1 {
		t.Error(got)
	}
}

// TestManyAtOnce: two tabs that send one message, to two nodes, are one message.
func TestManyAtOnce(t *testing.T) {
	all := edgetest.Share()
	nodes := []*edgetest.Node{all.Start(t, agui.Protocol()), all.Start(t, agui.Protocol())}
	var wg sync.WaitGroup
	bodies := make([]string, 16)
	for i := range bodies {
		wg.Go(func() { bodies[i] = post(nodes[i%2], input("chat", "r1", "user one hello")).Body })
	}
	edgetest.Eventually(t, "it is stored", func() bool { return len(nodes[0].Types("chat")) > 1 })
	nodes[0].Say("chat", turn("yes")...)
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] || types(b) != whole {
			t.Errorf("%q", b)
		}
	}
	if got := strings.Join(nodes[0].Types("chat"), " "); strings.Count(got, "command.message") != 1 {
		t.Error(got)
	}
}

// asks is what an agent does that asks about a call.
func asks() []schema.Event {
	return []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeToolStart, `{"call_id":"c","tool":"rm","input":{"path":"/"}}`),
		event(schema.TypeInputRequested, `{"request_id":"q","call_id":"c","prompt":"May I?"}`)}
}

// TestApproval: a question ends the run of AG-UI with an interrupt, its answer begins the next one, and two tabs that
// contradict each other are told.
func TestApproval(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	a := answered(t, n, "chat", input("chat", "r1", "user m1 hello"), asks()...)
	if got := types(a.Body); got != "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END RUN_FINISHED" ||
		!strings.Contains(a.Body, `"outcome":{"type":"interrupt","interrupts":[{"id":"q","reason":"tool_call","message":"May I?","toolCallId":"c"}]}`) {
		t.Fatalf("%s", a.Body)
	}
	list := events(a.Body)
	id, data, _ := strings.Cut(list[len(list)-1], " ")
	if got := n.Do("GET", base+"/chat", "", "Last-Event-ID", id); got.Body != "data: "+data+"\n\n" {
		t.Errorf("the question again: %d %q", got.Status, got.Body)
	}
	if got := post(n, input("chat", "r2", "user m1 hello",
		"assistant c x")); types(got.Body) != "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT RUN_FINISHED" ||
		!strings.Contains(got.Body, `"interrupts":[{"id":"q"`) {
		t.Errorf("asked again: %s", got.Body)
	}
	var wg sync.WaitGroup
	statuses := make([]edgetest.Answer, 12)
	for i := range statuses {
		wg.Go(func() {
			statuses[i] = post(n, answers("chat", "q", "resolved", fmt.Sprintf(`{"approved":%v}`, i%2 == 0)))
		})
	}
	edgetest.Eventually(t, "one has won", func() bool { return strings.Contains(strings.Join(n.Types("chat"), " "), "command.answer") })
	n.Say("chat", event(schema.TypeToolEnd, `{"call_id":"c","ok":true,"output":"done"}`),
		event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"end_turn"}`))
	wg.Wait()
	yes, conflict := 0, 0
	for _, a := range statuses {
		switch {
		case a.Status == 200 && strings.HasPrefix(types(a.Body), "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT") &&
			strings.HasSuffix(a.Body, "}\n\n") && strings.Contains(a.Body, `"type":"success"`):
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
	got := n.Do("GET", base+"/chat", "")
	if strings.Count(got.Body, "RUN_STARTED") != 2 || strings.Count(got.Body, "RUN_FINISHED") != 2 ||
		!strings.Contains(got.Body, `"runId":"r-q"`) {
		t.Errorf("%s", got.Body)
	}
	for body, status := range map[string]int{answers("chat", "other", "resolved", "true"): 404,
		answers("none", "q", "resolved", "true"): 404,
		answers("chat", "q", "maybe", "true"):    400} {
		if a := post(n, body); a.Status != status {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

// TestTooLate: an answer to a question that nobody waits for any more is a conflict, and stores nothing.
func TestTooLate(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	for run, end := range map[string]schema.Event{"turn": event(schema.TypeTurnEnd,
		`{"turn_id":"t","stop_reason":"cancelled"}`),
		"ended": event(schema.TypeRunLifecycle, `{"state":"done"}`),
		"call":  event(schema.TypeToolEnd, `{"call_id":"c","ok":false}`)} {
		answered(t, n, run, input(run, "r1", "user m1 hello"), asks()...)
		n.Say(run, end)
		for _, payload := range []string{`{"approved":true}`, `{"approved":false}`} {
			if a := post(n, answers(run, "q", "resolved", payload)); a.Status != 409 ||
				!strings.Contains(a.Body, "nobody waits") {
				t.Errorf("%s %s: %d %s", run, payload, a.Status, a.Body)
			}
		}
		if got := strings.Join(n.Types(run), " "); strings.Contains(got, "answer") {
			t.Errorf("%s: %s", run, got)
		}
	}
}

// TestForeign: a run of others is answered exactly as one that is not there.
func TestForeign(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	a := answered(t, n, "chat", input("chat", "r1", "user m1 hello"), asks()...)
	id, _, _ := strings.Cut(events(a.Body)[1], " ")
	copilot := agui.Copilot + "/agent/default"
	for _, c := range []struct{ method, path, body, at string }{
		{"GET", base + "/RUN", "", ""}, {"GET", base + "/RUN", "", id}, {"GET", base + "/RUN?offset=now", "", ""},
		{"GET", base + "/RUN?runId=r1", "", ""},
		{"POST", base, input("RUN", "r"), ""}, {"POST", base + "/RUN", input("x", "r"), ""},
		{"POST", base, input("RUN", "r", "user m hello"), id},
		{"POST", base, answers("RUN", "q", "resolved", `{"approved":true}`), ""}, {"POST", base + "/RUN/stop", "", ""},
		{"POST", copilot + "/run", input("RUN", "r"), ""}, {"POST", copilot + "/connect", input("RUN", "r"), ""},
		{"POST", copilot + "/stop/RUN", "{}", ""},
	} {
		for _, as := range []string{"tenant:other", "run:another"} {
			for _, accept := range []string{"text/event-stream", jsonType} {
				var told [2]string
				for i, of := range []string{"chat", "none"} {
					headers := []string{kind, jsonType, edgetest.As, as, "Accept", accept}
					if c.at != "" {
						headers = append(headers, "Last-Event-ID", c.at)
					}
					a := n.Do(c.method, strings.ReplaceAll(c.path, "RUN", of), strings.ReplaceAll(c.body, "RUN", of), headers...)
					told[i] = a.Without(of)
				}
				if told[0] != told[1] {
					t.Errorf("%s %s %s as %s:\n%s\n%s", c.method, c.path, accept, as, told[0], told[1])
				}
			}
		}
	}
	if got := strings.Join(n.Types("chat"), " "); strings.Count(got, "command") != 1 {
		t.Error(got)
	}
}

// TestPreflight: a page may send what @ag-ui/client 1, @tanstack/ai-client 0.33 and @copilotkit/core 1.75 send.
func TestPreflight(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol(), edgetest.FromPage)
	const agent, tanstack = "accept authorization content-type", "accept authorization content-type x-run-id last-event-id"
	for _, c := range []struct{ method, path, headers string }{
		{"POST", base, agent}, {"POST", base + "/run", agent}, {"POST", base + "/run", tanstack},
		{"GET", base + "/run", tanstack},
		{"POST", base + "/run/stop", agent}, {"GET", agui.Copilot + "/info", agent}, {"POST", agui.Copilot + "/info", agent},
		{"POST", agui.Copilot + "/agent/default/run", agent}, {"POST", agui.Copilot + "/agent/default/connect", agent},
		{"POST", agui.Copilot + "/agent/default/stop/run", agent},
	} {
		if refused := n.Preflight(c.method, c.path, c.headers); len(refused) > 0 {
			t.Errorf("%s %s may not have %v", c.method, c.path, refused)
		}
	}
}

// TestHydrateIsBounded: of a thread that is too large for one answer the newest messages come, and that some are
// missing is said.
func TestHydrateIsBounded(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	for i := range 20 {
		n.Say("run", turn(strings.Repeat("x", 500<<10)+fmt.Sprint(i))...)
	}
	a := n.Do("GET", base+"/run", "", "Accept", jsonType)
	if len(a.Body) > 9<<20 || len(a.Body) < 4<<20 || !strings.Contains(a.Body, `"page":{"truncated":true}`) ||
		!strings.Contains(a.Body, `xx19"`) {
		t.Errorf("%d bytes: … %s", len(a.Body), a.Body[max(0, len(a.Body)-600):])
	}
}

// TestCopilot: CopilotKit's browser finds an agent, connects to a thread that is not there, says something, reads it
// again and stops it.
func TestCopilot(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	call := func(path, body string) edgetest.Answer { return n.Do("POST", agui.Copilot+path, body, kind, jsonType) }
	if a := n.Do("GET", agui.Copilot+"/info", ""); a.Status != 200 || !strings.Contains(a.Body, `"default"`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := call("/agent/default/connect", input("chat", "r0")); types(a.Body) != "RUN_STARTED RUN_FINISHED" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	done := make(chan edgetest.Answer, 1)
	go func() { done <- call("/agent/default/run", input("chat", "r1", "user m1 hello")) }()
	edgetest.Eventually(t, "it is stored", func() bool { return len(n.Types("chat")) == 2 })
	n.Say("chat", turn("Well")[:3]...)
	if a := call("/agent/default/stop/chat", "{}"); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	n.Say("chat", event(schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"cancelled"}`))
	if a := <-done; !strings.Contains(a.Body, `"outcome":{"type":"cancelled"}`) {
		t.Errorf("%s", a.Body)
	}
	if a := call("/agent/default/connect", input("chat", "r2",
		"user unknown hello")); types(a.Body) != "RUN_STARTED MESSAGES_SNAPSHOT MESSAGES_SNAPSHOT TEXT_MESSAGE_START TEXT_MESSAGE_END RUN_FINISHED" ||
		!strings.Contains(a.Body, `"content":"Well"`) {
		t.Errorf("%s", a.Body)
	}
	for path, status := range map[string]int{"/agent/default/stop/chat": 200, "/agent/default/stop/none": 404} {
		if a := call(path, "{}"); a.Status != status {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if got := strings.Join(n.Types("chat"), " "); strings.Count(got, "command.message") != 1 {
		t.Error(got)
	}
}

// TestHydrate: a page of TanStack's begins with the messages, without those of the response that it reads next.
func TestHydrate(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	answered(t, n, "chat", input("chat", "r1", "user m1 hello"),
		slices.Insert(turn("Good day."), 2, event(schema.TypeReasoningDelta, `{"text":"Hm."}`))...)
	n.Say("chat", event(schema.TypeCommandMessage, `{"message_id":"m2","content":"more"}`),
		event(schema.TypeTurnStart, `{"turn_id":"u"}`), event(schema.TypeTextDelta, `{"text":"Well"}`))
	a := n.Do("GET", base+"/chat?threadId=chat", "", "Accept", jsonType)
	want := `{"messages":[{"id":"m1","role":"user","parts":[{"type":"text","content":"hello"}]},` +
		`{"id":"chat-4-1","role":"assistant","parts":[{"type":"thinking","content":"Hm."},{"type":"text","content":"Good day."}]},` +
		`{"id":"m2","role":"user","parts":[{"type":"text","content":"more"}]}],"activeRun":{"runId":"chat.9"},"interrupts":null,"page":{"truncated":false}}`
	if a.Status != 200 || strings.TrimSpace(a.Body) != want {
		t.Errorf("%d\n got %s\nwant %s", a.Status, a.Body, want)
	}
	n.Say("chat", asks()[1:]...)
	a = n.Do("GET", base+"/chat", "", "Accept", jsonType)
	if !strings.Contains(a.Body, `"activeRun":null,"interrupts":{"runId":"chat.9","pending":[{"id":"q"`) ||
		!strings.Contains(a.Body, `"type":"tool-call","id":"c","name":"rm","arguments":"{\"path\":\"/\"}"`) {
		t.Errorf("%s", a.Body)
	}
}

// TestBrokenNotEnded: a node that goes away breaks a body off, without an event that tells why: a clean end is success
// for the client.
func TestBrokenNotEnded(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	n.Say("run", turn("Well")[:3]...)
	rest, err := n.StopAfter(base+"/run", "Well")
	if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(rest, "data:") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestSnapshotIsBounded: of a thread that is too large for one event of the client's the newest messages come, and that
// some are missing is said.
func TestSnapshotIsBounded(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	for i := range 20 {
		n.Say("run", turn(strings.Repeat("x", 500<<10)+fmt.Sprint(i))...)
	}
	a := post(n, input("run", "r1", "assistant other x"))
	longest := 0
	for _, e := range events(a.Body) {
		longest = max(longest, len(e))
	}
	if longest > 9<<20 || longest < 4<<20 ||
		!strings.Contains(a.Body, `"name":"agentstream:truncated","value":{"messages":4,`) ||
		!strings.Contains(a.Body, `xx19"`) {
		t.Errorf("%d bytes: %.300s … %s", longest, a.Body, a.Body[max(0, len(a.Body)-600):])
	}
}

// TestBadInput: what is wrong is told in one form, and stores nothing.
func TestBadInput(t *testing.T) {
	n := edgetest.Share().Start(t, agui.Protocol())
	n.Say("run", event(schema.TypeRunLifecycle, `{"state":"running"}`))
	n.Say("long", turn("x")...)
	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		headers            []string
	}{
		"no JSON":          {"POST", "", `{`, 400, nil},
		"a list":           {"POST", "", `[]`, 400, nil},
		"no thread":        {"POST", "", `{"messages":[]}`, 400, nil},
		"a message, no id": {"POST", "", `{"threadId":"run","messages":[{"role":"user","content":"x"}]}`, 400, nil},
		"a long id":        {"POST", "", input("run", "r", "user "+strings.Repeat("x", 300)+" x"), 400, nil},
		"a long run id":    {"POST", "", input("run", strings.Repeat("x", 300), "user m x"), 400, nil},
		"nothing said":     {"POST", "", `{"threadId":"run","messages":[{"id":"m","role":"user","content":[]}]}`, 400, nil},
		"null content": {"POST", "", `{"threadId":"run","messages":[{"id":"m","role":"user","content":null}]}`,
			400, nil},
		"no run's id":       {"POST", "", input("../run", "r", "user m x"), 400, nil},
		"no run":            {"POST", "", input("none", "r"), 404, nil},
		"too large":         {"POST", "", input("run", "r", "user m "+strings.Repeat("x", 8<<20)), 413, nil},
		"another type":      {"POST", "", input("run", "r", "user m x"), 415, []string{kind, "text/html"}},
		"a reader":          {"POST", "", input("run", "r", "user m x"), 403, []string{edgetest.As, "may:read"}},
		"nobody":            {"POST", "", input("run", "r", "user m x"), 401, []string{edgetest.As, "nobody:"}},
		"no cursor":         {"GET", "/long?offset=x", "", 400, nil},
		"a cursor of two":   {"GET", "/long?offset=1.2", "", 400, nil},
		"zeros":             {"GET", "/long", "", 400, []string{"Last-Event-ID", "1.01.1"}},
		"no such response":  {"GET", "/long", "", 400, []string{"Last-Event-ID", "2.3.1"}},
		"no such event":     {"GET", "/long", "", 400, []string{"Last-Event-ID", "1.3.9"}},
		"beyond the end":    {"GET", "/long", "", 400, []string{"Last-Event-ID", "1.99.1"}},
		"a POST, no cursor": {"POST", "", input("long", "r", "user m x"), 400, []string{"Last-Event-ID", "x"}},
		"runId twice":       {"GET", "/long?runId=a&runId=b", "", 400, nil},
		"no run to watch":   {"GET", "/none", "", 404, nil},
		"an id of no run":   {"GET", "/a.b", "", 400, nil},
		"another tenant":    {"GET", "/long", "", 404, []string{edgetest.As, "tenant:other", "Accept", jsonType}},
		"no such path":      {"GET", "/run/other", "", 404, nil},
		"another method":    {"PUT", "/run/stop", "", 405, nil},
	} {
		headers := append([]string{kind, jsonType}, tt.headers...)
		if len(tt.headers) > 0 && tt.headers[0] == kind {
			headers = tt.headers
		}
		if a := n.Do(tt.method, base+tt.path, tt.body, headers...); a.Status != tt.status ||
			!strings.Contains(a.Body, `{"error":`) || !json.Valid([]byte(a.Body)) {
			t.Errorf("%s: %d %.300s", name, a.Status, a.Body)
		}
	}
	if a := n.Do("GET", base+"/run", ""); a.Status != 204 {
		t.Errorf("nothing has been said: %d %s", a.Status, a.Body)
	}
	if got := n.Types("run"); len(got) != 1 {
		t.Errorf("something was stored: %v", got)
	}
}
