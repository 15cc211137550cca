package live_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/internal/cputime"
	"agentstream/protocols/agui"
	"agentstream/protocols/aisdk"
	"agentstream/protocols/openai"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// fronts are the streams of one run in the protocols of pages, with the native one first: all events, as they have.
var fronts = []struct{ name, path string }{
	{"native", "/v1/agent/runs/run/stream?detail=full"},
	{"ai-sdk", "/v1/ai-sdk/chat/run/stream"},
	{"ag-ui", "/v1/ag-ui/run"},
	{"openai", "/openai/v1/responses/resp_run?stream=true"},
}

// pages makes a server speak the protocols of pages.
func pages(c *edge.Config) {
	c.Protocols = append(c.Protocols, aisdk.Protocol(), agui.Protocol(), openai.Protocol())
}

// speech is a response of as many pieces of text, up to the end of the run.
func speech(pieces int) schematest.Scenario {
	s := schematest.Scenario{Name: "speech"}
	add := func(typ, payload string) {
		s.Events = append(s.Events, schema.Event{Type: typ, Payload: []byte(payload)})
	}
	add(schema.TypeSessionCreated, `{}`)
	add(schema.TypeCommandMessage, `{"content":"Tell me.","message_id":"said"}`)
	add(schema.TypeTurnStart, `{"turn_id":"turn_1"}`)
	add(schema.TypeMessageStart, `{"message_id":"msg_1","role":"assistant","model":"scripted-1"}`)
	for range pieces {
		add(schema.TypeTextDelta, `{"text":"a token of a few letters "}`)
	}
	add(schema.TypeMessageEnd, `{"message_id":"msg_1","stop_reason":"end_turn"}`)
	add(schema.TypeTurnEnd, `{"turn_id":"turn_1","outcome":"success"}`)
	add(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)
	return s
}

// readFronts reads a stream to its end by as many clients.
func readFronts(b *testing.B, h *edgetest.House, path string, clients int) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			resp, err := h.Client.Do(h.Request("GET", path, ""))
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || n < 1000 {
				b.Errorf("%s: %d, %d bytes, %v", path, resp.StatusCode, n, err)
			}
		})
	}
	all.Wait()
}

// BenchmarkFrontsLive writes a response of 1,000 pieces to 200 clients that are up to date, in each protocol of pages:
// the CPU time of the process, clients included, as a multiple of the native protocol's.
func BenchmarkFrontsLive(b *testing.B) {
	const clients = 200
	compareFronts(b, func(b *testing.B, path string) time.Duration {
		h := edgetest.NewHouse(b, pages)
		packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, speech(1000), 1)
		h.Store(packs[:4])
		done := make(chan struct{})
		go func() {
			defer close(done)
			readFronts(b, h, path, clients)
		}()
		edgetest.Eventually(b, "all are parked", func() bool { return h.Server.Census().Parked == clients })
		before := cputime.Process()
		for i := range packs[4:] {
			h.Store(packs[4+i : 5+i])
			time.Sleep(time.Millisecond) // else many are delivered by one write
		}
		<-done
		return cputime.Process() - before
	})
}

// BenchmarkFrontsJoin reads a response of 20,000 pieces that is over, in each protocol of pages, as BenchmarkFrontsLive
// has it: on a node that has not read the run, and on one that has.
func BenchmarkFrontsJoin(b *testing.B) {
	for name, before := range map[string]int{"first": 0, "later": 1} {
		b.Run(name, func(b *testing.B) {
			compareFronts(b, func(b *testing.B, path string) time.Duration {
				h := edgetest.NewHouse(b, pages)
				h.Fill("run", speech(20_000), 16)
				readFronts(b, h, path, before)
				start := cputime.Process()
				readFronts(b, h, path, 1)
				return cputime.Process() - start
			})
		})
	}
}

// compareFronts measures each protocol in turns, so that they meet the same machine.
func compareFronts(b *testing.B, measure func(b *testing.B, path string) time.Duration) {
	var took [4]time.Duration
	for b.Loop() {
		b.StopTimer()
		for i, f := range fronts {
			took[i] += measure(b, f.path)
		}
		b.StartTimer()
	}
	for i, f := range fronts[1:] {
		b.ReportMetric(float64(took[i+1])/float64(took[0]), fmt.Sprintf("%s/native", f.name))
	}
}
