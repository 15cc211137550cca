package persistertest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/cputime"
	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// drainEvents are in the log before the persister begins.
const drainEvents = 200_000

// BenchmarkDrain persists a backlog as fast as it goes: 200,000 events of 500 runs in packs of 1, 10 and
// 100, from a log in another process. us/event is the CPU time of this process, log-us/event that of the
// log's, server-us/event PostgreSQL's. With the store that discards, what remains is the persister's own
// work: fetch and take apart.
func BenchmarkDrain(b *testing.B) {
	none := func() time.Duration { return 0 }
	for _, size := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("discard/", size), func(b *testing.B) { benchDrain(b, persister.Config{Store: discard{}}, size, none) })
		b.Run(fmt.Sprint("sqlite/", size), func(b *testing.B) {
			benchDrain(b, persister.Config{Store: openSQLite(b, filepath.Join(b.TempDir(), "s.db"))}, size, none)
		})
		b.Run(fmt.Sprint("postgres/", size), func(b *testing.B) {
			dsn := testkit.Postgres(b)
			benchDrain(b, persister.Config{Store: open(b, dsn)}, size, postmasterCPU(b, dsn))
		})
	}
}

// BenchmarkBatchSize is BenchmarkDrain of packs of 10 with transactions of one size, into each store.
func BenchmarkBatchSize(b *testing.B) {
	for _, rows := range []int{250, 1000, 2000, 4000, 8000} {
		fixed := persister.Config{BatchEvents: rows, BatchStart: rows, Target: time.Hour, HeldBytes: 256 << 20,
			BatchBytes: 16 << 20}
		b.Run(fmt.Sprint("postgres/", rows), func(b *testing.B) {
			dsn := testkit.Postgres(b)
			fixed.Store = open(b, dsn)
			benchDrain(b, fixed, 10, postmasterCPU(b, dsn))
		})
		b.Run(fmt.Sprint("sqlite/", rows), func(b *testing.B) {
			fixed.Store = openSQLite(b, filepath.Join(b.TempDir(), "s.db"))
			benchDrain(b, fixed, 10, func() time.Duration { return 0 })
		})
	}
}

// discard is a store that takes everything and keeps nothing.
type discard struct{}

func (discard) Transfer(_ context.Context, t *persister.Transfer) (r persister.Result, _ error) {
	for i := range t.Chunks {
		r.Inserted += len(t.Chunks[i].Rows)
	}
	return r, nil
}

func (discard) Offsets(context.Context) ([]persister.StoredOffset, error) { return nil, nil }

func benchDrain(b *testing.B, cfg persister.Config, size int, serverCPU func() time.Duration) {
	for b.Loop() {
		b.StopTimer()
		log := startRateLog(b)
		if _, err := fmt.Fprintln(log.in, "load", size); err != nil {
			b.Fatal(err)
		}
		log.line(b)
		before := log.cpu(b)
		self, server := cputime.Process(), serverCPU()
		counted := make(chan persister.Stored, 1<<16)
		cfg.Hooks.Stored = func(_ string, s persister.Stored) { counted <- s }
		begin := time.Now()
		b.StartTimer()
		p, stop := ratePersist(b, log.url, cfg)
		rows, commits := 0, 0
		for deadline := time.After(2 * time.Minute); rows < drainEvents; commits++ {
			select {
			case s := <-counted:
				rows += s.Inserted
			case <-deadline:
				b.Fatalf("%d of %d rows: %+v", rows, drainEvents, p.Status())
			}
		}
		b.StopTimer()
		took := time.Since(begin)
		stop()
		per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / drainEvents }
		b.ReportMetric(drainEvents/took.Seconds(), "rows/s")
		b.ReportMetric(per(cputime.Process()-self), "us/event")
		b.ReportMetric(per(serverCPU()-server), "server-us/event")
		b.ReportMetric(per(log.cpu(b)-before), "log-us/event")
		b.ReportMetric(float64(rows)/float64(commits), "rows/commit")
		b.ReportMetric(0, "ns/op")
		log.stop(b)
		b.StartTimer()
	}
}

func (l *rateLog) cpu(b *testing.B) time.Duration {
	b.Helper()
	if _, err := fmt.Fprintln(l.in, "cpu"); err != nil {
		b.Fatal(err)
	}
	d, err := time.ParseDuration(l.line(b))
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// loadLog stores drainEvents in packs of a number of events.
func loadLog(js jetstream.JetStream, text string) error {
	size, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	writers := make([]*persistertest.Writer, rateRuns)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, "20260228")
	}
	events := make([]schema.Event, size)
	for i := range events {
		events[i] = persistertest.Event(schema.TypeTextDelta,
			fmt.Sprintf(`{"text":%q}`, strings.Repeat("The quick brown fox ", 9)))
	}
	for i := range drainEvents / size {
		p := writers[i%len(writers)].Pack("", events...)
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: schema.Subject(p.Key, "", ratePartitions),
			Header: p.Headers(), Data: p.Body}); err != nil {
			return err
		}
	}
	<-js.PublishAsyncComplete()
	fmt.Println("loaded")
	return nil
}
