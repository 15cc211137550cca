package natsjs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/testkit"
	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/persister/sqlite"
	"agentstream/schema"
	"agentstream/tap"
)

// record is a sink that remembers what it is given.
type record struct {
	pause  time.Duration                 // for each batch
	refuse func(e *tap.Event) error      // nil takes all; an error that wraps persister.ErrPoison fails the batch
	fail   func(batch []tap.Event) error // nil never fails

	mu      sync.Mutex
	count   map[string]int
	last    map[schema.RunKey]schema.Seq // newest event that came for the first time
	fault   string
	batches int
}

func newRecord() *record {
	return &record{count: map[string]int{}, last: map[schema.RunKey]schema.Seq{}}
}

func (r *record) Write(ctx context.Context, batch []tap.Event) (refused []tap.Refusal, err error) {
	if r.pause > 0 {
		select {
		case <-time.After(r.pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(batch); err != nil {
			return nil, err
		}
	}
	r.batches++
	for i := range batch {
		e := &batch[i]
		if r.refuse != nil {
			err := r.refuse(e)
			if errors.Is(err, persister.ErrPoison) {
				return nil, err
			}
			if err != nil {
				refused = append(refused, tap.Refusal{Event: i, Detail: err.Error()})
				continue
			}
		}
		r.count[e.Key()]++
		if r.count[e.Key()] > 1 {
			continue
		}
		if e.Seq < r.last[e.Run] {
			r.fault = fmt.Sprintf("%s came first after %d", e.Key(), r.last[e.Run])
		}
		r.last[e.Run] = e.Seq
	}
	return refused, nil
}

func (r *record) Close() error { return nil }

func (r *record) have() (events, repeats int, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.count {
		repeats += n - 1
	}
	return len(r.count), repeats, r.fault
}

// world is a log with runs that a test writes.
type world struct {
	t      *testing.T
	server *testkit.Server
	runs   []*persistertest.Writer
	total  int
}

func newWorld(t *testing.T, runs int) *world {
	w := &world{t: t, server: testkit.NATS(t)}
	for i := range runs {
		key := schema.RunKey{Tenant: fmt.Sprint("tenant_", i%2), Run: fmt.Sprint("run_", i)}
		w.runs = append(w.runs, persistertest.NewWriter(key, "20260228"))
	}
	return w
}

// write stores packs of five events, one after the other of each run.
func (w *world) write(packs int) {
	w.t.Helper()
	for i := range packs {
		p := w.runs[i%len(w.runs)].Texts("", 5)
		w.publish(p)
	}
	w.flush()
}

func (w *world) publish(p schema.Pack) {
	w.t.Helper()
	msg := &nats.Msg{Subject: schema.Subject(p.Key, "", w.server.Partitions), Header: p.Headers(), Data: p.Body}
	if _, err := w.server.JS.PublishMsgAsync(msg); err != nil {
		w.t.Fatal(err)
	}
	w.total += p.Count
}

func (w *world) flush() {
	w.t.Helper()
	select {
	case <-w.server.JS.PublishAsyncComplete():
	case <-time.After(time.Minute):
		w.t.Fatal("the log does not answer")
	}
}

// member is one process of a tap.
type member struct {
	tap   *tap.Tap
	nc    *nats.Conn
	stop  context.CancelFunc
	ended chan error
}

// join starts a member.
func (w *world) join(spec tap.Spec, sink tap.Receiver, change func(*tap.Config)) *member {
	w.t.Helper()
	nc := w.server.Dial(w.t)
	cfg := tap.Config{Spec: spec, Sink: sink, Stale: time.Second, Linger: 10 * time.Millisecond,
		Retry: 100 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	joined, err := Join(w.t.Context(), nc, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{tap: joined, nc: nc, ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() { m.ended <- m.tap.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		select {
		case <-m.ended:
		case <-time.After(time.Minute):
			w.t.Error("a member does not end")
		}
	})
	return m
}

// leave ends a member in order.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stop()
	err := <-m.ended
	m.ended <- err
	if err != nil {
		t.Error(err)
	}
}

// until waits for a sink to have so many events, and for nothing to be out of order.
func (w *world) until(r *record, events int) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		have, _, fault := r.have()
		if fault != "" {
			w.t.Fatal(fault)
		}
		if have >= events {
			if have > events {
				w.t.Fatalf("%d events, want %d", have, events)
			}
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d events of %d", have, events)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// archive copies the log into a database by a real persister, and returns it.
func (w *world) archive() *sqlite.Store {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "archive.db")
	if _, err := sqlite.Migrate(w.t.Context(), path, false); err != nil {
		w.t.Fatal(err)
	}
	store, err := sqlite.Open(w.t.Context(), sqlite.Config{Path: path})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = store.Close() })
	return store
}

// persist copies what the log has now.
func (w *world) persist(store persister.Store) {
	w.t.Helper()
	queues, err := perjs.Queues(w.t.Context(), w.server.JS, perjs.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := persister.New(persister.Config{Queues: queues, Store: store, Alone: true, Linger: -1,
		LagEvery: 20 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); ; {
		behind := uint64(0)
		for _, s := range p.Status() {
			behind += s.Lag.Messages
			if s.LagAt.IsZero() {
				behind++
			}
		}
		if behind == 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not persisted: %+v", p.Status())
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		w.t.Fatal(err)
	}
}

// expire removes all that the log has, as its window does.
func (w *world) expire() {
	w.t.Helper()
	for p := range w.server.Partitions {
		s, err := w.server.JS.Stream(w.t.Context(), fmt.Sprint("AGENT_", p))
		if err == nil {
			err = s.Purge(w.t.Context())
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}
