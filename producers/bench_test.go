package producers_test

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// willing stores nothing and agrees with everything.
type willing struct{ stored uint64 }

func (l *willing) Head(context.Context, schema.RunKey, string) (schema.Head, error) {
	return schema.Head{}, nil
}

func (l *willing) Append(context.Context, *schema.Pack, uint64) (uint64, error) {
	l.stored++
	return l.stored, nil
}

func (l *willing) Since(context.Context, schema.RunKey, uint64) iter.Seq2[schema.Pack, error] {
	return func(func(schema.Pack, error) bool) {}
}

// BenchmarkAppender is what an append costs when the log costs nothing: the turn at the run, checks,
// numbers, ids, lines.
func BenchmarkAppender(b *testing.B) {
	for _, events := range []int{1, 64} {
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			app, err := producers.NewAppender(producers.AppenderConfig{Log: &willing{}})
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]schema.Event, events)
			for i := range batch {
				batch[i] = schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"` + strings.Repeat("token ", 30) + `"}`)}
			}
			key := schema.RunKey{Tenant: "acme", Run: "run"}
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
