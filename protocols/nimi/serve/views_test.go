package serve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

func asJob() *runtimev1.SubmitScenarioJobRequest {
	m := ask()
	return &runtimev1.SubmitScenarioJobRequest{Head: m.Head, ScenarioType: m.ScenarioType, Spec: m.Spec,
		ExecutionMode: runtimev1.ExecutionMode_EXECUTION_MODE_ASYNC_JOB}
}

// TestKStream005 has snapshots of a job, the terminal one last, and OK; who comes late gets them all, and Get gives the
// newest.
func TestKStream005(t *testing.T) {
	n := start(t)
	res, err := invoke(with(t), n, "RuntimeAiService/SubmitScenarioJob", asJob(), &runtimev1.SubmitScenarioJobResponse{})
	if err != nil {
		t.Fatal(err)
	}
	id := res.GetJob().GetJobId()
	subscribe := &runtimev1.SubscribeScenarioJobEventsRequest{JobId: id}
	live := open(with(t), n, "RuntimeAiService/SubscribeScenarioJobEvents", subscribe, jobEvent)
	if first := live.must(); !proto.Equal(first.GetJob(), res.GetJob()) || first.GetEventType() != 1 {
		t.Errorf("%v\nwant %v", first.GetJob(), res.GetJob())
	}
	n.Say(id, edgetest.Event(schema.TypeTurnStart, `{"turn_id":"t"}`), text("what it says, and a little more of it"),
		edgetest.Event(schema.TypeProgress, `{"message":"no counts"}`),
		edgetest.Event(schema.TypeProgress, `{"done":4,"total":8}`), over("done", ""))
	rest, err := live.rest()
	late, lerr := open(with(t), n, "RuntimeAiService/SubscribeScenarioJobEvents", subscribe, jobEvent).rest()
	if err != nil || lerr != nil || len(rest) != 3 || len(late) != 4 {
		t.Fatalf("%v, %v: %d and %d events", err, lerr, len(rest), len(late))
	}
	for i, e := range late {
		if e.GetSequence() != uint64(i+1) || i > 0 && !proto.Equal(e, rest[i-1]) {
			t.Errorf("event %d is %v, live %v", i, e, rest[max(i-1, 0)])
		}
	}
	if j := late[2].GetJob(); j.GetStatus() != 3 || j.GetProgressPercent() != 50 || j.GetProgressCurrentStep() != 4 ||
		j.GetProgressTotalSteps() != 8 || late[1].GetJob().GetProgressTotalSteps() != 0 {
		t.Errorf("%v", late[1:3])
	}
	got, err := invoke(with(t), n, "RuntimeAiService/GetScenarioJob", &runtimev1.GetScenarioJobRequest{JobId: id},
		&runtimev1.GetScenarioJobResponse{})
	if last := late[3]; err != nil || last.GetEventType() != 4 || !proto.Equal(got.GetJob(), last.GetJob()) {
		t.Errorf("%v, %v, want %v", got, err, last)
	}
	a, err := invoke(with(t), n, "RuntimeAiService/GetScenarioArtifacts",
		&runtimev1.GetScenarioArtifactsRequest{JobId: id}, &runtimev1.GetScenarioArtifactsResponse{})
	if err != nil || a.GetOutput().GetTextGenerate().GetText() != "what it says, and a little more of it" ||
		len(a.GetArtifacts()) != 1 || a.GetArtifacts()[0].GetSha256() == "" {
		t.Errorf("%v, %v", a, err)
	}
	_, err = invoke(with(t), n, "RuntimeAiService/CancelScenarioJob", &runtimev1.CancelScenarioJobRequest{JobId: id},
		&runtimev1.CancelScenarioJobResponse{})
	refused(t, "cancel of what is over", err, codes.FailedPrecondition, "AI_MEDIA_JOB_NOT_CANCELLABLE")
}

