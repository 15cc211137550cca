package live_test

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"agentstream/edge/edgetest"
	"agentstream/edge/live"
	"agentstream/schema"
)

// readUntil reads events up to the one with this seq.
func readUntil(k *edgetest.Tap, seq schema.Seq) {
	k.T.Helper()
	for {
		line, err := k.Event()
		if err != nil {
			k.T.Fatalf("waiting for %d: %v", seq, err)
		}
		if r, err := schema.ScanLine([]byte(line)); err != nil || r.Seq > seq {
			k.T.Fatalf("waiting for %d: %v: %s", seq, err, line)
		} else if r.Seq == seq {
			return
		}
	}
}

// isComplete reports whether the stream was ended as complete.
func isComplete(k *edgetest.Tap, err error) bool {
	return !k.Ws && err == io.EOF || k.Ws && errors.Is(err, edgetest.ErrClosed) && k.Code == 1000
}

// span is what an event says of its numbers.
func span(line string) (first, last schema.Seq, err error) {
	r, err := schema.ScanLine([]byte(line))
	return r.First(), r.Seq, err
}

// gate stops readers for a while.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it stands open
}

func (g *gate) wait() {
	g.mu.Lock()
	ch := g.open
	g.mu.Unlock()
	if ch != nil {
		<-ch
	}
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// settle waits until so many streams are open and parked.
func settle(h *edgetest.House, n int) {
	h.T.Helper()
	var c live.Census
	ok := func() bool { c = h.Server.Census(); return c.Streams == n && c.Parked == n }
	defer func() {
		if !ok() {
			h.T.Logf("streams: %+v", c)
		}
	}()
	edgetest.Eventually(h.T, fmt.Sprintf("%d streams are parked", n), ok)
}
