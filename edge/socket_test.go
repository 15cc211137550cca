package edge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// socket is a WebSocket client that remembers what it got.
type socket struct {
	gws.BuiltinEventHandler
	mu     sync.Mutex
	lines  []string
	closed chan struct{}
	err    error
	conn   *gws.Conn
}

func (s *socket) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	if m.Opcode != gws.OpcodeText {
		s.lines = append(s.lines, "not text")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(m.Bytes()))
}

func (s *socket) OnPing(c *gws.Conn, payload []byte) { _ = c.WritePong(payload) }

func (s *socket) OnClose(_ *gws.Conn, err error) {
	s.err = err
	close(s.closed)
}

func (s *socket) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// dial opens a WebSocket; headers are name, value, …
func (h *house) dial(path string, headers ...string) (*socket, *http.Response, error) {
	s := &socket{closed: make(chan struct{})}
	head := http.Header{"Sec-Websocket-Protocol": {"koder-agent-stream-v1"}}
	for i := 0; i+1 < len(headers); i += 2 {
		head.Set(headers[i], headers[i+1])
	}
	conn, resp, err := gws.NewClient(s, &gws.ClientOption{Addr: "ws://" + h.addr + path, RequestHeader: head, ReadMaxPayloadSize: 8 << 20})
	if err != nil {
		return nil, resp, err
	}
	s.conn = conn
	go conn.ReadLoop()
	return s, resp, nil
}

// wait returns the lines up to the close, and the close.
func (s *socket) wait(t testing.TB) ([]string, *gws.CloseError) {
	t.Helper()
	select {
	case <-s.closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not close")
	}
	var ce *gws.CloseError
	if !errors.As(s.err, &ce) {
		t.Fatalf("closed by %v", s.err)
	}
	return s.lines, ce
}

func TestWebSocket(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("run", schematest.Generate(300, 6), 5)
	all := logged(t, packs)
	for _, tt := range []struct {
		query  string
		after  int
		header []string
	}{
		{"detail=full", 0, nil}, {"", 0, []string{"Detail", "full"}}, {"detail=full&after=117", 117, nil},
		{"detail=full&last_event_id=117", 117, nil}, {"detail=full&after=299", 299, nil}, {"detail=full&after=300", 300, nil},
	} {
		s, resp, err := h.dial("/v1/agent/runs/run/stream?"+tt.query, tt.header...)
		if err != nil || resp.Header.Get("Sec-WebSocket-Protocol") != "koder-agent-stream-v1" {
			t.Fatalf("%s: %v", tt.query, err)
		}
		lines, ce := s.wait(t)
		if ce.Code != 1000 || len(lines) != len(all)-tt.after {
			t.Fatalf("%s: %d lines, want %d; closed with %d %s", tt.query, len(lines), len(all)-tt.after, ce.Code, ce.Reason)
		}
		for i, l := range lines {
			if want := string(all[tt.after+i].AppendLine(nil)); l != want {
				t.Fatalf("%s: line %d is %s, want %s", tt.query, i, l, want)
			}
		}
	}
	s, _, err := h.dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := s.wait(t)
	var list []shown
	for _, l := range lines {
		e, err := schema.DecodeLine([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, shown{Event: e, line: l, id: e.Seq.String()})
	}
	tiles(t, list, 0)
	equalTexts(t, "shaped", saidBy(t, list), said(t, all))
}

func TestWebSocketRefusals(t *testing.T) {
	h := newHouse(t)
	h.fill("run", schematest.Named("plain"), 5)
	for _, tt := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/v1/agent/runs/none/stream", nil, 404},
		{"/v1/agent/runs/run/stream", []string{tenantHeader, "other"}, 404},
		{"/v1/agent/runs/run/stream", []string{tenantHeader, "nobody"}, 401},
		{"/v1/agent/runs/run/stream", []string{"Sec-WebSocket-Protocol", "another"}, 400},
		{"/v1/agent/runs/run/stream?after=9999", nil, 409},
		{"/v1/agent/runs/run/stream?after=x", nil, 400},
		{"/v1/agent/runs/run/stream?speed=0", nil, 400},
		{"/v1/agent/runs/run/stream?types=A%20B", nil, 400},
	} {
		_, resp, err := h.dial(tt.path, tt.headers...)
		if err == nil || resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s %v: %v %v, want %d", tt.path, tt.headers, resp, err, tt.status)
			continue
		}
	}
	// What is refused is answered as on any route.
	a := h.do("GET", "/v1/agent/runs/none/stream", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	a.expect(t, 404, "NOT-FOUND")
}

