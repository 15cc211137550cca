package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	be "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/protocols/metis/metistest"
)

// metis is a server of the metis protocol, as a client of it sees it.
type metis struct {
	t    testing.TB
	base string // http://host/metis
}

func metisAt(t testing.TB, p *proc) metis { return metis{t, p.url("/metis")} }

// do sends a request with a JSON body, or none, and returns status and answer.
func (m metis) do(method, path string, body any, header ...string) (int, map[string]any) {
	m.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			m.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(m.t.Context(), method, m.base+path, in)
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	var out map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber() // payloads have some that no float is
	if err := numbers.Decode(&out); err != nil {
		m.t.Fatalf("%s %s: %d %.300s: %v", method, path, resp.StatusCode, text, err)
	}
	return resp.StatusCode, out
}

// must is do with the status that is wanted.
func (m metis) must(status int, method, path string, body any) map[string]any {
	m.t.Helper()
	got, out := m.do(method, path, body)
	if got != status {
		m.t.Fatalf("%s %s: %d %v, want %d", method, path, got, out, status)
	}
	return out
}

func (m metis) create() string {
	m.t.Helper()
	out := m.must(201, "POST", "/sessions", map[string]any{"workspace_path": "/w"})
	id, _ := out["session_id"].(string)
	if id == "" || out["id"] != id {
		m.t.Fatalf("created %v", out)
	}
	return id
}

// say submits a turn and returns its id.
func (m metis) say(session, text string) string {
	m.t.Helper()
	out := m.must(202, "POST", "/sessions/"+session+"/turns",
		map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
	turn, _ := out["turn_id"].(string)
	if turn == "" || out["session_id"] != session || out["submitted_at"] == nil || out["user_message_id"] == nil {
		m.t.Fatalf("submitted %v", out)
	}
	return turn
}

// events returns the events of a session by pages (digest 6), those of its workers not among them.
func (m metis) events(session string) (all []metisEvent) {
	m.t.Helper()
	for cursor := ""; ; {
		out := m.must(200, "GET", "/sessions/"+session+"/events?limit=1000&cursor="+url.QueryEscape(cursor), nil)
		page, _ := out["events"].([]any)
		for _, e := range page {
			b, err := json.Marshal(e)
			if err != nil {
				m.t.Fatal(err)
			}
			all = append(all, metisEventOf(m.t, b))
		}
		next, _ := out["next_cursor"].(string)
		if next == "" {
			return all
		}
		cursor = next
	}
}

// metisEvent is an event with its bytes.
type metisEvent struct {
	metistest.Event
	raw string
	p   metistest.Payload
}

func metisEventOf(t testing.TB, raw []byte) (e metisEvent) {
	t.Helper()
	if err := json.Unmarshal(raw, &e.Event); err != nil {
		t.Fatalf("%v: %.300s", err, raw)
	}
	_ = json.Unmarshal(e.Payload, &e.p) // of events that the test does not know, as it can
	e.raw = string(raw)
	return e
}

// metisConn is a WebSocket of a client that was written from RFC 6455 and the protocol's text, and can do wrong.
type metisConn struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	fold metistest.Fold
	deaf bool // answers no ping
	bare bool // frames are neither held to the schemas nor folded: others are
	ack  struct {
		Filter   map[string]any `json:"resolved_filter"`
		Since    any            `json:"since"`
		Snapshot bool           `json:"snapshot"`
		Replay   int            `json:"replay_event_count"`
	}
	snapshot []byte
	events   []metisEvent
	pings    int
}

// metisClosed is how a server ended a connection; code 1006 without a close frame.
type metisClosed struct {
	code   int
	reason string
}

func (c *metisClosed) Error() string { return fmt.Sprintf("closed with %d %s", c.code, c.reason) }

// attach opens a socket of a session, with a token of its own.
func (m metis) attach(session string) *metisConn {
	m.t.Helper()
	out := m.must(200, "GET", "/sessions/"+session, nil)
	token, _ := out["attach_token"].(string)
	at, _ := out["ws_url"].(string)
	if !strings.HasPrefix(token, "atk_") || !strings.HasSuffix(at, "/sessions/"+session+"/stream?attach="+token) {
		m.t.Fatalf("session %v", out)
	}
	return m.dial(session, at)
}

// dial opens a socket at a URL. Headers are lines.
func (m metis) dial(session, at string, headers ...string) *metisConn {
	m.t.Helper()
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "ws" {
		m.t.Fatalf("ws_url %s: %v", at, err)
	}
	conn, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", u.Host)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	c := &metisConn{t: m.t, conn: conn, in: bufio.NewReaderSize(conn, 1<<10), fold: metistest.Fold{Session: session}}
	c.patience()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", u.RequestURI(), u.Host, strings.Join(headers, ""))
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols ||
		resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		m.t.Fatalf("upgrade: %v %v", resp, err)
	}
	return c
}

