package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// publishMeter shows how far a publication is. Safe for concurrent use.
type publishMeter struct {
	*meter
	total int64 // bytes; -1 is not known
	read  byteCounter
}

func newPublishMeter(w io.Writer, s Screen, total int64) *publishMeter {
	return &publishMeter{meter: newMeter(w, s), total: total}
}

func (m *publishMeter) show(events int) {
	m.draw(func() string {
		read := m.read.n.Load()
		line := fmt.Sprintf("%d events · %s · %.0f events/s", events, byteCount(read), float64(events)/time.Since(m.start).Seconds())
		if m.total > 0 {
			line = bar(min(1, float64(read)/float64(m.total))) + line
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
