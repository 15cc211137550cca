package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// benchRows is the size of one transaction.
const benchRows = 2000

// batches makes n transactions of benchRows events of about 300 bytes, of 100 runs, in packs of 10.
func batches(t testing.TB, prefix string, n int) [][]persister.Chunk {
	t.Helper()
	writers := make([]*persistertest.Writer, 100)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", prefix, i)}, day)
	}
	text := persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, fmt.Sprintf("%0130d", 1)))
	events := []schema.Event{text, text, text, text, text, text, text, text, text, text}
	out := make([][]persister.Chunk, n)
	for i := range out {
		var packs []schema.Pack
		for j := range benchRows / len(events) {
			packs = append(packs, writers[j%len(writers)].Pack("", events...))
		}
		out[i] = chunks(t, packs...)
	}
	return out
}

// BenchmarkAppend prints rows a second beside a bare COPY of the same rows into the same table: the
// database's own limit, which knows neither repeats nor conflicts.
func BenchmarkAppend(b *testing.B) {
	dsn := testkit.Postgres(b)
	s := open(b, dsn)
	p := pool(b, dsn)
	s.Append(b.Context(), batches(b, "warm", 1)[0])
	const n = 10
	var own, repeat, bare time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		mine, theirs := batches(b, fmt.Sprint("a", i, "_"), n), batches(b, fmt.Sprint("c", i, "_"), n)
		b.StartTimer()
		own += timed(func() { appendAll(b, s, mine) })
		repeat += timed(func() { appendAll(b, s, mine) })
		bare += timed(func() { copyAll(b, p, theirs) })
	}
	rows := float64(benchRows * n * b.N)
	b.ReportMetric(rows/own.Seconds(), "append-rows/s")
	b.ReportMetric(rows/repeat.Seconds(), "repeat-rows/s")
	b.ReportMetric(rows/bare.Seconds(), "copy-rows/s")
	b.ReportMetric(bare.Seconds()/own.Seconds(), "append/copy")
	b.ReportMetric(0, "ns/op")
}

func timed(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

func appendAll(b *testing.B, s persister.Store, batches [][]persister.Chunk) {
	for _, c := range batches {
		if _, err := s.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func copyAll(b *testing.B, p *pgxpool.Pool, batches [][]persister.Chunk) {
	date, err := time.Parse("20060102", day)
	if err != nil {
		b.Fatal(err)
	}
	columns := []string{"koder_user_id", "run_day", "run_id", "seq", "id", "child_id", "type", "ts", "line", "payload"}
	for _, batch := range batches {
		var rows [][]any
		for i := range batch {
			for _, r := range batch[i].Rows {
				rows = append(rows, []any{batch[i].Key.Tenant, date, batch[i].Key.Run, int64(r.Seq), r.ID, nil, r.Type, r.TS, string(r.Line), string(r.Payload)})
			}
		}
		if _, err := p.CopyFrom(b.Context(), pgx.Identifier{"agent_run_events"}, columns, pgx.CopyFromRows(rows)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplay reads a run of 10,000 events.
func BenchmarkReplay(b *testing.B) {
	s := open(b, testkit.Postgres(b))
	w := persistertest.NewWriter(key, day)
	for range 100 {
		if _, err := s.Append(b.Context(), chunks(b, w.Texts("", 100))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		n := 0
		for p, err := range s.Packs(b.Context(), key, 0, schema.MaxSeq) {
			if err != nil {
				b.Fatal(err)
			}
			n += p.Count
		}
		if n != 10_000 {
			b.Fatalf("%d events", n)
		}
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
