package cli

import "time"

// Pacer holds events back by the times that they carry. The clock begins with the first; a time that
// lies before an earlier one makes nothing wait.
type Pacer struct {
	Speed float64       // how many times faster; 0 is once
	Most  time.Duration // longest pause, in the events' own time
	last  time.Time     // time of the last event
	due   time.Time     // when it was due
}

// Until returns how long an event with this time is to wait from now on. Without a time it goes at
// once.
func (p *Pacer) Until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	now := time.Now()
	if p.last.IsZero() {
		p.due = now
	} else {
		gap := min(max(0, at.Sub(p.last)), p.Most)
		if p.Speed > 0 {
			gap = time.Duration(float64(gap) / p.Speed)
		}
		p.due = p.due.Add(gap)
	}
	p.last = at
	return p.due.Sub(now)
}
