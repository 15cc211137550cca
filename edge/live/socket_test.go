package live_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestWebSocket(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.Generate(300, 6), 5)
	all := logged(t, packs)
	for _, tt := range []struct {
		query  string
		after  int
		header []string
	}{
		{"detail=full", 0, nil}, {"", 0, []string{"Detail", "full"}}, {"detail=full&after=117", 117, nil},
		{"detail=full&last_event_id=117", 117, nil}, {"detail=full&after=299", 299, nil}, {"detail=full&after=300", 300, nil},
	} {
		s, resp, err := h.Dial("/v1/agent/runs/run/stream?"+tt.query, tt.header...)
		if err != nil || resp.Header.Get("Sec-WebSocket-Protocol") != "koder-agent-stream-v1" {
			t.Fatalf("%s: %v", tt.query, err)
		}
		lines, ce := s.Wait(t)
		if ce.Code != 1000 || len(lines) != len(all)-tt.after {
			t.Fatalf("%s: %d lines, want %d; closed with %d %s", tt.query, len(lines), len(all)-tt.after, ce.Code, ce.Reason)
		}
		for i, l := range lines {
			if want := string(all[tt.after+i].AppendLine(nil)); l != want {
				t.Fatalf("%s: line %d is %s, want %s", tt.query, i, l, want)
			}
		}
	}
	s, _, err := h.Dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := s.Wait(t)
	var list []edgetest.Shown
	for _, l := range lines {
		e, err := schema.DecodeLine([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, edgetest.Shown{Event: e, Line: l, FrameID: e.Seq.String()})
	}
	tiles(t, list, 0)
	equalTexts(t, "shaped", saidBy(t, list), said(t, all))
}

func TestWebSocketRefusals(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.ByName("plain"), 5)
	for _, tt := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/v1/agent/runs/none/stream", nil, 404},
		{"/v1/agent/runs/run/stream", []string{edgetest.TenantHeader, "other"}, 404},
		{"/v1/agent/runs/run/stream", []string{edgetest.TenantHeader, "nobody"}, 401},
		{"/v1/agent/runs/run/stream", []string{"Sec-WebSocket-Protocol", "another"}, 400},
		{"/v1/agent/runs/run/stream?after=9999", nil, 409},
		{"/v1/agent/runs/run/stream?after=x", nil, 400},
		{"/v1/agent/runs/run/stream?speed=0", nil, 400},
		{"/v1/agent/runs/run/stream?types=A%20B", nil, 400},
	} {
		_, resp, err := h.Dial(tt.path, tt.headers...)
		if err == nil || resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s %v: %v %v, want %d", tt.path, tt.headers, resp, err, tt.status)
			continue
		}
	}
	// What is refused is answered as on any route.
	a := h.Do("GET", "/v1/agent/runs/none/stream", "", "Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	a.Expect(t, 404, "NOT-FOUND")
}

