package rest_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/edge/gate"
	"agentstream/edge/secure"
	"agentstream/internal/testkit"
)

// unreadWays are requests whose bodies the server does not read, or not to their end: by nobody, or when there is no
// memory for what they begin with.
var unreadWays = map[string]struct {
	fields []string
	begin  string
}{
	"server-sent events": {[]string{":method", "GET", ":path", "/v1/agent/runs/run/stream"}, ""},
	"lines": {[]string{":method", "POST", ":path", edgetest.PublishPath, "content-type",
		"application/x-ndjson"}, `{"run_id":"`},
	"gRPC": {[]string{":method", "POST", ":path", "/agent.v1.AgentIngest/Publish", "content-type", "application/grpc",
		"te", "trailers"},
		"\x00\x00\x07\x00\x00"},
}

// pour opens a stream over HTTP/2 and sends as much of its body as may be sent before somebody reads. The
// caller closes it.
func pour(t *testing.T, c net.Conn, fields []byte, begin string) {
	t.Helper()
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, nil)
	body := append([]byte(begin), bytes.Repeat([]byte("x"), gate.Window-len(begin))...)
	err := errors.Join(fr.WriteSettings(), fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields,
		EndHeaders: true}))
	for some := range slices.Chunk(body, 16<<10) {
		err = errors.Join(err, fr.WriteData(1, false, some))
	}
	if _, werr := c.Write(out.Bytes()); errors.Join(err, werr) != nil {
		t.Fatal(err, werr)
	}
}

// wrapped is a listener with TLS.
type wrapped struct {
	net.Listener
	files *secure.Files
}

func (w wrapped) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.files.Wrap(c), nil
}

// unreadHouse is a server with or without TLS, and how it is reached.
func unreadHouse(t *testing.T, secured bool, change func(*edge.Config)) (h *edgetest.House, dial func() net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if !secured {
		return edgetest.NewHouseOn(t, ln, http.DefaultClient, change), func() net.Conn {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	ca := testkit.NewAuthority(t)
	cert, key := ca.Issue(t, t.TempDir(), "edge")
	files, err := secure.Open(secure.Config{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	h = edgetest.NewHouseOn(t, wrapped{ln, files}, client, change)
	h.URL = "https://" + addr
	return h, func() net.Conn {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// What has come over HTTP/2 and nobody reads is of the tenant's share of the memory for bodies.
func TestUnreadBodiesAreHeldToMemory(t *testing.T) {
	const conns = 80
	for name, way := range unreadWays {
		for _, secured := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " over TLS"}[secured], func(t *testing.T) {
				var held, most atomic.Int64
				h, dial := unreadHouse(t, secured, func(c *edge.Config) {
					c.MaxBodyBytes, c.BodyMemory, c.BodyWait = 1<<20, 8<<20, 50*time.Millisecond
					c.IngestLimit = edge.IngestLimit{}
					c.Hooks.BodyBytes = func(n int64) { held.Store(n); most.Store(max(most.Load(), n)) }
				})
				post := func(tenant string) {
					t.Helper()
					a := h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine, edgetest.TenantHeader, tenant)
					if a.Status != http.StatusOK {
						t.Errorf("%s: %d %s", tenant, a.Status, a.Body)
					}
				}
				post("greedy")
				fields := slices.Concat([]string{":scheme", "http", ":authority", "h"}, way.fields,
					[]string{"test-tenant", "greedy"})
				var open []net.Conn
				grown := heapHeld(func() {
					for range conns {
						c := dial()
						pour(t, c, encodeFields(fields), way.begin)
						go func() { _, _ = io.Copy(io.Discard, c) }()
						open = append(open, c)
					}
					edgetest.Eventually(t, "the share is full", func() bool { return held.Load() > 3<<20 })
					post("modest")
					time.Sleep(heldStill / 2)
				})
				t.Logf("%d MiB were sent, at most %d KiB held, %d KiB of heap", conns*gate.Window>>20, most.Load()>>10, grown>>10)
				if most.Load() > 4<<20+256<<10 {
					t.Errorf("%d KiB are held", most.Load()>>10)
				}
				if grown > 13<<20 {
					t.Errorf("%d KiB more of heap", grown>>10)
				}
				for _, c := range open {
					c.Close()
				}
				edgetest.Eventually(t, "nothing is held", func() bool { return held.Load() == 0 })
				post("greedy")
			})
		}
	}
}

// encodeFields returns headers as HTTP/2 has them.
func encodeFields(fields []string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i+1 < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	return b.Bytes()
}
