package natsjs_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// follower keeps what it is handed, and does not say done to what hold names.
type follower struct {
	mu    sync.Mutex
	texts []string
	hold  func(text string) bool
	more  chan struct{}
}

func (f *follower) hand(p schema.Pack, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range p.Records(0) {
		e, err := r.Event()
		if err != nil {
			continue
		}
		f.texts = append(f.texts, p.Key.Tenant+" "+string(e.Payload))
		if f.hold == nil || !f.hold(string(e.Payload)) {
			done()
		}
	}
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// await waits for so many texts, and returns them.
func (f *follower) await(t *testing.T, n int) []string {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		f.mu.Lock()
		texts := slices.Clone(f.texts)
		f.mu.Unlock()
		if len(texts) >= n {
			return texts
		}
		select {
		case <-f.more:
		case <-limit:
			t.Fatalf("%d texts were awaited: %q", n, texts)
		}
	}
}

func follow(t *testing.T, l *natsjs.Log, cfg natsjs.FollowConfig, f *follower) (stop func()) {
	t.Helper()
	f.more = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Follow(ctx, cfg, f.hand) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// What runs themselves say is handed over in order, from the beginning, and again until it is done, also to who
// comes later under the same name; children and other tenants are passed over.
func TestFollow(t *testing.T) {
	_, l := open(t)
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	put := func(tenant, run, lane, s string) {
		t.Helper()
		if _, err := a.Append(t.Context(), schema.RunKey{Tenant: tenant, Run: run}, []schema.Event{text(lane, s)},
			producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		put("acme", "run_1", "", fmt.Sprint(i))
		put("acme", "run_1", "child", "no")
		put("other", "run_1", "", "no")
	}
	line := func(s string) string { return fmt.Sprintf(`acme {"text":%q}`, s) }
	first := &follower{hold: func(s string) bool { return s == `{"text":"3"}` }}
	stop := follow(t, l, natsjs.FollowConfig{Name: "f", Tenant: "acme", Again: 300 * time.Millisecond}, first)
	got := first.await(t, 7)
	if want := []string{line("0"), line("1"), line("2"), line("3"), line("4"), line("3"), line("3")}; !slices.Equal(got[:7], want) {
		t.Errorf("%q", got)
	}
	stop()
	put("acme", "run_1", "", "5")
	second := &follower{}
	follow(t, l, natsjs.FollowConfig{Name: "f", Tenant: "acme", Again: 300 * time.Millisecond}, second)
	got = second.await(t, 2)
	slices.Sort(got)
	if want := []string{line("3"), line("5")}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	everybody := &follower{}
	follow(t, l, natsjs.FollowConfig{Name: "all"}, everybody)
	if got := everybody.await(t, 11); len(got) != 11 {
		t.Errorf("%q", got)
	}
	for _, cfg := range []natsjs.FollowConfig{{}, {Name: "a.b"}, {Name: "a", Tenant: "*"}, {Name: "a", Held: -1}} {
		if err := l.Follow(t.Context(), cfg, first.hand); err == nil {
			t.Errorf("%+v is followed", cfg)
		}
	}
}

// Somebody removes the consumer: it is made again, and everything is handed over once more.
func TestFollowWithoutItsConsumer(t *testing.T) {
	k, l := open(t)
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{}
	follow(t, l, natsjs.FollowConfig{Name: "f"}, f)
	for i := range 2 {
		if _, err := a.Append(t.Context(), key, []schema.Event{text("", fmt.Sprint(i))},
			producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.await(t, 2)
	partition := schema.Partition(key.Run, k.Partitions)
	if err := k.JS.DeleteConsumer(t.Context(), fmt.Sprint("AGENT_", partition), "f"); err != nil {
		t.Fatal(err)
	}
	if got := f.await(t, 4); got[2] != got[0] || got[3] != got[1] {
		t.Errorf("%q", got)
	}
}
