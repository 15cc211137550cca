package natskit

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Wire lies between a connection that Dial has made and its sockets. The client library passes a message to its reader by
// way of a queue, a goroutine and a map of headers, and what is published by way of another goroutine. For an append of
// one event that is more than the rest of it in this process. So one reader of answers may have them as they are read, and
// may publish without that way. Everything else is the library's, as is all on a connection with TLS, where only that
// sees the text.
//
// Safe for concurrent use.
type Wire struct {
	inner  nats.InProcessConnProvider // nil: dialer is used
	dialer net.Dialer

	taker atomic.Pointer[interest]
	now   atomic.Pointer[wired] // on which answers are asked for; nil: none
}

type interest struct {
	prefix []byte // of subjects, "MSG " before it
	ask    []byte // the line that asks for them, up to its subject's end
	take   func(name, data []byte)
}

// wire makes the options by which a connection gets a Wire.
func wire() nats.Option {
	return func(o *nats.Options) error {
		w := &Wire{inner: o.InProcessServer, dialer: net.Dialer{Timeout: o.Timeout}}
		if w.inner != nil {
			o.InProcessServer = w
		} else if o.CustomDialer == nil {
			o.CustomDialer = w
		}
		return nil
	}
}

// WireOf returns the Wire of a connection; nil when it has none.
func WireOf(nc *nats.Conn) *Wire {
	if w, ok := nc.Opts.InProcessServer.(*Wire); ok {
		return w
	}
	w, _ := nc.Opts.CustomDialer.(*Wire)
	return w
}

// InProcessConn implements nats.InProcessConnProvider.
func (w *Wire) InProcessConn() (net.Conn, error) { return w.wrap(w.inner.InProcessConn()) }

// Dial implements nats.CustomDialer.
func (w *Wire) Dial(network, address string) (net.Conn, error) {
	return w.wrap(w.dialer.Dial(network, address))
}

func (w *Wire) wrap(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &wired{Conn: c, of: w}, nil
}

// Take has take called with messages to prefix and a name, for the subscription to prefix+"*" that the caller makes
// next. It is called by the goroutine that reads the connection: it must not block, nor keep what it is given. Messages
// with headers, and those that come by a connection with TLS, go to the subscription. It reports false when there is another
// taker, which stays the only one.
func (w *Wire) Take(prefix string, take func(name, data []byte)) bool {
	return w.taker.CompareAndSwap(nil, &interest{prefix: []byte("MSG " + prefix), ask: []byte("SUB " + prefix + "*"), take: take})
}

// Ready reports whether Publish may be used: the server knows the subscription of the taker.
func (w *Wire) Ready() bool { return w.now.Load() != nil }

// Publish sends a message with headers, in their form on the wire. It reports false when nothing was sent: the connection
// has just gone. What was sent may be lost with it, as with nats.Conn.PublishMsg.
func (w *Wire) Publish(subject, reply string, header, data []byte) bool {
	c := w.now.Load()
	if c == nil {
		return false
	}
	c.publish(subject, reply, header, data)
	return true
}

// wired is one connection of a Wire.
type wired struct {
	net.Conn
	of *Wire

	// Used by whoever reads.
	held   []byte // the beginning of a line, or of a message to be taken: it goes before what is read next
	skip   int    // bytes that follow of a message that is passed on
	long   bool   // within a line that is passed on
	sealed bool   // the bytes are not those of the protocol, or not any more: all is passed on

	writing sync.Mutex // held while something is written
	mu      sync.Mutex
	queue   []byte // to be written by whoever writes now
	spare   []byte
	busy    bool // somebody does
}

// Write implements net.Conn, for the client library, which writes whole lines and messages.
func (c *wired) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(p)
	if t := c.of.taker.Load(); err == nil && t != nil && c.of.now.Load() != c && bytes.Contains(p, t.ask) {
		c.of.now.Store(c)
	}
	return n, err
}

// Close implements net.Conn.
func (c *wired) Close() error {
	c.of.now.CompareAndSwap(c, nil)
	return c.Conn.Close()
}

