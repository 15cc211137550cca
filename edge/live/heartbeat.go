package live

import (
	"cmp"
	"slices"
	"time"
)

// Heartbeat shows signs of life in frames, in place of the transport's own. The zero value leaves that to the
// transport.
type Heartbeat struct {
	Every  time.Duration // of silence in both directions, after which Send is called, with section held
	Send   func() error
	Misses int   // of them in a row that were not answered; 0: any number
	Lost   error // ends the conversation after that
}

// keepAlive shows a sign of life, once for all subscriptions.
func (c *Conversation) keepAlive() {
	next, sent, err := cmp.Or(c.cfg.Bound.KeepAlive, c.live.cfg.KeepAlive), true, error(nil)
	if c.cfg.Beat.Every > 0 {
		next, sent, err = c.beat()
	} else {
		err = c.sink.KeepAlive()
	}
	if err != nil {
		c.life.Stop(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.live.cfg.Hooks.KeptAlive; h != nil && sent && len(c.subs) == 0 { // subscriptions count theirs
		h(c.cfg.Bound.DialectName)
	}
	if !c.closed {
		c.ping.Reset(next)
	}
}

// beat sends a heartbeat if one is due, and returns when to look again.
func (c *Conversation) beat() (next time.Duration, sent bool, err error) {
	b := &c.cfg.Beat
	if !c.section.TryLock() { // a message is dealt with, and what follows it was not read
		return b.Every, false, nil
	}
	next = b.Every
	err = c.runStep(func() error {
		c.syncActivity()
		if silent := time.Since(c.begun) - time.Duration(c.busy.Load()); silent < b.Every {
			next = b.Every - silent
			return nil
		}
		if b.Misses > 0 && c.missedPings >= b.Misses {
			return b.Lost
		}
		c.missedPings++
		sent = true
		return b.Send()
	})
	return next, sent, err
}

// touch notes that the connection is in use.
func (c *Conversation) touch() {
	if c.cfg.Beat.Every > 0 {
		c.noteUse(time.Now())
	}
}

// noteUse notes that the connection was in use at a time.
func (c *Conversation) noteUse(at time.Time) {
	n := int64(at.Sub(c.begun))
	for {
		if old := c.busy.Load(); n <= old || c.busy.CompareAndSwap(old, n) {
			return
		}
	}
}

// syncActivity notes when views have written to subscriptions that are parked: they note it once for all. It is
// called by what Do runs.
func (c *Conversation) syncActivity() {
	c.mu.Lock()
	subs := slices.Clone(c.subs)
	c.mu.Unlock()
	for _, s := range subs {
		if v := s.life.parked.Load(); v != nil {
			c.noteUse(v.wrote(s.ss))
		}
	}
}

// NoteMessage notes that the client has sent something, which answers its heartbeats. It is called by what Do
// runs.
func (c *Conversation) NoteMessage() {
	c.touch()
	c.missedPings = 0
}
