package spans_test

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"agentstream/internal/spans"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector keeps spans.
type collector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	away  error
}

func (c *collector) Send(_ context.Context, data *tracepb.TracesData) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return c.away
	}
	for _, r := range data.ResourceSpans {
		c.spans = append(c.spans, r.ScopeSpans[0].Spans...)
	}
	return nil
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A request is sampled as its traceparent says, in the caller's trace; one without is, as often as the ratio wants.
func TestSampling(t *testing.T) {
	for name, tt := range map[string]struct {
		ratio  float64
		parent string
		want   string // trace id; "any": one of its own; "": not sampled
	}{
		"sampled":     {0, parent, traceID},
		"not sampled": {1, parent[:53] + "00", ""},
		"none":        {1, "", "any"},
		"rare":        {0, "", ""},
		"bad":         {0, parent + "x", ""},
	} {
		c := &collector{}
		tr, err := spans.New(spans.Config{Sender: c, Ratio: tt.ratio})
		if err != nil {
			t.Fatal(err)
		}
		s := tr.Open(tt.parent)
		if (s != nil) != (tt.want != "") || s != nil && tt.want != "any" && s.TraceID() != tt.want {
			t.Errorf("%s: %v", name, s)
		}
		if s == nil {
			continue
		}
		s.Close(spans.End{Method: "GET", Route: "GET /x", Status: 503, RequestID: "req_1", Tenant: "acme", Failed: true})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := tr.Run(ctx); err != nil || len(c.spans) != 1 {
			t.Fatalf("%s: %d spans, %v", name, len(c.spans), err)
		}
		got := c.spans[0]
		above := ""
		if tt.parent != "" {
			above = "00f067aa0ba902b7"
		}
		if hex.EncodeToString(got.TraceId) != s.TraceID() || hex.EncodeToString(got.ParentSpanId) != above ||
			got.Name != "GET /x" || got.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || len(got.Attributes) != 5 ||
			s.Traceparent() != "00-"+s.TraceID()+"-"+hex.EncodeToString(got.SpanId)+"-01" {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, bad := range []float64{-1, 1.1} {
		if _, err := spans.New(spans.Config{Sender: &collector{}, Ratio: bad}); err == nil {
			t.Errorf("a ratio of %v", bad)
		}
	}
}

// Spans are sent soon; those of a collector that is away, and those that find no room, are dropped and counted, and
// nobody waits.
func TestSpansAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dropped := &collector{}, new(atomic.Int64)
		tr, err := spans.New(spans.Config{Sender: c, Ratio: 1, Dropped: func(n int) { dropped.Add(int64(n)) }})
		if err != nil {
			t.Fatal(err)
		}
		const room, more = 4096, 100
		for range room + more {
			tr.Open("").Close(spans.End{Route: "GET /x"})
		}
		if dropped.Load() != more {
			t.Errorf("%d are dropped, want %d", dropped.Load(), more)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- tr.Run(ctx) }()
		time.Sleep(3 * time.Second)
		c.mu.Lock()
		if len(c.spans) != room {
			t.Errorf("%d are sent", len(c.spans))
		}
		c.away = errors.New("away")
		c.mu.Unlock()
		tr.Open("").Close(spans.End{})
		time.Sleep(3 * time.Second)
		if dropped.Load() != more+1 {
			t.Errorf("%d are dropped", dropped.Load())
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
