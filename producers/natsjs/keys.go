package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/producers"
)

// Keys keeps idempotency keys in a bucket whose entries expire.
type Keys struct {
	kv jetstream.KeyValue
}

var _ producers.Keys = (*Keys)(nil)

// KeysBucket is the name of the bucket.
const KeysBucket = "AGENT_KEYS"

// KeysConfig says how keys are kept.
type KeysConfig struct {
	TTL      time.Duration // how long a repeat is recognised; default 24 h
	Replicas int           // default 1
}

// OpenKeys opens the bucket, making it when it is missing.
func OpenKeys(ctx context.Context, nc *nats.Conn, cfg KeysConfig) (*Keys, error) {
	if cfg.TTL == 0 {
		cfg.TTL = 24 * time.Hour
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: keys: %w", err)
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: KeysBucket, Description: "agentstream: idempotency keys", TTL: cfg.TTL,
		Storage: jetstream.FileStorage, Replicas: cfg.Replicas, History: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("natsjs: keys: open bucket %s: %w", KeysBucket, err)
	}
	return &Keys{kv: kv}, nil
}

// Begin creates the record or reads the one that is there.
func (k *Keys) Begin(ctx context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, bool, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return r, false, fmt.Errorf("natsjs: keys: %w", err)
	}
	_, err = k.kv.Create(ctx, id, value)
	if err == nil {
		return r, true, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return r, false, fmt.Errorf("natsjs: keys: begin %s: %w: %w", id, producers.ErrUnavailable, err)
	}
	// Not found here means a replica that lags, or expiry in this very moment: either way the caller
	// must come again.
	e, err := k.kv.Get(ctx, id)
	if err != nil {
		return r, false, fmt.Errorf("natsjs: keys: read %s: %w: %w", id, producers.ErrUnavailable, err)
	}
	if err := json.Unmarshal(e.Value(), &r); err != nil {
		return r, false, fmt.Errorf("natsjs: keys: record %s: %w", id, err)
	}
	return r, false, nil
}

// Finish overwrites the record with the answer.
func (k *Keys) Finish(ctx context.Context, id string, r producers.KeyRecord) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("natsjs: keys: %w", err)
	}
	if _, err := k.kv.Put(ctx, id, value); err != nil {
		return fmt.Errorf("natsjs: keys: finish %s: %w", id, err)
	}
	return nil
}
