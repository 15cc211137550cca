package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// meter shows progress on a terminal, and keeps notices out of its line. Safe for concurrent use.
type meter struct {
	w      io.Writer
	screen Screen
	total  int64 // bytes; -1 is not known
	start  time.Time
	read   byteCounter

	mu    sync.Mutex
	shown time.Time // last drawing; zero: the line is clean
}

type byteCounter struct{ n atomic.Int64 }

// Write counts.
func (c *byteCounter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// How soon and how often progress is drawn.
const (
	meterAfter = time.Second
	meterEvery = 100 * time.Millisecond
)

func newMeter(w io.Writer, s Screen, total int64) *meter {
	return &meter{w: w, screen: s, total: total, start: time.Now()}
}

func (m *meter) show(events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.screen.Terminal || now.Sub(m.start) < meterAfter || now.Sub(m.shown) < meterEvery {
		return
	}
	m.shown = now
	read := m.read.n.Load()
	line := fmt.Sprintf("%d events · %s · %.0f events/s", events, byteCount(read), float64(events)/now.Sub(m.start).Seconds())
	if m.total > 0 {
		const width = 24
		part := min(1, float64(read)/float64(m.total))
		full := int(part * width)
		line = fmt.Sprintf("[%s%s] %3.0f%% · %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*part, line)
	}
	fmt.Fprintf(m.w, "\r\x1b[K%s", line)
}

// clear removes the line.
func (m *meter) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
}

func (m *meter) clearLocked() {
	if !m.shown.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.shown = time.Time{}
	}
}

func (m *meter) notice(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
	fmt.Fprintf(m.w, "agentstream: "+format+"\n", args...)
}
