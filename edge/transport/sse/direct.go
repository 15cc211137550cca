package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/poll"
)

// maxUnread bounds what is read and thrown away at the end, in bytes.
const maxUnread = 1 << 20

var lastChunk = []byte("0\r\n\r\n")

// Direct is a response on a connection that was taken over from the HTTP server, so that nothing of that
// is held for it. Its memory between two writes is a few hundred bytes and a small stack that reads.
type Direct struct {
	t      *Transport
	format *Format
	conn   net.Conn
	try    *transport.Try // own; nil: it cannot be written to without waiting
	own    transport.Try
	gone   func(error)
	buf    *[]byte // frames that are not written yet, behind their room
	armed  bool    // a write deadline is set
	torn   error   // of a write that failed: a chunk may be half written, and nothing can follow it
	n      int64   // bytes written since the last Flush

	watch   poll.Watch
	watched bool // by the poller; otherwise a goroutine reads
	reading sync.WaitGroup

	mu    sync.Mutex // of what follows, and held while gone is called, so that it is not behind End
	over  bool       // End has begun
	told  bool       // gone was called
	alone bool       // the poller has ended: a goroutine reads
}

var (
	_ transport.Sink   = (*Direct)(nil)
	_ transport.Direct = (*Direct)(nil)
)

// ErrNotDirect reports that a response must go through the HTTP server: it is HTTP/1.0, HTTP/2, or over TLS of that
// server. Nothing was done.
var ErrNotDirect = errors.New("sse: the connection cannot be taken over")

// errPart reports that the rest of a chunk was never written.
var errPart = fmt.Errorf("sse: a chunk is half written: %w", dialect.ErrSlowClient)

// OpenDirect takes a response's connection over and sends what Open sends. The request may be of any method; a
// body must have been read: what is left of it is dropped. gone is called at most once,
// from another goroutine, when the client closes, and not after End has begun; it must neither block nor
// end the sink. An error that wraps ErrNotDirect
// leaves the response as it was; after any other the connection is closed. After a success neither w nor
// the request may be used, and the request's context does not tell of the client any more.
func (t *Transport) OpenDirect(w http.ResponseWriter, r *http.Request, format *Format,
	gone func(error)) (*Direct, error) {
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.TLS != nil {
		return nil, ErrNotDirect
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return nil, ErrNotDirect
	}
	if err != nil {
		return nil, fmt.Errorf("sse: take the connection over: %w: %w", dialect.ErrClientGone, err)
	}
	conn = transport.Own(conn)
	d := &Direct{t: t, format: format.ready(), conn: conn, gone: gone}
	d.try = d.own.Of(conn)
	// Deadlines of the HTTP server are for requests.
	if err = conn.SetDeadline(time.Time{}); err == nil {
		err = d.write(t.appendHead(w.Header(), r.Header, d.format))
	}
	if err != nil {
		d.cut(err)
		return nil, err
	}
	d.n = 0
	d.watched = d.try != nil && t.cfg.Poll.Put(&d.watch, d.own.Raw(), (*watched)(d)) == nil
	if !d.watched {
		d.reading.Go(d.read)
	}
	return d, nil
}

// ofNode reports whether a request is from Node's fetch, which has one of the headers that browsers send together.
// Where a connection is declared to close, it takes a body that is cut for a whole one. One that has a second to live
// it closes by itself, behind the end.
func ofNode(h http.Header) bool {
	return len(h["Sec-Fetch-Mode"]) > 0 && len(h["Sec-Fetch-Site"]) == 0
}

