package proxy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/adapters/provider"
	"agentstream/internal/backoff"
	"agentstream/schema"
)

// run is one run that calls go into. place, fresh, awaited, calls, since, seen and the lanes' chains belong to the
// proxy's lock.
type run struct {
	p   *Proxy
	key schema.RunKey

	named   bool // by callers; it goes on when a call is over
	fresh   bool // its id was generated for a call that has not begun: the log has nothing of it
	awaited bool // its id is generated, and it waits for the results of tools

	place *list.Element // among the idle ones; nil while it has calls
	calls int           // that are not recorded whole
	over  int           // of these, those that have asked whether they are the last
	since time.Time     // it has none
	seen  *Standing     // as it was then
	lanes map[string]*lane

	// gate is held while the run is begun or ended, so that no call begins in between.
	gate   chan struct{}
	sink   Sink
	began  bool // run.lifecycle has been emitted, by us or before us, and it was not a final one
	filled bool // it has events
	ending schema.RunState

	mu     sync.Mutex
	owed   []loss // losses that no call could record
	result result // of the newest call
	past   past   // and the memories of all lanes
}

// lane is where the events of one child, or of the run itself, are written one after the other.
type lane struct {
	calls int           // that are not recorded whole
	tail  chan struct{} // closed when the newest call is

	// Of the call whose turn it is.
	spawned bool // the run knows the child
	began   bool // run.lifecycle has been emitted

	// Of the run's mu.
	memory
	others chapter // of what is read
	failed []*call // that wait for their repeats
	loaded bool    // the memory has what the log had when the lane was first used
}

type loss struct {
	reason string
	bytes  int64
}

// result is how a call went, for the end of the run.
type result struct {
	state  schema.RunState
	reason string
}

// maxLanes and maxOwed bound what is remembered of one run.
const (
	maxLanes = 256
	maxOwed  = 16
)

func newRun(p *Proxy, key schema.RunKey, named bool) *run {
	return &run{p: p, key: key, named: named, lanes: make(map[string]*lane), gate: make(chan struct{}, 1)}
}

// enter returns a lane with one more call. It is called with the proxy's lock held.
func (r *run) enter(child string) *lane {
	l := r.lanes[child]
	if l == nil {
		for name, old := range r.lanes { // any that is idle: it would be announced again
			if len(r.lanes) < maxLanes {
				break
			}
			if old.calls == 0 {
				delete(r.lanes, name)
			}
		}
		l = &lane{}
		r.lanes[child] = l
	}
	l.calls++
	return l
}

// owe keeps a loss for the next call that can record it.
func (r *run) owe(l loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.owed) < maxOwed {
		r.owed = append(r.owed, l)
		return
	}
	r.owed[maxOwed-1].bytes += l.bytes
}

func (r *run) debts() []loss {
	r.mu.Lock()
	defer r.mu.Unlock()
	owed := r.owed
	r.owed = nil
	return owed
}

func (r *run) lock(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) unlock() { <-r.gate }

// start stores the first events of a call, behind what begins the run and the child if they have not,
// and returns the sink for those that follow. The events are made when it is known what the run holds.
func (r *run) start(ctx context.Context, c *call, make func() (events []schema.Event, news bool)) (Sink, error) {
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer r.unlock()
	if r.sink == nil {
		sink, err := r.p.cfg.Open(ctx, r.key)
		if err != nil {
			return nil, trail("open run", r.key, err)
		}
		r.sink = sink
	}
	for try := 0; ; try++ {
		last, err := r.look(ctx, c)
		if err != nil {
			return nil, err
		}
		events, news := make()
		if c.known {
			return r.sink, nil
		}
		all := append(r.preface(c), events...)
		if len(all) == 0 { // a repeat, and all is there
			return r.sink, nil
		}
		if news && last >= 0 && try < maxTries {
			all[0].Seq = last + 1 // or not at all: another proxy may have stored the same since we looked
		}
		c.asked.addTrace(all)
		at, err := r.sink.Send(ctx, all...)
		if errors.Is(err, schema.ErrSeqMismatch) {
			continue
		}
		if errors.Is(err, schema.ErrEnded) { // by another writer, since we looked: this is a follow-up
			all[0].Seq = 0
			all = append([]schema.Event{lifecycle(schema.StateRunning, "")}, all...)
			c.asked.addTrace(all[:1])
			at, err = r.sink.Send(ctx, all...)
		}
		if err != nil {
			return nil, trail("begin a call in", r.key, err)
		}
		r.rememberStored(c, all, at.First, at.Last)
		r.began, r.filled, c.lane.spawned, c.lane.began = true, true, true, true
		r.setFresh(false)
		return r.sink, nil
	}
}

