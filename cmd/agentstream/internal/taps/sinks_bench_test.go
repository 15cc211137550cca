package taps

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	lognats "agentstream/fanout/natsjs"
	"agentstream/internal/cputime"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/tap"
	"agentstream/tap/natsjs"
	"agentstream/tap/sink"
)

// nothing is a sink that throws everything away.
type nothing struct{}

func (nothing) Write(context.Context, []tap.Event) ([]tap.Refusal, error) { return nil, nil }
func (nothing) Close() error                                              { return nil }

// pullBare reads so many packs by JetStream's pull consumers alone, which acknowledge each batch by its last message.
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
				for m := range batch.Messages() {
					last = m
					left.Add(-1)
				}
				if last != nil {
					_ = last.Ack()
				}
			}
		})
	}
	group.Wait()
}

// counted is a sink that says when so many events were delivered.
type counted struct {
	tap.Receiver
	left atomic.Int64
	full chan struct{}
}

func (c *counted) Write(ctx context.Context, batch []tap.Event) ([]tap.Refusal, error) {
	refused, err := c.Receiver.Write(ctx, batch)
	if err == nil && c.left.Add(-int64(len(batch))) == 0 {
		close(c.full)
	}
	return refused, err
}

// loadTalk stores messages of eight deltas in packs of ten events, in 500 runs.
func loadTalk(b *testing.B, server *testkit.Server, events int) {
	b.Helper()
	runs := make([]*persistertest.Writer, 500)
	for i := range runs {
		runs[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
	}
	delta := persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, strings.Repeat("The quick brown fox ", 9)))
	for i := range events / 10 {
		id := fmt.Sprintf(`{"message_id":"m%d"`, i)
		pack := []schema.Event{persistertest.Event(schema.TypeMessageStart, id+`,"role":"assistant","model":"m-1"}`)}
		for range 8 {
			pack = append(pack, delta)
		}
		pack = append(pack, persistertest.Event(schema.TypeMessageEnd,
			id+`,"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":80}}`))
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

// BenchmarkSinks delivers 100,000 events, messages of eight deltas in packs of ten, to each kind of sink, beside bare
// pull consumers that throw them away. us/event is the CPU time of this process: the log's server, the tap, and the
// other side, which reads what it gets and throws it away (of nats: another stream in memory). MiB is the most heap that
// was in use after a garbage collection while it ran.
func BenchmarkSinks(b *testing.B) {
	const events = 100_000
	server := testkit.NATS(b)
	loadTalk(b, server, events)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer other.Close()
	_, err := server.JS.CreateStream(b.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"},
		Storage: jetstream.MemoryStorage, MaxBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	history, err := lognats.Open(b.Context(), server.Conn)
	if err != nil {
		b.Fatal(err)
	}
	report := func(b *testing.B, took, cpu time.Duration) {
		b.ReportMetric(events/took.Seconds(), "events/s")
		b.ReportMetric(float64(cpu.Microseconds())/events, "us/event")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("bare pull", func(b *testing.B) {
		for b.Loop() {
			began, cpu := time.Now(), cputime.Process()
			pullBare(b, server, events/10)
			report(b, time.Since(began), cputime.Process()-cpu)
		}
	})
	for _, to := range []struct{ name, address string }{
		{"nothing", ""},
		{"file", "file:" + filepath.Join(b.TempDir(), "events.jsonl")},
		{"clickhouse", "clickhouse+" + other.URL},
		{"otlp", "otlp+" + other.URL},
		{"nats", server.Server.ClientURL() + "/out.events"},
	} {
		b.Run(to.name, func(b *testing.B) {
			for b.Loop() {
				c := &counted{Receiver: nothing{}, full: make(chan struct{})}
				c.left.Store(events)
				if to.address != "" {
					s, err := sink.Open(b.Context(), []string{to.address}, sink.Options{Private: true,
						OTLP: sink.OTLP{History: history}})
					if err != nil {
						b.Fatal(err)
					}
					c.Receiver = s
				}
				began, cpu := time.Now(), cputime.Process()
				b.ReportMetric(float64(deliverAll(b, server, c))/(1<<20), "MiB")
				report(b, time.Since(began), cputime.Process()-cpu)
				_ = c.Receiver.Close()
			}
		})
	}
}

// deliverAll runs a new tap until it has delivered all, and returns the most heap that was live meanwhile, in bytes.
func deliverAll(b *testing.B, server *testkit.Server, c *counted) (most uint64) {
	b.Helper()
	member, err := natsjs.Join(b.Context(), server.Conn,
		tap.Config{Spec: tap.Spec{Name: fmt.Sprint("bench_", time.Now().UnixNano())}, Sink: c})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()
	var m runtime.MemStats
	for {
		select {
		case <-c.full:
			stop()
			<-ended
			return most
		case <-time.After(50 * time.Millisecond):
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
}
