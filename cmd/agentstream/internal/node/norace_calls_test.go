//go:build !race

package node

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/internal/cputime"
	"agentstream/protocols/native"
	"agentstream/protocols/otlp"
	"agentstream/schema"
)

// TestOpenCallsCostTheSame: what is asked of a run with four times as many open calls costs about four times as much
// CPU, of a node that has not read the run before. A cost that grew with the square would be sixteen times as much.
func TestOpenCallsCostTheSame(t *testing.T) {
	f := &ListenFlags{}
	n := edgetest.Share().Start(t, protocol.Protocol{Dialect: native.Dialect{}}, func(c *edge.Config) {
		c.Protocols, c.LogTimeout = f.protocols(otlp.New(otlp.Config{})), time.Minute
	})
	open := func(run string, calls int) {
		batch := make([]schema.Event, 0, 1000)
		for i := range calls {
			batch = append(batch, edgetest.Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":"c%d","tool":"t"}`, i)))
			if len(batch) == cap(batch) || i == calls-1 {
				n.Say(run, batch...)
				batch = batch[:0]
			}
		}
	}
	cost := func(path, run string) time.Duration {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Host+fmt.Sprintf(path, run), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(edgetest.As, "may:read")
		before := cputime.Process()
		resp, err := n.HTTP.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %d %.200s %v", r.URL.Path, resp.StatusCode, text, err)
		}
		return cputime.Process() - before
	}
	for i, path := range []string{
		"/threads/%s", "/threads/%s/state", "/threads/%s/history", "/v1/agent/runs/%s", "/v1/agent/runs/%s/snapshot",
		"/v1/agent/runs/%s/steps", "/api/v1/cloud/sessions/%s", "/api/v1/cloud/sessions/%s/events?limit=1000",
		"/api/v1/cloud/sessions/%s/threads", "/metis/sessions/%s", "/metis/sessions/%s/events", "/metis/sessions/%s/messages",
	} {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			few, many := fmt.Sprintf("few%d", i), fmt.Sprintf("many%d", i)
			open(few, 10_000)
			open(many, 40_000)
			less, more := cost(path, few), cost(path, many)
			t.Logf("10,000 open calls: %v, 40,000: %v", less, more)
			if more > 9*less+100*time.Millisecond {
				t.Errorf("10,000 open calls cost %v, 40,000 cost %v", less, more)
			}
		})
	}
}
