package natsjs_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/persister/natsjs"
)

// farAway gives the address of a proxy to a server; each way takes so long.
func farAway(t *testing.T, server string, delay time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var jobs sync.WaitGroup
	type piece struct {
		due  time.Time
		data []byte
	}
	carry := func(from, to net.Conn) {
		pieces := make(chan piece, 1024)
		jobs.Go(func() {
			defer close(pieces)
			for {
				buf := make([]byte, 32<<10)
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				pieces <- piece{time.Now().Add(delay), buf[:n]}
			}
		})
		jobs.Go(func() {
			defer func() { _, _ = to.Close(), from.Close() }()
			for p := range pieces {
				select {
				case <-time.After(time.Until(p.due)):
				case <-ctx.Done():
				}
				if _, err := to.Write(p.data); err != nil {
					_, _ = to.Close(), from.Close()
					for range pieces {
						continue
					}
					return
				}
			}
		})
	}
	jobs.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			carry(near, far)
			carry(far, near)
		}
	})
	t.Cleanup(func() { cancel(); ln.Close(); jobs.Wait() })
	return ln.Addr().String()
}

// TestRosterFarAway: with a bucket that takes its time to answer, partitions are shared all the same.
func TestRosterFarAway(t *testing.T) {
	s := rosterLog(t)
	cfg := natsjs.RosterConfig{Beat: 400 * time.Millisecond, TTL: 4 * time.Second, Alone: time.Hour}
	addr := farAway(t, s.Server.Addr().String(), 90*time.Millisecond)
	far := func() *member {
		nc, err := natskit.Dial("nats://"+addr, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return joinOver(t, nc, cfg)
	}
	a := far()
	settles(t, "[8]", a)
	for began := time.Now(); time.Since(began) < cfg.TTL*3/2; <-time.After(10 * time.Millisecond) {
		if loads, exact := owns(a); !exact {
			t.Fatalf("it holds %v: leases have ended", loads)
		}
	}
	b := far()
	settles(t, "[4 4]", a, b)
}

// TestRosterBucketDeleted: an operator's mistake costs a moment.
func TestRosterBucketDeleted(t *testing.T) {
	s := rosterLog(t)
	a, b := join(t, s, quick), join(t, s, quick)
	for range 3 {
		settles(t, "[4 4]", a, b)
		if err := s.JS.DeleteKeyValue(t.Context(), natsjs.RosterBucket); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(30 * time.Second); ; {
			if kv, err := s.JS.KeyValue(t.Context(), natsjs.RosterBucket); err == nil {
				if keys, err := kv.ListKeysFiltered(t.Context(), "lease.*"); err == nil {
					n := 0
					for range keys.Keys() {
						n++
					}
					if n == rosterPartitions {
						break
					}
				}
			}
			if time.Now().After(deadline) {
				t.Fatal("the leases are not in the bucket again")
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	settles(t, "[4 4]", a, b)
}
