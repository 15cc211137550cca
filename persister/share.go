package persister

import (
	"context"
	"crypto/rand"
	mrand "math/rand/v2"
	"sync"
	"time"
)

// share decides which partitions this process stores, from the stored offsets: which process moved each last, and when.
// It only saves work. Two processes that store the same partition do no harm, because the offset is moved by
// compare-and-set.
type share struct {
	cfg *Config
	me  string

	mu      sync.Mutex
	known   map[string]StoredOffset // as last read
	taken   map[string]take
	turns   map[string]*turn
	changed chan struct{} // closed and replaced at every change
}

// take is a partition that this process takes from another one.
type take struct {
	from string
	at   time.Time
}

// turn is a time in which this process stores a partition.
type turn struct {
	ctx context.Context
	end context.CancelFunc
}

func newShare(cfg *Config) *share {
	return &share{cfg: cfg, me: rand.Text(), taken: make(map[string]take), turns: make(map[string]*turn),
		changed: make(chan struct{})}
}

// run reads the offsets of all partitions until ctx ends. A failed read changes nothing.
func (s *share) run(ctx context.Context) {
	if s.cfg.Alone {
		return
	}
	tick := time.NewTicker(s.cfg.ShareEvery)
	defer tick.Stop()
	for {
		if _, err := s.readAll(ctx); err != nil {
			s.cfg.Logger.Debug(s.cfg.Role+": read offsets", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// readAll reads the offsets and decides again.
func (s *share) readAll(ctx context.Context) (map[string]StoredOffset, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Attempt)
	defer cancel()
	rows, err := s.cfg.Store.Offsets(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]StoredOffset, len(rows))
	for _, o := range rows {
		known[o.Stream] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
	s.decide(time.Now())
	return known, nil
}

// readOffset returns the stored offset of a stream.
func (s *share) readOffset(ctx context.Context, stream string) (StoredOffset, error) {
	known, err := s.readAll(ctx)
	o := known[stream]
	o.Stream = stream
	return o, err
}

// decide ends the turns of partitions that other processes store now, and takes a partition from a process that has at
// least two more than this one. The caller holds mu.
func (s *share) decide(now time.Time) {
	have := map[string][]string{s.me: nil} // streams by owner
	for _, q := range s.cfg.Queues {
		if o := s.known[q.Stream()]; o.Owner != "" && o.Idle < s.cfg.ShareStale {
			have[o.Owner] = append(have[o.Owner], q.Stream())
		}
	}
	pending := s.pending(now)
	for owner, streams := range have {
		if owner != s.me && len(streams) >= len(have[s.me])+pending+2 {
			s.taken[streams[mrand.IntN(len(streams))]] = take{owner, now}
			break
		}
	}
	for stream, t := range s.turns {
		if !s.isOurs(stream) {
			t.end()
			delete(s.turns, stream)
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// pending returns the number of partitions that are taken and whose offset this process has not moved yet. A third
// process may have been faster. The caller holds mu.
func (s *share) pending(now time.Time) int {
	for stream, t := range s.taken {
		if now.Sub(t.at) >= s.cfg.ShareStale || s.known[stream].Owner != t.from {
			delete(s.taken, stream)
		}
	}
	return len(s.taken)
}

// isOurs reports whether this process may store a partition: no other process does, or it was taken from one.
// The caller holds mu.
func (s *share) isOurs(stream string) bool {
	_, taken := s.taken[stream]
	return taken || !s.isOthers(s.known[stream])
}

// isOthers reports whether another process stores a partition.
func (s *share) isOthers(o StoredOffset) bool {
	return !s.cfg.Alone && o.Owner != "" && o.Owner != s.me && o.Idle < s.cfg.ShareStale
}

// hasStream reports whether this process stores the stream.
func (s *share) hasStream(stream string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOurs(stream)
}

// turn waits until this process may store the partition. The context that it returns ends when it may not any more. The
// caller calls end when it is done. The error is that of ctx.
func (s *share) turn(ctx context.Context, stream string) (context.Context, func(), error) {
	for {
		s.mu.Lock()
		if s.isOurs(stream) {
			t := &turn{}
			t.ctx, t.end = context.WithCancel(ctx)
			s.turns[stream] = t
			s.mu.Unlock()
			return t.ctx, t.end, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}
