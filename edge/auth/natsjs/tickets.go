package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge/auth"
	"agentstream/internal/natskit"
)

// Tickets keeps tickets in a bucket whose entries expire. Make it with OpenTickets.
type Tickets struct {
	nc *nats.Conn
	kv jetstream.KeyValue
}

var _ auth.TicketStore = (*Tickets)(nil)

// TicketsBucket is the name of the bucket.
const TicketsBucket = "AGENT_TICKETS"

// Bounds of the bucket. A ticket takes about 500 bytes; when the bucket is full, new ones are refused.
const (
	bucketBytes = 64 << 20
	maxRecord   = 4 << 10
)

// OpenTickets opens the bucket, making it when it is missing. replicas 0 is 1.
func OpenTickets(ctx context.Context, nc *nats.Conn, replicas int) (*Tickets, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: tickets: %w", err)
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: TicketsBucket, Description: "agentstream: stream tickets", TTL: auth.MaxTicketTTL,
		Storage: jetstream.MemoryStorage, Replicas: max(replicas, 1), History: 1,
		MaxBytes: bucketBytes, MaxValueSize: maxRecord,
	})
	if err != nil {
		return nil, fmt.Errorf("natsjs: tickets: open bucket %s: %w", TicketsBucket, err)
	}
	return &Tickets{nc: nc, kv: kv}, nil
}

// Put keeps the record until it is taken, at most auth.MaxTicketTTL. That is longer than asked for:
// the record itself says when it ends.
func (t *Tickets) Put(ctx context.Context, id string, record []byte, _ time.Duration) error {
	if _, err := t.kv.Create(ctx, id, record); err != nil {
		return fmt.Errorf("natsjs: tickets: put: %w", err)
	}
	return nil
}

// Take reads the record and purges exactly what it has read.
func (t *Tickets) Take(ctx context.Context, id string) ([]byte, error) {
	m, err := natskit.LastFromLeader(ctx, t.nc, "KV_"+TicketsBucket, "$KV."+TicketsBucket+"."+id)
	if errors.Is(err, natskit.ErrNoMessage) || err == nil && len(m.Data) == 0 { // a purge leaves an empty message
		return nil, fmt.Errorf("natsjs: tickets: %w", auth.ErrNoTicket)
	}
	if err != nil {
		return nil, fmt.Errorf("natsjs: tickets: take: %w", err)
	}
	err = t.kv.Purge(ctx, id, jetstream.LastRevision(m.Seq))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil, fmt.Errorf("natsjs: tickets: taken by another: %w", auth.ErrNoTicket)
	}
	if err != nil {
		return nil, fmt.Errorf("natsjs: tickets: take: %w", err)
	}
	return m.Data, nil
}
