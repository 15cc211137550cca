package live_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// tapTalk opens a conversation with nothing between the test and the connection.
func tapTalk(h *edgetest.House, window int, headers ...string) *edgetest.Tap {
	h.T.Helper()
	k := h.MustTap("ws", "/talk/lobby", window, headers...)
	if line, err := k.Event(); err != nil || !strings.Contains(line, `"hello"`) {
		h.T.Fatalf("%v %s", err, line)
	}
	return k
}

// TestConversationTakesAnything sends what no client should: it is refused in words and the conversation goes on, or
// it is closed with a code.
func TestConversationTakesAnything(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		c.Authenticate = readersToo
		edgetest.SampleTalk(c).Malformed = nil
	})
	h.Tell("run", edgetest.Lifecycle("running"))
	text := func(s string) []byte { return edgetest.ClientFrame(0x81, s) }
	subscribe := `{"do":"subscribe","id":"%s","run":"%s","after":%d}`
	for name, tt := range map[string]struct {
		send []byte
		want string // code of a refusal, or what is answered
		code int    // close code
		who  string
	}{
		"no JSON":                   {send: text("hello?"), want: "BAD-REQUEST"},
		"half of it":                {send: text(`{"do":`), want: "BAD-REQUEST"},
		"another type":              {send: text(`{"do":7}`), want: "BAD-REQUEST"},
		"nothing":                   {send: text(""), want: "BAD-REQUEST"},
		"an unknown word":           {send: text(`{"do":"dance"}`), want: "BAD-REQUEST"},
		"a bad run":                 {send: text(fmt.Sprintf(subscribe, "a", "x.>", 0)), want: "BAD-ID"},
		"a run that is not there":   {send: text(fmt.Sprintf(subscribe, "a", "none", 0)), want: "NOT-FOUND"},
		"a place that is not there": {send: text(fmt.Sprintf(subscribe, "a", "run", 99)), want: "CURSOR-AHEAD"},
		"a place before the first":  {send: text(fmt.Sprintf(subscribe, "a", "run", -1)), want: "BAD-CURSOR"},
		"no such subscription":      {send: text(`{"do":"unsubscribe","id":"z"}`), want: "NOT-FOUND"},
		"a change of none":          {send: text(`{"do":"change","id":"z","run":"run"}`), want: "NOT-FOUND"},
		"words of who may only read": {send: text(`{"do":"say","run":"run","text":"x"}`), want: "FORBIDDEN",
			who: "just-reads"},
		"an event that is not allowed": {send: text(`{"do":"say","run":"a b","text":"x"}`), want: "NOT-FOUND"},
		"too large":                    {send: text(strings.Repeat("x", 4<<10+1)), code: 1009},
		"too large, in parts": {send: append(edgetest.ClientFrame(0x01, strings.Repeat("x", 4<<10)),
			edgetest.ClientFrame(0x80, "y")...), code: 1009},
		"binary":   {send: edgetest.ClientFrame(0x82, "x"), code: 1003},
		"no UTF-8": {send: text("\xFF"), code: 1007},
		"no frame": {send: []byte("\xFF\xFF\xFF\xFF\xFF\xFF"), code: 1002},
		"a message in parts": {send: bytes.Join([][]byte{edgetest.ClientFrame(0x01, `{"do":"pi`),
			edgetest.ClientFrame(0x89, "?"), edgetest.ClientFrame(0x00, `ng","id`),
			edgetest.ClientFrame(0x80, `":"x"}`)}, nil), want: `"id":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{}
			if tt.who != "" {
				headers = append(headers, edgetest.TenantHeader, tt.who)
			}
			k := tapTalk(h, 0, headers...)
			k.Send(tt.send)
			line, err := k.Answer()
			if tt.code != 0 {
				if !errors.Is(err, edgetest.ErrClosed) || k.Code != tt.code {
					t.Fatalf("%q, %v, %d %s, want %d", line, err, k.Code, k.Reason, tt.code)
				}
				return
			}
			if err != nil || !strings.Contains(line, tt.want) {
				t.Fatalf("%v %s, want %s", err, line, tt.want)
			}
			k.Send(text(`{"do":"ping","id":"still here"}`))
			if line, err := k.Answer(); err != nil || !strings.Contains(line, "still here") {
				t.Fatalf("%v %s", err, line)
			}
		})
	}
	k := tapTalk(h, 0)
	var all []byte
	for i := range 1000 {
		all = append(all, text(fmt.Sprintf(`{"do":"ping","id":"%d"}`, i))...)
	}
	go func() { _, _ = k.Tcp.Write(all) }()
	for i := range 1000 {
		if line, err := k.Answer(); err != nil || !strings.Contains(line, fmt.Sprintf(`"id":"%d"`, i)) {
			t.Fatalf("%d: %v %s", i, err, line)
		}
	}
	for i, want := range []string{`"re":"subscribe"`, `"re":"subscribe"`, "BUSY"} {
		k.Send(text(fmt.Sprintf(subscribe, fmt.Sprint(i), "run", 1)))
		if line, err := k.Answer(); err != nil || !strings.Contains(line, want) {
			t.Fatalf("%v %s, want %s", err, line, want)
		}
	}
	k.Send(text(fmt.Sprintf(subscribe, "1", "run", 1)))
	if line, err := k.Answer(); err != nil || !strings.Contains(line, "BAD-REQUEST") {
		t.Fatalf("an id twice: %v %s", err, line)
	}
	if strings.Contains(h.Logs.String(), `"level":"ERROR"`) {
		t.Error(h.Logs.String())
	}
}

// TestConversationTurnsAway: a caller who may not open a conversation is refused after the upgrade, by a close code, and
// a page of another origin before it.
func TestConversationTurnsAway(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking)
	k := h.MustTap("ws", "/talk/lobby", 0, edgetest.TenantHeader, "nobody")
	if _, err := k.Event(); !errors.Is(err, edgetest.ErrClosed) || k.Code != 1008 ||
		!strings.HasPrefix(k.Reason, "UNAUTHORIZED") {
		t.Errorf("%v: %d %s", err, k.Code, k.Reason)
	}
	if _, err := h.Tap("ws", "/talk/lobby", 0, "Origin", "https://elsewhere.example"); err == nil ||
		!strings.HasPrefix(err.Error(), "403 ") {
		t.Errorf("a foreign page: %v", err)
	}
	h.Vacant()
}

// TestConversationsEnd ends conversations, with a parked subscription and without one, as streams end.
func TestConversationsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		do     func(h *edgetest.House, revoked *atomic.Bool, k *edgetest.Tap)
		code   int
		reason string
	}{
		"drain": {func(h *edgetest.House, _ *atomic.Bool, _ *edgetest.Tap) { go func() { _ = h.Stop() }() }, 1001,
			"SHUTTING-DOWN"},
		"revocation": {func(_ *edgetest.House, revoked *atomic.Bool, _ *edgetest.Tap) { revoked.Store(true) }, 1008,
			"CREDENTIAL-EXPIRED"},
		"bye": {func(_ *edgetest.House, _ *atomic.Bool, k *edgetest.Tap) {
			k.Send(edgetest.ClientFrame(0x81, `{"do":"bye"}`))
		}, 1000, "bye"},
		"client": {func(_ *edgetest.House, _ *atomic.Bool, k *edgetest.Tap) {
			k.Send(edgetest.ClientFrame(0x88, "\x03\xE8"))
		}, 1000, ""},
	} {
		for _, subscribed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/subscribed=%v", name, subscribed), func(t *testing.T) {
				t.Parallel()
				revoked := new(atomic.Bool)
				h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
					c.Recheck = 10 * time.Millisecond
					c.Still = func(auth.Caller) error {
						if revoked.Load() {
							return errors.New("taken back")
						}
						return nil
					}
				})
				h.Tell("run", edgetest.Lifecycle("running"))
				k := tapTalk(h, 0)
				if subscribed {
					k.Send(edgetest.ClientFrame(0x81, `{"do":"subscribe","id":"a","run":"run","after":1}`))
					if _, err := k.Answer(); err != nil {
						t.Fatal(err)
					}
					awaitParked(h, 1)
				}
				end.do(h, revoked, k)
				if line, err := k.Answer(); !errors.Is(err, edgetest.ErrClosed) || k.Code != end.code ||
					!strings.HasPrefix(k.Reason, end.reason) {
					t.Errorf("%q %v: %d %q", line, err, k.Code, k.Reason)
				}
				h.Vacant()
			})
		}
	}
}

// TestConversationOrder has a run written to, while a client subscribes, unsubscribes and says things as fast as it
// can: what is said is answered in order, a subscription begins behind its answer and tiles, and nothing of it comes
// behind the answer to its end.
func TestConversationOrder(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking)
	h.Tell("run", edgetest.Lifecycle("running"))
	const rounds, said = 40, 200
	k := h.Talk()
	var writers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() {
			for n := range said {
				h.Tell("run", fmt.Sprintf(`{"type":"custom.said","payload":{"by":%d,"n":%d}}`, i, n))
			}
		})
	}
	last := map[string]schema.Seq{}
	seen := func(m edgetest.Heard) {
		t.Helper()
		at, open := last[m.On]
		if !open || m.Seq != at+1 {
			t.Fatalf("%s behind %d (open: %v)", m.Raw, at, open)
		}
		last[m.On] = m.Seq
	}
	for round := range rounds {
		id := fmt.Sprint(round % 2)
		if at, open := last[id]; open {
			m := k.Ask(seen, `{"do":"unsubscribe","id":"%s"}`, id)
			if m.Re != "unsubscribe" || m.At != last[id] {
				t.Fatalf("%+v, want %d behind %d", m, last[id], at)
			}
			delete(last, id)
		}
		if m := k.Ask(seen, `{"do":"say","run":"run","id":"%d","text":"x"}`, round); m.Re != "say" ||
			m.ID != fmt.Sprint(round) {
			t.Fatalf("%+v", m)
		}
		m := k.Ask(seen, `{"do":"subscribe","id":"%s","run":"run","after":%d}`, id, round)
		if m.Re != "subscribe" {
			t.Fatalf("%+v", m)
		}
		last[id] = m.At
	}
	writers.Wait()
	h.Tell("run", edgetest.Lifecycle("done"))
	end := h.Last("run")
	for ended := 0; ended < len(last); {
		if m := k.Next(); m.On != "" {
			seen(m)
		} else if ended++; m.Re != "ended" || last[m.ID] != end {
			t.Fatalf("%s at %d of %d", m.Raw, last[m.ID], end)
		}
	}
}

// TestSubscriptionGoesOnElsewhere takes a subscription up on another node, behind what the client has: exactly the rest
// comes.
func TestSubscriptionGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking)
	other := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) { c.Hub = h.Hub })
	h.Tell("run", edgetest.Lifecycle("running"))
	for range 20 {
		h.Tell("run", `{"type":"progress","payload":{"done":1}}`)
	}
	h.Tell("run", edgetest.Lifecycle("done"))
	end := h.Last("run")
	for after := range end {
		k := other.Talk()
		if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"run","after":%d}`, after); m.At != after {
			t.Fatalf("%+v", m)
		}
		for want := after + 1; want <= end; want++ {
			if m := k.Next(); m.On != "a" || m.Seq != want {
				t.Fatalf("after %d: %s, want %d", after, m.Raw, want)
			}
		}
		if m := k.Next(); m.Re != "ended" {
			t.Fatalf("%+v", m)
		}
		_ = k.Conn.NetConn().Close()
	}
	k := other.Talk()
	if m := k.Ask(nil, `{"do":"subscribe","id":"a","run":"run","after":%d}`, end); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	if m := k.Next(); m.Re != "ended" {
		t.Fatalf("%+v", m)
	}
	_ = k.Conn.NetConn().Close()
}

