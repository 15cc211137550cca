package schema_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// deltaLines is a run of n text deltas in one message.
func deltaLines(n int) [][]byte {
	s := schematest.Scenario{Events: []schema.Event{
		{Type: "run.lifecycle", Payload: []byte(`{"state":"running"}`)},
		{Type: "message.start", Payload: []byte(`{"message_id":"m","role":"assistant"}`)},
		{Type: "block.start", Payload: []byte(`{"index":0,"kind":"text"}`)},
	}}
	for i := range n {
		s.Events = append(s.Events, schema.Event{Type: "text.delta",
			Payload: fmt.Appendf(nil, `{"text":"word %d, ","index":0}`, i)})
	}
	var lines [][]byte
	for _, e := range schematest.NumberEvents(testRun, s) {
		lines = append(lines, e.AppendLine(nil))
	}
	return lines
}

// BenchmarkFoldRecords folds 100,000 deltas from the lines of the log.
func BenchmarkFoldRecords(b *testing.B) {
	lines := deltaLines(100_000)
	b.ReportAllocs()
	for b.Loop() {
		var f schema.Fold
		for _, line := range lines {
			r, err := schema.ScanLine(line)
			if err != nil {
				b.Fatal(err)
			}
			f.AddRecord(r)
		}
	}
}

// BenchmarkSnapshot writes the snapshot of 100,000 deltas.
func BenchmarkSnapshot(b *testing.B) {
	var f schema.Fold
	for _, line := range deltaLines(100_000) {
		r, err := schema.ScanLine(line)
		if err != nil {
			b.Fatal(err)
		}
		f.AddRecord(r)
	}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = f.AppendSnapshot(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}

// TestFoldAllocatesLittle: what a delta costs is its text, not objects.
func TestFoldAllocatesLittle(t *testing.T) {
	const n = 100_000
	lines := deltaLines(n)
	began := time.Now()
	allocs := testing.AllocsPerRun(1, func() {
		var f schema.Fold
		for _, line := range lines {
			r, err := schema.ScanLine(line)
			if err != nil {
				t.Error(err)
				return
			}
			f.AddRecord(r)
		}
		if f.Last != n+3 || f.Messages[0].Blocks[0].Text.Len() < 10*n {
			t.Errorf("last %d", f.Last)
		}
	})
	t.Logf("%d deltas, twice: %v, %.0f allocations each", n, time.Since(began), allocs)
	if allocs > 300 {
		t.Errorf("%.0f allocations for %d deltas", allocs, n)
	}
}
