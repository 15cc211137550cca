package producers_test

import (
	"bytes"
	"context"
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider"
	"agentstream/internal/cputime"
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

func (l *willing) Adopt(context.Context, schema.RunKey, ...string) error { return nil }

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
				batch[i] = schema.Event{Type: schema.TypeTextDelta,
					Payload: []byte(`{"text":"` + strings.Repeat("token ", 30) + `"}`)}
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

// ready takes every pack, at once or after a while, and keeps none.
type ready struct {
	after  time.Duration
	packs  atomic.Int64
	events atomic.Int64
}

func (l *ready) Head(context.Context, schema.RunKey, string) (schema.Head, error) {
	return schema.Head{}, nil
}

func (l *ready) Append(_ context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if l.after > 0 {
		time.Sleep(l.after)
	}
	l.packs.Add(1)
	l.events.Add(int64(p.Count))
	return after + 1, nil
}

func (l *ready) Adopt(context.Context, schema.RunKey, ...string) error { return nil }

func (l *ready) Since(context.Context, schema.RunKey, uint64) iter.Seq2[schema.Pack, error] {
	return func(func(schema.Pack, error) bool) {}
}

// deltas are those of recorded streams of a provider, in their order.
func deltas(b *testing.B) []schema.Event {
	_, read := anthropictest.Recordings(b)
	var out []schema.Event
	for _, name := range []string{"text-long", "pause-turn-step1", "thinking-signature-text", "tool-large-json",
		"web-search-citations"} {
		body := bytes.NewReader(read("anthropic/" + name + ".sse"))
		for e, err := range provider.Decode(body, anthropic.NewDecoder(provider.Config{TurnID: "turn_01JZQ5Z8Y4R6"})) {
			if err != nil {
				b.Fatal(err)
			}
			if info, _ := schema.Lookup(e.Type); info.Delta {
				out = append(out, e)
			}
		}
	}
	if len(out) < 300 {
		b.Fatalf("%d deltas", len(out))
	}
	return out
}

// BenchmarkSendDelta is all that a delta costs before the log's client has it: checks, the buffer,
// numbers, ids, times, lines and packs.
func BenchmarkSendDelta(b *testing.B) {
	events := deltas(b)
	for _, after := range []time.Duration{0, 200 * time.Microsecond} {
		b.Run(after.String(), func(b *testing.B) {
			log := &ready{after: after}
			p, err := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "acme", Run: "run_01JZQ5Z8Y4R6"}})
			if err != nil {
				b.Fatal(err)
			}
			var sink producers.Sink = p
			var one [1]schema.Event
			if err := p.Send(b.Context(), schema.Event{Type: schema.TypeMessageStart}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			cpu := cputime.Process()
			i := 0
			for b.Loop() {
				one[0] = events[i%len(events)]
				if err := sink.Send(b.Context(), one[:]...); err != nil {
					b.Fatal(err)
				}
				i++
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(cputime.Process()-cpu)/float64(b.N), "cpu-ns/event")
			b.ReportMetric(float64(log.events.Load())/float64(log.packs.Load()), "events/pack")
			if err := p.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
