package natsjs_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server leaves these two after after Shutdown; they belong to its process-wide
		// file watch and time cache, not to us.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

func open(t *testing.T) (*testkit.Server, *natsjs.Log) {
	t.Helper()
	k := testkit.NATS(t)
	l, err := natsjs.Open(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	return k, l
}

var key = schema.RunKey{Tenant: "acme", Run: "run_1"}

func text(lane, s string) schema.Event {
	return schema.Event{Type: schema.TypeTextDelta, ChildID: lane, Payload: fmt.Appendf(nil, `{"text":%q}`, s)}
}

// stored reads the run back from the leader and checks numbers and lines; it gives each writer's
// texts in order.
func stored(t *testing.T, l *natsjs.Log, key schema.RunKey) map[string][]string {
	t.Helper()
	next := schema.Seq(1)
	out := make(map[string][]string)
	for p, err := range l.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		if p.First != next {
			t.Fatalf("pack begins at %d where %d is next", p.First, next)
		}
		next = p.Last() + 1
		for r := range p.Records(0) {
			out[p.Writer] = append(out[p.Writer], string(r.Payload()))
		}
	}
	return out
}

func TestAppendIsACompareAndSetOnTheRun(t *testing.T) {
	_, l := open(t)
	pub, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pub.Append(t.Context(), text("", "a"), text("c1", "b"), text("", "c")); err != nil {
		t.Fatal(err)
	}
	head, err := l.Head(t.Context(), key, "c1")
	if err != nil || head.Last != 3 || head.Lane.Epoch != 1 {
		t.Fatalf("%+v %v", head, err)
	}
	var packs []schema.Pack
	for p, err := range l.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		packs = append(packs, p)
	}
	if len(packs) != 3 || packs[1].Child != "c1" || packs[2].First != 3 {
		t.Fatalf("%+v", packs)
	}
	// An old position is refused, whichever child the pack is of.
	for _, after := range []uint64{0, packs[0].Head.Stored, packs[1].Head.Stored, head.Stored + 7} {
		if _, err := l.Append(t.Context(), &packs[1], after); !errors.Is(err, producers.ErrConflict) {
			t.Errorf("append after %d: %v", after, err)
		}
	}
	if h, _ := l.Head(t.Context(), key, ""); h.Last != 3 {
		t.Fatalf("a refused append was stored: %+v", h)
	}
	other := schema.RunKey{Tenant: "other", Run: key.Run}
	if h, err := l.Head(t.Context(), other, ""); err != nil || h.HasEvents() {
		t.Fatalf("another tenant sees the run: %+v %v", h, err)
	}
}

func TestTwoAndSixteenWriters(t *testing.T) {
	for _, writers := range []int{2, 16} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d writers, shared lane %v", writers, shared), func(t *testing.T) {
				_, l := open(t)
				const each = 200
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						lane := ""
						if !shared {
							lane = fmt.Sprintf("child%d", w)
						}
						pub, _ := producers.New(producers.Config{Log: l, Key: key, Shared: shared})
						for i := range each {
							if _, err := pub.Publish(t.Context(), text(lane, fmt.Sprintf("%02d:%04d", w, i))); err != nil {
								t.Error(err)
							}
						}
						if err := pub.Close(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				total := 0
				for who, texts := range stored(t, l, key) {
					for i, s := range texts {
						if want := fmt.Sprintf(":%04d\"}", i); s[len(s)-len(want):] != want {
							t.Fatalf("writer %s: %s is its event %d", who, s, i)
						}
					}
					total += len(texts)
				}
				if total != writers*each {
					t.Fatalf("%d events stored of %d", total, writers*each)
				}
			})
		}
	}
}

