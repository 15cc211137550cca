package gate

import (
	"net"
	"time"
)

// Listener lets connections in as long as there is a place.
type Listener struct {
	net.Listener
	g *Gate
}

// Listen wraps a listener.
func (g *Gate) Listen(ln net.Listener) *Listener { return &Listener{ln, g} }

// Accept returns the next connection. Where too many strangers are connected it waits a little for one of them to
// become known, and closes the oldest.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		own := &Conn{Conn: c, g: l.g, begun: time.Now()}
		if l.g.admit(own) {
			return own, nil
		}
		_ = c.Close() // all others are busy
	}
}

// admit reports whether there is a place for a connection, which it has then.
func (g *Gate) admit(c *Conn) bool {
	g.mu.Lock()
	c.place = g.new.PushBack(c)
	g.mu.Unlock()
	for {
		oldest, left := g.over()
		switch {
		case oldest == nil:
			return g.room(c)
		case left > 0:
			g.wait(left)
		default:
			oldest.cut()
		}
	}
}

// over returns the oldest connection of a stranger where there are too many, and how long it may still stay.
func (g *Gate) over() (oldest *Conn, left time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.new.Len() <= g.cfg.Unknown {
		return nil, 0
	}
	oldest = g.new.Front().Value.(*Conn)
	return oldest, grace - time.Since(oldest.begun)
}

// room reports whether there are no more connections than there may be. For a new one the oldest is closed that waits
// for a request.
func (g *Gate) room(c *Conn) bool {
	g.mu.Lock()
	full := g.cfg.Connections > 0 && g.known.Len()+g.new.Len() > g.cfg.Connections
	var idle *Conn
	if full {
		idle = g.idle()
	}
	g.mu.Unlock()
	if idle != nil {
		idle.cut()
		return true
	}
	if full {
		c.leave()
	}
	return !full
}

// wait waits until a stranger has become known or has left, but no longer than so long.
func (g *Gate) wait(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-g.freed:
	case <-timer.C:
	}
}

// idle returns the oldest connection that waits for a request; nil: there is none. It needs mu.
func (g *Gate) idle() *Conn {
	for e := g.known.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); c.busy.Load() == 0 {
			return c
		}
	}
	return nil
}
