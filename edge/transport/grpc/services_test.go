package grpc

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gogrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"agentstream/edge/transport"
)

// file declares a service Name in package pkg, with a method Say whose messages are of the imported file.
func file(pkg, name string) *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String(pkg + "/" + name + ".proto"), Package: proto.String(pkg), Syntax: proto.String("proto3"),
		Dependency: []string{shared.GetName()},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String(name),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Say"), InputType: proto.String(".test.Text"), OutputType: proto.String(".test.Text"),
			}}}},
	}
}

// shared is what the test's services import.
var shared = &descriptorpb.FileDescriptorProto{
	Name: proto.String("test/text.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
	MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Text"), Field: []*descriptorpb.FieldDescriptorProto{{
		Name: proto.String("text"), Number: proto.Int32(1), JsonName: proto.String("text"),
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
	}}}},
}

func encoded(t testing.TB, files ...*descriptorpb.FileDescriptorProto) []byte {
	t.Helper()
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: files})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// twoServices are of two protocols, which import the same; of the second's file only one service is served.
func twoServices(t testing.TB) Services {
	t.Helper()
	second := file("other.v1", "Served")
	second.Service = append(second.Service, file("other.v1", "NotServed").Service...)
	return Services{Names: []string{"echo.v1.Echo", "other.v1.Served"},
		Files: [][]byte{encoded(t, shared, file("echo.v1", "Echo")), encoded(t, second, shared)}}
}

func TestHealth(t *testing.T) {
	b := serve(t, Config{}, nil)
	c := healthpb.NewHealthClient(b.dial(t))
	for service, want := range map[string]codes.Code{"": codes.OK, "echo.v1.Echo": codes.OK,
		"other.v1.Served": codes.OK, "other.v1.NotServed": codes.NotFound, "other": codes.NotFound} {
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
		healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING,
		healthpb.HealthCheckResponse_NOT_SERVING,
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
	if status.Code(err) != codes.Canceled {
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
	if got := strings.Join(names, " "); got != "echo.v1.Echo other.v1.Served "+Health+" "+Reflection {
		t.Errorf("services %s", got)
	}
	symbol := func(s string) *reflectionpb.ServerReflectionResponse {
		return ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s}})
	}
	for _, s := range []string{"echo.v1.Echo", "echo.v1.Echo.Say", "other.v1.Served", "test.Text", Health, Reflection} {
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
	r, err := newResolver(twoServices(t))
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.FindDescriptorByName("test.Text")
	if err != nil || dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor)).Descriptor().Fields().Len() != 1 {
		t.Errorf("message: %v, %v", d, err)
	}
}

// TestServicesThatDoNotFit has descriptors that no server may begin with.
func TestServicesThatDoNotFit(t *testing.T) {
	tr := transportOf(t, Config{})
	other := proto.CloneOf(shared)
	other.MessageType[0].Field[0].Number = proto.Int32(2)
	for name, v := range map[string]Services{
		"damaged":              {Files: [][]byte{{0xff}}},
		"import is missing":    {Files: [][]byte{encoded(t, file("echo.v1", "Echo"))}},
		"service without file": {Names: []string{"echo.v1.Echo"}},
		"no service":           {Names: []string{"test.Text"}, Files: [][]byte{encoded(t, shared)}},
		"two of one path":      {Files: [][]byte{encoded(t, shared), encoded(t, other)}},
	} {
		if h, err := tr.Handlers(v); err == nil || h != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tr.Handlers(Services{}); err != nil {
		t.Error(err)
	}
}

// TestUnknownProcedures holds that a call of what is not served is answered as such, whatever the service.
func TestUnknownProcedures(t *testing.T) {
	tr := transportOf(t, Config{})
	b := mounted(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
		if err := tr.Refuse(w, r, transport.End{GRPC: 12, Message: "there is nothing here"}); err != nil {
			t.Error(err)
		}
	}})
	for _, path := range []string{"/echo.v1.Echo/Other", "/none.v1.None/Say"} {
		in, out := raw("x"), raw(nil)
		err := b.dial(t).Invoke(t.Context(), path, &in, &out, gogrpc.ForceCodec(rawClientCodec{}))
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", path, err)
		}
	}
}
