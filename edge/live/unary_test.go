package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/transport"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

// saying is the request message of the sample's unary method.
func saying(run, text string) []byte {
	b, _ := proto.Marshal(wrapperspb.String(fmt.Sprintf(`{"run":%q,"text":%q}`, run, text)))
	return b
}

func callUnary(t testing.TB, conn *grpc.ClientConn, method string, request []byte, md ...string) ([]byte, metadata.MD,
	error) {
	t.Helper()
	var reply []byte
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), md...)
	err := conn.Invoke(ctx, method, &request, &reply, grpc.ForceCodec(edgetest.RawCodec{}), grpc.Trailer(&trailer))
	return reply, trailer, err
}

// TestUnary has one handler answer an HTTP route and a unary method: answers, refusals with what the protocol adds to
// them, sizes, scopes and limits.
func TestUnary(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		p := sample.Protocol()
		p.LastWords = func(_ dialect.Stream, why dialect.Problem, _ bool, e *transport.End) {
			if detail, err := anypb.New(wrapperspb.String(why.Reason.String())); err == nil {
				e.Details = append(e.Details, detail)
			}
		}
		c.Protocols = append(c.Protocols, p)
		c.TenantLimits = map[string]edge.IngestLimit{"small": {Events: 1}}
		c.Authenticate = readersToo
	})
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const say = "/sample.v1.Sample/Say"
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`)
	h.Must("run", schema.TypeRunLifecycle, `{"state":"running"}`, edgetest.TenantHeader, "small") // all that it may
	if a := h.Do("POST", "/sample/run/notes", `{"text":"one"}`, "Content-Type", "application/json"); a.Status != 200 ||
		a.Body != `{"at":2,"id":"","re":"say"}`+"\n" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	reply, _, err := callUnary(t, conn, say, saying("run", "two"))
	said := &wrapperspb.StringValue{}
	if err = errors.Join(err, proto.Unmarshal(reply, said)); err != nil ||
		said.GetValue() != `{"at":3,"id":"","re":"say"}` {
		t.Fatalf("%v %x", err, reply)
	}
	for i, text := range []string{"one", "two"} {
		var p struct{ Text string }
		if err := json.Unmarshal(h.Event("run", schema.Seq(i+2)).Payload, &p); err != nil || p.Text != text {
			t.Errorf("%v %q", err, p.Text)
		}
	}
	for name, tt := range map[string]struct {
		method string
		body   []byte
		md     []string
		code   codes.Code
		detail string
	}{
		"no message of the kind": {say, []byte{0xFF}, nil, codes.InvalidArgument, "bad request"},
		"a bad run":              {say, saying("a.b", "x"), nil, codes.NotFound, "not found"},
		"a large message": {say, saying("run", strings.Repeat("x", 2<<10)), nil, codes.ResourceExhausted,
			"too large"},
		"nobody": {say, saying("run", "x"), []string{edgetest.TenantHeader, "nobody"},
			codes.Unauthenticated, "unauthorized"},
		"who may only read": {say, saying("run", "x"), []string{edgetest.TenantHeader, "just-reads"},
			codes.PermissionDenied, "forbidden"},
		"an unknown method":       {"/sample.v1.Sample/Sing", nil, nil, codes.Unimplemented, ""},
		"an unknown service":      {"/sample.v1.Halls/Say", nil, nil, codes.Unimplemented, ""},
		"a method of another one": {"/agent.v1.AgentRun/Say", nil, nil, codes.Unimplemented, ""},
	} {
		_, _, err := callUnary(t, conn, tt.method, tt.body, tt.md...)
		st := status.Convert(err)
		detail := ""
		for _, d := range st.Details() {
			detail = d.(*wrapperspb.StringValue).GetValue()
		}
		if st.Code() != tt.code || detail != tt.detail {
			t.Errorf("%s: %v %q, want %v %q", name, err, detail, tt.code, tt.detail)
		}
	}
	limited := false
	for range 20 {
		_, _, err := callUnary(t, conn, say, saying("run", "x"), edgetest.TenantHeader, "small")
		limited = limited || status.Code(err) == codes.ResourceExhausted
	}
	if !limited {
		t.Error("the tenant's limit does not count calls")
	}
	for body, want := range map[string]int{`{`: 400, `{"run":"run","text":"` + strings.Repeat("x", 2<<10) + `"}`: 413} {
		if a := h.Do("POST", "/sample/run/notes", body, "Content-Type", "application/json"); a.Status != want ||
			!strings.HasPrefix(a.Body, `{"error":`) {
			t.Errorf("%.20s: %d %s", body, a.Status, a.Body)
		}
	}
	if a := h.Do("POST", say, `{}`, "Content-Type", "application/json"); a.Status != 415 {
		t.Errorf("JSON to a method: %d", a.Status)
	}
}

// readersToo is byHeader, which knows somebody who may only read.
func readersToo(r *http.Request) (auth.Caller, error) {
	if r.Header.Get(edgetest.TenantHeader) == "just-reads" {
		return auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead}, nil
	}
	return edgetest.ByTenant(r)
}

// TestServicesOfProtocols asks health and reflection which services there are.
func TestServicesOfProtocols(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.Talking)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := ask.Send(r); err != nil {
			t.Fatal(err)
		}
		a, err := ask.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var names []string
	for _, s := range answer(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	slices.Sort(names)
	if want := []string{"agent.v1.AgentIngest", "agent.v1.AgentRun", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "sample.v1.Sample"}; !slices.Equal(names, want) {
		t.Errorf("services %q, want %q", names, want)
	}
	for _, symbol := range []string{"sample.v1.Sample", "google.protobuf.StringValue", "agent.v1.AgentRun"} {
		a := answer(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}})
		if len(a.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s: %v", symbol, a)
		}
	}
	health := healthpb.NewHealthClient(conn)
	for service, want := range map[string]codes.Code{"sample.v1.Sample": codes.OK, "agent.v1.AgentRun": codes.OK,
		"sample.v1.Halls": codes.NotFound} {
		if a, err := health.Check(t.Context(),
			&healthpb.HealthCheckRequest{Service: service}); status.Code(err) != want || err == nil &&
			a.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v %v", service, a, err)
		}
	}
}
