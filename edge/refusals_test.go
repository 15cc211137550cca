package edge_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
)

// TestBodiesAreUTF8 sends bodies that are JSON but for their bytes, in fields that are read and in fields that are
// not, to every route that takes JSON: refused, and nothing is stored.
func TestBodiesAreUTF8(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	last := h.Last("run")
	paths := []string{"POST /v1/agent/runs", "PUT /v1/agent/runs/fresh"}
	for _, name := range []string{"approve_plan", "reject_plan", "pause", "resume", "redirect", "cancel", "answer",
		"messages", "update"} {
		paths = append(paths, "POST /v1/agent/runs/run/"+name)
	}
	for _, path := range paths {
		method, path, _ := strings.Cut(path, " ")
		for _, body := range []string{
			"{\"note\":\"\xff\xfe\"}", "{\"by\":\"\xc3\x28\"}", "{\"\x80\":1}",
			"{\"note\":{\"deep\":[\"\xed\xa0\x80\"]}}", "{\"instruction\":\"\xc0\xaf\",\"content\":\"x\"}",
			"{\"child_id\":null,\"plan_id\":null,\"request_id\":null,\"by\":{\"x\":\"\xf5\"}}", "{}\xff",
		} {
			if p := h.Do(method, path, body).Expect(t, 400, "BAD-REQUEST"); !strings.Contains(p.Message, "UTF-8") {
				t.Errorf("%s %s with %q: %s", method, path, body, p.Message)
			}
		}
	}
	h.Do("POST", "/v1/agent/runs/run/events", "{\"type\":\"progress\",\"note\":\"\xff\"}").Expect(t, 400,
		"KAI-STREAM-PROTO-0001")
	if now := h.Last("run"); now != last || h.Last("fresh") != 0 {
		t.Errorf("newest event of run is %d, was %d; of fresh %d", now, last, h.Last("fresh"))
	}
}

// TestMessagesAreUTF8: strings of gRPC requests are UTF-8 too, whatever the method.
func TestMessagesAreUTF8(t *testing.T) {
	h := edgetest.NewHouse(t)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, number := range []protowire.Number{1, 3, 5, 7} { // all strings of a StreamRequest
		message := protowire.AppendString(protowire.AppendTag(edgetest.StreamRequest("run", 0, true), number,
			protowire.BytesType), "\xff\xfe")
		if _, err := edgetest.RPC(t, conn, message); status.Code(err) != codes.InvalidArgument {
			t.Errorf("field %d: %v", number, err)
		}
	}
	broken := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff\xfe")
	if err := conn.Invoke(t.Context(), healthpb.Health_Check_FullMethodName, &broken, new([]byte),
		grpc.ForceCodec(edgetest.RawCodec{})); status.Code(err) != codes.InvalidArgument {
		t.Errorf("health: %v", err)
	}
}

// TestUnknownMethods calls what no service has: UNIMPLEMENTED in the shape of the protocol that asks, without a
// credential as well, and a plain 404 for what is no call.
func TestUnknownMethods(t *testing.T) {
	h := edgetest.NewHouse(t)
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := edgetest.H2C()
	defer client.CloseIdleConnections()
	for _, method := range []string{
		"/agent.v1.AgentRun/Watch", "/agent.v1.AgentRun/", "/agent.v2.AgentRun/Stream", "/x.Y/Z", "/Stream",
		"/agent.v1.AgentRun/Stream/", "/agent.v1.AgentRun/stream",
		"/grpc.health.v1.Health/List", "/grpc.reflection.v1.ServerReflection/Other", "/v1/agent/nothing", "/",
	} {
		request, answer := edgetest.StreamRequest("run", 0, true), []byte(nil)
		if err := conn.Invoke(t.Context(), method, &request, &answer,
			grpc.ForceCodec(edgetest.RawCodec{})); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
		for ctype, c := range map[string]*http.Client{"application/grpc": client, "application/grpc+proto": client,
			"application/grpc-web": h.Client, "application/grpc-web+proto": client} {
			code, got := grpcStatus(t, c, h.Request("POST", method, envelope(request), "Content-Type", ctype, "Te",
				"trailers", edgetest.TenantHeader, "nobody"))
			if code != "12" || got.Status != 200 || got.Header.Get("Content-Type") != ctype || got.Body != "" {
				t.Errorf("%s as %s: grpc-status %q, %d %v %q", method, ctype, code, got.Status, got.Header, got.Body)
			}
		}
	}
	for _, ctype := range []string{"application/json", "text/plain", ""} {
		h.Do("POST", "/agent.v1.AgentRun/Watch", "{}", "Content-Type", ctype).Expect(t, 404, "NOT-FOUND")
	}
	h.Do("GET", "/agent.v1.AgentRun/Watch", "", "Content-Type", "application/grpc").Expect(t, 404, "NOT-FOUND")
	// over HTTP/1.1
	h.Do("POST", "/agent.v1.AgentRun/Watch", "", "Content-Type", "application/grpc").Expect(t, 404, "NOT-FOUND")
}

