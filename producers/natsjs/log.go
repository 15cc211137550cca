package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// Log is the log in JetStream.
type Log struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions int
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
	return &Log{nc: nc, js: js, partitions: n}, nil
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
	m := &nats.Msg{
		Subject: schema.Subject(p.Key, p.Child, l.partitions),
		Header:  p.Headers(),
		Data:    p.Body,
	}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(after, 10)}
	m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{l.run(p.Key).Filter()}
	m.Header[jetstream.ExpectedStreamHeader] = []string{l.run(p.Key).Stream()}
	ack, err := l.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, nil
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

// Since reads packs one by one from the leader: it is used after a failure, for the few packs that
// others stored meanwhile.
func (l *Log) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	r := l.run(key)
	return func(yield func(schema.Pack, error) bool) {
		for {
			m, err := natskit.NextFromLeader(ctx, l.nc, r.Stream(), r.Filter(), after+1)
			if errors.Is(err, natskit.ErrNoMessage) {
				return
			}
			var p schema.Pack
			if err == nil {
				p, err = natskit.ParsePack(m)
			}
			if err != nil {
				yield(schema.Pack{}, fmt.Errorf("natsjs: packs of %s after %d: %w", key, after, err))
				return
			}
			if after = m.Seq; !yield(p, nil) {
				return
			}
		}
	}
}
