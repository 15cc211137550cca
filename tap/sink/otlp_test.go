package sink

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// wholeRun returns the events of a run with one tool.
func wholeRun(run string) (events []tap.Event) {
	for i, line := range []string{`run.lifecycle {"state":"running"}`,
		`tool.start {"call_id":"c","tool":"search","input":{"q":"hush"}}`,
		`tool.end {"call_id":"c","ok":true}`, `run.lifecycle {"state":"done"}`} {
		typ, payload, _ := strings.Cut(line, " ")
		e := tap.Event{Run: schema.RunKey{Tenant: "acme", Run: run}, Seq: schema.Seq(i + 1), Type: typ,
			TS: time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)}
		e.Line = fmt.Appendf(nil, `{"id":"evt_%d","ts":"2026-01-02T03:04:0%dZ","type":%q,"run_id":%q,`, i, i, typ, run)
		e.Line = fmt.Appendf(e.Line, `"child_id":null,"seq":%d,"payload":%s}`, e.Seq, payload)
		events = append(events, e)
	}
	return events
}

// partial is an answer that says that n spans were not accepted.
func partial(n uint64) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), n)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "too old")
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
}

// collector is the other side of the protocol, over HTTP and gRPC.
type collector struct {
	mu     sync.Mutex
	names  []string
	header string       // that came with the newest request
	answer func() reply // nil: everything is accepted
}

type reply struct {
	status int
	code   codes.Code
	body   []byte
}

func (c *collector) accept(header string, body []byte) reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = header
	if c.answer != nil {
		if r := c.answer(); r.status != 0 || r.code != 0 || r.body != nil {
			return r
		}
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(body, &data); err != nil {
		return reply{status: http.StatusBadRequest, code: codes.InvalidArgument}
	}
	for _, span := range data.ResourceSpans[0].ScopeSpans[0].Spans {
		c.names = append(c.names, span.Name)
	}
	return reply{}
}

func (c *collector) serveHTTP(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		kind := r.Header.Get("Content-Type")
		if err != nil || kind != "application/x-protobuf" || r.URL.String() != "/base/v1/traces" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		body, _ := io.ReadAll(z)
		a := c.accept(r.Header.Get("Authorization"), body)
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.Header().Set("Retry-After", "0")
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		_, _ = w.Write(a.body)
	}))
	t.Cleanup(server.Close)
	return "otlp+" + server.URL + "/base/"
}

func (c *collector) serveGRPC(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var request emptypb.Empty
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(stream.Context())
		method, _ := grpc.MethodFromServerStream(stream)
		if method != tracesMethod {
			return status.Error(codes.Unimplemented, method)
		}
		a := c.accept(strings.Join(md.Get("authorization"), ","), request.ProtoReflect().GetUnknown())
		if a.code != codes.OK {
			return status.Error(a.code, "no")
		}
		var answer emptypb.Empty
		answer.ProtoReflect().SetUnknown(a.body)
		return stream.SendMsg(&answer)
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return "otlp+grpc://" + listener.Addr().String()
}

// TestOTLP: spans come over both transports, with headers and packed; the answers of a collector mean what the
// protocol says.
func TestOTLP(t *testing.T) {
	for _, over := range []string{"http", "grpc"} {
		t.Run(over, func(t *testing.T) {
			c := &collector{}
			address := c.serveHTTP(t)
			if over == "grpc" {
				address = c.serveGRPC(t)
			}
			o := Options{OTLP: OTLP{Headers: func() []string { return []string{"Authorization: Basic aHVzaA=="} }}}
			events := wholeRun("r1")
			s := open(t, o, address)
			write(t, s, events...)
			want := "[invoke_agent execute_tool search execute_tool search invoke_agent]"
			if fmt.Sprint(c.names) != want || c.header != "Basic aHVzaA==" {
				t.Errorf("%v with %q, want %s", c.names, c.header, want)
			}
			write(t, s, events...)
			if len(c.names) != 4 {
				t.Errorf("what comes again is sent again: %v", c.names)
			}
			c.names = nil
			quiet := open(t, o, address+"?pending=false&contents=true")
			write(t, quiet, events...)
			if fmt.Sprint(c.names) != "[execute_tool search invoke_agent]" {
				t.Errorf("without markers: %v", c.names)
			}
			c.checkFaults(t, open(t, o, address))
		})
	}
}

// checkFaults lets a collector answer with faults.
func (c *collector) checkFaults(t *testing.T, s tap.Receiver) {
	t.Helper()
	answer := func(r reply) func() reply { return func() reply { return r } }
	events := wholeRun("r2")
	for _, wait := range []reply{{status: 429, code: codes.ResourceExhausted}, {status: 503, code: codes.Unavailable},
		{status: 502, code: codes.Aborted}, {status: 401, code: codes.Unauthenticated},
		{status: 404, code: codes.Unimplemented}} {
		c.answer = answer(wait)
		refused, err := s.Write(t.Context(), events[:2])
		if err == nil || len(refused) > 0 || errors.Is(err, persister.ErrPoison) || strings.Contains(err.Error(), "aHVz") {
			t.Errorf("%+v: %v, %v", wait, refused, err)
		}
	}
	c.answer = answer(reply{status: 400, code: codes.InvalidArgument})
	if _, err := s.Write(t.Context(), events[:2]); !errors.Is(err, persister.ErrPoison) {
		t.Errorf("%v, want ErrPoison", err)
	}
	if refused, err := s.Write(t.Context(), events[:1]); err != nil || len(refused) != 1 {
		t.Errorf("%v, %v, want a letter", refused, err)
	}
	c.answer = answer(reply{body: partial(3)})
	refused, err := s.Write(t.Context(), events[:2])
	if err != nil || len(refused) != 1 || !strings.Contains(refused[0].Detail, "3 rejected: too old") {
		t.Errorf("%v, %v, want a letter", refused, err)
	}
	c.answer, c.names = nil, nil
	write(t, s, events...)
	if fmt.Sprint(c.names) != "[execute_tool search invoke_agent]" {
		t.Errorf("after that: %v", c.names)
	}
}

// TestOTLPAddresses: an error says what is bad of an address, and nothing secret is in the error.
func TestOTLPAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"otlp+http://":                           "want otlp+https://",
		"otlp+https://user:hush@example.com":     "credentials in headers",
		"otlp+http://example.com?contents=maybe": "want true or false",
		"otlp+http://example.com?hush=1":         "unknown",
		"otlp+grpc://example.com:4317/path":      "gRPC has no path",
	} {
		_, err := Open(t.Context(), []string{address}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "user:hush") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	o := Options{OTLP: OTLP{Headers: func() []string { return []string{"hush"} }}}
	_, err := Open(t.Context(), []string{"otlp+http://example.com"}, o)
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a bad header: %v", err)
	}
}
