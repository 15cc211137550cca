package main

import (
	"context"
	"time"
)

// pacer holds events back by the times that they carry. The clock begins with the first; a time that
// lies before an earlier one makes nothing wait.
type pacer struct {
	speed float64       // how many times faster; 0 is once
	most  time.Duration // longest pause, in the events' own time
	last  time.Time     // time of the last event
	due   time.Time     // when it was due
}

// until returns how long an event with this time is to wait from now on. Without a time it goes at
// once.
func (p *pacer) until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	now := time.Now()
	if p.last.IsZero() {
		p.due = now
	} else {
		gap := min(max(0, at.Sub(p.last)), p.most)
		if p.speed > 0 {
			gap = time.Duration(float64(gap) / p.speed)
		}
		p.due = p.due.Add(gap)
	}
	p.last = at
	return p.due.Sub(now)
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
