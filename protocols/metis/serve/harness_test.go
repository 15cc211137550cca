package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lxzan/gws"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/protocols/metis/serve"
	"agentstream/schema"
)

func TestMain(m *testing.M) { edgetest.Main(m, "metis") }

const (
	path = serve.Base + "/sessions"
	as   = edgetest.As
)

// node is a running server.
type node struct{ *edgetest.Node }

// answer is a response that was read whole.
type answer struct{ edgetest.Answer }

// do asks; headers are name, value, name, value …
func (n *node) do(method, path, body string, headers ...string) answer {
	n.T.Helper()
	return answer{n.Do(method, path, body, headers...)}
}

// object is a JSON object that was read.
type object = edgetest.Object

var (
	event      = edgetest.Event
	eventually = edgetest.Eventually
)

// start makes a node over a log of its own.
func start(t testing.TB, cfg serve.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	return join(t, edgetest.Share(), cfg, change...)
}

// join makes another node over the same log.
func join(t testing.TB, all *edgetest.Nodes, cfg serve.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	return &node{all.Start(t, serve.Protocol(cfg), change...)}
}

// refused holds that a request was refused in the protocol's form.
func (a answer) refused(status int, code string) {
	a.T.Helper()
	var o struct {
		Error struct {
			Code, Message string
			Details       map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil || a.Status != status || o.Error.Code != code ||
		o.Error.Message == "" || o.Error.Details == nil {
		a.T.Errorf("%s: %d, want %d %s: %s", a.Asked, a.Status, status, code, a.Body)
	}
}

// create makes a session.
func (n *node) create() string {
	n.T.Helper()
	return n.do("POST", path, `{"workspace_path":"/w"}`).OK(201).Str("session_id")
}

const hello = `{"content":[{"type":"text","text":"hello"}]}`

// submit begins a turn and returns its id.
func (n *node) submit(id string) string {
	n.T.Helper()
	return n.do("POST", path+"/"+id+"/turns", hello).OK(202).Str("turn_id")
}

func of(child string, e schema.Event) schema.Event {
	e.ChildID = child
	return e
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

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
	hold   chan struct{} // reading waits for it; nil: it does not
}

func (k *talker) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	k.mu.Lock()
	hold := k.hold
	k.mu.Unlock()
	if hold != nil {
		<-hold
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frames = append(k.frames, string(m.Bytes()))
}

func (k *talker) OnClose(_ *gws.Conn, err error) {
	k.err = err
	close(k.closed)
}

// token mints what opens a session's socket once.
func (n *node) token(id string, headers ...string) string {
	n.T.Helper()
	return n.do("GET", path+"/"+id, "", headers...).OK(200).Str("attach_token")
}

// attach opens the socket of a session.
func (n *node) attach(id string, headers ...string) *talker {
	n.T.Helper()
	return n.dial(path + "/" + id + "/stream?attach=" + n.token(id, headers...))
}

func (n *node) dial(at string) *talker {
	n.T.Helper()
	k := &talker{t: n.T, closed: make(chan struct{})}
	o := &gws.ClientOption{Addr: "ws://" + n.Host + at, ReadMaxPayloadSize: 16 << 20}
	if p := n.Nodes.Pipes; p != nil {
		o.NewDialer = func() (gws.Dialer, error) { return p, nil }
	}
	conn, _, err := gws.NewClient(k, o)
	if err != nil {
		n.T.Fatal(err)
	}
	k.conn = conn
	go conn.ReadLoop()
	n.T.Cleanup(func() { _ = conn.NetConn().Close(); <-k.closed })
	return k
}

func (k *talker) say(text string) {
	k.t.Helper()
	if err := k.conn.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

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

// stops reading until what it returns is called.
func (k *talker) stops() (wake func()) {
	hold := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hold = hold
	return sync.OnceFunc(func() { close(hold) })
}

// want reads frames of these types; an event's is that of the event.
func (k *talker) want(types ...string) (last object) {
	k.t.Helper()
	for _, typ := range types {
		last = k.next()
		if got := typeOf(last); got != typ {
			k.t.Fatalf("%s, want %s: %v", got, typ, last)
		}
	}
	return last
}

func typeOf(o object) string {
	if o.Str("type") == "event" {
		return o.Str("event", "type")
	}
	return o.Str("type")
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

// subscribed sends a subscribe and returns its ack.
func (k *talker) subscribed(filter, since string, snapshot bool) object {
	k.t.Helper()
	k.say(subscribe(filter, since, snapshot))
	return k.want("subscribe_ack")
}

func subscribe(filter, since string, snapshot bool) string {
	place := "null"
	if since != "" {
		place = fmt.Sprintf("%q", since)
	}
	return fmt.Sprintf(`{"type":"subscribe","filter":%s,"since":%s,"snapshot":%t}`, filter, place, snapshot)
}

const full, chat = `"preset:full"`, `"preset:chat"`