func TestWebSocketEnds(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			who := auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}
			if r.Header.Get("Short") != "" {
				who.Expires = time.Now().Add(time.Second) // of this request: its stream begins before that
			}
			return who, nil
		}
	})
	h.do("POST", "/v1/agent/runs/run/events", good)
	binary, _, err := h.dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.conn.WriteMessage(gws.OpcodeBinary, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, ce := binary.wait(t); ce.Code != 1003 {
		t.Errorf("binary: closed with %d", ce.Code)
	}
	short, _, err := h.dial("/v1/agent/runs/run/stream", "Short", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, ce := short.wait(t); ce.Code != 1008 || !strings.HasPrefix(string(ce.Reason), "CREDENTIAL-EXPIRED") {
		t.Errorf("expired: closed with %d %s", ce.Code, ce.Reason)
	}
	resp, err := h.client.Do(h.request("GET", "/v1/agent/runs/run/stream", "", "Short", "1"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err == nil || !strings.Contains(string(body), "event: stream.error\ndata: {\"error\":{\"code\":\"CREDENTIAL-EXPIRED\"") {
		t.Errorf("expired over SSE: %v: %s", err, body)
	}
	drained, _, err := h.dial("/v1/agent/runs/run/stream")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first event is there", func() bool { return drained.count() == 1 })
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, ce := drained.wait(t); ce.Code != 1001 {
		t.Errorf("drained: closed with %d", ce.Code)
	}
}

// rawCodec hands messages through as bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (rawCodec) Name() string { return "proto" }

// fields takes a flat message apart: numbers and texts by field number.
func fields(t testing.TB, b []byte) (nums map[protowire.Number]uint64, texts map[protowire.Number]string) {
	t.Helper()
	nums, texts = map[protowire.Number]uint64{}, map[protowire.Number]string{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[max(n, 0):]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			nums[num], b = v, b[max(n, 0):]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			texts[num], b = string(v), b[max(n, 0):]
		default:
			t.Fatalf("field %d has type %d", num, typ)
		}
	}
	return nums, texts
}

func streamRequest(run string, after uint64, full bool) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), run)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), after)
	if full {
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1)
	}
	return b
}

// rpc calls agent.v1.AgentRun/Stream and gives the messages and the end.
func rpc(t testing.TB, conn *grpc.ClientConn, request []byte, md ...string) ([][]byte, error) {
	t.Helper()
	return rpcUntil(t, conn, request, make(chan struct{}), md...)
}

// rpcUntil closes begun when the first message is there.
func rpcUntil(t testing.TB, conn *grpc.ClientConn, request []byte, begun chan struct{}, md ...string) ([][]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), 20*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/agent.v1.AgentRun/Stream", grpc.ForceCodec(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(&request), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	for {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return got, err
		}
		if got = append(got, m); len(got) == 1 {
			close(begun)
		}
	}
}

func TestGRPC(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("run", schematest.Generate(300, 6), 5)
	all := logged(t, packs)
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, after := range []int{0, 117, 299, 300} {
		got, err := rpc(t, conn, streamRequest("run", uint64(after), true))
		if !errors.Is(err, io.EOF) || len(got) != len(all)-after {
			t.Fatalf("after %d: %d messages, want %d: %v", after, len(got), len(all)-after, err)
		}
		for i, m := range got {
			nums, texts := fields(t, m)
			e := all[after+i]
			if nums[6] != uint64(e.Seq) || texts[1] != e.ID || texts[3] != e.Type || texts[5] != e.ChildID || texts[13] != string(e.Payload) {
				t.Fatalf("message %d: %v %v, want %s", i, nums, texts, e.AppendLine(nil))
			}
		}
	}
	got, err := rpc(t, conn, streamRequest("run", 0, false))
	var list []schema.Event
	last := uint64(0)
	for _, m := range got {
		nums, texts := fields(t, m)
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
		codes.NotFound:        func() error { _, err := rpc(t, conn, streamRequest("none", 0, true)); return err },
		codes.OutOfRange:      func() error { _, err := rpc(t, conn, streamRequest("run", 301, true)); return err },
		codes.InvalidArgument: func() error { _, err := rpc(t, conn, streamRequest("a.b", 0, true)); return err },
		codes.Unauthenticated: func() error {
			_, err := rpc(t, conn, streamRequest("run", 0, true), tenantHeader, "nobody")
			return err
		},
		codes.PermissionDenied: func() error {
			_, err := rpc(t, conn, streamRequest("run", 0, true), tenantHeader, "reader")
			return err
		},
	} {
		if err := call(); status.Code(err) != want {
			t.Errorf("want %v: %v", want, err)
		}
	}
	_, missing := rpc(t, conn, streamRequest("none", 0, true))
	_, foreign := rpc(t, conn, streamRequest("run", 0, true), tenantHeader, "other")
	if fmt.Sprint(missing) != fmt.Sprint(foreign) {
		t.Errorf("a missing run is %v, a foreign one %v", missing, foreign)
	}
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "agent.v1.AgentRun"})
	if err != nil || health.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", health, err)
	}
}

// TestGRPCDrain: a node that goes away ends its calls with CANCELLED and no invented event.
func TestGRPCDrain(t *testing.T) {
	h := newHouse(t)
	h.do("POST", "/v1/agent/runs/run/events", good)
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	end := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		got, err := rpcUntil(t, conn, streamRequest("run", 0, false), begun)
		if len(got) != 1 {
			t.Errorf("%d messages", len(got))
		}
		end <- err
	}()
	<-begun
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-end; status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
		t.Errorf("ended with %v", err)
	}
}

// TestGRPCStatusTravels: an answer without messages has no length, or proxies leave its trailers out,
// and its status with them.
func TestGRPCStatusTravels(t *testing.T) {
	h := newHouse(t)
	client := h2c()
	defer client.CloseIdleConnections()
	for name, headers := range map[string][]string{"refused before": {tenantHeader, "nobody"}, "refused within": nil} {
		message := streamRequest("none", 0, true)
		body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
		r := h.request("POST", "/agent.v1.AgentRun/Stream", string(body), append(headers, "Content-Type", "application/grpc", "Te", "trailers")...)
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