// envelope frames a message of gRPC.
func envelope(message []byte) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + string(message)
}

// grpcStatus sends a call and gives its grpc-status from wherever it stands.
func grpcStatus(t *testing.T, client *http.Client, r *http.Request) (string, edgetest.Reply) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Trailer.Get("Grpc-Status") +
			resp.Header.Get("Grpc-Status"), edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b),
			Last: resp.Close}
}

// TestTicketOfAnotherRun shows a ticket to streams that it does not open: answered as a ticket that never was, and
// it opens its own stream afterwards, once.
func TestTicketOfAnotherRun(t *testing.T) {
	g := newGuarded(t)
	g.has("acme", "other")
	key := g.key("watcher", auth.ScopeRead)
	never := "tkt_" + strings.Repeat("A", 52)
	for _, path := range []string{"/v1/agent/runs/other/stream", "/v1/agent/runs/none/stream", "/v1/agent/runs//stream",
		"/v1/agent/runs/a.b/stream", "/v1/agent/runs/runs/stream"} {
		ticket := g.ticket("run", key)
		bodies := map[string]string{}
		for name, t2 := range map[string]string{"another's": ticket, "none": never} {
			a := g.Do("GET", path+"?ticket="+t2, "")
			p := a.Expect(t, 401, "UNAUTHORIZED")
			bodies[name] = strings.ReplaceAll(a.Body, p.RequestID, "ID")
			if _, resp, err := g.Dial(path + "?ticket=" + t2); err == nil || resp.StatusCode != 401 {
				t.Errorf("%s as a socket with %s ticket: %v %v", path, name, resp, err)
			}
		}
		if bodies["another's"] != bodies["none"] {
			t.Errorf("%s: a ticket of another run is told %s, none %s", path, bodies["another's"], bodies["none"])
		}
		s, resp, err := g.Dial("/v1/agent/runs/run/stream?ticket=" + ticket)
		if err != nil {
			t.Fatalf("%s: the ticket is used up: %v %v", path, resp, err)
		}
		_ = s.Conn.NetConn().Close()
		g.Do("GET", "/v1/agent/runs/run/stream?ticket="+ticket, "").Expect(t, 401, "UNAUTHORIZED")
	}
	g.silent()
}

// TestOpenServerSaysWhoMay: what a server without authentication refuses it explains, on every transport.
func TestOpenServerSaysWhoMay(t *testing.T) {
	o, err := auth.NewOpen(auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.Authenticate = o.Authenticate })
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	from := func(method, path, host string, headers ...string) edgetest.Reply {
		r := h.Request(method, path, "", headers...)
		r.Host = host
		resp, err := h.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: err != nil}
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for _, tt := range []struct {
		path    string
		headers []string
	}{{"GET /v1/agent/runs/run", nil}, {"GET /v1/agent/runs/run/stream", nil},
		{"GET /v1/agent/runs/run/stream", upgrade}, {"POST /v1/agent/runs", nil}} {
		method, path, _ := strings.Cut(tt.path, " ")
		p := from(method, path, "agents.example:8080", tt.headers...).Expect(t, 403, "FORBIDDEN")
		for _, word := range []string{"Host", "without authentication", "localhost", "--auth-token"} {
			if !strings.Contains(p.Message, word) {
				t.Errorf("%s: %q does not say %s", tt.path, p.Message, word)
			}
		}
	}
	p := from("POST", "/v1/agent/runs", "localhost", "Origin", "https://evil.example").Expect(t, 403, "FORBIDDEN")
	if !strings.Contains(p.Message, "origin") || !strings.Contains(p.Message, "--cors-origin") {
		t.Errorf("a page of another origin is told %q", p.Message)
	}
	p = from("GET", "/v1/agent/runs/run/stream", "localhost",
		append(upgrade, "Origin", "https://evil.example")...).Expect(t, 403, "FORBIDDEN")
	if !strings.Contains(p.Message, "origin") || !strings.Contains(p.Message, "--cors-origin") {
		t.Errorf("a page of another origin that opens a WebSocket is told %q", p.Message)
	}
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("agents.example"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0,
		true)); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "without authentication") {
		t.Errorf("over gRPC: %v", err)
	}
	if _, err := o.Authenticate(h.Request("GET", "/", "").WithContext(context.Background())); errors.Is(err,
		auth.ErrForbidden) {
		t.Errorf("a request to %s: %v", h.Addr, err)
	}
}
