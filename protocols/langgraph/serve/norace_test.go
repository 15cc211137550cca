//go:build !race

package serve_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
)

// TestManyOpenCalls: four times as many open calls cost a question after a thread about four times as much.
func TestManyOpenCalls(t *testing.T) {
	n := start(t, serve.Config{})
	cost := func(calls int) time.Duration {
		thread := fmt.Sprintf("th%d", calls)
		n.ask(thread, "run.start", hello)
		events := make([]schema.Event, 0, 1000)
		for i := range calls {
			events = append(events, schema.Event{Type: schema.TypeToolStart,
				Payload: fmt.Appendf(nil, `{"call_id":"c%d","tool":"t"}`, i)})
			if len(events) == cap(events) || i == calls-1 {
				n.Append(thread, events...)
				events = events[:0]
			}
		}
		before := cputime.Process()
		for _, path := range []string{"", "/state"} {
			n.do("GET", "/threads/"+thread+path, "").OK(200)
		}
		return cputime.Process() - before
	}
	cost(1000)
	few, many := cost(10_000), cost(40_000)
	t.Logf("10,000 open calls: %v, 40,000: %v", few, many)
	if many > 9*few+100*time.Millisecond { // 16 times if it were quadratic
		t.Errorf("10,000 open calls cost %v, 40,000 cost %v", few, many)
	}
}
