package serve_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/protocols/nimi/serve"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an edge with a client of it.
type node struct {
	*edgetest.Node
	cc *grpc.ClientConn
}

func start(t testing.TB, change ...func(*edge.Config)) *node {
	t.Helper()
	return join(t, edgetest.Share(), change...)
}

// join makes another node over the same log.
func join(t testing.TB, all *edgetest.Nodes, change ...func(*edge.Config)) *node {
	t.Helper()
	n := &node{Node: all.Start(t, serve.Protocol(serve.Config{Version: "0.1.0"}), change...)}
	var err error
	if n.cc, err = grpc.NewClient(n.Host, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.cc.Close() })
	return n
}

// with makes a context with metadata: the app is "app", others are name, value.
func with(t testing.TB, md ...string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), append([]string{"x-nimi-app-id", "app"}, md...)...)
}

const prefix = "/nimi.runtime.v1."

// opened is a stream whose messages are M.
type opened[M proto.Message] struct {
	t  testing.TB
	st grpc.ClientStream
	mk func() M
}

func open[M proto.Message](ctx context.Context, n *node, method string, in proto.Message, mk func() M) *opened[M] {
	n.T.Helper()
	st, err := n.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, prefix+method)
	if err == nil {
		err = errors.Join(st.SendMsg(in), st.CloseSend())
	}
	if err != nil {
		n.T.Fatal(err)
	}
	return &opened[M]{n.T, st, mk}
}

// next returns the next message, or the end: io.EOF is OK.
func (o *opened[M]) next() (m M, err error) {
	m = o.mk()
	return m, o.st.RecvMsg(m)
}

// must returns the next message.
func (o *opened[M]) must() M {
	o.t.Helper()
	m, err := o.next()
	if err != nil {
		o.t.Fatal(err)
	}
	return m
}

// rest reads to the end; nil is OK.
func (o *opened[M]) rest() (list []M, err error) {
	for {
		m, err := o.next()
		if err == io.EOF { // grpc returns it as it is
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, m)
	}
}

func event() *runtimev1.StreamScenarioEvent    { return &runtimev1.StreamScenarioEvent{} }
func jobEvent() *runtimev1.ScenarioJobEvent    { return &runtimev1.ScenarioJobEvent{} }
func taskEvent() *runtimev1.WorkflowEvent      { return &runtimev1.WorkflowEvent{} }
func liveEvent() *runtimev1.RealtimeEvent      { return &runtimev1.RealtimeEvent{} }
func appEvent() *runtimev1.AppMessageEvent     { return &runtimev1.AppMessageEvent{} }
func memEvent() *runtimev1.MemoryEvent         { return &runtimev1.MemoryEvent{} }
func agentEvent() *runtimev1.AgentEvent        { return &runtimev1.AgentEvent{} }
func accEvent() *runtimev1.AccountSessionEvent { return &runtimev1.AccountSessionEvent{} }

// ask makes a request for text.
func ask(change ...func(*runtimev1.StreamScenarioRequest)) *runtimev1.StreamScenarioRequest {
	m := &runtimev1.StreamScenarioRequest{
		Head: &runtimev1.ScenarioRequestHead{AppId: "app", ModelId: "demo",
			RoutePolicy: runtimev1.RoutePolicy_ROUTE_POLICY_LOCAL},
		ScenarioType:  runtimev1.ScenarioType_SCENARIO_TYPE_TEXT_GENERATE,
		ExecutionMode: runtimev1.ExecutionMode_EXECUTION_MODE_STREAM,
		Spec: &runtimev1.ScenarioSpec{Spec: &runtimev1.ScenarioSpec_TextGenerate{TextGenerate: &runtimev1.TextGenerateScenarioSpec{
			Input: []*runtimev1.ChatMessage{{Role: "user", Content: "hello"}},
		}}},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// scenario opens a stream and returns it behind STARTED, with the run.
func (n *node) scenario(ctx context.Context,
	m *runtimev1.StreamScenarioRequest) (*opened[*runtimev1.StreamScenarioEvent], string) {
	n.T.Helper()
	o := open(ctx, n, "RuntimeAiService/StreamScenario", m, event)
	e := o.must()
	if e.GetEventType() != runtimev1.StreamEventType_STREAM_EVENT_STARTED || e.GetSequence() != 1 ||
		e.GetStarted() == nil || e.GetTraceId() == "" {
		n.T.Fatalf("the first event is %v", e)
	}
	return o, e.GetTraceId()
}

func text(s string) schema.Event { return edgetest.Event(schema.TypeTextDelta, `{"text":"`+s+`"}`) }

func thought(s string) schema.Event {
	return edgetest.Event(schema.TypeReasoningDelta, `{"text":"`+s+`"}`)
}

func over(state, reason string) schema.Event {
	if reason == "" {
		return edgetest.Event(schema.TypeRunLifecycle, `{"state":"`+state+`","reason":null}`)
	}
	return edgetest.Event(schema.TypeRunLifecycle, `{"state":"`+state+`","reason":"`+reason+`"}`)
}

// refused holds that a call was refused with a reason, which its status, its message and its details name.
func refused(t testing.TB, what string, err error, code codes.Code, reason string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code || s.Message() != reason {
		t.Errorf("%s: %v %q, want %v %s", what, s.Code(), s.Message(), code, reason)
		return
	}
	d := s.Proto().GetDetails()
	if len(d) != 1 || d[0].GetTypeUrl() != "type.googleapis.com/google.rpc.ErrorInfo" ||
		!strings.Contains(string(d[0].GetValue()), reason) {
		t.Errorf("%s: details %v", what, d)
	}
}

// invoke calls a unary method.
func invoke[O proto.Message](ctx context.Context, n *node, method string, in proto.Message, out O) (O, error) {
	err := n.cc.Invoke(ctx, prefix+method, in, out)
	return out, err
}

// withApp is with for another app.
func withApp(t testing.TB, app string, md ...string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), append([]string{"x-nimi-app-id", app}, md...)...)
}
