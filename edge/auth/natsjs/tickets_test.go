package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/auth"
	"agentstream/edge/auth/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The embedded server leaves these two behind after Shutdown; they belong to its process-wide
		// file watch and time cache, not to us.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).Start.func2"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// TestOneTakerOverManyNodes has each ticket redeemed by several nodes at once, each with its own
// connection: exactly one is let in.
func TestOneTakerOverManyNodes(t *testing.T) {
	server := testkit.NATS(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const nodes, tickets = 4, 100
	caller := auth.Caller{Tenant: "acme", Subject: "u-1", Scopes: auth.ScopeAll, Credential: "token"}
	var all []*auth.Tickets
	for range nodes {
		store, err := natsjs.OpenTickets(ctx, server.Dial(t))
		if err != nil {
			t.Fatal(err)
		}
		n, err := auth.NewTickets(auth.TicketsConfig{Store: store, Still: func(auth.Caller) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	var won, lost atomic.Int64
	for i := range tickets {
		run := fmt.Sprintf("run_%d", i)
		ticket, _, err := all[i%nodes].Issue(ctx, caller, run)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := all[0].Redeem(ctx, ticket, "another"); !errors.Is(err, auth.ErrUnauthorized) { // which costs nothing
			t.Errorf("for another run: %v", err)
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, node := range all {
			for range 2 { // and twice on each
				wg.Go(func() {
					<-start
					c, err := node.Redeem(ctx, ticket, run)
					switch {
					case err == nil && c.Run == run && c.Tenant == "acme" && c.Subject == "u-1" && c.Scopes == auth.ScopeRead:
						won.Add(1)
					case errors.Is(err, auth.ErrUnauthorized):
						lost.Add(1)
					default:
						t.Errorf("%+v %v", c, err)
					}
				})
			}
		}
		close(start)
		wg.Wait()
	}
	if won.Load() != tickets || lost.Load() != tickets*(2*nodes-1) {
		t.Errorf("%d redeemed, %d refused", won.Load(), lost.Load())
	}
	// What lies in the bucket redeems nothing: neither the hash nor the record is a ticket.
	kv, err := server.JS.KeyValue(ctx, natskit.TicketsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := all[0].Issue(ctx, caller, "left"); err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil || len(keys) != 1 || strings.HasPrefix(keys[0], "tkt_") {
		t.Fatalf("%q %v", keys, err)
	}
	if _, err := all[0].Redeem(ctx, keys[0], "run"); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a hash redeems: %v", err)
	}
}

// TestServerAway: nobody is let in, and nobody is called a stranger.
func TestServerAway(t *testing.T) {
	server := testkit.NATS(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	nc := server.Dial(t)
	store, err := natsjs.OpenTickets(ctx, nc)
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: store, Still: func(auth.Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ticket, _, err := tickets.Issue(ctx, auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead}, "run")
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if _, err := tickets.Redeem(ctx, ticket, "run"); !errors.Is(err, auth.ErrUnavailable) ||
		errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("%v", err)
	}
	if _, _, err := tickets.Issue(ctx, auth.Caller{Tenant: "acme", Scopes: auth.ScopeRead}, "run"); !errors.Is(err,
		auth.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestBucketIsMadeAgain: the bucket lies in memory, and is gone when a single server was begun anew. Tickets of before
// are lost with it, and new ones are kept.
func TestBucketIsMadeAgain(t *testing.T) {
	server := testkit.NATS(t)
	tickets, err := natsjs.OpenTickets(t.Context(), server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := tickets.Put(t.Context(), "old", []byte("record"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := server.JS.DeleteKeyValue(t.Context(), natskit.TicketsBucket); err != nil {
		t.Fatal(err)
	}
	if err := tickets.Put(t.Context(), "new", []byte("record"), time.Minute); err != nil {
		t.Fatal(err)
	}
	all := func(record []byte) bool { return string(record) == "record" }
	if err := tickets.Redeem(t.Context(), "new", all); err != nil {
		t.Error(err)
	}
	if err := tickets.Redeem(t.Context(), "old", all); !errors.Is(err, auth.ErrNoTicket) {
		t.Errorf("a ticket that went with the bucket: %v", err)
	}
}