// TestConversationIsNotRead has a client that does not read what it subscribes to. It is cut; another one on the same
// run gets everything meanwhile, and nothing is left. That one has every event before the next one is written, and is
// parked: its buffers have room for one, so that nothing waits for it, however slow the machine is.
func TestConversationIsNotRead(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		c.WriteTimeout, c.SendBuffer = 200*time.Millisecond, 64<<10
		c.KeepAlive = time.Hour // a ping is to be answered within the write time-out
	})
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	slow, brisk := tapTalk(h, 4<<10), h.Talk()
	for _, id := range []string{"a", "b"} {
		slow.Send(edgetest.ClientFrame(0x81, `{"do":"subscribe","id":"`+id+`","run":"run"}`))
	}
	if m := brisk.Ask(nil, `{"do":"subscribe","id":"a","run":"run"}`); m.Re != "subscribe" {
		t.Fatalf("%+v", m)
	}
	next := func() {
		t.Helper()
		if m := brisk.Next(); m.Seq != w.head.Last {
			t.Fatalf("%.100s, want %d", m.Raw, w.head.Last)
		}
	}
	next()
	awaitParked(h, 3)
	edgetest.Eventually(t, "the client that does not read is cut", func() bool {
		w.text(8 << 10)
		next()
		return len(streamLogs(h)) > 0
	})
	if l := streamLogs(h)[0]; l.Reason != "slow client" {
		t.Errorf("it was cut for %+v", l)
	}
	_ = brisk.Conn.NetConn().Close()
	h.Vacant()
}

