package shape

import (
	"fmt"
	"testing"
	"time"

	"agentstream/schema"
)

// said returns n deltas: of so many lanes in turns, with a number beside the text or without.
func said(b *testing.B, n, lanes int, fields bool) (list []schema.Record) {
	b.Helper()
	for i := range n {
		e := schema.Event{ID: "evt_01M7YGHFE73AMKBDGQX7XNTZXX", TS: "2026-01-02T03:04:05.000Z", Type: "text.delta",
			RunID: "run", Seq: schema.Seq(i + 1),
			Payload: fmt.Appendf(nil, `{"text":"word %d ","index":0}`, i)}
		if fields {
			e.Payload = fmt.Appendf(nil, `{"text":"word %d ","index":0,"logprob":-0.%d}`, i, i)
		}
		if lanes > 1 {
			e.ChildID = fmt.Sprint("child", i%lanes)
		}
		r, err := schema.ScanLine(e.AppendLine(nil))
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// BenchmarkShape reports what a delta costs, once for all who watch a view, at 100 a second.
func BenchmarkShape(b *testing.B) {
	const n = 10000
	for _, m := range []struct {
		name   string
		lanes  int
		fields bool
	}{{"one lane", 1, false}, {"one lane with fields", 1, true}, {"8 lanes", 8, false}} {
		rs := said(b, n, m.lanes, m.fields)
		for _, bundle := range []bool{false, true} {
			b.Run(fmt.Sprintf("pacer/%s/bundle=%v", m.name, bundle), func(b *testing.B) {
				b.ReportAllocs()
				shown := 0
				var out []Out
				for b.Loop() {
					p, now := Pacer{Bundle: bundle}, time.Unix(1000, 0)
					for _, r := range rs {
						out = p.Add(p.Tick(out[:0], now), now, r)
						shown += len(out)
						now = now.Add(10 * time.Millisecond)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*b.N), "ns/event")
				b.ReportMetric(float64(shown)/float64(n*b.N), "shown/event")
			})
		}
		b.Run("folder/"+m.name, func(b *testing.B) {
			b.ReportAllocs()
			var out []Out
			for b.Loop() {
				f := Folder{Merge: true}
				for _, r := range rs {
					out = f.Add(out[:0], r)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*b.N), "ns/event")
		})
	}
}
