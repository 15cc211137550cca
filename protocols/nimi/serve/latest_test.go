package serve_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// TestLatestProviders: a client that does not read for a while is shown the newest 16 states of providers behind what
// was on its way, and none of those between; its numbers have no hole.
func TestLatestProviders(t *testing.T) {
	slowly(t, func(t *testing.T, n *node) {
		const states = 60
		say := func(i int) {
			n.Say("runtime-provider", edgetest.Event("custom.runtime.provider",
				fmt.Sprintf(`{"providerName":"w","state":"s%d","reason":"%*d"}`, i, 8<<10, i)))
		}
		say(0)
		r := n.raw("RuntimeAuditService/SubscribeAIProviderHealthEvents", &runtimev1.SubscribeAIProviderHealthEventsRequest{})
		synctest.Wait()
		for i := 1; i < states; i++ {
			say(i)
			synctest.Wait()
		}
		time.Sleep(4 * time.Second)
		if err := r.Allow(1 << 30); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		list := read(t, r, provider)
		for i, e := range list {
			if e.GetSequence() != uint64(i+1) {
				t.Errorf("state %d is number %d", i+1, e.GetSequence())
			}
		}
		if len(list) <= 16 || len(list) >= states-10 {
			t.Fatalf("%d states", len(list))
		}
		for i, e := range list[len(list)-16:] {
			if want := fmt.Sprint("s", states-16+i); e.GetState() != want {
				t.Errorf("the newest %d: %s, want %s", 16-i, e.GetState(), want)
			}
		}
	})
}

// TestHealthChanges: a node says how it is when something that it needs is away, and when it is there again. The latest
// 8 states wait for a client.
func TestHealthChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		all := edgetest.Share()
		all.Pipes = edgetest.NewPipes()
		n := join(t, all, func(c *edge.Config) {
			c.Checks = []edge.Check{{Name: "nats", Run: func(context.Context) error {
				if away.Load() {
					return errors.New("secret words")
				}
				return nil
			}}, {Name: "optional", Optional: true, Run: func(context.Context) error { return errors.New("always") }}}
		})
		r := n.raw("RuntimeAuditService/SubscribeRuntimeHealthEvents", &runtimev1.SubscribeRuntimeHealthEventsRequest{})
		for i := range 3 {
			away.Store(i == 1)
			time.Sleep(5 * time.Second)
		}
		list := read(t, r, health)
		const ready, degraded = runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_READY, runtimev1.RuntimeHealthStatus_RUNTIME_HEALTH_STATUS_DEGRADED
		want := []runtimev1.RuntimeHealthStatus{ready, degraded, ready}
		if len(list) != len(want) {
			t.Fatalf("%v", list)
		}
		for i, e := range list {
			if e.GetStatus() != want[i] || e.GetSequence() != uint64(i+1) ||
				(e.GetReason() == "not available: nats") != (want[i] == degraded) {
				t.Errorf("state %d: %v", i+1, e)
			}
		}
	})
}
