package producers

import (
	"fmt"
	"math/rand/v2"
	"time"

	"agentstream/schema"
)

// builder turns events into numbered packs. It is shared by both writers.
type builder struct {
	key    schema.RunKey
	writer string
	now    func() time.Time
	ids    *schema.IDs
}

// limits bound one pack.
type limits struct {
	events int
	bytes  int
	// whole gives how many of the first n events may be stored without the one behind them; nil: all.
	// With 0, what begins with the first event does not fit one pack and is divided.
	whole func(n int) int
}

// build packs the longest prefix of events that is of one lane and within the limits, numbered
// behind head, and says how many it took. An error is about the event behind those; with n 0 there
// is no pack. events are not changed, so that they can be built again on another head.
func (b *builder) build(head schema.Head, lane schema.Lane, events []schema.Event, lim limits) (p *schema.Pack, n int, err error) {
	p, n, err = b.fill(head, lane, events, lim)
	if err != nil || lim.whole == nil || n == len(events) {
		return p, n, err
	}
	if k := lim.whole(n); k > 0 && k < n {
		return b.fill(head, lane, events[:k], lim)
	}
	return p, n, nil
}

func (b *builder) fill(head schema.Head, lane schema.Lane, events []schema.Event, lim limits) (p *schema.Pack, n int, err error) {
	now := b.now().UTC()
	h := head.Clone()
	if h.Day == "" {
		h.Day = now.Format("20060102")
	}
	h.Lane, h.Stored = lane, 0
	p = &schema.Pack{Key: b.key, Child: events[0].ChildID, First: head.Last + 1, Writer: b.writer}
	p.Body = make([]byte, 0, min(lim.bytes, sizeOf(events, lim.events))+64)
	stamp := ""
	for n < len(events) && n < lim.events && events[n].ChildID == p.Child {
		e := events[n]
		if n > 0 && len(p.Body)+e.Size() > lim.bytes {
			break
		}
		if e.Seq != 0 && e.Seq != h.Last+1 {
			err = fmt.Errorf("seq %d where %d is next: %w", e.Seq, h.Last+1, schema.ErrSeqMismatch)
			break
		}
		if e.ID == "" {
			e.ID = b.ids.Event(now, h.LastID)
		}
		if e.TS == "" {
			if stamp == "" {
				stamp = now.Format(schema.TimeLayout)
			}
			e.TS = stamp
		}
		if err = h.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil {
			break
		}
		e.RunID, e.Seq = b.key.Run, h.Last
		p.Body = append(e.AppendLine(p.Body), '\n')
		n++
	}
	p.Count, p.Head = n, h
	return p, n, err
}

func sizeOf(events []schema.Event, most int) int {
	n := 0
	for i := range events[:min(len(events), most)] {
		n += events[i].Size()
	}
	return n
}

// pause gives the wait before attempt n (from 0): it grows from base to at most cap, with full
// jitter, so that writers that collide part.
func pause(n int, base, most time.Duration) time.Duration {
	d := base << min(n, 16)
	if d > most || d <= 0 {
		d = most
	}
	return base/2 + rand.N(d)
}
