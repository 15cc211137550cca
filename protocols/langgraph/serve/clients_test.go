package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lxzan/gws"

	"agentstream/protocols/langgraph/langgraphtest"
)

// talker is a client of a session's socket.
type talker struct {
	gws.BuiltinEventHandler
	t    testing.TB
	conn *gws.Conn

	mu     sync.Mutex
	frames []string
	at     int
	closed chan struct{}
	err    error
	pongs  atomic.Int64
	held   atomic.Bool // pings are not answered
	ping   []byte      // the newest
	pause  pause
	asked  int      // commands
	early  []object // events before the answer to one
}

func (k *talker) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	k.pause.wait()
	if err := langgraphtest.Valid(m.Bytes()); err != nil {
		k.t.Error(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frames = append(k.frames, string(m.Bytes()))
}

func (k *talker) OnPing(_ *gws.Conn, payload []byte) {
	k.mu.Lock()
	k.ping = slices.Clone(payload)
	k.mu.Unlock()
	if !k.held.Load() {
		k.answer()
	}
}

// answer answers the newest ping.
func (k *talker) answer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ping != nil {
		_ = k.conn.WritePong(k.ping)
	}
}

func (k *talker) OnPong(*gws.Conn, []byte) { k.pongs.Add(1) }

func (k *talker) OnClose(_ *gws.Conn, err error) {
	k.err = err
	close(k.closed)
}

// eventsOf is where the events of a thread are.
func eventsOf(thread string) string { return "/threads/" + thread + "/stream/events" }

// dial opens a socket; headers are name, value, …
func (n *node) dial(at string, headers ...string) *talker {
	n.T.Helper()
	k, resp, err := n.tryDial(at, headers...)
	if err != nil {
		n.T.Fatal(err, resp)
	}
	return k
}

func (n *node) tryDial(at string, headers ...string) (*talker, *http.Response, error) {
	n.T.Helper()
	k := &talker{t: n.T, closed: make(chan struct{})}
	o := &gws.ClientOption{Addr: "ws://" + n.Host + at, ReadMaxPayloadSize: 16 << 20}
	if p := n.Nodes.Pipes; p != nil {
		o.NewDialer = func() (gws.Dialer, error) { return p, nil }
	}
	o.RequestHeader = http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		o.RequestHeader.Set(headers[i], headers[i+1])
	}
	conn, resp, err := gws.NewClient(k, o)
	if err != nil {
		return nil, resp, err
	}
	k.conn = conn
	go conn.ReadLoop()
	n.T.Cleanup(func() { _ = conn.NetConn().Close(); <-k.closed })
	return k, resp, nil
}

