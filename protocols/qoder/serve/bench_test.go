package serve_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/schema/schematest"
)

// BenchmarkHistory reads pages of a session of 100,000 records, at its beginning, in its middle and from its end.
func BenchmarkHistory(b *testing.B) {
	h := newHouse(b, false)
	h.fill("run", schematest.Generate(100_000, 3), 100)
	all := h.frames("run", "")
	for _, c := range []struct{ name, query string }{
		{"first", "?limit=100"},
		{"middle", "?limit=100&after_id=" + all[len(all)/2].id},
		{"newest", "?limit=100&order=desc"},
		{"newest1000", "?limit=1000&order=desc"},
		{"messages", "?limit=100&types=agent.message"},
		{"nothing", "?types=no.such"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if a := h.do("GET", eventsPath("run", "")+c.query, ""); a.Status != 200 {
					b.Fatal(a.Status, a.Body)
				}
			}
		})
	}
}

// BenchmarkSend sends messages to one session, one after another.
func BenchmarkSend(b *testing.B) {
	h := newHouse(b, false)
	id := h.create(plainBody)
	for i := 0; b.Loop(); i++ {
		if a := h.do("POST", eventsPath(id, ""), hello, "Idempotency-Key", fmt.Sprint(i)); a.Status != 200 {
			b.Fatal(a.Status, a.Body)
		}
	}
}

// BenchmarkCold reads the first page of a session of 100,000 records whose newest place nobody has read yet: what a
// node pays once for each session that it begins to serve.
func BenchmarkCold(b *testing.B) {
	packs := schematest.Generate(100_000, 3)
	for b.Loop() {
		b.StopTimer()
		h := newHouse(b, false)
		h.fill("run", packs, 100)
		b.StartTimer()
		if a := h.do("GET", cloud+"/run", ""); a.Status != 200 {
			b.Fatal(a.Status, a.Body)
		}
	}
}

// BenchmarkWatchers delivers deltas to 1,000 clients that have everything: of the log as it is, of a session with
// increments, and of one without, where each delta is looked at and nothing is shown.
func BenchmarkWatchers(b *testing.B) {
	const watchers = 1000
	for _, c := range []struct {
		name, path string
		increments bool
	}{
		{"native", "/v1/agent/runs/%s/stream?detail=full", true},
		{"session", "/api/v1/cloud/sessions/%s/events/stream", true},
		{"session without increments", "/api/v1/cloud/sessions/%s/events/stream", false},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := newHouse(b, false)
			id := h.create(fmt.Sprintf(`{"agent":"a","environment_id":"e","incremental_streaming_enabled":%v}`, c.increments))
			var got atomic.Int64
			for range watchers {
				conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "GET "+c.path+" HTTP/1.1\r\nHost: x\r\n\r\n", id)
				go func() {
					lines := bufio.NewReader(conn)
					for {
						line, err := lines.ReadSlice('\n')
						if err != nil {
							return
						}
						if bytes.Contains(line, []byte(`"type":"text.delta"`)) ||
							bytes.HasPrefix(line, []byte("event: agent.content_block_delta")) ||
							bytes.HasPrefix(line, []byte("event: session.status_running")) ||
							bytes.Contains(line, []byte(`"type":"message.start"`)) {
							got.Add(1)
						}
					}
				}()
			}
			send := func(body string) {
				if a := h.do("POST", "/v1/agent/runs/"+id+"/events", body, "Content-Type",
					"application/x-ndjson"); a.Status != 200 {
					b.Fatal(a.Status, a.Body)
				}
			}
			wait := func(n int64) {
				for got.Load() < n {
					time.Sleep(100 * time.Microsecond)
				}
			}
			send(`{"type":"message.start","payload":{"message_id":"m","role":"assistant"}}` + "\n" +
				`{"type":"block.start","payload":{"index":0,"kind":"text"}}`)
			wait(watchers)
			n := int64(0)
			for b.Loop() {
				send(`{"type":"text.delta","payload":{"index":0,"text":"a token, or two"}}`)
				if n++; c.increments {
					wait(watchers + n*watchers)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*watchers), "ns/delivery")
		})
	}
}