// TestIdleConversationsAreSmall counts what silent conversations cost that hold a subscription: no goroutine, and heap
// and stacks of both sides.
func TestIdleConversationsAreSmall(t *testing.T) {
	const conns, most = 2000, 8 << 10
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		edgetest.SampleTalk(c).Patience = 0
	})
	h.Tell("run", edgetest.Lifecycle("running"))
	ask := edgetest.ClientFrame(0x81, `{"do":"subscribe","id":"a","run":"run","after":1}`)
	open := func() *edgetest.Tap {
		k := tapTalk(h, 0)
		k.Send(ask)
		if line, err := k.Answer(); err != nil || !strings.Contains(line, `"subscribe"`) {
			t.Fatalf("%v %s", err, line)
		}
		return k
	}
	memory := func() uint64 {
		for range 3 { // pools let go of what they hold with the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	taps := []*edgetest.Tap{open()}
	awaitParked(h, 1)
	before, goroutines := memory(), runtime.NumGoroutine()
	for range conns {
		taps = append(taps, open())
	}
	awaitParked(h, 1+conns)
	edgetest.Eventually(t, "no goroutine is held", func() bool { return runtime.NumGoroutine() < goroutines+20 })
	each := (memory() - before) / conns
	t.Logf("%d bytes for each of %d conversations", each, conns)
	if each > most {
		t.Errorf("%d bytes for each conversation, want at most %d", each, most)
	}
	h.Tell("run", `{"type":"progress","payload":{"done":1}}`)
	for _, k := range taps {
		var m edgetest.Heard
		line, err := k.Answer()
		if err == nil {
			err = json.Unmarshal([]byte(line), &m)
		}
		if err != nil || m.On != "a" {
			t.Fatalf("%v %s", err, line)
		}
		_ = k.Tcp.Close()
	}
	h.Vacant()
}
