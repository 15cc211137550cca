package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"time"

	"agentstream/edge/dialect"
)

// Duplex is a request of HTTP/1.1 whose body stays open while it is answered, on a connection that was taken over from
// the HTTP server: its buffers, and the stack of its goroutine, are several times what a client needs that says
// nothing. Both ways are chunked. One goroutine at a time reads, and one writes.
type Duplex struct {
	conn    net.Conn
	body    io.Reader
	timeout time.Duration
	buf     []byte // of the last write
}

// duplexRead is how much of a body is read at once where its reader asks for less, in bytes.
const duplexRead = 1 << 10

// CanDuplex reports whether OpenDuplex can take a request over.
func CanDuplex(w http.ResponseWriter, r *http.Request) bool {
	_, ok := w.(http.Hijacker)
	return ok && r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.TLS == nil && len(r.TransferEncoding) == 1
}

// OpenDuplex takes a request over and begins the answer with the headers of w. Each write has timeout for each Chunk.
// After an error the connection is closed.
func OpenDuplex(w http.ResponseWriter, r *http.Request, timeout time.Duration) (*Duplex, error) {
	conn, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take the connection over: %w: %w", dialect.ErrClientGone, err)
	}
	conn = Own(conn)
	d := &Duplex{conn: conn, timeout: timeout}
	read, err := early.Reader.Peek(early.Reader.Buffered())
	if err == nil {
		err = conn.SetDeadline(time.Time{}) // those of the HTTP server are for requests
	}
	if err == nil {
		from := io.MultiReader(&rest{append([]byte(nil), read...)}, conn)
		d.body = httputil.NewChunkedReader(bufio.NewReaderSize(from, duplexRead))
		err = d.send(d.head(w.Header(), r.Header))
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return d, nil
}

// rest is bytes that are let go when they are read.
type rest struct{ b []byte }

func (r *rest) Read(p []byte) (int, error) {
	n := copy(p, r.b)
	if r.b = r.b[n:]; len(r.b) == 0 {
		r.b = nil
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (d *Duplex) head(own, asked http.Header) []byte {
	var b []byte
	if asked.Get("Expect") != "" {
		b = append(b, "HTTP/1.1 100 Continue\r\n\r\n"...)
	}
	own.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	own.Set("Transfer-Encoding", "chunked")
	own.Set("Connection", "close") // what follows would be another request, and there is nobody to read it
	w := writerOf{append(b, "HTTP/1.1 200 OK\r\n"...)}
	_ = own.Write(&w) // it takes everything
	return append(w.b, "\r\n"...)
}

type writerOf struct{ b []byte }

func (w *writerOf) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// Read reads the body.
func (d *Duplex) Read(p []byte) (int, error) { return d.body.Read(p) }

// Write sends b as one chunk.
func (d *Duplex) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	d.buf = append(strconv.AppendInt(d.buf[:0], int64(len(b)), 16), "\r\n"...)
	d.buf = append(append(d.buf, b...), "\r\n"...)
	err := d.send(d.buf)
	if cap(d.buf) > duplexRead {
		d.buf = nil
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (d *Duplex) send(b []byte) error {
	for len(b) > 0 {
		err := d.conn.SetWriteDeadline(time.Now().Add(d.timeout))
		n := 0
		if err == nil {
			n, err = d.conn.Write(b[:min(len(b), Chunk)])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("write: %w", dialect.ErrSlowClient)
		case err != nil:
			return fmt.Errorf("write: %w: %w", dialect.ErrClientGone, err)
		}
		b = b[n:]
	}
	return nil
}

// Stop ends the reading: Read returns an error, now and later. It may be called from any goroutine.
func (d *Duplex) Stop() { _ = d.conn.SetReadDeadline(time.Unix(1, 0)) } // it fails when the connection is closed

// Cut closes the connection at once, from any goroutine.
func (d *Duplex) Cut() { Reset(d.conn) }

// Bounds of what is read and thrown away behind the end: a connection that is closed while something is unread is
// reset, and what is on its way to the client is lost.
const (
	maxLeft  = 1 << 20
	leftTime = 500 * time.Millisecond
)

// CloseWith ends the answer, and closes the connection; err is why the answer breaks off, nil is its end. It
// returns an error when the end did not get through.
func (d *Duplex) CloseWith(err error) error {
	if err == nil {
		err = d.send([]byte("0\r\n\r\n"))
	}
	if err != nil {
		d.Cut()
		return err
	}
	half, ok := d.conn.(interface{ CloseWrite() error })
	if ok && half.CloseWrite() == nil && d.conn.SetReadDeadline(time.Now().Add(leftTime)) == nil {
		_, _ = io.CopyN(io.Discard, d.conn, maxLeft)
	}
	_ = d.conn.Close()
	return nil
}
