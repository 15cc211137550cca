package producers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/schema"
	"agentstream/schema/seal"
)

// builder turns events into numbered packs. It is shared by both writers, and used by one goroutine at a
// time.
type builder struct {
	key    schema.RunKey
	writer string
	now    func() time.Time
	ids    *schema.IDs
	trace  string // of the events at hand; "" for none
	keys   *seal.Keys
	sealer *seal.Sealer // of the pack at hand; nil: it is not sealed

	id   []byte // of the event at hand, in room where it fits
	room [32]byte
}

// limits bound one pack.
type limits struct {
	events int
	bytes  int
	late   bool // also what follows the end of the run
	// marks are those of the events, calls among which are not divided; nil: packs may end anywhere. A
	// call that does not fit one pack is divided all the same.
	marks []mark
}

// whole returns how many of the first n events can be stored without dividing a call; n when none can.
func (l limits) whole(n int) int {
	if l.marks == nil || n == 0 {
		return n
	}
	k := n
	for k > 0 && l.marks[k-1].rest > 0 {
		k--
	}
	if k == 0 {
		return n
	}
	return k
}

// build packs the longest prefix of events that is of one lane and within the limits, numbered
// behind head, and returns how many it took. An error is about the event after those; with n 0 there
// is no pack. events are not changed, so that they can be built again on another head.
func (b *builder) build(head schema.Head, lane schema.Lane, events []schema.Event, lim limits) (p *schema.Pack, n int,
	err error) {
	if b.sealer != nil { // a limit is of what there is to read, as far as it can be stored
		lim.bytes = min(2*lim.bytes, schema.MaxPackBytes)
	}
	p, n, err = b.fill(head, lane, events, lim)
	if err != nil || n == len(events) {
		return p, n, err
	}
	if k := lim.whole(n); k < n {
		return b.fill(head, lane, events[:k], lim)
	}
	return p, n, nil
}

func (b *builder) fill(head schema.Head, lane schema.Lane, events []schema.Event, lim limits) (p *schema.Pack, n int,
	err error) {
	now := b.now().UTC()
	stamp := b.ids.Stamp(now)
	if head.Day == "" {
		head.Day = now.Format("20060102")
	}
	head.Lane, head.Stored = lane, 0
	p = &schema.Pack{Key: b.key, Child: events[0].ChildID, First: head.Last + 1, Writer: b.writer}
	p.Body = make([]byte, 0, min(lim.bytes, b.guess(events[:min(len(events), lim.events)])))
	floor := head.LastID
	b.id = b.room[:0]
	for n < len(events) && n < lim.events && events[n].ChildID == p.Child {
		e := &events[n]
		if b.trace != "" {
			traced := e.WithTrace(b.trace)
			e = &traced
		}
		if n > 0 && len(p.Body)+b.size(e) > lim.bytes {
			break
		}
		if err = b.checkForm(e); err != nil {
			break
		}
		if e.Seq != 0 && e.Seq != head.Last+1 {
			err = fmt.Errorf("%w: %d instead of %d", schema.ErrSeqMismatch, e.Seq, head.Last+1)
			break
		}
		if err = advance(&head, e, "", lim.late); err != nil {
			break
		}
		ts := e.TS
		if ts == "" {
			ts = stamp
		}
		if e.ID == "" {
			b.id, floor = b.ids.AppendEvent(b.room[:0], now, floor), ""
		} else {
			b.id, floor = append(b.room[:0], e.ID...), e.ID
		}
		if b.sealer == nil {
			p.Body = append(e.AppendNumbered(p.Body, b.id, ts, b.key.Run, head.Last), '\n')
		} else if p.Body, err = b.sealer.AppendNumbered(p.Body, e, b.id, ts, b.key.Run, head.Last); err != nil {
			return nil, 0, err
		} else {
			p.Body = append(p.Body, '\n')
		}
		n++
	}
	head.LastID = string(b.id)
	p.Count, p.Head = n, head
	return p, n, err
}

// size is the most that an event may take in a pack.
func (b *builder) size(e *schema.Event) int {
	if b.sealer != nil {
		return seal.Size(e)
	}
	return e.Size()
}

// checkForm refuses what would be taken for sealed when it is read.
func (b *builder) checkForm(e *schema.Event) error {
	if b.keys != nil && seal.HasForm(e.Payload) {
		return fmt.Errorf("payload ends with $sealed, which is not for clients: %w", schema.ErrMalformed)
	}
	return nil
}

// open gets what seals the next pack. It waits while the key service does not answer.
func (w *writer) open(ctx context.Context) error {
	if w.build.keys == nil {
		return nil
	}
	return w.patiently(ctx, func(ctx context.Context) (err error) {
		w.build.sealer, err = w.build.keys.Sealer(ctx, w.build.key.Tenant)
		return err
	})
}

// advance moves a head over an event; late: also over one that a run which is over does not take.
func advance(h *schema.Head, e *schema.Event, id string, late bool) error {
	err := h.Advance(e.Type, e.ChildID, id, e.Payload)
	if late && errors.Is(err, schema.ErrEnded) {
		h.Follow(id)
		return nil
	}
	return err
}

// guess returns the length of the lines. An event's Size bounds it from above, by twice as much.
func (b *builder) guess(events []schema.Event) int {
	n := len(events) * (envelopeBytes + len(b.key.Run))
	for i := range events {
		e := &events[i]
		if b.sealer != nil {
			n += seal.Size(e) - envelopeBytes
			continue
		}
		n += len(e.Type) + len(e.ChildID) + len(e.TurnID) + len(e.Cause) + len(e.Actor) + len(e.Extra) + len(e.Payload)
		for _, id := range e.Path {
			n += len(id) + len(`"",`)
		}
	}
	return n
}

// envelopeBytes is what a line has beside the values of its event: names, id, time and number.
const envelopeBytes = 192
