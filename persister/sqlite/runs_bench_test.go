package sqlite

import (
	"fmt"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkRuns stores single events of so many live runs in transactions of 250, and prints the CPU time of a
// row. Each run grows at a place of its own in the table.
func BenchmarkRuns(b *testing.B) {
	for _, runs := range []int{100, 1_000, 5_000, 10_000, 20_000} {
		b.Run(fmt.Sprint(runs), func(b *testing.B) {
			const size = 250
			s := temp(b)
			writers := make([]*persistertest.Writer, runs)
			for i := range writers {
				writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, day)
			}
			text := persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, fmt.Sprintf("%0130d", 1)))
			next := 0
			var at persister.Offset
			var used time.Duration
			store := func(n int) {
				for range n / size {
					var packs []schema.Pack
					for range size {
						packs = append(packs, writers[next*7919%runs].Pack("", text))
						next++
					}
					t := &persister.Transfer{Chunks: chunks(b, packs...), From: at,
						To: persister.Offset{Stream: "L_0", Identity: "x", Position: at.Position + 1}}
					cpu := cputime.Process()
					if _, err := s.Transfer(b.Context(), t); err != nil {
						b.Fatal(err)
					}
					used += cputime.Process() - cpu
					at = t.To
				}
			}
			store(4 * runs) // so that they lie on pages of their own
			used = 0
			rows := 0
			for b.Loop() {
				store(20_000)
				rows += 20_000
			}
			b.ReportMetric(float64(used.Microseconds())/float64(rows), "cpu-us/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}
