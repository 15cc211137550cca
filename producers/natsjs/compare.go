package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/schema"
)

// Compare compares one partition of the log with what is stored of it elsewhere. It returns the generation of the
// log there, or an error while the log lacks what is stored, or that is unknown.
type Compare func(ctx context.Context, partition int) (generation uint64, err error)

// comparisons remember which partitions have been compared since the log may last have changed: at the start, when the
// connection was made anew, when an append was not answered, and when the stream is another one. Nothing is appended
// before.
type comparisons struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	compare Compare // nil: there is nothing to compare with
	parts   []comparison
}

// comparison is what is known of one partition.
type comparison struct {
	doubts     atomic.Uint64 // counts appends that were not answered
	compared   atomic.Uint64 // the moment of the last comparison that went well; 0: there was none
	generation atomic.Uint64 // as of then
	made       atomic.Int64  // when the stream that was compared was made, in ns; by it a stream is known

	mu     sync.Mutex
	busy   chan struct{} // closed when the comparison under way has ended; nil: none is
	err    error         // of the last one
	failed time.Time
}

// compareAgain is how long a comparison that failed answers for those that come after it.
const compareAgain = 100 * time.Millisecond

// moment counts what may have changed the log of a partition. It is never 0.
func (c *comparisons) moment(p *comparison) uint64 {
	return c.nc.Stats().Reconnects + p.doubts.Load() + 1
}

// pass returns the generation of a partition that is known to have all that is stored of it. The error wraps
// producers.ErrUnavailable.
func (c *comparisons) pass(ctx context.Context, partition int) (uint64, error) {
	if c.compare == nil {
		return 0, nil
	}
	p := &c.parts[partition]
	for {
		if !c.nc.IsConnected() { // what is sent now would wait for the next connection, and be stored without a comparison
			return 0, fmt.Errorf("%w: %w", producers.ErrUnavailable, nats.ErrConnectionReconnecting)
		}
		moment := c.moment(p)
		if p.compared.Load() == moment {
			return p.generation.Load(), nil
		}
		busy, first, err := p.enter()
		if err != nil {
			return 0, unavailable(err)
		}
		if first {
			generation := uint64(0)
			made, err := c.creationTime(ctx, partition) // first: a stream that is made meanwhile is not taken for compared
			if err == nil {
				generation, err = c.compare(ctx, partition)
			}
			if err == nil {
				p.generation.Store(generation)
				p.made.Store(made)
				p.compared.Store(moment)
			}
			if p.leave(ctx, err); err != nil {
				return 0, unavailable(err)
			}
			continue
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", producers.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// creationTime returns when the stream of a partition was created, in nanoseconds since the Unix epoch. The
// leader answers.
func (c *comparisons) creationTime(ctx context.Context, partition int) (int64, error) {
	s, err := c.js.Stream(ctx, natskit.StreamName(partition))
	if err != nil {
		return 0, fmt.Errorf("when %s was made: %w", natskit.StreamName(partition), err)
	}
	return s.CachedInfo().Created.UnixNano(), nil
}

// passFirst is pass for the first message of a run in the stream of a partition. The stream may have been deleted and
// made anew under a connection that stays, and a persister may still store what it has read of the former one: the
// message would get the numbers of events that the archive has not got yet. Later messages of a run need no such look,
// because they are appended behind a message that another stream has not got.
func (c *comparisons) passFirst(ctx context.Context, partition int) (uint64, error) {
	if c.compare == nil {
		return 0, nil
	}
	for {
		generation, err := c.pass(ctx, partition)
		if err != nil {
			return 0, err
		}
		made, err := c.creationTime(ctx, partition)
		switch p := &c.parts[partition]; {
		case err != nil:
			return 0, unavailable(err)
		case p.made.Load() == made:
			return generation, nil
		default:
			p.doubts.Add(1)
		}
	}
}

// unavailable is the error of a comparison that failed.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", producers.ErrUnavailable, classifyRead(err))
}

// enter reports whether the caller is to compare, or else what it waits for. The error is that of a comparison that
// has just failed.
func (p *comparison) enter() (busy chan struct{}, first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy != nil {
		return p.busy, false, nil
	}
	if p.err != nil && time.Since(p.failed) < compareAgain {
		return nil, false, p.err
	}
	p.busy = make(chan struct{})
	return nil, true, nil
}

func (p *comparison) leave(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && ctx.Err() != nil { // the caller's time, which proves nothing for others
		p.failed = time.Time{}
	} else {
		p.failed = time.Now()
	}
	p.err = err
	close(p.busy)
	p.busy = nil
}

// doubt makes the next append compare again.
func (c *comparisons) doubt(partition int, err error) {
	if errors.Is(err, producers.ErrUnanswered) || errors.Is(err, producers.ErrUnavailable) {
		c.parts[partition].doubts.Add(1)
	}
}

// CompareRun is Compare for the partition of one run.
func (l *Log) CompareRun(ctx context.Context, key schema.RunKey) error {
	_, err := l.compared.pass(ctx, schema.Partition(key.Run, l.partitions))
	return err
}

// Compare reports why appends wait, nil when they do not: the log was not compared yet with what is stored of
// it, or lacks some of that. It compares where that is due.
func (l *Log) Compare(ctx context.Context) error {
	for p := range l.compared.parts {
		if _, err := l.compared.pass(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