// maxTries bounds how often the beginning of a call is made anew because others write to the run at the same time.
const maxTries = 4

// preface returns what begins the run and the child, if they have not begun.
func (r *run) preface(c *call) (first []schema.Event) {
	if !r.began {
		first = append(first, lifecycle(schema.StateRunning, ""))
	}
	if !r.filled && !c.asked.about.IsZero() {
		if e, err := c.asked.about.Event(); err == nil { // it was checked when it was read
			first = append(first, e)
		}
	}
	if l := c.lane; c.asked.child != "" && !l.began {
		if !l.spawned {
			spawn := provider.Fields{{Name: "child_id", Value: provider.Quote(c.asked.child)}}
			first = append(first, schema.Event{Type: schema.TypeChildSpawn, Payload: spawn.Encode()})
		}
		first = append(first, c.here(lifecycle(schema.StateRunning, "")))
	}
	return first
}

// look finds out how far the run is, and lets the lane remember what others have stored. A generated run is new.
// last is -1 where that does not matter.
func (r *run) look(ctx context.Context, c *call) (last schema.Seq, err error) {
	reads := r.p.cfg.Requests == RequestsAll
	if r.isFresh() || r.began && !reads {
		return -1, nil
	}
	for began := time.Now(); ; {
		at, err := r.sink.Standing(ctx)
		if err != nil {
			return 0, trail("look at", r.key, err)
		}
		r.began, r.filled = at.State != "" && !at.State.Final(), at.Last > 0
		if !reads {
			return -1, nil
		}
		if err := r.recall(ctx, c, at.Last); err != nil {
			return 0, err
		}
		wait := c.answerWait()
		if time.Since(began) >= wait {
			return at.Last, nil
		}
		if err := backoff.Sleep(ctx, firstPause); err != nil {
			return 0, err
		}
	}
}

// finishCall is called when a call is over: it ends the run if that was asked for and no other call goes on.
func (r *run) finishCall(ctx context.Context, c *call, how result) error {
	r.mu.Lock()
	r.result = how
	r.mu.Unlock()
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if r.sink == nil || !r.began {
		return nil // nothing of it was ever stored
	}
	if c.asked.end != "" && c.asked.child == "" {
		r.ending = c.asked.end
	}
	waits := r.hasOpenCalls(c, how)
	r.p.mu.Lock()
	c.over = true
	r.over++
	last := r.calls == r.over
	r.awaited = last && !r.named && waits
	goesOn := !last || r.awaited || r.named && r.ending == ""
	r.p.mu.Unlock()
	if goesOn {
		return nil
	}
	if r.ending == schema.StateAborted && how.state != schema.StateAborted {
		how = result{schema.StateAborted, reasonAsked}
	}
	return r.finish(ctx, lifecycle(how.state, how.reason))
}

// hasOpenCalls reports whether the caller of a run with a generated id is to bring results of tools.
func (r *run) hasOpenCalls(c *call, how result) bool {
	if r.p.cfg.ToolHold == 0 || r.ending != "" || how.state != schema.StateDone {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(c.lane.open) > 0
}

func (r *run) isFresh() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.fresh
}

func (r *run) setFresh(fresh bool) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.fresh = fresh
}

// newest returns how the newest call went.
func (r *run) newest() result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// finish stores the event that ends the run. It is called with the gate held.
func (r *run) finish(ctx context.Context, e schema.Event) error {
	_, err := r.sink.Send(ctx, e)
	if err != nil && !errors.Is(err, schema.ErrEnded) {
		return trail("end", r.key, err)
	}
	r.began, r.ending = false, ""
	return nil
}

// drop lets go of a sink that takes nothing; the next call opens another.
func (r *run) drop(ctx context.Context) {
	if r.lock(ctx) != nil {
		return
	}
	defer r.unlock()
	if r.sink != nil {
		_ = r.sink.Close(ctx) // what it lacked has been recorded
	}
	r.sink, r.began = nil, false
}