// A writer that is cut off from the server while another takes its lane over is refused when it
// comes back, although it never heard of it.
func TestPausedWriterIsRefused(t *testing.T) {
	k, l := open(t)
	paused, _ := producers.New(producers.Config{Log: l, Key: key})
	if _, err := paused.Append(t.Context(), text("", "old 1")); err != nil {
		t.Fatal(err)
	}
	l2, err := natsjs.Open(t.Context(), k.Dial(t))
	if err != nil {
		t.Fatal(err)
	}
	young, _ := producers.New(producers.Config{Log: l2, Key: key})
	if _, err := young.Append(t.Context(), text("", "new 1")); err != nil {
		t.Fatal(err)
	}
	if _, err := paused.Append(t.Context(), text("", "old 2")); !errors.Is(err, producers.ErrFenced) {
		t.Fatalf("the zombie got %v", err)
	}
	if _, err := young.Append(t.Context(), text("", "new 2")); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, l, key); len(got) != 2 {
		t.Fatalf("%v", got)
	}
}

// The server goes away in the middle and comes back: everything that was published is stored, once.
func TestServerRestartUnderLoad(t *testing.T) {
	dir := t.TempDir()
	serve := func(port int) (string, func()) {
		s, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return s.ClientURL(), func() { s.Shutdown(); s.WaitForShutdown() }
	}
	url, stop := serve(testkit.FreePort(t))
	nc, err := natskit.Dial(url, t.Name(), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	declare(t, nc)
	l, err := natsjs.Open(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	felt, restarted, once := make(chan struct{}), make(chan func(), 1), sync.Once{}
	pub, _ := producers.New(producers.Config{Log: l, Key: key, Timeout: 500 * time.Millisecond,
		Hooks: producers.Hooks{Retry: func(error) { once.Do(func() { close(felt) }) }}})
	const n = 3000
	for i := range n {
		if i == n/2 {
			stop()
			var port int
			if _, err := fmt.Sscanf(url, "nats://127.0.0.1:%d", &port); err != nil {
				t.Fatal(err)
			}
			go func() {
				select {
				case <-felt:
				case <-time.After(time.Minute):
					t.Error("the outage was never felt")
				}
				_, again := serve(port)
				restarted <- again
			}()
		}
		if _, err := pub.Publish(t.Context(), text("", fmt.Sprintf("%04d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := pub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer (<-restarted)()
	for _, texts := range stored(t, l, key) {
		if len(texts) != n {
			t.Fatalf("%d events of %d", len(texts), n)
		}
	}
}

func TestKeysSurviveAndExpire(t *testing.T) {
	k, l := open(t)
	keys, err := natsjs.OpenKeys(t.Context(), k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: l, Keys: keys})
	events := []schema.Event{text("", "a"), text("c", "b")}
	opt := producers.AppendOptions{IdempotencyKey: "batch 1"}
	first, err := a.Append(t.Context(), key, events, opt)
	if err != nil || first.Replayed || first.Last != 2 {
		t.Fatalf("%+v %v", first, err)
	}
	// Another node, which has nothing in common with the first but the broker.
	nc := k.Dial(t)
	l2, _ := natsjs.Open(t.Context(), nc)
	keys2, err := natsjs.OpenKeys(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := producers.NewAppender(producers.AppenderConfig{Log: l2, Keys: keys2})
	again, err := b.Append(t.Context(), key, events, opt)
	if err != nil || !again.Replayed || again.First != first.First || again.Last != first.Last {
		t.Fatalf("%+v %v", again, err)
	}
	if _, err := b.Append(t.Context(), key, events[:1], opt); !errors.Is(err, producers.ErrKeyReused) {
		t.Fatalf("same key, other content: %v", err)
	}
	if other, err := b.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run_2"}, events, opt); err != nil ||
		other.Replayed {
		t.Fatalf("same key on another run: %+v %v", other, err)
	}
	if n := len(stored(t, l, key)); n != 1 {
		t.Fatalf("%d writers stored something", n)
	}
}

func declare(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := natskit.Declare(t.Context(), js, natskit.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
}
