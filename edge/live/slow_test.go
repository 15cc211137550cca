package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// slowly opens a stream over a raw connection with a small buffer.
func slowly(t *testing.T, h *edgetest.House, query string) net.Conn {
	t.Helper()
	d := net.Dialer{}
	c, err := d.DialContext(t.Context(), "tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /v1/agent/runs/run/stream?%s HTTP/1.0\r\nHost: x\r\n\r\n", query)
	return c
}

// TestR4SlowClientIsToldLess: a client that stays seconds behind is told less, reasoning first and then text,
// never a control event; what it missed is a gap that it can see, its final lifecycle says how much, the
// log and everybody else have all of it, and resuming from an older number gives it back.
func TestR4SlowClientIsToldLess(t *testing.T) {
	t.Parallel() // it waits
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.SendBuffer = 16 << 10 })
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	w := newWriter(t, h, key)
	w.add(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)})
	c := slowly(t, h, "")
	defer c.Close()
	slow := bufio.NewReader(c)
	if _, err := slow.ReadString('{'); err != nil { // it is there; from now on it reads nothing for a while
		t.Fatal(err)
	}
	quick := h.Watch(http.DefaultClient, "/v1/agent/runs/run/stream")
	filler := strings.Repeat("x", 2000)
	controls := 1
	add := func(n int) {
		for i := range n {
			w.add(schema.Event{Type: schema.TypeReasoningDelta, Payload: fmt.Appendf(nil, `{"text":"r%d %s"}`, i, filler)})
			w.add(schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"t%d %s"}`, i, filler)})
			w.add(schema.Event{Type: schema.TypeProgress, Payload: fmt.Appendf(nil, `{"done":%d}`, i)})
			controls++
		}
	}
	for range 14 {
		add(60)
		// Reads a little, late: each time a write has waited for it.
		time.Sleep(700 * time.Millisecond) // the client is slow: that is the test
		if _, err := io.CopyN(io.Discard, slow, 40<<10); err != nil {
			t.Fatal(err)
		}
	}
	w.add(schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done","reason":null}`)})
	controls++
	body, err := io.ReadAll(quick.B)
	if err != nil {
		t.Fatal(err)
	}
	all := readFrames(t, string(body))
	tiles(t, all, 0)
	if strings.Contains(string(body), "dropped_count") {
		t.Error("the quick client was told that it lost something")
	}
	// The rest of what the slow one gets, from the next whole frame on.
	if _, err := slow.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for {
		l, err := slow.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if l == "\n" {
			break
		}
	}
	f := edgetest.FrameReader{T: t, R: slow}
	var list []edgetest.Shown
	for s, ok := f.Next(); ok; s, ok = f.Next() {
		list = append(list, s)
	}
	gaps, texts, reasons := 0, 0, 0
	last := list[0].First() - 1
	for _, s := range list {
		if s.First() <= last {
			t.Fatalf("%d comes again behind %d", s.First(), last)
		}
		gaps += int(s.First() - last - 1)
		last = s.Seq
		switch s.Type {
		case schema.TypeTextDelta:
			texts++
		case schema.TypeReasoningDelta:
			reasons++
		}
	}
	var end struct {
		State   string `json:"state"`
		Dropped int    `json:"dropped_count"`
		Code    string `json:"dropped_code"`
	}
	final := list[len(list)-1]
	if err := json.Unmarshal(final.Payload, &end); err != nil || final.Type != schema.TypeRunLifecycle ||
		end.State != "done" ||
		end.Dropped == 0 || end.Dropped < gaps || end.Code != "KAI-STREAM-BUF-0001" {
		t.Fatalf("ends with %s", final.Line)
	}
	t.Logf("of %d events the slow client was spared %d (%d in the part that is looked at)", w.head.Last, end.Dropped, gaps)
	for i := 1; i < len(list); i++ { // no gap holds a control event
		for seq := list[i-1].Seq + 1; seq < list[i].First(); seq++ {
			if seq%3 == 1 {
				t.Fatalf("control event %d was dropped", seq)
			}
		}
	}
	edgetest.Eventually(t, "the log says it",
		func() bool { return strings.Contains(h.Logs.String(), fmt.Sprintf(`"dropped":%d`, end.Dropped)) })
	// What was spared is in the log: resuming from before gives it back.
	again := readFrames(t, h.Do("GET", "/v1/agent/runs/run/stream", "", "Last-Event-ID", "1").Events(t))
	tiles(t, again, 1)
	if strings.Contains(again[len(again)-1].Line, "dropped") {
		t.Error("the count was stored")
	}
	equalTexts(t, "again", saidBy(t, again), saidBy(t, all[1:]))
}

// TestFullDetailIsNeverThinned: a client that asked for everything gets everything, or is cut.
func TestFullDetailIsNeverThinned(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.SendBuffer, c.WriteTimeout = 16<<10, time.Second })
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	filler := strings.Repeat("x", 4000)
	for i := range 400 {
		w.add(schema.Event{Type: schema.TypeReasoningDelta, Payload: fmt.Appendf(nil, `{"text":"r%d %s"}`, i, filler)})
	}
	c := slowly(t, h, "detail=full")
	defer c.Close()
	edgetest.Eventually(t, "it is cut", func() bool { return strings.Contains(h.Logs.String(), `"reason":"slow client"`) })
	body, _ := io.ReadAll(c)
	_, rest, _ := strings.Cut(string(body), "\n\n") // the hint
	tiles(t, readFrames(t, rest), 0)
}

// slowDialer dials with a small buffer.
func slowDialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(16 << 10)
		}
		return c, err
	}
}
