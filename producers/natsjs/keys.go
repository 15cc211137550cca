package natsjs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/producers"
)

// Keys keeps idempotency keys in natskit.KeysBucket, whose entries expire.
type Keys struct{ bucket *natskit.Bucket }

var _ producers.Keys = (*Keys)(nil)

// OpenKeys opens the bucket. It wraps natskit.ErrNotDeclared when there is none.
func OpenKeys(ctx context.Context, nc *nats.Conn) (*Keys, error) {
	b, err := natskit.OpenBucket(ctx, nc, natskit.KeysBucket)
	if err != nil {
		return nil, fmt.Errorf("natsjs: keys: %w", err)
	}
	return &Keys{b}, nil
}

// Claim creates the record or reads the one that is there.
func (k *Keys) Claim(ctx context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("natsjs: keys: %w", err)
	}
	value, err = k.bucket.Create(ctx, id, value)
	if natskit.NoRoom(err) {
		return r, fmt.Errorf("natsjs: keys: begin: %w: %w", producers.ErrFull, err)
	}
	if err != nil {
		return r, fmt.Errorf("natsjs: keys: begin: %w: %w", producers.ErrUnavailable, err)
	}
	r = producers.KeyRecord{}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("natsjs: keys: record %s: %w", id, err)
	}
	return r, nil
}

// Finish overwrites the record with the answer.
func (k *Keys) Finish(ctx context.Context, id string, r producers.KeyRecord) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("natsjs: keys: %w", err)
	}
	if err := k.bucket.Put(ctx, id, value); err != nil {
		return fmt.Errorf("natsjs: keys: finish: %w", err)
	}
	return nil
}
