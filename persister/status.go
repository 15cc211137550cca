package persister

import (
	"context"
	"time"

	"agentstream/schema"
)

func (p *pipeline) update(fn func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.status)
}

func (p *pipeline) snapshot() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// recovered notes that work goes on, after a fetch or a commit that followed failures of its own
// kind: the pipeline is in one of them at a time.
func (p *pipeline) recovered() {
	var since time.Time
	var stream string
	p.update(func(s *Status) {
		since, stream = s.RetryingSince, s.Stream
		s.RetryingSince = time.Time{}
	})
	if since.IsZero() {
		return
	}
	outage := p.cfg.Now().Sub(since)
	p.cfg.Logger.Info("persister: works again", "stream", stream, "outage", outage)
	if h := p.cfg.Hooks.Recovered; h != nil {
		h(stream, outage)
	}
}

// kept counts a commit and its dead letters, after they are durable.
func (p *pipeline) kept(done Stored, letters []DeadLetter) {
	var conflicts uint64
	for i := range letters {
		if letters[i].Reason == ReasonConflict {
			conflicts++
		}
	}
	var stream string
	p.update(func(s *Status) {
		s.LastCommit = p.cfg.Now()
		s.Inserted += uint64(done.Inserted)
		s.Repeated += uint64(done.Repeated)
		s.Buried += uint64(len(letters))
		s.Conflicts += conflicts
		stream = s.Stream
	})
	if h := p.cfg.Hooks.Stored; h != nil {
		h(stream, done)
	}
	for i := range letters {
		p.tell(stream, &letters[i])
	}
}

func (p *pipeline) tell(stream string, l *DeadLetter) {
	p.cfg.Logger.Error("persister: set aside as a dead letter", "stream", stream, "position", l.Position,
		"run", l.Key.String(), "seq", l.Seq, "reason", l.Reason, "detail", l.Detail)
	if h := p.cfg.Hooks.Buried; h != nil {
		h(stream, l.Reason)
	}
	if h := p.cfg.Hooks.Conflict; h != nil && l.Reason == ReasonConflict {
		h(stream, schema.RunKey{Tenant: l.Key.Tenant, Run: l.Key.Run}, l.Seq)
	}
}

// watchLag asks the queue how far the store is behind, until ctx ends.
func (p *pipeline) watchLag(ctx context.Context) {
	tick := time.NewTicker(p.cfg.LagEvery)
	defer tick.Stop()
	for {
		p.askLag(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pipeline) askLag(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.LagEvery)
	defer cancel()
	lag, err := p.queue.Lag(ctx)
	if err != nil {
		p.cfg.Logger.Debug("persister: ask for lag", "error", err)
		return
	}
	now := p.cfg.Now()
	p.update(func(s *Status) {
		s.Lag, s.LagAt = lag, now
		s.Stream = lag.Stream
	})
	if h := p.cfg.Hooks.Lag; h != nil {
		h(lag)
	}
	// JetStream's MaxAge wins over messages that are not confirmed: what gets that old is lost.
	if age := now.Sub(lag.Oldest); !lag.Oldest.IsZero() && lag.Window > 0 && age > lag.Window/2 {
		p.cfg.Logger.Error("persister: the log will drop messages before they are stored",
			"stream", lag.Stream, "lag", lag.Messages, "oldest", age, "window", lag.Window)
	}
}
