package sqlite

import (
	"fmt"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkAppend prints rows a second beside bare inserts of the same rows into the same table, one
// prepared statement a transaction: what the library does without our layer.
func BenchmarkAppend(b *testing.B) {
	s := temp(b)
	const n, size = 10, 2000
	var own, bare time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		mine, theirs := batches(b, fmt.Sprint("a", i, "_"), n, size), batches(b, fmt.Sprint("b", i, "_"), n, size)
		b.StartTimer()
		start := time.Now()
		for _, c := range mine {
			if _, err := s.Append(b.Context(), c); err != nil {
				b.Fatal(err)
			}
		}
		own += time.Since(start)
		start = time.Now()
		for _, c := range theirs {
			insertBare(b, s, c)
		}
		bare += time.Since(start)
	}
	rows := float64(n * size * b.N)
	b.ReportMetric(rows/own.Seconds(), "append-rows/s")
	b.ReportMetric(rows/bare.Seconds(), "bare-rows/s")
	b.ReportMetric(bare.Seconds()/own.Seconds(), "append/bare")
	b.ReportMetric(0, "ns/op")
}

// batches makes n transactions of events of about 300 bytes, of 100 runs, in packs of 10.
func batches(b *testing.B, prefix string, n, size int) [][]persister.Chunk {
	writers := make([]*persistertest.Writer, 100)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", prefix, i)}, day)
	}
	text := persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, fmt.Sprintf("%0130d", 1)))
	events := []schema.Event{text, text, text, text, text, text, text, text, text, text}
	out := make([][]persister.Chunk, n)
	for i := range out {
		var packs []schema.Pack
		for j := range size / len(events) {
			packs = append(packs, writers[j%len(writers)].Pack("", events...))
		}
		out[i] = chunks(b, packs...)
	}
	return out
}

func insertBare(b *testing.B, s *Store, batch []persister.Chunk) {
	tx, err := s.write.Begin()
	if err != nil {
		b.Fatal(err)
	}
	stmt, err := tx.Prepare(insertRows(1))
	if err != nil {
		b.Fatal(err)
	}
	for i := range batch {
		c := &batch[i]
		for _, r := range c.Rows {
			if _, err := stmt.Exec(c.Key.Tenant, c.Key.Run, int64(r.Seq), c.Head.Day, r.ID, c.Child, r.Type, r.TS.Format(time.RFC3339Nano), string(r.Line)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}
