package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lateBalancer sends each connection to one of the edges that it believes to be ready. It is told of a change late, as
// a node of a cluster is, and passes connections on without looking into them: who dials it dials the edge.
type lateBalancer struct {
	probe   manifestProbe
	unit    time.Duration // a second of the probe
	late    time.Duration // after a probe has found a change
	refused atomic.Int64  // connections that an edge did not take
	reason  atomic.Value  // the first of them, a string
	// Connections to an edge whose delay was over: the balancer, or the machine, was later than the test wants.
	overdue atomic.Int64

	mu    sync.Mutex
	known []string             // addresses
	until map[string]time.Time // until when edges that have got a signal are to serve, by address
	all   sync.WaitGroup
}

// leave notes that the edge at addr has got a signal, and is to serve for so long.
func (b *lateBalancer) leave(addr string, serves time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until[addr] = time.Now().Add(serves)
}

// errOverdue is a connection that the test must not have tried.
var errOverdue = errors.New("the edge was to serve no longer")

// dial opens a connection to an edge. It has the signature that http.Transport wants.
func (b *lateBalancer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	b.mu.Lock()
	known := b.known
	b.mu.Unlock()
	if len(known) == 0 {
		return nil, b.refuse(ctx, "no edge is known")
	}
	addr := known[rand.IntN(len(known))]
	begun := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		return conn, nil
	}
	b.mu.Lock()
	until, leaving := b.until[addr]
	b.mu.Unlock()
	if leaving && begun.After(until) {
		b.overdue.Add(1)
		return nil, errOverdue
	}
	return nil, b.refuse(ctx, err.Error())
}

// refuse counts what a client was not given, unless the client has given up.
func (b *lateBalancer) refuse(ctx context.Context, reason string) error {
	if ctx.Err() == nil {
		b.refused.Add(1)
		b.reason.CompareAndSwap(nil, reason)
	}
	return fmt.Errorf("refused: %s", reason)
}

// watch probes an edge as the manifest says until ctx ends, and follows what comes of it, late.
func (b *lateBalancer) watch(ctx context.Context, addr, health string) {
	client := &http.Client{Timeout: time.Duration(b.probe.TimeoutSeconds) * b.unit,
		Transport: &http.Transport{DisableKeepAlives: true}}
	ready, failures := false, 0
	tick := time.NewTicker(time.Duration(b.probe.PeriodSeconds) * b.unit)
	defer tick.Stop()
	for {
		switch ok := isReady(ctx, client, health); {
		case ok && !ready:
			ready, failures = true, 0
			b.follow(ctx, addr, true)
		case ok:
			failures = 0
		case ready:
			if failures++; failures == b.probe.FailureThreshold {
				ready = false
				b.follow(ctx, addr, false)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func isReady(ctx context.Context, client *http.Client, health string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// follow takes an edge in or out, late.
func (b *lateBalancer) follow(ctx context.Context, addr string, in bool) {
	b.all.Go(func() {
		select {
		case <-time.After(b.late):
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		known := slices.DeleteFunc(slices.Clone(b.known), func(a string) bool { return a == addr })
		if in {
			known = append(known, addr)
		}
		b.known = known
	})
}

// knows waits until the balancer knows exactly the edges at the addresses.
func (b *lateBalancer) knows(t testing.TB, addrs ...string) {
	t.Helper()
	slices.Sort(addrs)
	eventually(t, time.Minute, "the balancer knows the edges", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Equal(slices.Sorted(slices.Values(b.known)), addrs)
	})
}
