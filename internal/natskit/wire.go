package natskit

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// WireTap lies between a connection that Dial has made and its sockets. The client library passes a message to its
// reader by way of a queue, a goroutine and a map of headers, and what is published by way of another goroutine. For an
// append of one event that is more than the rest of it in this process. So one reader of answers may have them as they
// are read, and may publish without that way. Everything else is the library's, as is all on a connection with TLS,
// where only that sees the text.
//
// Safe for concurrent use.
type WireTap struct {
	inner  nats.InProcessConnProvider // nil: dialer is used
	dialer net.Dialer

	answers atomic.Pointer[interest]
	copies  atomic.Pointer[interest]
	now     atomic.Pointer[tappedConn] // on which answers are asked for; nil: none
}

// interest is what is taken of a connection.
type interest struct {
	prefix []byte // of subjects
	ask    []byte // the line that asks for answers, up to its subject's end
	take   func(name, header, data []byte)
}

// wire returns the option by which a connection gets a WireTap.
func wire() nats.Option {
	return func(o *nats.Options) error {
		w := &WireTap{inner: o.InProcessServer, dialer: net.Dialer{Timeout: o.Timeout}}
		if w.inner != nil {
			o.InProcessServer = w
		} else if o.CustomDialer == nil {
			o.CustomDialer = w
		}
		return nil
	}
}

// TapOf returns the WireTap of a connection; nil when it has none.
func TapOf(nc *nats.Conn) *WireTap {
	if w, ok := nc.Opts.InProcessServer.(*WireTap); ok {
		return w
	}
	w, _ := nc.Opts.CustomDialer.(*WireTap)
	return w
}

// InProcessConn implements nats.InProcessConnProvider.
func (w *WireTap) InProcessConn() (net.Conn, error) { return w.wrap(w.inner.InProcessConn()) }

// Dial implements nats.CustomDialer.
func (w *WireTap) Dial(network, address string) (net.Conn, error) {
	return w.wrap(w.dialer.Dial(network, address))
}

func (w *WireTap) wrap(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: c, of: w}, nil
}

// DivertAnswers has take called with messages to prefix and a name that have no headers, for the subscription
// to prefix+"*" that the caller makes next. The goroutine that reads the connection calls it: it must not
// block, nor keep what it is given. All others, and what comes by a connection with TLS, go to the
// subscription. It reports false when another subscription takes answers, and goes on to.
func (w *WireTap) DivertAnswers(prefix string, take func(name, data []byte)) bool {
	return w.answers.CompareAndSwap(nil, &interest{prefix: []byte(prefix), ask: []byte("SUB " + prefix + "*"),
		take: func(name, _, data []byte) { take(name, data) }})
}

// DivertCopies is DivertAnswers for all messages to subjects that begin with prefix, whoever subscribes to
// them. name is what follows prefix; header has the form of the wire, and is empty where there is none.
func (w *WireTap) DivertCopies(prefix string, take func(name, header, data []byte)) bool {
	return w.copies.CompareAndSwap(nil, &interest{prefix: []byte(prefix), take: take})
}

// Ready reports whether Publish may be used: the server knows the subscription of answers.
func (w *WireTap) Ready() bool { return w.now.Load() != nil }

// Publish sends a message with headers, in their form on the wire. One that is patient may wait for others, joining at
// most, and is sent together with them. It reports false when nothing was sent: the connection has just gone. What was
// sent may be lost with it, as with nats.Conn.PublishMsg.
func (w *WireTap) Publish(subject, reply string, header, data []byte, patient bool) bool {
	c := w.now.Load()
	if c == nil {
		return false
	}
	c.publish(subject, reply, header, data, patient)
	return true
}

// joining is how long after a write patient messages wait for the next one. What is sent together is written, read,
// stored and answered with fewer hand-overs between goroutines.
const joining = 200 * time.Microsecond

// tappedConn is one connection of a WireTap.
type tappedConn struct {
	net.Conn
	of *WireTap

	// Used by whoever reads.
	held   []byte // the beginning of a line: it goes before what is read next
	part   []byte // the beginning of a message that is to be taken
	lack   int    // bytes of it that are not there yet
	line   line   // of the same
	skip   int    // bytes that follow of a message that is passed on
	long   bool   // within a line that is passed on
	sealed bool   // the bytes are not those of the protocol, or not any more: all is passed on

	writing sync.Mutex // held while something is written
	mu      sync.Mutex
	queue   []byte // to be written by whoever writes now
	spare   []byte
	busy    bool // somebody does
	wrote   time.Time
	join    *time.Timer // writes what has been patient; nil before the first time
	joins   bool        // it will
}

// Write implements net.Conn, for the client library, which writes whole lines and messages.
func (c *tappedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(p)
	if t := c.of.answers.Load(); err == nil && t != nil && c.of.now.Load() != c && bytes.Contains(p, t.ask) {
		c.of.now.Store(c)
	}
	return n, err
}

// Close implements net.Conn.
func (c *tappedConn) Close() error {
	c.of.now.CompareAndSwap(c, nil)
	return c.Conn.Close()
}

// publish queues a message. One caller at a time writes what is in the queue, for all who have come; what comes
// meanwhile is left to a goroutine, so that nobody writes for others without end.
func (c *tappedConn) publish(subject, reply string, header, data []byte, patient bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := append(append(append(c.queue, "HPUB "...), subject...), ' ')
	q = append(append(q, reply...), ' ')
	q = append(strconv.AppendInt(q, int64(len(header)), 10), ' ')
	q = append(strconv.AppendInt(q, int64(len(header)+len(data)), 10), "\r\n"...)
	c.queue = append(append(append(q, header...), data...), "\r\n"...)
	if c.busy || patient && c.isWaiting() {
		return
	}
	c.busy = true
	if c.flush(); len(c.queue) > 0 {
		go c.rest()
		return
	}
	c.busy = false
}

