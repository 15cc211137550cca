package serve_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) {
	if m, ok := v.(proto.Message); ok {
		return proto.Marshal(m)
	}
	return v.([]byte), nil
}

func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// ends calls a method with a message and returns how the call ends, and how many messages came.
func (n *node) ends(ctx context.Context, method string, in any) (messages int, err error) {
	n.T.Helper()
	st, err := n.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return 0, err
	}
	if err := st.SendMsg(in); err != nil && err != io.EOF { // grpc returns it as it is
		return 0, err
	}
	_ = st.CloseSend() // what became of it is the status
	for {
		var b []byte
		if err := st.RecvMsg(&b); err == io.EOF { // grpc returns it as it is
			return messages, nil
		} else if err != nil {
			return messages, err
		}
		messages++
	}
}

// detail reads a google.rpc.ErrorInfo.
func detail(b []byte) (reason, domain string, more map[string]string) {
	more = map[string]string{}
	each := func(b []byte, fn func(protowire.Number, []byte)) {
		for len(b) > 0 {
			num, _, n := protowire.ConsumeTag(b)
			v, m := protowire.ConsumeBytes(b[max(n, 0):])
			if n < 0 || m < 0 {
				return
			}
			fn(num, v)
			b = b[n+m:]
		}
	}
	each(b, func(field protowire.Number, v []byte) {
		switch field {
		case 1:
			reason = string(v)
		case 2:
			domain = string(v)
		case 3:
			var pair [3]string
			each(v, func(f protowire.Number, v []byte) { pair[f] = string(v) })
			more[pair[1]] = pair[2]
		}
	})
	return reason, domain, more
}

// holds that a call was refused: with a status, a reason as its message or in it, and an ErrorInfo.
func holds(t *testing.T, what string, err error, code codes.Code, reason string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code || s.Message() != reason && !strings.Contains(s.Message(), `{"reasonCode":"`+reason+`",`) {
		t.Errorf("%s: %v %q, want %v %s", what, s.Code(), s.Message(), code, reason)
		return
	}
	if d := s.Proto().GetDetails(); len(d) != 1 || d[0].GetTypeUrl() != "type.googleapis.com/google.rpc.ErrorInfo" {
		t.Errorf("%s: details %v", what, d)
	} else if r, domain, more := detail(d[0].GetValue()); r != reason || domain != "nimi.runtime.v1" ||
		more["action_hint"] == "" || more["trace_id"] == "" ||
		more["retryable"] != "true" && more["retryable"] != "false" {
		t.Errorf("%s: reason %s, domain %s, %v", what, r, domain, more)
	}
}

// counted is a log that counts what is stored, and may be away.
type counted struct {
	producers.Log
	stored atomic.Int64
	away   atomic.Bool
}

func (l *counted) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if l.away.Load() {
		return 0, schema.ErrUnavailable
	}
	at, err := l.Log.Append(ctx, p, after)
	if err == nil {
		l.stored.Add(1)
	}
	return at, err
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	to bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// fault is a call that is refused.
type fault struct {
	name   string
	method string // "": StreamScenario
	in     any
	md     []string // besides the app's id, "app"
	code   codes.Code
	reason string
}

// noCredential are the metadata of a caller without one.
var noCredential = []string{strings.ToLower(edgetest.As), "nobody"}

// places are the runs that faults are about.
type places struct{ open, over, closed, theirs, foreign string }

