package tap

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// store is the persister's store: a sink, and the places of what it has.
//
// A batch is delivered between two changes of the partition's place. The first says that this member has the partition,
// and is left out while an earlier one says so. The second moves the place. Both compare and set: a member that was
// paused finds out before it delivers, or at the latest when it has, and the batch comes again then.
type store struct {
	cfg  *Config
	stop context.CancelCauseFunc // ends the tap
	full atomic.Bool             // there was no room for a dead letter

	mu    sync.Mutex
	parts map[string]*lease // by stream
	views map[string]sighting
}

// sighting is when this process has seen a place change. Clocks of others are not compared.
type sighting struct {
	revision uint64
	since    time.Time
}

// lease is one partition. It is used by one pipeline at a time.
type lease struct {
	mu      sync.Mutex
	stream  string
	place   Standing
	known   bool // place is what is stored, as far as this member knows
	beat    time.Time
	ledger  *ledger
	written []schema.RunKey // runs of which something was written since the place has moved
	saved   time.Time       // when the ledger was saved
	overlap time.Time       // what the log has stored up to here may have been delivered from the archive
}

// saveEvery is about how often a ledger is saved while events come.
const saveEvery = 10 * time.Second

func newStore(cfg *Config) *store {
	return &store{cfg: cfg, parts: map[string]*lease{}, views: map[string]sighting{}}
}

var _ persister.Store = (*store)(nil)

// Offsets implements persister.Store.
func (s *store) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	places, err := s.cfg.Places.Places(ctx, s.cfg.Spec.Name)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	offsets := make([]persister.StoredOffset, len(places))
	for i, p := range places {
		v := s.views[p.Offset.Stream]
		if v.revision != p.Revision {
			v = sighting{p.Revision, now}
			s.views[p.Offset.Stream] = v
		}
		offsets[i] = persister.StoredOffset{Offset: p.Offset, Owner: p.Owner, Idle: now.Sub(v.since)}
	}
	return offsets, nil
}

func (s *store) part(stream string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[stream]
	if p == nil {
		p = &lease{stream: stream}
		s.parts[stream] = p
	}
	return p
}

// Transfer implements persister.Store.
func (s *store) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	if !t.ShouldMoveOffset() { // a part of a message that the sink has refused
		res, err := s.deliver(ctx, s.eventsOf(nil, t.Chunks))
		return res, s.endOn(err)
	}
	p := s.part(t.To.Stream)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.claim(ctx, p, t); err != nil {
		return persister.Result{}, s.endOn(err)
	}
	if t.From.Identity != "" && t.From.Generation != t.To.Generation {
		// the log came back shorter: what it has may have been delivered
		p.overlap = time.Now().Add(skewOfArchive)
	}
	res, err := s.transfer(ctx, p, t)
	if err != nil {
		return res, s.endOn(err)
	}
	if !p.known { // it is not known whether this member's last word was stored
		if err := s.loadPlace(ctx, p, t.From); err != nil {
			return res, err
		}
	}
	place := p.place
	place.Owner, place.Offset = t.Owner, t.To
	if err := s.move(ctx, p, place); err != nil {
		return res, err
	}
	s.note(ctx, p, t)
	s.confirm(ctx, p)
	return res, nil
}

// endOn ends the tap when an error says so.
func (s *store) endOn(err error) error {
	if errors.As(err, new(stopError)) {
		s.stop(err)
	}
	return err
}

// transfer delivers, and keeps the partition meanwhile.
func (s *store) transfer(ctx context.Context, p *lease, t *persister.Transfer) (persister.Result, error) {
	ctx, release := s.hold(ctx, p)
	defer release()
	if len(t.Losses) > 0 {
		if err := s.fill(ctx, p, t); err != nil {
			return persister.Result{}, err
		}
	}
	for i := range t.DeadLetters {
		l := &t.DeadLetters[i]
		letter := Letter{Tenant: l.Key.Tenant, Run: l.Key.Run, Seq: int64(l.Seq), Stream: l.Stream, Position: l.Position,
			Reason: l.Reason, Detail: l.Detail, At: time.Now().UTC(), Line: l.Body}
		if err := s.keepLetter(ctx, letter); err != nil {
			return persister.Result{}, err
		}
	}
	var overlap *lease
	if !p.overlap.IsZero() {
		overlap = p
	}
	events := s.eventsOf(overlap, t.Chunks)
	p.written = AppendRuns(p.written, events)
	res, err := s.deliver(ctx, events)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, persister.ErrOvertaken) {
		err = cause
	}
	return res, err
}

// eventsOf returns the events of chunks that are to be delivered. overlap is a partition whose log has what was
// delivered already; nil: none.
func (s *store) eventsOf(overlap *lease, chunks []persister.Chunk) (events []Event) {
	n := 0
	for i := range chunks {
		n += len(chunks[i].Rows)
	}
	events = make([]Event, 0, n)
	spec := &s.cfg.Spec
	for i := range chunks {
		c := &chunks[i]
		if spec.Tenant != "" && c.Key.Tenant != spec.Tenant {
			continue
		}
		after := schema.Seq(0)
		if overlap != nil {
			after = overlap.ledger.runs[c.Key].last
		}
		for j := range c.Rows {
			r := &c.Rows[j]
			if r.Seq > after && spec.HasType(r.Type) {
				events = append(events, Event{Run: c.Key, Child: c.Child, Seq: r.Seq, ID: r.ID, Type: r.Type, TS: r.TS,
					Line: r.Line})
			}
		}
	}
	return events
}
