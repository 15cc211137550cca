package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tap hands every pack of the log to handle: each run's packs in order, each at least once. It goes on
// where an earlier tap of that name has stopped. It returns when ctx ends or handle fails. A pack that is
// not done within limit is given to whoever asks next.
func tap(ctx context.Context, js jetstream.JetStream, name string, limit time.Duration, handle func(jetstream.Msg) error) error {
	stream, err := js.Stream(ctx, "AGENT_0")
	if err != nil {
		return err
	}
	partitions, err := strconv.Atoi(stream.CachedInfo().Config.Metadata["agentstream-partitions"])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	for p := range partitions {
		consumer, err := js.CreateOrUpdateConsumer(ctx, "AGENT_"+strconv.Itoa(p), jetstream.ConsumerConfig{
			Durable:       name,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       limit,
			MaxAckPending: 1, // keeps the order, also when a pack is delivered again
		})
		if err != nil {
			cancel(err)
			break
		}
		readers.Go(func() {
			for ctx.Err() == nil {
				msg, err := consumer.Next(jetstream.FetchContext(ctx))
				if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
					continue
				}
				if err == nil {
					if err = handle(msg); err != nil {
						_ = msg.Nak() // at once to whoever asks next
					} else {
						err = msg.DoubleAck(ctx)
					}
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	readers.Wait()
	return context.Cause(ctx)
}
