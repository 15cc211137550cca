//go:build !race

package aisdk_test

import (
	"fmt"
	"io"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/internal/cputime"
	"agentstream/protocols/aisdk"
	"agentstream/schema"
)

// TestCostOfAJoin reads a run of 20,000 events from its beginning: in this protocol it costs at most twice what it
// costs in the native one, and after any number of chunks no more than a whole one.
func TestCostOfAJoin(t *testing.T) {
	n := edgetest.Share().Start(t, aisdk.Protocol())
	const events = 20_000
	batch := []schema.Event{event(schema.TypeTurnStart, `{"turn_id":"t"}`),
		event(schema.TypeMessageStart, `{"message_id":"m","role":"assistant"}`)}
	for i := range events {
		batch = append(batch, event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"piece %d of it "}`, i)))
		if len(batch) > 1000 {
			n.Say("run", batch...)
			batch = nil
		}
	}
	n.Say("run", append(batch, event(schema.TypeTurnEnd, `{"turn_id":"t"}`),
		event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`))...)
	cost := func(path string) (best float64) {
		for range 7 {
			before := cputime.Process()
			resp, err := n.HTTP.Get("http://" + n.Host + path)
			if err != nil {
				t.Fatal(err)
			}
			size, err := io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || size < 1000 {
				t.Fatalf("%s: %d bytes, %v", path, size, err)
			}
			if c := (cputime.Process() - before).Seconds(); best == 0 || c < best {
				best = c
			}
		}
		return best
	}
	native := cost("/v1/agent/runs/run/stream?detail=full")
	whole, late := cost(base+"/run/stream"), cost(base+"/run/stream?startIndex=19900")
	t.Logf("native %.1f ms, here %.1f ms (%.2f times), after 19,900 chunks %.1f ms", native*1e3, whole*1e3,
		whole/native, late*1e3)
	if whole > 2*native || late > whole {
		t.Errorf("native %.1f ms, here %.1f ms, after 19,900 chunks %.1f ms", native*1e3, whole*1e3, late*1e3)
	}
}
