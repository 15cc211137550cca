package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is one load while it goes on.
type load struct {
	cfg     Config
	srv     *server
	clock   *clock
	ledger  *ledger
	answers *answers
	result  *Result
	began   int64 // ns, when publishing began
}

// Run carries a load out and returns what it has shown; see [Result.Err]. An error says that there is no
// result: a bad configuration ([ErrConfig]), a server that refuses runs or watchers ([ErrRefused]), a
// probe that fails ([ErrProbe]), or the end of ctx. The runs are ended in any case.
func Run(ctx context.Context, cfg Config) (_ *Result, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	srv, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	defer srv.client.CloseIdleConnections()
	l := &load{cfg: cfg, srv: srv, clock: &clock{time.Now()}, ledger: newLedger(cfg.Runs), result: newResult(cfg)}
	l.answers = &answers{ledger: l.ledger, clock: l.clock}
	if cfg.Probe != nil {
		l.result.Server = &Cost{}
	}
	l.phase(fmt.Sprintf("beginning %d runs", cfg.Runs))
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		if e := l.ledger.endRuns(last, srv); e != nil && err == nil {
			l.trouble(fmt.Errorf("end the runs: %w", e))
		}
	}()
	if err := l.ledger.createRuns(ctx, srv); err != nil {
		return nil, fmt.Errorf("load: begin: %w", err)
	}
	switch cfg.Scenario {
	case Idle:
		err = l.idle(ctx)
	case Replay:
		err = l.replay(ctx)
	default:
		err = l.live(ctx)
	}
	if err != nil {
		return nil, err
	}
	l.close()
	return l.result, nil
}

func (l *load) phase(name string) {
	if l.cfg.Hooks.Phase != nil {
		l.cfg.Hooks.Phase(name)
	}
}

// trouble notes what went wrong without ending the load; the first one is kept.
func (l *load) trouble(err error) {
	if err != nil && l.result.Trouble == "" {
		l.result.Trouble = err.Error()
	}
}

// close fills in what the writers' side has counted.
func (l *load) close() {
	_, l.result.Acked = l.ledger.total()
	l.result.Refused = l.answers.refused.Load()
	if first := l.answers.first.Load(); first != nil {
		l.trouble(*first)
	}
	l.result.Ack = summarize(l.answers.latency())
}

