package grpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	gogrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// mounted is a server with one handler for each path.
func mounted(t *testing.T, routes map[string]http.HandlerFunc) *bench {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range routes {
		mux.Handle("POST "+path, h)
	}
	b := &bench{srv: httptest.NewUnstartedServer(mux)}
	b.srv.Config.Protocols = new(http.Protocols)
	b.srv.Config.Protocols.SetHTTP1(true)
	b.srv.Config.Protocols.SetUnencryptedHTTP2(true)
	b.srv.Start()
	t.Cleanup(b.srv.Close)
	b.addr = b.srv.Listener.Addr().String()
	return b
}

func transportOf(t *testing.T, cfg Config) *Transport {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestLastWords has last messages, a status with details, and metadata before and behind it, of calls that had
// messages, had none, or were refused.
func TestLastWords(t *testing.T) {
	info := &healthpb.HealthCheckRequest{Service: "any message that the client knows"}
	detail, err := anypb.New(info)
	if err != nil {
		t.Fatal(err)
	}
	unknown := &anypb.Any{TypeUrl: "type.test/not.known.Here", Value: []byte{8, 1}}
	binary := []byte{0, 255, 1}
	failed := transport.End{
		GRPC: 8, Message: `{"reasonCode":"QUOTA","message":"100 % of é"}`, Details: []*anypb.Any{detail, unknown},
		Trailer: http.Header{"X-Why": {"a", "b"}, "X-Why-Bin": {connect.EncodeBinaryHeader(binary)}},
	}
	clean := transport.End{Clean: true, Last: frames("last"), Trailer: failed.Trailer, Details: failed.Details, GRPC: 8,
		Message: "not this"}
	withLast := failed
	withLast.Last = frames("last", "words")
	tr := transportOf(t, Config{})
	route := func(messages int, e transport.End, bySink bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := tr.Serve(w, r, refusal, func(_ context.Context, _ []byte, s transport.Sink) transport.End {
				w.Header().Set("X-Lead", "first")
				w.Header().Set("X-Lead-Bin", connect.EncodeBinaryHeader(binary))
				if r.Header.Get("X-Asked") != "yes" {
					t.Errorf("metadata %v", r.Header)
				}
				if err := s.Write(frames("a", "b")[:messages]); err != nil {
					t.Error(err)
				}
				if bySink {
					if err := s.CloseWith(e); err != nil {
						t.Error(err)
					}
				}
				return e
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	routes := map[string]http.HandlerFunc{"/refused": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Lead", "first")
		w.Header().Set("X-Lead-Bin", connect.EncodeBinaryHeader(binary))
		if err := tr.Refuse(w, r, failed); err != nil {
			t.Error(err)
		}
	}}
	type expect struct {
		end      transport.End
		messages int
	}
	want := map[string]expect{"/refused": {failed, 0}}
	for _, messages := range []int{0, 2} {
		for name, e := range map[string]transport.End{"failed": failed, "clean": clean, "last": withLast} {
			for _, bySink := range []bool{false, true} {
				path := fmt.Sprintf("/%s/%d/%v", name, messages, bySink)
				routes[path] = route(messages, e, bySink)
				want[path] = expect{e, messages + len(e.Last)}
			}
		}
	}
	b := mounted(t, routes)
	cc := b.dial(t)
	for path, w := range want {
		t.Run(path, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-asked", "yes")
			st, err := cc.NewStream(ctx, &gogrpc.StreamDesc{ServerStreams: true}, path, gogrpc.ForceCodec(rawClientCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			m := raw("request")
			if err := errors.Join(st.SendMsg(&m), st.CloseSend()); err != nil {
				t.Fatal(err)
			}
			got, err := all(st)
			if len(got) != w.messages {
				t.Errorf("%d messages, want %d", len(got), w.messages)
			}
			head, herr := st.Header()
			trailer := st.Trailer()
			if lead, bin := head.Get("x-lead"), head.Get("x-lead-bin"); herr != nil || len(lead) != 1 ||
				len(bin) != 1 || bin[0] != string(binary) {
				t.Errorf("leading metadata %v, %v", head, herr)
			}
			if why, bin := trailer.Get("x-why"), trailer.Get("x-why-bin"); strings.Join(why, " ") != "a b" ||
				len(bin) != 1 || bin[0] != string(binary) {
				t.Errorf("trailing metadata %v", trailer)
			}
			if w.end.Clean {
				if err != nil {
					t.Error(err)
				}
				return
			}
			s := status.Convert(err)
			if s.Code() != codes.ResourceExhausted || s.Message() != w.end.Message || len(s.Proto().GetDetails()) != 2 {
				t.Fatalf("%v", err)
			}
			if got, ok := s.Details()[0].(*healthpb.HealthCheckRequest); !ok || !proto.Equal(got, info) ||
				!proto.Equal(s.Proto().GetDetails()[1], unknown) {
				t.Errorf("details %v", s.Details())
			}
		})
	}
}

// TestUnary has calls with one response, one without, refusals, and calls that are none.
func TestUnary(t *testing.T) {
	tr := transportOf(t, Config{})
	large := strings.Repeat("x", 300<<10)
	b := mounted(t, map[string]http.HandlerFunc{"/test.v1.Echo/Say": func(w http.ResponseWriter, r *http.Request) {
		err := tr.ServeUnary(w, r, refusal, func(ctx context.Context, request []byte) ([]byte, transport.End) {
			w.Header().Set("X-Lead", r.Header.Get("X-Asked"))
			switch string(request) {
			case "refuse":
				return []byte("not sent"), transport.End{GRPC: 9, Code: "STATE", Message: "not now",
					Trailer: http.Header{"X-Why": {"state"}}}
			case "large":
				return []byte(large), ok
			case "wait":
				<-ctx.Done()
			}
			return append([]byte("echo "), request...), ok
		})
		if err != nil && !errors.Is(err, dialect.ErrBadRequest) && !errors.Is(err, dialect.ErrClientGone) {
			t.Error(err)
		}
	}})
	cc := b.dial(t)
	for _, tt := range []struct {
		request, response string
		code              codes.Code
	}{
		{"hello", "echo hello", codes.OK}, {"", "echo ", codes.OK}, {"large", large, codes.OK},
		{"refuse", "", codes.FailedPrecondition},
	} {
		var head, trailer metadata.MD
		in, out := raw(tt.request), raw(nil)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-asked", "yes")
		err := cc.Invoke(ctx, "/test.v1.Echo/Say", &in, &out, gogrpc.ForceCodec(rawClientCodec{}), gogrpc.Header(&head),
			gogrpc.Trailer(&trailer))
		if status.Code(err) != tt.code || string(out) != tt.response || len(head.Get("x-lead")) != 1 {
			t.Errorf("%s: %d bytes, %v, %v", tt.request, len(out), err, head)
		}
		if tt.code != codes.OK && (status.Convert(err).Message() != "STATE: not now" || len(trailer.Get("x-why")) != 1) {
			t.Errorf("%s: %v, %v", tt.request, err, trailer)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, out := raw("wait"), raw(nil)
	if err := cc.Invoke(ctx, "/test.v1.Echo/Say", &in, &out,
		gogrpc.ForceCodec(rawClientCodec{})); status.Code(err) != codes.Canceled {
		t.Errorf("a client that leaves: %v", err)
	}
	// More than one message, and none.
	for _, n := range []int{0, 2} {
		st, err := cc.NewStream(t.Context(), &gogrpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/test.v1.Echo/Say", gogrpc.ForceCodec(rawClientCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			m := raw("x")
			if err := st.SendMsg(&m); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if got, err := all(st); status.Code(err) != codes.InvalidArgument || len(got) > 0 {
			t.Errorf("%d messages: %d, %v", n, len(got), err)
		}
	}
}

// TestRequestSizePerMethod has methods of one server that take messages of other sizes.
func TestRequestSizePerMethod(t *testing.T) {
	tr := transportOf(t, Config{MaxRequest: 100})
	route := func(n int) http.HandlerFunc {
		own, err := tr.For(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		return func(w http.ResponseWriter, r *http.Request) {
			err := own.ServeUnary(w, r, refusal, func(_ context.Context, request []byte) ([]byte, transport.End) { return request, ok })
			if err != nil && !errors.Is(err, ErrTooLarge) {
				t.Error(err)
			}
		}
	}
	b := mounted(t, map[string]http.HandlerFunc{"/s/Small": route(1000), "/s/Large": route(200 << 10),
		"/s/Default": route(0)})
	cc := b.dial(t)
	for path, most := range map[string]int{"/s/Small": 1000, "/s/Large": 200 << 10, "/s/Default": 100} {
		for _, over := range []int{0, 1} {
			for _, opts := range [][]gogrpc.CallOption{nil, {gogrpc.UseCompressor("gzip")}} {
				in, out := raw(strings.Repeat("x", most+over)), raw(nil)
				err := cc.Invoke(t.Context(), path, &in, &out, append(opts, gogrpc.ForceCodec(rawClientCodec{}))...)
				if want := []codes.Code{codes.OK, codes.ResourceExhausted}[over]; status.Code(err) != want ||
					len(out) != (most*(1-over)) {
					t.Errorf("%s: %d bytes over %d: %v", path, over, most, err)
				}
			}
		}
	}
	if _, err := tr.For(-1, 0); err == nil {
		t.Error("-1 bytes")
	}
}

// refusal is the end of a call whose message was not read.
func refusal(err error) transport.End {
	for want, code := range map[error]int{ErrTooLarge: 8, ErrTimeout: 4, dialect.ErrBadRequest: 3} {
		if errors.Is(err, want) {
			return transport.End{GRPC: code, Message: want.Error()}
		}
	}
	return transport.End{GRPC: 1, Message: "the client is gone"}
}
