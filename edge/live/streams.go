package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/edge/transport"
)

// Config sets a Live up.
type Config struct {
	Runs        *runs.Runs
	State       *state.Cache
	MaxStreams  int                     // open at a time; 0 is no limit
	Streams     func(tenant string) int // of them, of one tenant; 0 is no limit. nil: there is none
	KeepAlive   time.Duration           // silence after which a stream shows a sign of life
	LogTimeout  time.Duration           // for the log to give what a stream begins with
	DrainWindow time.Duration           // over which streams are ended at shutdown
	Recheck     time.Duration           // between two looks at the callers of open streams
	Still       func(auth.Caller) error
	Hooks       Hooks
}

// Live serves the open streams of a node. It is safe for concurrent use.
type Live struct {
	cfg   Config
	views views

	mu       sync.Mutex
	streams  map[*Life]struct{}
	more     int            // subscriptions beyond the first of their conversation
	held     map[string]int // of both, by tenant
	draining bool
	cut      bool          // connections that were taken over are closed at once
	empty    chan struct{} // closed when draining and no stream is left
	closing  chan struct{} // closed when draining begins
}

// New starts nothing.
func New(cfg Config) *Live {
	return &Live{cfg: cfg, views: views{hub: cfg.Runs.Hub, hooks: cfg.Hooks},
		streams: make(map[*Life]struct{}), held: make(map[string]int), empty: make(chan struct{}),
		closing: make(chan struct{})}
}

// Closing returns a channel that is closed when the node begins to go away.
func (v *Live) Closing() <-chan struct{} { return v.closing }

// Empty returns a channel that is closed when the node goes away and its last stream has ended.
func (v *Live) Empty() <-chan struct{} { return v.empty }

// Draining reports whether the node goes away.
func (v *Live) Draining() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.draining
}

// Close ends what the streams have shared. There must be none left, or none that matters.
func (v *Live) Close() { v.views.close() }

// list returns the open streams, in no order.
func (v *Live) list() []*Life {
	list := make([]*Life, 0, len(v.streams))
	for l := range v.streams {
		list = append(list, l)
	}
	return list
}

// Drain takes no more streams and ends those that are open one after another, behind transport.Notice and spread over
// DrainWindow, so that their clients do not arrive elsewhere all at once. The order is the map's, which is random
// enough.
func (v *Live) Drain(ctx context.Context) {
	v.mu.Lock()
	v.draining = true
	close(v.closing)
	left := v.list()
	if len(left) == 0 {
		close(v.empty)
	}
	v.mu.Unlock()
	if len(left) == 0 {
		return
	}
	begun := time.Now().Add(transport.Notice)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, l := range left {
		// The first goes when the notice is over, the last at the end of the window.
		due := time.Duration(float64(v.cfg.DrainWindow) * float64(i) / float64(len(left)))
		timer.Reset(time.Until(begun.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		l.Stop(ends.ErrDraining)
	}
}

// Took notes that a stream's connection is not the HTTP server's any more, which would close it.
func (v *Live) Took(l *Life, conn interface{ Cut() }) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.conn = conn
	if v.cut {
		conn.Cut()
	}
}

// Cut closes the connections that the HTTP server does not, now and later.
func (v *Live) Cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut = true
	for l := range v.streams {
		if l.conn != nil {
			l.conn.Cut()
		}
	}
}

// Enter counts a stream in, once. It wraps ErrDraining or ErrBusy when there is no place, ErrLimited when there is none
// for its tenant.
func (v *Live) Enter(l *Life) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, in := v.streams[l]; in {
		return nil
	}
	if v.draining {
		return ends.ErrDraining
	}
	if err := v.hold(l.Caller.Tenant); err != nil {
		return err
	}
	v.streams[l] = struct{}{}
	return nil
}

// limitedStreams is after how long a tenant that has as many streams as it may is to come again.
const limitedStreams = 5 * time.Second

// hold counts one more of a tenant. It needs mu. It wraps ErrBusy or ErrLimited when there is no place.
func (v *Live) hold(tenant string) error {
	n := len(v.streams) + v.more
	if v.cfg.MaxStreams > 0 && n >= v.cfg.MaxStreams {
		return fmt.Errorf("%d streams: %w", n, ends.ErrBusy)
	}
	if v.cfg.Streams == nil {
		return nil
	}
	if most := v.cfg.Streams(tenant); most > 0 && v.held[tenant] >= most {
		return &ends.LimitError{What: "streams at once", Verb: "open", Wait: limitedStreams}
	}
	v.held[tenant]++
	return nil
}

// let counts one less of a tenant. It needs mu.
func (v *Live) let(tenant string) {
	if v.cfg.Streams == nil {
		return
	}
	v.held[tenant]--
	if v.held[tenant] == 0 {
		delete(v.held, tenant)
	}
}

func (v *Live) Leave(l *Life) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, in := v.streams[l]; !in {
		return
	}
	v.let(l.Caller.Tenant)
	if delete(v.streams, l); v.draining && len(v.streams) == 0 {
		close(v.empty)
	}
}

// Watch ends streams whose credential was revoked, until ctx ends.
func (v *Live) Watch(ctx context.Context) {
	if v.cfg.Still == nil {
		return
	}
	tick := time.NewTicker(v.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v.mu.Lock()
		open := v.list()
		v.mu.Unlock()
		for _, l := range open {
			if err := v.cfg.Still(l.Caller); err != nil {
				l.Stop(fmt.Errorf("%w: %s", auth.ErrExpired, err)) // the refusal alone would be that of a request
			}
		}
	}
}

// Census is what a node holds of its streams.
type Census struct {
	Streams int // open
	Parked  int // of them, without a goroutine
	Views   int
}

// Census counts.
func (v *Live) Census() (c Census) {
	v.mu.Lock()
	c.Streams = len(v.streams)
	v.mu.Unlock()
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	c.Views = len(v.views.open)
	for _, w := range v.views.open {
		w.mu.Lock()
		for _, p := range w.projections {
			for _, g := range p.groups {
				c.Parked += len(g.parked)
			}
		}
		w.mu.Unlock()
	}
	return c
}
