package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// runtimeLong reports whether everything is proven: make runtime.
func runtimeLong() bool { return os.Getenv("AGENTSTREAM_RUNTIME") != "" }

// runtimeConn is a connection of clients to an edge. It is opened again when the edge is back.
func runtimeConn(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), soonAgain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// runtimeApp is the app of the tests' clients, as a rule.
const runtimeApp = "app.e2e"

// asApp adds the metadata of an app's clients. key may be "".
func asApp(ctx context.Context, app, key string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+edgeToken, "x-nimi-app-id", app)
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-nimi-idempotency-key", key)
	}
	return ctx
}

// runtimeService begins the path of each method.
const runtimeService = "/nimi.runtime.v1.Runtime"

// openRuntime calls a streaming method of a service.
func openRuntime(ctx context.Context, conn *grpc.ClientConn, method string, in proto.Message) (s grpc.ClientStream,
	err error) {
	s, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		if err = s.SendMsg(in); errors.Is(err, io.EOF) {
			err = nil // RecvMsg has the status
		}
		err = errors.Join(err, s.CloseSend())
	}
	return s, err
}

// textScenario is a request for the answer of a model to one message.
func textScenario(model, said string) *runtimev1.StreamScenarioRequest {
	return &runtimev1.StreamScenarioRequest{
		Head: &runtimev1.ScenarioRequestHead{AppId: runtimeApp, ModelId: model,
			RoutePolicy: runtimev1.RoutePolicy_ROUTE_POLICY_CLOUD},
		ScenarioType:  runtimev1.ScenarioType_SCENARIO_TYPE_TEXT_GENERATE,
		ExecutionMode: runtimev1.ExecutionMode_EXECUTION_MODE_STREAM,
		Spec: &runtimev1.ScenarioSpec{Spec: &runtimev1.ScenarioSpec_TextGenerate{TextGenerate: &runtimev1.TextGenerateScenarioSpec{
			Input:     []*runtimev1.ChatMessage{{Role: "user", Content: said}},
			Reasoning: &runtimev1.ReasoningConfig{TraceMode: runtimev1.ReasoningTraceMode_REASONING_TRACE_MODE_SEPARATE},
		}}},
	}
}

// jobOf is the same request for a job.
func jobOf(in *runtimev1.StreamScenarioRequest) *runtimev1.SubmitScenarioJobRequest {
	return &runtimev1.SubmitScenarioJobRequest{Head: in.GetHead(), ScenarioType: in.GetScenarioType(),
		ExecutionMode: runtimev1.ExecutionMode_EXECUTION_MODE_ASYNC_JOB, Spec: in.GetSpec()}
}

// heardScenario is what one call of StreamScenario brought.
type heardScenario struct {
	run           string
	text, thought string
	completed     *runtimev1.ScenarioStreamCompleted
	failed        *runtimev1.ScenarioStreamFailed
	err           error // the status; nil: OK
}

// hearScenario calls StreamScenario and reads to its end. each is called for each event. An error is about events that
// break the protocol's rules, whatever has happened to the server.
func hearScenario(ctx context.Context, conn *grpc.ClientConn, key string, in *runtimev1.StreamScenarioRequest,
	each func(*runtimev1.StreamScenarioEvent)) (h heardScenario, err error) {
	s, err := openRuntime(asApp(ctx, in.GetHead().GetAppId(), key), conn, runtimeService+"AiService/StreamScenario", in)
	if err != nil {
		h.err = err
		return h, nil
	}
	for n := uint64(1); ; n++ {
		e := &runtimev1.StreamScenarioEvent{}
		err := s.RecvMsg(e)
		over := h.completed != nil || h.failed != nil
		switch {
		case errors.Is(err, io.EOF) && over:
			return h, nil
		case errors.Is(err, io.EOF):
			return h, fmt.Errorf("OK behind %d events, of which none is terminal", n-1)
		case err != nil && over:
			return h, fmt.Errorf("%w behind a terminal event", err)
		case err != nil:
			h.err = err
			return h, nil
		case over:
			return h, fmt.Errorf("%v behind a terminal event", e)
		case e.GetSequence() != n, n == 1 != (e.GetStarted() != nil), n > 1 && e.GetTraceId() != h.run:
			return h, fmt.Errorf("event %d of %s is %v", n, h.run, e)
		}
		h.run = e.GetTraceId()
		h.text += e.GetDelta().GetText().GetText()
		h.thought += e.GetDelta().GetReasoning().GetText()
		h.completed, h.failed = e.GetCompleted(), e.GetFailed()
		each(e)
	}
}