func TestWebSocketEnds(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			who := auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}
			if r.Header.Get("Short") != "" {
				who.Expires = time.Now().Add(time.Second) // of this request: its stream begins before that
			}
			return who, nil
		}
	})
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	binary, _, err := h.Dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Conn.WriteMessage(gws.OpcodeBinary, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, ce := binary.Wait(t); ce.Code != 1003 {
		t.Errorf("binary: closed with %d", ce.Code)
	}
	short, _, err := h.Dial("/v1/agent/runs/run/stream", "Short", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, ce := short.Wait(t); ce.Code != 1008 || !strings.HasPrefix(string(ce.Reason), "CREDENTIAL-EXPIRED") {
		t.Errorf("expired: closed with %d %s", ce.Code, ce.Reason)
	}
	resp, err := h.Client.Do(h.Request("GET", "/v1/agent/runs/run/stream", "", "Short", "1"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err == nil || !strings.Contains(string(body),
		"event: stream.error\ndata: {\"error\":{\"code\":\"CREDENTIAL-EXPIRED\"") {
		t.Errorf("expired over SSE: %v: %s", err, body)
	}
	drained, _, err := h.Dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Eventually(t, "the first event is there", func() bool { return drained.Count() == 1 })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, ce := drained.Wait(t); ce.Code != 1001 {
		t.Errorf("drained: closed with %d", ce.Code)
	}
}

func TestGRPC(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.Generate(300, 6), 5)
	all := logged(t, packs)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, after := range []int{0, 117, 299, 300} {
		got, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", uint64(after), true))
		if !errors.Is(err, io.EOF) || len(got) != len(all)-after {
			t.Fatalf("after %d: %d messages, want %d: %v", after, len(got), len(all)-after, err)
		}
		for i, m := range got {
			nums, texts := edgetest.MessageFields(t, m)
			e := all[after+i]
			if nums[6] != uint64(e.Seq) || texts[1] != e.ID || texts[3] != e.Type || texts[5] != e.ChildID ||
				texts[13] != string(e.Payload) {
				t.Fatalf("message %d: %v %v, want %s", i, nums, texts, e.AppendLine(nil))
			}
		}
	}
	got, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0, false))
	var list []schema.Event
	last := uint64(0)
	for _, m := range got {
		nums, texts := edgetest.MessageFields(t, m)
		first := nums[7]
		if first == 0 {
			first = nums[6]
		}
		if first != last+1 {
			t.Fatalf("behind %d comes %d", last, first)
		}
		last = nums[6]
		list = append(list, schema.Event{Type: texts[3], ChildID: texts[5], Payload: json.RawMessage(texts[13])})
	}
	if !errors.Is(err, io.EOF) || len(got) >= len(all) {
		t.Fatalf("%d messages: %v", len(got), err)
	}
	equalTexts(t, "shaped", said(t, list), said(t, all))
	for want, call := range map[codes.Code]func() error{
		codes.NotFound:        func() error { _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("none", 0, true)); return err },
		codes.OutOfRange:      func() error { _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 301, true)); return err },
		codes.InvalidArgument: func() error { _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("a.b", 0, true)); return err },
		codes.Unauthenticated: func() error {
			_, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0, true), edgetest.TenantHeader, "nobody")
			return err
		},
		codes.PermissionDenied: func() error {
			_, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0, true), edgetest.TenantHeader, "reader")
			return err
		},
	} {
		if err := call(); status.Code(err) != want {
			t.Errorf("want %v: %v", want, err)
		}
	}
	_, missing := edgetest.RPC(t, conn, edgetest.StreamRequest("none", 0, true))
	_, foreign := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0, true), edgetest.TenantHeader, "other")
	if fmt.Sprint(missing) != fmt.Sprint(foreign) {
		t.Errorf("a missing run is %v, a foreign one %v", missing, foreign)
	}
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(),
		&healthpb.HealthCheckRequest{Service: "agent.v1.AgentRun"})
	if err != nil || health.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", health, err)
	}
}

// TestGRPCDrain: a node that goes away ends its calls with CANCELLED and no invented event.
func TestGRPCDrain(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	end := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		got, err := edgetest.RPCUntil(t, conn, edgetest.StreamRequest("run", 0, false), begun)
		if len(got) != 1 {
			t.Errorf("%d messages", len(got))
		}
		end <- err
	}()
	<-begun
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-end; status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
		t.Errorf("ended with %v", err)
	}
}

// TestGRPCStatusTravels: an answer without messages has no length, or proxies leave its trailers out,
// and its status with them.
func TestGRPCStatusTravels(t *testing.T) {
	h := edgetest.NewHouse(t)
	client := edgetest.H2C()
	defer client.CloseIdleConnections()
	for name, headers := range map[string][]string{"refused before": {edgetest.TenantHeader, "nobody"},
		"refused within": nil} {
		message := edgetest.StreamRequest("none", 0, true)
		body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
		r := h.Request("POST", "/agent.v1.AgentRun/Stream", string(body),
			append(headers, "Content-Type", "application/grpc", "Te", "trailers")...)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		code := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Length") != "" || code == "" || code == "0" {
			t.Errorf("%s: %v %d %v %v", name, err, resp.StatusCode, resp.Header, resp.Trailer)
		}
	}
}