// appendHead returns the status line, the headers, and the reconnection hint as the first chunk.
func (t *Transport) appendHead(own, asked http.Header, format *Format) []byte {
	format.SetHeader(own)
	own.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	own.Set("Transfer-Encoding", "chunked")
	// What follows the stream's end would be another request, and there is nobody to read it.
	if ofNode(asked) {
		own.Set("Keep-Alive", "timeout=1")
	} else {
		own.Set("Connection", "close")
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\n")
	_ = own.Write(&b) // a Buffer takes everything
	b.WriteString("\r\n")
	b.Write(format.seal(t.appendRetry(nil, format)))
	return b.Bytes()
}

// appendRetry appends the reconnection hint. Clients that were cut together must not come back together.
func (t *Transport) appendRetry(dst []byte, format *Format) []byte {
	if format.NoRetry {
		return dst
	}
	hint := t.cfg.Retry + rand.N(t.cfg.Retry)
	dst = strconv.AppendInt(append(dst, "retry: "...), hint.Milliseconds(), 10)
	return append(dst, "\n\n"...)
}

// watched is a Direct for its poller.
type watched Direct

// Readable looks whether the client has closed. What else it sends has no meaning.
func (r *watched) Readable(w *poll.Watch) {
	d := (*Direct)(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.told || d.alone {
		return
	}
	if _, err := d.skim(); err != nil {
		d.tell(err)
	} else if w.Again() != nil { // the poller has ended
		d.alone = true
		d.reading.Go(d.read)
	}
}

// skim reads what is there, without waiting, and drops it. Nobody else may be reading.
func (d *Direct) skim() (int, error) {
	buf := d.t.buffers.Get()
	defer d.t.buffers.Put(buf)
	return d.try.Read((*buf)[:cap(*buf)])
}

// tell needs mu.
func (d *Direct) tell(err error) {
	if !d.over && !d.told {
		d.told = true
		d.gone(fmt.Errorf("sse: %w: %w", dialect.ErrClientGone, err))
	}
}

// read does so where nobody polls.
func (d *Direct) read() {
	var b [16]byte
	for {
		n, err := d.conn.Read(b[:])
		if err == nil && n == len(b) && d.try != nil {
			_, err = d.skim() // who sends gets a larger buffer
		}
		if err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.tell(err)
			return
		}
	}
}

// Write takes frames. They go out when 64 KiB are together, the rest with Flush.
func (d *Direct) Write(frames []dialect.Frame) error {
	for _, f := range frames {
		if err := d.frame(f); err != nil {
			d.release()
			return err
		}
	}
	return nil
}

func (d *Direct) frame(f dialect.Frame) error {
	if d.buf != nil && len(*d.buf)+len(f.Data) > chunk {
		if err := d.flush(); err != nil {
			return err
		}
	}
	if d.buf == nil {
		d.buf = d.t.buffers.Get()
		*d.buf = d.format.chunked.Reset(*d.buf)
	}
	if !large(f) {
		*d.buf = d.format.Append(*d.buf, f)
		return nil
	}
	return d.large(f)
}

// large writes an event from the pack's own memory. It is a chunk for each of its three parts.
func (d *Direct) large(f dialect.Frame) error {
	*d.buf = d.format.appendHead(*d.buf, f)
	if err := d.flush(); err != nil {
		return err
	}
	if err := d.write(append(strconv.AppendInt(nil, int64(len(f.Data)), 16), '\r', '\n')); err != nil {
		return err
	}
	if err := d.write(f.Data); err != nil {
		return err
	}
	d.buf = d.t.buffers.Get()
	// The end of the data's chunk precedes the size of the next one.
	if err := d.write([]byte("\r\n")); err != nil {
		return err
	}
	*d.buf = d.format.appendTail(d.format.chunked.Reset(*d.buf), f)
	return nil
}

// flush writes what is collected and releases the memory.
func (d *Direct) flush() error {
	if d.buf == nil {
		return nil
	}
	b := d.format.chunked.Finish(*d.buf)
	err := d.write(b)
	d.release()
	return err
}

// Flush writes what is collected.
func (d *Direct) Flush() (int64, error) {
	err := d.flush()
	n := d.n
	d.n = 0
	return n, err
}

// KeepAlive writes a comment.
func (d *Direct) KeepAlive() error { return d.write(d.format.sealed) }

// CloseWith writes the last frames, where there are any; what was written and not flushed is dropped. The body
// of a stream that is complete is complete; any other breaks off, which a client of HTTP/1.1 can tell.
func (d *Direct) CloseWith(e transport.End) error {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.release()
	err := d.torn
	if err == nil || err == errPart && len(e.Rest) > 0 { // it is never wrapped
		err = d.lastWords(e)
	}
	d.unread()
	if e.Wait && err == nil {
		d.drain()
	}
	d.cut(err)
	return err
}

// drain lets the client read to the end, and drops what it still says.
func (d *Direct) drain() {
	half, ok := d.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || d.conn.SetReadDeadline(time.Now().Add(d.t.cfg.WriteTimeout)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, d.conn, maxUnread)
}

// lastWords writes the rest of ready frames and all that is behind the events.
func (d *Direct) lastWords(e transport.End) error {
	if err := d.write(e.Rest); err != nil {
		return err
	}
	var last []byte
	for _, f := range e.Last {
		last = d.format.Append(last, f)
	}
	last = d.format.seal(last)
	if e.Clean {
		last = append(last, lastChunk...)
	}
	return d.write(last)
}

// unread ends the reading, and drops what the client has sent and nobody read: closing would reset the
// connection over it, and throw away what is still on its way to the client.
func (d *Direct) unread() {
	if d.watched {
		d.watch.Stop()
	}
	// A connection that was cut has no deadlines, and nobody reads it any more.
	_ = d.conn.SetReadDeadline(time.Unix(1, 0))
	d.reading.Wait()
	if d.try == nil || d.conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for total := 0; total < maxUnread; { // who sends more has itself to blame
		n, err := d.skim()
		if total += n; n == 0 || err != nil {
			return
		}
	}
}

// cut closes the connection. What the kernel still holds for a client that does not read is thrown away
// with it.
func (d *Direct) cut(err error) {
	if errors.Is(err, dialect.ErrSlowClient) {
		d.Cut()
		return
	}
	_ = d.conn.Close()
}

// Cut closes the connection at once, from any goroutine: whatever is being written fails. The sink must
// still be ended.
func (d *Direct) Cut() { transport.Reset(d.conn) }

// Encoding is the format's, nil when the connection cannot be written to without waiting.
func (d *Direct) Encoding() *transport.Encoding {
	if d.try == nil {
		return nil
	}
	return d.format.Encoding()
}

// TryWrite writes without waiting.
func (d *Direct) TryWrite(b []byte) (int, error) {
	if d.armed {
		d.armed = false
		if err := d.conn.SetWriteDeadline(time.Time{}); err != nil {
			return 0, fmt.Errorf("sse: %w: %w", dialect.ErrClientGone, err)
		}
	}
	n, err := d.try.Write(b)
	switch {
	case err != nil:
		d.torn = err
	case n > 0 && n < len(b):
		d.torn = errPart
	}
	return n, err
}

// Rest writes and waits.
func (d *Direct) Rest(b []byte) error {
	if d.torn == errPart { // it is never wrapped
		d.torn = nil
	}
	return d.write(b)
}

// TryKeepAlive writes a comment, without waiting.
func (d *Direct) TryKeepAlive() ([]byte, error) {
	n, err := d.TryWrite(d.format.sealed)
	return d.format.sealed[n:], err
}

// write writes all of b, each 64 KiB under a deadline of its own.
func (d *Direct) write(b []byte) error {
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		d.armed = true
		err := d.conn.SetWriteDeadline(time.Now().Add(d.t.cfg.WriteTimeout))
		n := 0
		if err == nil {
			n, err = d.conn.Write(part)
		}
		d.n += int64(n)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.torn = fmt.Errorf("sse: write: %w", dialect.ErrSlowClient)
			return d.torn
		case err != nil:
			d.torn = fmt.Errorf("sse: write: %w: %w", dialect.ErrClientGone, err)
			return d.torn
		}
		b = b[n:]
	}
	return nil
}

func (d *Direct) release() {
	d.t.buffers.Put(d.buf)
	d.buf = nil
}
