package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// meter shows progress on a terminal, and keeps notices out of its line. Safe for concurrent use.
type meter struct {
	w      io.Writer
	screen Screen
	start  time.Time

	mu    sync.Mutex
	shown time.Time // last drawing; zero: the line is clean

	said time.Time // last line of progress that was printed
}

// How soon and how often progress is drawn.
const (
	meterAfter = time.Second
	meterEvery = 100 * time.Millisecond

	meterLineEvery = 10 * time.Second // where it is printed
)

func newMeter(w io.Writer, s Screen) *meter {
	now := time.Now()
	return &meter{w: w, screen: s, start: now, said: now}
}

// draw draws over the line of progress. It does nothing where the output is no terminal, early on, and too soon after
// the last time.
func (m *meter) draw(line func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.screen.Terminal || now.Sub(m.start) < meterAfter || now.Sub(m.shown) < meterEvery {
		return
	}
	m.shown = now
	fmt.Fprintf(m.w, "\r\x1b[K%s", line())
}

// progress draws over the line of progress. Where the output is no terminal it prints a line now and then. It is for
// one goroutine.
func (m *meter) progress(line func() string) {
	if m.screen.Terminal {
		m.draw(line)
		return
	}
	if now := time.Now(); now.Sub(m.said) >= meterLineEvery {
		m.said = now
		m.notice("%s", line())
	}
}

// bar returns a bar of which a part, from 0 to 1, is full.
func bar(part float64) string {
	const width = 24
	full := int(part * width)
	return fmt.Sprintf("[%s%s] %3.0f%% · ", strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*part)
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
