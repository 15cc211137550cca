package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// FollowConfig selects what Follow hands over. Name is required.
type FollowConfig struct {
	Name   string        // of the durable consumers that keep the place; [A-Za-z0-9_-]{1,64}
	Tenant string        // "": all tenants
	Again  time.Duration // a pack that is not done after this is handed over again; default 5 s
	Held   int           // packs of one partition that are not done; at so many no more are handed over; default 1,000
	// Forget is after how long without a follower the place is given up: the next one begins at the beginning of the
	// log's window. 0: never.
	Forget time.Duration
	Logger *slog.Logger
}

func (c FollowConfig) withDefaults() (FollowConfig, error) {
	if c.Again == 0 {
		c.Again = 5 * time.Second
	}
	if c.Held == 0 {
		c.Held = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case schema.ValidTenant(c.Name) != nil: // the same alphabet: it becomes part of a subject
		return c, fmt.Errorf("natsjs: follow: name %q is not [A-Za-z0-9_-]{1,64}", c.Name)
	case c.Tenant != "" && schema.ValidTenant(c.Tenant) != nil:
		return c, fmt.Errorf("natsjs: follow: tenant %q is none", c.Tenant)
	case c.Again < 0 || c.Held < 0:
		return c, errors.New("natsjs: follow: a bound is negative")
	}
	if c.Tenant == "" {
		c.Tenant = "*"
	}
	return c, nil
}

// Follow hands over what runs themselves, not their children, have stored: each pack at least once, those of one
// run in order, also what was stored while nobody followed, as far as the log's window goes. A pack is handed
// over again, by whoever follows under the same name, until done was called for it. hand must not wait; it is
// called by a goroutine for each partition. An outage is waited for. Follow returns when ctx ends, without an
// error, and its goroutines have ended: what is not done by then is handed over at once, to whoever else follows.
func (l *Log) Follow(ctx context.Context, cfg FollowConfig, hand func(p schema.Pack, done func())) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	js, err := jetstream.New(l.nc)
	if err != nil {
		return fmt.Errorf("natsjs: follow: %w", err)
	}
	var group sync.WaitGroup
	for p := range l.partitions {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := l.followOne(ctx, js, p, cfg, hand); ctx.Err() == nil {
					cfg.Logger.Warn("follow the log: beginning again", "partition", p, "name", cfg.Name, "err", err)
					rest(ctx, followRest)
				}
			}
		})
	}
	group.Wait()
	return nil
}

// Bounds of following one partition.
const (
	followAhead = 256 // packs that are asked for before they are needed
	followRest  = time.Second
)

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// followOne follows one partition until something fails.
func (l *Log) followOne(ctx context.Context, js jetstream.JetStream, partition int, cfg FollowConfig,
	hand func(schema.Pack, func())) error {
	consumer, err := js.CreateOrUpdateConsumer(ctx, natskit.StreamName(partition), jetstream.ConsumerConfig{
		Durable:       cfg.Name,
		Description:   "agentstream: what is said in runs, for whoever answers it",
		FilterSubject: schema.StorePrefix + "." + strconv.Itoa(partition) + "." + cfg.Tenant + ".*." + schema.RootLane,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       cfg.Again,
		MaxAckPending: cfg.Held,
		MaxDeliver:    -1,

		InactiveThreshold: cfg.Forget,
	})
	if err != nil {
		return fmt.Errorf("natsjs: consumer %s: %w", cfg.Name, err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(followAhead))
	if err != nil {
		return fmt.Errorf("natsjs: consumer %s: %w", cfg.Name, err)
	}
	held := heldMessages{all: make(map[uint64]jetstream.Msg)}
	defer held.giveBack()
	ended := context.AfterFunc(ctx, msgs.Drain)
	defer func() {
		if ended() {
			msgs.Stop()
		}
	}()
	for {
		m, err := msgs.Next()
		if err != nil {
			return fmt.Errorf("natsjs: consumer %s: %w", cfg.Name, err)
		}
		if ctx.Err() != nil {
			_ = m.Nak()
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("natsjs: consumer %s: %w", cfg.Name, err)
		}
		done := held.hold(meta.Sequence.Stream, m)
		p, err := schema.ParsePack(m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream)
		if err != nil {
			done() // not ours; the persister puts such messages aside and logs them
			continue
		}
		switch p, err = l.seal.Open(ctx, p); {
		case errors.Is(err, schema.ErrKeyGone), errors.Is(err, schema.ErrBadPack):
			done() // nobody can answer it any more
		case err != nil:
			return fmt.Errorf("natsjs: consumer %s: %w", cfg.Name, err)
		default:
			hand(p, done)
		}
	}
}

// heldMessages are the messages of a consumer that are not done.
type heldMessages struct {
	mu  sync.Mutex
	all map[uint64]jetstream.Msg // by their place in the stream
}

// hold notes a message, and returns what is to be called when it is done. One that is lost is handed over again.
func (h *heldMessages) hold(seq uint64, m jetstream.Msg) (done func()) {
	h.mu.Lock()
	h.all[seq] = m
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.all, seq)
		h.mu.Unlock()
		_ = m.Ack()
	}
}

// giveBack lets another follower have what is not done without waiting for it.
func (h *heldMessages) giveBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.all {
		_ = m.Nak()
	}
}
