package tap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
)

// deliver writes events to the sink, and keeps what it refuses as dead letters.
func (s *store) deliver(ctx context.Context, events []Event) (persister.Result, error) {
	if len(events) == 0 {
		return persister.Result{}, nil
	}
	if err := s.awaitRoom(ctx); err != nil {
		return persister.Result{}, err
	}
	refused, err := s.cfg.Sink.Write(ctx, events)
	for _, r := range refused {
		e := &events[r.Event]
		letter := letterOf(e, persister.ReasonRefused, r.Detail, time.Now().UTC())
		if failed := s.keepLetter(ctx, letter); failed != nil {
			return persister.Result{}, errors.Join(err, failed)
		}
		s.cfg.Logger.Error("tap: the sink has refused an event; it is kept as a dead letter", "event", e.Key(),
			"detail", r.Detail)
		if h := s.cfg.Hooks.DeadLetter; h != nil {
			h("", persister.ReasonRefused)
		}
	}
	if err != nil {
		return persister.Result{}, fmt.Errorf("tap: deliver %d events from %s on: %w", len(events), events[0].Key(), err)
	}
	return persister.Result{Inserted: len(events) - len(refused)}, nil
}

// keepLetter stores a dead letter. Without room for it the tap waits: what is to be delivered comes again.
func (s *store) keepLetter(ctx context.Context, l Letter) error {
	err := s.cfg.Letters.Put(ctx, s.cfg.Spec.Name, l)
	if errors.Is(err, ErrLettersFull) {
		s.setFull(true)
	}
	return err
}

// awaitRoom returns an error while a tap waits that has found no room for a dead letter: its sink is not given again and
// again what it has refused.
func (s *store) awaitRoom(ctx context.Context) error {
	if !s.full.Load() {
		return nil
	}
	if err := s.cfg.Letters.Room(ctx, s.cfg.Spec.Name); err != nil {
		return err
	}
	s.setFull(false)
	return nil
}

// setFull notes whether the tap waits for room.
func (s *store) setFull(full bool) {
	s.full.Store(full)
	if h := s.cfg.Full; h != nil {
		h(full)
	}
}

// confirm confirms what was written to the sink: the place has moved after it.
func (s *store) confirm(ctx context.Context, p *lease) {
	runs := p.written
	p.written = nil
	if err := Confirm(ctx, s.cfg.Sink, runs); err != nil {
		s.cfg.Logger.Warn("tap: the sink has not used that a batch is done", "stream", p.stream, "error", err)
	}
}

// claim makes sure that this member has the partition, at the offset from which it has read.
func (s *store) claim(ctx context.Context, p *lease, t *persister.Transfer) error {
	fresh := p.known && p.place.Owner == t.Owner && p.place.Offset.Same(t.From)
	if fresh && time.Since(p.beat) < s.cfg.Stale/3 {
		return nil
	}
	if !fresh {
		p.written = nil // another member may have moved the place
		if err := s.load(ctx, p, t.From); err != nil {
			return err
		}
	}
	place := p.place
	place.Owner = t.Owner
	return s.move(ctx, p, place)
}

// load reads the place and the ledger of a partition.
func (s *store) load(ctx context.Context, p *lease, from persister.Offset) error {
	if err := s.loadPlace(ctx, p, from); err != nil {
		return err
	}
	p.known = false
	stored, err := s.cfg.Places.Ledger(ctx, s.cfg.Spec.Name, p.stream)
	if err != nil {
		return err
	}
	if p.ledger, err = decodeLedger(stored); err != nil { // without it events may come twice, and none is lost
		s.cfg.Logger.Warn("tap: the ledger cannot be read", "stream", p.stream, "error", err)
		p.ledger, _ = decodeLedger(nil)
	}
	p.known, p.saved = true, time.Now()
	return nil
}

// loadPlace reads the place of a partition, which must be the given one.
func (s *store) loadPlace(ctx context.Context, p *lease, from persister.Offset) error {
	places, err := s.cfg.Places.Places(ctx, s.cfg.Spec.Name)
	if err != nil {
		return err
	}
	p.known, p.place = false, Standing{Offset: persister.Offset{Stream: p.stream}}
	for _, place := range places {
		if place.Offset.Stream == p.stream {
			p.place = place
		}
	}
	if !p.place.Offset.Same(from) {
		return fmt.Errorf("tap: %s is at %d, not at %d: %w", p.stream, p.place.Offset.Position, from.Position,
			persister.ErrOvertaken)
	}
	p.known = true
	return nil
}

// move stores a place.
func (s *store) move(ctx context.Context, p *lease, place Standing) error {
	place.Beat++
	revision, err := s.cfg.Places.Move(ctx, s.cfg.Spec.Name, place)
	if err != nil {
		p.known = false
		return err
	}
	place.Revision = revision
	p.place, p.beat = place, time.Now()
	return nil
}

// hold writes from time to time that the partition is this member's, until release. The context that it returns ends
// when it is not.
func (s *store) hold(ctx context.Context, p *lease) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.cfg.Stale / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-held.Done():
				return
			}
			if err := s.move(ctx, p, p.place); errors.Is(err, persister.ErrOvertaken) {
				cancel(err)
				return
			}
		}
	}()
	return held, func() {
		cancel(nil)
		<-ended
	}
}

// note writes what was delivered into the ledger, and saves it when it is time.
func (s *store) note(ctx context.Context, p *lease, t *persister.Transfer) {
	for i := range t.Chunks {
		c := &t.Chunks[i]
		_, stored := c.Source()
		p.ledger.note(c.Key, c.Head.Last, stored, c.Head.State.Final())
	}
	if at := t.To.StoredAt; at.After(p.ledger.at) {
		p.ledger.at = at
	}
	if !p.overlap.IsZero() && p.ledger.at.After(p.overlap) {
		p.overlap = time.Time{}
	}
	if time.Since(p.saved) >= saveEvery {
		s.save(ctx, p)
	}
}

// save stores the ledger. One that cannot be stored is stored the next time.
func (s *store) save(ctx context.Context, p *lease) {
	p.saved = time.Now()
	p.ledger.prune()
	b, err := p.ledger.encode()
	if err == nil {
		err = s.cfg.Places.SaveLedger(ctx, s.cfg.Spec.Name, p.stream, b)
	}
	if err != nil {
		s.cfg.Logger.Warn("tap: the ledger is not saved", "stream", p.stream, "error", err)
	}
}

// leaveWait bounds the end of a member.
const leaveWait = 5 * time.Second

// leave leaves the partitions to other members. It is called after the last Transfer.
func (s *store) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if !p.known || p.ledger == nil {
			continue
		}
		s.save(ctx, p)
		place := p.place
		place.Owner = ""
		if err := s.move(ctx, p, place); err != nil {
			s.cfg.Logger.Debug("tap: a place is left to time out", "stream", place.Offset.Stream, "error", err)
		}
	}
}