// TestJobsEnd has the four ends of a job, and a cancellation that is a command.
func TestJobsEnd(t *testing.T) {
	n := start(t)
	for end, want := range map[schema.RunState]runtimev1.ScenarioJobStatus{"done": 4, "error": 5, "aborted": 6, "": 7} {
		res, err := invoke(with(t), n, "RuntimeAiService/SubmitScenarioJob", asJob(), &runtimev1.SubmitScenarioJobResponse{})
		if err != nil {
			t.Fatal(err)
		}
		id := res.GetJob().GetJobId()
		if _, err := invoke(with(t), n, "RuntimeAiService/CancelScenarioJob",
			&runtimev1.CancelScenarioJobRequest{JobId: id, Reason: "no"}, &runtimev1.CancelScenarioJobResponse{}); err != nil {
			t.Error(err)
		}
		if types := n.Types(id); types[len(types)-1] != "command.cancel" {
			t.Error(types)
		}
		if end == "" {
			n.Say(id, over("error", "AI_PROVIDER_TIMEOUT"))
		} else {
			n.Say(id, over(string(end), ""))
		}
		list, err := open(with(t), n, "RuntimeAiService/SubscribeScenarioJobEvents",
			&runtimev1.SubscribeScenarioJobEventsRequest{JobId: id}, jobEvent).rest()
		if err != nil || len(list) != 2 || list[1].GetJob().GetStatus() != want ||
			int32(list[1].GetEventType()) != int32(want) {
			t.Errorf("%s: %v, %v", end, list, err)
		}
	}
}

