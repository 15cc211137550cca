package grpc

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

func TestHealth(t *testing.T) {
	b := serve(t, Config{}, nil)
	c := healthpb.NewHealthClient(b.dial(t))
	for service, want := range map[string]codes.Code{"": codes.OK, AgentRun: codes.OK, "other": codes.NotFound} {
		got, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && got.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, got, err)
		}
	}
}

func TestWatch(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ready := false
	closing := make(chan struct{})
	handlers, err := tr.Handlers(Services{
		Ready:   func() bool { mu.Lock(); defer mu.Unlock(); return ready },
		Closing: closing, Poll: time.Millisecond, Watches: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.Handle("POST "+path, h)
	}
	b := &bench{srv: httptest.NewUnstartedServer(mux)}
	b.srv.Config.Protocols = new(http.Protocols)
	b.srv.Config.Protocols.SetUnencryptedHTTP2(true)
	b.srv.Start()
	defer b.srv.Close()
	b.addr = b.srv.Listener.Addr().String()
	c := healthpb.NewHealthClient(b.dial(t))
	w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		got, err := w.Recv()
		if err != nil || got.Status != want {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
		mu.Lock()
		ready = !ready
		mu.Unlock()
	}
	second, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = second.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("second watch: %v", err)
	}
	close(closing)
	for err == nil || status.Code(err) == codes.ResourceExhausted {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("closing: %v", err)
	}
}

// TestReflection asks for all there is and builds the service's messages from the answer.
func TestReflection(t *testing.T) {
	b := serve(t, Config{}, nil)
	st, err := reflectionpb.NewServerReflectionClient(b.dial(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := st.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if got := strings.Join(names, " "); got != AgentRun+" "+Health+" "+Reflection {
		t.Errorf("services %s", got)
	}
	symbol := func(s string) *reflectionpb.ServerReflectionResponse {
		return ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s}})
	}
	for _, s := range []string{AgentRun, "agent.v1.Event", Health, Reflection} {
		if len(symbol(s).GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s is not found", s)
		}
	}
	if got := symbol("google.protobuf.FileDescriptorProto"); got.GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
		t.Errorf("a type of the binary is shown: %v", got)
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r, err := newResolver()
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.FindDescriptorByName("agent.v1.Event")
	if err != nil || dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor)).Descriptor().Fields().Len() != 13 {
		t.Errorf("event: %v, %v", d, err)
	}
}
