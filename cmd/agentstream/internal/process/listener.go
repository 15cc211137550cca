package process

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/secure"
)

// LimitListener lets connections in, logs when it cannot, and refuses those that would take the descriptors
// that the rest of the process needs. A new descriptor has the lowest number that is free, so its number shows
// how many are in use. Accept is for one goroutine.
type LimitListener struct {
	net.Listener
	most    int // descriptors from this number on are not for clients; 0: all are
	spares  int // descriptors that are kept to let somebody in when there are no others
	log     *slog.Logger
	failed  func()        // accept has failed; nil: nobody counts
	refused func()        // a connection was refused; nil: nobody counts
	tls     *secure.Files // nil: connections come as they are

	spare    []*os.File
	logged   time.Time // time of the last line of the log
	refusing sync.WaitGroup
	places   [8]sync.Mutex // of those who are refused in words
}

// LimitClients returns the listener for clients, and logs how many may come in.
// tls is what they speak, nil for nothing.
func LimitClients(ln net.Listener, tls *secure.Files, f Files, m *Metrics, log *slog.Logger) *LimitListener {
	log.Debug("files: descriptors are shared", "limit", f.limit, "clients", f.Clients, "streams", f.Streams)
	return &LimitListener{Listener: ln, tls: tls, most: f.Clients, log: log, failed: m.notAccepted.Inc,
		refused: m.notLetIn.Inc}
}

// Bounds of a LimitListener.
const (
	logEvery      = 10 * time.Second
	refusalWithin = time.Second // for the request to come and for the answer to go
)

// Accept returns the next connection that may come in.
func (d *LimitListener) Accept() (net.Conn, error) {
	d.stock()
	for {
		c, err := d.Listener.Accept()
		if noFiles(err) && len(d.spare) > 0 {
			last := len(d.spare) - 1
			d.spare[last].Close()
			d.spare = d.spare[:last]
			c, err = d.Listener.Accept()
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.say("connections cannot be accepted", "err", err)
				callIf(d.failed)
			}
			return nil, err
		}
		if d.most == 0 || numberOf(c) < d.most {
			return d.wrap(c), nil
		}
		d.say("connections are refused: there are as many descriptors as clients may have", "most", d.most)
		callIf(d.refused)
		d.refuse(d.wrap(c))
	}
}

// wrap puts TLS on a connection, where there is any.
func (d *LimitListener) wrap(c net.Conn) net.Conn {
	if d.tls == nil {
		return c
	}
	return d.tls.Wrap(c)
}

// callIf calls f unless it is nil.
func callIf(f func()) {
	if f != nil {
		f()
	}
}

// say logs a warning, at most one in logEvery.
func (d *LimitListener) say(what string, args ...any) {
	if now := time.Now(); now.Sub(d.logged) >= logEvery {
		d.logged = now
		d.log.Warn(what, args...)
	}
}

// stock takes the spare descriptors that are missing, as far as there are any.
func (d *LimitListener) stock() {
	for len(d.spare) < d.spares {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		d.spare = append(d.spare, f)
	}
}

// refuse answers a request with 503 and closes the connection. When many come, most are only closed.
func (d *LimitListener) refuse(c net.Conn) {
	for i := range d.places {
		if d.places[i].TryLock() {
			d.refusing.Go(func() {
				defer d.places[i].Unlock()
				defer c.Close()
				turnAway(c)
			})
			return
		}
	}
	c.Close()
}

// turnAway reads what has come of a request, so that the answer is not lost in a reset.
func turnAway(c net.Conn) {
	if c.SetDeadline(time.Now().Add(refusalWithin)) != nil {
		return
	}
	var request [4 << 10]byte
	if _, err := c.Read(request[:]); err != nil {
		return
	}
	out := ends.OutcomeOf(dialect.ReasonBusy)
	p := dialect.Problem{Reason: dialect.ReasonBusy, Status: out.Status, Code: out.Code, Message: out.Message}
	body := p.AppendJSON(nil)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %s\r\nRetry-After: %d\r\nConnection: close\r\n\r\n",
		out.Status, http.StatusText(out.Status), strconv.Itoa(len(body)), out.RetryAfter)
	if _, err := c.Write(append([]byte(head), body...)); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c, 64<<10) // until the client has seen it
	}
}

// Wait returns when nobody is being refused any more, and closes the spares. Call it when Accept is no longer
// called.
func (d *LimitListener) Wait() {
	d.refusing.Wait()
	for _, f := range d.spare {
		f.Close()
	}
	d.spare = nil
}

// numberOf is a connection's descriptor, 0 when it has none.
func numberOf(c net.Conn) (number int) {
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { number = int(fd) })
		}
	}
	return number
}

// Files is how many descriptors the process may have, and what of that is for clients.
type Files struct {
	limit   int // 0: unknown, and nothing is bounded
	Clients int // descriptors below this number are for clients
	Streams int // of them, for streams: the rest is for requests
}

// Bounds of what is kept from clients: for the log, the database, probes and files.
const (
	leastKept = 32
	mostKept  = 512
)

// shareFiles divides limit descriptors, of which open are in use.
func shareFiles(limit, open int) Files {
	if limit <= 0 {
		return Files{}
	}
	kept := min(max(limit/8, leastKept), mostKept)
	f := Files{limit: limit, Clients: max(limit-kept, limit/2)}
	f.Streams = max(f.Clients-open-kept/4, f.Clients/2)
	return f
}