// isWaiting reports whether the queue will be written in a moment. It needs mu.
func (c *tappedConn) isWaiting() bool {
	d := joining - time.Since(c.wrote)
	switch {
	case d <= 0:
		return false
	case c.joins:
	case c.join == nil:
		c.join = time.AfterFunc(d, c.writeJoined)
	default:
		c.join.Reset(d)
	}
	c.joins = true
	return true
}

// writeJoined writes what has been patient, unless a message has come that was not.
func (c *tappedConn) writeJoined() {
	c.mu.Lock()
	c.joins = false
	busy := c.busy
	c.busy = true
	c.mu.Unlock()
	if !busy {
		c.rest()
	}
}

// rest writes until the queue is empty. It needs busy.
func (c *tappedConn) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		c.flush()
	}
	c.busy = false
}

// flush writes the queue. It needs mu, which it leaves meanwhile, and busy.
func (c *tappedConn) flush() {
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
	c.wrote = time.Now()
	if c.spare = b; cap(b) > keptQueue {
		c.spare = nil
	}
}

// keptQueue is the largest buffer of messages that is used again, in bytes.
const keptQueue = 256 << 10

// Read implements net.Conn. What is taken is not in what it returns.
func (c *tappedConn) Read(p []byte) (int, error) {
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

// longest is how long a line may be that is held back until it is whole.
const longest = 4 << 10

// keptPart is the largest buffer for a message in pieces that is used again, in bytes.
const keptPart = 64 << 10

// filter takes out of b what is to be taken, and holds back lines that are not whole. It returns the length of the
// rest, which it has moved to the beginning.
func (c *tappedConn) filter(b []byte) (rest int) {
	at := 0
	pass := func(n int) {
		n = min(n, len(b)-at)
		if rest != at {
			copy(b[rest:], b[at:at+n])
		}
		rest, at = rest+n, at+n
	}
	for at < len(b) {
		if c.lack > 0 {
			n := min(c.lack, len(b)-at)
			c.part, c.lack, at = append(c.part, b[at:at+n]...), c.lack-n, at+n
			c.whole()
			continue
		}
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
		text := b[at:]
		if end > 0 {
			text = text[:end]
		}
		switch kind := kindOf(text); {
		case kind == message && end > 0:
			l, ok := c.of.read(text)
			if c.sealed = !ok; !ok {
				break
			}
			size := l.size + len("\r\n")
			switch {
			case l.to == nil:
				pass(end)
				c.skip = size
			case end+size <= len(b)-at:
				l.give(text, b[at+end:])
				at += end + size
			default:
				c.line, c.lack = l, end+size
			}
		case end > 0 && kind == other && bytes.HasPrefix(text, payloadError):
			at += end // the end of the connection follows
		case end > 0 && kind == other:
			pass(end)
		case kind == other && len(text) > len("INFO "): // it may be long
			c.long = true
		case kind != foreign && len(text) < longest:
			c.held = append(c.held, text...)
			return rest
		default:
			c.sealed = true
		}
	}
	return rest
}

// payloadError begins the line in which a server says why it cuts a connection: a message was larger than it takes now,
// though not when it told the connection. The client library would close the connection for good behind such a line,
// and connects anew where it is just cut.
var payloadError = []byte("-ERR 'Maximum Payload Violation'")

// whole passes on what was read in pieces, once it is whole.
func (c *tappedConn) whole() {
	if c.lack > 0 {
		return
	}
	end := bytes.IndexByte(c.part, '\n') + 1
	c.line.give(c.part[:end], c.part[end:])
	if c.part = c.part[:0]; cap(c.part) > keptPart {
		c.part = nil
	}
}

// line is what the line before a message says of it.
type line struct {
	to     *interest // nil: it is passed on
	name   [2]int    // where the rest of the subject is
	header int       // bytes of headers
	size   int       // with those of the message
}

func (l line) give(text, message []byte) {
	l.to.take(text[l.name[0]:l.name[1]], message[:l.header], message[l.header:l.size])
}

// read reads the line before a message; false: it is none.
func (w *WireTap) read(text []byte) (l line, ok bool) {
	text = bytes.TrimSuffix(text, []byte("\r\n"))
	headers := text[0] == 'H'
	from := len("MSG ")
	if headers {
		from = len("HMSG ")
	}
	to := max(0, bytes.IndexByte(text[from:], ' ')) + from
	subject, fields := text[from:to], bytes.Count(text[to:], []byte(" ")) // sid, perhaps a reply, sizes
	last := bytes.LastIndexByte(text, ' ')
	var err error
	if l.size, err = strconv.Atoi(string(text[last+1:])); err != nil || l.size < 0 {
		return line{}, false
	}
	if headers {
		before := bytes.LastIndexByte(text[:last], ' ')
		if l.header, err = strconv.Atoi(string(text[before+1 : last])); err != nil || l.header < 0 || l.header > l.size {
			return line{}, false
		}
		fields--
	}
	if i := w.answers.Load(); i != nil && !headers && fields == 2 && bytes.HasPrefix(subject, i.prefix) {
		l.to = i
	} else if i := w.copies.Load(); i != nil && bytes.HasPrefix(subject, i.prefix) {
		l.to = i
	}
	if l.to != nil {
		l.name = [2]int{from + len(l.to.prefix), to}
	}
	return l, true
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
	}{{"MSG ", message}, {"HMSG ", message}, {"PING\r\n", other}, {"PONG\r\n", other}, {"INFO ", other},
		{"+OK\r\n", other}, {"-ERR", other}} {
		if n := min(len(w.word), len(line)); string(line[:n]) == w.word[:n] {
			return w.kind
		}
	}
	return foreign
}