// TestKStream008 asks any run as job, workflow and agent, and refuses what is of another app, or not there.
func TestKStream008(t *testing.T) {
	n := start(t)
	_, run := n.scenario(with(t), ask())
	for name, tt := range map[string]struct {
		method string
		of     func(id string) proto.Message
		none   string
	}{
		"job": {"RuntimeAiService/SubscribeScenarioJobEvents",
			func(id string) proto.Message { return &runtimev1.SubscribeScenarioJobEventsRequest{JobId: id} },
			"AI_MEDIA_JOB_NOT_FOUND"},
		"task": {"RuntimeWorkflowService/SubscribeWorkflowEvents",
			func(id string) proto.Message { return &runtimev1.SubscribeWorkflowEventsRequest{TaskId: id} }, "WF_TASK_NOT_FOUND"},
		"session": {"RuntimeAiRealtimeService/ReadRealtimeEvents",
			func(id string) proto.Message { return &runtimev1.ReadRealtimeEventsRequest{SessionId: id} },
			"AI_REALTIME_SESSION_NOT_FOUND"},
		"get": {"RuntimeAiService/GetScenarioJob",
			func(id string) proto.Message { return &runtimev1.GetScenarioJobRequest{JobId: id} }, "AI_MEDIA_JOB_NOT_FOUND"},
		"get task": {"RuntimeWorkflowService/GetWorkflow",
			func(id string) proto.Message { return &runtimev1.GetWorkflowRequest{TaskId: id} }, "WF_TASK_NOT_FOUND"},
	} {
		for _, id := range []string{"nowhere", "no id at all/", strings.Repeat("x", 400)} {
			_, err := open(with(t), n, tt.method, tt.of(id), jobEvent).next()
			refused(t, name+" "+id, err, codes.NotFound, tt.none)
		}
		_, err := open(with(t, strings.ToLower(edgetest.As), "tenant:other"), n, tt.method, tt.of(run), jobEvent).next()
		refused(t, name+" of another tenant", err, codes.NotFound, tt.none)
		_, err = open(with(t), n, tt.method, tt.of(""), jobEvent).next()
		refused(t, name+" without an id", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
	}
}

// TestOtherApps refuses a run of another app on every method that names one.
func TestOtherApps(t *testing.T) {
	n := start(t)
	_, run := n.scenario(with(t), ask())
	theirs := withApp(t, "second")
	for method, in := range map[string]proto.Message{
		"RuntimeAiService/SubscribeScenarioJobEvents":    &runtimev1.SubscribeScenarioJobEventsRequest{JobId: run},
		"RuntimeAiService/GetScenarioJob":                &runtimev1.GetScenarioJobRequest{JobId: run},
		"RuntimeAiService/CancelScenarioJob":             &runtimev1.CancelScenarioJobRequest{JobId: run},
		"RuntimeAiService/GetScenarioArtifacts":          &runtimev1.GetScenarioArtifactsRequest{JobId: run},
		"RuntimeWorkflowService/SubscribeWorkflowEvents": &runtimev1.SubscribeWorkflowEventsRequest{TaskId: run},
		"RuntimeWorkflowService/GetWorkflow":             &runtimev1.GetWorkflowRequest{TaskId: run},
		"RuntimeWorkflowService/CancelWorkflow":          &runtimev1.CancelWorkflowRequest{TaskId: run},
		"RuntimeAiRealtimeService/ReadRealtimeEvents":    &runtimev1.ReadRealtimeEventsRequest{SessionId: run},
		"RuntimeAiRealtimeService/CloseRealtimeSession":  &runtimev1.CloseRealtimeSessionRequest{SessionId: run},
		"RuntimeAppService/SubscribeAppMessages":         &runtimev1.SubscribeAppMessagesRequest{AppId: "app"},
		"RuntimeAgentService/SubscribeAgentEvents":       &runtimev1.SubscribeAgentEventsRequest{AgentId: run},
	} {
		_, err := open(theirs, n, method, in, jobEvent).next()
		refused(t, method, err, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN")
	}
}

// TestWorkflow checks the graph, and shows nodes as the tasks of the run.
func TestWorkflow(t *testing.T) {
	n := start(t)
	noop := func(id string, after ...string) *runtimev1.WorkflowNode {
		return &runtimev1.WorkflowNode{NodeId: id, NodeType: runtimev1.WorkflowNodeType_WORKFLOW_NODE_CONTROL_NOOP,
			DependsOn: after}
	}
	submit := func(nodes []*runtimev1.WorkflowNode, edges ...*runtimev1.WorkflowEdge) (*runtimev1.SubmitWorkflowResponse, error) {
		return invoke(with(t), n, "RuntimeWorkflowService/SubmitWorkflow",
			&runtimev1.SubmitWorkflowRequest{AppId: "app",
				Definition: &runtimev1.WorkflowDefinition{Nodes: nodes, Edges: edges}}, &runtimev1.SubmitWorkflowResponse{})
	}
	var many []*runtimev1.WorkflowNode
	for i := range 257 {
		many = append(many, noop(fmt.Sprint(i)))
	}
	for name, nodes := range map[string][]*runtimev1.WorkflowNode{"many": many,
		"cycle": {noop("a", "b"), noop("b", "a")}, "twice": {noop("a"), noop("a")}, "unknown": {noop("a", "x")},
		"none": nil} {
		_, err := submit(nodes)
		refused(t, name, err, codes.InvalidArgument, "WF_DAG_INVALID")
	}
	_, err := submit([]*runtimev1.WorkflowNode{noop("a")}, &runtimev1.WorkflowEdge{FromNodeId: "a", ToNodeId: "z"})
	refused(t, "unknown edge", err, codes.InvalidArgument, "WF_DAG_INVALID")
	_, err = submit([]*runtimev1.WorkflowNode{{NodeId: "a", NodeType: runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_IMAGE}})
	refused(t, "type", err, codes.InvalidArgument, "WF_NODE_CONFIG_MISMATCH")
	res, err := submit([]*runtimev1.WorkflowNode{noop("a"), noop("b", "a")})
	if err != nil || !res.GetAccepted() {
		t.Fatal(res, err)
	}
	id := res.GetTaskId()
	n.Say(id, edgetest.Event(schema.TypeTaskStart, `{"task_id":"a","name":"a"}`),
		edgetest.Event(schema.TypeTaskEnd, `{"task_id":"a","ok":true}`), over("done", ""))
	list, err := open(with(t), n, "RuntimeWorkflowService/SubscribeWorkflowEvents",
		&runtimev1.SubscribeWorkflowEventsRequest{TaskId: id}, taskEvent).rest()
	var got []int32
	for i, e := range list {
		got = append(got, int32(e.GetEventType()))
		if e.GetSequence() != uint64(i+1) || e.GetTaskId() != id {
			t.Errorf("%v", e)
		}
	}
	if err != nil || len(got) != 4 || got[0] != 1 || got[1] != 2 || got[2] != 4 || got[3] != 6 {
		t.Errorf("%v, %v", got, err)
	}
	w, err := invoke(with(t), n, "RuntimeWorkflowService/GetWorkflow", &runtimev1.GetWorkflowRequest{TaskId: id},
		&runtimev1.GetWorkflowResponse{})
	if err != nil || w.GetStatus() != runtimev1.WorkflowStatus_WORKFLOW_STATUS_COMPLETED || len(w.GetNodes()) != 1 {
		t.Errorf("%v, %v", w, err)
	}
}

// TestRealtime reads a session that resumes at any number, and is CANCELLED when it was closed.
func TestRealtime(t *testing.T) {
	n := start(t)
	res, err := invoke(with(t), n, "RuntimeAiRealtimeService/OpenRealtimeSession",
		&runtimev1.OpenRealtimeSessionRequest{Head: ask().Head}, &runtimev1.OpenRealtimeSessionResponse{})
	if err != nil {
		t.Fatal(err)
	}
	id := res.GetSessionId()
	read := func(after uint64) *opened[*runtimev1.RealtimeEvent] {
		return open(with(t), n, "RuntimeAiRealtimeService/ReadRealtimeEvents",
			&runtimev1.ReadRealtimeEventsRequest{SessionId: id, AfterSequence: after}, liveEvent)
	}
	live := read(0)
	if e := live.must(); e.GetOpened().GetSessionId() != id {
		t.Error(e)
	}
	if _, err := invoke(with(t), n, "RuntimeAiRealtimeService/AppendRealtimeInput",
		&runtimev1.AppendRealtimeInputRequest{SessionId: id,
			Items: []*runtimev1.RealtimeInputItem{{Item: &runtimev1.RealtimeInputItem_Message{Message: &runtimev1.ChatMessage{Content: "hello"}}}}}, &runtimev1.AppendRealtimeInputResponse{}); err != nil {
		t.Fatal(err)
	}
	n.Say(id, text("a"), text("b \\\" c"), text("d"))
	if _, err := invoke(with(t), n, "RuntimeAiRealtimeService/CloseRealtimeSession",
		&runtimev1.CloseRealtimeSessionRequest{SessionId: id}, &runtimev1.CloseRealtimeSessionResponse{}); err != nil {
		t.Fatal(err)
	}
	list, err := live.rest()
	if status.Code(err) != codes.Canceled || len(list) != 4 || list[1].GetTextDelta().GetText() != `b " c` ||
		list[3].GetCompleted() == nil {
		t.Fatalf("%v, %v", list, err)
	}
	for i, e := range list {
		rest, err := read(e.GetSequence()).rest()
		if i < 3 && (status.Code(err) != codes.Canceled || len(rest) != 3-i || !proto.Equal(rest[0], list[i+1])) {
			t.Errorf("after %d: %v, %v", e.GetSequence(), rest, err)
		}
		if i == 3 {
			refused(t, "behind the end", err, codes.FailedPrecondition, "AI_REALTIME_SESSION_CLOSED")
		}
	}
	_, err = invoke(with(t), n, "RuntimeAiRealtimeService/AppendRealtimeInput",
		&runtimev1.AppendRealtimeInputRequest{SessionId: id,
			Items: []*runtimev1.RealtimeInputItem{{Item: &runtimev1.RealtimeInputItem_Message{Message: &runtimev1.ChatMessage{Content: "hello"}}}}}, &runtimev1.AppendRealtimeInputResponse{})
	refused(t, "input to a closed session", err, codes.FailedPrecondition, "AI_REALTIME_SESSION_CLOSED")
}

// TestRealtimeAnswers: each answer ends with a COMPLETED of its own, with the usage of that answer, one that failed
// with FAILED, and the session goes on; the same when it is read again after any number.
func TestRealtimeAnswers(t *testing.T) {
	n := start(t)
	res, err := invoke(with(t), n, "RuntimeAiRealtimeService/OpenRealtimeSession",
		&runtimev1.OpenRealtimeSessionRequest{Head: ask().Head}, &runtimev1.OpenRealtimeSessionResponse{})
	if err != nil {
		t.Fatal(err)
	}
	id := res.GetSessionId()
	says := func(pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			n.Say(id, edgetest.Event(pairs[i], pairs[i+1]))
		}
	}
	const start, end = schema.TypeMessageStart, schema.TypeMessageEnd
	says(schema.TypeTurnStart, `{"turn_id":"t1"}`, start, `{"message_id":"m1","role":"assistant"}`,
		schema.TypeTextDelta, `{"text":"a"}`,
		end, `{"message_id":"m1","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}`, start,
		`{"message_id":"m2","role":"assistant"}`,
		end, `{"message_id":"m2","stop_reason":"max_tokens","usage":{"input_tokens":3,"output_tokens":4}}`,
		schema.TypeTurnEnd, `{"turn_id":"t1","stop_reason":"end_turn"}`)
	says(schema.TypeTurnStart, `{"turn_id":"t2"}`, schema.TypeTextDelta, `{"text":"b"}`, schema.TypeTurnEnd,
		`{"turn_id":"t2","stop_reason":"error","reason":"AI_PROVIDER_TIMEOUT: gone"}`)
	says(start, `{"message_id":"m3","role":"user"}`, end, `{"message_id":"m3","stop_reason":null}`, start,
		`{"message_id":"m4","role":"assistant"}`,
		schema.TypeTextDelta, `{"text":"c"}`, end, `{"message_id":"m4","stop_reason":"end_turn"}`)
	if _, err := invoke(with(t), n, "RuntimeAiRealtimeService/CloseRealtimeSession",
		&runtimev1.CloseRealtimeSessionRequest{SessionId: id}, &runtimev1.CloseRealtimeSessionResponse{}); err != nil {
		t.Fatal(err)
	}
	read := func(after uint64) []*runtimev1.RealtimeEvent {
		list, err := open(with(t), n, "RuntimeAiRealtimeService/ReadRealtimeEvents",
			&runtimev1.ReadRealtimeEventsRequest{SessionId: id, AfterSequence: after}, liveEvent).rest()
		if status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
		return list
	}
	all := read(0)
	var got []string
	for _, e := range all {
		got = append(got, strings.TrimPrefix(e.GetEventType().String(), "REALTIME_EVENT_")+" "+e.GetTextDelta().GetText()+
			fmt.Sprint(e.GetCompleted().GetFinishReason().Number(), " ", e.GetCompleted().GetUsage().GetOutputTokens(),
				" ", e.GetFailed().GetReasonCode().Number()))
	}
	want := []string{"OPENED 0 0 0", "TEXT_DELTA a0 0 0", "COMPLETED 2 6 0", "TEXT_DELTA b0 0 0", "FAILED 0 0 394",
		"TEXT_DELTA c0 0 0", "COMPLETED 1 -1 0", "COMPLETED 1 -1 0"}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	for i, e := range all[:len(all)-1] {
		if rest := read(e.GetSequence()); len(rest) != len(all)-1-i || !proto.Equal(rest[0], all[i+1]) {
			t.Errorf("after %d: %v", e.GetSequence(), rest)
		}
	}
}

// TestMessages carries messages from app to app: headers come at once, each once for a key, and a cursor resumes
// exactly.
func TestMessages(t *testing.T) {
	n := start(t)
	subscribe := func(cursor string, from ...string) *opened[*runtimev1.AppMessageEvent] {
		return open(withApp(t, "to"), n, "RuntimeAppService/SubscribeAppMessages",
			&runtimev1.SubscribeAppMessagesRequest{AppId: "to", Cursor: cursor, FromAppIds: from}, appEvent)
	}
	live := subscribe("")
	if h, err := live.st.Header(); err != nil || len(h.Get("x-nimi-runtime-version")) != 1 {
		t.Fatal(h, err)
	}
	payload, _ := structpb.NewStruct(map[string]any{"a": 1})
	for _, key := range []string{"1", "1", "2"} {
		res, err := invoke(with(t, "x-nimi-idempotency-key", key), n, "RuntimeAppService/SendAppMessage",
			&runtimev1.SendAppMessageRequest{FromAppId: "app", ToAppId: "to", MessageType: "t", Payload: payload},
			&runtimev1.SendAppMessageResponse{})
		if err != nil || !res.GetAccepted() {
			t.Fatal(res, err)
		}
	}
	first, second := live.must(), live.must()
	if first.GetSequence() != 1 || second.GetSequence() != 2 || first.GetMessageId() == second.GetMessageId() ||
		first.GetTimestamp().GetSeconds() == 0 || first.GetPayload().GetFields()["a"].GetNumberValue() != 1 {
		t.Errorf("%v, %v", first, second)
	}
	if e := subscribe("1", "app").must(); !proto.Equal(e, second) {
		t.Error(e)
	}
	_, err := subscribe("x").next()
	refused(t, "cursor", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
	_, err = invoke(with(t), n, "RuntimeAppService/SendAppMessage",
		&runtimev1.SendAppMessageRequest{FromAppId: "other", ToAppId: "to", MessageType: "t"},
		&runtimev1.SendAppMessageResponse{})
	refused(t, "from another app", err, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN")
}

// TestFeeds shows what is fed, and passes over what is no message.
func TestFeeds(t *testing.T) {
	n := start(t)
	n.Say("runtime-memory", edgetest.Event("custom.runtime.memory", `{"eventType":["nonsense"]}`),
		edgetest.Event("custom.runtime.memory", `{"eventType":1,"bank":{"scope":2}}`),
		edgetest.Event("custom.runtime.memory", `{"eventType":3,"bank":{"scope":1}}`))
	o := open(with(t), n, "RuntimeCognitionService/SubscribeMemoryEvents", &runtimev1.SubscribeMemoryEventsRequest{},
		memEvent)
	if a, b := o.must(), o.must(); a.GetSequence() != 2 || b.GetSequence() != 3 {
		t.Errorf("%v, %v", a, b)
	}
	o = open(with(t), n, "RuntimeCognitionService/SubscribeMemoryEvents",
		&runtimev1.SubscribeMemoryEventsRequest{ScopeFilters: []runtimev1.MemoryBankScope{1}}, memEvent)
	if a := o.must(); a.GetSequence() != 3 {
		t.Error(a)
	}
	// A credential in the metadata that the SDK has on these calls, beside another one.
	c := open(with(t, "authorization", "Bearer a", "x-nimi-access-token-secret", "b"), n,
		"RuntimeAccountService/SubscribeAccountSessionEvents", &runtimev1.SubscribeAccountSessionEventsRequest{}, accEvent)
	_, err := c.next()
	refused(t, "two credentials", err, codes.Unauthenticated, "AUTH_TOKEN_INVALID")
	bad := open(with(t), n, "RuntimeAgentService/SubscribeAgentEvents",
		&runtimev1.SubscribeAgentEventsRequest{AgentId: "a", Cursor: "01"}, agentEvent)
	_, err = bad.next()
	refused(t, "cursor", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
}

// TestAccount begins with a snapshot, then replays what is behind the number; transfers are listed by their newest
// state.
func TestAccount(t *testing.T) {
	n := start(t)
	status := func() runtimev1.AccountSessionState {
		a, err := invoke(with(t), n, "RuntimeAccountService/GetAccountSessionStatus",
			&runtimev1.GetAccountSessionStatusRequest{}, &runtimev1.GetAccountSessionStatusResponse{})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetState()
	}
	if s := status(); s != runtimev1.AccountSessionState_ACCOUNT_SESSION_STATE_ANONYMOUS {
		t.Error(s)
	}
	n.Say("runtime-account", edgetest.Event("custom.runtime.account", `{"eventType":2,"state":2}`),
		edgetest.Event("custom.runtime.account", `{"eventType":3,"state":3,"accountProjection":{"accountId":"a"}}`))
	if s := status(); s != runtimev1.AccountSessionState_ACCOUNT_SESSION_STATE_AUTHENTICATED {
		t.Error(s)
	}
	subscribe := func(after uint64) *opened[*runtimev1.AccountSessionEvent] {
		return open(with(t), n, "RuntimeAccountService/SubscribeAccountSessionEvents",
			&runtimev1.SubscribeAccountSessionEventsRequest{AfterSequence: after}, accEvent)
	}
	o := subscribe(1)
	if a, b := o.must(), o.must(); a.GetEventType() != 1 || a.GetState() != 3 || a.GetSequence() != 1 ||
		a.GetReplayTruncated() || b.GetEventType() != 3 || b.GetSequence() != 2 {
		t.Errorf("%v, %v", a, b)
	}
	o = subscribe(0)
	if a, b, c := o.must(), o.must(), o.must(); a.GetEventType() != 1 || b.GetSequence() != 1 || c.GetSequence() != 2 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
	n.Say("runtime-transfer", edgetest.Event("custom.runtime.transfer", `{"installSessionId":"i","bytesReceived":"1"}`),
		edgetest.Event("custom.runtime.transfer", `{"installSessionId":"i","bytesReceived":"2","done":true}`))
	l, err := invoke(with(t), n, "RuntimeLocalService/ListLocalTransfers", &runtimev1.ListLocalTransfersRequest{},
		&runtimev1.ListLocalTransfersResponse{})
	if err != nil || len(l.GetTransfers()) != 1 || l.GetTransfers()[0].GetBytesReceived() != 2 {
		t.Errorf("%v, %v", l, err)
	}
}
