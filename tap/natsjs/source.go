package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
	"agentstream/tap"
)

// Join returns a member of the tap that cfg.Spec names, on the log at a connection. It sets the configuration's queues,
// places and letters. A tap of a name that is new is made. The error wraps natskit.ErrNotDeclared when there is no log,
// ErrExists when the name is that of a tap of another tenant.
func Join(ctx context.Context, nc *nats.Conn, cfg tap.Config) (*tap.Tap, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	p, err := Open(ctx, nc)
	if err != nil {
		return nil, err
	}
	cfg.Spec, _, err = p.Begin(ctx, cfg.Spec)
	if err == nil {
		err = p.prepare(ctx, js, &cfg)
	}
	if err != nil {
		return nil, err
	}
	return tap.New(cfg)
}

// prepare completes a tap's configuration with what reads the log: queues, places and letters. For partitions without a
// place it makes the one that the specification asks for. Members of a tap may do so at once.
func (p *Places) prepare(ctx context.Context, js jetstream.JetStream, cfg *tap.Config) error {
	spec := &cfg.Spec
	queues, err := perjs.Queues(ctx, js, perjs.Config{Tap: spec.Name, Tenant: spec.Tenant})
	if err != nil {
		return err
	}
	places, err := p.Places(ctx, spec.Name)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, place := range places {
		known[place.Offset.Stream] = true
	}
	for i, q := range queues {
		if known[q.Stream()] || spec.From.IsZero() {
			continue
		}
		at, err := perjs.OffsetSince(ctx, js, i, spec.From)
		if err != nil {
			return err
		}
		_, err = p.Move(ctx, spec.Name, tap.Standing{Offset: at})
		if err != nil && !errors.Is(err, persister.ErrOvertaken) {
			return err
		}
	}
	if cfg.MaxLetters > 0 {
		p.most = cfg.MaxLetters
	}
	cfg.Queues, cfg.Places, cfg.Letters, cfg.Back = queues, p, p, &rewind{js}
	return nil
}

// rewind finds where to go on in a log that came back shorter than it was.
type rewind struct{ js jetstream.JetStream }

// rewindBy is how much earlier a tap goes on then: clocks may have gone back. What it has delivered it does not deliver
// again.
const rewindBy = time.Minute

// Refill implements persister.Refiller. It writes nothing: the persister does, from the archive.
func (r *rewind) Refill(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	layout, err := natskit.ReadLayout(ctx, r.js)
	if err != nil {
		return stored, err
	}
	for partition := range layout.Partitions {
		if natskit.StreamName(partition) == stored.Stream {
			return perjs.OffsetSince(ctx, r.js, partition, stored.StoredAt.Add(-rewindBy))
		}
	}
	return stored, fmt.Errorf("tap: %s is no partition of the log", stored.Stream)
}

// Lag is how far a tap is behind.
type Lag struct {
	Messages uint64    // approximate number of packs that are in the log and not delivered
	Oldest   time.Time // when the oldest of them was stored; zero: there is none
	Members  int       // that have a partition
	Letters  int
	Full     bool   // it has as many dead letters as are kept, and waits when there is one more
	Moved    uint64 // sum of the positions
}

// Lag returns how far a tap is behind.
func (p *Places) Lag(ctx context.Context, js jetstream.JetStream, spec tap.Spec) (l Lag, err error) {
	queues, err := perjs.Queues(ctx, js, perjs.Config{Tap: spec.Name, Tenant: spec.Tenant})
	if err != nil {
		return l, err
	}
	places, err := p.Places(ctx, spec.Name)
	if err != nil {
		return l, err
	}
	at, owners := map[string]persister.Offset{}, map[string]bool{}
	for _, place := range places {
		at[place.Offset.Stream] = place.Offset
		l.Moved += place.Offset.Position
		if place.Owner != "" {
			owners[place.Owner] = true
		}
	}
	l.Members = len(owners)
	for _, q := range queues {
		lag, err := q.Lag(ctx, at[q.Stream()])
		if err != nil {
			return l, err
		}
		l.Messages += lag.Messages
		if !lag.Oldest.IsZero() && (l.Oldest.IsZero() || lag.Oldest.Before(l.Oldest)) {
			l.Oldest = lag.Oldest
		}
	}
	letters, err := p.countLetters(ctx, spec.Name)
	if err == nil {
		l.Letters, l.Full = letters.count, !p.hasRoom(letters, 1)
	}
	return l, err
}

// Forget removes a tap with its consumers. The error wraps ErrNoTap when there is none.
func (p *Places) Forget(ctx context.Context, js jetstream.JetStream, name string) error {
	removed := p.Remove(ctx, name)
	if err := perjs.ForgetTap(ctx, js, name); err != nil {
		return err
	}
	return removed
}
