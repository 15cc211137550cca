package ws

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// unfinished is what clients begin and do not end; each of it is sent, and then the last part of it again and again.
var unfinished = []struct {
	name  string
	begin []byte
	again []byte // nil: nothing follows
}{
	{"half a header", []byte{0x81}, nil},
	{"a header", header(0x81, 0x80|100), nil},
	{"half a length", append([]byte{0x81}, length16(300)[:2]...), nil},
	{"half a text", masked(0x81, []byte("a long text"))[:10], nil},
	{"a large text that drips", header(0x81, length16(60000)...), []byte("x")},
	{"a fragment", masked(0x01, []byte("a")), nil},
	{"an empty fragment", masked(0x01, nil), nil},
	{"empty fragments", masked(0x01, nil), masked(0x00, nil)},
	{"fragments of one byte", masked(0x01, []byte("a")), masked(0x00, []byte("a"))},
	{"pings within a message", masked(0x01, []byte("a")), masked(0x89, []byte("ping"))},
	{"half a ping", masked(0x89, []byte("ping"))[:7], nil},
	{"half a close", closeFrame(1000, "bye")[:7], nil},
}

// Whatever has begun must be whole in time, also of a client that answers pings and goes on to send.
func TestMessagesBecomeWhole(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		both(t, func(t *testing.T, cfg Config) {
			cfg.MessageTimeout, cfg.CloseTimeout = 200*time.Millisecond, 50*time.Millisecond
			s := serverOf(t, cfg, Options{Bulk: bulk, Received: func(*SocketSink, []byte) error { return nil }})
			for _, tt := range unfinished {
				t.Run(tt.name, func(t *testing.T) {
					p, sink := s.connect(t, text("one that is whole")...)
					stop := make(chan struct{})
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, err := p.Write(tt.begin)
						for tt.again != nil && err == nil {
							select {
							case <-stop:
								return
							case <-time.After(10 * time.Millisecond):
							}
							_, err = p.Write(tt.again)
						}
					}()
					code, reason, _ := p.closing(t)
					close(stop)
					p.Close()
					<-done
					if code != 1008 || !strings.Contains(reason, "whole") {
						t.Errorf("%d %q", code, reason)
					}
					if err := wait(t, s.closed, "the end"); !errors.Is(err, dialect.ErrBadRequest) {
						t.Errorf("%v", err)
					}
					_ = sink.CloseWith(transport.End{Clean: true})
				})
			}
		})
	}
}

// A client that is slow, but whose messages are whole in time, stays, whatever it has waited before.
func TestWholeMessagesStay(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.MessageTimeout = 300 * time.Millisecond
		got := make(chan string, 10)
		s := serverOf(t, cfg, Options{Received: func(_ *SocketSink, msg []byte) error { got <- string(msg); return nil }})
		p, sink := s.connect(t)
		defer sink.CloseWith(transport.End{Clean: true})
		for range 4 {
			for _, part := range [][]byte{masked(0x01, []byte("a"))[:3], masked(0x01, []byte("a"))[3:],
				masked(0x80, []byte("b"))} {
				if _, err := p.Write(part); err != nil {
					t.Fatal(err)
				}
				time.Sleep(60 * time.Millisecond)
			}
			if m := wait(t, got, "a message"); m != "ab" {
				t.Errorf("%q", m)
			}
			time.Sleep(200 * time.Millisecond) // between two messages there is time
		}
	})
}

// ledger counts what is taken, and refuses what is over most.
type ledger struct{ held, most, limit atomic.Int64 }

var errLedger = errors.New("no room")

func (l *ledger) Reserve(n int64) error {
	if most := l.limit.Load(); most > 0 && l.held.Load()+n > most {
		return errLedger
	}
	l.held.Add(n)
	l.most.Store(max(l.most.Load(), l.held.Load()))
	return nil
}

func (l *ledger) Give(n int64) { l.held.Add(-n) }

// What has come of a message is counted, whatever its header says, and given back when it was dealt with, is dropped,
// or its client has left.
func TestMessagesAreCounted(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct {
		send []byte
		most int64 // at least
		left bool  // the client leaves
	}{
		"small": {text(strings.Repeat("x", 4<<10)), 0, false},
		"large": {text(big), 200 << 10, false},
		"fragments": {slices.Concat(masked(0x01, []byte(big[:100<<10])), masked(0x00, nil),
			masked(0x80, []byte(big[100<<10:]))), 200 << 10, false},
		"not UTF-8":        {masked(0x81, []byte(big[:100<<10]+"\xff")), 100 << 10, false},
		"a part":           {text(big)[:150<<10], 150 << 10, true},
		"a header alone":   {header(0x81, length64(250<<10)...), 0, true},
		"too large by far": {header(0x81, length64(1<<30)...), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			s := serverOf(t, Config{MaxMessage: 256 << 10, CloseTimeout: 50 * time.Millisecond},
				Options{Memory: &l, Received: func(*SocketSink, []byte) error { return nil },
					Refused: func(*SocketSink, *ProtocolError) error { return nil }})
			p, sink := s.connect(t)
			if _, err := p.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(10 * time.Second); l.most.Load() < tt.most && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if tt.left {
				p.Close()
			} else if _, err := p.Write(closeFrame(1000, "")); err != nil {
				t.Fatal(err)
			}
			wait(t, s.closed, "the end")
			_ = sink.CloseWith(transport.End{Clean: true})
			if most := l.most.Load(); most < tt.most || tt.most == 0 && most > 0 || most > 4*(tt.most+1) {
				t.Errorf("%d bytes are counted", most)
			}
			if n := l.held.Load(); n != 0 {
				t.Errorf("%d bytes are not given back", n)
			}
		})
	}
}

// Where there is no room for a message its connection ends, with the reason.
func TestNoRoomForAMessage(t *testing.T) {
	var l ledger
	l.limit.Store(32 << 10)
	s := serverOf(t, Config{}, Options{Memory: &l, Received: func(*SocketSink, []byte) error { return nil }})
	p, sink := s.connect(t)
	if _, err := p.Write(text(strings.Repeat("x", 60<<10))); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, s.closed, "the end"); !errors.Is(err, errLedger) {
		t.Errorf("%v", err)
	}
	_ = sink.CloseWith(transport.End{Clean: true})
	if n := l.held.Load(); n != 0 {
		t.Errorf("%d bytes are not given back", n)
	}
}
