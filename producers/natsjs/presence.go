package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/reaper"
	"agentstream/schema"
)

// askPrefix is put before a run's subject and after it goes the owner that is asked for:
//
//	ask.agent.<partition>.<tenant>.<run>.<owner>
//
// No stream may listen there.
const askPrefix = "ask."

// askSubject returns the subject on which an owner of lanes of a run answers that it is there.
func (l *Log) askSubject(key schema.RunKey, owner string) string {
	return askPrefix + strings.TrimSuffix(schema.RunFilter(key, l.partitions), ">") + owner
}

// Attend lets a publisher answer, until leave is called, that the process that holds it is there. An agent
// attends for as long as it may be silent with its run open; an agent that does not is taken for gone after a
// while (reaper.Reaper). It costs one subscription on the log's connection, which is asked only while
// the run is silent. Which run and writer it is about is in the subject, so the answer is empty.
func (l *Log) Attend(ctx context.Context, pub *producers.Publisher) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	key := pub.Key()
	sub, err := l.nc.Subscribe(l.askSubject(key, pub.WriterID()), func(m *nats.Msg) {
		_ = m.Respond(nil) // fails only when the connection is gone: then we are not there
	})
	if err != nil {
		return nil, fmt.Errorf("natsjs: attend %s: %w", key, err)
	}
	leave = func() { _ = sub.Unsubscribe() } // fails only when the connection is gone, and the interest with it
	if err := l.nc.FlushWithContext(ctx); err != nil {
		leave()
		return nil, fmt.Errorf("natsjs: attend %s: %w", key, err)
	}
	return leave, nil
}

var _ reaper.Witness = (*Log)(nil)

// askTimeout bounds the wait for an answer to Ask; askAgain is how long owners may take to come back when servers were
// away.
const askTimeout, askAgain = 2 * time.Second, 2 * time.Second

// Ask reports whether an owner of lanes of a run is there. false: it does not answer. An error: it is unknown. Where
// this process has just connected anew, the owner may be about to: one that does not answer is asked again.
func (l *Log) Ask(ctx context.Context, key schema.RunKey, owner string) (bool, error) {
	there, err := l.ask(ctx, key, owner)
	if !there && err == nil && l.back.recent(l.nc.Stats().Reconnects) {
		rest(ctx, askAgain)
		there, err = l.ask(ctx, key, owner)
	}
	return there, err
}

// reconnects notes when a connection was found to be another one than before.
type reconnects struct {
	mu    sync.Mutex
	n     uint64
	noted time.Time
}

// recent reports whether the last of n reconnects was noted within askAgain.
func (r *reconnects) recent(n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n != r.n {
		r.n, r.noted = n, time.Now()
	}
	return time.Since(r.noted) < askAgain
}

func (l *Log) ask(ctx context.Context, key schema.RunKey, owner string) (bool, error) {
	if err := schema.ValidRunID(owner); err != nil {
		return false, fmt.Errorf("natsjs: ask %s: owner: %w", key, err) // it would be another subject
	}
	once, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := l.nc.RequestWithContext(once, l.askSubject(key, owner), nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil &&
		l.nc.IsConnected():
		return false, nil
	}
	return false, fmt.Errorf("natsjs: ask %s: %w", key, err)
}

// Newest returns the newest event of a run and when the log has stored it, by the log's clock, from the
// leader; 0 when the log holds nothing of the run.
func (l *Log) Newest(ctx context.Context, key schema.RunKey) (schema.Seq, time.Time, error) {
	m, _, err := natskit.Newest(ctx, l.nc, l.run(key))
	if err == nil && (m.Seq == 0 || natskit.OfChild(m)) {
		return 0, time.Time{}, nil
	}
	var p schema.Pack
	if err == nil {
		p, err = natskit.ParsePack(m)
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("natsjs: newest of %s: %w", key, err)
	}
	return p.Last(), m.Time, nil
}
