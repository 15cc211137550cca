package natsjs_test

import (
	"strconv"
	"strings"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// BenchmarkAppend is one append of deltas to one run by way of an embedded server, whose own work is in
// the time but hardly in the allocations.
func BenchmarkAppend(b *testing.B) {
	for _, events := range []int{1, 64} {
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			k := testkit.NATS(b)
			l, err := natsjs.Open(b.Context(), k.Conn)
			if err != nil {
				b.Fatal(err)
			}
			app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]schema.Event, events)
			for i := range batch {
				batch[i] = schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"` + strings.Repeat("token ", 30) + `"}`)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := app.Append(b.Context(), key, batch, producers.AppendOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
