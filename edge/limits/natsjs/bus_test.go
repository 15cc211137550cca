package natsjs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/limits"
	"agentstream/edge/limits/natsjs"
	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server leaves these two behind after Shutdown; they belong to its process-wide
		// file watch and time cache, not to us.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// send reports whether a node takes events.
func send(l *limits.Limiter, events int) bool {
	m, err := l.Enter("acme", true)
	if err == nil {
		err = l.Spend(m, events, 1)
		l.Leave(m, true)
	}
	return err == nil
}

// Three edges, each with its own connection, hear what a tenant has sent to another one. One whose server is gone goes
// on by itself.
func TestEdgesTellEachOther(t *testing.T) {
	server := testkit.NATS(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	var edges []*limits.Limiter
	for _, name := range []string{"a", "b", "c"} {
		l := limits.New(limits.Limit{Events: 10}, nil)
		peers := limits.NewPeers(l, natsjs.NewBus(server.Dial(t)), name)
		work.Go(func() { peers.Run(ctx) })
		edges = append(edges, l)
	}
	// Each time a second's events are sent to one of them, until both others have heard of it: so much is used up for a
	// while.
	deadline := time.Now().Add(20 * time.Second)
	heard := func(l *limits.Limiter) bool { return !send(l, 0) }
	for !heard(edges[1]) || !heard(edges[2]) {
		if time.Now().After(deadline) {
			t.Fatal("the others have not heard of it")
		}
		send(edges[0], 50)
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	alone := limits.New(limits.Limit{Events: 10}, nil)
	nc := server.Dial(t)
	nc.Close()
	away, stop := context.WithCancel(t.Context())
	defer stop()
	peers := limits.NewPeers(alone, natsjs.NewBus(nc), "alone")
	work.Go(func() { peers.Run(away) })
	if !send(alone, 50) || send(alone, 1) {
		t.Error("an edge without NATS does not count for itself")
	}
}
