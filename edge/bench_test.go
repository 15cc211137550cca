package edge_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema/schematest"
)

// BenchmarkReplay streams an ended run of 10,000 events to one client over loopback.
func BenchmarkReplay(b *testing.B) {
	const events = 10000
	h := edgetest.NewHouse(b)
	h.Fill("run", schematest.Generate(events, 1), 32)
	r := h.Request("GET", "/v1/agent/runs/run/stream?detail=full", "")
	b.ReportAllocs()
	var bytes int64
	for b.Loop() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
		bytes = n
	}
	b.SetBytes(bytes)
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkIngest posts deltas on one kept connection, as NDJSON. The client's side is a prepared request and
// one read of the answer, so that what is measured is the server's.
func BenchmarkIngest(b *testing.B) {
	const event = `{"type":"text.delta","payload":{"text":"~00000.0000000000.0000000000000000000~ The quick brown fox jumps ` +
		`over the lazy dog, and a token of a model is seldom longer than what stands here: this is a long one. ~~~~~~~~"}}` + "\n"
	for _, events := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			h := edgetest.NewHouse(b, func(c *edge.Config) { c.Logger = nil })
			conn, err := net.Dial("tcp", h.Addr)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			body := strings.Repeat(event, events)
			request := []byte("POST /v1/agent/runs/run/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: " +
				strconv.Itoa(len(body)) + "\r\n\r\n" + body)
			answer := make([]byte, 4<<10)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				n, err := conn.Read(answer)
				if err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 200 OK\r\n")) || answer[n-1] != '\n' {
					b.Fatalf("%v: %s", err, answer[:n])
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkIdleStreams reports what an open stream without events costs, its TCP connection included.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 1000
	h := edgetest.NewHouse(b)
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		for range streams {
			c, err := net.Dial("tcp", h.Addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "GET /v1/agent/runs/run/stream?detail=full HTTP/1.1\r\nHost: x\r\n\r\n")
			rd := bufio.NewReaderSize(c, 16)
			for line := ""; !strings.HasPrefix(line, "id: 1"); {
				if line, err = rd.ReadString('\n'); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
	b.ReportMetric(float64(used)/float64(streams*b.N), "bytes/stream")
}