// theFaults are all rows of the table of bad input.
func theFaults(at places) []fault {
	const invalid, envelope = codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID"
	type req = *runtimev1.StreamScenarioRequest
	input := func(id string) *runtimev1.AppendRealtimeInputRequest {
		return &runtimev1.AppendRealtimeInputRequest{SessionId: id,
			Items: []*runtimev1.RealtimeInputItem{{Item: &runtimev1.RealtimeInputItem_Message{Message: &runtimev1.ChatMessage{Content: "hi"}}}}}
	}
	job := func(id string) *runtimev1.SubscribeScenarioJobEventsRequest {
		return &runtimev1.SubscribeScenarioJobEventsRequest{JobId: id}
	}
	task := func(id string) *runtimev1.SubscribeWorkflowEventsRequest {
		return &runtimev1.SubscribeWorkflowEventsRequest{TaskId: id}
	}
	session := func(id string) *runtimev1.ReadRealtimeEventsRequest {
		return &runtimev1.ReadRealtimeEventsRequest{SessionId: id}
	}
	graph := func(typ runtimev1.WorkflowNodeType, edges ...*runtimev1.WorkflowEdge) *runtimev1.SubmitWorkflowRequest {
		return &runtimev1.SubmitWorkflowRequest{AppId: "app", Definition: &runtimev1.WorkflowDefinition{Edges: edges,
			Nodes: []*runtimev1.WorkflowNode{{NodeId: "a", NodeType: typ},
				{NodeId: "b", NodeType: typ, DependsOn: []string{"a"}}}}}
	}
	const noop = runtimev1.WorkflowNodeType_WORKFLOW_NODE_CONTROL_NOOP
	const jobs, workflows, live, audits = "RuntimeAiService/SubscribeScenarioJobEvents", "RuntimeWorkflowService/SubscribeWorkflowEvents", "RuntimeAiRealtimeService/ReadRealtimeEvents", "RuntimeAuditService/ExportAuditEvents"
	return []fault{
		{"no head", "", ask(func(m req) { m.Head = nil }), nil, invalid, envelope},
		{"no spec", "", ask(func(m req) { m.Spec = nil }), nil, invalid, envelope},
		{"an empty spec", "", ask(func(m req) { m.Spec = &runtimev1.ScenarioSpec{} }), nil, invalid, envelope},
		{"no route", "", ask(func(m req) { m.Head.RoutePolicy = 0 }), nil, invalid, envelope},
		{"time of less than nothing", "", ask(func(m req) { m.Head.TimeoutMs = -1 }), nil, invalid, envelope},
		{"no job id", jobs, job(""), nil, invalid, envelope},
		{"no task id", workflows, task(""), nil, invalid, envelope},
		{"no session id", live, session(""), nil, invalid, envelope},
		{"no agent id", "RuntimeAgentService/SubscribeAgentEvents", &runtimev1.SubscribeAgentEventsRequest{}, nil,
			invalid, envelope},
		{"no app to send to", "RuntimeAppService/SendAppMessage",
			&runtimev1.SendAppMessageRequest{FromAppId: "app", MessageType: "t"}, nil, invalid, envelope},
		{"no app of messages", "RuntimeAppService/SubscribeAppMessages", &runtimev1.SubscribeAppMessagesRequest{}, nil,
			invalid, envelope},
		{"cursor of an agent", "RuntimeAgentService/SubscribeAgentEvents",
			&runtimev1.SubscribeAgentEventsRequest{AgentId: at.open, Cursor: "+1"}, nil, invalid, envelope},
		{"cursor of memory", "RuntimeCognitionService/SubscribeMemoryEvents",
			&runtimev1.SubscribeMemoryEventsRequest{Cursor: "0x1"}, nil, invalid, envelope},
		{"cursor of messages", "RuntimeAppService/SubscribeAppMessages",
			&runtimev1.SubscribeAppMessagesRequest{AppId: "app", Cursor: "99999999999999999999"}, nil, invalid, envelope},
		{"number of a session", live, &runtimev1.ReadRealtimeEventsRequest{SessionId: at.open, AfterSequence: 1 << 63},
			nil, invalid, envelope},
		{"format", audits, &runtimev1.ExportAuditEventsRequest{Format: "xml"}, nil, invalid, envelope},
		{"key too long", "", ask(), []string{"x-nimi-idempotency-key", strings.Repeat("k", 256)}, invalid, envelope},
		{"two keys", "", ask(), []string{"x-nimi-idempotency-key", "a", "x-nimi-idempotency-key", "b"}, invalid, envelope},

		{"no app", "", ask(func(m req) { m.Head.AppId = "" }), nil, invalid, "AI_APP_ID_REQUIRED"},
		{"another app", "", ask(func(m req) { m.Head.AppId = "other" }), nil, invalid, "AI_APP_ID_CONFLICT"},
		{"two apps", "", ask(), []string{"x-nimi-app-id", "other"}, invalid, "AI_APP_ID_CONFLICT"},
		{"no app of a workflow", "RuntimeWorkflowService/SubmitWorkflow", &runtimev1.SubmitWorkflowRequest{}, nil,
			invalid, "AI_APP_ID_REQUIRED"},

		{"job of another app", jobs, job(at.theirs), nil, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},
		{"task of another app", workflows, task(at.theirs), nil, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},
		{"session of another app", live, session(at.theirs), nil, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},
		{"export for another app", audits, &runtimev1.ExportAuditEventsRequest{AppId: "other"}, nil,
			codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},
		{"message of another app", "RuntimeAppService/SendAppMessage",
			&runtimev1.SendAppMessageRequest{FromAppId: "other", ToAppId: "to", MessageType: "t"}, nil,
			codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},
		{"messages for another app", "RuntimeAppService/SubscribeAppMessages",
			&runtimev1.SubscribeAppMessagesRequest{AppId: "other"}, nil, codes.PermissionDenied, "APP_SCOPE_FORBIDDEN"},

		{"key of a provider", "", ask(), []string{"x-nimi-provider-api-key", "sk-secret"}, codes.PermissionDenied,
			"AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN"},
		{"inline source", "", ask(), []string{"x-nimi-key-source", "inline"}, codes.PermissionDenied,
			"AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN"},

		{"connector", "", ask(func(m req) { m.Head.ConnectorId = "c" }), nil, codes.NotFound, "AI_CONNECTOR_NOT_FOUND"},
		{"no model", "", ask(func(m req) { m.Head.ModelId = "" }), nil, invalid, "AI_MODEL_ID_REQUIRED"},
		{"unknown model", "", ask(func(m req) { m.Head.ModelId = "gone" }), nil, codes.NotFound, "AI_MODEL_NOT_FOUND"},

		{"no input", "", ask(func(m req) { m.Spec.GetTextGenerate().Input = nil }), nil, invalid, "AI_INPUT_INVALID"},
		{"empty input", "", ask(func(m req) { m.Spec.GetTextGenerate().Input[0].Content = "" }), nil, invalid,
			"AI_INPUT_INVALID"},
		{"type", "", ask(func(m req) { m.ScenarioType = 3 }), nil, invalid, "AI_ROUTE_UNSUPPORTED"},
		{"mode", "", ask(func(m req) { m.ExecutionMode = 1 }), nil, invalid, "AI_ROUTE_UNSUPPORTED"},
		{"audio of a session", "RuntimeAiRealtimeService/OpenRealtimeSession",
			&runtimev1.OpenRealtimeSessionRequest{Head: ask().Head, OutputAudioFormat: "pcm"}, nil, invalid,
			"AI_MEDIA_OPTION_UNSUPPORTED"},

		{"unknown job", jobs, job("nowhere"), nil, codes.NotFound, "AI_MEDIA_JOB_NOT_FOUND"},
		{"unknown task", workflows, task("no id at all/"), nil, codes.NotFound, "WF_TASK_NOT_FOUND"},
		{"unknown session", live, session("nowhere"), nil, codes.NotFound, "AI_REALTIME_SESSION_NOT_FOUND"},
		{"foreign job", jobs, job(at.foreign), nil, codes.NotFound, "AI_MEDIA_JOB_NOT_FOUND"},
		{"foreign task", workflows, task(at.foreign), nil, codes.NotFound, "WF_TASK_NOT_FOUND"},
		{"foreign session", live, session(at.foreign), nil, codes.NotFound, "AI_REALTIME_SESSION_NOT_FOUND"},

		{"cycle", "RuntimeWorkflowService/SubmitWorkflow",
			graph(noop, &runtimev1.WorkflowEdge{FromNodeId: "b", ToNodeId: "a"}), nil, invalid, "WF_DAG_INVALID"},
		{"unknown edge", "RuntimeWorkflowService/SubmitWorkflow",
			graph(noop, &runtimev1.WorkflowEdge{FromNodeId: "b", ToNodeId: "z"}), nil, invalid, "WF_DAG_INVALID"},
		{"node that is not played", "RuntimeWorkflowService/SubmitWorkflow",
			graph(runtimev1.WorkflowNodeType_WORKFLOW_NODE_AI_IMAGE), nil, invalid, "WF_NODE_CONFIG_MISMATCH"},

		{"cancel of what is over", "RuntimeAiService/CancelScenarioJob",
			&runtimev1.CancelScenarioJobRequest{JobId: at.over}, nil, codes.FailedPrecondition, "AI_MEDIA_JOB_NOT_CANCELLABLE"},
		{"key reused", "", ask(func(m req) { m.Head.SubjectUserId = "other" }),
			[]string{"x-nimi-idempotency-key", "used"}, codes.FailedPrecondition, "AI_MEDIA_IDEMPOTENCY_CONFLICT"},
		{"input to a closed session", "RuntimeAiRealtimeService/AppendRealtimeInput", input(at.closed), nil,
			codes.FailedPrecondition, "AI_REALTIME_SESSION_CLOSED"},

		{"no credential", "", ask(), noCredential, codes.Unauthenticated, "AUTH_TOKEN_INVALID"},
		{"no credential of a call", "RuntimeAiService/GetScenarioJob", &runtimev1.GetScenarioJobRequest{JobId: at.open},
			noCredential, codes.Unauthenticated, "AUTH_TOKEN_INVALID"},
		{"two credentials", "", ask(), []string{"authorization", "Bearer a", "x-nimi-access-token-secret", "b"},
			codes.Unauthenticated, "AUTH_TOKEN_INVALID"},
		{"export without an app", audits, &runtimev1.ExportAuditEventsRequest{}, []string{"x-nimi-app-id", ""},
			codes.Unauthenticated, "PRINCIPAL_UNAUTHORIZED"},

		{"what nobody serves", "RuntimeAiService/ExecuteScenario", ask(), nil, codes.Unimplemented, ""},
		{"a service that nobody serves", "RuntimeAuthService/OpenSession", ask(), noCredential, codes.Unimplemented, ""},
		{"a method that is none", "RuntimeAiService/StreamScenario/..", ask(), nil, codes.Unimplemented, ""},
	}
}

