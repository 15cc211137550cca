package sqlite

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// BenchmarkAppendFrames prints the user CPU that appends take, in microseconds a row, of batches of 2,000 rows of 100
// runs in which none, every tenth and every row begins or ends a message or a call.
func BenchmarkAppendFrames(b *testing.B) {
	for _, frames := range []int{0, 1, 10} {
		b.Run(fmt.Sprint("of_ten=", frames), func(b *testing.B) {
			s := temp(b)
			const n, size = 10, 2000
			var took time.Duration
			for i := 0; b.Loop(); i++ {
				made := framedBatches(b, fmt.Sprint(i, "_"), n, size, frames)
				runtime.GC() // what was thrown away to make them is not of the appends
				begin := userTime(b)
				for _, batch := range made {
					if _, err := s.Append(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
				}
				took += userTime(b) - begin
			}
			b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(n*size*b.N), "user-us/row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// userTime returns the user CPU that the process has taken.
func userTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// framedBatches makes n transactions of events of 100 runs in packs of ten, of which frames begin or end messages and
// calls, and the others are deltas.
func framedBatches(b *testing.B, prefix string, n, size, frames int) [][]persister.Chunk {
	writers := make([]*persistertest.Writer, 100)
	for i := range writers {
		writers[i] = persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", prefix, i)}, day)
		writers[i].At(time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC))
	}
	out := make([][]persister.Chunk, n)
	made := make([]int, len(writers)) // frames of each run
	for i := range out {
		var packs []schema.Pack
		for j := range size / 10 {
			events := make([]schema.Event, 10)
			of := j % len(writers)
			for k := range events {
				events[k] = persistertest.Event(schema.TypeTextDelta, fmt.Sprintf(`{"text":"%0130d"}`, 1))
				if k < frames {
					events[k] = framed(made[of]%4, made[of]/4)
					made[of]++
				}
			}
			packs = append(packs, writers[of].Pack("", events...))
		}
		out[i] = chunks(b, packs...)
	}
	return out
}

// framed returns the start or the end of a message, or of a call.
func framed(kind, id int) schema.Event {
	switch kind {
	case 0:
		return persistertest.Event(schema.TypeMessageStart,
			fmt.Sprintf(`{"message_id":"msg_01J9ZT3M6Q7V8X%06d","role":"assistant","model":"model-1"}`, id))
	case 1:
		return persistertest.Event(schema.TypeMessageEnd,
			fmt.Sprintf(`{"message_id":"msg_01J9ZT3M6Q7V8X%06d","content":[{"type":"text","text":"%0600d"}],`+
				`"stop_reason":"end_turn","usage":{"input_tokens":900,"output_tokens":70}}`, id, 1))
	case 2:
		return persistertest.Event(schema.TypeToolStart,
			fmt.Sprintf(`{"call_id":"call_01J9ZT3M6Q7V8%06d","tool":"grep","input":{"q":"x"}}`, id))
	default:
		return persistertest.Event(schema.TypeToolEnd,
			fmt.Sprintf(`{"call_id":"call_01J9ZT3M6Q7V8%06d","ok":true,"duration_ms":12,"output":"found"}`, id))
	}
}
