package edge_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

// BenchmarkReplay streams an ended run of 10,000 events to one client over loopback.
func BenchmarkReplay(b *testing.B) {
	const events = 10000
	h := newHouse(b)
	h.fill("run", schematest.Generate(events, 1), 32)
	r := h.request("GET", "/v1/agent/runs/run/stream?detail=full", "")
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

// BenchmarkIngest posts batches of 100 deltas.
func BenchmarkIngest(b *testing.B) {
	h := newHouse(b)
	body := strings.Repeat(good+"\n", 100)
	b.ReportAllocs()
	for b.Loop() {
		if a := h.do("POST", "/v1/agent/runs/run/events", body); a.status != 200 {
			b.Fatal(a.status)
		}
	}
	b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkIdleStreams says what an open stream without events costs, its TCP connection included.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 1000
	h := newHouse(b)
	h.do("POST", "/v1/agent/runs/run/events", good)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		for range streams {
			c, err := net.Dial("tcp", h.addr)
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
