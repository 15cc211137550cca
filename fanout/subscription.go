package fanout

import (
	"context"
	"fmt"
	"iter"
	"sort"

	"agentstream/schema"
)

// Batch is what a reader gets at once: packs in order, without a hole. Records with seq ≤ After have
// been delivered before: walk each pack with Pack.Records(After).
type Batch struct {
	Packs []schema.Pack
	After schema.Seq
	Ended bool // the run is over, and this batch reaches its newest event
}

// Bounds of one replayed batch, so that a reader's memory does not grow with the run.
const (
	batchPacks = 256
	batchBytes = 256 << 10
)

// Subscription is one reader's position in a run. One goroutine at a time may use it.
type Subscription struct {
	hub   *Hub
	topic *topic
	ctx   context.Context // of the reader: a replay that is under way ends with it
	head  schema.Head
	pos   schema.Seq // last event delivered
	tell  func(bool) // tells who waits for more; nil: nobody does. The topic's mu guards it

	// The replay under way; nil when live.
	pull    func() (schema.Pack, error, bool)
	finish  func()
	through schema.Seq   // where it will have caught up
	first   *schema.Pack // pulled by Subscribe to learn whether the cursor is still kept
}

// Subscribe opens a position in a run. after is the seq of the last event that the reader has, 0 for the
// start. ctx bounds the whole life of the subscription. Errors: ErrNotFound; ErrFuture, the cursor is
// beyond the newest event; ErrExpired, the events after it are no longer kept; ErrUnavailable;
// ErrClosed. The caller must Close what it gets.
func (h *Hub) Subscribe(ctx context.Context, key schema.RunKey, after schema.Seq) (*Subscription, error) {
	return h.subscribe(ctx, key, after, true)
}

// Await opens a position at the start of a run that need not be there yet: Next waits for its beginning. Its errors are
// those of Subscribe; ErrNotFound is a ChildError for the id of a child of another run, and Next returns that too when
// the id becomes one.
func (h *Hub) Await(ctx context.Context, key schema.RunKey) (*Subscription, error) {
	return h.subscribe(ctx, key, 0, false)
}

func (h *Hub) subscribe(ctx context.Context, key schema.RunKey, after schema.Seq, begun bool) (*Subscription, error) {
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("fanout: subscribe: %w", err)
	}
	f, fresh, err := h.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	s := &Subscription{hub: h, topic: f, ctx: ctx, pos: after}
	if begun && fresh && !f.view.Load().head.HasEvents() {
		err = fmt.Errorf("fanout: subscribe to %s: %w", key, ErrNotFound)
	} else {
		err = s.open(begun)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Subscription) open(begun bool) error {
	v := s.topic.view.Load()
	s.head = *v.head
	if s.pos > v.hi || begun && !v.head.HasEvents() {
		// The topic may lag behind what the reader got elsewhere; the leader does not.
		head, err := s.hub.Head(s.ctx, s.topic.key)
		if err != nil {
			return err
		}
		if s.pos > head.Last {
			return fmt.Errorf("fanout: subscribe to %s behind %d, newest is %d: %w", s.topic.key, s.pos, head.Last, ErrFuture)
		}
		s.head = head
		s.topic.expect(head.Last)
	}
	if s.pos < v.hi && s.pos+1 < v.lo {
		s.replay(v.hi)
		p, err, ok := s.pull()
		if err != nil {
			return err
		}
		if ok {
			s.first = &p
		}
	}
	return nil
}

// Head returns the run's head when the subscription was opened.
func (s *Subscription) Head() schema.Head { return s.head }

