package natskit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/textproto"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The buckets.
const (
	KeysBucket    = "AGENT_KEYS"    // idempotency keys
	TicketsBucket = "AGENT_TICKETS" // stream tickets
	TapsBucket    = "AGENT_TAPS"    // how far taps have come, and what they could not deliver
)

// KeysTTL is how long a repeat is recognised, TicketsTTL how long a ticket can be redeemed at most.
const (
	KeysTTL    = 24 * time.Hour
	TicketsTTL = 10 * time.Minute
)

// buckets is how the buckets are declared. A ticket takes about 500 bytes; when their bucket is full, new ones are
// refused.
func (l Layout) buckets() []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{{
		Bucket: KeysBucket, Description: "agentstream: idempotency keys", TTL: KeysTTL,
		Storage: jetstream.FileStorage, Replicas: l.Replicas, History: 1,
	}, {
		Bucket: TicketsBucket, Description: "agentstream: stream tickets", TTL: TicketsTTL,
		Storage: jetstream.MemoryStorage, Replicas: l.Replicas, History: 1,
		MaxBytes: 64 << 20, MaxValueSize: 4 << 10,
	}, {
		Bucket: TapsBucket, Description: "agentstream: places and dead letters of taps",
		Storage: jetstream.FileStorage, Replicas: l.Replicas, History: 1,
	}}
}

// lasting returns the buckets that a log must have: those in memory are made again by who opens them, and a log of
// before has none for taps.
func (l Layout) lasting() (all []jetstream.KeyValueConfig) {
	for _, b := range l.buckets() {
		if b.Storage != jetstream.MemoryStorage && b.Bucket != TapsBucket {
			all = append(all, b)
		}
	}
	return all
}

// Bucket is a key-value bucket of which every answer counts: reads come from its leader, and what is not
// answered is tried again, without being done twice. Make it with OpenBucket.
type Bucket struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	name string
}

// OpenBucket opens a bucket, and makes one that lies in memory, and is missing, again. It wraps ErrNotDeclared when
// there is none.
func OpenBucket(ctx context.Context, nc *nats.Conn, name string) (*Bucket, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	b := &Bucket{nc, js, name}
	_, err = stream(ctx, js, b.stream())
	if errors.Is(err, ErrNotDeclared) && name == TicketsBucket {
		if err = b.again(ctx, err); errors.Is(err, errAgain) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return b, nil
}

func bucketStream(name string) string { return "KV_" + name }

func (b *Bucket) stream() string            { return bucketStream(b.name) }
func (b *Bucket) subject(key string) string { return "$KV." + b.name + "." + key }

// Headers of what is not a value: that it is a deletion, and a word of whoever took the value.
const (
	operation = "KV-Operation"
	taker     = "Agent-Taker"
)

// header reads one of a message that the leader gave.
func (m *Msg) header(name string) string { return textproto.MIMEHeader(m.Header).Get(name) }

// isDeleted reports whether the message marks a removal.
func (m *Msg) isDeleted() bool { return m.header(operation) != "" }

// IsRefused reports whether the server has refused a message because its subject's newest is not the one that
// was expected, or because another one is being stored. It is certain that the message is not stored.
func IsRefused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Error codes of the server, for what it has no room for.
const (
	errAccountFull jetstream.ErrorCode = 10002 // the account's bytes are used up
	errServerFull  jetstream.ErrorCode = 10023 // the server's
	errNoStorage   jetstream.ErrorCode = 10047 // less is left than would be reserved
	errNotStored   jetstream.ErrorCode = 10077 // a bound of the stream refuses it, which drops nothing to make room
)

// NoRoom reports whether the server has refused to store for want of room.
func NoRoom(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case errAccountFull, errServerFull, errNoStorage, errNotStored:
		return true
	}
	return false
}

// Create stores a value unless the key has one, and returns the value that counts. Where it is the very same,
// nobody knows whether an earlier try of this call has stored it.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (counts []byte, err error) {
	after := uint64(0)
	err = Repeat(ctx, b.nc, func(ctx context.Context, wait time.Duration) error {
		err := b.store(ctx, wait, &nats.Msg{Subject: b.subject(key), Data: value},
			jetstream.WithExpectLastSequencePerSubject(after))
		if err != nil && Passing(err) {
			// who listens to its subjects beside it keeps the servers from saying that it is missing
			err = b.again(ctx, err)
		}
		if counts = value; err == nil || !IsRefused(err) {
			return err
		}
		m, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject(key))
		switch {
		case errors.Is(err, ErrNoMessage): // what it was refused for is being stored, or has expired
			return errAgain
		case err == nil && m.isDeleted():
			after = m.Seq
			return errAgain
		}
		counts = m.Data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create %s in %s: %w", key, b.name, err)
	}
	return counts, nil
}

// again makes the bucket when it is missing: one in memory goes with a single server. Many may do so at once. The error
// says that another try is to be made, or is why.
func (b *Bucket) again(ctx context.Context, why error) error {
	once, cancel := context.WithTimeout(ctx, Try)
	defer cancel()
	if _, err := b.js.Stream(once, b.stream()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return why
	}
	l, err := ReadLayout(ctx, b.js)
	if err != nil {
		return err
	}
	for _, cfg := range l.buckets() {
		if cfg.Bucket != b.name {
			continue
		}
		if _, err := b.js.CreateOrUpdateKeyValue(once, cfg); err != nil {
			return err
		}
	}
	return errAgain
}

// Put stores a value, whatever is there.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) error {
	err := repeatOn(ctx, b.nc, b.stream(), func(ctx context.Context, wait time.Duration) error {
		return b.store(ctx, wait, &nats.Msg{Subject: b.subject(key), Data: value})
	})
	if err != nil {
		return fmt.Errorf("put %s into %s: %w", key, b.name, err)
	}
	return nil
}

// Take removes a value that is wanted, and hands it to one of all who ask for it. It wraps ErrNoMessage for the
// others, and when the value is not wanted. wanted may be asked more than once.
func (b *Bucket) Take(ctx context.Context, key string, wanted func(value []byte) bool) error {
	me := rand.Text()
	err := repeatOn(ctx, b.nc, b.stream(), func(ctx context.Context, wait time.Duration) error {
		m, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject(key))
		switch {
		case err != nil:
			return err
		case m.isDeleted() && m.header(taker) == me: // by a try that was not answered
			return nil
		case m.isDeleted():
			return ErrNoMessage
		}
		if !wanted(m.Data) {
			return ErrNoMessage
		}
		purge := &nats.Msg{Subject: b.subject(key), Header: nats.Header{operation: {"PURGE"}, taker: {me}}}
		purge.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		if err = b.store(ctx, wait, purge, jetstream.WithExpectLastSequencePerSubject(m.Seq)); IsRefused(err) {
			return errAgain // now there is who was first
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take %s from %s: %w", key, b.name, err)
	}
	return nil
}

// store sends one message once. It is given twice the time of a read, because more copies of it are made with
// every try.
func (b *Bucket) store(ctx context.Context, wait time.Duration, m *nats.Msg, opts ...jetstream.PublishOpt) error {
	once, cancel := context.WithTimeout(ctx, min(2*wait, Try))
	defer cancel()
	_, err := b.js.PublishMsg(once, m, append(opts, jetstream.WithRetryAttempts(0))...)
	return err
}
