package live

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// napper is woken when it has been silent for a second, and is counted in every time it is looked at.
type napper struct {
	alarm
	mu    sync.Mutex
	spoke time.Time
	looks int
	woken []time.Time
}

func (n *napper) look(now time.Time) (again time.Time, woken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	if again = n.spoke.Add(time.Second); again.After(now) {
		return again, false
	}
	n.woken = append(n.woken, now)
	return again, true
}

func (n *napper) seen() (looks int, woken []time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks, n.woken
}

func (n *napper) speaks() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spoke = time.Now()
}

// Who is silent is woken in time and once. Who speaks is not, and is looked at once in a time of silence, however often
// it speaks.
func TestWheelWakesTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wheel
		begun := time.Now()
		late := napper{spoke: begun.Add(-time.Hour)}
		late.of = &late
		w.put(&late.alarm, late.spoke)
		var silent, busy, gone napper
		for _, n := range []*napper{&silent, &busy, &gone} {
			n.of, n.spoke = n, begun
			w.put(&n.alarm, begun.Add(time.Second))
		}
		w.remove(&gone.alarm)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			busy.speaks()
			w.put(&busy.alarm, time.Now().Add(time.Second))
		}
		if looks, woken := busy.seen(); looks < 9 || looks > 10 || len(woken) > 0 {
			t.Errorf("who spoke all the time was looked at %d times and woken at %v", looks, woken)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, c := range []struct {
			what  string
			woken []time.Time
			from  time.Duration // since the beginning; 0: never
		}{
			{"silent", silent.woken, time.Second},
			{"busy", busy.woken, 11 * time.Second},
			{"gone", gone.woken, 0},
			{"late", late.woken, time.Nanosecond},
		} {
			wrong := slices.IndexFunc(c.woken, func(at time.Time) bool {
				d := at.Sub(begun) - c.from
				return c.from == 0 || d < 0 || d > wheelTick
			})
			if wrong >= 0 || c.from > 0 && len(c.woken) != 1 {
				t.Errorf("%s: woken at %v, want once after %v", c.what, c.woken, c.from)
			}
		}
		if len(w.slots) > 0 || w.at != 0 {
			t.Errorf("%d slots are left, and the timer is set for %d", len(w.slots), w.at)
		}
	})
}

// What is put in from many goroutines while others leave is woken once or not at all, and never before it is due.
func TestWheelFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wheel
		var wg sync.WaitGroup
		all := make([]napper, 300)
		begun := time.Now()
		for i := range all {
			n := &all[i]
			n.of, n.spoke = n, begun.Add(time.Duration(i)*time.Millisecond)
			wg.Go(func() {
				w.put(&n.alarm, n.spoke.Add(time.Second))
				if i%3 == 0 {
					time.Sleep(time.Duration(i) * 7 * time.Millisecond)
					w.remove(&n.alarm)
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for i := range all {
			n := &all[i]
			if len(n.woken) > 1 || i%3 != 0 && len(n.woken) == 0 || len(n.woken) == 1 &&
				n.woken[0].Before(n.spoke.Add(time.Second)) {
				t.Errorf("%d: woken at %v", i, n.woken)
			}
		}
	})
}
