package natskit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Value is what a bucket has under a key. Revision counts the bucket's changes; 0 means that there is none.
type Value struct {
	Key      string
	Data     []byte
	Revision uint64
}

// Read returns the newest value of a key; the zero Value when there is none.
func (b *Bucket) Read(ctx context.Context, key string) (Value, error) {
	m, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject(key))
	if errors.Is(err, ErrNoMessage) {
		return Value{Key: key}, nil
	}
	if err != nil {
		return Value{}, fmt.Errorf("read %s of %s: %w", key, b.name, err)
	}
	if m.isDeleted() {
		return Value{Key: key, Revision: m.Seq}, nil
	}
	return Value{Key: key, Data: m.Data, Revision: m.Seq}, nil
}

// List returns the values under keys that match a filter such as place.*.3, in the order in which they were stored. Any
// replica may answer: what was stored a moment ago may be missing.
func (b *Bucket) List(ctx context.Context, filter string) (all []Value, err error) {
	request := BatchRequest{Seq: 1, NextBy: b.subject(filter), Batch: listPage}
	for {
		page, err := ReadPage(ctx, b.nc, b.stream(), request)
		if err != nil {
			return nil, fmt.Errorf("list %s of %s: %w", filter, b.name, err)
		}
		for i := range page.Msgs {
			m := &page.Msgs[i]
			request.Seq = m.Seq + 1
			if len(m.Data) > 0 { // or the mark of a removal
				key := strings.TrimPrefix(m.Subject, b.subject(""))
				all = append(all, Value{Key: key, Data: m.Data, Revision: m.Seq})
			}
		}
		if !page.More || len(page.Msgs) == 0 {
			return all, nil
		}
	}
}

// listPage bounds one page of List.
const listPage = 256

// ErrSwapped reports that the key has another revision than the caller knows.
var ErrSwapped = errors.New("the value has changed")

// Swap stores a value where the key's revision is the given one, and returns the new revision. The error wraps
// ErrSwapped when it is another one. No two values that are stored may be the same: that is how a try whose answer was
// lost is recognized.
func (b *Bucket) Swap(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	stored := uint64(0)
	err := Repeat(ctx, b.nc, func(ctx context.Context, wait time.Duration) error {
		once, cancel := context.WithTimeout(ctx, min(2*wait, Try))
		defer cancel()
		m := &nats.Msg{Subject: b.subject(key), Data: value}
		ack, err := b.js.PublishMsg(once, m, jetstream.WithExpectLastSequencePerSubject(revision),
			jetstream.WithRetryAttempts(0))
		switch {
		case err == nil:
			stored = ack.Sequence
			return nil
		case !IsRefused(err):
			return err
		}
		there, err := LastFromLeader(ctx, b.nc, b.stream(), b.subject(key))
		if err == nil && bytes.Equal(there.Data, value) && !there.isDeleted() {
			stored = there.Seq
			return nil
		}
		if err == nil || errors.Is(err, ErrNoMessage) {
			return ErrSwapped
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("swap %s in %s: %w", key, b.name, err)
	}
	return stored, nil
}

// Remove removes the value of a key, whatever it is. A small mark of it stays.
func (b *Bucket) Remove(ctx context.Context, key string) error {
	purge := &nats.Msg{Subject: b.subject(key), Header: nats.Header{operation: {"PURGE"}}}
	purge.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	err := repeatOn(ctx, b.nc, b.stream(), func(ctx context.Context, wait time.Duration) error {
		return b.store(ctx, wait, purge)
	})
	if err != nil {
		return fmt.Errorf("remove %s from %s: %w", key, b.name, err)
	}
	return nil
}