// patience bounds how long the client waits for what must come next.
func (c *metisConn) patience() {
	if err := c.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
}

const (
	opText, opBinary, opClose, opPing, opPong = 1, 2, 8, 9, 10
)

// write sends one WebSocket frame. A connection that is gone is noticed when it is read.
func (c *metisConn) write(op byte, payload []byte) {
	c.t.Helper()
	head := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		head = append(head, 0x80|byte(n))
	case n < 1<<16:
		head = be.BigEndian.AppendUint16(append(head, 0x80|126), uint16(n))
	default:
		head = be.BigEndian.AppendUint64(append(head, 0x80|127), uint64(n))
	}
	mask := make([]byte, 4)
	_, _ = rand.Read(mask) // it never fails
	head = append(head, mask...)
	for i, b := range payload {
		head = append(head, b^mask[i%4])
	}
	_, _ = c.conn.Write(head)
}

func (c *metisConn) send(v any) {
	c.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(opText, b)
}

// read returns the next text frame; the error is a *metisClosed.
func (c *metisConn) read() ([]byte, error) {
	for {
		c.patience()
		head := make([]byte, 2)
		if _, err := io.ReadFull(c.in, head); err != nil {
			if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
				c.t.Fatalf("nothing came; events so far: %s", c.story())
			}
			return nil, &metisClosed{1006, err.Error()}
		}
		n := uint64(head[1] & 0x7f)
		if more := map[uint64]int{126: 2, 127: 8}[n]; more > 0 {
			size := make([]byte, 8)
			if _, err := io.ReadFull(c.in, size[8-more:]); err != nil {
				return nil, &metisClosed{1006, err.Error()}
			}
			n = be.BigEndian.Uint64(size)
		}
		if head[0]&0x80 == 0 || head[1]&0x80 != 0 {
			c.t.Fatalf("a frame begins with %x", head)
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(c.in, payload); err != nil {
			return nil, &metisClosed{1006, err.Error()}
		}
		switch op := head[0] & 0xf; op {
		case opText:
			return payload, nil
		case opPing:
			c.write(opPong, payload)
		case opPong:
		case opClose:
			c.write(opClose, payload[:min(2, len(payload))])
			if len(payload) < 2 {
				return nil, &metisClosed{1005, ""}
			}
			return nil, &metisClosed{int(be.BigEndian.Uint16(payload)), string(payload[2:])}
		default:
			c.t.Fatalf("a frame of kind %d", op)
		}
	}
}

// frame takes the next frame that the client acts on, and returns its type. Pings are answered.
func (c *metisConn) frame() (typ string, frame []byte, err error) {
	c.t.Helper()
	frame, err = c.read()
	if err != nil {
		return "", nil, err
	}
	if !c.bare {
		if err := errors.Join(metistest.Valid(frame), c.fold.Frame(frame)); err != nil {
			c.t.Error(err)
		}
	}
	var f struct {
		Type  string
		Nonce string
		Event json.RawMessage
	}
	if err := json.Unmarshal(frame, &f); err != nil {
		c.t.Fatalf("%v: %.300s", err, frame)
	}
	switch f.Type {
	case "ping":
		if c.pings++; !c.deaf {
			c.send(map[string]any{"type": "pong", "nonce": f.Nonce})
		}
		return c.frame()
	case "event":
		c.events = append(c.events, metisEventOf(c.t, f.Event))
		c.fold.Last = c.events[len(c.events)-1].ID
	case "snapshot":
		c.snapshot = frame
	}
	return f.Type, frame, nil
}

// subscribe asks for a stream. It returns "" when the server agrees, and the code of its refusal when not.
func (c *metisConn) subscribe(filter any, since string, snapshot bool) (code string) {
	c.t.Helper()
	var cursor any
	if since != "" {
		cursor = since
	}
	c.send(map[string]any{"type": "subscribe", "filter": filter, "since": cursor, "snapshot": snapshot})
	typ, frame, err := c.frame()
	if err != nil {
		c.t.Fatal(err)
	}
	switch typ {
	case "subscribe_ack":
		if err := json.Unmarshal(frame, &c.ack); err != nil || c.ack.Since != cursor || c.ack.Snapshot != snapshot {
			c.t.Errorf("%s: %v", frame, err)
		}
		if snapshot {
			if typ, frame, err = c.frame(); typ != "snapshot" {
				c.t.Fatalf("behind the ack comes %s %v", frame, err)
			}
		}
		return ""
	case "subscribe_error":
		var e struct{ Code, Message string }
		if err := json.Unmarshal(frame, &e); err != nil || e.Message == "" {
			c.t.Errorf("%s: %v", frame, err)
		}
		c.t.Logf("refused: %s", e.Message)
		return e.Code
	}
	c.t.Fatalf("an answer to subscribe is %s", frame)
	return ""
}

