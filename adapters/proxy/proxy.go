package proxy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentstream/schema"
)

// Proxy hands model calls on and records them.
type Proxy struct {
	cfg     Config
	forward http.Handler
	room    *budget

	ctx    context.Context // of everything that waits for the log
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // recorders

	quit chan struct{} // closed when Run ends: nothing waits for what may come any more

	mu      sync.Mutex
	closing bool
	open    int // recorders
	runs    map[schema.RunKey]*run
	idle    *list.List // of runs without a call, the one left first in front

	made  making // responses, which clients ask for again
	talks threads
}

// errShutdown ends what waits for the log when the proxy does.
var errShutdown = errors.New("the proxy was shut down")

// New returns a proxy. It starts nothing and opens no connection.
func New(cfg Config) (*Proxy, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, room: &budget{most: int64(cfg.TotalBytes)}, runs: make(map[schema.RunKey]*run),
		idle: list.New(), quit: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.forward = p.forwarder()
	return p, nil
}

// Stats are numbers of now.
type Stats struct {
	Held      int64 // bytes of memory in buffers that wait for the log
	Recording int   // calls that are not stored whole
	Runs      int   // that are remembered
}

// Stats may be asked at any time.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Held: p.room.used.Load(), Recording: p.open, Runs: len(p.runs)}
}

// ServeHTTP hands one request on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, rawPath, bad := cleanPath(r.URL)
	if bad != nil {
		bad.write(w)
		return
	}
	run, path, rawPath := cutRun(path, rawPath)
	up, path, rawPath, ok := p.upstream(path, rawPath)
	if !ok {
		(&refusal{http.StatusNotFound, "no_upstream", "the path must begin with one of " + p.prefixes()}).write(w)
		return
	}
	a, refused := p.ask(r.Header, run)
	if refused != nil {
		refused.write(w)
		return
	}
	g := &passage{p: p, up: up, path: path, rawPath: rawPath, client: r.Context(), began: time.Now()}
	if open := p.cfg.Trace; open != nil {
		g.span = open(a.trace)
	}
	p.observe(g, a, r)
	if g.watch != nil {
		defer g.watch.body.close("")
	}
	if h := p.cfg.Hooks.Opened; h != nil {
		h(up.Name)
	}
	// Without this an HTTP/1 server closes the request's body when the answer begins. A transport that has
	// not yet seen the body's end, which it looks for behind the last byte, would then break the answer off.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
	// The answer that breaks off ends the handler with a panic that belongs to the server.
	defer g.finish(OutcomeCancelled)
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passageKey{}, g)))
	if !g.switched {
		// The transport may still look for the body's end. An HTTP/1 server that finds it after the handler, in full
		// duplex, begins to read in the background and panics over its own next read.
		_ = r.Body.Close()
	}
	if g.watch != nil {
		g.watch.settle(g, r)
	}
}

// observe takes a model call into its run, and watches the answer to a question about a response.
func (p *Proxy) observe(g *passage, a asked, r *http.Request) {
	a.watched = responseID(r, g.path)
	kind, model, ok := recognise(r, g.path)
	if a.watched != "" {
		news := p.made.locate(&a)
		g.key = a.key
		if !ok {
			g.watch = newWatch(p, a)
		}
		ok = ok && (news || a.end != "") // a request that has nothing new may end its run
	}
	if !ok {
		return
	}
	if a.key.Run == "" {
		a.key.Run = p.cfg.IDs.Run(g.began)
	}
	g.key = a.key
	g.call, g.why = p.openCall(a, kind, model, r, callerOf(r, g.up, g.path))
}

func (p *Proxy) prefixes() string {
	var names []string
	for _, u := range p.cfg.Upstreams {
		names = append(names, "/"+u.Name+"/")
	}
	return strings.Join(names, ", ")
}

// openCall starts the recorder of a call, or returns why it is not recorded. A call whose run is not known goes into
// one when its request has been read.
func (p *Proxy) openCall(a asked, kind api, model string, r *http.Request, caller sum) (*call, string) {
	p.mu.Lock()
	if why := p.full(); why != "" {
		p.mu.Unlock()
		return nil, why
	}
	p.open++
	c := newCall(p, a, kind, model, r)
	c.caller = caller
	p.work.Add(1)
	p.mu.Unlock()
	if a.named || a.watched != "" || p.cfg.Requests == RequestsNone {
		c.settle(schema.RunKey{})
	}
	go func() {
		defer p.work.Done()
		c.record(p.ctx)
		p.leave(c)
		close(c.left)
	}()
	return c, ""
}

// join takes a call into its run. It is called with the lock held.
func (p *Proxy) join(c *call, fresh bool) {
	rn := p.runs[c.asked.key]
	if rn == nil {
		rn = newRun(p, c.asked.key, c.asked.named)
		rn.fresh = fresh
		p.runs[c.asked.key] = rn
	}
	if rn.place != nil {
		p.idle.Remove(rn.place)
		rn.place = nil
	}
	rn.awaited = false
	rn.calls++
	c.run, c.lane = rn, rn.enter(c.asked.child)
	c.before, c.lane.tail = c.lane.tail, c.done
}

