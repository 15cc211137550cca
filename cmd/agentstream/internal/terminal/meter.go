package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Meter shows progress on a terminal, and keeps notices out of its line. Safe for concurrent use.
type Meter struct {
	w      io.Writer
	Screen Screen
	Start  time.Time

	mu    sync.Mutex
	shown time.Time // last drawing; zero: the line is clean

	printed time.Time // last line of progress that was printed
}

// How soon and how often progress is drawn.
const (
	meterAfter = time.Second
	meterEvery = 100 * time.Millisecond

	meterLineEvery = 10 * time.Second // where it is printed
)

// NewMeter returns a meter that begins now.
func NewMeter(w io.Writer, s Screen) *Meter {
	now := time.Now()
	return &Meter{w: w, Screen: s, Start: now, printed: now}
}

// Draw draws over the line of progress. It does nothing where the output is no terminal, early on, and too soon after
// the last time.
func (m *Meter) Draw(line func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.Screen.Terminal || now.Sub(m.Start) < meterAfter || now.Sub(m.shown) < meterEvery {
		return
	}
	m.shown = now
	fmt.Fprintf(m.w, "\r\x1b[K%s", line())
}

// Progress draws over the line of progress. Where the output is no terminal it prints a line now and then. It is for
// one goroutine.
func (m *Meter) Progress(line func() string) {
	if m.Screen.Terminal {
		m.Draw(line)
		return
	}
	if now := time.Now(); now.Sub(m.printed) >= meterLineEvery {
		m.printed = now
		m.Notice("%s", line())
	}
}

// Bar returns a bar of which a part, from 0 to 1, is full.
func Bar(part float64) string {
	const width = 24
	full := int(part * width)
	return fmt.Sprintf("[%s%s] %3.0f%% · ", strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*part)
}

// Clear removes the line.
func (m *Meter) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
}

func (m *Meter) clearLocked() {
	if !m.shown.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.shown = time.Time{}
	}
}

// Notice prints a line, and removes the line of progress before.
func (m *Meter) Notice(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
	fmt.Fprintf(m.w, "agentstream: "+format+"\n", args...)
}
