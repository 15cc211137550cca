package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/edge/auth"
	"agentstream/internal/natskit"
)

// Tickets keeps tickets in natskit.TicketsBucket, whose entries expire. Make it with OpenTickets.
type Tickets struct{ bucket *natskit.Bucket }

var _ auth.TicketStore = (*Tickets)(nil)

const _ = uint(natskit.TicketsTTL - auth.MaxTicketTTL) // the bucket keeps them for long enough

// OpenTickets opens the bucket. It wraps natskit.ErrNotDeclared when there is none.
func OpenTickets(ctx context.Context, nc *nats.Conn) (*Tickets, error) {
	b, err := natskit.OpenBucket(ctx, nc, natskit.TicketsBucket)
	if err != nil {
		return nil, fmt.Errorf("natsjs: tickets: %w", err)
	}
	return &Tickets{b}, nil
}

// Put keeps the record until it is taken, at most auth.MaxTicketTTL. That is longer than asked for:
// the record itself says when it ends.
func (t *Tickets) Put(ctx context.Context, id string, record []byte, _ time.Duration) error {
	counts, err := t.bucket.Create(ctx, id, record)
	if err == nil && !bytes.Equal(counts, record) {
		err = errors.New("the id is another ticket's")
	}
	if err != nil {
		return fmt.Errorf("natsjs: tickets: put: %w", err)
	}
	return nil
}

// Redeem reads the record and purges exactly what it has read, when that is wanted.
func (t *Tickets) Redeem(ctx context.Context, id string, wanted func([]byte) bool) error {
	err := t.bucket.Take(ctx, id, wanted)
	if errors.Is(err, natskit.ErrNoMessage) {
		return fmt.Errorf("natsjs: tickets: %w", auth.ErrNoTicket)
	}
	if err != nil {
		return fmt.Errorf("natsjs: tickets: take: %w", err)
	}
	return nil
}
