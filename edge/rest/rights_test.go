package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"agentstream/edge"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// entry is a way by which producers send events. send stores a line of a run, or returns the code of its refusal.
type entry struct {
	name   string
	send   func(run, line string) string
	before int  // events that it sends before the line, in the same pack
	nobody bool // it carries no credential, and so has the scope write alone
}

// entries are all of them. The caller of all is who says.
func entries(t *testing.T, h *edgetest.House) []entry {
	inRun := func(run, line string) string { return strings.Replace(line, "{", `{"run_id":"`+run+`",`, 1) }
	post := func(path, body string, headers ...string) string {
		a := h.Do("POST", path, body, headers...)
		if a.Status != 200 {
			return a.Problem(t).Code
		}
		for _, r := range receiptsOf(t, a.Body) {
			if r.Error != nil {
				return r.Error.Code
			}
		}
		return ""
	}
	told := func(text string) string {
		for _, r := range receiptsOf(t, text) {
			if r.Error != nil {
				return r.Error.Code
			}
		}
		return ""
	}
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	events := func(run string) string { return "/v1/agent/runs/" + run + "/events" }
	keys := 0
	return []entry{
		{name: "a request", send: func(run, line string) string { return post(events(run), line) }},
		{name: "a keyed request", send: func(run, line string) string {
			keys++
			return post(events(run), line, "Idempotency-Key", fmt.Sprint("k", keys))
		}},
		{name: "a pack", before: 1, send: func(run, line string) string { return post(events(run), aDelta+"\n"+line+"\n"+aDelta) }},
		{name: "an array", before: 1, send: func(run, line string) string { return post(events(run), "["+aDelta+","+line+","+aDelta+"]") }},
		{name: "a batch", send: func(run, line string) string { return post(edgetest.PublishPath, inRun(run, line)) }},
		{name: "a keyed batch", before: 1, send: func(run, line string) string {
			keys++
			return post(edgetest.PublishPath, inRun(run, aDelta)+"\n"+inRun(run, line), "Idempotency-Key", fmt.Sprint("k", keys))
		}},
		{name: "a keyed line", send: func(run, line string) string {
			keys++
			return post(edgetest.PublishPath, strings.Replace(inRun(run, line), "{", fmt.Sprintf(`{"key":"l%d",`, keys), 1))
		}},
		{name: "a stream", send: func(run, line string) string {
			p := h.Publish(http.DefaultClient)
			sendLines(p, inRun(run, line))
			r := nextReceipt(p)
			p.W.Close()
			restOfReceipts(p)
			if r.Error != nil {
				return r.Error.Code
			}
			return ""
		}},
		{name: "a socket", send: func(run, line string) string {
			k := h.MustTap("ws", edgetest.PublishPath, 0)
			defer k.Tcp.Close()
			k.Send(edgetest.ClientFrame(0x81, inRun(run, line)))
			text, err := k.Event()
			if err != nil {
				t.Fatal(err)
			}
			return told(text)
		}},
		{name: "a call", send: func(run, line string) string { return callOnce(t, conn, run, line) }},
		{name: "NATS", nobody: true, send: func(run, line string) string {
			a := h.Server.StorePosts(t.Context(), edgetest.RunOf(run), postsOf(line), nil)
			if a[0].Refusal != nil {
				return a[0].Refusal.Code
			}
			return ""
		}},
		{name: "NATS beside others", before: 1, nobody: true, send: func(run, line string) string {
			a := h.Server.StorePosts(t.Context(), edgetest.RunOf(run), postsOf(aDelta, line), nil)
			if a[1].Refusal != nil {
				return a[1].Refusal.Code
			}
			return ""
		}},
	}
}

// callOnce publishes an event by a bidirectional call.
func callOnce(t *testing.T, conn *grpc.ClientConn, run, line string) string {
	t.Helper()
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/agent.v1.AgentIngest/Publish", grpc.ForceCodec(edgetest.RawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	e, err := schema.DecodeBatch(run, []byte(line))
	if err != nil {
		t.Fatal(err)
	}
	b := publishRequest(run, e[0].Type, string(e[0].Payload), "")
	if err := s.SendMsg(&b); err != nil {
		t.Fatal(err)
	}
	var got []byte
	if err := s.RecvMsg(&got); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	_, texts := edgetest.MessageFields(t, got)
	if texts[7] == "" {
		return ""
	}
	_, said := edgetest.MessageFields(t, []byte(texts[7]))
	return said[1]
}

