package natsjs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
)

// RosterBucket is the name of the bucket with members and leases.
const RosterBucket = "AGENT_PERSIST"

// RosterConfig says how persisters share partitions. The zero value works; all processes must agree.
type RosterConfig struct {
	Beat   time.Duration // how often a member shows itself and renews its leases; default 1.5 s
	TTL    time.Duration // what is not renewed for so long is over; default 6 s, at least 3 beats
	Alone  time.Duration // without the bucket for so long, a member fetches every partition; default 30 s
	Logger *slog.Logger  // nil discards
}

func (c RosterConfig) withDefaults() RosterConfig {
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{{&c.Beat, 1500 * time.Millisecond}, {&c.TTL, 6 * time.Second}, {&c.Alone, 30 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Roster shares the partitions of a log among the processes that persist it, so that each is fetched by
// one of them: one after the other in order, and nothing twice. It is for that alone. Nothing depends on
// it: messages are confirmed by name, and two that fetch one partition do each other no harm.
//
// Make it with OpenRoster, hand it to Queues, and run it for longer than what fetches.
type Roster struct {
	cfg      RosterConfig
	js       jetstream.JetStream
	nc       *nats.Conn
	replicas int
	me       string
	kv       jetstream.KeyValue // of the goroutine in Run; nil: to be opened
	kicked   chan struct{}      // something has changed: do not wait for the next beat

	mu      sync.Mutex
	seats   []seat
	known   map[string]bool // members, as last seen
	changed chan struct{}   // closed at every change, and made anew
	checked time.Time       // when the last beat ended, however; zero: none has
	reached time.Time       // when the bucket last answered; from the beginning, when Run began
	open    *lease          // set while this member fetches everything, because the bucket is away
}

// seat is what this member knows of one partition.
type seat struct {
	lease    *lease // nil: it is not ours
	revision uint64
	leaving  time.Time // since when it is being handed over; zero: it stays
	out      int       // messages handed out and neither confirmed nor released
}

// lease ends when the partition is another's.
type lease struct {
	ctx context.Context
	end context.CancelFunc
}

func newLease() *lease {
	ctx, end := context.WithCancel(context.Background())
	return &lease{ctx, end}
}

// OpenRoster reads the layout of the log; the error wraps natskit.ErrNotDeclared when there is none. It
// starts nothing: until Run does, no partition is ours.
func OpenRoster(ctx context.Context, js jetstream.JetStream, cfg RosterConfig) (*Roster, error) {
	cfg = cfg.withDefaults()
	if cfg.Beat < 0 || cfg.TTL < 3*cfg.Beat || cfg.Alone < 0 {
		return nil, errors.New("natsjs: roster: the time to live must be three beats at least")
	}
	l, err := natskit.Declared(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: roster: %w", err)
	}
	return &Roster{
		cfg: cfg, js: js, nc: js.Conn(), replicas: max(1, l.Replicas), me: rand.Text(),
		kicked: make(chan struct{}, 1), seats: make([]seat, l.Partitions), changed: make(chan struct{}),
	}, nil
}

// Run takes part until ctx ends, and then hands over at once what it holds.
func (r *Roster) Run(ctx context.Context) error {
	r.mu.Lock()
	r.reached = time.Now()
	r.mu.Unlock()
	news, err := r.nc.Subscribe("$KV."+RosterBucket+".>", r.hear)
	if err != nil { // every beat looks anyway
		r.cfg.Logger.Debug("persister: roster: news", "error", err)
	} else {
		defer func() { _ = news.Unsubscribe() }()
	}
	tick := time.NewTicker(r.cfg.Beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.look(ctx)
		select {
		case <-tick.C:
		case <-r.kicked:
		case <-ctx.Done():
		}
	}
	r.leave()
	return nil
}

// hear takes a hint that members or leases have changed. It sees what is asked of the bucket, refused
// or not; only the bucket's content counts.
func (r *Roster) hear(m *nats.Msg) {
	gone := m.Header.Get(kvOperation) != ""
	who := m.Subject[len("$KV."+RosterBucket+"."):]
	r.mu.Lock()
	news := gone || len(who) > len(memberKey) && who[:len(memberKey)] == memberKey && !r.known[who[len(memberKey):]]
	r.mu.Unlock()
	if news && who != memberKey+r.me {
		r.kick()
	}
}

func (r *Roster) kick() {
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// look beats, and says when the bucket is away for long.
func (r *Roster) look(ctx context.Context) {
	err := r.beat(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = time.Now()
	defer r.tell()
	if err == nil {
		if r.reached = r.checked; r.open != nil {
			r.cfg.Logger.Info("persister: partitions are shared again")
			r.open.end()
			r.open = nil
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	r.kv = nil
	r.cfg.Logger.Debug("persister: roster", "error", err)
	if r.open == nil && r.checked.Sub(r.reached) >= r.cfg.Alone {
		r.cfg.Logger.Warn("persister: partitions cannot be shared, all are fetched here", "error", err)
		r.open = newLease()
	}
}

// tell wakes those that wait. With mu.
func (r *Roster) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// turn waits until the partition is ours, at most so long. The lease ends when it is not any more.
func (r *Roster) turn(ctx context.Context, partition int, wait time.Duration) *lease {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		r.mu.Lock()
		l, changed := r.ours(partition), r.changed
		r.mu.Unlock()
		if l != nil {
			return l
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// ours gives the lease of a partition, nil when it is another's. With mu. A process that was paused must
// look first: its leases may be over. One that looks and reaches nothing keeps them.
func (r *Roster) ours(partition int) *lease {
	if r.open != nil {
		return r.open
	}
	s := &r.seats[partition]
	if !s.leaving.IsZero() || time.Since(r.checked) > r.cfg.TTL {
		return nil
	}
	return s.lease
}

func (r *Roster) holds(partition int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ours(partition) != nil
}

// handed counts messages that are with the store; a partition is handed over when there are none.
func (r *Roster) handed(partition, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.seats[partition]
	if s.out = max(0, s.out+n); s.out == 0 && !s.leaving.IsZero() {
		r.kick()
	}
}

const (
	memberKey = "member."
	leaseKey  = "lease."
)

func leaseOf(partition int) string { return leaseKey + strconv.Itoa(partition) }

// kvOperation is the header of what deletes a key.
const kvOperation = "KV-Operation"
