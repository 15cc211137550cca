package live_test

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
	"agentstream/edge/edgetest"
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
	*edgetest.House
	w       *storer
	revoked atomic.Bool
}

func newEndHouse(t *testing.T) *endHouse {
	e := new(endHouse)
	e.House = edgetest.NewHouse(t, func(c *edge.Config) {
		c.Protocols = edgetest.Speak(poisoned{})
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
	e.w = newWriter(t, e.House, schema.RunKey{Tenant: "acme", Run: "run"})
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
		end         func(*testing.T, *endHouse, *edgetest.Tap)
		sse, ws     verdict
		also        verdict // as good an end of a WebSocket
	}{
		"expiry": {short: true, end: func(*testing.T, *endHouse, *edgetest.Tap) {},
			sse: verdict{last: expired, cut: "broken", reason: "credential expired"},
			ws:  verdict{cut: "closed", close: "1008 CREDENTIAL-EXPIRED", reason: "credential expired"}},
		"revocation": {end: func(_ *testing.T, e *endHouse, _ *edgetest.Tap) { e.revoked.Store(true) },
			sse: verdict{last: expired, cut: "broken", reason: "credential expired"},
			ws:  verdict{cut: "closed", close: "1008 CREDENTIAL-EXPIRED", reason: "credential expired"}},
		"drain": {end: func(t *testing.T, e *endHouse, _ *edgetest.Tap) { go func() { _ = e.Stop() }() },
			sse: verdict{cut: "broken", reason: "shutdown"},
			ws:  verdict{cut: "closed", close: "1001 SHUTTING-DOWN", reason: "shutdown"}},
		"the client closes": {end: func(_ *testing.T, _ *endHouse, k *edgetest.Tap) { _ = k.Tcp.(*net.TCPConn).CloseWrite() },
			sse: verdict{cut: "broken", reason: "client gone"}, ws: verdict{cut: "broken", reason: "client gone"},
			// who stops writing may still read
			also: verdict{cut: "closed", close: "1001 KAI-STREAM-CONN-0001", reason: "client gone"}},
		"the client resets": {end: func(_ *testing.T, _ *endHouse, k *edgetest.Tap) {
			_ = k.Tcp.(*net.TCPConn).SetLinger(0)
			_ = k.Tcp.Close()
		},
			sse: verdict{cut: "here", reason: "client gone"}, ws: verdict{cut: "here", reason: "client gone"}},
		"a client that answers no pings": {mute: true, end: func(*testing.T, *endHouse, *edgetest.Tap) {},
			ws: verdict{cut: "closed", close: "1001 KAI-STREAM-CONN-0001", reason: "client gone"}},
		"the run ends": {end: func(_ *testing.T, e *endHouse, _ *edgetest.Tap) { e.w.state("done") },
			sse: verdict{last: `"payload":{"state":"done"`, cut: "clean", reason: "ended"},
			ws:  verdict{last: `"payload":{"state":"done"`, cut: "closed", close: "1000", reason: "ended"}},
		"the projector fails": {end: func(_ *testing.T, e *endHouse, _ *edgetest.Tap) {
			e.w.add(schema.Event{Type: "progress", Payload: []byte(`{"message":"poison"}`)})
		},
			sse: verdict{cut: "broken", reason: "internal", level: "ERROR"},
			ws:  verdict{cut: "closed", close: "1011 INTERNAL", reason: "internal", level: "ERROR"}},
		"the projector panics": {end: func(_ *testing.T, e *endHouse, _ *edgetest.Tap) {
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
					k.Mute = tt.mute
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
						t.Errorf("got  %+v\nwant %+v\n%s", got, want, e.Logs)
					}
				})
			}
		}
	}
}

// opened opens a stream and waits until it is where it shall be when it ends.
func (e *endHouse) opened(carrier string, parked, short bool) *edgetest.Tap {
	e.T.Helper()
	path, headers := watched, []string{}
	if !parked {
		path += "?types=progress" // the state that the run is in is hidden: the client stands behind the view
	}
	if short {
		headers = append(headers, "Short", "1")
	}
	k := e.MustTap(carrier, path, 0, headers...)
	if parked {
		readUntil(k, 1)
		settle(e.House, 1)
	} else {
		edgetest.Eventually(e.T, "the stream waits",
			func() bool { return e.Server.Census() == live.Census{Streams: 1, Views: 1} })
	}
	return k
}

// verdict reads a stream to its end.
func (e *endHouse) verdict(k *edgetest.Tap) (v verdict) {
	e.T.Helper()
	for {
		line, err := k.Event()
		if err == nil {
			v.last = line
			continue
		}
		switch {
		case err == io.EOF && !k.Ws:
			v.cut = "clean"
		case errors.Is(err, edgetest.ErrClosed):
			code, _, _ := strings.Cut(k.Reason, ":")
			v.cut, v.close = "closed", strings.TrimSpace(fmt.Sprint(k.Code, " ", code))
		case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF, errors.Is(err, syscall.ECONNRESET):
			v.cut = "broken"
		case errors.Is(err, os.ErrDeadlineExceeded):
			e.T.Fatal("the stream does not end")
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
	e.Vacant()
	logged := streamLogs(e.House)
	if len(logged) != 1 {
		e.T.Fatalf("%d streams were logged: %s", len(logged), e.Logs)
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
			h := edgetest.NewHouse(t, func(c *edge.Config) {
				c.KeepAlive, c.WriteTimeout = every, every
				c.Hooks.KeptAlive = func(string) { kept.Add(1) }
			})
			w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
			w.state("running")
			k := h.MustTap(carrier, watched, 0)
			readUntil(k, 1)
			settle(h, 1)
			late, last := 0, time.Now()
			for seq := schema.Seq(2); seq <= 5; seq++ {
				for want := k.Signs + 2; k.Signs < want; {
					line, err := k.Next()
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
				settle(h, 1)
				w.progress()
				readUntil(k, seq)
				last = time.Now()
			}
			if late > 4 { // of 8: it is the rule and not the machine
				t.Errorf("%d signs of life came after more than %v", late, every)
			}
			settle(h, 1)
			if n := kept.Load(); n < int64(k.Signs) || n > int64(k.Signs)+1 {
				t.Errorf("%d keep-alives were counted, %d came", n, k.Signs)
			}
			w.state("done")
			if readUntil(k, w.head.Last); !endsWhole(k) {
				t.Error("the end is not clean")
			}
		})
	}
}
