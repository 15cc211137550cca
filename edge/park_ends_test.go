package edge_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// poisoned is the native dialect, whose projectors fail on a word.
type poisoned struct{ native.Dialect }

func (d poisoned) Projector(req dialect.Request) dialect.Projector {
	return poisonedProjector{d.Dialect.Projector(req)}
}

type poisonedProjector struct{ dialect.Projector }

func (p poisonedProjector) Project(out *dialect.Frames, r schema.Record) error {
	switch {
	case strings.Contains(string(r.Line), "poison"):
		out.Add(dialect.Frame{Data: []byte("half of it")})
		return errors.New("no words for it")
	case strings.Contains(string(r.Line), "panic"):
		panic("projector")
	}
	return p.Projector.Project(out, r)
}

// endHouse is a house in which a stream can end in every way.
type endHouse struct {
	*house
	w       *storer
	revoked atomic.Bool
}

func newEndHouse(t *testing.T) *endHouse {
	e := new(endHouse)
	e.house = newHouse(t, func(c *edge.Config) {
		c.Protocols = speak(poisoned{})
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			who := auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}
			if r.Header.Get("Short") != "" {
				who.Expires = time.Now().Add(400 * time.Millisecond) // time enough to be parked
			}
			return who, nil
		}
		c.Recheck = 10 * time.Millisecond
		c.Still = func(auth.Caller) error {
			if e.revoked.Load() {
				return errors.New("taken back")
			}
			return nil
		}
		c.KeepAlive, c.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
	})
	e.w = newWriter(t, e.house, schema.RunKey{Tenant: "acme", Run: "run"})
	e.w.state("running")
	return e
}

// verdict is how a stream's end looks from both sides.
type verdict struct {
	last, cut, close string // last frame; how the body ends; close code and the code in its reason
	reason, level    string // of the log line
	status, events   int
}

// TestEnds ends streams in every way: parked ones, and ones that wait on a goroutine of their own because
// their filter has shown them less than the view. Both look the same from both sides.
func TestEnds(t *testing.T) {
	const expired = `{"error":{"code":"CREDENTIAL-EXPIRED"`
	for name, tt := range map[string]struct {
		short, mute bool
		end         func(*testing.T, *endHouse, *tap)
		sse, ws     verdict
		also        verdict // as good an end of a WebSocket
	}{
		"expiry": {short: true, end: func(*testing.T, *endHouse, *tap) {},
			sse: verdict{last: expired, cut: "broken", reason: "credential expired"},
			ws:  verdict{cut: "closed", close: "1008 CREDENTIAL-EXPIRED", reason: "credential expired"}},
		"revocation": {end: func(_ *testing.T, e *endHouse, _ *tap) { e.revoked.Store(true) },
			sse: verdict{last: expired, cut: "broken", reason: "credential expired"},
			ws:  verdict{cut: "closed", close: "1008 CREDENTIAL-EXPIRED", reason: "credential expired"}},
		"drain": {end: func(t *testing.T, e *endHouse, _ *tap) { go func() { _ = e.stop() }() },
			sse: verdict{cut: "broken", reason: "shutdown"}, ws: verdict{cut: "closed", close: "1001 SHUTTING-DOWN", reason: "shutdown"}},
		"the client closes": {end: func(_ *testing.T, _ *endHouse, k *tap) { _ = k.tcp.(*net.TCPConn).CloseWrite() },
			sse: verdict{cut: "broken", reason: "client gone"}, ws: verdict{cut: "broken", reason: "client gone"},
			also: verdict{cut: "closed", close: "1001 KAI-STREAM-CONN-0001", reason: "client gone"}}, // who stops writing may still read
		"the client resets": {end: func(_ *testing.T, _ *endHouse, k *tap) { _ = k.tcp.(*net.TCPConn).SetLinger(0); _ = k.tcp.Close() },
			sse: verdict{cut: "here", reason: "client gone"}, ws: verdict{cut: "here", reason: "client gone"}},
		"a client that answers no pings": {mute: true, end: func(*testing.T, *endHouse, *tap) {},
			ws: verdict{cut: "closed", close: "1001 KAI-STREAM-CONN-0001", reason: "client gone"}},
		"the run ends": {end: func(_ *testing.T, e *endHouse, _ *tap) { e.w.state("done") },
			sse: verdict{last: `"payload":{"state":"done"`, cut: "clean", reason: "ended"},
			ws:  verdict{last: `"payload":{"state":"done"`, cut: "closed", close: "1000", reason: "ended"}},
		"the projector fails": {end: func(_ *testing.T, e *endHouse, _ *tap) {
			e.w.add(schema.Event{Type: "progress", Payload: []byte(`{"message":"poison"}`)})
		},
			sse: verdict{cut: "broken", reason: "internal", level: "ERROR"},
			ws:  verdict{cut: "closed", close: "1011 INTERNAL", reason: "internal", level: "ERROR"}},
		"the projector panics": {end: func(_ *testing.T, e *endHouse, _ *tap) {
			e.w.add(schema.Event{Type: "progress", Payload: []byte(`{"message":"panic"}`)})
		},
			sse: verdict{cut: "broken", reason: "internal", level: "ERROR"},
			ws:  verdict{cut: "closed", close: "1011 INTERNAL", reason: "internal", level: "ERROR"}},
	} {
		for _, carrier := range carriers {
			want := map[string]verdict{"sse": tt.sse, "ws": tt.ws}[carrier]
			if want == (verdict{}) {
				continue
			}
			if want.status = 200; carrier == "ws" {
				want.status = 101
			}
			if want.level == "" {
				want.level = "INFO"
			}
			for _, parked := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/parked=%v", name, carrier, parked), func(t *testing.T) {
					t.Parallel()
					e := newEndHouse(t)
					k := e.opened(carrier, parked, tt.short)
					k.mute = tt.mute
					tt.end(t, e, k)
					want := want
					if want.events = strings.Count(want.last, "payload"); parked {
						want.events++
					}
					also := want
					if carrier == "ws" && tt.also != (verdict{}) {
						also.cut, also.close = tt.also.cut, tt.also.close
					}
					if got := e.verdict(k); got != want && got != also {
						t.Errorf("got  %+v\nwant %+v\n%s", got, want, e.logs)
					}
				})
			}
		}
	}
}