// reportUnrecorded reports that a call that is over was not recorded.
func (p *Proxy) reportUnrecorded(key schema.RunKey, why string, bytes int64) {
	p.mu.Lock()
	known := p.runs[key]
	p.mu.Unlock()
	if known != nil {
		known.owe(loss{why, bytes})
	}
	p.reportLoss(Loss{Key: key, Reason: why, Bytes: bytes}, nil)
}

// full returns why no more calls are recorded, or "".
func (p *Proxy) full() string {
	switch {
	case p.closing:
		return reasonShutdown
	case p.open >= p.cfg.MaxCalls:
		return reasonCalls
	}
	return ""
}

// leave takes a call that is stored, or given up, out of its run.
func (p *Proxy) leave(c *call) {
	p.mu.Lock()
	p.open--
	rn := c.run
	rn.calls--
	if c.over {
		rn.over--
	}
	c.lane.calls--
	var gone []*run
	if rn.calls == 0 {
		rn.since, rn.seen = time.Now(), nil
		rn.place = p.idle.PushBack(rn)
		if !rn.named && !rn.awaited {
			gone = append(gone, p.forget(rn))
		}
	}
	for p.idle.Len() > p.cfg.MaxRuns {
		gone = append(gone, p.forget(p.idle.Front().Value.(*run)))
	}
	p.mu.Unlock()
	p.close(p.ctx, gone)
}

// forget takes a run without calls out of memory. It is called with the lock held; the run is to be
// closed without it.
func (p *Proxy) forget(rn *run) *run {
	p.idle.Remove(rn.place)
	rn.place = nil
	delete(p.runs, rn.key)
	return rn
}

func (p *Proxy) close(ctx context.Context, runs []*run) {
	for _, rn := range runs {
		if err := rn.close(ctx); err != nil {
			p.cfg.Logger.Warn("proxy: close run", "run", rn.key.String(), "err", err)
		}
	}
}

// Run ends idle runs until ctx ends. Then it waits for what is being recorded, for Config.Grace at most,
// and lets go of all runs. Calls that come later pass unrecorded, so the server should end first.
func (p *Proxy) Run(ctx context.Context) error {
	least := p.cfg.IdleEnd
	if least == 0 || p.cfg.ToolHold > 0 && p.cfg.ToolHold < least {
		least = p.cfg.ToolHold
	}
	if least > 0 {
		tick := time.NewTicker(max(least/4, time.Millisecond))
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
				p.endIdle(ctx)
			case <-ctx.Done():
			}
		}
	}
	<-ctx.Done()
	p.mu.Lock()
	p.closing = true
	close(p.quit)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.work.Wait(); close(done) }()
	grace := time.NewTimer(p.cfg.Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
	last, cancel := context.WithTimeout(p.ctx, idleTry)
	p.close(last, p.forgetAll(func(rn *run) bool { return rn.awaited }))
	cancel()
	p.cancel(errShutdown)
	<-done
	p.close(p.ctx, p.forgetAll(func(*run) bool { return true }))
	return nil
}

// forgetAll forgets the runs without calls that are chosen, and returns them.
func (p *Proxy) forgetAll(choose func(*run) bool) (gone []*run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.idle.Front(); e != nil; {
		rn := e.Value.(*run)
		e = e.Next()
		if choose(rn) {
			gone = append(gone, p.forget(rn))
		}
	}
	return gone
}

// reportLoss reports a loss to the operator. why is the error that led to it; nil: the reason is all.
func (p *Proxy) reportLoss(l Loss, why error) {
	if h := p.cfg.Hooks.Lost; h != nil {
		h(l)
	}
	args := []any{"run", l.Key.String(), "reason", l.Reason, "bytes", l.Bytes}
	if why != nil {
		args = append(args, "err", why)
	}
	if l.Recorded {
		p.cfg.Logger.Info("proxy: a run lacks a part, and says so", args...)
		return
	}
	p.cfg.Logger.Warn("proxy: the recording of a run is incomplete, and the run has no loss event", args...)
}

// Reasons of losses that are not a full buffer's.
const (
	reasonShutdown = "the proxy was shut down"
	reasonAwaited  = "the proxy waits no longer for the results of tools"
	reasonCalls    = "too many calls wait for the log"
	reasonEnded    = "the run was ended meanwhile"
	reasonRefused  = "the log refused the events"
	reasonFault    = "a fault of the recorder"
	reasonLong     = "the answer is longer than is recorded"
	reasonCoding   = "the content coding cannot be read"
	reasonRequest  = "the request is longer than is kept"
	reasonAsked    = "its caller said so" // of an end, not of a loss
)

// text of an error for the log of the process.
func trail(doing string, key schema.RunKey, err error) error {
	return fmt.Errorf("proxy: %s %s: %w", doing, key, err)
}
