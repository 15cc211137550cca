package grpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	gogrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// They end on their own, some time after the connection.
		goleak.IgnoreTopFunction("net/http.(*http2clientConnReadLoop).run"))
}

const procedure = "/echo.v1.Echo/Stream"

// handler is what a test does with a call.
type handler = func(ctx context.Context, request []byte, sink transport.Sink) transport.End

var ok = transport.End{Clean: true}

// bench is a server as the edge's: HTTP/1.1 and HTTP/2 without TLS on one port, with a wrapper that only
// unwraps around each response.
type bench struct {
	t    *Transport
	srv  *httptest.Server
	addr string

	mu   sync.Mutex
	errs []error // what Serve gave
	more chan struct{}
}

type unwrapper struct {
	http.ResponseWriter
	status int
}

func (u *unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u *unwrapper) WriteHeader(status int) {
	if u.status != 0 {
		panic("a second status")
	}
	u.status = status
	u.ResponseWriter.WriteHeader(status)
}

func (u *unwrapper) Write(b []byte) (int, error) {
	if u.status == 0 {
		u.status = http.StatusOK
	}
	return u.ResponseWriter.Write(b)
}

func serve(t testing.TB, cfg Config, fn handler) *bench {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	services, err := tr.Handlers(twoServices(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: tr, more: make(chan struct{}, 1000)}
	b.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &unwrapper{ResponseWriter: w}
		w = u
		if h := services[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		if !IsCall(r) {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		if r.Header.Get("Authorization") == "none" {
			if err := tr.Refuse(w, r, transport.End{GRPC: 16, Code: "UNAUTHORIZED", Message: "a valid credential is needed: %\u00e9"}); err != nil {
				t.Error(err)
			}
			return
		}
		err := tr.Serve(w, r, refusal, fn)
		if u.status == 0 {
			t.Error("a call that was served looks as if it was not answered")
		}
		b.mu.Lock()
		b.errs = append(b.errs, err)
		b.mu.Unlock()
		b.more <- struct{}{}
	}))
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	b.srv.Config.Protocols = p
	b.srv.Start()
	t.Cleanup(b.srv.Close)
	b.addr = b.srv.Listener.Addr().String()
	return b
}