// lineOfType is the smallest event of a type.
func lineOfType(t *testing.T, typ string) string {
	t.Helper()
	file, err := os.ReadFile("../../schema/testdata/types/" + typ + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(file, []byte{'\n'})
	e, err := schema.DecodeLine(first)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":%q,"actor":"agent","payload":%s}`, typ, e.Payload)
}

// housedAs is a house whose caller is as changeable as its scopes.
func housedAs(t *testing.T, change ...func(*edge.Config)) (*edgetest.House, *atomic.Pointer[auth.Caller]) {
	who := new(atomic.Pointer[auth.Caller])
	who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: auth.ScopeAll})
	return edgetest.NewHouse(t, append(change, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) { return *who.Load(), nil }
	})...), who
}

// TestRefusedCommandsSayTheirWay: the audit feed names the way of a command that was refused, by every way in.
func TestRefusedCommandsSayTheirWay(t *testing.T) {
	var trail *audit.Trail
	h, who := housedAs(t, func(c *edge.Config) {
		trail = audit.New(audit.Config{Log: c.Appender})
		c.Audit = trail
	})
	h.Tell("run", edgetest.Lifecycle("running"))
	who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: auth.ScopeWrite})
	var read schema.Seq
	for _, in := range entries(t, h) {
		if code := in.send("run", lineOfType(t, "command.cancel")); code != "FORBIDDEN" {
			t.Fatalf("%s: %s", in.name, code)
		}
		if err := trail.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want, lines := "native", 0
		if in.nobody {
			want = "nats"
		}
		for p, err := range h.Log.Packs(t.Context(), audit.FeedOf("acme"), 0, schema.MaxSeq) {
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range p.Records(read) {
				if err != nil {
					t.Fatal(err)
				}
				read = r.Seq
				if string(r.Type) == schema.TypeSessionCreated {
					continue
				}
				lines++
				var l audit.Line
				if err := json.Unmarshal(r.Payload(), &l); err != nil || l.Action != audit.Refused || l.Via != want {
					t.Errorf("%s: %s, want via %s", in.name, r.Line, want)
				}
			}
		}
		if lines == 0 {
			t.Errorf("%s: no line", in.name)
		}
	}
}

// TestTypesByScope: what may be written, by every type, by every way in, by scope. A producer writes an agent's own
// types, and no command.
func TestTypesByScope(t *testing.T) {
	h, who := housedAs(t)
	types := append(schema.Types(), schema.TypeInfo{Name: "custom.example"})
	if n := len(slices.DeleteFunc(schema.Types(), func(i schema.TypeInfo) bool { return !i.Command })); n != 10 {
		t.Errorf("%d types are commands", n)
	}
	for _, in := range entries(t, h) {
		for _, info := range types {
			for _, scopes := range []auth.Scope{auth.ScopeWrite, auth.ScopeWrite | auth.ScopeRead,
				auth.ScopeWrite | auth.ScopeCommand} {
				run := fmt.Sprintf("%s_%s_%d", strings.ReplaceAll(in.name, " ", ""),
					strings.ReplaceAll(info.Name, ".", "-"), scopes)
				who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: auth.ScopeAll})
				h.Tell(run, edgetest.Lifecycle("running"))
				who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: scopes})
				code := in.send(run, lineOfType(t, info.Name))
				stored := slices.ContainsFunc(storedEvents(h, run),
					func(e schema.Event) bool { return e.Type == info.Name && e.Seq > 1+schema.Seq(in.before) })
				switch {
				case !info.Command:
					if code != "" && info.Name != schema.TypeRunLifecycle {
						t.Errorf("%s: %s with %s is %s", in.name, info.Name, scopes, code)
					}
				case in.nobody || !(auth.Caller{Scopes: scopes}).May(auth.ScopeCommand):
					if code != "FORBIDDEN" || stored {
						t.Errorf("%s: %s with %s is %q, stored %v", in.name, info.Name, scopes, code, stored)
					}
				case (code == "") != stored || code == "FORBIDDEN":
					t.Errorf("%s: %s with %s is %q, stored %v", in.name, info.Name, scopes, code, stored)
				}
			}
		}
	}
}