// close releases the run. It is called when no call uses it any more.
func (r *run) close(ctx context.Context) error {
	gate, cancel := context.WithTimeout(context.WithoutCancel(ctx), idleTry)
	defer cancel()
	if err := r.lock(gate); err != nil {
		return err
	}
	defer r.unlock()
	ctx, cancel = context.WithTimeout(ctx, idleTry)
	defer cancel()
	for _, l := range r.debts() {
		err := errUnreachable
		if r.sink != nil && r.began {
			_, err = r.sink.Send(ctx, lossEvent(l))
		}
		if err != nil {
			r.p.cfg.Logger.Warn("proxy: a run that lacks a part was closed before it could say so", "run",
				r.key.String(), "reason", l.reason, "bytes", l.bytes)
		}
	}
	if r.sink == nil {
		return nil
	}
	var err error
	r.p.mu.Lock()
	awaited := r.awaited
	r.p.mu.Unlock()
	if awaited {
		err = r.finish(ctx, lifecycle(schema.StateDone, reasonAwaited))
	}
	sink := r.sink
	r.sink = nil
	return errors.Join(err, sink.Close(ctx))
}

func lifecycle(state schema.RunState, reason string) schema.Event {
	why := provider.OrNull(nil)
	if reason != "" {
		why = provider.Quote(reason)
	}
	return schema.Event{Type: schema.TypeRunLifecycle,
		Payload: provider.Fields{{Name: "state", Value: provider.Quote(string(state))},
			{Name: "reason", Value: why}}.Encode()}
}

func lossEvent(l loss) schema.Event {
	payload := provider.Fields{{Name: "reason", Value: provider.Quote(l.reason)}}
	if l.bytes > 0 {
		payload = append(payload, provider.Field{Name: "bytes", Value: provider.Number(int(l.bytes))})
	}
	return schema.Event{Type: schema.TypeLoss, Payload: payload.Encode()}
}

// idleTry bounds one attempt to end an idle run, or to close one.
const idleTry = 5 * time.Second

// endIdle ends the runs that nothing was written to for Config.IdleEnd. A run that others write to has
// moved since it was last looked at, and is given its time again.
func (p *Proxy) endIdle(ctx context.Context) {
	p.mu.Lock()
	var idle []*run
	for e := p.idle.Front(); e != nil; e = e.Next() {
		idle = append(idle, e.Value.(*run))
	}
	p.mu.Unlock()
	for _, rn := range idle {
		once, cancel := context.WithTimeout(ctx, idleTry)
		err := p.idleRun(once, rn)
		cancel()
		if err != nil {
			p.cfg.Logger.Debug("proxy: end an idle run", "err", err)
			return // the log is away: the next round will do
		}
		p.drop(rn)
	}
}

// drop forgets a run with a generated id that has ended.
func (p *Proxy) drop(rn *run) {
	var gone []*run
	p.mu.Lock()
	if rn.place != nil && !rn.named && !rn.awaited {
		gone = append(gone, p.forget(rn))
	}
	p.mu.Unlock()
	p.close(p.ctx, gone)
}

func (p *Proxy) idleRun(ctx context.Context, rn *run) error {
	if err := rn.lock(ctx); err != nil {
		return err
	}
	defer rn.unlock()
	p.mu.Lock()
	gone, since, seen, most := rn.place == nil || rn.sink == nil, rn.since, rn.seen, p.cfg.IdleEnd
	if !rn.named {
		most = p.cfg.ToolHold
	}
	p.mu.Unlock()
	if most == 0 || gone || !rn.began || seen != nil && time.Since(since) < most {
		return nil
	}
	at, err := rn.sink.Standing(ctx)
	if err != nil {
		return trail("look at", rn.key, err)
	}
	if seen == nil || at.Last != seen.Last {
		p.mu.Lock()
		if seen != nil {
			rn.since = time.Now()
		}
		rn.seen = &at
		p.mu.Unlock()
		return nil
	}
	if at.State.Final() {
		rn.began = false
		p.mu.Lock()
		rn.awaited = false
		p.mu.Unlock()
		return nil
	}
	rn.mu.Lock()
	how := rn.result
	rn.mu.Unlock()
	if how.state != schema.StateError {
		how = result{schema.StateDone, fmt.Sprintf("no call for %s", most)}
	}
	e := lifecycle(how.state, how.reason)
	e.Seq = at.Last + 1 // or not at all: another writer may write to it just now
	err = rn.finish(ctx, e)
	if errors.Is(err, schema.ErrSeqMismatch) {
		p.mu.Lock()
		rn.since, rn.seen = time.Now(), nil
		p.mu.Unlock()
		return nil
	}
	if err == nil {
		p.mu.Lock()
		rn.awaited = false
		p.mu.Unlock()
	}
	return err
}
