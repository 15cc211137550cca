package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// comparedWith compares the log with what a store has of it; nil when there is no store.
func comparedWith(js jetstream.JetStream, store perjs.Offsets) pubjs.Compare {
	if store == nil {
		return nil
	}
	return func(ctx context.Context, partition int) (uint64, error) {
		return perjs.Compare(ctx, js, store, partition)
	}
}

// wholeCheck reports, for readiness, that the log lacks what is stored of it. That it cannot be compared is said
// by the checks of its two sides.
func wholeCheck(log *pubjs.Log) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := log.Compared(ctx); errors.Is(err, persister.ErrBehind) {
			return fmt.Errorf("%w; a persister is to write it back", err)
		}
		return nil
	}
}

// wholeStream is the stream's window. While it lacks what is stored, heads are not known: a cursor that is right
// would be refused.
type wholeStream struct {
	*fanjs.Log
	written *pubjs.Log
}

// compareWait bounds how long a reader waits for a comparison; when nobody can tell, it reads what there is.
const compareWait = time.Second

// Head reads from the leader.
func (s wholeStream) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	once, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	if err := s.written.ComparedRun(once, key); errors.Is(err, persister.ErrBehind) {
		return schema.Head{}, fmt.Errorf("%w: %w", fanout.ErrUnavailable, err)
	}
	return s.Log.Head(ctx, key, lane)
}

// changes names the runs that were stored since some moment. Every store is one.
type changes interface {
	ChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error]
}

// storedRuns is the whole archive, as a log is completed from it.
type storedRuns struct {
	*blob.Archive
	changes
}

// newRefill makes what completes a log that has come back shorter than what is stored of it.
func newRefill(ctx context.Context, js jetstream.JetStream, all *blob.Archive, runs changes, m *metrics, log *slog.Logger) (*perjs.Refill, error) {
	purger, err := perjs.NewPurger(ctx, js.Conn(), natskit.KeysBucket)
	if err != nil {
		return nil, err
	}
	plain, err := pubjs.Open(ctx, js.Conn())
	if err != nil {
		return nil, err
	}
	refilled := m.refilled()
	return perjs.NewRefill(js, perjs.RefillConfig{
		Log: plain, Archive: storedRuns{all, runs}, Purger: purger, Logger: log,
		Done:    func(_ schema.RunKey, from, through schema.Seq) { refilled.Add(float64(through - from + 1)) },
		Missing: m.losses.add,
	}), nil
}

// refilled counts what is written back into the log.
func (m *metrics) refilled() prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_refilled_events_total",
		Help: "Events that the log had lost and that were written back from the archive."})
	m.registry.MustRegister(c)
	return c
}

// losses are acknowledged events that are nowhere any more, as this process has found out.
type losses struct {
	events prometheus.Counter

	mu   sync.Mutex
	text []string
	more int
}

// lossesSaid is how many runs /readyz names.
const lossesSaid = 20

// add notes that the events behind after, up to through, are lost.
func (l *losses) add(key schema.RunKey, after, through schema.Seq) {
	l.events.Add(float64(through - after))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.text) == lossesSaid {
		l.more++
		return
	}
	l.text = append(l.text, fmt.Sprintf("run %s: acknowledged events %d to %d are lost", key, after+1, through))
}

// all returns what is lost, in words.
func (l *losses) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == 0 {
		return l.text
	}
	return append(l.text[:len(l.text):len(l.text)], fmt.Sprintf("and of %d more runs", l.more))
}

// lostHook returns a hook that logs and counts what a writer knows to have been acknowledged and the log has lost.
func (m *metrics) lostHook(log *slog.Logger) func(key schema.RunKey, after, through schema.Seq) {
	return func(key schema.RunKey, after, through schema.Seq) {
		log.Error("acknowledged events are neither in the log nor in the archive: they are lost",
			"run", key.String(), "after", after, "through", through)
		m.losses.add(key, after, through)
	}
}
