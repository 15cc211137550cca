package rest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
)

// heldWays are all ways to send much that is never whole, as what is sent behind the beginning of a request.
var heldWays = map[string]struct {
	path, ctype string
	socket, h2  bool
	send        func(text string) string // the beginning of a message with a text
}{
	"HTTP/1.1": {edgetest.PublishPath, "application/x-ndjson", false, false,
		func(s string) string { return `{"run_id":"` + s }},
	"HTTP/2": {edgetest.PublishPath, "application/x-ndjson", false, true,
		func(s string) string { return `{"run_id":"` + s }},
	"gRPC": {"/agent.v1.AgentIngest/Publish", "application/grpc", false, true,
		func(s string) string { return "\x00\x00\x07\x00\x00" + s }},
	"gRPC-Web": {"/agent.v1.AgentIngest/Publish", "application/grpc-web", false, false,
		func(s string) string { return "\x00\x00\x07\x00\x00" + s }},
	"gRPC call": {"/agent.v1.AgentRun/Stream", "application/grpc", false, true,
		func(s string) string { return "\x00\x00\x00\xf0\x00" + s[:50<<10] }},
	"WebSocket": {edgetest.PublishPath, "", true, false,
		func(s string) string { return string(edgetest.ClientFrame(0x81, s)[:len(s)]) }},
	"fragments": {edgetest.PublishPath, "", true, false, func(s string) string {
		return string(edgetest.ClientFrame(0x01, s)) + string(edgetest.ClientFrame(0x00, ""))
	}},
	"conversation": {"/talk/lobby", "", true, false,
		func(s string) string { return string(edgetest.ClientFrame(0x81, s)[:len(s)]) }},
	"body": {"/v1/agent/runs/run/events", "application/x-ndjson", false, true,
		func(s string) string { return `{"type":"` + s }},
}

// heldStream is a request whose body, or socket, is written to.
func heldStream(t *testing.T, h *edgetest.House, name, tenant string) io.WriteCloser {
	t.Helper()
	way := heldWays[name]
	if way.h2 {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		// Else it reads megabytes by itself.
		tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.Addr+way.path, r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", way.ctype)
		req.Header.Set(edgetest.TenantHeader, tenant)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer r.Close()
			if resp, err := tr.RoundTrip(req); err == nil {
				<-ctx.Done() // nothing of the answer is read
				resp.Body.Close()
			}
		}()
		return closer{w, func() { cancel(); w.Close(); <-done; tr.CloseIdleConnections() }}
	}
	c, err := net.Dial("tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	head := "POST " + way.path + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Type: " + way.ctype +
		"\r\n"
	if way.socket {
		head = "GET " + way.path + " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	if _, err := io.WriteString(c, head+edgetest.TenantHeader+": "+tenant+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if way.socket {
		return closer{c, func() { c.Close() }}
	}
	return closer{chunked{c}, func() { c.Close() }}
}

type closer struct {
	io.Writer
	close func()
}

func (c closer) Close() error { c.close(); return nil }

type chunked struct{ net.Conn }

