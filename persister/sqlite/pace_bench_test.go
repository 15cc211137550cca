package sqlite

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/persister"
)

// BenchmarkHeld stores transactions on the only core that the process may use, beside a goroutine that always wants it, and
// prints how much CPU time the store takes in one go: held-ms is the longest of each transaction, in the middle and at most. It
// counts CPU time, so that other processes do not show. The merging of the write-ahead log is part of it.
func BenchmarkHeld(b *testing.B) {
	for _, c := range []struct {
		name  string
		size  int
		paced bool
	}{{"paced/600", 600, true}, {"backlog/2000", 2000, false}, {"backlog/8000", 8000, false}} {
		b.Run(c.name, func(b *testing.B) {
			s := temp(b)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			var longest []float64
			var at persister.Offset
			for i := 0; b.Loop(); i++ {
				for _, chunks := range batches(b, fmt.Sprint(i, "_"), 16_000/c.size, c.size) {
					t := &persister.Transfer{Chunks: chunks, From: at, Paced: c.paced,
						To: persister.Offset{Stream: "L_0", Identity: "x", Position: at.Position + 1}}
					held := beside(func() {
						if _, err := s.Transfer(b.Context(), t); err != nil {
							b.Fatal(err)
						}
					})
					at = t.To
					longest = append(longest, float64(held.Microseconds())/1000)
				}
			}
			slices.Sort(longest)
			b.ReportMetric(longest[len(longest)/2], "held-ms")
			b.ReportMetric(longest[len(longest)-1], "most-held-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// beside returns the most CPU time that fn takes without letting another goroutine run.
func beside(fn func()) (most time.Duration) {
	var done atomic.Bool
	ended := make(chan time.Duration)
	go func() {
		var most time.Duration
		for last := cputime.Process(); !done.Load(); {
			runtime.Gosched()
			now := cputime.Process()
			most, last = max(most, now-last), now
		}
		ended <- most
	}()
	fn()
	done.Store(true)
	return <-ended
}
