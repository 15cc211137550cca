package schema_test

import (
	"strconv"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

func BenchmarkAppendLine(b *testing.B) {
	events := schematest.NumberEvents(testRun, schematest.ByName("long"))
	var buf []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		buf = events[i%len(events)].AppendLine(buf[:0])
		b.SetBytes(int64(len(buf)))
	}
}

func BenchmarkScanLine(b *testing.B) {
	lines := longLines()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		line := lines[i%len(lines)]
		r, err := schema.ScanLine(line)
		if err != nil || r.Payload() == nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(line)))
	}
}

func BenchmarkDecodeLine(b *testing.B) {
	lines := longLines()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := schema.DecodeLine(lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeBatch takes a producer's batch of 100 events apart.
func BenchmarkDecodeBatch(b *testing.B) {
	var body []byte
	for _, line := range longLines()[:100] {
		body = append(append(body, line...), '\n')
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := schema.DecodeBatch(testRun, body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodePost takes the body of a request with one or many plain deltas apart.
func BenchmarkDecodePost(b *testing.B) {
	const event = `{"type":"text.delta","payload":{"text":"~00000.0000000000.0000000000000000000~ The quick brown fox jumps ` +
		`over the lazy dog, and a token of a model is seldom longer than what stands here: this is a long one. ~~~~~~~~"}}` + "\n"
	for _, events := range []int{1, 64} {
		b.Run(strconv.Itoa(events), func(b *testing.B) {
			body := []byte(strings.Repeat(event, events))
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := schema.DecodeBatch(testRun, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFold(b *testing.B) {
	events := schematest.NumberEvents(testRun, schematest.ByName("long"))
	b.ReportAllocs()
	for b.Loop() {
		var f schema.Fold
		for i := range events {
			f.Add(&events[i])
		}
	}
}

func longLines() [][]byte {
	events := schematest.NumberEvents(testRun, schematest.ByName("long"))
	lines := make([][]byte, len(events))
	for i := range events {
		lines[i] = events[i].AppendLine(nil)
	}
	return lines
}
