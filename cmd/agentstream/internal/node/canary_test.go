package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/rest"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/metis"
	"agentstream/protocols/native"
	"agentstream/protocols/otlp"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// canary begins the words that stand wherever a run holds content.
const canary = "canary-"

// planted is a run of which every payload holds canaries: messages, names of tools, inputs, outputs, errors, states,
// titles.
func planted(idle bool) (events []schema.Event) {
	add := func(typ, payload string) {
		events = append(events, edgetest.Event(typ, strings.ReplaceAll(payload, "@", fmt.Sprint(canary, len(events), "-"))))
	}
	add(schema.TypeSessionCreated, `{"agent":{"id":"@a","type":"agent"},"title":"@t","metadata":{"@k":"@v","graph_id":"@g"},"environment_id":"@e","workspace_path":"/@w","model":"@m","system":"@s"}`)
	add(schema.TypeRunLifecycle, `{"state":"running","reason":"@r"}`)
	add(schema.TypeCommandMessage, `{"content":"@c","message_id":"@i","assistant_id":"@a","input":{"messages":[{"role":"user","content":"@x"}]}}`)
	add(schema.TypeTurnStart, `{"turn_id":"turn","@k":"@v"}`)
	add(schema.TypeMessageStart, `{"message_id":"@m","role":"assistant","model":"@n","provider":"@p"}`)
	add(schema.TypeTextDelta, `{"text":"@t","index":0}`)
	add(schema.TypeReasoningDelta, `{"text":"@r","index":1}`)
	add(schema.TypeMessageEnd, `{"message_id":"@m","content":[{"type":"text","text":"@t"}],"stop_reason":"@s"}`)
	add(schema.TypeToolStart, `{"call_id":"@c","tool":"@t","input":{"@k":"@v"}}`)
	add(schema.TypeToolOutputDelta, `{"call_id":"@c","text":"@t"}`)
	add(schema.TypeToolEnd, `{"call_id":"@c","ok":false,"output":"@o","error":"@e","error_detail":{"type":"@y","message":"@m"}}`)
	add(schema.TypeChildSpawn, `{"child_id":"kid","prompt":"@p","tools_allowed":["@t"]}`)
	add(schema.TypePlanProposal, `{"plan":{"id":"@p","steps":[{"id":"@s","title":"@t"}]},"planning_gate":"preview"}`)
	add(schema.TypeInputRequested, `{"request_id":"@q","prompt":"@p","options":["@o"],"value":{"@k":"@v"}}`)
	add(schema.TypeStateValues, `{"values":{"@k":"@v","messages":[{"type":"ai","content":"@m"}]}}`)
	add(schema.TypeStateUpdate, `{"node":"@n","values":{"@k":"@v"}}`)
	add(schema.TypeCheckpoint, `{"checkpoint_id":"@c"}`)
	add(schema.TypeTaskStart, `{"task_id":"@k","name":"@n"}`)
	add(schema.TypeProgress, `{"message":"@m"}`)
	add("custom.note", `{"@k":"@v"}`)
	for i := range 2 {
		kid := edgetest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"%skid%d"}`, canary, i))
		kid.ChildID = "kid"
		events = append(events, kid)
	}
	if idle {
		add(schema.TypeTurnEnd, `{"turn_id":"turn","stop_reason":"@s","reason":"@r"}`)
	}
	return events
}

// letters are dead letters with content.
type letters struct{ edge.Operator }

func (letters) Partitions() []rest.Partition { return nil }
func (letters) DeadLetters(context.Context, string, int) ([]rest.DeadLetter, int, error) {
	return []rest.DeadLetter{{ID: "1", RunID: "held", Detail: canary + "detail", Error: canary + "error",
		Body: canary + "body"}}, 1, nil
}
func (letters) Retry(context.Context, string, string) (string, bool, error) {
	return canary + "stays", true, nil
}
func (letters) Drop(context.Context, string, string) (bool, error) { return true, nil }

// listed are the runs of the tenant.
type listed struct{}

func (listed) Parent(context.Context, string, string) (string, error) { return "", nil }
func (listed) Runs(context.Context, string, schema.RunsQuery) ([]schema.RunInfo, error) {
	return []schema.RunInfo{{ID: "held", Started: time.Now(), Updated: time.Now(),
		Session: json.RawMessage(`{"title":"` + canary + `title","metadata":{"k":"` + canary + `v"}}`)}}, nil
}

// askings are bodies for routes, by the end of their path, for a run and a word that is new.
var askings = map[string][]string{
	"/threads": {`{"thread_id":"RUN","if_exists":"do_nothing"}`, `{"thread_id":"RUN"}`,
		`{"metadata":{"a":"b"}}`},
	"/threads/{run}": {`{"metadata":{"x":"y"}}`, `{}`},
	"/runs/wait":     {`{"assistant_id":"a","input":{"messages":[{"role":"user","content":"hi"}]},"multitask_strategy":"reject"}`, `{"assistant_id":"a","command":{"resume":"x"}}`},
	"/threads/{run}/runs": {`{"assistant_id":"a","input":{"messages":[]},"multitask_strategy":"reject"}`,
		`{"assistant_id":"a","input":{"x":1},"multitask_strategy":"interrupt"}`,
		`{"assistant_id":"a","command":{"resume":{"nobody":1}}}`},
	"/runs/stream":    {`{"assistant_id":"a","input":{"messages":[]},"multitask_strategy":"reject"}`},
	"/sessions":       {`{"agent":"a","title":"t"}`, `{"workspace_path":"/w"}`},
	"/sessions/{run}": {`{"title":"x"}`, `{"metadata":{"a":"b"}}`, ``},
	"/sessions/{run}/events": {`{"events":[{"type":"user.message","content":[{"type":"text","text":"hi"}]}]}`,
		`{"events":[{"type":"user.tool_confirmation","tool_use_id":"nobody","result":"allow"}]}`,
		`{"events":[{"type":"user.interrupt"}]}`},
	"/turns":                   {`{"content":[{"type":"text","text":"go"}]}`},
	"/confirmations/{request}": {`{"decision":"allow"}`},
	"/v1/agent/runs":           {`{"run_id":"RUN"}`},
	"/v1/agent/runs/{run}":     {`{}`},
	"/runs/{run}/events": {`{"type":"progress"}`, `{"type":"tool.start","payload":{}}`,
		`{"type":"progress","seq":1}`, `{"type":"command.answer","payload":{"request_id":"nobody"}}`},
	"/v1/agent/events": {`{"run_id":"RUN","type":"progress"}`, `{"run_id":"RUN","type":"progress","seq":1}`},
	"/approve_plan":    {`{}`, `{"plan_id":"another"}`},
	"/reject_plan":     {`{"plan_id":"another"}`},
	"/answer":          {`{"request_id":"nobody","answer":1}`},
	"/messages":        {`{"content":"x"}`},
	"/v1/responses": {`{"input":"x","background":true,"previous_response_id":"resp_RUN"}`,
		`{"input":"x","stream":true,"previous_response_id":"resp_RUN"}`},
	"/ai-sdk/chat":       {`{"id":"RUN","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"x"}]}]}`},
	"/ag-ui":             {`{"threadId":"RUN","runId":"r","messages":[{"id":"u","role":"user","content":"x"}]}`},
	"/agent/{agent}/run": {`{"threadId":"RUN","runId":"r","messages":[{"id":"u","role":"user","content":"x"}]}`},
}

// asks returns what is sent to a route.
func asks(path string) []string {
	best := ""
	for end := range askings {
		if strings.HasSuffix(path, end) && len(end) > len(best) {
			best = end
		}
	}
	if best == "" {
		return []string{`{}`, ``}
	}
	return askings[best]
}

// messagesOf returns messages for a method: its fields for ids name the run, whatever they are called, and its texts a
// word.
func messagesOf(path, run string) (list [][]byte) {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return [][]byte{nil}
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	return [][]byte{nil, filled(m.Input(), run, 0)}
}

func filled(m protoreflect.MessageDescriptor, run string, depth int) (b []byte) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		tag := func(typ protowire.Type) { b = protowire.AppendTag(b, f.Number(), typ) }
		switch f.Kind() {
		case protoreflect.StringKind:
			text := "word"
			if strings.HasSuffix(string(f.Name()), "_id") {
				text = run
			}
			if f.Name() == "app_id" {
				text = "app"
			}
			tag(protowire.BytesType)
			b = protowire.AppendString(b, text)
		case protoreflect.EnumKind:
			tag(protowire.VarintType)
			b = protowire.AppendVarint(b, 1)
		case protoreflect.MessageKind:
			if depth < 4 && f.ContainingOneof() == nil && !f.IsMap() {
				tag(protowire.BytesType)
				b = protowire.AppendBytes(b, filled(f.Message(), run, depth+1))
			}
		}
	}
	return b
}

