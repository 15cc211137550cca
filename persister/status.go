package persister

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"agentstream/schema"
)

func (p *pipeline) update(fn func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.status)
}

func (p *pipeline) snapshot() Status {
	standby := !p.isOurs()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Standby, s.Offset, s.BatchRows, s.HeldBytes = standby, p.offset, p.size.rows(), p.budget.count()
	s.LagEvents = p.events(s.Lag)
	s.RetryingSince = p.since()
	return s
}

// isOurs reports whether this process stores the pipeline's stream.
func (p *pipeline) isOurs() bool { return p.share.hasStream(p.queue.Stream()) }

// setOffset sets the offset.
func (p *pipeline) setOffset(at Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offset = at
}

// trouble is an outage of one step.
type trouble struct {
	since    time.Time // zero: none
	attempts int
}

// since returns the beginning of the outage, of either step; zero when there is none. The caller holds mu.
func (p *pipeline) since() (first time.Time) {
	for _, t := range p.troubles {
		if !t.since.IsZero() && (first.IsZero() || t.since.Before(first)) {
			first = t.since
		}
	}
	return first
}

// countFailure counts a failed attempt of a step and returns the pause until the next.
func (p *pipeline) countFailure(ctx context.Context, step int, err error) time.Duration {
	var t trouble
	var since time.Time
	var stream string
	p.update(func(s *Status) {
		if p.troubles[step].since.IsZero() {
			p.troubles[step].since = p.cfg.Now()
		}
		p.troubles[step].attempts++
		s.LastError = stepNames[step] + ": " + err.Error()
		t, since, stream = p.troubles[step], p.since(), s.Stream
	})
	pause := p.backOff(t.attempts)
	level := slog.LevelWarn
	if t.attempts > 1 {
		level = slog.LevelDebug // once per outage is enough; Hooks count the rest
	}
	p.cfg.Logger.Log(ctx, level, p.cfg.Role+": attempt failed, trying again",
		"doing", stepNames[step], "stream", stream, "attempt", t.attempts, "pause", pause, "error", err)
	if h := p.cfg.Hooks.Retrying; h != nil {
		h(stream, err, since, pause)
	}
	return pause
}

// clearTrouble ends the trouble of a step. The outage is over when no step has trouble.
func (p *pipeline) clearTrouble(step int) {
	var since time.Time
	var stream string
	p.update(func(s *Status) {
		if p.troubles[step].since.IsZero() {
			return
		}
		before := p.since()
		p.troubles[step] = trouble{}
		if p.since().IsZero() {
			since, stream = before, s.Stream
		}
	})
	if since.IsZero() {
		return
	}
	outage := p.cfg.Now().Sub(since)
	p.cfg.Logger.Info(p.cfg.Role+": works again", "stream", stream, "outage", outage)
	if h := p.cfg.Hooks.Recovered; h != nil {
		h(stream, outage)
	}
}

// idle is called when there is nothing to fetch. When nothing is held either, the outage of the store is over: another
// process may have stored what was refused here, so that no commit would end it.
func (p *pipeline) idle() {
	if p.budget.count() == 0 {
		p.clearTrouble(storing)
	}
}

// countCommit counts a commit and its dead letters, after they are durable.
func (p *pipeline) countCommit(done Stored, deadLetters []DeadLetter) {
	var conflicts uint64
	for i := range deadLetters {
		if deadLetters[i].Reason == ReasonConflict {
			conflicts++
		}
	}
	var stream string
	p.update(func(s *Status) {
		s.LastCommit = p.cfg.Now()
		s.Inserted += uint64(done.Inserted)
		s.Repeated += uint64(done.Repeated)
		s.Dropped += uint64(done.Dropped)
		s.DeadLetters += uint64(len(deadLetters))
		s.Conflicts += conflicts
		stream = s.Stream
	})
	if h := p.cfg.Hooks.Stored; h != nil {
		h(stream, done)
	}
	for i := range deadLetters {
		p.report(stream, &deadLetters[i])
	}
}

func (p *pipeline) report(stream string, l *DeadLetter) {
	if skipped, ok := p.reports.next(); ok {
		p.cfg.Logger.Error(p.cfg.Role+": set aside as a dead letter", "stream", stream, "position", l.Position,
			"run", l.Key.String(), "seq", l.Seq, "reason", l.Reason, "detail", l.Detail, "unsaid", skipped)
	}
	if h := p.cfg.Hooks.DeadLetter; h != nil {
		h(stream, l.Reason)
	}
	if h := p.cfg.Hooks.Conflict; h != nil && l.Reason == ReasonConflict {
		h(stream, schema.RunKey{Tenant: l.Key.Tenant, Run: l.Key.Run}, l.Seq)
	}
}

// reports bounds the log lines about dead letters, so that they do not hide the others. All are stored and counted. It
// is used by the storing step alone.
type reports struct {
	begin   time.Time
	logged  int
	skipped int // since the last that was logged
}

// At most reportMost dead letters are logged in each reportEvery.
const (
	reportMost  = 20
	reportEvery = 10 * time.Second
)

// next reports whether to log a dead letter, and how many were skipped before.
func (t *reports) next() (skipped int, ok bool) {
	if time.Since(t.begin) >= reportEvery {
		t.begin, t.logged = time.Now(), 0
	}
	if t.logged >= reportMost {
		t.skipped++
		return 0, false
	}
	t.logged++
	skipped, t.skipped = t.skipped, 0
	return skipped, true
}

// Storing returns an error when at least the last two attempts of a pipeline to store rows have failed. A store may
// answer queries and still refuse rows, as with a full disk.
func (p *Persister) Storing() error {
	for _, pipe := range p.pipes {
		if err := pipe.storing(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipeline) storing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.troubles[storing]
	if t.attempts < 2 {
		return nil
	}
	return fmt.Errorf("persister: nothing of %s is stored since %s: %s", p.status.Stream,
		t.since.UTC().Format(time.RFC3339), p.status.LastError)
}