// served waits for the next call to be over and gives what Serve said.
func (b *bench) served(t *testing.T) error {
	t.Helper()
	select {
	case <-b.more:
	case <-time.After(20 * time.Second):
		t.Fatal("call does not end")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errs[len(b.errs)-1]
}

func (b *bench) dial(t testing.TB, opts ...gogrpc.DialOption) *gogrpc.ClientConn {
	t.Helper()
	cc, err := gogrpc.NewClient(b.addr, append(opts, gogrpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// raw is a message as bytes, for grpc-go.
type raw []byte

type rawClientCodec struct{}

func (rawClientCodec) Marshal(v any) ([]byte, error) { return *v.(*raw), nil }
func (rawClientCodec) Unmarshal(data []byte, v any) error {
	*v.(*raw) = append(raw(nil), data...)
	return nil
}
func (rawClientCodec) Name() string { return "proto" }

// start opens a stream with one request message.
func start(ctx context.Context, t testing.TB, cc *gogrpc.ClientConn, request []byte, opts ...gogrpc.CallOption) gogrpc.ClientStream {
	t.Helper()
	st, err := cc.NewStream(ctx, &gogrpc.StreamDesc{ServerStreams: true}, procedure, append(opts, gogrpc.ForceCodec(rawClientCodec{}))...)
	if err != nil {
		t.Fatal(err)
	}
	m := raw(request)
	if err := st.SendMsg(&m); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return st
}

// all receives to the end.
func all(st gogrpc.ClientStream) (list [][]byte, err error) {
	for {
		var m raw
		if err := st.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return list, nil
			}
			return list, err
		}
		list = append(list, m)
	}
}

func frames(texts ...string) (list []dialect.Frame) {
	for _, s := range texts {
		list = append(list, dialect.Frame{Data: []byte(s)})
	}
	return list
}

func TestStream(t *testing.T) {
	big := strings.Repeat("x", 300<<10)
	want := []string{"one", "", big, "two", strings.Repeat("y", chunk-prefix), "three"}
	b := serve(t, Config{}, func(_ context.Context, request []byte, s transport.Sink) transport.End {
		if string(request) != "request" {
			t.Errorf("request %q", request)
		}
		if n, err := s.Flush(); err != nil || n != 0 {
			t.Errorf("flush of nothing: %d, %v", n, err)
		}
		if err := errors.Join(s.KeepAlive(), s.Write(nil), s.Write(frames(want[:3]...)), s.Write(frames(want[3:]...))); err != nil {
			t.Error(err)
		}
		size := 0
		for _, f := range want {
			size += prefix + len(f)
		}
		if n, err := s.Flush(); err != nil || n != int64(size) {
			t.Errorf("flush: %d, %v, want %d", n, err, size)
		}
		return ok
	})
	cc := b.dial(t)
	for _, opts := range [][]gogrpc.CallOption{nil, {gogrpc.UseCompressor("gzip")}} {
		got, err := all(start(t.Context(), t, cc, []byte("request"), opts...))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d messages, want %d", len(got), len(want))
		}
		for i := range want {
			if string(got[i]) != want[i] {
				t.Errorf("message %d has %d bytes, want %d", i, len(got[i]), len(want[i]))
			}
		}
		if err := b.served(t); err != nil {
			t.Error(err)
		}
	}
}

// TestEnds has what an end becomes at a client, with and without messages before it, said by the sink
// or by the function.
func TestEnds(t *testing.T) {
	long := strings.Repeat("é", 400)
	for _, tt := range []struct {
		end  transport.End
		code codes.Code
		text string
	}{
		{ok, codes.OK, ""},
		{transport.End{GRPC: 16, Code: "CREDENTIAL-EXPIRED", Message: "come back, 100 %\nwith a new one"}, codes.Unauthenticated, "CREDENTIAL-EXPIRED: come back, 100 %\nwith a new one"},
		{transport.End{GRPC: 5, Code: "NOT-FOUND"}, codes.NotFound, "NOT-FOUND"},
		{transport.End{GRPC: 11, Message: long}, codes.OutOfRange, long},
		{transport.End{}, codes.Unknown, ""},
		{transport.End{GRPC: 99, Code: "X"}, codes.Unknown, "X"},
		{transport.End{GRPC: 14, Message: "a\xffb"}, codes.Unavailable, "a\uFFFDb"},
	} {
		for _, messages := range []int{0, 2} {
			for _, bySink := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/%v", tt.code, messages, bySink), func(t *testing.T) {
					b := serve(t, Config{}, func(_ context.Context, _ []byte, s transport.Sink) transport.End {
						if err := s.Write(frames("a", "b")[:messages]); err != nil {
							t.Error(err)
						}
						if bySink {
							if err := s.CloseWith(tt.end); err != nil {
								t.Error(err)
							}
							return transport.End{GRPC: 13, Code: "not this"}
						}
						return tt.end
					})
					got, err := all(start(t.Context(), t, b.dial(t), nil))
					st := status.Convert(err)
					if st.Code() != tt.code || st.Message() != tt.text || len(got) != messages {
						t.Errorf("%d messages, %v %q, want %d, %v %q", len(got), st.Code(), st.Message(), messages, tt.code, tt.text)
					}
					// A gRPC-Web client on HTTP/1.1 is told the same.
					body, code, text := b.web(t, webMessage(nil))
					if code != int(tt.code) || text != tt.text || len(body) != messages*(prefix+1) {
						t.Errorf("web: %d bytes, %d %q", len(body), code, text)
					}
				})
			}
		}
	}
}

func TestRefuse(t *testing.T) {
	b := serve(t, Config{}, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "none")
	_, err := all(start(ctx, t, b.dial(t), nil))
	if st := status.Convert(err); st.Code() != codes.Unauthenticated || st.Message() != "UNAUTHORIZED: a valid credential is needed: %é" {
		t.Errorf("%v", err)
	}
	_, code, text := b.web(t, webMessage(nil), "Authorization", "none")
	if code != 16 || text != "UNAUTHORIZED: a valid credential is needed: %é" {
		t.Errorf("web: %d %q", code, text)
	}
}