// TestCanary: no answer to a caller without the scope read holds content of a run, on any route, whatever it is asked.
// The same requests of a reader show that the words are there to be found. Nothing that a caller without the scope
// command asks for stores a command of a run that is there.
func TestCanary(t *testing.T) {
	all := edgetest.Share()
	f := &ListenFlags{Console: true}
	shares, err := auth.NewShares(auth.SharesConfig{Secret: []byte(strings.Repeat("s", 64)),
		Still: func(auth.Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	n := all.Start(t, native.Protocol(), func(c *edge.Config) {
		c.Protocols, c.Operator, c.Catalog, c.Shares, c.LogTimeout = f.protocols(otlp.New(otlp.Config{})), letters{}, listed{}, shares, time.Second
	})
	seen, asked, runs, commands := 0, 0, 0, 0
	ask := func(rt edge.RouteRow, scopes auth.Scope, idle bool) {
		runs++
		run := fmt.Sprint("held", runs)
		n.Say(run, planted(idle)...)
		before := len(n.Types(run))
		path := strings.NewReplacer("{run}", run, "{id}", "1", "{thread}", qoder.ThreadID(run, "kid"), "{part}",
			langgraph.RunID(run, 3), "{turn}", metis.TurnID(run, 3), "{request}", "q", "{ref}", "blob_1", "{assistant}",
			"a").Replace(rt.Path)
		who := "may:" + scopes.String()
		var answers []string
		if strings.HasPrefix(rt.Path, "/grpc.") || rt.Transport == dialect.GRPC || strings.HasPrefix(rt.Path, rpcPrefix) {
			for _, m := range messagesOf(rt.Path, run) {
				answers = append(answers, callFor(t, n, rt.Path, m, who))
			}
		} else {
			for _, body := range asks(rt.Path) {
				answers = append(answers, requestFor(t, n, rt.Method, path, strings.ReplaceAll(body, "RUN", run), who))
			}
		}
		for _, typ := range n.Types(run)[before:] {
			switch {
			case schema.IsCommand(typ) && scopes&auth.ScopeCommand != 0:
				commands++
			case schema.IsCommand(typ):
				t.Errorf("%s with %s: %s was stored", rt.Pattern, scopes, typ)
			}
		}
		for _, a := range answers {
			asked++
			found := strings.Contains(a, canary)
			switch {
			case found && scopes&auth.ScopeRead != 0:
				seen++
			case found:
				t.Errorf("%s with %s: %.300s", rt.Pattern, scopes, a)
			}
		}
	}
	sets := []auth.Scope{auth.ScopeWrite, auth.ScopeCommand, auth.ScopeOperate, auth.ScopeWrite | auth.ScopeCommand,
		auth.ScopeAll &^ auth.ScopeRead}
	for _, rt := range n.Edge.Table() {
		if rt.Method == "GET" && strings.HasPrefix(rt.Path, "/console") {
			continue
		}
		for _, scopes := range append(slices.Clone(sets), auth.ScopeAll) {
			ask(rt, scopes, false)
			if rt.Method != "GET" {
				ask(rt, scopes, true)
			}
		}
		if rt.Method != "GET" {
			ask(rt, auth.ScopeRead|auth.ScopeWrite, true)
		}
	}
	if seen < 40 || asked < 1000 || commands < 40 {
		t.Errorf("%d of %d answers hold canaries for readers, %d commands were stored: the test sees little", seen,
			asked, commands)
	}
	t.Logf("%d of %d answers hold canaries, %d commands were stored", seen, asked, commands)
}

// requestFor returns all that answers a request, within a second.
func requestFor(t *testing.T, n *edgetest.Node, method, path, body, who string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/v1/agent/events") {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	r.Header.Set(edgetest.As, who)
	resp, err := n.HTTP.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // a stream goes on
	return fmt.Sprint(resp.Status, resp.Header, string(b))
}

// callFor returns all that answers a call.
func callFor(t *testing.T, n *edgetest.Node, path string, message []byte, who string) string {
	t.Helper()
	conn, err := net.Dial("tcp", n.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := edgetest.CallRaw(conn, path, message, edgetest.As, who)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Done():
	case <-time.After(300 * time.Millisecond):
		r.Close()
	}
	var b strings.Builder
	for _, m := range r.Messages() {
		b.Write(m)
	}
	return fmt.Sprint(b.String(), r.Trailer)
}
