package natsjs

import (
	"errors"
	"testing"
	"time"

	"agentstream/tap"
)

// TestDeadLettersAreBounded: a tap with as many dead letters as are kept waits, and says so; its sink is not given again
// what it has. When some are dropped it goes on, and nothing is lost.
func TestDeadLettersAreBounded(t *testing.T) {
	const most, events, refused = 3, 60, 6
	w := newWorld(t, 1)
	r := newRecord()
	r.refuse = func(e *tap.Event) error {
		if e.Seq%10 == 5 {
			return errors.New("not this one")
		}
		return nil
	}
	w.write(events / 5)
	full := make(chan bool, 100)
	m := w.join(tap.Spec{Name: "letters"}, r, func(c *tap.Config) {
		c.MaxLetters = most
		c.Full = func(on bool) { full <- on }
	})
	if !<-full {
		t.Fatal("it is said that there is room again")
	}
	p, err := Open(t.Context(), w.server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	p.most = most
	if err := p.Room(t.Context(), "letters"); !errors.Is(err, tap.ErrLettersFull) {
		t.Fatal(err)
	}
	letters, err := p.Letters(t.Context(), "letters")
	if err != nil || len(letters) != most {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	time.Sleep(time.Second) // ten attempts
	if _, repeats, _ := r.have(); repeats > events {
		t.Errorf("the sink was given %d events again", repeats)
	}
	for _, l := range letters {
		if err := p.Drop(t.Context(), "letters", l.ID); err != nil {
			t.Fatal(err)
		}
	}
	if <-full {
		t.Fatal("there is still no room")
	}
	w.until(r, events-refused)
	m.leave(t)
	if letters, err = p.Letters(t.Context(), "letters"); err != nil || len(letters) != refused-most {
		t.Errorf("%d letters, %v", len(letters), err)
	}
}
