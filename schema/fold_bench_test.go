package schema_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/internal/cputime"
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
		s.Events = append(s.Events, schema.Event{Type: "text.delta", Payload: fmt.Appendf(nil, `{"text":"word %d, ","index":0}`, i)})
	}
	var lines [][]byte
	for _, e := range schematest.Numbered(testRun, s) {
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

// TestFoldOfMuch: what a fold does with many of everything grows with their number alone.
func TestFoldOfMuch(t *testing.T) {
	const n = 20_000
	for name, write := range map[string]func(i int) (lane, typ, payload string){
		"blocks": func(i int) (string, string, string) {
			return "", "text.delta", fmt.Sprintf(`{"index":%d,"text":"x"}`, i)
		},
		"inputs": func(i int) (string, string, string) {
			return "", "tool.input.delta", fmt.Sprintf(`{"call_id":"c%d","text":"x"}`, i)
		},
		"calls": func(i int) (string, string, string) {
			return "", "tool.start", fmt.Sprintf(`{"call_id":"c%d","tool":"x"}`, i)
		},
		"lanes": func(i int) (string, string, string) { return fmt.Sprintf("run_%d", i), "text.delta", `{"text":"x"}` },
		"waiting": func(i int) (string, string, string) {
			if i%2 == 0 {
				return "", "command.message", `{"content":"x"}`
			}
			return "", "run.lifecycle", `{"state":"running"}`
		},
		"ends": func(i int) (string, string, string) {
			if i%2 == 0 {
				return fmt.Sprintf("run_%d", i), "text.delta", `{"text":"x"}`
			}
			return "", "run.lifecycle", [2]string{`{"state":"running"}`, `{"state":"done"}`}[i/2%2]
		},
	} {
		cost := func(n int) time.Duration {
			var f schema.Fold
			took := cputime.Of(func() {
				for i := range n {
					lane, typ, payload := write(i)
					f.Add(&schema.Event{Type: typ, ChildID: lane, Seq: schema.Seq(i + 1), Payload: []byte(payload)})
				}
			})
			if b := f.AppendSnapshot(nil); len(b) > f.Size()+2000 {
				t.Errorf("%s: size %d, snapshot of %d bytes", name, f.Size(), len(b))
			}
			return took
		}
		few, many := cost(n), cost(8*n)
		t.Logf("%-8s %7d: %8v  %7d: %8v", name, n, few, 8*n, many)
		if many > 40*few+200*time.Millisecond { // 64 times if it were quadratic
			t.Errorf("%s: %v for %d, %v for %d", name, few, n, many, 8*n)
		}
	}
}