// TestClientLeaves holds that a call's context ends with its client, over each protocol.
func TestClientLeaves(t *testing.T) {
	running := make(chan struct{}, 1)
	b := serve(t, Config{}, func(ctx context.Context, _ []byte, s transport.Sink) transport.End {
		if _, err := s.Flush(); err != nil {
			t.Error(err)
		}
		running <- struct{}{}
		<-ctx.Done()
		// One that is cut finds out when it writes.
		for err := error(nil); ; {
			if err = errors.Join(s.Write(frames("x")), flush(s)); err != nil {
				if !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("after the client has left: %v", err)
				}
				return transport.End{GRPC: 1}
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	start(ctx, t, b.dial(t), nil)
	<-running
	cancel()
	_ = b.served(t)

	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	msg := webMessage(nil)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web\r\nContent-Length: %d\r\n\r\n%s", procedure, len(msg), msg)
	<-running
	conn.Close()
	_ = b.served(t)
}

func flush(s transport.Sink) error {
	_, err := s.Flush()
	return err
}

func TestClientsDeadline(t *testing.T) {
	b := serve(t, Config{}, func(ctx context.Context, _ []byte, s transport.Sink) transport.End {
		<-ctx.Done()
		return transport.End{GRPC: 14}
	})
	_, code, _ := b.web(t, webMessage(nil), "Grpc-Timeout", "50m")
	if code != int(codes.DeadlineExceeded) {
		t.Errorf("status %d", code)
	}
}

// TestSlowClient has a client that takes headers and then nothing: the call ends within the time-out and
// the memory that it holds stays small.
func TestSlowClient(t *testing.T) {
	const limit = 300 * time.Millisecond
	for _, proto := range []string{"HTTP/2", "HTTP/1.1"} {
		t.Run(proto, func(t *testing.T) {
			data := bytes.Repeat([]byte("x"), 100<<10)
			var result error
			var sent int64
			var grown uint64
			b := serve(t, Config{WriteTimeout: limit}, func(ctx context.Context, _ []byte, s transport.Sink) transport.End {
				before := heap()
				for range 1000 {
					if result = s.Write([]dialect.Frame{{Data: data}, {Data: data[:100]}}); result == nil {
						var n int64
						n, result = s.Flush()
						sent += n
					}
					if result != nil {
						break
					}
				}
				grown = heap() - min(before, heap())
				return transport.End{GRPC: 8}
			})
			if proto == "HTTP/2" {
				start(t.Context(), t, b.dial(t, gogrpc.WithInitialWindowSize(64<<10)), nil)
			} else {
				conn, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				msg := webMessage(nil)
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web\r\nContent-Length: %d\r\n\r\n%s", procedure, len(msg), msg)
			}
			begun := time.Now()
			if err := b.served(t); !errors.Is(err, dialect.ErrSlowClient) && err != nil {
				t.Errorf("served: %v", err)
			}
			if !errors.Is(result, dialect.ErrSlowClient) {
				t.Errorf("write: %v", result)
			}
			t.Logf("%d bytes were sent before the cut after %v; heap grew by %d bytes", sent, time.Since(begun).Round(time.Millisecond), grown)
			if grown > 1<<20 {
				t.Errorf("heap grew by %d bytes", grown)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// webMessage frames one message.
func webMessage(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// web makes a gRPC-Web call over HTTP/1.1 and gives the messages as they came and the status.
func (b *bench) web(t *testing.T, body []byte, headers ...string) (messages []byte, code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.srv.URL+procedure, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc-web+proto")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("HTTP status %d", resp.StatusCode)
	}
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	trailer := resp.Header
	if i := trailersAt(out); i >= 0 {
		trailer = http.Header{}
		for line := range strings.SplitSeq(strings.TrimSpace(string(out[i+prefix:])), "\r\n") {
			k, v, _ := strings.Cut(line, ":")
			trailer.Set(k, strings.TrimSpace(v))
		}
		out = out[:i]
	}
	if _, err := fmt.Sscan(trailer.Get("Grpc-Status"), &code); err != nil {
		t.Fatalf("no status in %v", trailer)
	}
	if text, err = url.PathUnescape(trailer.Get("Grpc-Message")); err != nil {
		t.Fatal(err)
	}
	return out, code, text
}

// trailersAt finds the trailers' frame of gRPC-Web, -1 when there is none.
func trailersAt(b []byte) int {
	for i := 0; i+prefix <= len(b); {
		if b[i]&0x80 != 0 {
			return i
		}
		i += prefix + int(binary.BigEndian.Uint32(b[i+1:]))
	}
	return -1
}

// TestBadRequests has calls that bring no message, half of one, too much, or something else, over
// HTTP/1.1, where a test can send anything. HTTP/2 has its own below.
func TestBadRequests(t *testing.T) {
	bomb := new(bytes.Buffer)
	z := gzip.NewWriter(bomb)
	_, _ = z.Write(make([]byte, 40<<20))
	_ = z.Close()
	exact := new(bytes.Buffer)
	z = gzip.NewWriter(exact)
	_, _ = z.Write(make([]byte, 64<<10))
	_ = z.Close()
	packed := func(b []byte) []byte {
		m := webMessage(b)
		m[0] = 1
		return m
	}
	for _, tt := range []struct {
		name    string
		body    []byte
		headers []string
		code    codes.Code
		err     error
	}{
		{"nothing", nil, nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"half a prefix", []byte{0, 0}, nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"half a message", webMessage(make([]byte, 100))[:50], nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"two messages", append(webMessage([]byte("a")), webMessage([]byte("b"))...), nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"trailers instead", append([]byte{0x80}, webMessage(nil)[1:]...), nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"unknown flag", append([]byte{0x40}, webMessage(nil)[1:]...), nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"largest", webMessage(make([]byte, 64<<10)), nil, codes.OK, nil},
		{"too large", webMessage(make([]byte, 64<<10+1)), nil, codes.ResourceExhausted, ErrTooLarge},
		{"huge length", append([]byte{0, 0xFF, 0xFF, 0xFF, 0xFF}, "x"...), nil, codes.ResourceExhausted, ErrTooLarge},
		{"gzip of the largest", packed(exact.Bytes()), []string{"Grpc-Encoding", "gzip"}, codes.OK, nil},
		{"gzip bomb", packed(bomb.Bytes()), []string{"Grpc-Encoding", "gzip"}, codes.ResourceExhausted, ErrTooLarge},
		{"gzip that is none", packed([]byte("not gzip")), []string{"Grpc-Encoding", "gzip"}, codes.InvalidArgument, dialect.ErrBadRequest},
		{"gzip cut short", packed(exact.Bytes()[:40]), []string{"Grpc-Encoding", "gzip"}, codes.InvalidArgument, dialect.ErrBadRequest},
		{"compressed, but by what", packed([]byte("x")), nil, codes.InvalidArgument, dialect.ErrBadRequest},
		{"unknown coding", webMessage(nil), []string{"Grpc-Encoding", "zip"}, codes.Unimplemented, dialect.ErrBadRequest},
		{"bad deadline", webMessage(nil), []string{"Grpc-Timeout", "soon"}, codes.InvalidArgument, dialect.ErrBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			called := false
			b := serve(t, Config{}, func(context.Context, []byte, transport.Sink) transport.End {
				called = true
				return ok
			})
			_, code, text := b.web(t, tt.body, tt.headers...)
			if code != int(tt.code) {
				t.Errorf("status %v %q, want %v", codes.Code(code), text, tt.code)
			}
			if err := b.served(t); !errors.Is(err, tt.err) {
				t.Errorf("served: %v, want %v", err, tt.err)
			}
			if called != (tt.err == nil) {
				t.Errorf("called: %v", called)
			}
		})
	}
}

// TestNoMessage has a gRPC call that never brings its message, or never says that there is no other.
func TestNoMessage(t *testing.T) {
	b := serve(t, Config{RequestTimeout: 200 * time.Millisecond}, func(context.Context, []byte, transport.Sink) transport.End { return ok })
	cc := b.dial(t)
	for name, send := range map[string]func(gogrpc.ClientStream) error{
		"headers alone":      func(gogrpc.ClientStream) error { return nil },
		"no end of its side": func(st gogrpc.ClientStream) error { return st.SendMsg(new(raw)) },
	} {
		t.Run(name, func(t *testing.T) {
			st, err := cc.NewStream(t.Context(), &gogrpc.StreamDesc{ServerStreams: true, ClientStreams: true}, procedure, gogrpc.ForceCodec(rawClientCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := send(st); err != nil {
				t.Fatal(err)
			}
			if _, err := all(st); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%v", err)
			}
			if err := b.served(t); !errors.Is(err, ErrTimeout) {
				t.Errorf("served: %v", err)
			}
		})
	}
	t.Run("end of stream with the headers", func(t *testing.T) {
		st, err := cc.NewStream(t.Context(), &gogrpc.StreamDesc{ServerStreams: true, ClientStreams: true}, procedure, gogrpc.ForceCodec(rawClientCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		_ = st.CloseSend()
		if _, err := all(st); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v", err)
		}
		_ = b.served(t)
	})
}

func TestSpeaks(t *testing.T) {
	for _, tt := range []struct {
		method, ctype string
		proto         int
		want          bool
	}{
		{"POST", "application/grpc", 2, true},
		{"POST", "application/grpc+proto", 2, true},
		{"POST", "application/grpc", 1, false}, // has no trailers that clients read
		{"POST", "application/grpc-web", 1, true},
		{"POST", "application/grpc-web+proto; charset=utf-8", 1, true},
		{"POST", "Application/gRPC-Web", 2, true},
		{"POST", "application/grpc-web-text", 1, false},
		{"POST", "application/grpc+json", 2, false},
		{"POST", "application/connect+proto", 2, false},
		{"POST", "application/json", 2, false},
		{"POST", "", 2, false},
		{"GET", "application/grpc", 2, false},
	} {
		r := httptest.NewRequest(tt.method, procedure, nil)
		r.ProtoMajor = tt.proto
		r.Header.Set("Content-Type", tt.ctype)
		if got := IsCall(r); got != tt.want {
			t.Errorf("%s %q HTTP/%d: %v", tt.method, tt.ctype, tt.proto, got)
		}
	}
}
