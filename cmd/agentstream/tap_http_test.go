package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"github.com/nats-io/nats.go"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/taps"
	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// tapHouse is a log with nodes before it.
type tapHouse struct {
	*testing.T
	server *testkit.Server
	runs   []*persistertest.Writer
}

func newTapHouse(t *testing.T) *tapHouse {
	h := &tapHouse{T: t, server: testkit.NATS(t)}
	for i := range 6 {
		h.runs = append(h.runs, persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)},
			"20260228"))
	}
	return h
}

// write stores packs of four events.
func (h *tapHouse) write(packs int) {
	h.Helper()
	for i := range packs {
		p := h.runs[i%len(h.runs)].Texts("", 4)
		m := &nats.Msg{Subject: schema.Subject(p.Key, "", h.server.Partitions), Header: p.Headers(), Data: p.Body}
		if _, err := h.server.JS.PublishMsg(h.Context(), m); err != nil {
			h.Fatal(err)
		}
	}
}

// node starts an edge, and returns its address and what ends it.
func (h *tapHouse) node() (url string, end func()) {
	h.Helper()
	flags := &node.ListenFlags{Listen: "127.0.0.1:0", AdminListen: "off", KeepAlive: 100 * time.Millisecond,
		WriteLimit: 10 * time.Second, Tenant: "acme"}
	n, err := node.New(h.Context(), node.Config{Conn: h.server.Dial(h), Live: h.server.Dial(h), Flags: flags,
		Metrics: process.NewMetrics(),
		Logger:  slog.New(slog.DiscardHandler)})
	if err != nil {
		h.Fatal(err)
	}
	ln, err := process.Listen(h.Context(), "--listen", flags.Listen)
	if err != nil {
		h.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- process.RunStages(ctx, n.Stages(ln)...) }()
	ended := false
	end = func() {
		if !ended {
			ended = true
			stop()
			<-done
		}
	}
	h.Cleanup(end)
	return "http://" + ln.Addr().String(), end
}

// client speaks to a node.
func (h *tapHouse) client(url string) *agentstream.Client {
	h.Helper()
	c, err := agentstream.New(agentstream.Config{BaseURL: url, GiveUp: time.Minute})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(c.Close)
	return c
}

// A named tap is cut again and again, and goes on at another node after what it has acknowledged: it gets every
// event, and each once where all was acknowledged.
func TestTapHTTP(t *testing.T) {
	h := newTapHouse(t)
	h.write(60)
	one, endOne := h.node()
	two, _ := h.node()
	count, last := map[string]int{}, map[string]schema.Seq{}
	read := func(url string, events int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c, cursor := h.client(url), ""
		for r, err := range c.Tap(ctx, agentstream.TapOptions{Name: "bill", Types: []string{"text.*"}}) {
			if err != nil {
				t.Fatal(err, events)
			}
			cursor = r.Cursor
			if r.Line == nil {
				continue
			}
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq < last[e.RunID] {
				t.Fatalf("%s: %d after %d", e.RunID, e.Seq, last[e.RunID])
			}
			last[e.RunID] = e.Seq
			count[fmt.Sprint(e.RunID, e.Seq)]++
			if events--; events == 0 {
				break
			}
		}
		if err := c.Acknowledge(ctx, "bill", cursor); err != nil {
			t.Fatal(err)
		}
	}
	read(one, 7)
	read(two, 101)
	read(one, 30)
	endOne()
	h.write(10)
	read(two, 240+40-138)
	if len(count) != 280 {
		t.Fatal(len(count))
	}
	for key, n := range count {
		if n != 1 {
			t.Error(key, n)
		}
	}
}

// get asks a node, and returns the answer's status and the beginning of its body.
func (h *tapHouse) get(method, url string, body string, want int, headers ...string) string {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 1<<12)
	n, err := io.ReadFull(resp.Body, b[:400])
	if want == http.StatusOK && !errors.Is(err, io.ErrUnexpectedEOF) && err != nil || resp.StatusCode != want {
		h.Fatalf("%s %s: %d, %v: %s", method, url, resp.StatusCode, err, b[:n])
	}
	return string(b[:n])
}