// opened opens a stream and waits until it is where it shall be when it ends.
func (e *endHouse) opened(carrier string, parked, short bool) *tap {
	e.t.Helper()
	path, headers := watched, []string{}
	if !parked {
		path += "?types=progress" // the state that the run is in is hidden: the client stands behind the view
	}
	if short {
		headers = append(headers, "Short", "1")
	}
	k := e.mustTap(carrier, path, 0, headers...)
	if parked {
		k.take(1)
		e.settle(1)
	} else {
		eventually(e.t, "the stream waits", func() bool { return e.srv.Census() == live.Census{Streams: 1, Views: 1} })
	}
	return k
}

// verdict reads a stream to its end.
func (e *endHouse) verdict(k *tap) (v verdict) {
	e.t.Helper()
	for {
		line, err := k.event()
		if err == nil {
			v.last = line
			continue
		}
		switch {
		case err == io.EOF && !k.ws:
			v.cut = "clean"
		case errors.Is(err, errClosed):
			code, _, _ := strings.Cut(k.reason, ":")
			v.cut, v.close = "closed", strings.TrimSpace(fmt.Sprint(k.code, " ", code))
		case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF, errors.Is(err, syscall.ECONNRESET):
			v.cut = "broken"
		case errors.Is(err, os.ErrDeadlineExceeded):
			e.t.Fatal("the stream does not end")
		default:
			v.cut = "here" // our own end is closed
		}
		break
	}
	if at := strings.Index(v.last, `"payload":{"state":"done"`); at >= 0 {
		v.last = `"payload":{"state":"done"`
	} else if at := strings.Index(v.last, `,"message"`); at >= 0 {
		v.last = v.last[:at]
	}
	e.vacant()
	logged := e.streamLogs()
	if len(logged) != 1 {
		e.t.Fatalf("%d streams were logged: %s", len(logged), e.logs)
	}
	v.reason, v.level, v.status, v.events = logged[0].Reason, logged[0].Level, logged[0].Status, logged[0].Events
	return v
}

// TestParkedKeepAlive: a parked client gets a sign of life within KeepAlive of the last thing that it got,
// and goes on for as long as it answers.
func TestParkedKeepAlive(t *testing.T) {
	const every, slack = 500 * time.Millisecond, 1500 * time.Millisecond // the machine may be busy
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			t.Parallel()
			var kept atomic.Int64
			h := newHouse(t, func(c *edge.Config) {
				c.KeepAlive, c.WriteTimeout = every, every
				c.Hooks.KeptAlive = func(string) { kept.Add(1) }
			})
			w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
			w.state("running")
			k := h.mustTap(carrier, watched, 0)
			k.take(1)
			h.settle(1)
			late, last := 0, time.Now()
			for seq := schema.Seq(2); seq <= 5; seq++ {
				for want := k.signs + 2; k.signs < want; {
					line, err := k.next()
					if err != nil || line != "" {
						t.Fatalf("%q, %v instead of a sign of life", line, err)
					}
					if d := time.Since(last); d > every+slack {
						t.Errorf("a sign of life after %v", d)
					} else if d > every+slack/6 {
						late++
					}
					last = time.Now()
				}
				h.settle(1)
				w.progress()
				k.take(seq)
				last = time.Now()
			}
			if late > 4 { // of 8: it is the rule and not the machine
				t.Errorf("%d signs of life came after more than %v", late, every)
			}
			h.settle(1)
			if n := kept.Load(); n < int64(k.signs) || n > int64(k.signs)+1 {
				t.Errorf("%d keep-alives were counted, %d came", n, k.signs)
			}
			w.state("done")
			if k.take(w.head.Last); !k.ends() {
				t.Error("the end is not clean")
			}
		})
	}
}
