package edge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/sample"
)

// pipedTalk opens the sample's conversation on a clock of its own.
func pipedTalk(t *testing.T, change ...func(*edge.Config)) (*house, *tap) {
	t.Helper()
	ln := newPipes()
	h := newHouseOn(t, ln, ln.client(), append([]func(*edge.Config){talking}, change...)...)
	return h, h.piped(ln)
}

// piped opens one more.
func (h *house) piped(ln *pipes) *tap {
	h.t.Helper()
	conn, err := ln.dial(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	k, err := h.tapOn(conn, "ws", "/talk/lobby")
	if err != nil {
		h.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Time{})
	if line, err := k.event(); err != nil || !strings.Contains(line, `"hello"`) {
		h.t.Fatalf("%v %s", err, line)
	}
	return k
}

// say sends a text.
func (k *tap) say(format string, a ...any) {
	k.t.Helper()
	k.send(clientFrame(0x81, fmt.Sprintf(format, a...)))
}

// expect reads a message, which comes so long after begun and holds want.
func (k *tap) expect(begun time.Time, after time.Duration, want string) {
	k.t.Helper()
	line, err := k.answer()
	if took := time.Since(begun); err != nil || !strings.Contains(line, want) || took != after {
		k.t.Fatalf("%q, %v after %v, want %q after %v", line, err, took, want, after)
	}
}

// expectClose reads the close frame, which comes so long after begun.
func (k *tap) expectClose(begun time.Time, after time.Duration, code int, reason string) {
	k.t.Helper()
	line, err := k.answer()
	if took := time.Since(begun); !errors.Is(err, errClosed) || k.code != code || !strings.HasPrefix(k.reason, reason) || took != after {
		k.t.Fatalf("%q, %v, %d %q after %v, want %d %q after %v", line, err, k.code, k.reason, took, code, reason, after)
	}
}

// TestConversationAwaits: a client has its time for the message that a protocol waits for, and more of it after a refusal,
// and is told in the protocol's words that it has passed; one that has sent it may be silent.
func TestConversationAwaits(t *testing.T) {
	quiet := func(c *edge.Config) { sampleTalk(c).Heartbeat, c.KeepAlive = protocol.Heartbeat{}, 2*time.Hour }
	in := func(name string, do func(t *testing.T)) { t.Run(name, func(t *testing.T) { synctest.Test(t, do) }) }
	in("nothing comes", func(t *testing.T) {
		_, k := pipedTalk(t, quiet)
		k.expectClose(time.Now(), time.Minute, 4008, "say something")
	})
	in("a refusal", func(t *testing.T) {
		h, k := pipedTalk(t, quiet)
		begun := time.Now()
		time.Sleep(59 * time.Second)
		k.say("nothing of use")
		k.expect(begun, 59*time.Second, "BAD-REQUEST")
		time.Sleep(59 * time.Second)
		k.say("nor this")
		k.expect(begun, 118*time.Second, "BAD-REQUEST")
		k.expectClose(begun, 178*time.Second, 4008, "say something")
		synctest.Wait()
		if logs := h.logs.String(); !strings.Contains(logs, `"reason":"timeout"`) || strings.Contains(logs, "ERROR") {
			t.Error(logs)
		}
	})
	in("what it waits for", func(t *testing.T) {
		_, k := pipedTalk(t, quiet)
		begun := time.Now()
		time.Sleep(59 * time.Second)
		k.say(`{"do":"ping"}`)
		k.expect(begun, 59*time.Second, `"ping"`)
		go func() { time.Sleep(time.Hour); k.say(`{"do":"bye"}`) }()
		k.expectClose(begun, time.Hour+59*time.Second, 1000, "bye")
	})
	in("the table's words", func(t *testing.T) {
		_, k := pipedTalk(t, quiet, func(c *edge.Config) { sampleTalk(c).TimedOut = protocol.Close{} })
		k.expectClose(time.Now(), time.Minute, 1008, "REQUEST-TIMEOUT")
	})
	t.Run("a message that takes long", func(t *testing.T) {
		h := newHouse(t, talking, quiet, func(c *edge.Config) {
			received := sampleTalk(c).Received
			sampleTalk(c).Received = func(t *protocol.Talk, message []byte) error {
				t.Await(time.Millisecond)
				time.Sleep(50 * time.Millisecond) // the time passes while the message is dealt with
				return received(t, message)
			}
		})
		k := h.tapTalk(0)
		for range 2 {
			k.say(`{"do":"ping"}`)
			if line, err := k.answer(); err != nil || !strings.Contains(line, `"ping"`) {
				t.Fatalf("%q %v", line, err)
			}
		}
	})
}

// TestConversationHeartbeat: a silent conversation shows signs of life in the protocol's own frames, and none else; a client
// that leaves too many without an answer is closed in the protocol's words. What is sent and received counts as life, as the
// protocol has it.
func TestConversationHeartbeat(t *testing.T) {
	in := func(name string, do func(t *testing.T)) { t.Run(name, func(t *testing.T) { synctest.Test(t, do) }) }
	beat := func(n int) string { return fmt.Sprintf(`{"at":%d,"id":"","re":"beat"}`, n) }
	open := func(t *testing.T, change ...func(*edge.Config)) (*house, *tap) {
		return pipedTalk(t, append(change, func(c *edge.Config) { sampleTalk(c).Patience = 0 })...)
	}
	in("no answer", func(t *testing.T) {
		h, k := open(t)
		begun := time.Now()
		k.expect(begun, time.Minute, beat(1))
		k.expect(begun, 2*time.Minute, beat(2))
		k.expectClose(begun, 3*time.Minute, 4001, "are you there?")
		if k.signs != 0 {
			t.Errorf("%d pings beside the heartbeats", k.signs)
		}
		synctest.Wait()
		if logs := h.logs.String(); !strings.Contains(logs, `"reason":"client gone"`) {
			t.Error(logs)
		}
	})
	in("answers", func(t *testing.T) {
		_, k := open(t)
		begun := time.Now()
		for i := 1; i <= 5; i++ {
			k.expect(begun, time.Duration(i)*time.Minute, beat(i))
			k.say(`{"do":"alive","at":%d}`, i)
		}
		k.expect(begun, 6*time.Minute, beat(6))
		k.say(`{"do":"alive","at":5}`)
		k.expect(begun, 6*time.Minute, "BAD-REQUEST")
		k.expect(begun, 7*time.Minute, beat(7))
		k.expectClose(begun, 8*time.Minute, 4001, "")
	})
	in("other messages are no answer", func(t *testing.T) {
		_, k := open(t)
		begun := time.Now()
		k.expect(begun, time.Minute, beat(1))
		time.Sleep(30 * time.Second)
		k.say(`{"do":"ping"}`)
		k.expect(begun, 90*time.Second, `"ping"`)
		k.expect(begun, 150*time.Second, beat(2))
		k.send(clientFrame(0x8A, "")) // a pong of WebSocket is none either
		k.expectClose(begun, 210*time.Second, 4001, "")
	})
	in("any message is an answer", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) { sampleTalk(c).Heartbeat.Strict = false })
		begun := time.Now()
		for i := range 5 {
			at := time.Duration(i)*90*time.Second + time.Minute
			k.expect(begun, at, beat(i+1))
			time.Sleep(30 * time.Second)
			k.say(`{"do":"dance"}`)
			k.expect(begun, at+30*time.Second, "BAD-REQUEST")
		}
	})
	in("events are life", func(t *testing.T) {
		h, k := open(t)
		h.tell("run", lifecycle("running"))
		begun := time.Now()
		k.say(`{"do":"subscribe","id":"a","run":"run","after":1}`)
		k.expect(begun, 0, `"subscribe"`)
		for i := range 5 {
			time.Sleep(50 * time.Second)
			h.tell("run", `{"type":"progress","payload":{"done":1}}`)
			k.expect(begun, time.Duration(i+1)*50*time.Second, `"on":"a"`)
		}
		k.expect(begun, 310*time.Second, beat(1))
	})
	in("no bound on misses", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) { sampleTalk(c).Heartbeat.Misses = 0 })
		begun := time.Now()
		for i := 1; i <= 20; i++ {
			k.expect(begun, time.Duration(i)*time.Minute, beat(i))
		}
	})
	in("a default close", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) {
			sampleTalk(c).Heartbeat = protocol.Heartbeat{Every: time.Second, Misses: 1, Send: sampleTalk(c).Heartbeat.Send}
		})
		begun := time.Now()
		k.expect(begun, time.Second, beat(1))
		k.expectClose(begun, 2*time.Second, 1001, "")
	})
	in("a message that takes long", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) {
			sampleTalk(c).Received = func(t *protocol.Talk, _ []byte) error {
				time.Sleep(10 * time.Minute)
				t.Alive()
				return nil
			}
		})
		begun := time.Now()
		k.say("x")
		time.Sleep(5 * time.Minute)
		k.say("x") // is not read while the first one is dealt with: no heartbeat is missed meanwhile
		k.expect(begun, 21*time.Minute, beat(1))
	})
}

