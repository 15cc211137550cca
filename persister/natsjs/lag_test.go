package natsjs_test

import (
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
)

// bound sets another window or size of partition 0.
func bound(t *testing.T, s *testkit.Server, age time.Duration, bytes int64) {
	t.Helper()
	stream, err := s.JS.Stream(t.Context(), "AGENT_0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxAge, cfg.MaxBytes = age, bytes
	if _, err := s.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// first waits until the stream begins at a position.
func first(t *testing.T, s *testkit.Server, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		stream, err := s.JS.Stream(t.Context(), "AGENT_0")
		if err != nil {
			t.Fatal(err)
		}
		if stream.CachedInfo().State.FirstSeq == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stream begins at %d", stream.CachedInfo().State.FirstSeq)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func lagOf(t *testing.T, q *natsjs.Queue, at persister.Offset) persister.Lag {
	t.Helper()
	lag, err := q.Lag(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	return lag
}

// TestLost: what the window takes before it is stored is counted, each message once.
func TestLost(t *testing.T) {
	short := natsjs.Config{Wait: 100 * time.Millisecond}
	t.Run("never read", func(t *testing.T) {
		s := testkit.NATS(t)
		q, at := open(t, s, short)
		fill(t, s, 10)
		at = behind(at, fetch(t, q, persister.Limit{Messages: 4, Bytes: 1 << 20})[3])
		if lag := lagOf(t, q, at); lag.Lost != 0 || lag.Messages != 6 {
			t.Fatalf("lag %+v", lag)
		}
		bound(t, s, time.Second, -1)
		first(t, s, 11)
		for range 3 {
			if lag := lagOf(t, q, at); lag.Lost != 6 || lag.Messages != 0 {
				t.Fatalf("lag %+v, lost must be 6", lag)
			}
		}
		bound(t, s, time.Hour, -1)
		fill(t, s, 3)
		msgs := fetch(t, q, wide)
		if got := positions(msgs); got != "11 12 13" {
			t.Fatalf("positions %s", got)
		}
		if lag := lagOf(t, q, behind(at, msgs[2])); lag.Lost != 6 || lag.Messages != 0 {
			t.Fatalf("lag %+v, counted twice", lag)
		}
	})
	t.Run("seen by the next fetch", func(t *testing.T) {
		s := testkit.NATS(t)
		q, at := open(t, s, short)
		fill(t, s, 4)
		at = behind(at, fetch(t, q, wide)[3])
		fill(t, s, 5)
		bound(t, s, time.Second, -1)
		first(t, s, 10)
		bound(t, s, time.Hour, -1)
		fill(t, s, 2)
		msgs := fetch(t, q, wide)
		if got := positions(msgs); got != "10 11" {
			t.Fatalf("positions %s", got)
		}
		if lag := lagOf(t, q, at); lag.Lost != 5 {
			t.Fatalf("lost %d of 5", lag.Lost)
		}
	})
	t.Run("held, and stored later", func(t *testing.T) { // it was read before it went
		s := testkit.NATS(t)
		q, at := open(t, s, short)
		fill(t, s, 7)
		fetch(t, q, persister.Limit{Messages: 5, Bytes: 1 << 20})
		bound(t, s, time.Second, -1)
		first(t, s, 8)
		if lag := lagOf(t, q, at); lag.Lost != 2 {
			t.Fatalf("lost %d of 2", lag.Lost)
		}
	})
	t.Run("before this process", func(t *testing.T) {
		s := testkit.NATS(t)
		before, at := open(t, s, short)
		fill(t, s, 9)
		at = behind(at, fetch(t, before, persister.Limit{Messages: 3, Bytes: 1 << 20})[2])
		bound(t, s, time.Second, -1)
		first(t, s, 10)
		q, err := natsjs.New(s.JS, 0, short)
		if err != nil {
			t.Fatal(err)
		}
		if lag := lagOf(t, q, at); lag.Lost != 0 { // it does not read: another process does
			t.Fatalf("lost %d, not its own", lag.Lost)
		}
		for range 2 {
			if lag := lagOf(t, q, seek(t, q, at)); lag.Lost != 6 {
				t.Fatalf("lost %d of 6", lag.Lost)
			}
		}
	})
	t.Run("nothing", func(t *testing.T) { // what is purged in the middle, and what is stored and gone, is no loss
		s := testkit.NATS(t)
		q, at := open(t, s, short)
		fill(t, s, 10)
		stream, err := s.JS.Stream(t.Context(), "AGENT_0")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{3, 4, 7} {
			if err := stream.DeleteMsg(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		msgs := fetch(t, q, wide)
		if got := positions(msgs); got != "1 2 5 6 8 9 10" {
			t.Fatalf("positions %s", got)
		}
		at = behind(at, msgs[6])
		bound(t, s, time.Second, -1)
		first(t, s, 11)
		if lag := lagOf(t, q, seek(t, q, at)); lag.Lost != 0 || lag.Messages != 0 {
			t.Fatalf("lag %+v", lag)
		}
	})
}

// TestLagRoom: a bounded stream reports how much may be written before it drops what is not stored.
func TestLagRoom(t *testing.T) {
	s := testkit.NATS(t)
	q, at := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
	if lag := lagOf(t, q, at); lag.Bounded || lag.Room != 1 {
		t.Fatalf("unbounded: %+v", lag)
	}
	fill(t, s, 100)
	stream, err := s.JS.Stream(t.Context(), "AGENT_0")
	if err != nil {
		t.Fatal(err)
	}
	bound(t, s, time.Hour, int64(2*stream.CachedInfo().State.Bytes))
	if lag := lagOf(t, q, at); !lag.Bounded || lag.Room < 0.49 || lag.Room > 0.51 {
		t.Fatalf("half full: %+v", lag)
	}
	if lag := lagOf(t, q, behind(at, fetch(t, q,
		persister.Limit{Messages: 50, Bytes: 1 << 20})[49])); lag.Room < 0.74 || lag.Room > 0.76 {
		t.Fatalf("half of it stored: %+v", lag)
	}
	if lag := lagOf(t, q, behind(at, fetch(t, q, wide)[49])); lag.Room != 1 || lag.Messages != 0 {
		t.Fatalf("all stored: %+v", lag)
	}
}
