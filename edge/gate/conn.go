package gate

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection that the HTTP server has.
type Conn struct {
	net.Conn
	g     *Gate
	begun time.Time
	wire  wire // of the goroutine that reads
	debt  debt

	known   atomic.Bool
	busy    atomic.Int32 // requests under way
	own     atomic.Int32 // streams of strangers
	open    atomic.Int64 // streams on the wire
	place   *list.Element
	gone    bool // it has no place any more; guarded by the gate's mu
	leaving sync.Once
}

// Why the reading of a connection ends.
var (
	errFlood  = errors.New("gate: too many streams were opened at once")
	errUnread = errors.New("gate: bodies are not read, and there is no room for more of them")
)

// Read reads, and counts the streams of HTTP/2 that are opened, and what comes of bodies. Where there is too much of
// either, it waits a little before it lets more in, and then closes the connection.
func (c *Conn) Read(p []byte) (int, error) {
	if c.isFlooded() && !calm(patience, c.isFlooded) {
		c.cut()
		return 0, errFlood
	}
	if c.isCrammed() {
		most := patience
		if c.known.Load() {
			most = unreadPatience
		}
		if !calm(most, c.isCrammed) {
			c.cut()
			return 0, errUnread
		}
	}
	n, err := c.Conn.Read(p)
	c.count(c.wire.read(p[:n]))
	return n, err
}

// Write writes, and counts the streams of HTTP/2 that end, and what of bodies was read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.wire.isHTTP2() {
		before := c.wire.unread.Load()
		c.count(-c.wire.wrote(p[:n]))
		if before > freeUnread && c.g.cfg.Share != nil && c.wire.unread.Load() < before {
			c.debt.settle(&c.wire.unread, c.g.cfg.Share) // it may be long until the next Read
		}
	}
	return n, err
}

// isCrammed reports whether there is no room for what has come of bodies and was not read. It counts that.
func (c *Conn) isCrammed() bool {
	return c.wire.unread.Load() > freeUnread && c.g.cfg.Share != nil && !c.debt.settle(&c.wire.unread, c.g.cfg.Share)
}

// count counts streams that are open on the wire.
func (c *Conn) count(n int64) {
	if n != 0 {
		c.open.Add(n)
		c.g.wire.Add(n)
	}
}

// isFlooded reports whether too many streams are open for which no request is here: the HTTP server refuses
// them by itself, has not begun with them, or waits for the client to take the rest of an answer.
func (c *Conn) isFlooded() bool {
	if c.open.Load() <= fewLooseUnknown {
		return false
	}
	loose, own := c.g.wire.Load()-c.g.streams.Load(), c.open.Load()-int64(c.busy.Load())
	if c.known.Load() {
		return loose > maxLoose && own > fewLoose
	}
	return loose > maxLooseUnknown && own > fewLooseUnknown
}

// calm waits until something is over, at most so long, and reports whether it is.
func calm(most time.Duration, lasts func() bool) bool {
	pause := time.NewTimer(time.Millisecond)
	defer pause.Stop()
	begun := time.Now()
	for next := 2 * time.Millisecond; time.Since(begun) < most; next = min(2*next, maxPause) {
		if !lasts() {
			return true
		}
		<-pause.C
		pause.Reset(next)
	}
	return false
}

// ReadFrom lets the connection read by itself.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// CloseWrite closes the writing half, where the connection has halves.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Close returns its place, and closes it.
func (c *Conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// Detach returns the connection below for who takes it over from the HTTP server: it counts no longer here. A
// stranger's stays what it is.
func (c *Conn) Detach() net.Conn {
	if !c.known.Load() {
		return c
	}
	c.leave()
	return c.Conn
}

// Cut closes the connection at once, if there is one, from any goroutine.
func (c *Conn) Cut() { c.cut() }

func (c *Conn) cut() {
	if c != nil {
		_ = c.Close() // whoever uses it finds out
	}
}

func (c *Conn) leave() {
	c.leaving.Do(func() {
		c.count(-c.wire.close())
		c.debt.close()
		c.g.mu.Lock()
		defer c.g.mu.Unlock()
		c.gone = true
		if c.known.Load() {
			c.g.known.Remove(c.place)
			return
		}
		c.g.new.Remove(c.place)
		c.g.free()
	})
}

// free lets a connection in that waits. It needs mu.
func (g *Gate) free() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// know moves it to those on which a caller was found.
func (c *Conn) know() {
	if c == nil || c.known.Load() {
		return
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.gone || c.known.Swap(true) {
		return
	}
	c.g.new.Remove(c.place)
	c.place = c.g.known.PushBack(c)
	c.g.free()
}

func (c *Conn) isKnown() bool { return c != nil && c.known.Load() }

// enterRequest counts a request in.
func (c *Conn) enterRequest() {
	if c != nil {
		c.busy.Add(1)
	}
}

// leaveRequest counts a request out.
func (c *Conn) leaveRequest() {
	if c != nil {
		c.busy.Add(-1)
	}
}

// admit counts streams of strangers, and returns how many there are.
func (c *Conn) admit(n int32) int64 {
	if c == nil {
		return 0
	}
	return int64(c.own.Add(n))
}

type connKey struct{}

// Of returns the connection of a request's context; nil: it came by no Listener.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Within returns a context for the requests of a connection, and the connection below.
func Within(ctx context.Context, c net.Conn) (context.Context, net.Conn) {
	own, ok := c.(*Conn)
	if !ok {
		return ctx, c
	}
	return context.WithValue(ctx, connKey{}, own), own.Conn
}
