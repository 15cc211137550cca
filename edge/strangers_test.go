package edge_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
)

// holder is a connection over HTTP/2 that opens streams and takes nothing: its windows are closed.
type holder struct {
	conn   net.Conn
	mu     sync.Mutex // of fr's writes
	fr     *http2.Framer
	enc    *hpack.Encoder
	block  bytes.Buffer
	next   uint32
	over   atomic.Int64 // streams that the server has ended
	served atomic.Int64 // answers of 200, as HTTP has it
	full   atomic.Int64 // of them, those that were answered 503, or as gRPC says it
	done   chan struct{}
}

// hold opens a connection; window is what each of its streams may send at first, in bytes.
func hold(t *testing.T, addr string, window uint32) *holder {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{conn: c, fr: http2.NewFramer(c, c), next: 1, done: make(chan struct{})}
	h.enc = hpack.NewEncoder(&h.block)
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	t.Cleanup(func() { c.Close(); <-h.done })
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := h.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	go h.read()
	return h
}

func (h *holder) read() {
	defer close(h.done)
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.mu.Lock()
				_ = h.fr.WriteSettingsAck()
				h.mu.Unlock()
			}
		case *http2.RSTStreamFrame:
			h.over.Add(1)
		case *http2.MetaHeadersFrame:
			if f.PseudoValue("status") == "200" {
				h.served.Add(1)
			}
			if !f.StreamEnded() {
				continue
			}
			h.over.Add(1)
			for _, v := range f.Fields {
				if v.Name == ":status" && v.Value == "503" || v.Name == "grpc-status" && v.Value == "8" {
					h.full.Add(1)
				}
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				h.over.Add(1)
			}
		}
	}
}

// open opens n streams; end says that their requests have no body. An error is the connection's end.
func (h *holder) open(n int, end bool, fields ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range n {
		h.block.Reset()
		for i := 0; i+1 < len(fields); i += 2 {
			if err := h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
				return err
			}
		}
		if err := h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: h.next, BlockFragment: h.block.Bytes(),
			EndHeaders: true, EndStream: end}); err != nil {
			return err
		}
		h.next += 2
	}
	return nil
}

func ask(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", "x"}, more...)
}

var rpcFields = []string{"content-type", "application/grpc", "te", "trailers"}

// strangers are requests without a credential that hold their streams as long as they can.
var strangers = map[string]struct {
	fields []string
	end    bool
}{
	"reflection": {ask("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", rpcFields...), false},
	"reflection, alpha": {ask("POST", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", rpcFields...),
		false},
	"reflection, web": {ask("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "content-type",
		"application/grpc-web"), false},
	"health":         {ask("POST", "/grpc.health.v1.Health/Check", rpcFields...), false},
	"watch":          {ask("POST", "/grpc.health.v1.Health/Watch", rpcFields...), false},
	"page":           {ask("GET", "/page"), true},
	"probe":          {ask("GET", "/healthz"), true},
	"unknown path":   {ask("GET", "/nowhere"), true},
	"unknown method": {ask("BREW", "/healthz"), true},
	"unknown rpc":    {ask("POST", "/none.v1.None/Say", rpcFields...), false},
	"preflight": {ask("OPTIONS", "/v1/agent/runs", "origin", "http://x", "access-control-request-method",
		"GET"), true},
	"not let in":       {ask("GET", "/v1/agent/runs/run/stream", tenantHeaderLow, "nobody"), true},
	"body, not let in": {ask("POST", "/v1/agent/runs/run/events", tenantHeaderLow, "nobody"), false},
	"call, not let in": {ask("POST", "/agentstream.v1.AgentStreamService/WatchEvents",
		append([]string{tenantHeaderLow, "nobody"}, rpcFields...)...), false},
	"no path": {ask("GET", "evil.example:80"), true},
}

const tenantHeaderLow = "test-tenant"

func strangersHouse(t *testing.T, change ...func(*edge.Config)) *edgetest.House {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	return edgetest.NewHouse(t, append([]func(*edge.Config){func(c *edge.Config) {
		c.Pages = []edge.Page{{Patterns: []string{"GET /page"}, Handler: page}}
		c.StrangerTimeout = 500 * time.Millisecond
	}}, change...)...)
}

// Whatever somebody asks for who is not known, over HTTP/2: 256 at a node are let in at most, for a while; who is known
// is served meanwhile.
func TestStrangersAreFew(t *testing.T) {
	for name, tt := range strangers {
		t.Run(name, func(t *testing.T) {
			h := strangersHouse(t)
			friend := hold(t, h.Addr, 1<<20)
			const conns, each = 12, 100
			most, stop := atomic.Int64{}, make(chan struct{})
			var looking, all sync.WaitGroup
			looking.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						most.Store(max(most.Load(), int64(h.Server.Gate().Strangers)))
					}
				}
			})
			var holders []*holder
			for range conns {
				holders = append(holders, hold(t, h.Addr, 0))
			}
			for _, l := range holders {
				all.Go(func() { _ = l.open(each, tt.end, tt.fields...) })
			}
			if err := friend.open(1, true, ask("GET", "/v1/agent/runs")...); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			edgetest.Eventually(t, "who is known is answered", func() bool { return friend.over.Load() == 1 })
			edgetest.Eventually(t, "all streams have ended", func() bool {
				n := int64(0)
				for _, l := range holders {
					select {
					case <-l.done: // cut
						n += each
					default:
						n += l.over.Load()
					}
				}
				return n >= conns*each
			})
			close(stop)
			looking.Wait()
			if n := most.Load(); n > 256 {
				t.Errorf("%d strangers at a time", n)
			}
			if friend.full.Load() > 0 {
				t.Error("there was no place for who is known")
			}
			edgetest.Eventually(t, "nobody is left", func() bool { n := h.Server.Gate(); return n.Strangers == 0 })
		})
	}
}