// TestBadInput goes through all rows of the table of bad input, and through what is no message at all: each is refused
// as the table says, nothing is stored, nothing secret is logged, and a stream that is open meanwhile notices nothing.
func TestBadInput(t *testing.T) {
	all, logged := edgetest.Share(), new(locked)
	log := &counted{Log: all.Log}
	n := join(t, all, func(c *edge.Config) {
		var err error
		if c.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: log, Keys: all.Keys}); err != nil {
			t.Fatal(err)
		}
		c.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
		`{"providerName":"w1","state":"healthy","models":["demo"]}`))
	var at places
	var watched *opened[*runtimev1.StreamScenarioEvent]
	watched, at.open = n.scenario(with(t), ask())
	_, at.over = n.scenario(with(t, "x-nimi-idempotency-key", "used"), ask())
	n.Say(at.over, over("done", ""))
	_, at.theirs = n.scenario(withApp(t, "second"),
		ask(func(m *runtimev1.StreamScenarioRequest) { m.Head.AppId = "second" }))
	_, at.foreign = n.scenario(with(t, strings.ToLower(edgetest.As), "tenant:other"), ask())
	s, err := invoke(with(t), n, "RuntimeAiRealtimeService/OpenRealtimeSession",
		&runtimev1.OpenRealtimeSessionRequest{Head: ask().Head}, &runtimev1.OpenRealtimeSessionResponse{})
	if err != nil {
		t.Fatal(err)
	}
	at.closed = s.GetSessionId()
	if _, err := invoke(with(t), n, "RuntimeAiRealtimeService/CloseRealtimeSession",
		&runtimev1.CloseRealtimeSessionRequest{SessionId: at.closed}, &runtimev1.CloseRealtimeSessionResponse{}); err != nil {
		t.Fatal(err)
	}
	stored := log.stored.Load()
	for _, f := range theFaults(at) {
		method := f.method
		if method == "" {
			method = "RuntimeAiService/StreamScenario"
		}
		ctx := with(t, f.md...)
		if len(f.md) > 1 && f.md[0] == "x-nimi-app-id" && f.md[1] == "" {
			ctx = t.Context()
		}
		messages, err := n.ends(ctx, prefix+method, f.in)
		if messages > 0 {
			t.Errorf("%s: %d messages", f.name, messages)
		}
		if f.reason == "" {
			if s := status.Convert(err); s.Code() != f.code || strings.HasPrefix(s.Message(), "A") {
				t.Errorf("%s: %v", f.name, err)
			}
			continue
		}
		holds(t, f.name, err, f.code, f.reason)
	}
	noMessages(t, n)
	if more := log.stored.Load() - stored; more != 0 {
		t.Errorf("%d packs were stored", more)
	}
	n.Say(at.open, text("the stream that was open all the time"), over("done", ""))
	if list, err := watched.rest(); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	n.Stop()
	if strings.Contains(logged.to.String(), "sk-secret") {
		t.Error("a provider's key is in the log")
	}
}