// What a tap looks like on the wire, and what is refused.
func TestTapWire(t *testing.T) {
	h := newTapHouse(t)
	h.write(6)
	url, _ := h.node()
	stream := url + "/v1/agent/events/stream"
	if got := h.get("GET", stream, "", 200); !strings.Contains(got, "event: tap.place\ndata: {}\nid: A") ||
		!strings.Contains(got, "data: {\"id\":") {
		t.Error(got)
	}
	lines := h.get("GET", stream+"?types=text.delta", "", 200, "Accept", "application/x-ndjson")
	if !strings.HasPrefix(lines, `{"cursor":"A`) || !strings.Contains(lines, `","event":{"id":"`) {
		t.Error(lines)
	}
	for _, bad := range []string{"?from=yesterday", "?cursor=x", "?types=a*b", "?tap=a.b", "?tap=a&tap=b",
		"?cursor=" + strings.Repeat("A", 4000)} {
		h.get("GET", stream+bad, "", 400)
	}
	place := url + "/v1/agent/taps/bill"
	h.get("GET", place, "", 404)
	h.get("DELETE", place, "", 404)
	for _, bad := range []string{"", "{}", `{"cursor":"x"}`, `{"cursor":7}`} {
		h.get("POST", place, bad, 400, "Content-Type", "application/json")
	}
	cursor, _, _ := strings.Cut(strings.TrimPrefix(lines, `{"cursor":"`), `"`)
	h.get("POST", place, `{"cursor":"`+cursor+`"}`, 200, "Content-Type", "application/json")
	if got := h.get("GET", place, "", 200); !strings.Contains(got, cursor) {
		t.Error(got)
	}
	h.get("DELETE", place, "", 200)
}

// socketTap is the client of a tap over a WebSocket.
type socketTap struct {
	gws.BuiltinEventHandler
	came chan string
}

func (s *socketTap) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	s.came <- string(m.Bytes())
}

// Over a WebSocket the same records come, and are acknowledged by messages.
func TestTapSocket(t *testing.T) {
	h := newTapHouse(t)
	h.write(6)
	url, _ := h.node()
	s := &socketTap{came: make(chan string, 100)}
	conn, _, err := gws.NewClient(s, &gws.ClientOption{Addr: "ws" + strings.TrimPrefix(url, "http") +
		"/v1/agent/events/stream?tap=bill"})
	if err != nil {
		t.Fatal(err)
	}
	go conn.ReadLoop()
	defer func() { _ = conn.NetConn().Close() }()
	record := ""
	for range 25 { // the place, and 24 events
		select {
		case record = <-s.came:
		case <-time.After(30 * time.Second):
			t.Fatal("too few records")
		}
	}
	cursor, _, _ := strings.Cut(strings.TrimPrefix(record, `{"cursor":"`), `"`)
	if err := conn.WriteString(`{"ack":"` + cursor + `"}`); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(h.get("GET", url+"/v1/agent/taps/bill", "",
		200), cursor); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not acknowledged")
		}
	}
	if err := conn.WriteString(`{"ack":7}`); err != nil {
		t.Fatal(err)
	}
	if got := <-s.came; !strings.Contains(got, "BAD-REQUEST") {
		t.Error(got)
	}
}

// The command reads from a server in place of NATS, and goes on there after what it has delivered.
func TestTapCommandOverHTTP(t *testing.T) {
	h := newTapHouse(t)
	h.write(30)
	url, _ := h.node()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	for _, lines := range []int{120, 160} {
		ctx, stop := context.WithCancel(t.Context())
		c := taps.RunCmd{Name: "audit", From: "all", Server: url, Linger: 10 * time.Millisecond, Batch: 50,
			SinkFlags: taps.SinkFlags{To: []string{"file:" + path}}}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx, slog.New(slog.DiscardHandler)) }()
		clitest.WaitFor(t, func() bool {
			text, err := os.ReadFile(path)
			return err == nil && strings.Count(string(text), "\n") >= lines
		})
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), "\n") != lines ||
			!strings.HasPrefix(string(text), `{"tenant":"acme","id":"`) {
			t.Fatalf("%d lines, %v", strings.Count(string(text), "\n"), err)
		}
		h.write(10)
	}
}
