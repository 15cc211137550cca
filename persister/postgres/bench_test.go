package postgres_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// batches makes n transactions of size events of about 300 bytes, of 100 runs of as many owners, in packs of 10. With
// frames every tenth begins or ends a message or a tool call.
func batches(t testing.TB, prefix string, n, size int, frames bool) [][]persister.Chunk {
	t.Helper()
	writers := make([]*persistertest.Writer, 100)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", prefix, i)}, day)
		writers[i].Lanes[""] = schema.Lane{Owner: "w_01J9ZT3M6Q7V8X2C4B5N6M7K8J", Epoch: 1}
	}
	text := persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, fmt.Sprintf("%0130d", 1)))
	events := []schema.Event{text, text, text, text, text, text, text, text, text, text}
	framed := func(kind, id int) schema.Event {
		return []schema.Event{
			persistertest.Event(schema.TypeMessageStart,
				fmt.Sprintf(`{"message_id":"msg_01J9ZT3M6Q7V8X%06d","role":"assistant","model":"model-1"}`, id)),
			persistertest.Event(schema.TypeMessageEnd,
				fmt.Sprintf(`{"message_id":"msg_01J9ZT3M6Q7V8X%06d","content":[{"type":"text","text":"%0600d"}],`+
					`"stop_reason":"end_turn","usage":{"input_tokens":900,"output_tokens":70}}`, id, 1)),
			persistertest.Event(schema.TypeToolStart,
				fmt.Sprintf(`{"call_id":"call_01J9ZT3M6Q7V8%06d","tool":"grep","input":{"q":"x"}}`, id)),
			persistertest.Event(schema.TypeToolEnd,
				fmt.Sprintf(`{"call_id":"call_01J9ZT3M6Q7V8%06d","ok":true,"duration_ms":12,"output":"found"}`, id)),
		}[kind]
	}
	out := make([][]persister.Chunk, n)
	for i := range out {
		var packs []schema.Pack
		for j := range size / len(events) {
			if frames {
				frame := j/len(writers) + i*size/len(events)/len(writers)
				events[4] = framed(frame%4, frame/4)
			}
			packs = append(packs, writers[j%len(writers)].Pack("", events...))
		}
		out[i] = chunks(t, packs...)
	}
	return out
}

// syncing starts a server that writes through to the disk, as PostgreSQL does by default.
func syncing(b *testing.B) string {
	dsn := testkit.StartPostgres(b).Database(b)
	p := pool(b, dsn)
	exec(b, p, `alter system set fsync = on`)
	exec(b, p, `alter system set full_page_writes = on`)
	exec(b, p, `select pg_reload_conf()`)
	return dsn
}

// BenchmarkAppend prints rows a second of 1 to 8 appenders at once, without an offset and with one, beside a bare
// binary COPY of the same rows, in batches of the same size, into the same table, by as many connections, encoded
// beforehand: the database's own limit, which has neither heads, repeats nor conflicts. They take turns.
func BenchmarkAppend(b *testing.B) {
	for _, disk := range []struct {
		name string
		dsn  func(b *testing.B) string
	}{{"nosync", func(b *testing.B) string { return testkit.Postgres(b) }}, {"sync", syncing}} {
		for _, size := range []int{2000, 8000} {
			for _, appenders := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("%s/batch=%d/appenders=%d", disk.name, size, appenders), func(b *testing.B) {
					benchAppend(b, disk.dsn(b), size, appenders, false)
				})
			}
		}
	}
}

// BenchmarkAppendFrames is BenchmarkAppend of one appender with a tenth of frames.
func BenchmarkAppendFrames(b *testing.B) {
	for _, size := range []int{2000, 8000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) { benchAppend(b, testkit.Postgres(b), size, 1, true) })
	}
}

func benchAppend(b *testing.B, dsn string, size, appenders int, frames bool) {
	open(b, dsn)
	s, err := postgres.Open(b.Context(), postgres.Config{DSN: dsn, MaxConns: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p := pool(b, dsn+"&pool_max_conns=8")
	appendAll(b, s, batches(b, "warm", 1, size, frames))
	var own, moved, repeat, bare time.Duration
	n := max(1, 16_000/size/appenders) // batches of each
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		mine, moving, theirs := make([][][]persister.Chunk, appenders), make([][][]persister.Chunk,
			appenders), make([][][]byte, appenders)
		for j := range appenders {
			mine[j] = batches(b, fmt.Sprintf("a%d_%d_", i, j), n, size, frames)
			moving[j] = batches(b, fmt.Sprintf("t%d_%d_", i, j), n, size, frames)
			for _, batch := range batches(b, fmt.Sprintf("c%d_%d_", i, j), n, size, frames) {
				theirs[j] = append(theirs[j], postgres.CopyBody(batch, day))
			}
		}
		b.StartTimer()
		own += timed(appenders, func(j int) { appendAll(b, s, mine[j]) })
		moved += timed(appenders, func(j int) { transferAll(b, s, fmt.Sprint("L_", i, "_", j), moving[j]) })
		bare += timed(appenders, func(j int) { copyAll(b, p, theirs[j]) })
		repeat += timed(appenders, func(j int) { appendAll(b, s, mine[j]) })
	}
	rows := float64(size * n * appenders * b.N)
	b.ReportMetric(rows/own.Seconds(), "append-rows/s")
	b.ReportMetric(rows/moved.Seconds(), "transfer-rows/s")
	b.ReportMetric(rows/repeat.Seconds(), "repeat-rows/s")
	b.ReportMetric(rows/bare.Seconds(), "copy-rows/s")
	b.ReportMetric(bare.Seconds()/own.Seconds(), "append/copy")
	b.ReportMetric(0, "ns/op")
}

// timed runs fn n times at once.
func timed(n int, fn func(i int)) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
	return time.Since(start)
}

func appendAll(b *testing.B, s *postgres.Store, batches [][]persister.Chunk) {
	for _, c := range batches {
		if _, err := s.Append(b.Context(), c); err != nil {
			b.Error(err)
		}
	}
}

// transferAll is appendAll with an offset.
func transferAll(b *testing.B, s *postgres.Store, stream string, batches [][]persister.Chunk) {
	for i, c := range batches {
		t := &persister.Transfer{Chunks: c, From: place(stream, uint64(i)), To: place(stream, uint64(i+1)), Owner: "p1"}
		if _, err := s.Transfer(b.Context(), t); err != nil {
			b.Error(err)
		}
	}
}

func copyAll(b *testing.B, p *pgxpool.Pool, bodies [][]byte) {
	err := p.AcquireFunc(b.Context(), func(c *pgxpool.Conn) error {
		for _, body := range bodies {
			if _, err := c.Conn().PgConn().CopyFrom(b.Context(), bytes.NewReader(body), postgres.CopyStatement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Error(err)
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
