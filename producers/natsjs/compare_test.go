package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/producers/natsjs"
	"agentstream/schema"
)

// compared opens a log whose comparisons the test answers.
func compared(t *testing.T, url string, answer natsjs.Compare) *natsjs.Log {
	t.Helper()
	nc, err := natskit.Dial(url, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := natsjs.OpenWith(t.Context(), nc, natsjs.Config{Compare: answer})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNothingIsAppendedBeforeTheComparison: an append waits for it within its own time, and one comparison of a
// partition is enough for all that follow.
func TestNothingIsAppendedBeforeTheComparison(t *testing.T) {
	k := testkit.NATS(t)
	behind := errors.New("behind")
	var whole atomic.Bool
	var asked atomic.Int64
	l := compared(t, k.Server.ClientURL(), func(context.Context, int) (uint64, error) {
		if asked.Add(1); !whole.Load() {
			return 0, behind
		}
		return 3, nil
	})
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), key, []schema.Event{text("", "x")},
		producers.AppendOptions{Within: 300 * time.Millisecond}); err == nil {
		t.Fatal("appended to a log that is behind")
	}
	if err := l.Compare(t.Context()); !errors.Is(err, behind) || !errors.Is(err, producers.ErrUnavailable) {
		t.Fatalf("compared: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { whole.Store(true) })
	if _, err := a.Append(t.Context(), key, []schema.Event{text("", "x")},
		producers.AppendOptions{Within: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	asked.Store(0)
	for range 50 {
		if _, err := a.Append(t.Context(), key, []schema.Event{text("", "x")}, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d comparisons for 50 appends behind one", n)
	}
	head, err := l.Head(t.Context(), key, "")
	if err != nil || head.Last != 51 || head.Generation != 3 {
		t.Errorf("head %+v, %v", head, err)
	}
}

// TestComparedAfterEachReconnect: the server was away; what it has may be another log.
func TestComparedAfterEachReconnect(t *testing.T) {
	dir, port := t.TempDir(), testkit.FreePort(t)
	serve := func() (stop func()) {
		s, err := natskit.Serve(natskit.Embedded{StoreDir: dir, Listen: "127.0.0.1", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return func() { s.Shutdown(); s.WaitForShutdown() }
	}
	stop := serve()
	defer func() { stop() }()
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	openAt(t, url)
	var asked atomic.Int64
	l := compared(t, url, func(context.Context, int) (uint64, error) { asked.Add(1); return 0, nil })
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	for round := range int64(3) {
		if _, err := a.Append(t.Context(), key, []schema.Event{text("", "x")}, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := asked.Load(); n < round+1 {
			t.Fatalf("%d comparisons after %d restarts", n, round)
		}
		stop()
		stop = serve()
	}
}

// TestWritersOfARenewedLog: writers that remember a head of the log before read it again: an appender, and an
// agent whose takeover of the lane the log has lost. What was acknowledged and is nowhere is told.
func TestWritersOfARenewedLog(t *testing.T) {
	k := testkit.NATS(t)
	var generation atomic.Uint64
	l := compared(t, k.Server.ClientURL(), func(context.Context, int) (uint64, error) { return generation.Load(), nil })
	var lost []string
	hooks := producers.Hooks{Lost: func(k schema.RunKey, after, through schema.Seq) {
		lost = append(lost, fmt.Sprintf("%s %d %d", k.Run, after, through))
	}}
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	add := func(want schema.Seq) {
		t.Helper()
		if r, err := a.Append(t.Context(), key, []schema.Event{text("", "x")}, producers.AppendOptions{}); err != nil ||
			r.First != want {
			t.Fatalf("%+v, %v; want %d", r, err, want)
		}
	}
	add(1)
	before, err := producers.New(producers.Config{Log: l, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Append(t.Context(), text("", "before")); err != nil {
		t.Fatal(err)
	}
	agent, err := producers.New(producers.Config{Log: l, Key: key, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close(context.Background()) }()
	for range 3 {
		if _, err := agent.Append(t.Context(), text("", "agent")); err != nil {
			t.Fatal(err)
		}
	}
	add(6)
	// The log loses everything after the second event: the agent's takeover too.
	stream, err := k.JS.Stream(t.Context(), natskit.StreamName(schema.Partition(key.Run, k.Partitions)))
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(3); seq <= 6; seq++ {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	generation.Store(1)
	l.Doubt()
	add(3)
	if _, err := agent.Append(t.Context(), text("", "agent")); err != nil {
		t.Fatalf("the agent's lane is still its own: %v", err)
	}
	add(5)
	if fmt.Sprint(lost) != "[run_1 2 6]" && fmt.Sprint(lost) != fmt.Sprintf("[%s 2 6 %s 3 5]", key.Run, key.Run) {
		t.Errorf("lost %v", lost)
	}
	if _, err := before.Append(t.Context(), text("", "ghost")); !errors.Is(err, producers.ErrFenced) {
		t.Errorf("the former agent: %v", err)
	}
}

// archived has the heads of runs, and no more.
type archived map[schema.RunKey]schema.Head

func (a archived) Head(_ context.Context, key schema.RunKey, _ string) (schema.Head, error) {
	return a[key], nil
}

// TestStreamMadeAnewUnderAConnection: the streams are deleted and declared again while the connection stays. What a run
// has in the former stream may not be stored yet, so nothing of it is numbered before a comparison with the new one.
func TestStreamMadeAnewUnderAConnection(t *testing.T) {
	k := testkit.NATS(t)
	var behind atomic.Bool
	var generation atomic.Uint64
	l := compared(t, k.Server.ClientURL(), func(context.Context, int) (uint64, error) {
		if behind.Load() {
			return 0, errors.New("behind")
		}
		return generation.Load(), nil
	})
	archive := archived{}
	a, err := producers.NewAppender(producers.AppenderConfig{Log: l, Archive: archive})
	if err != nil {
		t.Fatal(err)
	}
	pub, err := producers.New(producers.Config{Log: l, Archive: archive, Key: schema.RunKey{Tenant: "acme", Run: "quiet"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pub.Close(context.Background()) }()
	add := func(run string, within time.Duration) (producers.Receipt, error) {
		return a.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: run}, []schema.Event{text("", "x")},
			producers.AppendOptions{Within: within})
	}
	if err := l.Compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := schema.RunKey{Tenant: "acme", Run: "run_1"}
	var heads []schema.Head
	for range 3 {
		if _, err := add(run.Run, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		head, err := l.Head(t.Context(), run, "")
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, head)
	}
	for p := range k.Partitions {
		if err := k.JS.DeleteStream(t.Context(), natskit.StreamName(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{Partitions: k.Partitions}); err != nil {
		t.Fatal(err)
	}
	behind.Store(true) // the persister holds the third event, which the archive has not got yet
	archive[run] = heads[1]
	for _, run := range []string{run.Run, "fresh"} {
		if r, err := add(run, 300*time.Millisecond); err == nil {
			t.Errorf("%s: seq %d is given before the comparison", run, r.First)
		}
	}
	archive[run] = heads[2]
	generation.Store(1)
	behind.Store(false)
	if r, err := add(run.Run, 10*time.Second); err != nil || r.First != 4 {
		t.Errorf("behind the comparison: %+v, %v", r, err)
	}
	if _, err := pub.Append(t.Context(), text("", "x")); err != nil {
		t.Errorf("a publisher that wrote nothing before: %v", err)
	}
}
