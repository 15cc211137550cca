package publish

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"agentstream/cmd/agentstream/internal/terminal"
)

// publishMeter shows how far a publication is. Safe for concurrent use.
type publishMeter struct {
	*terminal.Meter
	total int64 // bytes; -1 is not known
	read  byteCounter
}

func newPublishMeter(w io.Writer, s terminal.Screen, total int64) *publishMeter {
	return &publishMeter{Meter: terminal.NewMeter(w, s), total: total}
}

func (m *publishMeter) show(events int) {
	m.Draw(func() string {
		read := m.read.n.Load()
		line := fmt.Sprintf("%d events · %s · %.0f events/s", events, terminal.ByteCount(read),
			float64(events)/time.Since(m.Start).Seconds())
		if m.total > 0 {
			line = terminal.Bar(min(1, float64(read)/float64(m.total))) + line
		}
		return line
	})
}

type byteCounter struct{ n atomic.Int64 }

// Write counts.
func (c *byteCounter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
