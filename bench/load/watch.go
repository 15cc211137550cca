package load

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const bufferSize = 64 << 10

// buffers are lent to connections that have something to read.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// readOwn is readTo with a buffer that the connection keeps.
func readOwn(conn net.Conn, feed func([]byte) error) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := feed(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// audience is a set of watchers and what they have seen together.
type audience struct {
	clock    *clock
	from, to atomic.Int64 // latency is counted of events that were due in [from, to) ns
	watchers []*watcher
	seen     atomic.Int64 // events that came, each once, over all watchers
	wholes   atomic.Int64 // watchers that have had as many as whole says
	whole    int64        // events that make a watcher complete; 0: not asked
	resumed  atomic.Int64 // connections that ended by themselves and were taken up again
	cut      atomic.Int64 // connections that could not be
	cause    atomic.Pointer[error]
	srv      *server
	how      WatchTransport
	names    []string
	cancel   context.CancelFunc
	closing  atomic.Bool
	shards   [16]shard
	readers  sync.WaitGroup
}

// shard is a histogram that some of the watchers share, so that few wait for each other.
type shard struct {
	mu   sync.Mutex
	hist Histogram
}

// watcher is one connection. Its fields are its reader's until the audience is closed.
type watcher struct {
	all    *audience
	run    int
	mu     sync.Mutex // conn, between the reader that resumes and close
	conn   net.Conn
	frames framing
	scan   scanner
	acct   account
	stray  int64 // marks of another run
	cursor int64 // seq of an event that has come: where to go on
	since  int64 // events that have come behind it
	again  int64 // of these, how many may come a second time, after a resumption
	done   int64 // ns, when it was complete

	now  int64 // of the piece that is being read
	lats []time.Duration
}

// connect opens watchers of the named runs from their first event on, n for each, a bounded number
// at a time, and reads them at once.
func (a *audience) connect(ctx context.Context, srv *server, t WatchTransport, runs []string, n int) error {
	a.srv, a.how, a.names = srv, t, runs
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.cancel = cancel
	a.watchers = make([]*watcher, len(runs)*n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(beginners)
	for i := range a.watchers {
		g.Go(func() error {
			w := &watcher{all: a, run: i % len(runs)}
			rest, err := w.open(ctx)
			for wait := firstWait; busy(err) && wait < 64*firstWait; wait *= 2 {
				if err := pause(ctx, wait); err != nil {
					return err
				}
				rest, err = w.open(ctx)
			}
			if err != nil {
				return fmt.Errorf("watch %s: %w", runs[w.run], err)
			}
			a.watchers[i] = w
			a.readers.Go(func() { w.read(life, rest, &a.shards[i%len(a.shards)]) })
			return nil
		})
	}
	return g.Wait()
}

// open begins a stream behind the cursor and returns what came with its head.
func (w *watcher) open(ctx context.Context) ([]byte, error) {
	a := w.all
	conn, err := a.srv.dial(ctx)
	if err != nil {
		return nil, err
	}
	request := a.srv.head("GET", pathOf(a.names[w.run])+"/stream?detail=full&after="+strconv.FormatInt(w.cursor, 10))
	want := http.StatusOK
	if a.how == WebSocket {
		key := make([]byte, 16)
		_, _ = rand.Read(key) // it never fails
		request += "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			base64.StdEncoding.EncodeToString(key) + "\r\n\r\n"
		want = http.StatusSwitchingProtocols
	} else {
		request += "Accept: text/event-stream\r\n\r\n"
	}
	resp, r, err := exchange(conn, request, want)
	if err != nil {
		conn.Close()
		return nil, err
	}
	switch {
	case a.how == WebSocket:
		w.frames = &frameParser{pong: w.pong}
	case slices.Contains(resp.TransferEncoding, "chunked"):
		w.frames = &chunked{}
	default:
		w.frames = identity{}
	}
	w.scan = scanner{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.closing.Load() { // close has not seen this connection
		conn.Close()
		return nil, errClosed
	}
	w.conn = conn
	return r.Peek(r.Buffered())
}

var errClosed = errors.New("load: the audience is closed")

// pong runs on the reader. A write that waits holds only this connection up.
func (w *watcher) pong(body []byte) error {
	_, err := w.conn.Write(pongFrame(body))
	return err
}

// read takes what comes until the audience is closed. A stream that ends before is taken up again
// behind the last event that has come, as every client of the protocol does.
func (w *watcher) read(ctx context.Context, rest []byte, sh *shard) {
	feed := w.feeder(sh)
	for {
		var err error
		if len(rest) > 0 {
			err = feed(rest)
		}
		if err == nil {
			err = readTo(w.conn, feed)
		}
		w.conn.Close()
		if w.all.closing.Load() {
			return
		}
		if rest, err = w.resume(ctx, err); err != nil {
			if !w.all.closing.Load() {
				w.all.cut.Add(1)
				w.all.cause.CompareAndSwap(nil, &err)
			}
			return
		}
		w.all.resumed.Add(1)
	}
}

// firstWait is the pause behind the first attempt; it doubles from one to the next.
const firstWait = 50 * time.Millisecond

const resumeTries = 8

// resume opens the stream again; cause is why it ended. What came behind the cursor will come once more.
func (w *watcher) resume(ctx context.Context, cause error) (rest []byte, err error) {
	wait := firstWait
	for range resumeTries {
		w.again = w.since
		if rest, err = w.open(ctx); err == nil {
			return rest, nil
		}
		if pause(ctx, wait) != nil {
			break
		}
		wait = min(2*wait, 2*time.Second)
	}
	return nil, fmt.Errorf("a watcher's stream ended (%w) and could not be resumed: %w", cause, err)
}

// feeder returns the function that takes what was read: the closures are made once per connection.
func (w *watcher) feeder(sh *shard) func([]byte) error {
	see := w.see
	data := func(b []byte) { w.scan.scan(b, see) }
	return func(b []byte) error {
		w.now = w.all.clock.now()
		before := w.acct.had
		err := w.frames.feed(b, data)
		if len(w.lats) > 0 {
			sh.mu.Lock()
			for _, d := range w.lats {
				sh.hist.Add(d)
			}
			sh.mu.Unlock()
			w.lats = w.lats[:0]
		}
		if n := w.acct.had - before; n > 0 {
			w.all.seen.Add(n)
		}
		return err
	}
}

func (w *watcher) see(m mark, before []byte) {
	if m.run != w.run {
		w.stray++
		return
	}
	if w.again > 0 && m.n < w.acct.next { // asked for twice
		w.again--
		return
	}
	w.since++
	if seq := seqBefore(before); seq > 0 {
		w.cursor, w.since = seq, 0
	}
	if !w.acct.see(m.n) {
		return
	}
	if m.due >= w.all.from.Load() && m.due < w.all.to.Load() {
		w.lats = append(w.lats, time.Duration(w.now-m.due))
	}
	if w.acct.had == w.all.whole {
		w.done = w.now
		w.all.wholes.Add(1)
	}
}

// close ends all connections and returns when nothing is read any more.
func (a *audience) close() {
	a.closing.Store(true)
	if a.cancel != nil {
		a.cancel()
	}
	for _, w := range a.watchers {
		if w == nil { // it could not be opened
			continue
		}
		w.mu.Lock()
		if tcp, ok := w.conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset: thousands of ports are not to linger
		}
		w.conn.Close()
		w.mu.Unlock()
	}
	a.readers.Wait()
}

// latency is what all shards have counted.
func (a *audience) latency() *Histogram {
	sum := &Histogram{}
	for i := range a.shards {
		a.shards[i].mu.Lock()
		sum.Merge(&a.shards[i].hist)
		a.shards[i].mu.Unlock()
	}
	return sum
}

// statusError is a response that is not the one asked for.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%v: status %d %s: %s", ErrRefused, e.status, http.StatusText(e.status), e.text)
}

func (e *statusError) Unwrap() error { return ErrRefused }

func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("status %s: %w", resp.Status, err)
	}
	return &statusError{resp.StatusCode, strings.TrimSpace(string(text))}
}

// busy reports whether the server asks to come again.
func busy(err error) bool {
	var e *statusError
	return errors.As(err, &e) && (e.status == http.StatusServiceUnavailable || e.status == http.StatusTooManyRequests)
}