const (
	metisChat = "preset:chat"
	metisFull = "preset:full"
)

// metisAll is everything there is, workers too.
var metisAll = map[string]any{"event_types": nil, "actors": nil, "include_worker_sessions": true}

// watch is attach and subscribe.
func (m metis) watch(session string, filter any, since string, snapshot bool) *metisConn {
	m.t.Helper()
	c := m.attach(session)
	if code := c.subscribe(filter, since, snapshot); code != "" {
		m.t.Fatalf("subscribe to %s behind %q: %s", session, since, code)
	}
	return c
}

// event returns the next event.
func (c *metisConn) event() (metisEvent, error) {
	c.t.Helper()
	for n := len(c.events); ; {
		if _, _, err := c.frame(); err != nil {
			return metisEvent{}, err
		}
		if len(c.events) > n {
			return c.events[n], nil
		}
	}
}

// until reads up to an event of a type of the session itself.
func (c *metisConn) until(types ...string) metisEvent {
	c.t.Helper()
	return c.untilOf(c.fold.Session, types...)
}

func (c *metisConn) untilOf(session string, types ...string) metisEvent {
	c.t.Helper()
	for {
		e, err := c.event()
		if err != nil {
			c.t.Fatalf("%v before %v; %s", err, types, c.story())
		}
		if slices.Contains(types, e.Type) && (session == "" || e.Session == session) {
			return e
		}
	}
}

// turnEnd reads to the end of the turn in flight.
func (c *metisConn) turnEnd() metisEvent {
	c.t.Helper()
	return c.until("turn.completed", "turn.cancelled")
}

// quiet reports what comes before the answer to a ping: "" when nothing does.
func (c *metisConn) quiet() string {
	c.t.Helper()
	c.send(map[string]any{"type": "ping", "nonce": "quiet?"})
	typ, frame, err := c.frame()
	switch {
	case err != nil:
		return err.Error()
	case typ != "pong" || !strings.Contains(string(frame), `"quiet?"`):
		return string(frame)
	}
	return ""
}

// closed reads to the end of the connection.
func (c *metisConn) closed() *metisClosed {
	c.t.Helper()
	for {
		if _, _, err := c.frame(); err != nil {
			var end *metisClosed
			errors.As(err, &end)
			return end
		}
	}
}

func (c *metisConn) close() {
	c.write(opClose, []byte{0x03, 0xe8})
	_ = c.conn.Close() // it is gone either way
}

// story is the types of events, those of workers in brackets, deltas of a kind once.
func (c *metisConn) story() string { return metisStory(c.fold.Session, c.events) }

func metisStory(session string, events []metisEvent) string {
	var out []string
	for _, e := range events {
		line := e.Type
		if e.Session != session {
			line = "[" + line + "]"
		}
		if n := len(out); n > 0 && strings.Contains(line, "delta") && out[n-1] == line {
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

// bytesOf are the bytes of events.
func bytesOf(events []metisEvent) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.raw
	}
	return out
}

// metisFilter is what a filter of the protocol shows, computed by the test.
type metisFilter struct {
	name          string
	filter        any
	types, actors []string // nil: all
	workers       bool
}

// metisChatTypes is what preset:chat stands for (digest 5).
var metisChatTypes = strings.Fields(`turn.started turn.completed turn.cancelled route.decided llm.call_started llm.call_completed
	llm.call_failed tool.called tool.completed tool.failed tool.confirmation_requested tool.confirmation_resolved memory.updated
	memory.eviction message.start text.delta thinking.delta tool.use_start tool.use_input_delta tool.use_end message.complete
	tool.input_invalid delegate.started delegate.completed delegate.failed feedback.explicit feedback.implicit`)

// metisFilters are the three that streams are resumed under.
var metisFilters = []metisFilter{
	{"all", metisAll, nil, nil, true},
	{"chat", metisChat, metisChatTypes, nil, false},
	{"few", map[string]any{"event_types": []string{"turn.started", "text.delta", "message.complete"},
		"actors": []string{"agent", "worker"}, "include_worker_sessions": true},
		[]string{"turn.started", "text.delta", "message.complete"}, []string{"agent", "worker"}, true},
}

func (f metisFilter) shows(session string, e *metisEvent) bool {
	return (f.workers || e.Session == session) && (f.types == nil || slices.Contains(f.types, e.Type)) &&
		(f.actors == nil || slices.Contains(f.actors, e.Actor))
}
