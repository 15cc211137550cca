package otlp

import (
	"context"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema/schematest"
)

// nowhere takes everything.
type nowhere struct{}

func (nowhere) Send(context.Context, *tracepb.TracesData) error           { return nil }
func (nowhere) SendMetrics(context.Context, *metricspb.MetricsData) error { return nil }
func (nowhere) Close() error                                              { return nil }

// BenchmarkEvent is what one event of a run of deltas and tools costs, without sending.
func BenchmarkEvent(b *testing.B) {
	events := eventsOf(b, acme, schematest.ByName("long"))
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(events) {
		b.StopTimer()
		x := New(Config{Options: Options{Pending: true}, Sender: nowhere{}})
		b.StartTimer()
		for from := 0; from < len(events); from += 500 {
			batch := events[from:min(from+500, len(events))]
			if _, err := x.Write(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
		}
	}
}