// TestCommandsByEveryWay: a command that is sent as an event is what the route of the command makes of it. The same
// states refuse it, and who sends it is in the credential.
func TestCommandsByEveryWay(t *testing.T) {
	h, who := housedAs(t)
	for _, in := range entries(t, h) {
		if in.nobody {
			continue
		}
		for i, s := range edgetest.Situations {
			for name, body := range edgetest.Bodies {
				run := fmt.Sprintf("%s_%d_%s", strings.ReplaceAll(in.name, " ", ""), i, name)
				h.Tell(run, s.Lines...)
				last := h.Last(run)
				over := in.before > 0 && isOver(h, run)
				who.Store(&auth.Caller{Tenant: "acme", Subject: "bob", Scopes: auth.ScopeWrite | auth.ScopeCommand})
				typ := "command." + strings.TrimSuffix(name, "s")
				code := in.send(run, fmt.Sprintf(`{"type":%q,"actor":"agent","payload":%s}`, typ, forgedBy(body)))
				who.Store(&auth.Caller{Tenant: "acme", Subject: "ann", Scopes: auth.ScopeAll})
				takes := slices.Contains(strings.Fields(s.Takes), name)
				switch {
				case over: // what comes before the command is refused
					if code != "RUN-ENDED" || h.Last(run) != last {
						t.Errorf("%s: %s in %q is %q", in.name, name, s.Name, code)
					}
				case !takes:
					if code != "STATE-FORBIDS" || h.Last(run) != last {
						t.Errorf("%s: %s in %q is %q, %d events more", in.name, name, s.Name, code, h.Last(run)-last)
					}
				case code != "":
					t.Errorf("%s: %s in %q is %q", in.name, name, s.Name, code)
				default:
					e := h.Event(run, last+1+schema.Seq(in.before))
					if e.Type != typ || e.Actor != "user" || string(schema.Field(e.Payload, "by")) != `"bob"` ||
						bytes.Count(e.Payload, []byte(`"by"`)) != 1 {
						t.Errorf("%s: %s in %q became %s %s of %s", in.name, name, s.Name, e.Type, e.Payload, e.Actor)
					}
				}
			}
		}
	}
}

// isOver reports whether a run has ended.
func isOver(h *edgetest.House, run string) bool {
	var a struct{ State schema.RunState }
	_ = json.Unmarshal([]byte(h.Do("GET", "/v1/agent/runs/"+run, "").Body), &a)
	return a.State.Final()
}

// forgedBy is a body that says twice, once with an escape, that somebody else is who sends it.
func forgedBy(body string) string {
	if body == "" {
		body = "{}"
	}
	end := `,"by":"the boss"}`
	if body == "{}" {
		end = `"by":"the boss"}`
	}
	return `{"\u0062y":"the boss",` + strings.TrimPrefix(strings.TrimSuffix(body, "}")+end, "{")
}