// live publishes while runs are watched; without watchers it reads back afterwards.
func (l *load) live(ctx context.Context) error {
	a := &audience{clock: l.clock}
	defer a.close()
	before, err := l.sample(ctx, a)
	if err != nil {
		return err
	}
	if l.result.Server != nil {
		l.result.Server.MemoryBefore = before.Memory
	}
	if l.cfg.Watchers > 0 {
		l.phase(fmt.Sprintf("opening %d watchers", l.cfg.Runs*l.cfg.Watchers))
		if err := a.connect(ctx, l.srv, l.cfg.Transport, l.ledger.names, l.cfg.Watchers); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	if err := l.publish(ctx, a); err != nil {
		return err
	}
	if l.cfg.Watchers > 0 {
		l.settle(ctx, a, l.answers.acked.Load()*int64(l.cfg.Watchers))
		a.close()
		l.result.Latency = summarize(a.latency())
		l.account(a, l.cfg.Watchers)
		return nil
	}
	return l.readBack(ctx)
}

// publish drives the writers over the warm and the measured time, and waits for their answers.
func (l *load) publish(ctx context.Context, a *audience) error {
	l.phase(fmt.Sprintf("publishing for %s, measured after %s", l.cfg.Duration, l.cfg.Warm))
	l.began = l.clock.now()
	from := l.began + int64(l.cfg.Warm)
	to := from + int64(l.cfg.Duration)
	a.from.Store(from)
	a.to.Store(to)
	l.answers.from, l.answers.to = from, to
	writers, err := l.writers(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	var paces []*pace
	for i, w := range writers {
		p := l.pace(i, len(writers), w)
		// In turns: a burst of all writers at once is not what a rate means.
		p.start, p.end = l.began+int64(p.every)*int64(i)/int64(len(writers)), to
		p.room = func() bool {
			backlog := l.answers.acked.Load()*int64(l.cfg.Watchers) - a.seen.Load()
			return backlog <= int64(l.cfg.Window*l.cfg.Runs*l.cfg.Watchers)
		}
		paces = append(paces, p)
		g.Go(func() error { return p.run(ctx) })
	}
	serr := l.watchClock(ctx, a, from, to)
	werr := errors.Join(g.Wait(), l.closeWriters(ctx, writers))
	if ctx.Err() != nil {
		return fmt.Errorf("load: stopped: %w", context.Cause(ctx))
	}
	for _, p := range paces {
		l.result.Missed += p.missed
	}
	l.trouble(werr)
	return serr
}

// pace returns writer i of n its share of runs and rate.
func (l *load) pace(i, n int, w writer) *pace {
	p := &pace{clock: l.clock, w: w, ledger: l.ledger, batch: l.cfg.Batch}
	for run := i; run < l.cfg.Runs; run += n {
		p.runs = append(p.runs, run)
	}
	if l.cfg.Rate > 0 {
		// By runs, not by writers: with 5 runs on 4 writers, each run still gets a fifth.
		p.every = float64(time.Second) * float64(l.cfg.Batch*l.cfg.Runs) / float64(l.cfg.Rate) / float64(len(p.runs))
	}
	return p
}

func (l *load) writers(ctx context.Context) ([]writer, error) {
	heads := requestHeads(l.srv, l.ledger.names)
	var list []writer
	for range l.cfg.Writers {
		if l.cfg.Log != nil {
			list = append(list, newPublishers(ctx, l.cfg, l.answers))
			continue
		}
		if l.cfg.Stream {
			s, err := newStreamer(ctx, l.srv, l.cfg, l.answers)
			if err != nil {
				return nil, errors.Join(err, l.closeWriters(ctx, list))
			}
			list = append(list, s)
			continue
		}
		p, err := newPoster(ctx, l.srv, l.cfg, heads, l.answers)
		if err != nil {
			return nil, errors.Join(err, l.closeWriters(ctx, list))
		}
		list = append(list, p)
	}
	return list, nil
}

func (l *load) closeWriters(ctx context.Context, list []writer) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var g errgroup.Group
	for _, w := range list {
		g.Go(func() error { return w.close(ctx) })
	}
	return g.Wait()
}

// watchClock takes samples from one moment to another, about one a second, and makes figures of the
// first and the last.
func (l *load) watchClock(ctx context.Context, a *audience, from, to int64) error {
	var first Sample
	var own time.Duration
	for at := from; ; at = min(at+int64(time.Second), to) {
		if left := at - l.clock.now(); left > 0 {
			if err := pause(ctx, time.Duration(left)); err != nil {
				return err
			}
		}
		s, err := l.sample(ctx, a)
		if err != nil {
			return err
		}
		s.Seconds -= time.Duration(from).Seconds()
		if at == from {
			first, own = s, ownCPU()
		}
		l.result.Timeline = append(l.result.Timeline, s)
		l.progress(a)
		if at == to {
			l.result.spend(first, s, l.result.Server != nil, ownCPU()-own)
			return nil
		}
	}
}

func (l *load) progress(a *audience) {
	if l.cfg.Hooks.Progress != nil {
		l.cfg.Hooks.Progress(Progress{Elapsed: time.Duration(l.clock.now() - l.began), Acked: l.answers.acked.Load(),
			Delivered: a.seen.Load()})
	}
}

// sample is now; its seconds are the clock's.
func (l *load) sample(ctx context.Context, a *audience) (Sample, error) {
	s := Sample{Seconds: time.Duration(l.clock.now()).Seconds(), Acked: l.answers.acked.Load(), Delivered: a.seen.Load()}
	if l.cfg.Probe == nil {
		return s, nil
	}
	u, err := l.cfg.Probe(ctx)
	if err != nil {
		return s, err
	}
	s.CPU, s.Memory = u.CPU.Seconds(), u.Memory
	return s, nil
}

// settle waits until the watchers have seen as many events as they are owed. It gives up after
// Settle without progress, or at the end of ctx: what is missing is then found by account.
func (l *load) settle(ctx context.Context, a *audience, owed int64) {
	l.phase("waiting for what is under way")
	seen, since, told := int64(-1), time.Now(), time.Now()
	for {
		now := a.seen.Load()
		if now >= owed {
			return
		}
		if now > seen {
			seen, since = now, time.Now()
		}
		if time.Since(told) > time.Second {
			told = time.Now()
			l.progress(a)
		}
		if time.Since(since) > l.cfg.Settle || pause(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// readBack shows that what was acknowledged is there, by one watcher for each run.
func (l *load) readBack(ctx context.Context) error {
	l.phase("reading back")
	a := &audience{clock: l.clock}
	defer a.close()
	if err := a.connect(ctx, l.srv, l.cfg.Transport, l.ledger.names, 1); err != nil {
		return fmt.Errorf("load: read back: %w", err)
	}
	l.settle(ctx, a, l.answers.acked.Load())
	a.close()
	l.account(a, 1)
	return nil
}

// account adds what the watchers of a closed audience have had, n of each run.
func (l *load) account(a *audience, n int) {
	r := l.result
	for _, w := range a.watchers {
		if w == nil {
			continue
		}
		b := &l.ledger.runs[w.run]
		r.Delivered += w.acct.had
		r.Lost += w.acct.countLost(b.sent, b.refused)
		r.Duplicate += w.acct.dup
		r.Disorder += w.acct.late
		r.Stray += w.stray
	}
	_, acked := l.ledger.total()
	r.Expected += acked * int64(n)
	r.Resumed += a.resumed.Load()
	r.Cut += a.cut.Load()
	if cause := a.cause.Load(); cause != nil {
		l.trouble(*cause)
	}
}
