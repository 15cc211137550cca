package natsjs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/cputime"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/tap"
)

// counter is a sink that counts.
type counter struct {
	events atomic.Int64
	full   chan struct{}
	want   int64
}

func (c *counter) Write(_ context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	if c.events.Add(int64(len(batch))) == c.want {
		close(c.full)
	}
	return nil, nil
}

func (c *counter) Close() error { return nil }

// BenchmarkTap reads 100,000 events of 500 runs: by JetStream's pull consumers alone, which acknowledge each batch by
// its last message, and by a tap whose sink counts. us/event is the CPU time of both sides, the server included.
func BenchmarkTap(b *testing.B) {
	const events = 100_000
	for _, size := range []int{1, 10, 100} {
		server := testkit.NATS(b)
		load(b, server, events, size)
		per := func(b *testing.B, took, cpu time.Duration) {
			b.ReportMetric(events/took.Seconds(), "events/s")
			b.ReportMetric(float64(cpu.Microseconds())/events, "us/event")
			b.ReportMetric(0, "ns/op")
		}
		b.Run(fmt.Sprint("bare/", size), func(b *testing.B) {
			for b.Loop() {
				began, cpu := time.Now(), cputime.Process()
				pullBare(b, server, events/size)
				per(b, time.Since(began), cputime.Process()-cpu)
			}
		})
		b.Run(fmt.Sprint("tap/", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c := &counter{full: make(chan struct{}), want: events}
				began, cpu := time.Now(), cputime.Process()
				member, err := Join(b.Context(), server.Conn,
					tap.Config{Spec: tap.Spec{Name: fmt.Sprint("bench_", time.Now().UnixNano())}, Sink: c})
				if err != nil {
					b.Fatal(err)
				}
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- member.Run(ctx) }()
				<-c.full
				per(b, time.Since(began), cputime.Process()-cpu)
				stop()
				<-ended
			}
		})
	}
}

func load(b *testing.B, server *testkit.Server, events, size int) {
	b.Helper()
	runs := make([]*persistertest.Writer, 500)
	for i := range runs {
		runs[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
	}
	pack := make([]schema.Event, size)
	for i := range pack {
		pack[i] = persistertest.Event(schema.TypeTextDelta,
			fmt.Sprintf(`{"text":%q}`, strings.Repeat("The quick brown fox ", 9)))
	}
	for i := range events / size {
		p := runs[i%len(runs)].Pack("", pack...)
		if _, err := server.JS.PublishMsgAsync(&nats.Msg{Subject: schema.Subject(p.Key, "", server.Partitions),
			Header: p.Headers(), Data: p.Body}); err != nil {
			b.Fatal(err)
		}
		if server.JS.PublishAsyncPending() > 2000 {
			<-server.JS.PublishAsyncComplete()
		}
	}
	<-server.JS.PublishAsyncComplete()
}

func pullBare(b *testing.B, server *testkit.Server, packs int) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var left atomic.Int64
	left.Store(int64(packs))
	var group sync.WaitGroup
	for p := range server.Partitions {
		c, err := server.JS.CreateConsumer(ctx, fmt.Sprint("AGENT_", p),
			jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy, MaxAckPending: 10_000})
		if err != nil {
			b.Fatal(err)
		}
		group.Go(func() {
			for left.Load() > 0 {
				batch, err := c.Fetch(2000, jetstream.FetchMaxWait(100*time.Millisecond))
				if err != nil {
					b.Error(err)
					return
				}
				var last jetstream.Msg
				n := 0
				for m := range batch.Messages() {
					last = m
					n++
				}
				if last != nil {
					_ = last.Ack()
				}
				left.Add(-int64(n))
			}
		})
	}
	group.Wait()
}