func (c chunked) Write(b []byte) (int, error) {
	if _, err := fmt.Fprintf(c.Conn, "%x\r\n%s\r\n", len(b), b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flood writes the same to streams of a tenant, times times to each, until all of it has gone, is refused, or nothing
// moves any more. leave closes them.
func flood(t *testing.T, h *edgetest.House, name string, streams, times int, b []byte) (leave func()) {
	t.Helper()
	var moved, writing atomic.Int64
	var open []io.WriteCloser
	var all sync.WaitGroup
	writing.Store(int64(streams))
	for range streams {
		s := heldStream(t, h, name, "greedy")
		open = append(open, s)
		all.Go(func() {
			defer writing.Add(-1)
			for range times {
				for some := range slices.Chunk(b, 8<<10) {
					if _, err := s.Write(some); err != nil {
						return
					}
					moved.Add(1)
				}
			}
		})
	}
	for seen := int64(-1); writing.Load() > 0 && moved.Load() != seen; time.Sleep(heldStill) {
		seen = moved.Load()
	}
	return func() {
		for _, s := range open {
			s.Close()
		}
		all.Wait()
	}
}

// heapHeld calls during and returns by how many bytes the heap has grown with what is not garbage.
func heapHeld(during func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	during()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// heldStill is how long nothing moves of what is written and not read.
const heldStill = time.Second

func heldHouse(t *testing.T, held *atomic.Int64, change func(*edge.Config)) *edgetest.House {
	return edgetest.NewHouse(t, func(c *edge.Config) {
		c.MaxBodyBytes, c.BodyMemory, c.SendBuffer = 1<<20, 8<<20, 4<<10
		c.BodyWait, c.IngestLimit = 50*time.Millisecond, edge.IngestLimit{}
		c.Hooks.BodyBytes = func(n int64) { held.Store(max(held.Load(), n)) }
		edgetest.Talking(c)
		edgetest.SampleTalk(c).MaxMessage, c.Authenticate = 1<<20, edgetest.ByTenant
		change(c)
	})
}

// What has come of messages that do not become whole is of the tenant's share of the memory for bodies, however they
// are sent; other tenants are served meanwhile, and all of it ends in time.
func TestUnfinishedMessagesAreHeldToMemory(t *testing.T) {
	const streams, size = 120, 480 << 10
	for name, way := range heldWays {
		t.Run(name, func(t *testing.T) {
			var held atomic.Int64
			h := heldHouse(t, &held, func(c *edge.Config) { c.BodyTimeout = 3 * time.Second })
			text := way.send(strings.Repeat("x", size))
			var leave func()
			grown := heapHeld(func() {
				leave = flood(t, h, name, streams, 1, []byte(text)) // it is refused, or has to wait
				if a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader,
					"modest"); a.Status != 200 {
					t.Errorf("another tenant: %d %s", a.Status, a.Body)
				}
			})
			t.Logf("%d MiB begun, at most %d KiB held, %d MiB of heap", streams*size>>20, held.Load()>>10, grown>>20)
			if held.Load() > 4<<20+256<<10 {
				t.Errorf("%d KiB are held", held.Load()>>10)
			}
			if held.Load() < 1<<20 {
				t.Errorf("only %d KiB are counted", held.Load()>>10)
			}
			if most := int64(64 << 20); grown > most {
				t.Errorf("%d MiB more", grown>>20)
			}
			edgetest.Eventually(t, "all streams have ended",
				func() bool { return h.Server.Census().Streams == 0 && h.Server.Gate().Streams == 0 })
			leave()
			edgetest.Eventually(t, "all is given back", func() bool { // with the last connection
				held.Store(0)
				a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader, "greedy")
				return a.Status == 200 && held.Load() <= 256<<10
			})
		})
	}
}

// Clients that publish and never read cost their tenant's share of the memory for bodies, with all that waits for them.
func TestReceiptsAreHeldToMemory(t *testing.T) {
	const streams = 60
	for _, name := range []string{"HTTP/1.1", "HTTP/2", "gRPC", "gRPC-Web", "WebSocket"} {
		t.Run(name, func(t *testing.T) {
			var held atomic.Int64
			h := heldHouse(t, &held, func(c *edge.Config) {})
			text := refusedLines(name)
			var leave func()
			grown := heapHeld(func() {
				leave = flood(t, h, name, streams, 40, text)
				if a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader,
					"modest"); a.Status != 200 {
					t.Errorf("another tenant: %d %s", a.Status, a.Body)
				}
			})
			t.Logf("at most %d KiB held, %d MiB of heap", held.Load()>>10, grown>>20)
			if held.Load() > 4<<20+256<<10 || held.Load() < 1<<20 {
				t.Errorf("%d KiB are held", held.Load()>>10)
			}
			if most := int64(64 << 20); grown > most {
				t.Errorf("%d MiB more", grown>>20)
			}
			leave()
			edgetest.Eventually(t, "all streams have ended", func() bool { return h.Server.Census().Streams == 0 })
			edgetest.Eventually(t, "all is given back", func() bool { // with the last connection
				held.Store(0)
				a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader, "greedy")
				return a.Status == 200 && held.Load() <= 256<<10
			})
		})
	}
}

// refusedLines are 64 KiB of lines that are refused, with more words than they have themselves.
func refusedLines(way string) (b []byte) {
	for i := 0; len(b) < 64<<10; i++ {
		line := fmt.Sprintf(`{"run_id":"r%d","type":"no.such.type"}`, i%100)
		switch way {
		case "WebSocket":
			b = append(b, edgetest.ClientFrame(0x81, line)...)
		case "gRPC", "gRPC-Web":
			m := publishRequest(fmt.Sprint("r", i%100), "no.such.type", "{}", "")
			b = append(append(b, 0, 0, 0, 0, byte(len(m))), m...)
		default:
			b = append(append(b, line...), '\n')
		}
	}
	return b
}
