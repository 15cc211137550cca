package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// BenchmarkPublisher is what an event costs its writer when the log costs nothing: checks, numbering,
// the line, its share of a pack. Schema's own part of it is schema.BenchmarkAppendLine.
func BenchmarkPublisher(b *testing.B) {
	payloads := texts(1000)
	p, err := producers.New(producers.Config{Log: &willingLog{}, Key: schema.RunKey{Tenant: tenant, Run: "run"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := p.Publish(b.Context(), schema.Event{Type: schema.TypeTextDelta,
			Payload: payloads[i%len(payloads)]}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// willingLog stores nothing and agrees with everything.
type willingLog struct{ stored uint64 }

func (l *willingLog) Head(context.Context, schema.RunKey, string) (schema.Head, error) {
	return schema.Head{}, nil
}

func (l *willingLog) Append(context.Context, *schema.Pack, uint64) (uint64, error) {
	l.stored++
	return l.stored, nil
}

func (*willingLog) Adopt(context.Context, schema.RunKey, ...string) error { return nil }

func (l *willingLog) Since(context.Context, schema.RunKey, uint64) iter.Seq2[schema.Pack, error] {
	return func(func(schema.Pack, error) bool) {}
}

// BenchmarkParsePack reads a stored message of 32 events.
func BenchmarkParsePack(b *testing.B) {
	key := schema.RunKey{Tenant: tenant, Run: "run"}
	p := packsOf(key, 32, 32, false)[0]
	subject, header := schema.Subject(key, "", 8), p.Headers()
	b.ReportAllocs()
	b.SetBytes(int64(len(p.Body)))
	for b.Loop() {
		if _, err := schema.ParsePack(subject, header, p.Body, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHubDelivery gives packs of one event to subscribers of one run and waits until all of them
// have it; ns/delivery is per event and subscriber.
func BenchmarkHubDelivery(b *testing.B) {
	for _, subscribers := range []int{1, 100} {
		b.Run(fmt.Sprintf("subscribers=%d", subscribers), func(b *testing.B) { hubDelivery(b, subscribers) })
	}
}

func hubDelivery(b *testing.B, subscribers int) {
	log := memory.New()
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		b.Fatal(err)
	}
	serve(b, hub.Run)
	key := schema.RunKey{Tenant: tenant, Run: "run"}
	p := packsOf(key, 1, 1, false)[0]
	after, err := log.Append(b.Context(), &p, 0)
	if err != nil {
		b.Fatal(err)
	}
	var round, ended sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	for range subscribers {
		sub, err := hub.Subscribe(ctx, key, 1)
		if err != nil {
			b.Fatal(err)
		}
		ended.Go(func() {
			defer sub.Close()
			for {
				batch, err := sub.Next(ctx)
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					b.Error(err)
					return
				}
				for i := range batch.Packs {
					for range batch.Packs[i].Records(batch.After) {
						round.Done()
					}
				}
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		round.Add(subscribers)
		p.First++
		p.Head.Last = p.First
		p.Body = fmt.Appendf(nil, `{"id":"evt_01JD6Z3QZC8Z9V4V6Q1T9X2Y3W","ts":"","type":"text.delta","run_id":"run","child_id":null,"seq":%d,"payload":{}}`+"\n", p.First)
		if after, err = log.Append(ctx, &p, after); err != nil {
			b.Fatal(err)
		}
		round.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subscribers), "ns/delivery")
	cancel()
	ended.Wait()
}

// BenchmarkSSE writes a pack to one client that costs nothing: records, the native dialect, frames,
// one flush.
func BenchmarkSSE(b *testing.B) {
	for _, events := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("pack=%d", events), func(b *testing.B) { frames(b, events) })
	}
}

func frames(b *testing.B, events int) {
	t, err := sse.New(sse.Config{})
	if err != nil {
		b.Fatal(err)
	}
	sink, err := t.Open(&willingClient{header: http.Header{}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sink.CloseWith(transport.End{Clean: true}) }()
	p := packsOf(schema.RunKey{Tenant: tenant, Run: "run"}, events, events, false)[0]
	projector := native.Dialect{}.Projector(dialect.Request{})
	var list dialect.Frames
	b.ReportAllocs()
	b.SetBytes(int64(len(p.Body)))
	for b.Loop() {
		for r, err := range p.Records(0) {
			if err != nil {
				b.Fatal(err)
			}
			if err := projector.Project(&list, r); err != nil {
				b.Fatal(err)
			}
			if err := sink.Write(list.List); err != nil {
				b.Fatal(err)
			}
			list.Reset()
		}
		if _, err := sink.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// willingClient is a response that takes everything at once.
type willingClient struct{ header http.Header }

func (c *willingClient) Header() http.Header              { return c.header }
func (c *willingClient) WriteHeader(int)                  {}
func (c *willingClient) Write(b []byte) (int, error)      { return len(b), nil }
func (c *willingClient) FlushError() error                { return nil }
func (c *willingClient) SetWriteDeadline(time.Time) error { return nil }