// TestCommandsAmongEvents: of one body, each command is held to the run as it is right before it, and one that is
// refused keeps the whole body out of the log.
func TestCommandsAmongEvents(t *testing.T) {
	h, who := housedAs(t)
	asks, answers := edgetest.AskInput, edgetest.CommandLine("answer", `{"request_id":"q1","answer":1}`)
	approve, wait := edgetest.CommandLine("approve_plan", `{}`), edgetest.Lifecycle("awaiting_approval")
	spawn := `{"type":"child.spawn","payload":{"child_id":"kid"}}`
	pauseKid := `{"type":"command.pause","child_id":"kid","payload":{}}`
	for i, tt := range []struct {
		lines []string
		code  string
		line  int
	}{
		{[]string{edgetest.Lifecycle("running"), asks, answers}, "", 0},
		{[]string{edgetest.Lifecycle("running"), answers, asks}, "STATE-FORBIDS", 2},
		{[]string{edgetest.Lifecycle("running"), asks, answers, answers}, "STATE-FORBIDS", 4},
		{[]string{edgetest.Lifecycle("planning"), edgetest.AskPlan, wait, approve}, "", 0},
		{[]string{edgetest.Lifecycle("planning"), edgetest.AskPlan, approve, wait}, "STATE-FORBIDS", 3},
		{[]string{edgetest.Lifecycle("planning"), edgetest.AskPlan, wait, approve,
			edgetest.CommandLine("reject_plan", `{}`)}, "STATE-FORBIDS", 5},
		{[]string{edgetest.Lifecycle("running"), spawn, pauseKid}, "", 0},
		{[]string{edgetest.Lifecycle("running"), pauseKid, spawn}, "NOT-FOUND", 2},
		{[]string{edgetest.CommandLine("message", `{"content":"x"}`), edgetest.Lifecycle("running")}, "NOT-FOUND", 0},
		{[]string{edgetest.Lifecycle("running"), edgetest.CommandLine("cancel", `{}`), edgetest.Lifecycle("aborted"),
			edgetest.CommandLine("cancel", `{}`)}, "STATE-FORBIDS", 4},
		{[]string{edgetest.Lifecycle("done"), edgetest.CommandLine("message", `{"content":"and?"}`),
			edgetest.Lifecycle("running"), edgetest.CommandLine("pause", `{}`)}, "", 0},
	} {
		run := fmt.Sprint("run_", i)
		a := h.Do("POST", "/v1/agent/runs/"+run+"/events", strings.Join(tt.lines, "\n"))
		if tt.code == "" {
			if a.Status != 200 || len(storedEvents(h, run)) != len(tt.lines) {
				t.Errorf("%v: %d %s", tt.lines, a.Status, a.Body)
			}
			continue
		}
		p := a.Problem(t)
		if p.Code != tt.code || len(storedEvents(h, run)) != 0 || tt.line != p.Line && tt.line != 0 {
			t.Errorf("%v: %d %s, %d stored", tt.lines, a.Status, a.Body, len(storedEvents(h, run)))
		}
	}
	many := slices.Repeat([]string{aDelta}, 2*schema.MaxPackEvents)
	many[0], many[len(many)-1] = edgetest.Lifecycle("running"), edgetest.CommandLine("resume", `{}`)
	if p := h.Do("POST", "/v1/agent/runs/long/events", strings.Join(many, "\n")).Expect(t, 409,
		"STATE-FORBIDS"); len(storedEvents(h, "long")) != 0 || p.Line != len(many) {
		t.Errorf("%d stored, line %d", len(storedEvents(h, "long")), p.Line)
	}
	many[len(many)-1] = edgetest.CommandLine("pause", `{}`)
	if a := h.Do("POST", "/v1/agent/runs/long/events", strings.Join(many, "\n")); a.Status != 200 ||
		len(storedEvents(h, "long")) != len(many) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	// A repeat is answered as the first one was, and only with the same sender.
	body := edgetest.Lifecycle("running") + "\n" + asks + "\n" + answers
	first := h.Do("POST", "/v1/agent/runs/again/events", body, "Idempotency-Key", "k")
	h.Tell("again", edgetest.Lifecycle("done"))
	if a := h.Do("POST", "/v1/agent/runs/again/events", body, "Idempotency-Key", "k"); a.Status != 200 ||
		a.Body != first.Body {
		t.Errorf("%d %s, first %s", a.Status, a.Body, first.Body)
	}
	who.Store(&auth.Caller{Tenant: "acme", Subject: "eve", Scopes: auth.ScopeAll})
	h.Do("POST", "/v1/agent/runs/again/events", body, "Idempotency-Key", "k").Expect(t, 422, "KEY-REUSED")
}

// TestCommandsRace: of two who decide at the same time, by the route and as an event among others, one does.
func TestCommandsRace(t *testing.T) {
	h := edgetest.NewHouse(t)
	for round := range 20 {
		run := fmt.Sprint("run_", round)
		h.Tell(run, edgetest.Lifecycle("planning"), edgetest.AskPlan, edgetest.Lifecycle("awaiting_approval"))
		taken := make(chan int)
		go func() { taken <- orderOnce(h, run, "approve_plan", "").Status }()
		go func() {
			taken <- h.Do("POST", "/v1/agent/runs/"+run+"/events", aDelta+"\n"+edgetest.CommandLine("reject_plan", `{}`)).Status
		}()
		if a, b := <-taken, <-taken; a+b != 409+200 && a+b != 409+202 {
			t.Errorf("%d and %d", a, b)
		}
	}
}