// TestConversationRefusesInItsWords: a protocol decides what becomes of a client whose message is too large, no text or no
// UTF-8, and in which words it is closed. Where the frames are sound the conversation goes on behind the message.
func TestConversationRefusesInItsWords(t *testing.T) {
	t.Parallel()
	lenient := func(c *edge.Config) {
		sampleTalk(c).Malformed = func(_ *protocol.Talk, bad *protocol.Close) error {
			return dialect.Refuse(dialect.ErrBadRequest, "code %d", bad.Code)
		}
	}
	silent := func(c *edge.Config) {
		sampleTalk(c).Malformed = func(*protocol.Talk, *protocol.Close) error { return nil }
	}
	worded := func(c *edge.Config) {
		sampleTalk(c).Malformed = func(_ *protocol.Talk, bad *protocol.Close) error {
			return &protocol.Close{Code: 3000 + bad.Code, Reason: `{"code":"bad_frame"}`}
		}
	}
	large := strings.Repeat("x", 4<<10+1)
	big := append([]byte{0x81, 0xFF, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0}, make([]byte, 4<<20)...)
	huge := append([]byte{0x81, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}, large...) // most of it never comes
	bits := bytes.Join([][]byte{clientFrame(0x01, "a"), bytes.Repeat(clientFrame(0x00, ""), 5000), clientFrame(0x80, "b")}, nil)
	for name, tt := range map[string]struct {
		send []byte
		code int  // of RFC 6455
		over bool // nothing can follow
	}{
		"too large":             {send: clientFrame(0x81, large), code: 1009},
		"much too large":        {send: big, code: 1009},
		"too large, in parts":   {send: append(clientFrame(0x01, large[1:]), clientFrame(0x80, "yyy")...), code: 1009},
		"in too many parts":     {send: bits, code: 1009},
		"binary":                {send: clientFrame(0x82, "x"), code: 1003},
		"binary, in parts":      {send: bytes.Join([][]byte{clientFrame(0x02, "x"), clientFrame(0x89, "?"), clientFrame(0x00, "\xFF"), clientFrame(0x80, large)}, nil), code: 1003},
		"binary, large":         {send: clientFrame(0x82, large), code: 1003},
		"no UTF-8":              {send: clientFrame(0x81, "a\xFF"+strings.Repeat("b", 300)), code: 1007},
		"half a character":      {send: clientFrame(0x81, "\xE2\x82"), code: 1007},
		"reserved bits":         {send: []byte("\xFF\xFF\xFF\xFF\xFF\xFF"), code: 1002, over: true},
		"no mask":               {send: []byte{0x81, 0x01, 'x'}, code: 1002, over: true},
		"binary within a text":  {send: append(clientFrame(0x01, "x"), clientFrame(0x82, "y")...), code: 1003, over: true},
		"a close with no code":  {send: clientFrame(0x88, "\x00"), code: 1002, over: true},
		"an endless one, begun": {send: huge, code: 1009, over: true},
	} {
		for how, change := range map[string]func(*edge.Config){"lenient": lenient, "silent": silent, "worded": worded} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				h := newHouse(t, talking, change)
				k := h.tapTalk(0)
				go func() {
					_, _ = k.tcp.Write(append(bytes.Clone(tt.send), clientFrame(0x81, `{"do":"ping","id":"still here"}`)...))
				}()
				if how == "lenient" {
					var m struct{ Error, Message string }
					line, err := k.answer()
					if err != nil || json.Unmarshal([]byte(line), &m) != nil || m.Error != "BAD-REQUEST" || m.Message != fmt.Sprintf("code %d", tt.code) {
						t.Fatalf("%v %s", err, line)
					}
				}
				if name == "an endless one, begun" && how != "worded" {
					_ = k.tcp.Close()
					h.vacant()
					return // nothing is told until the rest has come
				}
				line, err := k.answer()
				switch {
				case how == "worded":
					if !errors.Is(err, errClosed) || k.code != 3000+tt.code || k.reason != `{"code":"bad_frame"}` {
						t.Errorf("%q, %v, %d %s", line, err, k.code, k.reason)
					}
				case tt.over:
					if !errors.Is(err, errClosed) || k.code != tt.code {
						t.Errorf("%q, %v, %d %s", line, err, k.code, k.reason)
					}
				case err != nil || !strings.Contains(line, "still here"):
					t.Errorf("%v %s", err, line)
				}
				_ = k.tcp.Close()
				h.vacant()
				if strings.Contains(h.logs.String(), `"level":"ERROR"`) {
					t.Error(h.logs.String())
				}
			})
		}
	}
}

// TestConversationsAreValidated: what cannot work is refused when the server is made.
func TestConversationsAreValidated(t *testing.T) {
	for name, change := range map[string]func(*protocol.Conversation){
		"no handler":             func(v *protocol.Conversation) { v.Received = nil },
		"a heartbeat of nothing": func(v *protocol.Conversation) { v.Heartbeat.Send = nil },
		"negative misses":        func(v *protocol.Conversation) { v.Heartbeat.Misses = -1 },
		"negative patience":      func(v *protocol.Conversation) { v.Patience = -1 },
		"too much":               func(v *protocol.Conversation) { v.Subscriptions = 65 },
	} {
		p := sample.Protocol()
		change(&p.Conversations[0])
		h := newHouse(t)
		if _, err := edge.New(edge.Config{Hub: h.hub, Appender: h.app, Protocols: []protocol.Protocol{p}}); err == nil {
			t.Error(name)
		}
	}
}