// noMessages sends every method of the contract what is no message, and one that is too large.
func noMessages(t *testing.T, n *node) {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal((nimi.Dialect{}).Info().Files[0], &set); err != nil {
		t.Fatal(err)
	}
	large := map[string]int{"StreamScenario": 1 << 20, "SubmitScenarioJob": 1 << 20, "SubmitWorkflow": 1 << 20}
	for _, f := range set.GetFile() {
		for _, s := range f.GetService() {
			for _, m := range s.GetMethod() {
				path := "/" + f.GetPackage() + "." + s.GetName() + "/" + m.GetName()
				for what, b := range map[string][]byte{"noise": {0xff, 0xff, 0xff, 0x01, 0x02},
					"text": []byte(`{"head":{}}`), "half": {0x0a, 0x7f, 'x'}} {
					_, err := n.ends(with(t), path, b)
					holds(t, path+" with "+what, err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
					_, err = n.ends(with(t, noCredential...), path, b)
					holds(t, path+" with "+what+", without a credential", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
				}
				most := large[m.GetName()]
				if most == 0 {
					most = 64 << 10
				}
				_, err := n.ends(with(t), path, sized(most+1))
				holds(t, path+" with too much", err, codes.ResourceExhausted, "PROTOCOL_ENVELOPE_INVALID")
				_, err = n.ends(with(t, noCredential...), path, sized(most+1))
				holds(t, path+" with too much, without a credential", err, codes.Unauthenticated, "AUTH_TOKEN_INVALID")
				if strings.Contains(m.GetName(), "Scenario") {
					_, err := n.ends(with(t), path, sized(most))
					holds(t, path+" with as much as it takes", err, codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID")
				}
			}
		}
	}
}

// sized is a message of n bytes, of a field that nobody knows.
func sized(n int) []byte {
	const head = 5 // tag and length, of more than 16 KiB
	return protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, n-head))
}

// TestFirstFault has several faults at once: the first in the order of the protocol is told (K-KEYSRC-004).
func TestFirstFault(t *testing.T) {
	n := start(t)
	n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
		`{"providerName":"w1","state":"healthy","models":["demo"]}`))
	m := ask(func(m *runtimev1.StreamScenarioRequest) {
		m.Head = &runtimev1.ScenarioRequestHead{ConnectorId: "c"}
		m.Spec.GetTextGenerate().Input = nil
	})
	md := metadata.Pairs(noCredential[0], noCredential[1], "x-nimi-app-id", "app", "x-nimi-provider-api-key", "sk",
		"x-nimi-idempotency-key", strings.Repeat("k", 300))
	for _, step := range []struct {
		code   codes.Code
		reason string
		mend   func()
	}{
		{codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID", func() { md.Delete("x-nimi-idempotency-key") }},
		{codes.InvalidArgument, "PROTOCOL_ENVELOPE_INVALID", func() { m.Head.RoutePolicy = 1 }},
		{codes.Unauthenticated, "AUTH_TOKEN_INVALID", func() { md.Delete(noCredential[0]) }},
		{codes.InvalidArgument, "AI_APP_ID_REQUIRED", func() { m.Head.AppId = "other" }},
		{codes.InvalidArgument, "AI_APP_ID_CONFLICT", func() { m.Head.AppId = "app" }},
		{codes.PermissionDenied, "AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN", func() { md.Delete("x-nimi-provider-api-key") }},
		{codes.NotFound, "AI_CONNECTOR_NOT_FOUND", func() { m.Head.ConnectorId = "" }},
		{codes.InvalidArgument, "AI_MODEL_ID_REQUIRED", func() { m.Head.ModelId = "gone" }},
		{codes.NotFound, "AI_MODEL_NOT_FOUND", func() { m.Head.ModelId = "demo" }},
		{codes.InvalidArgument, "AI_INPUT_INVALID", func() { m.Spec = ask().Spec }},
	} {
		_, err := n.ends(metadata.NewOutgoingContext(t.Context(), md), prefix+"RuntimeAiService/StreamScenario", m)
		holds(t, "next", err, step.code, step.reason)
		step.mend()
	}
	n.scenario(metadata.NewOutgoingContext(t.Context(), md), m)
}

