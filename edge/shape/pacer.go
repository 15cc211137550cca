package shape

import (
	"time"

	"agentstream/schema"
)

// The rate of native §4 R1.
const (
	Window = 100 * time.Millisecond // in which deltas are joined
	Rate   = 10                     // delta events a second, over all lanes and kinds

	// second is what Rate is held against. It is a little more than a second, because what leaves here
	// evenly arrives less so.
	second = 1050 * time.Millisecond
	// memory is how long a control event that pushed deltas out is expected to have a successor.
	memory = 2 * second
	// Patience is how long a delta waits at most. When lanes speak at the same time they have few
	// neighbours; then order and freshness count more than the rate.
	Patience = 300 * time.Millisecond
)

// Pacer turns records into those of a live view. A delta that comes after a pause goes at once; those
// that follow are joined and go one in a Window, at most Rate in a second. Everything that is not a
// delta goes at once, with what is pending before it. So that this keeps within the rate, too, a part
// of the rate is left to it: as many as it took lately, at least one. Whatever has waited for Patience
// goes. So what exceeds the rate is more control events between deltas than the rate allows, and,
// without Bundle, lanes that mingle. Callers tell it the time, which never goes back.
type Pacer struct {
	Filter Filter
	Bundle bool       // join deltas of different lanes, so that one event holds all that wait
	Last   schema.Seq // last event that was shown, or where the view begins

	Forced int // delta events that went out although the rate was used up

	spans  []span
	sent   [Rate]time.Time // when the last delta events went, newest first
	pushed [Rate]time.Time // when a control event last pushed one out, newest first
}

// Add takes the next record and appends what goes out now.
func (p *Pacer) Add(out []Out, now time.Time, r schema.Record) []Out {
	if !p.Filter.Match(r) {
		return out
	}
	s, ok := newSpan(r)
	if !ok {
		out = p.Flush(out, now)
		out = append(out, show(r, p.Last+1))
		p.Last = r.Seq
		return out
	}
	if n := len(p.spans); n == 0 || p.spans[n-1].size()+s.size() > MaxText || !p.spans[n-1].join(&s) {
		s.since = now
		p.spans = append(p.spans, s)
	}
	if len(p.spans) > maxWaiting {
		return p.Flush(out, now)
	}
	return p.Tick(out, now)
}

// Tick appends what has become due: one event, and those that would wait for too long if they went one
// in a Window after it.
func (p *Pacer) Tick(out []Out, now time.Time) []Out {
	if len(p.spans) == 0 || now.Before(p.earliest()) {
		return out
	}
	out = p.give(out, now)
	for len(p.spans) > 0 && now.Sub(p.spans[0].since) > Patience-Window {
		out = p.give(out, now)
	}
	return out
}

// Due returns when Tick has something; ok is false when nothing is pending.
func (p *Pacer) Due() (at time.Time, ok bool) {
	return p.earliest(), len(p.spans) > 0
}

// Watermark is the seq up to which everything was shown or is hidden, given that records up to seen were added.
func (p *Pacer) Watermark(seen schema.Seq) schema.Seq {
	if len(p.spans) > 0 {
		return p.spans[0].from - 1
	}
	return seen
}

// Flush appends all that is pending, whatever the rate.
func (p *Pacer) Flush(out []Out, now time.Time) []Out {
	for len(p.spans) > 0 {
		push(&p.pushed, now)
		out = p.give(out, now)
	}
	return out
}

// give shows what may go in one event.
func (p *Pacer) give(out []Out, now time.Time) []Out {
	n := 1
	if p.Bundle {
		n = len(p.spans)
	}
	o := together(p.spans[:n], p.Last+1)
	rest := copy(p.spans, p.spans[n:])
	clear(p.spans[rest:])
	p.spans = p.spans[:rest]
	p.Last = o.Seq
	if now.Sub(p.sent[Rate-1]) < second {
		p.Forced++
	}
	push(&p.sent, now)
	return append(out, o)
}

// earliest is when the next delta event may go; not later than when the oldest has waited for Patience.
func (p *Pacer) earliest() time.Time {
	newest := p.sent[0]
	reserve := 1
	for reserve < Rate-2 && newest.Sub(p.pushed[reserve]) < memory && !p.pushed[reserve].IsZero() {
		reserve++
	}
	at := newest.Add(Window)
	if oldest := p.sent[Rate-reserve-1].Add(second); oldest.After(at) {
		at = oldest
	}
	if len(p.spans) > 0 {
		if latest := p.spans[0].since.Add(Patience); latest.Before(at) {
			return latest
		}
	}
	return at
}

func push(ring *[Rate]time.Time, now time.Time) {
	copy(ring[1:], ring[:Rate-1])
	ring[0] = now
}