// publish queues a message. One caller at a time writes what is in the queue, for all.
func (c *wired) publish(subject, reply string, header, data []byte) {
	c.mu.Lock()
	q := append(append(append(c.queue, "HPUB "...), subject...), ' ')
	q = append(append(q, reply...), ' ')
	q = append(strconv.AppendInt(q, int64(len(header)), 10), ' ')
	q = append(strconv.AppendInt(q, int64(len(header)+len(data)), 10), "\r\n"...)
	c.queue = append(append(append(q, header...), data...), "\r\n"...)
	if c.busy {
		c.mu.Unlock()
		return
	}
	c.busy = true
	for len(c.queue) > 0 {
		b := c.queue
		c.queue = c.spare[:0]
		c.mu.Unlock()
		c.writing.Lock()
		_, err := c.Conn.Write(b)
		c.writing.Unlock()
		if err != nil {
			_ = c.Close() // the library finds out by reading
		}
		c.mu.Lock()
		if c.spare = b; cap(b) > keptQueue {
			c.spare = nil
		}
	}
	c.busy = false
	c.mu.Unlock()
}

const keptQueue = 256 << 10

// Read implements net.Conn. What is taken is not in what it returns.
func (c *wired) Read(p []byte) (int, error) {
	for {
		if c.sealed || len(c.held) >= len(p) {
			if len(c.held) == 0 {
				return c.Conn.Read(p)
			}
			n := copy(p, c.held)
			c.held = c.held[:copy(c.held, c.held[n:])]
			return n, nil
		}
		had := copy(p, c.held)
		n, err := c.Conn.Read(p[had:])
		c.held = c.held[:0]
		if n += had; err != nil {
			return n, err
		}
		if n = c.filter(p[:n]); n > 0 {
			return n, nil
		}
	}
}

// longest is how much is held back until it is whole. What is longer is passed on.
const longest = 4 << 10

// filter takes out of b what is for the taker, and holds back what is not whole. It returns the length of the rest, which
// it has moved to the beginning.
func (c *wired) filter(b []byte) (rest int) {
	t, at := c.of.taker.Load(), 0
	pass := func(n int) {
		n = min(n, len(b)-at)
		if rest != at {
			copy(b[rest:], b[at:at+n])
		}
		rest, at = rest+n, at+n
	}
	for at < len(b) {
		if c.skip > 0 {
			n := min(c.skip, len(b)-at)
			c.skip -= n
			pass(n)
			continue
		}
		end := bytes.IndexByte(b[at:], '\n') + 1
		if c.long || c.sealed {
			if c.long = end == 0; c.long {
				end = len(b)
			}
			pass(end)
			continue
		}
		line := b[at:]
		if end > 0 {
			line = line[:end]
		}
		kind := kindOf(line)
		switch {
		case kind == message && end > 0:
			size, mine := t.read(line)
			if c.sealed = size < 0; c.sealed {
				break
			}
			whole := end + size + len("\r\n")
			if mine && whole <= len(b)-at {
				name, _, _ := bytes.Cut(line[len(t.prefix):], []byte(" "))
				t.take(name, b[at+end:at+end+size])
				at += whole
				break
			}
			if mine && whole <= longest {
				c.held = append(c.held, b[at:]...)
				return rest
			}
			c.skip = whole - end
			pass(end)
		case end > 0 && kind == other:
			pass(end)
		case kind == other && len(line) > len("INFO "): // it may be long
			c.long = true
		case kind != foreign && len(line) < longest:
			c.held = append(c.held, line...)
			return rest
		default:
			c.sealed = true
		}
	}
	return rest
}

type kind int

const (
	foreign kind = iota // not of the protocol: what follows is TLS, or HTTP
	message
	other
)

// kindOf returns the kind of a line that may not be whole.
func kindOf(line []byte) kind {
	for _, w := range [...]struct {
		word string
		kind kind
	}{{"MSG ", message}, {"HMSG ", message}, {"PING\r\n", other}, {"PONG\r\n", other}, {"INFO ", other}, {"+OK\r\n", other}, {"-ERR", other}} {
		if n := min(len(w.word), len(line)); string(line[:n]) == w.word[:n] {
			return w.kind
		}
	}
	return foreign
}

// read returns the size of a message whose line this is, -1 when it is none, and whether it is the taker's.
func (t *interest) read(line []byte) (size int, mine bool) {
	line = bytes.TrimSuffix(line, []byte("\r\n"))
	at := bytes.LastIndexByte(line, ' ')
	size, err := strconv.Atoi(string(line[at+1:]))
	if err != nil || size < 0 {
		return -1, false
	}
	return size, t != nil && bytes.HasPrefix(line, t.prefix) && bytes.Count(line, []byte(" ")) == 3
}
