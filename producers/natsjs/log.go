package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// Log is the log in JetStream.
type Log struct {
	nc         *nats.Conn
	partitions int
	streams    []string // names, by partition
	acks       acks
}

var _ producers.Log = (*Log)(nil)

// Open reads the layout of the log. It wraps natskit.ErrNotDeclared when there is none.
func Open(ctx context.Context, nc *nats.Conn) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	l := &Log{nc: nc, partitions: n, streams: make([]string, n), acks: acks{nc: nc}}
	for i := range l.streams {
		l.streams[i] = natskit.StreamName(i)
	}
	return l, nil
}

func (l *Log) run(key schema.RunKey) natskit.Run {
	return natskit.Run{Key: key, Partitions: l.partitions}
}

// Head reads from the leader.
func (l *Log) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	head, err := natskit.ReadHead(ctx, l.nc, l.run(key), lane)
	if err != nil {
		return schema.Head{}, fmt.Errorf("natsjs: head of %s: %w", key, err)
	}
	return head, nil
}

// Append publishes the pack with a compare-and-set on the run.
func (l *Log) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	subject, filter, part := schema.PackSubject(p.Key, p.Child, l.partitions)
	seq, err := l.acks.publish(ctx, p, subject, filter, l.streams[part], after)
	if err == nil {
		return seq, nil
	}
	return 0, fmt.Errorf("natsjs: append to %s at %d: %w", p.Key, p.First, classify(err))
}

// Error codes of the server.
const (
	errWrongLastSequence    = 10071 // compare-and-set failed; says the actual position
	errWrongLastSequenceNow = 10164 // another compare-and-set on the filter is in flight
)

// classify turns the client's errors into the three decisions of producers. Only an answer of the
// server is certain; the lack of one never is.
func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		if api.ErrorCode == errWrongLastSequence || api.ErrorCode == errWrongLastSequenceNow {
			return fmt.Errorf("%w: %w", producers.ErrConflict, err)
		}
		if api.Code >= 500 || api.Code == 429 {
			return fmt.Errorf("%w: %w", producers.ErrUnavailable, err)
		}
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", producers.ErrUnavailable, err) // no stream listened: not stored
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", schema.ErrTooLarge, err)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return fmt.Errorf("%w: %w", producers.ErrUnavailable, err) // refused before it was sent
	case errors.Is(err, nats.ErrConnectionClosed):
		return err
	}
	return fmt.Errorf("%w: %w", producers.ErrUnanswered, err)
}

// Bounds of one page of Since.
const (
	pageMessages = 200
	pageBytes    = 1 << 20
	pageIdle     = 5 * time.Second
)

// Since asks the leader for the next pack, which is all that most callers want; then it pages by
// direct get, which any replica may answer; and what that replica did not have yet comes from the
// leader again. So the walk ends at the leader's newest pack.
func (l *Log) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := &since{l: l, run: l.run(key), after: after, yield: yield}
		for more := true; more && !w.stopped; {
			more = w.next(ctx)
			if more && !w.stopped {
				w.page(ctx)
			}
		}
		if w.err != nil {
			yield(schema.Pack{}, fmt.Errorf("natsjs: packs of %s after %d: %w", key, w.after, w.err))
		}
	}
}

// since is one walk under way.
type since struct {
	l       *Log
	run     natskit.Run
	after   uint64
	yield   func(schema.Pack, error) bool
	stopped bool
	err     error
}

// next gives one pack from the leader; false when there is none.
func (w *since) next(ctx context.Context) bool {
	m, err := natskit.NextFromLeader(ctx, w.l.nc, w.run.Stream(), w.run.Filter(), w.after+1)
	if errors.Is(err, natskit.ErrNoMessage) {
		return false
	}
	w.give(m, err)
	return w.err == nil
}

func (w *since) page(ctx context.Context) {
	page, err := natskit.ReadBatch(ctx, w.l.nc, w.run.Stream(), natskit.BatchRequest{
		Seq: w.after + 1, NextBy: w.run.Filter(), Batch: pageMessages, MaxBytes: pageBytes,
	}, pageIdle)
	if err != nil {
		w.err, w.stopped = err, true
		return
	}
	for _, m := range page.Msgs {
		if w.give(m, nil); w.stopped {
			return
		}
	}
}

func (w *since) give(m natskit.Msg, err error) {
	var p schema.Pack
	if err == nil {
		p, err = natskit.ParsePack(m)
	}
	if err != nil {
		w.err, w.stopped = err, true
		return
	}
	w.after = m.Seq
	w.stopped = !w.yield(p, nil)
}
