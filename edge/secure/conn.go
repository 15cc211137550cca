package secure

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is a server's side of TLS on a connection. It has no ConnectionState: the HTTP server must see a connection like
// any other.
type Conn struct {
	tls   *tls.Conn
	wire  *wire
	files *Files

	once sync.Once
	err  error // of the handshake
	owed int   // bytes that TryWrite has sent and did not report; the next Write begins with them
}

// ErrHandshake reports that there is no TLS on a connection. It is closed.
var ErrHandshake = errors.New("tls: no handshake")

// shake does the handshake, once.
func (c *Conn) shake() error {
	c.once.Do(func() {
		timer := time.AfterFunc(c.files.cfg.Timeout, func() {
			_ = c.wire.Conn.Close() // which ends the handshake
		})
		err := c.tls.Handshake()
		late := !timer.Stop()
		if err == nil && !late {
			return
		}
		reason := reasonOf(err, late)
		if reason == ReasonPlain {
			c.wire.refusePlain()
		}
		_ = c.wire.Conn.Close()
		if c.files.cfg.Failed != nil {
			c.files.cfg.Failed(reason)
		}
		c.err = fmt.Errorf("%w: %s: %w", ErrHandshake, reason, cmp.Or(err, net.ErrClosed))
	})
	return c.err
}

// reasonOf classifies the error of a handshake.
func reasonOf(err error, late bool) Reason {
	plain, cert, remote := tls.RecordHeaderError{}, new(tls.CertificateVerificationError), new(net.OpError)
	switch {
	case late || errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonTimeout
	case errors.As(err, &plain):
		return ReasonPlain
	case errors.As(err, &cert) || err.Error() == "tls: client didn't provide a certificate":
		return ReasonClient
	case errors.As(err, &remote) && remote.Op == "remote error":
		return ReasonRejected
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err,
		syscall.EPIPE):
		return ReasonClosed
	}
	return ReasonProtocol
}

// Read reads what the client has sent.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	return c.tls.Read(b)
}

// Write writes all of b. Of what TryWrite did not report it begins with the same bytes.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	sent := min(c.owed, len(b))
	if c.owed -= sent; len(b) > sent {
		if n, err := c.tls.Write(b[sent:]); err != nil {
			return sent + n, err
		}
	}
	return len(b), c.wire.drain()
}

// Unblock makes ready for TryRead and TryWrite, and reports whether the connection has them. Nothing may be under way
// on it.
func (c *Conn) Unblock() bool {
	if c.wire.try == nil || c.shake() != nil {
		return false
	}
	c.wire.held.Store(true)
	return true
}

// TryWrite writes without waiting. n < len(b) without an error says that the kernel takes no more: the next Write must
// begin with b[n:]. Records cannot be taken back, so what they hold of b counts as written when all of it has gone out;
// until then one byte is kept back from the count.
func (c *Conn) TryWrite(b []byte) (int, error) {
	whole, err := c.wire.push()
	if err != nil || !whole || len(b) == 0 {
		return 0, err
	}
	if _, err = c.tls.Write(b); err != nil {
		return 0, err
	}
	whole, err = c.wire.push()
	if err != nil {
		return 0, err
	}
	if !whole && len(b) > 1 {
		c.owed = 1
	}
	return len(b) - c.owed, nil
}

// TryRead reads what is there: nothing is 0 without an error. The end is io.EOF.
func (c *Conn) TryRead(b []byte) (int, error) {
	c.wire.peek.Store(true)
	defer c.wire.peek.Store(false)
	n, err := c.tls.Read(b)
	if errors.Is(err, errQuiet) {
		err = nil
	}
	return n, err
}

// SyscallConn returns the connection below, for who waits until there is something to read.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.wire.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// CloseWrite sends the end, and waits until that is on its way.
func (c *Conn) CloseWrite() error {
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	return c.wire.drain()
}

// Close sends the end, unless that would wait, and closes the connection.
func (c *Conn) Close() error {
	c.wire.leaving.Store(true)
	return c.tls.Close()
}

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.wire.LocalAddr() }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.wire.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.wire.Conn.SetDeadline(t) }

// SetReadDeadline is for Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.wire.Conn.SetReadDeadline(t) }

// SetWriteDeadline is for Write. After one has passed, what is left of a record goes out before all else.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.wire.Conn.SetWriteDeadline(t) }