// TestRefusedByTheNode has what is no fault of the request: the log is away, and a tenant is over its limit.
func TestRefusedByTheNode(t *testing.T) {
	all := edgetest.Share()
	log := &counted{Log: all.Log}
	n := join(t, all, func(c *edge.Config) {
		var err error
		if c.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: log, Keys: all.Keys}); err != nil {
			t.Fatal(err)
		}
		c.LogTimeout = 50 * time.Millisecond
		c.TenantLimits = map[string]edge.IngestLimit{"small": {Bytes: 1}}
	})
	for range 2 {
		_, err := n.ends(with(t, strings.ToLower(edgetest.As), "tenant:small", "x-nimi-idempotency-key", "k"),
			prefix+"RuntimeAiService/SubmitScenarioJob", asJob())
		if status.Code(err) != codes.OK {
			holds(t, "over the limit", err, codes.ResourceExhausted, "AI_PROVIDER_RATE_LIMITED")
		}
	}
	log.away.Store(true)
	for _, method := range []string{"StreamScenario", "SubmitScenarioJob"} {
		var in proto.Message = ask()
		if method != "StreamScenario" {
			in = asJob()
		}
		_, err := n.ends(with(t), prefix+"RuntimeAiService/"+method, in)
		holds(t, method+" without a log", err, codes.Unavailable, "AI_PROVIDER_UNAVAILABLE")
	}
}
