package sqlite

import (
	"context"
	"runtime"
	"time"
)

// A transaction works for about a slice at a time. When nothing waits behind it, it rests in between: it takes about a third
// of one core, for three times as long. So whatever else the process does waits for one slice, not for a transaction.
const (
	slice = time.Millisecond
	rest  = 2 * slice
)

// pace divides the work of a transaction.
type pace struct {
	rests bool
	since time.Time // when the slice began
}

// pause yields the core when the slice is over.
func (p *pace) pause(ctx context.Context) {
	if time.Since(p.since) >= slice {
		p.yield(ctx)
	}
}

// yield rests, until ctx ends at most. A transaction behind which more waits only lets those go first that wait for a core
// already.
func (p *pace) yield(ctx context.Context) {
	if p.rests {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	} else {
		runtime.Gosched()
	}
	p.since = time.Now()
}
