package natsjs_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// shortLog is a server whose folder can be put back to what it was.
type shortLog struct {
	t    *testing.T
	dir  string
	js   jetstream.JetStream
	stop func()
}

func newShortLog(t *testing.T) *shortLog {
	l := &shortLog{t: t, dir: t.TempDir()}
	l.start()
	if err := natskit.Declare(t.Context(), l.js, natskit.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *shortLog) start() {
	s, js := serveWith(l.t, l.dir, 1<<20)
	l.js = js
	l.stop = func() { js.Conn().Close(); s.Shutdown(); s.WaitForShutdown() }
}

// copied stops the server, copies its folder, and starts it again; back does the opposite.
func (l *shortLog) copied() (back func()) {
	l.stop()
	kept := l.t.TempDir()
	copyTree(l.t, l.dir, kept)
	l.start()
	return func() {
		l.stop()
		if err := os.RemoveAll(l.dir); err != nil {
			l.t.Fatal(err)
		}
		copyTree(l.t, kept, l.dir)
		l.start()
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// appendTo is natsjs.RefillLog without producers: this package must not know them.
type appendTo struct{ js jetstream.JetStream }

func (a appendTo) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	return natskit.ReadHead(ctx, a.js.Conn(), natskit.RunAddress{Key: key, Partitions: 1}, lane)
}

func (a appendTo) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	ack, err := a.js.PublishMsg(ctx, natsMsg(p),
		jetstream.WithExpectLastSequenceForSubject(after, schema.RunFilter(p.Key, 1)))
	if api := new(jetstream.APIError); errors.As(err, &api) &&
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, schema.ErrConflict
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// archive is a store in memory that names all its runs.
type archive struct {
	*persistertest.Memory
	keys []schema.RunKey
}

func (a archive) RunsChangedSince(context.Context, time.Time) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		for _, k := range a.keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

// TestRefill: the log comes back from a copy. What it lacks of runs that it has is written back, line by line,
// with the owners of lanes; runs that it knows nothing of are left to the archive. Meanwhile nobody may append.
func TestRefill(t *testing.T) {
	l, store := newShortLog(t), persistertest.NewMemory()
	a, b, gone := writer("a"), writer("b"), writer("gone")
	a.Lanes[""], a.Lanes["kid"] = schema.Lane{Owner: "agent-a", Epoch: 6}, schema.Lane{Owner: "agent-a", Epoch: 1}
	put := func(packs ...schema.Pack) {
		for i := range packs {
			if _, err := l.js.PublishMsg(t.Context(), natsMsg(&packs[i])); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(a.Texts("", 3), b.Texts("kid", 2))
	back := l.copied()
	a.Lanes[""] = schema.Lane{Owner: "agent-b", Epoch: 7} // taken over since
	put(a.Texts("", 200), a.Texts("kid", 5), b.Texts("", 1), gone.Texts("", 4))
	refill := func() *natsjs.Refill {
		purger, err := natsjs.NewPurger(t.Context(), l.js.Conn(), "")
		if err != nil {
			t.Fatal(err)
		}
		return natsjs.NewRefill(l.js, natsjs.RefillConfig{Log: appendTo{l.js}, Purger: purger,
			Archive: archive{store, []schema.RunKey{a.Key, b.Key, gone.Key}}})
	}
	persistTo(t, l.js, store, nil, 6)
	want := make(map[schema.RunKey][]byte)
	for _, w := range []*persistertest.Writer{a, b, gone} {
		want[w.Key] = stored(t, store, w.Key)
	}
	back()
	blobs, err := natskit.NewBlobs(l.js.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := blobs.Put(t.Context(), gone.Key, "text/plain",
		schema.BlobPieces([]byte("a blob is no event"))); err != nil {
		t.Fatal(err)
	}
	if _, err := natsjs.Compare(t.Context(), l.js, store, 0); !errors.Is(err, persister.ErrBehind) {
		t.Fatalf("a log of 2 messages of which 6 are stored: %v", err)
	}
	persistTo(t, l.js, store, refill(), 0)
	generation, err := natsjs.Compare(t.Context(), l.js, store, 0)
	if err != nil || generation != 1 {
		t.Fatalf("afterwards: generation %d, %v", generation, err)
	}
	for _, w := range []*persistertest.Writer{a, b} {
		if got := inLog(t, l.js, w.Key); !bytes.Equal(got, want[w.Key]) {
			t.Errorf("run %s has %d bytes in the log, %d are stored", w.Key, len(got), len(want[w.Key]))
		}
	}
	if got := inLog(t, l.js, gone.Key); len(got) > 0 {
		t.Errorf("a run that the log knew nothing of has %d bytes", len(got))
	}
	head, err := appendTo{l.js}.Head(t.Context(), a.Key, "")
	if err != nil || head.Lane != (schema.Lane{Owner: "agent-b", Epoch: 7}) {
		t.Errorf("head %+v, %v", head, err)
	}
	put(a.Texts("", 1)) // goes on after what was written back
	persistTo(t, l.js, store, refill(), 0)
	if got, log := stored(t, store, a.Key), inLog(t, l.js, a.Key); !bytes.Equal(got, log) ||
		!bytes.HasPrefix(got, want[a.Key]) {
		t.Errorf("stored are %d bytes, the log has %d", len(got), len(log))
	}
	if l, err := store.DeadLetters(t.Context(), 10); err != nil || len(l) > 0 {
		t.Errorf("%d dead letters, %v", len(l), err)
	}
}

// TestOtherContent: a log that was cut and written to before anybody compared has others in the place of what is
// stored. That is found, and everything that was written meanwhile is stored.
func TestOtherContent(t *testing.T) {
	l, store := newShortLog(t), persistertest.NewMemory()
	a, b := writer("a"), writer("b")
	put := func(p schema.Pack) {
		if _, err := l.js.PublishMsg(t.Context(), natsMsg(&p)); err != nil {
			t.Fatal(err)
		}
	}
	put(a.Texts("", 1))
	back := l.copied()
	put(a.Texts("", 1))
	persistTo(t, l.js, store, nil, 2)
	back()
	for range 3 {
		put(b.Texts("", 1)) // by a program that compares nothing
	}
	if _, err := natsjs.Compare(t.Context(), l.js, store, 0); !errors.Is(err, persister.ErrBehind) {
		t.Fatalf("another message is at the position that is stored: %v", err)
	}
	purger, err := natsjs.NewPurger(t.Context(), l.js.Conn(), "")
	if err != nil {
		t.Fatal(err)
	}
	persistTo(t, l.js, store, natsjs.NewRefill(l.js, natsjs.RefillConfig{Log: appendTo{l.js}, Purger: purger,
		Archive: archive{store, []schema.RunKey{a.Key, b.Key}}}), 0)
	for _, w := range []*persistertest.Writer{a, b} {
		if got, log := stored(t, store, w.Key), inLog(t, l.js, w.Key); !bytes.Equal(got, log) || len(got) == 0 {
			t.Errorf("run %s: stored are %d bytes, the log has %d", w.Key, len(got), len(log))
		}
	}
}

func writer(run string) *persistertest.Writer {
	return persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: run}, time.Now().UTC().Format("20060102"))
}

// persistTo runs a persister until the whole log is stored, and until it has stored so many messages.
func persistTo(t *testing.T, js jetstream.JetStream, store *persistertest.Memory, refill persister.Refiller,
	messages int) {
	t.Helper()
	queues, err := natsjs.Queues(t.Context(), js, natsjs.Config{Wait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stored := 0
	p, err := persister.New(persister.Config{Queues: queues, Store: store, Refill: refill, Alone: true, Linger: -1,
		LagEvery: 20 * time.Millisecond,
		Hooks: persister.Hooks{
			Stored: func(_ string, s persister.Stored) { stored += s.Messages },
			Lag: func(s persister.Status) {
				if s.Lag.Messages == 0 && s.Offset.Position > 0 && s.RetryingSince.IsZero() {
					cancel()
				}
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(ctx); err != nil || ctx.Err() == context.DeadlineExceeded {
		t.Fatalf("not stored in time: %+v %v", p.Status(), err)
	}
	if messages > 0 && stored != messages {
		t.Fatalf("%d messages were stored, want %d", stored, messages)
	}
}

func stored(t *testing.T, s *persistertest.Memory, key schema.RunKey) (b []byte) {
	t.Helper()
	for p, err := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, p.Body...)
	}
	return b
}

func inLog(t *testing.T, js jetstream.JetStream, key schema.RunKey) (b []byte) {
	t.Helper()
	next := uint64(1)
	for {
		m, err := natskit.NextFromLeader(t.Context(), js.Conn(), "AGENT_0", schema.RunFilter(key, 1), next)
		if errors.Is(err, natskit.ErrNoMessage) {
			return b
		}
		if err != nil {
			t.Fatal(err)
		}
		b, next = append(b, m.Data...), m.Seq+1
	}
}

func natsMsg(p *schema.Pack) *nats.Msg {
	return &nats.Msg{Subject: schema.Subject(p.Key, p.Child, 1), Header: p.Headers(), Data: p.Body}
}
