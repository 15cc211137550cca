package fair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/internal/fair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold takes n slots for a tenant, or as many as it gets at once.
func hold(t *testing.T, s *fair.Slots, tenant string, n int) (got []*fair.Slot) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan *fair.Slot, 1)
		go func() {
			slot, _ := s.Acquire(ctx, tenant)
			given <- slot
		}()
		synctest.Wait()
		cancel()
		if slot := <-given; slot != nil {
			got = append(got, slot)
		}
	}
	return got
}

// A tenant has its first slot whatever others hold, and beyond it as many as it leaves to them.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New(fair.Config{Shared: 8, Firsts: 3})
		for i, want := range []int{5, 3, 2} {
			if got := hold(t, s, fmt.Sprint("t", i), 20); len(got) != want {
				t.Errorf("tenant %d has %d slots, want %d", i, len(got), want)
			}
		}
		// Slots that nobody may have beyond the first are a first one of further tenants.
		if got := hold(t, s, "t3", 20); len(got) != 1 {
			t.Errorf("the fourth tenant has %d slots", len(got))
		}
		if got := hold(t, s, "t4", 20); len(got) != 0 {
			t.Errorf("all are given, and the fifth tenant has %d", len(got))
		}
		if held, waiting := s.CountHeld("t4"); held != 0 || waiting != 0 {
			t.Errorf("who left is counted: %d, %d", held, waiting)
		}
	})
}

// A slot that becomes free goes to the tenant with the fewest, and there to who came first; who left is passed over.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New(fair.Config{Shared: 0, Firsts: 1})
		first := hold(t, s, "big", 1)[0]
		var order []string
		var mu sync.Mutex
		wait := func(ctx context.Context, tenant, name string) {
			go func() {
				slot, err := s.Acquire(ctx, tenant)
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Second)
				slot.Release()
			}()
			synctest.Wait()
		}
		gone, leave := context.WithCancelCause(t.Context())
		wait(gone, "big", "gone")
		for i := range 3 {
			wait(t.Context(), "big", fmt.Sprint("big", i))
		}
		wait(t.Context(), "small", "small0")
		leave(errors.New("left"))
		synctest.Wait()
		first.Release()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got, want := fmt.Sprint(order), "[small0 big0 big1 big2]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Long work gives its slot to a tenant that holds less, and goes on after it; where nobody does it goes on at once.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New(fair.Config{Shared: 0, Firsts: 1})
		long := hold(t, s, "big", 1)[0]
		same := make(chan struct{})
		go func() { // of the same tenant: it waits until the work is over
			slot, _ := s.Acquire(t.Context(), "big")
			close(same)
			slot.Release()
		}()
		synctest.Wait()
		if err := long.Yield(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := false
		go func() {
			slot, _ := s.Acquire(t.Context(), "small")
			other = true
			time.Sleep(time.Second)
			slot.Release()
		}()
		synctest.Wait()
		if err := long.Yield(t.Context()); err != nil || !other {
			t.Errorf("%v, the other has been served: %v", err, other)
		}
		select {
		case <-same:
			t.Error("the work was put behind another one of its tenant")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { slot, _ := s.Acquire(t.Context(), "third"); slot.Release() }()
		synctest.Wait()
		if err := long.Yield(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		long.Release()
		<-same
		synctest.Wait()
		for _, tenant := range []string{"big", "small", "third"} {
			if held, waiting := s.CountHeld(tenant); held+waiting != 0 {
				t.Errorf("%s: %d held, %d wait", tenant, held, waiting)
			}
		}
	})
}

// Work that does not come back to yield, because it waits for something else, loses its slot to who waits.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New(fair.Config{Shared: 4, Firsts: 0, Lease: 20 * time.Millisecond})
		stuck := append(hold(t, s, "big", 3), hold(t, s, "other", 1)...)
		began := time.Now()
		slot, err := s.Acquire(t.Context(), "small")
		if took := time.Since(began); err != nil || took > 20*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		if held, _ := s.CountHeld("big"); held != 2 {
			t.Errorf("%d are held", held)
		}
		slot.Release()
		for _, sl := range stuck { // each goes on with a slot, or waits for one
			if err := sl.Yield(t.Context()); err != nil {
				t.Error(err)
			}
		}
		big, _ := s.CountHeld("big")
		other, _ := s.CountHeld("other")
		if big != 3 || other != 1 {
			t.Errorf("%d and %d are held afterwards", big, other)
		}
		for _, sl := range stuck {
			sl.Release()
			sl.Release()
		}
		if held, waiting := s.CountHeld("big"); held+waiting != 0 {
			t.Errorf("%d held, %d wait", held, waiting)
		}
	})
}

// What commands need is taken from slots that no read can have.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fair.NewLanes(fair.Config{Shared: 2, Firsts: 1}, nil)
		if n := len(hold(t, l.Of(t.Context()), "acme", 10)); n != 2 {
			t.Errorf("%d reads", n)
		}
		if _, err := l.Of(fair.Command(t.Context())).Acquire(t.Context(), "acme"); err != nil {
			t.Error(err)
		}
		if fair.IsCommand(t.Context()) || !fair.IsCommand(fair.Command(fair.Command(t.Context()))) {
			t.Error("what a context is for")
		}
	})
}

// Whatever tenants do, no more is under way than there is, a tenant without a slot waits for one slice of work at most,
// and nothing is left behind.
func TestAnyLoad(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			cfg := fair.Config{Shared: rnd.IntN(6), Firsts: 1 + rnd.IntN(4)}
			if seed%2 == 0 {
				cfg.Lease = 10 * time.Millisecond
			}
			s := fair.New(cfg)
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			var busy, most atomic.Int64
			tenants := 1 + rnd.IntN(3)
			for i := range 200 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				work.Go(func() { load(ctx, s, fmt.Sprint("t", i%tenants), r, &busy, &most) })
			}
			slowest := time.Duration(0)
			for range 50 {
				time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
				began := time.Now()
				slot, err := s.Acquire(ctx, "quiet")
				if err != nil {
					t.Fatal(err)
				}
				slowest = max(slowest, time.Since(began))
				slot.Release()
			}
			if slowest > 5*time.Millisecond {
				t.Errorf("%+v, %d tenants: a tenant without a slot has waited for %v", cfg, tenants, slowest)
			}
			if cfg.Lease == 0 && most.Load() > int64(cfg.Firsts+cfg.Shared) {
				t.Errorf("%+v: %d at once", cfg, most.Load())
			}
			stop()
			work.Wait()
			for i := range tenants {
				if held, waiting := s.CountHeld(fmt.Sprint("t", i)); held+waiting != 0 {
					t.Errorf("%d held, %d wait", held, waiting)
				}
			}
		})
	}
}

// load works in slices of 5 ms, and sometimes leaves while it waits.
func load(ctx context.Context, s *fair.Slots, tenant string, rnd *rand.Rand, busy, most *atomic.Int64) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(5000))*time.Millisecond)
		slot, err := s.Acquire(one, tenant)
		for n := rnd.IntN(40); err == nil && n > 0; n-- {
			if now := busy.Add(1); now > most.Load() {
				most.Store(now)
			}
			time.Sleep(5 * time.Millisecond)
			busy.Add(-1)
			err = slot.Yield(one)
		}
		slot.Release()
		cancel()
	}
}
