package load

import (
	"context"
	"fmt"
	"time"
)

// store publishes n units with one writer, as fast as they are taken.
func (l *load) store(ctx context.Context, n int64) error {
	l.began = l.clock.now()
	l.answers.from, l.answers.to = l.began, int64(1)<<62
	cfg := l.cfg
	l.cfg.Writers = 1
	defer func() { l.cfg = cfg }()
	writers, err := l.writers(ctx)
	if err != nil {
		return err
	}
	p := l.pace(0, 1, writers[0])
	p.every, p.limit = 0, n
	err = p.run(ctx)
	if cerr := l.closeWriters(ctx, writers); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("load: store: %w", err)
	}
	return nil
}

// replay stores a run and lets all watchers ask for it at once, again and again.
func (l *load) replay(ctx context.Context) error {
	l.phase(fmt.Sprintf("storing %d events", l.cfg.Events))
	l.cfg.Batch = min(l.cfg.Batch, l.cfg.Events)
	units := (l.cfg.Events + l.cfg.Batch - 1) / l.cfg.Batch
	if err := l.store(ctx, int64(units)); err != nil {
		return err
	}
	_, stored := l.ledger.total()
	l.phase(fmt.Sprintf("replaying %d events to %d clients at once, for %s", stored, l.cfg.Watchers, l.cfg.Duration))
	var times Histogram
	var first, last Sample
	var busy time.Duration
	own := ownCPU()
	for end := time.Now().Add(l.cfg.Duration); ; {
		a := &audience{clock: l.clock, whole: stored}
		s, took, err := l.replayOnce(ctx, a, &times)
		if err != nil {
			return err
		}
		if busy == 0 {
			first = s
		}
		busy += took
		if last, err = l.sample(ctx, a); err != nil {
			return err
		}
		last.Delivered = l.result.Delivered
		last.Seconds = busy.Seconds()
		l.result.Timeline = append(l.result.Timeline, last)
		if l.result.Lost > 0 || time.Now().After(end) {
			break
		}
	}
	// Only the time in which somebody waited counts; closing connections is nobody's replay.
	if l.result.Server != nil {
		l.result.Server.MemoryBefore = first.Memory
	}
	first.Seconds, first.Delivered = 0, 0
	l.result.spend(first, last, l.result.Server != nil, ownCPU()-own)
	l.result.AckedPerSecond = 0
	l.result.Latency = summarize(&times)
	return nil
}

// replayOnce returns the sample from before and the time from the first connection to the last byte.
func (l *load) replayOnce(ctx context.Context, a *audience, times *Histogram) (before Sample, took time.Duration,
	err error) {
	defer a.close()
	if before, err = l.sample(ctx, a); err != nil {
		return before, 0, err
	}
	start := l.clock.now()
	if err := a.connect(ctx, l.srv, l.cfg.Transport, l.ledger.names, l.cfg.Watchers); err != nil {
		return before, 0, fmt.Errorf("load: %w", err)
	}
	seen, since := int64(-1), time.Now()
	for a.wholes.Load() < int64(l.cfg.Watchers) && time.Since(since) < l.cfg.Settle {
		if now := a.seen.Load(); now > seen {
			seen, since = now, time.Now()
		}
		if err := pause(ctx, poll); err != nil {
			return before, 0, err
		}
	}
	a.close()
	end := start
	for _, w := range a.watchers {
		if w.done > 0 {
			times.Add(time.Duration(w.done - start))
			end = max(end, w.done)
		}
	}
	l.account(a, l.cfg.Watchers)
	if end == start { // nobody had all; account has reported it
		end = l.clock.now()
	}
	return before, time.Duration(end - start), nil
}

// idle holds connections on which nothing is sent, and proves at the end that they are alive.
func (l *load) idle(ctx context.Context) error {
	conns := l.cfg.Runs * l.cfg.Watchers
	a := &audience{clock: l.clock}
	defer a.close()
	before, err := l.calm(ctx, a)
	if err != nil {
		return err
	}
	l.phase(fmt.Sprintf("opening %d watchers", conns))
	if err := a.connect(ctx, l.srv, l.cfg.Transport, l.ledger.names, l.cfg.Watchers); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	opened, err := l.calm(ctx, a)
	if err != nil {
		return err
	}
	l.phase(fmt.Sprintf("idle for %s", l.cfg.Duration))
	l.began = l.clock.now()
	if err := l.watchClock(ctx, a, l.began, l.began+int64(l.cfg.Duration)); err != nil {
		return err
	}
	if s := l.result.Server; s != nil {
		s.MemoryBefore = before.Memory
		s.PerConnection = float64(s.MemoryAfter-s.MemoryBefore) / 1024 / float64(conns)
		s.PerConnect = (opened.CPU - before.CPU) * 1e6 / float64(conns)
	}
	l.phase("publishing one event to each run")
	l.cfg.Batch = 1
	a.from.Store(l.clock.now())
	a.to.Store(int64(1) << 62)
	if err := l.store(ctx, int64(l.cfg.Runs)); err != nil {
		return err
	}
	l.settle(ctx, a, l.answers.acked.Load()*int64(l.cfg.Watchers))
	a.close()
	l.result.Latency = summarize(a.latency())
	l.account(a, l.cfg.Watchers)
	return nil
}

// calm returns a sample after a pause in which what was begun comes to rest.
func (l *load) calm(ctx context.Context, a *audience) (Sample, error) {
	if err := pause(ctx, l.cfg.Warm); err != nil {
		return Sample{}, err
	}
	return l.sample(ctx, a)
}
