package live

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// wheel wakes those who were silent for long. They wait in slots, by the time at which they are looked at, and one
// timer serves the next slot: the runtime looks through all its timers when one of them was set to an earlier time, and
// ten thousand for signs of life would cost every event. The zero value is ready.
type wheel struct {
	mu    sync.Mutex
	begun time.Time // of tick 0
	slots map[int64][]*alarm
	next  int64 // no slot is earlier
	timer *time.Timer
	at    int64 // tick for which the timer is set; 0: it is not
}

// wheelTick is how late an alarm may be.
const wheelTick = 50 * time.Millisecond

// sleeper is who is woken.
type sleeper interface {
	// look wakes it if it was silent for long. Otherwise it returns when to look again.
	look(now time.Time) (again time.Time, woken bool)
}

// alarm is a sleeper's place in a wheel. It must not be copied.
type alarm struct {
	of   sleeper
	set  atomic.Bool
	slot int64 // guarded by the wheel's mu
}

// put has the sleeper looked at once, when it is due. It costs nothing when that was asked for before.
func (w *wheel) put(a *alarm, due time.Time) {
	if a.set.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.set.Load() {
		return
	}
	if w.slots == nil {
		w.slots, w.begun = make(map[int64][]*alarm), time.Now()
	}
	a.set.Store(true)
	a.slot = max(int64(due.Sub(w.begun)/wheelTick)+1, w.next, 1)
	w.slots[a.slot] = append(w.slots[a.slot], a)
	w.arm(a.slot)
}

// remove forgets an alarm.
func (w *wheel) remove(a *alarm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.slots[a.slot]
	if i := slices.Index(list, a); i >= 0 {
		w.keep(a.slot, slices.Delete(list, i, i+1))
	}
}

// keep makes list what is in a slot. It needs mu, as arm does.
func (w *wheel) keep(slot int64, list []*alarm) {
	if w.slots[slot] = list; len(list) > 0 {
		return
	}
	if delete(w.slots, slot); len(w.slots) == 0 && w.timer != nil {
		w.timer.Stop()
		w.at = 0
	}
}

// arm lets the wheel turn when a slot is due.
func (w *wheel) arm(slot int64) {
	if w.at > 0 && w.at <= slot {
		return
	}
	w.at = slot
	d := time.Until(w.begun.Add(time.Duration(slot) * wheelTick))
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.fire)
	} else {
		w.timer.Reset(d)
	}
}

// fire looks at those whose slots are due. Who was not silent waits on, and is not woken.
func (w *wheel) fire() {
	now := time.Now()
	for _, a := range w.popDue(now) {
		a.set.Store(false)
		if again, woken := a.of.look(now); !woken {
			w.put(a, again)
		}
	}
}

// popDue empties the slots that are due.
func (w *wheel) popDue(now time.Time) (list []*alarm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = 0
	for last := int64(now.Sub(w.begun) / wheelTick); w.next <= last && len(w.slots) > 0; w.next++ {
		list = append(list, w.slots[w.next]...)
		delete(w.slots, w.next)
	}
	for slot := w.next; len(w.slots) > 0 && w.at == 0; slot++ {
		if w.slots[slot] != nil {
			w.arm(slot)
		}
	}
	return list
}

// look wakes a view that must show a sign of life, if it was silent for long.
func (v *view) look(now time.Time) (again time.Time, woken bool) {
	v.mu.Lock()
	again = v.spoke.Add(v.task.every)
	v.mu.Unlock()
	if again.After(now) {
		return again, false
	}
	v.wake(false)
	return again, true
}