func (k *talker) say(text string) {
	k.t.Helper()
	if err := k.conn.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

// stops reading until what it returns is called.
func (k *talker) stops() (wake func()) { return k.pause.stop() }

// next returns the next frame.
func (k *talker) next() (o object) {
	k.t.Helper()
	eventually(k.t, "a frame comes", func() bool {
		over := false
		select {
		case <-k.closed:
			over = true
		default:
		}
		k.mu.Lock() // after the look at closed: the last frame comes before it
		more := len(k.frames) > k.at
		k.mu.Unlock()
		if over && !more {
			k.t.Fatalf("closed by %v behind %d frames", k.err, k.at)
		}
		return more
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := json.Unmarshal([]byte(k.frames[k.at]), &o); err != nil {
		k.t.Fatalf("%v: %s", err, k.frames[k.at])
	}
	k.at++
	return o
}

// read returns the frames that next returned, from one on.
func (k *talker) read(from int) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.frames[from:k.at])
}

// line returns the next frame as it came.
func (k *talker) line() string {
	k.t.Helper()
	k.next()
	return k.read(k.at - 1)[0]
}

// ends waits for the close.
func (k *talker) ends(code uint16, reason string) {
	k.t.Helper()
	select {
	case <-k.closed:
	case <-time.After(30 * time.Second):
		k.t.Fatal("the server does not close")
	}
	ce := new(gws.CloseError)
	if !errors.As(k.err, &ce) || ce.Code != code || !strings.Contains(string(ce.Reason), reason) {
		k.t.Fatalf("closed by %v, want %d %s", k.err, code, reason)
	}
}

// ask sends a command and returns its answer; what comes before it fails the test, unless it is an event.
func (k *talker) ask(method, params string) object {
	k.t.Helper()
	k.asked++
	if params == "" {
		params = "{}"
	}
	k.say(fmt.Sprintf(`{"id":%d,"method":%q,"params":%s}`, k.asked, method, params))
	for {
		o := k.next()
		if o.Str("type") == "event" {
			k.early = append(k.early, o)
			continue
		}
		if o["id"] != float64(k.asked) {
			k.t.Fatalf("%s %s: %v", method, params, o)
		}
		if o.Str("type") == "success" {
			b, _ := json.Marshal(o["result"])
			if err := langgraphtest.ValidResult(method, b); err != nil {
				k.t.Error(err)
			}
		}
		return o
	}
}

// watch is a stream of SSE. It is read all the time.
type watch struct {
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc

	mu    sync.Mutex
	items []item
	at    int
	done  chan struct{}
	err   error // io.EOF at a clean end
	pause pause
}

// pause stops a reader.
type pause struct {
	mu   sync.Mutex
	hold chan struct{} // reading waits for it; nil: it does not
}

func (p *pause) wait() {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

func (p *pause) stop() (wake func()) {
	hold := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
	return sync.OnceFunc(func() { close(hold) })
}

// item is an event or a comment.
type item struct{ event, id, data, comment string }

// watch opens a stream of a thread's events.
func (n *node) watch(path, body string, headers ...string) *watch {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+n.Host+path, strings.NewReader(body))
	if err != nil {
		n.T.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := &watch{t: n.T, cancel: cancel, done: make(chan struct{})}
	if w.resp, err = n.HTTP.Do(r); err != nil {
		n.T.Fatal(err)
	}
	if w.resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(w.resp.Body)
		n.T.Fatalf("%s %s: %d %s", path, body, w.resp.StatusCode, b)
	}
	go w.read()
	n.T.Cleanup(w.close)
	return w
}

// stops reading until what it returns is called.
func (w *watch) stops() (wake func()) { return w.pause.stop() }

func (w *watch) close() { w.cancel(); <-w.done; w.resp.Body.Close() }

func (w *watch) read() {
	defer close(w.done)
	lines := bufio.NewReader(w.resp.Body)
	var now item
	for {
		w.pause.wait()
		line, err := lines.ReadString('\n')
		if err != nil {
			w.err = err
			return
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "":
			if line == "\n" {
				if now != (item{}) {
					w.mu.Lock()
					w.items = append(w.items, now)
					w.mu.Unlock()
				}
				now = item{}
			} else {
				now.comment = value
			}
		case "event":
			now.event = value
		case "data":
			now.data = value
		case "id":
			now.id = value
		}
	}
}

// next returns the next event or comment, but not signs of life.
func (w *watch) next() item {
	w.t.Helper()
	for {
		eventually(w.t, "an event or a comment comes", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.items) > w.at {
				return true
			}
			select {
			case <-w.done:
				w.t.Fatalf("it ends with %v behind %d", w.err, w.at)
			default:
			}
			return false
		})
		w.mu.Lock()
		got := w.items[w.at]
		w.mu.Unlock()
		if w.at++; got.comment != "keepalive" {
			return got
		}
	}
}

// replayed reads the events up to the end of the replay.
func (w *watch) replayed() (list []item) {
	w.t.Helper()
	for {
		i := w.next()
		if strings.HasPrefix(i.comment, "replayed ") {
			return list
		}
		list = append(list, i)
	}
}

// all returns the events that came.
func (w *watch) all() (list []item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.items {
		if i.id != "" {
			list = append(list, i)
		}
	}
	return list
}

// count returns how many events and comments came, signs of life too.
func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items)
}
