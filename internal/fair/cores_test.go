package fair_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/internal/fair"
)

// computing returns lanes whose work computes on cores.
func computing(t *testing.T) *fair.Lanes {
	t.Helper()
	return fair.NewLanes(fair.Config{Shared: 8, Firsts: 8}, fair.NewCores(20*time.Millisecond))
}

// work computes so many slices, each of a millisecond, and returns how long that took.
func work(t *testing.T, ctx context.Context, s *fair.Slots, tenant string, slices int) time.Duration {
	t.Helper()
	began := time.Now()
	slot, err := s.Acquire(ctx, tenant)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer slot.Release()
	for range slices {
		time.Sleep(time.Millisecond)
		for range 16 {
			if err := slot.Compute(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	return time.Since(began)
}

// TestPause: long work goes on at once when nothing short is under way, and at a fifth of its speed when there always
// is. What is short counts for a moment, until it ends or turns out to be long.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := computing(t)
		if took := work(t, t.Context(), l.Reads, "a", 20); took != 20*time.Millisecond {
			t.Errorf("alone it takes %v", took)
		}
		busy := func(fn func()) {
			marks := make([]fair.Mark, 1024) // more than there are processors
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					for i := range marks {
						marks[i].End()
						l.Cores().Begin(t.Context(), &marks[i])
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
			synctest.Wait()
			fn()
			cancel()
			synctest.Wait()
			for i := range marks {
				marks[i].End()
				marks[i].End()
			}
		}
		for _, s := range []*fair.Slots{l.Reads, l.Commands} {
			busy(func() {
				if took := work(t, t.Context(), s, "a", 20); took != 100*time.Millisecond {
					t.Errorf("beside short work it takes %v", took)
				}
			})
		}
		if took := work(t, t.Context(), l.Reads, "a", 5); took != 15*time.Millisecond {
			t.Errorf("when the short work has just ended it takes %v", took)
		}
		time.Sleep(50 * time.Millisecond)
		if took := work(t, t.Context(), l.Reads, "a", 20); took != 20*time.Millisecond {
			t.Errorf("when the short work has long ended it takes %v", took)
		}
		marks := make([]fair.Mark, 1024)
		for i := range marks {
			l.Cores().Begin(t.Context(), &marks[i])
		}
		time.Sleep(50 * time.Millisecond)
		if took := work(t, t.Context(), l.Reads, "a", 20); took != 20*time.Millisecond {
			t.Errorf("beside work that has long begun it takes %v", took)
		}
		for i := range marks {
			l.Cores().Begin(t.Context(), &marks[i])
			work(t, &marks[i], l.Reads, "a", 2)
		}
		if took := work(t, t.Context(), l.Reads, "a", 20); took != 20*time.Millisecond {
			t.Errorf("beside work that is long it takes %v", took)
		}
	})
}

// TestCores: one tenant's long reads compute on all processors but one; another tenant's go on in turn with them,
// commands on their own, and short work does not wait.
func TestCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := computing(t)
		ctx, cancel := context.WithCancel(t.Context())
		for range 200 {
			go func() {
				slot, err := l.Reads.Acquire(ctx, "large")
				for n := 1; err == nil && ctx.Err() == nil; n++ {
					if n%16 == 0 {
						time.Sleep(time.Millisecond)
					}
					err = slot.Compute(ctx)
				}
				slot.Release()
			}()
		}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		short, err := l.Reads.Acquire(t.Context(), "small")
		if err != nil {
			t.Fatal(err)
		}
		for range 64 {
			err = errors.Join(err, short.Compute(t.Context()))
		}
		short.Release()
		if took := time.Since(began); took > time.Millisecond || err != nil {
			t.Errorf("short work takes %v, %v", took, err)
		}
		if took := work(t, t.Context(), l.Commands, "large", 20); took > 20*time.Millisecond {
			t.Errorf("a command takes %v", took)
		}
		if took := work(t, t.Context(), l.Reads, "small", 20); took > 21*20*time.Millisecond {
			t.Errorf("long work of another tenant takes %v", took)
		}
		cancel()
		time.Sleep(time.Second)
		if held, waiting := l.Reads.CountHeld("large"); held+waiting > 0 {
			t.Errorf("%d slots are held, and %d wait", held, waiting)
		}
	})
}
