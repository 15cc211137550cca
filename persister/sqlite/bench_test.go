package sqlite

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkAppend prints rows a second, without an offset and with one, beside bare inserts of the same rows into the
// same table, in transactions of the same size over the same connection: statements of as many rows as is best
// (BenchmarkBare), prepared once, with arguments that were made before the clock runs. That is what the library does
// without our layer.
func BenchmarkAppend(b *testing.B) {
	s := temp(b)
	const n, size = 10, 2000
	var own, moved, bare time.Duration
	var at persister.Offset
	reference := newBare(b, s, bareRows)
	for i := 0; b.Loop(); i++ {
		mine, theirs := batches(b, fmt.Sprint("a", i, "_"), n, size), batches(b, fmt.Sprint("b", i, "_"), n, size)
		moving := batches(b, fmt.Sprint("t", i, "_"), n, size)
		for j := range mine { // one after the other, so that both have their part in what the other leaves to be done
			start := time.Now()
			if _, err := s.Append(b.Context(), mine[j]); err != nil {
				b.Fatal(err)
			}
			own += time.Since(start)
			t := &persister.Transfer{Chunks: moving[j], From: at,
				To: persister.Offset{Stream: "L_0", Identity: "x", Position: at.Position + 1}}
			start = time.Now()
			if _, err := s.Transfer(b.Context(), t); err != nil {
				b.Fatal(err)
			}
			moved += time.Since(start)
			at = t.To
			bare += reference.insert(b, theirs[j])
		}
	}
	rows := float64(n * size * b.N)
	b.ReportMetric(rows/own.Seconds(), "append-rows/s")
	b.ReportMetric(rows/moved.Seconds(), "transfer-rows/s")
	b.ReportMetric(rows/bare.Seconds(), "bare-rows/s")
	b.ReportMetric(bare.Seconds()/own.Seconds(), "append/bare")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBare looks for the best number of rows in a statement.
func BenchmarkBare(b *testing.B) {
	for _, rows := range []int{1, 16, 64, bareRows, 250, 500, 1000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			s := temp(b)
			reference := newBare(b, s, rows)
			var took time.Duration
			for i := 0; b.Loop(); i++ {
				for _, c := range batches(b, fmt.Sprint(i, "_"), 10, 2000) {
					took += reference.insert(b, c)
				}
			}
			b.ReportMetric(float64(20_000*b.N)/took.Seconds(), "bare-rows/s")
			b.ReportMetric(0, "ns/op")
		})
	}
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

// bareRows is what BenchmarkBare finds best.
const bareRows = 128

const bareColumns = 9

func insertBare(rows int) string {
	return `insert or ignore into agent_run_events (koder_user_id, run_id, seq, run_day, id, child_id, type, ts, line) values ` +
		strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,nullif(?,''),?,?,?),", rows), ",")
}

// bare inserts without the store.
type bare struct {
	store      *Store
	rows       int
	many, rest *sql.Stmt
}

func newBare(b *testing.B, s *Store, rows int) *bare {
	prepare := func(n int) *sql.Stmt {
		stmt, err := s.write.Prepare(insertBare(n))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = stmt.Close() })
		return stmt
	}
	return &bare{store: s, rows: rows, many: prepare(rows), rest: prepare(1)}
}

// insert returns the time of the transaction alone.
func (r *bare) insert(b *testing.B, batch []persister.Chunk) time.Duration {
	var args []any
	for i := range batch {
		c := &batch[i]
		for _, r := range c.Rows {
			args = append(args, c.Key.Tenant, c.Key.Run, int64(r.Seq), c.Head.Day, r.ID, c.Child, r.Type,
				r.TS.Format(time.RFC3339Nano), string(r.Line))
		}
	}
	start := time.Now()
	tx, err := r.store.write.Begin()
	if err != nil {
		b.Fatal(err)
	}
	many, rest := tx.Stmt(r.many), tx.Stmt(r.rest)
	for stmt, n := many, r.rows*bareColumns; len(args) > 0; args = args[n:] {
		if len(args) < n {
			stmt, n = rest, bareColumns
		}
		if _, err := stmt.Exec(args[:n]...); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
