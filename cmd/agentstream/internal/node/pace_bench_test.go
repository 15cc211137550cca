package node

import (
	"context"
	"testing"
	"time"

	"agentstream/schema"
)

// BenchmarkPaced is an append to a log that is quiet.
func BenchmarkPaced(b *testing.B) {
	p := newPaced(new(sinkLog), 1<<40, func(time.Duration) {})
	pack := &schema.Pack{Body: make([]byte, 400)}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Append(ctx, pack, 0); err != nil {
			b.Fatal(err)
		}
	}
}
