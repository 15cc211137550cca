package natsjs_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/natsjs"
)

// bound gives partition 0 another window or size.
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

func lagOf(t *testing.T, q *natsjs.Queue) persister.Lag {
	t.Helper()
	lag, err := q.Lag(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lag
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

// TestLost: what the window takes before it is confirmed is counted, each message once, whoever had it:
// nobody, this process, or the one before it.
func TestLost(t *testing.T) {
	t.Run("never handed out", func(t *testing.T) {
		s := testkit.NATS(t)
		q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		fill(t, s, 10)
		if err := q.Ack(t.Context(), fetch(t, q, persister.Limit{Messages: 4, Bytes: 1 << 20})); err != nil {
			t.Fatal(err)
		}
		if lag := lagOf(t, q); lag.Lost != 0 || lag.Messages != 6 {
			t.Fatalf("lag %+v", lag)
		}
		bound(t, s, time.Second, -1)
		first(t, s, 11)
		for range 3 {
			if lag := lagOf(t, q); lag.Lost != 6 || lag.Messages != 0 {
				t.Fatalf("lag %+v, lost must be 6", lag)
			}
		}
		bound(t, s, time.Hour, -1)
		fill(t, s, 3)
		if got := positions(fetch(t, q, wide)); got != "11 12 13" {
			t.Fatalf("positions %s", got)
		}
		if lag := lagOf(t, q); lag.Lost != 6 {
			t.Fatalf("lost %d, counted twice", lag.Lost)
		}
	})
	t.Run("seen by the next fetch", func(t *testing.T) {
		s := testkit.NATS(t)
		q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		fill(t, s, 4)
		if err := q.Ack(t.Context(), fetch(t, q, wide)); err != nil {
			t.Fatal(err)
		}
		fill(t, s, 5)
		bound(t, s, time.Second, -1)
		first(t, s, 10)
		bound(t, s, time.Hour, -1)
		fill(t, s, 2)
		if got := positions(fetch(t, q, wide)); got != "10 11" {
			t.Fatalf("positions %s", got)
		}
		if lag := lagOf(t, q); lag.Lost != 5 {
			t.Fatalf("lost %d of 5", lag.Lost)
		}
	})
	t.Run("given back", func(t *testing.T) {
		s := testkit.NATS(t)
		q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		fill(t, s, 7)
		msgs := fetch(t, q, wide)
		if err := q.Ack(t.Context(), msgs[1:3]); err != nil {
			t.Fatal(err)
		}
		if err := q.Release(t.Context(), append(msgs[:1:1], msgs[3:]...)); err != nil {
			t.Fatal(err)
		}
		if got := positions(fetch(t, q, persister.Limit{Messages: 2, Bytes: 1 << 20})); got != "1 4" {
			t.Fatalf("positions %s", got) // they are here, and will be stored
		}
		bound(t, s, time.Second, -1)
		first(t, s, 8)
		if lag := lagOf(t, q); lag.Lost != 3 {
			t.Fatalf("lost %d of 3", lag.Lost)
		}
	})
	t.Run("before this process", func(t *testing.T) {
		s := testkit.NATS(t)
		fill(t, s, 9)
		before := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		if err := before.Ack(t.Context(), fetch(t, before, persister.Limit{Messages: 5, Bytes: 1 << 20})[:3]); err != nil {
			t.Fatal(err)
		}
		bound(t, s, time.Second, -1)
		first(t, s, 10)
		// The server forgets messages that were handed out when they go; the others it does not.
		if lag := lagOf(t, open(t, s, natsjs.Config{})); lag.Lost < 4 || lag.Lost > 6 {
			t.Fatalf("lost %d of 6", lag.Lost)
		}
	})
	t.Run("given back and stored by another", func(t *testing.T) {
		s := testkit.NATS(t)
		a, b := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond}), open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		fill(t, s, 5)
		if err := a.Release(t.Context(), fetch(t, a, wide)); err != nil {
			t.Fatal(err)
		}
		if err := b.Ack(t.Context(), fetch(t, b, wide)); err != nil {
			t.Fatal(err)
		}
		if lag := lagOf(t, a); lag.Lost != 0 || lag.Messages != 0 {
			t.Fatalf("lag %+v", lag)
		}
		bound(t, s, time.Second, -1)
		first(t, s, 6)
		for _, q := range []*natsjs.Queue{a, b} {
			if lag := lagOf(t, q); lag.Lost != 0 {
				t.Fatalf("lost %d of nothing", lag.Lost)
			}
		}
	})
	t.Run("nothing", func(t *testing.T) { // what is purged in the middle, and what is confirmed and gone, is no loss
		s := testkit.NATS(t)
		q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
		fill(t, s, 10)
		stream, err := s.JS.Stream(t.Context(), "AGENT_0")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []uint64{3, 4, 5} {
			if err := stream.DeleteMsg(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		msgs := fetch(t, q, wide)
		if got := positions(msgs); got != "1 2 6 7 8 9 10" {
			t.Fatalf("positions %s", got)
		}
		if err := q.Ack(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		bound(t, s, time.Second, -1)
		first(t, s, 11)
		for _, x := range []*natsjs.Queue{q, open(t, s, natsjs.Config{})} {
			if lag := lagOf(t, x); lag.Lost != 0 {
				t.Fatalf("lost %d of nothing", lag.Lost)
			}
		}
	})
}

// TestNothingLostBefore: what had gone before there was a consumer, or before it was made anew, is no loss.
func TestNothingLostBefore(t *testing.T) {
	s := testkit.NATS(t)
	old := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
	fill(t, s, 5)
	if err := old.Ack(t.Context(), fetch(t, old, wide)); err != nil {
		t.Fatal(err)
	}
	bound(t, s, time.Second, -1)
	first(t, s, 6)
	bound(t, s, time.Hour, -1)
	fill(t, s, 2)
	if err := s.JS.DeleteConsumer(t.Context(), "AGENT_0", "persist"); err != nil {
		t.Fatal(err)
	}
	_, _ = old.Lag(t.Context()) // it hears of it
	for name, q := range map[string]*natsjs.Queue{"old": old, "new": open(t, s, natsjs.Config{})} {
		if lag := lagOf(t, q); lag.Lost != 0 || lag.Messages != 2 {
			t.Errorf("%s: lag %+v", name, lag)
		}
	}
}

// TestLagRoom: in a stream of bounded size the room until the next loss gets less, and its end is counted.
func TestLagRoom(t *testing.T) {
	s := testkit.NATS(t)
	bound(t, s, 0, 64<<10)
	q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond})
	var seen []string
	for range 4 {
		fill(t, s, 20)
		lag := lagOf(t, q)
		seen = append(seen, fmt.Sprintf("%.1f", lag.Room))
		if !lag.Bounded || lag.Lost != 0 {
			t.Fatalf("lag %+v", lag)
		}
	}
	if seen[0] <= seen[1] || seen[1] <= seen[2] || seen[2] <= seen[3] {
		t.Errorf("room was %v", seen)
	}
	low := lagOf(t, q).Room
	if err := q.Ack(t.Context(), fetch(t, q, persister.Limit{Messages: 40, Bytes: 1 << 20})); err != nil {
		t.Fatal(err)
	}
	if lag := lagOf(t, q); lag.Room <= low {
		t.Errorf("room was %.2f and is %.2f after 40 messages were confirmed", low, lag.Room)
	}
	fill(t, s, 300)
	if lag := lagOf(t, q); lag.Lost == 0 || lag.Room > 0.2 {
		t.Errorf("lag %+v", lag)
	}
}

// TestHold: what is held is not handed out again, what is not is.
func TestHold(t *testing.T) {
	s := testkit.NATS(t)
	fill(t, s, 6)
	q := open(t, s, natsjs.Config{Wait: 100 * time.Millisecond, AckWait: 2 * time.Second})
	held := fetch(t, q, persister.Limit{Messages: 3, Bytes: 1 << 20})
	fetch(t, q, persister.Limit{Messages: 3, Bytes: 1 << 20})
	if q.Patience() != 2*time.Second {
		t.Fatalf("patience is %v", q.Patience())
	}
	again := 0
	for began, said := time.Now(), time.Now(); time.Since(began) < 6*time.Second; {
		if err := q.Hold(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		late := time.Since(said) > time.Second // the machine is busy
		said = time.Now()
		for _, m := range fetch(t, q, wide) {
			switch {
			case m.Position > 3: // in one fetch or in several
				again++
			case !late:
				t.Fatalf("message %d came again", m.Position)
			}
		}
		<-time.After(100 * time.Millisecond)
	}
	if err := q.Ack(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if again == 0 {
		t.Error("what was not held did not come again: the test shows nothing")
	}
}
