package live

import (
	"testing"
	"time"
)

// TestWrittenWhileParked: what a view writes to a subscription that is parked is life on its connection, although
// nobody notes it for each client.
func TestWrittenWhileParked(t *testing.T) {
	begun := time.Now()
	c := &Conversation{begun: begun}
	v, g := new(view), &broadcastGroup{wrote: begun.Add(time.Minute)}
	s := &subscription{conv: c, ss: &Session{place: place{at: g}}}
	c.subs = []*subscription{s}
	busy := func(want time.Duration) {
		t.Helper()
		c.syncActivity()
		if got := time.Duration(c.busy.Load()); got != want {
			t.Errorf("in use after %v, want %v", got, want)
		}
	}
	busy(0) // it is not parked
	s.life.parked.Store(v)
	busy(time.Minute)
	c.noteUse(begun.Add(2 * time.Minute))
	busy(2 * time.Minute)
	g.wrote = begun.Add(3 * time.Minute)
	busy(3 * time.Minute)
	s.ss.place = place{} // it has left, and its connection is in use by itself
	g.wrote = begun.Add(4 * time.Minute)
	busy(3 * time.Minute)
}
