package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
)

// tapConsumer is how the names of a tap's consumers begin.
func tapConsumer(tap string) string { return "tap_" + tap + "_" }

// markEvery is how often a queue of one tenant looks whether it has passed others' messages. Otherwise its offset would
// stay behind the beginning of the log while the tenant is silent, and look like a loss.
const markEvery = time.Minute

// mark returns a message without content at the end of the stream, when nothing up to there is for this queue.
func (q *Queue) mark(ctx context.Context) ([]persister.Message, error) {
	q.marked = time.Now()
	s, err := readState(ctx, q.js, q.stream)
	if err != nil {
		return nil, fmt.Errorf("natsjs: end of %s: %w", q.stream, err)
	}
	last := s.info.State.LastSeq
	if last <= q.passed {
		return nil, nil
	}
	c, err := q.js.Consumer(ctx, q.stream, q.consumer)
	if err != nil {
		return nil, fmt.Errorf("natsjs: consumer of %s: %w", q.stream, err)
	}
	// It was asked after the stream: what it has not sent yet came later, or it is counted here.
	info := c.CachedInfo()
	if info.NumPending > 0 || info.Delivered.Consumer != q.serial {
		return nil, nil
	}
	q.passed = last
	return []persister.Message{{Stream: q.stream, Position: last}}, nil
}

// ForgetTap removes the consumers of a tap. A member that still runs makes others.
func ForgetTap(ctx context.Context, js jetstream.JetStream, tap string) error {
	partitions, err := natskit.Partitions(ctx, js)
	if err != nil {
		return fmt.Errorf("natsjs: forget tap %s: %w", tap, err)
	}
	for p := range partitions {
		s, err := js.Stream(ctx, natskit.StreamName(p))
		if err != nil {
			return fmt.Errorf("natsjs: forget tap %s: %w", tap, err)
		}
		names := s.ConsumerNames(ctx)
		for name := range names.Name() {
			if !strings.HasPrefix(name, tapConsumer(tap)) || strings.Contains(strings.TrimPrefix(name, tapConsumer(tap)), "_") {
				continue
			}
			if err := s.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return fmt.Errorf("natsjs: forget tap %s: %w", tap, err)
			}
		}
		if err := names.Err(); err != nil {
			return fmt.Errorf("natsjs: forget tap %s: %w", tap, err)
		}
	}
	return nil
}

// OffsetSince returns the offset before the first message of a partition that was stored at t or later: that of the
// newest message when there is none. The error wraps natskit.ErrNotDeclared when there is no log.
func OffsetSince(ctx context.Context, js jetstream.JetStream, partition int, t time.Time) (persister.Offset, error) {
	stream := natskit.StreamName(partition)
	s, err := readState(ctx, js, stream)
	if err != nil {
		return persister.Offset{}, fmt.Errorf("natsjs: %s since %v: %w", stream, t, err)
	}
	at := persister.Offset{Stream: stream, Identity: s.identity}
	if s.info.State.Msgs == 0 {
		at.Position = s.info.State.LastSeq
		return at, nil
	}
	r := &Refill{nc: js.Conn()}
	at.Position, at.StoredAt, err = r.newestBefore(ctx, s, t)
	if err != nil {
		return at, fmt.Errorf("natsjs: %s since %v: %w", stream, t, err)
	}
	return at, nil
}

// OffsetOfEnd returns the offset of the newest message of a partition. The error wraps natskit.ErrNotDeclared when
// there is no log.
func OffsetOfEnd(ctx context.Context, js jetstream.JetStream, partition int) (persister.Offset, error) {
	stream := natskit.StreamName(partition)
	s, err := readState(ctx, js, stream)
	if err != nil {
		return persister.Offset{}, fmt.Errorf("natsjs: end of %s: %w", stream, err)
	}
	at := persister.Offset{Stream: stream, Identity: s.identity, Position: s.info.State.LastSeq}
	if s.info.State.Msgs > 0 {
		at.StoredAt = s.info.State.LastTime
	}
	return at, nil
}
