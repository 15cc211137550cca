package rest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentstream/edge"
	"agentstream/edge/edgetest"
)

// publishWay is how clients publish that hold nothing but their connection. Each event is answered by something with
// its run.
type publishWay struct {
	hello string                            // of a connection
	open  func(stream int) string           // begins a stream of a connection
	event func(stream int, n string) string // of a run
	holds int                               // goroutines of a connection
	each  int                               // goroutines of a stream
	many  bool                              // a connection has many streams
}

// publishWays are all that there are.
func publishWays() map[string]publishWay {
	first := func(text string) func(int) string { return func(int) string { return text } }
	line := func(run string) string { return edgetest.LineOf(run, "") + "\n" }
	message := func(run string) string {
		b := publishRequest(run, "text.delta", `{"text":"a"}`, "")
		return string(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...))
	}
	return map[string]publishWay{
		"HTTP/1.1": {open: first("POST " + edgetest.PublishPath +
			" HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"),
			event: func(_ int, run string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(line(run)), line(run)) }, each: 1},
		"WebSocket": {open: first("GET " + edgetest.PublishPath +
			" HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"),
			event: func(_ int, run string) string { return string(edgetest.ClientFrame(0x81, line(run))) }},
		"HTTP/2": h2Way(edgetest.PublishPath, "application/x-ndjson", line),
		"gRPC":   h2Way("/agent.v1.AgentIngest/Publish", "application/grpc", message),
	}
}

func h2Way(path, ctype string, event func(run string) string) publishWay {
	written := func(do func(fr *http2.Framer) error) string {
		var b bytes.Buffer
		if err := do(http2.NewFramer(&b, nil)); err != nil {
			panic(err)
		}
		return b.String()
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // so that the same bytes begin each stream
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "h"}, {Name: "content-type", Value: ctype}, {Name: "te", Value: "trailers"}} {
		if err := enc.WriteField(f); err != nil {
			panic(err)
		}
	}
	id := func(stream int) uint32 { return uint32(2*stream + 1) }
	return publishWay{
		hello: http2.ClientPreface + written(func(fr *http2.Framer) error { return fr.WriteSettings() }) +
			written(func(fr *http2.Framer) error { return fr.WriteWindowUpdate(0, 1<<30) }),
		open: func(stream int) string {
			return written(func(fr *http2.Framer) error {
				return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id(stream), BlockFragment: block.Bytes(),
					EndHeaders: true})
			})
		},
		event: func(stream int, run string) string {
			return written(func(fr *http2.Framer) error { return fr.WriteData(id(stream), false, []byte(event(run))) })
		},
		holds: 3, each: 1, many: true,
	}
}

// idlers are streams on which nothing comes, behind an event.
type idlers struct {
	way     publishWay
	clients []edgetest.SmallConn
	streams int // of the newest connection
	buf     []byte
}

// add opens n streams, each with a connection of its own or all on one, and waits until nothing is done for them.
func (v *idlers) add(t *testing.T, addr string, n int, own bool) {
	conns, goroutines := 0, runtime.NumGoroutine()
	for i := range n {
		if i == 0 || own {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			v.clients, v.streams = append(v.clients, edgetest.SmallConn{T: t, Conn: conn}), 0
			v.clients[len(v.clients)-1].Send(v.way.hello)
			conns++
		}
		v.clients[len(v.clients)-1].Send(v.way.open(v.streams))
		v.say(len(v.clients)-1, v.streams)
		v.streams++
	}
	edgetest.Eventually(t, "what was done for streams has ended", func() bool {
		return runtime.NumGoroutine() < goroutines+n*v.way.each+conns*v.way.holds+20
	})
}

// stillAlive is the time to a sign of life.
const stillAlive = 300 * time.Millisecond

// say publishes an event and waits for its receipt.
func (v *idlers) say(client, stream int) {
	v.clients[client].Send(v.way.event(stream, "spoken"))
	v.clients[client].Until(v.buf, "spoken")
}

// bareServer serves HTTP/2 by a handler that sends back what it gets, and has nothing of its own.
func bareServer(t *testing.T) string {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 512)
		for rc := http.NewResponseController(w); ; {
			n, err := r.Body.Read(buf)
			if err == nil {
				_, err = w.Write(buf[:n])
			}
			if err != nil || rc.Flush() != nil {
				return
			}
		}
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 4096}
	srv.Start()
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// A panic within a stream ends it, and nothing else: what was begun for it ends as well, and its client is told or cut
// off.
func TestPublishPanics(t *testing.T) {
	for name, way := range publishWays() {
		if name == "WebSocket" {
			continue // it is a conversation
		}
		var armed atomic.Bool
		h := edgetest.NewHouse(t, func(c *edge.Config) {
			c.Hooks.BodyBytes = func(int64) {
				if armed.CompareAndSwap(true, false) {
					panic("armed")
				}
			}
		})
		v := &idlers{way: way, buf: make([]byte, 64<<10)}
		v.add(t, h.Addr, 2, true)
		armed.Store(true)
		v.clients[0].Send(way.event(0, "lost"))
		edgetest.Eventually(t, name+": the stream is over", func() bool { return h.Server.Census().Streams == 1 })
		v.say(1, 0)
		edgetest.CloseAll(v.clients)
		h.Vacant()
		if n := len(storedEvents(h, "spoken")); n != 3 {
			t.Errorf("%s: %d events, want 3", name, n)
		}
		if !strings.Contains(h.Logs.String(), "armed") {
			t.Errorf("%s: the panic is not in the log", name)
		}
	}
}
