package edge_test

import (
	"strings"
	"sync"
	"testing"

	"agentstream/edge"
	"agentstream/edge/edgetest"
)

// keptSpan is a span of a request that a test keeps.
type keptSpan struct {
	parent string
	mu     sync.Mutex
	ends   []edge.RequestEnd
}

func (*keptSpan) TraceID() string { return "11111111111111111111111111111111" }

func (s *keptSpan) Close(e edge.RequestEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, e)
}

// Each request that is sampled has one span, streams too, which is closed once with what became of the request; and its
// line in the log has the id of its trace.
func TestSpansOfRequests(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var mu sync.Mutex
	var all []*keptSpan
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Trace = func(parent string) edge.RequestSpan {
			if parent == "" {
				return nil
			}
			s := &keptSpan{parent: parent}
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
			return s
		}
	})
	h.Must("run", "progress", `{"message":"a"}`)
	h.Must("run", "progress", `{"message":"b"}`, "traceparent", parent)
	h.Do("GET", "/v1/agent/runs/missing", "", "traceparent", parent)
	h.Do("GET", "/nowhere", "", "traceparent", parent)
	k := h.MustTap("sse", "/v1/agent/runs/run/stream", 0, "traceparent", parent)
	if _, err := k.Event(); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	var routes []string
	for _, s := range all {
		if len(s.ends) != 1 || s.parent != parent || s.ends[0].ID == "" {
			t.Fatalf("%+v", s)
		}
		routes = append(routes, s.ends[0].Route)
	}
	want := "POST /v1/agent/runs/{run}/events; GET /v1/agent/runs/{run}; none; GET /v1/agent/runs/{run}/stream"
	if got := strings.Join(routes, "; "); got != want {
		t.Errorf("spans of %s", got)
	}
	if n := strings.Count(h.Logs.String(), (&keptSpan{}).TraceID()); n != len(all) {
		t.Errorf("%d lines of the log have a trace, of %d requests", n, len(all))
	}
}

// Without spans a line of the log has the trace in which its request was sent.
func TestTraceInTheLog(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Must("run", "progress", `{"message":"a"}`)
	if strings.Contains(h.Logs.String(), "trace_id") {
		t.Error("a request without one has a trace")
	}
	h.Must("run", "progress", `{"message":"b"}`, "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	if !strings.Contains(h.Logs.String(), "4bf92f3577b34da6a3ce929d0e0e4736") {
		t.Error(h.Logs.String())
	}
}
