package body

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/ends"
)

func newTestRoom(total int64) *budget {
	return newBudget(Config{Memory: total, Wait: 2 * time.Second})
}

// One tenant has half, two have a third each, and what nobody may have is left for the next.
func TestRoomIsShared(t *testing.T) {
	r := newTestRoom(120)
	a, b, c := Share{budget: r, tenant: "a"}, Share{budget: r, tenant: "b"}, Share{budget: r, tenant: "c"}
	if err := a.try(60); err != nil {
		t.Fatal(err)
	}
	if err := a.try(1); err != nil || a.bytes != 60 { // more than it can ever have
		t.Fatalf("%v, %d", err, a.bytes)
	}
	if err := (&Share{budget: r, tenant: "a"}).try(1); !errors.Is(err, ends.ErrLimited) {
		t.Fatalf("a tenant that holds half: %v", err)
	}
	if err := b.try(31); !errors.Is(err, ends.ErrNoRoom) && !errors.Is(err, ends.ErrLimited) {
		t.Fatalf("more than is left for others: %v", err)
	}
	if err := b.try(30); err != nil {
		t.Fatal(err)
	}
	if err := c.try(15); err != nil {
		t.Fatal(err)
	}
	if err := c.try(8); !errors.Is(err, ends.ErrNoRoom) {
		t.Fatalf("a small tenant in a full room: %v", err)
	}
	for _, s := range []*Share{&a, &b, &c} {
		s.Give(s.bytes + 5)
	}
	if r.used != 0 || len(r.tenants) != 0 {
		t.Fatalf("%d used, %v", r.used, r.tenants)
	}
}

// A stream takes for what it reads while what it has stored is given back.
func TestShareOfAStream(t *testing.T) {
	r := newTestRoom(1 << 20)
	s := (&Bodies{budget: r}).Share("a")
	var giving sync.WaitGroup
	for range 1000 {
		if err := s.Reserve(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		giving.Go(func() { s.Give(7) })
	}
	giving.Wait()
	if r.used != 0 || s.bytes != 0 {
		t.Errorf("%d are used, %d held", r.used, s.bytes)
	}
}

// Who waits gets what is given back in time, and is refused otherwise.
func TestRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestRoom(100)
		a, next, late := Share{budget: r, tenant: "a"}, Share{budget: r, tenant: "a"}, Share{budget: r, tenant: "a"}
		if err := a.Reserve(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			a.Give(20)
		}()
		began := time.Now()
		if err := next.Reserve(t.Context(), 20); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		if err := late.Reserve(t.Context(), 1); !errors.Is(err, ends.ErrLimited) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		gone, cancel := context.WithCancelCause(t.Context())
		why := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(why) })
		if err := late.Reserve(gone, 1); !errors.Is(err, why) || late.bytes != 0 {
			t.Errorf("%v, %d held", err, late.bytes)
		}
	})
}
