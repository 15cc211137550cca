package otlp

import (
	"errors"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/tap"
)

// TestMetricsAreSentOnce: the metrics of a batch are sent when the place has moved after it, whatever was sent again
// before, and not again when that fails.
func TestMetricsAreSentOnce(t *testing.T) {
	events := eventsOf(t, acme, langgraphRun(t))
	s := newStore()
	at := time.Unix(1000, 0)
	x := New(Config{Options: Options{}, Sender: s, Metrics: true, Now: func() time.Time { return at }})
	runs := []schema.RunKey{acme}
	deliver(t, x, events[:20])
	deliver(t, x, events[:20])
	if len(s.metrics) > 0 {
		t.Fatal("metrics of what may come again")
	}
	confirm := func() {
		t.Helper()
		if err := x.Confirm(t.Context(), runs); err != nil {
			t.Fatal(err)
		}
	}
	confirm()
	confirm()
	at = at.Add(time.Second)
	deliver(t, x, events[20:])
	confirm()
	if len(s.metrics) != 2 {
		t.Fatalf("%d requests", len(s.metrics))
	}
	sums, counts := map[string]float64{}, map[string]uint64{}
	for _, data := range s.metrics {
		for _, m := range data.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			for _, p := range m.GetHistogram().DataPoints {
				name := m.Name + " " + value(p.Attributes, "gen_ai.request.model") + " " + value(p.Attributes, "gen_ai.token.type")
				sums[name] += *p.Sum
				counts[name] += p.Count
				total := uint64(0)
				for _, n := range p.BucketCounts {
					total += n
				}
				if total != p.Count || p.StartTimeUnixNano >= p.TimeUnixNano {
					t.Errorf("%s: %v", name, p)
				}
			}
		}
	}
	if got := sums["gen_ai.client.token.usage small-1 input"]; got != 103 {
		t.Errorf("%v input tokens of the small model", got)
	}
	if got := counts["gen_ai.client.operation.duration large-1 "]; got != 2 {
		t.Errorf("%d requests to the large model", got)
	}
	s.deaf = errors.New("away")
	other := eventsOf(t, schema.RunKey{Tenant: "acme", Run: "run_2"}, langgraphRun(t))
	deliver(t, x, other)
	runs[0].Run = "run_2"
	if err := x.Confirm(t.Context(), runs); err == nil {
		t.Error("nothing is said of metrics that are lost")
	}
	confirm()
	if len(s.metrics) != 3 {
		t.Errorf("%d requests: what has failed was sent again", len(s.metrics))
	}
}

// TestMetricsOfForgottenRuns: a run that is forgotten between two batches loses nothing of what waits to be counted, and
// a batch that comes again is counted once.
func TestMetricsOfForgottenRuns(t *testing.T) {
	events := eventsOf(t, acme, langgraphRun(t))
	count := func(held int, batches ...[]tap.Event) (n uint64) {
		t.Helper()
		s := newStore()
		x := New(Config{Sender: s, Metrics: true, Held: held, History: history(events)})
		for _, b := range batches {
			deliver(t, x, b)
		}
		if err := x.Confirm(t.Context(), []schema.RunKey{acme}); err != nil {
			t.Fatal(err)
		}
		for _, data := range s.metrics {
			for _, p := range data.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].GetHistogram().DataPoints {
				n += p.Count
			}
		}
		return n
	}
	want := count(0, events)
	if want == 0 {
		t.Fatal("no request to a model")
	}
	const forgotten = 1
	for cut := 1; cut < len(events); cut++ {
		if n := count(forgotten, events[:cut], events[cut:]); n != want {
			t.Errorf("cut at %d: %d requests are counted, want %d", cut, n, want)
		}
		if n := count(forgotten, events[:cut], events[cut/2:cut], events[cut:]); n != want {
			t.Errorf("cut at %d, sent again: %d requests are counted, want %d", cut, n, want)
		}
	}
}
