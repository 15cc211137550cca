package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// Lag implements persister.Queue.
func (q *Queue) Lag(ctx context.Context) (persister.Lag, error) {
	lag := persister.Lag{Stream: q.stream}
	if err := q.ensure(ctx); err != nil {
		return lag, err
	}
	stream, consumer, err := q.info(ctx)
	if err != nil {
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	}
	q.mu.Lock()
	q.loss.confirmed(stream.State.FirstSeq, consumer.AckFloor.Stream)
	if q.Ours() {
		q.loss.passed(stream.State.FirstSeq, consumer.Delivered.Stream)
	}
	lag.Lost = q.loss.lost
	q.mu.Unlock()
	lag.Window = stream.Config.MaxAge
	lag.Room, lag.Bounded = room(stream, consumer)
	lag.Messages = consumer.NumPending + uint64(consumer.NumAckPending)
	if lag.Messages == 0 {
		return lag, nil
	}
	m, err := natskit.NextFromLeader(ctx, q.nc, q.stream, schema.PartitionFilter(q.partition), consumer.AckFloor.Stream+1)
	switch {
	case errors.Is(err, natskit.ErrNoMessage): // confirmed or expired since
	case err != nil:
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	default:
		lag.Oldest = m.Time
	}
	return lag, nil
}

func (q *Queue) info(ctx context.Context) (*jetstream.StreamInfo, *jetstream.ConsumerInfo, error) {
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, nil, err
	}
	consumer, err := stream.Consumer(ctx, q.cfg.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		q.forget()
	}
	if err != nil {
		return nil, nil, err
	}
	return stream.CachedInfo(), consumer.CachedInfo(), nil
}

// room says which part of a bounded stream new messages may fill before the first one goes that is not
// confirmed: what is free, and what the messages before that one hold, taken to be of the usual size.
func room(s *jetstream.StreamInfo, c *jetstream.ConsumerInfo) (part float64, bounded bool) {
	if s.Config.MaxBytes <= 0 {
		return 1, false
	}
	filled := float64(s.State.Bytes) / float64(s.Config.MaxBytes)
	done := 0.0
	if all := s.State.LastSeq - s.State.FirstSeq + 1; s.State.Msgs > 0 && c.AckFloor.Stream >= s.State.FirstSeq {
		done = float64(c.AckFloor.Stream-s.State.FirstSeq+1) / float64(all)
	}
	return 1 - filled*(1-done), true
}

// loss counts messages that the stream has dropped unconfirmed. JetStream says nothing of them: its
// limits win over a consumer, whose floor moves silently past what is gone. What is missing inside the
// stream was purged on purpose and is no loss; at its front the two look alike.
type loss struct {
	lost    uint64
	through uint64              // positions up to here were handed out here, or have been judged
	serial  uint64              // the consumer's own number of the newest message handed out
	owed    map[uint64]struct{} // given back: they must come again
}

// begin judges what has happened before this process looked. What had been handed out and not confirmed
// the server forgets as it goes: where it still knows of some, by number alone, they are taken to be the
// oldest; else the count is too low by what a process held that died when no other was there.
func (l *loss) begin(first uint64, c *jetstream.ConsumerInfo) {
	floor := max(c.AckFloor.Stream, l.through)
	if gone := first - 1; first > 0 && gone > floor {
		handed := min(max(c.Delivered.Stream, floor), gone)
		l.lost += gone - handed + min(uint64(c.NumAckPending), handed-floor)
		l.through = gone
	}
	l.through = max(l.through, c.Delivered.Stream)
	l.serial = c.Delivered.Consumer
}

// passed judges by where the stream begins now. delivered is what the consumer has handed out.
func (l *loss) passed(first, delivered uint64) {
	if first == 0 {
		return
	}
	gone := first - 1
	if from := max(l.through, delivered); gone > from {
		l.lost += gone - from
		l.through = gone
	}
	for at := range l.owed {
		if at <= gone {
			l.lost++
			delete(l.owed, at)
		}
	}
}

// confirmed forgets what was given back and is stored by now, perhaps by another process: it lies at or
// below the consumer's floor while the stream still has it.
func (l *loss) confirmed(first, floor uint64) {
	for at := range l.owed {
		if at >= first && at <= floor {
			delete(l.owed, at)
		}
	}
}

func (l *loss) released(msgs []persister.Message) {
	if l.owed == nil {
		l.owed = make(map[uint64]struct{}, len(msgs))
	}
	for i := range msgs {
		l.owed[msgs[i].Position] = struct{}{}
	}
}

// gap is a range of positions that were skipped between two messages handed out one after the other.
type gap struct{ after, before uint64 }

// handed notes what was handed out, and gives what the consumer has skipped.
func (l *loss) handed(positions []place) (gaps []gap) {
	for _, at := range positions {
		if len(l.owed) > 0 {
			delete(l.owed, at.position)
		}
		// Between neighbours by the consumer's count nothing was handed to anybody else.
		if at.serial == l.serial+1 && at.position > l.through+1 {
			gaps = append(gaps, gap{l.through, at.position})
		}
		l.serial = max(l.serial, at.serial)
		l.through = max(l.through, at.position)
	}
	return gaps
}

// place is where a message was in the stream and in the consumer's count of what it has handed out.
type place struct{ position, serial uint64 }

// look judges gaps in what was handed out: the part that lies before the stream's first message.
func (q *Queue) look(ctx context.Context, positions []place) {
	q.mu.Lock()
	gaps := q.loss.handed(positions)
	q.mu.Unlock()
	if len(gaps) == 0 {
		return
	}
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return
	}
	first := stream.CachedInfo().State.FirstSeq
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range gaps {
		if end := min(g.before, first); end > g.after+1 {
			q.loss.lost += end - g.after - 1
		}
	}
}