// Streams that the HTTP server refuses by itself, and whose clients take no answer, are as few.
func TestStreamsThatReachNobody(t *testing.T) {
	for name, fields := range map[string][]string{
		"bad header":       ask("GET", "/healthz", "connection", "close"),
		"too many headers": ask("GET", "/healthz", "x-much", strings.Repeat("x", 40<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			h := strangersHouse(t)
			var holders []*holder
			for range 12 {
				l := hold(t, h.Addr, 0)
				holders = append(holders, l)
				go l.open(100, true, fields...)
			}
			edgetest.Eventually(t, "most are cut", func() bool {
				cut := 0
				for _, l := range holders {
					select {
					case <-l.done:
						cut++
					default:
					}
				}
				return cut > 8 && h.Server.Gate().Open <= 256
			})
		})
	}
}

// Requests over HTTP/2 count among the streams, whoever asks and for what: the next one is told so.
func TestStreamsOfHTTP2Count(t *testing.T) {
	h := strangersHouse(t, func(c *edge.Config) { c.MaxStreams, c.StrangerTimeout = 40, time.Minute })
	post := ask("POST", "/v1/agent/runs/run/events", "content-type", "application/x-ndjson")
	first, second := hold(t, h.Addr, 1<<20), hold(t, h.Addr, 1<<20)
	for _, l := range []*holder{first, second} {
		if err := l.open(20, false, post...); err != nil {
			t.Fatal(err)
		}
	}
	edgetest.Eventually(t, "all are there", func() bool { return h.Server.Gate().Streams == 40 })
	for i, fields := range [][]string{post, ask("GET", "/healthz"), ask("GET", "/v1/agent/runs/run/stream"),
		strangers["watch"].fields, strangers["reflection"].fields} {
		if err := second.open(1, false, fields...); err != nil {
			t.Fatal(err)
		}
		edgetest.Eventually(t, fmt.Sprint("refused: ", fields), func() bool { return second.full.Load() == int64(i+1) })
	}
	first.conn.Close()
	edgetest.Eventually(t, "they have left", func() bool { return h.Server.Gate().Streams == 20 })
	third := hold(t, h.Addr, 1<<20)
	if err := third.open(1, true, ask("GET", "/v1/agent/runs")...); err != nil {
		t.Fatal(err)
	}
	edgetest.Eventually(t, "there is a place again",
		func() bool { return third.over.Load() == 1 && third.full.Load() == 0 })
}

// A caller who is known may watch health for long; a stranger is told to bring a credential.
func TestWatchNeedsACredential(t *testing.T) {
	h := strangersHouse(t, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			if r.Header.Get("Authorization") != "Bearer good" {
				return auth.Caller{}, auth.ErrUnauthorized
			}
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}, nil
		}
	})
	for token, long := range map[string]bool{"good": true, "bad": false} {
		l := hold(t, h.Addr, 1<<20)
		if err := l.open(1, false, append(ask("POST", "/grpc.health.v1.Health/Watch", "authorization", "Bearer "+token),
			rpcFields...)...); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		err := l.fr.WriteData(1, true, []byte{0, 0, 0, 0, 0})
		l.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if !long {
			edgetest.Eventually(t, "the watch ends", func() bool { return l.over.Load() == 1 })
			continue
		}
		edgetest.Eventually(t, "the watch is known",
			func() bool { n := h.Server.Gate(); return n.Streams == 1 && n.Strangers == 0 })
		time.Sleep(700 * time.Millisecond)
		if l.over.Load() != 0 {
			t.Error("the watch of a known caller was ended")
		}
		l.conn.Close()
		edgetest.Eventually(t, "it has left", func() bool { return h.Server.Gate().Streams == 0 })
	}
}