// Next waits until there is something behind the position and returns it. After an error the
// subscription is of no more use; what was delivered is good, and the reader may come back with its
// position as cursor.
func (s *Subscription) Next(ctx context.Context) (Batch, error) {
	for {
		if err := s.Wait(ctx); err != nil {
			return Batch{}, err
		}
		if s.pull != nil {
			b, err := s.nextReplayed()
			if err != nil || len(b.Packs) > 0 {
				return b, err
			}
			continue
		}
		v := s.topic.view.Load()
		switch {
		case s.pos < v.hi && s.pos+1 >= v.lo:
			i := sort.Search(len(v.packs), func(i int) bool { return v.packs[i].Last() > s.pos })
			b := Batch{Packs: v.packs[i:], After: s.pos, Ended: v.head.State.Final()}
			packs, err := s.hub.open(ctx, b.Packs)
			if err != nil {
				return Batch{}, err
			}
			b.Packs = packs
			s.pos = v.hi
			return b, nil
		case s.pos < v.hi:
			s.replay(v.hi) // fell out of the ring, or never was in it
		case v.err != nil:
			return Batch{}, v.err
		}
	}
}

// Live reports whether Next returns what the hub has in memory, without a look at history.
func (s *Subscription) Live() bool { return s.pull == nil && s.pos+1 >= s.topic.view.Load().lo }

// Wait waits until Next returns at once.
func (s *Subscription) Wait(ctx context.Context) error {
	if s.ready() {
		return nil
	}
	wake := make(chan struct{}, 1)
	tell := func(bool) { wake <- struct{}{} }
	for !s.Notify(tell) {
		select {
		case <-wake:
		case <-ctx.Done():
			s.topic.leave(s)
			return context.Cause(ctx)
		}
	}
	return nil
}

// Notify reports whether Next returns at once. When it does not, tell is called once when it may, without a lock; once
// more may follow a Close. It must not block. here says that the goroutine which calls it is that of the writer, and
// may be used for what is to be done at once, if that waits for nothing. So nothing but the subscription is held by who
// waits.
func (s *Subscription) Notify(tell func(here bool)) bool {
	for !s.ready() {
		if v := s.topic.view.Load(); !s.behind(v) && s.topic.wait(s, v, tell) {
			return false
		}
	}
	return true
}

// ready reports whether Next returns at once.
func (s *Subscription) ready() bool { return s.pull != nil || s.behind(s.topic.view.Load()) }

// behind reports whether v has something for the reader.
func (s *Subscription) behind(v *topicView) bool { return s.pos < v.hi || v.err != nil }

func (s *Subscription) replay(through schema.Seq) {
	s.through = through
	s.pull, s.finish = iter.Pull2(s.hub.Packs(s.ctx, s.topic.key, s.pos, through))
}

// nextReplayed collects packs of the replay under way. An empty batch is its end.
func (s *Subscription) nextReplayed() (Batch, error) {
	b := Batch{After: s.pos}
	bytes, events := 0, 0
	for len(b.Packs) < batchPacks && bytes < batchBytes {
		var p schema.Pack
		var err error
		ok := true
		if s.first != nil {
			p, s.first = *s.first, nil
		} else {
			p, err, ok = s.pull()
		}
		if err != nil && len(b.Packs) == 0 {
			return Batch{}, err
		}
		if err != nil || !ok {
			s.endReplay() // an error shows again when the rest is asked for
			if len(b.Packs) == 0 && s.pos < s.through {
				return Batch{}, fmt.Errorf("fanout: replay %s: history ends at %d before %d: %w", s.topic.key, s.pos,
					s.through, ErrUnavailable)
			}
			break
		}
		b.Packs = append(b.Packs, p)
		bytes += len(p.Body)
		events += int(p.Last() - max(s.pos, p.First-1))
		s.pos = p.Last()
	}
	if len(b.Packs) > 0 {
		v := s.topic.view.Load()
		b.Ended = s.pos == v.hi && v.head.State.Final()
		if s.hub.cfg.Hooks.Replayed != nil {
			s.hub.cfg.Hooks.Replayed(events)
		}
	}
	return b, nil
}

func (s *Subscription) endReplay() {
	if s.finish != nil {
		s.finish()
	}
	s.pull, s.finish, s.first = nil, nil, nil
}

// Close releases the position. Closing twice is harmless.
func (s *Subscription) Close() {
	s.endReplay()
	if s.topic != nil {
		s.topic.leave(s)
		s.hub.release(s.topic)
		s.topic = nil
	}
}
