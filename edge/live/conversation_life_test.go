package live_test

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
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/protocols/sample"
)

// pipedTalk opens the sample's conversation on a clock of its own.
func pipedTalk(t *testing.T, change ...func(*edge.Config)) (*edgetest.House, *edgetest.Tap) {
	t.Helper()
	ln := edgetest.NewPipes()
	h := edgetest.NewHouseOn(t, ln, ln.Client(), append([]func(*edge.Config){edgetest.Talking}, change...)...)
	return h, tapPiped(h, ln)
}

// tapPiped opens one more.
func tapPiped(h *edgetest.House, ln *edgetest.Pipes) *edgetest.Tap {
	h.T.Helper()
	conn, err := dialConn(ln, h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { conn.Close() })
	k, err := h.TapOn(conn, "ws", "/talk/lobby")
	if err != nil {
		h.T.Fatal(err)
	}
	_ = conn.SetDeadline(time.Time{})
	if line, err := k.Event(); err != nil || !strings.Contains(line, `"hello"`) {
		h.T.Fatalf("%v %s", err, line)
	}
	return k
}

// expect reads a message, which comes so long after begun and holds want.
func expect(k *edgetest.Tap, begun time.Time, after time.Duration, want string) {
	k.T.Helper()
	line, err := k.Answer()
	if took := time.Since(begun); err != nil || !strings.Contains(line, want) || took != after {
		k.T.Fatalf("%q, %v after %v, want %q after %v", line, err, took, want, after)
	}
}

// expectClose reads the close frame, which comes so long after begun.
func expectClose(k *edgetest.Tap, begun time.Time, after time.Duration, code int, reason string) {
	k.T.Helper()
	line, err := k.Answer()
	if took := time.Since(begun); !errors.Is(err, edgetest.ErrClosed) || k.Code != code ||
		!strings.HasPrefix(k.Reason, reason) || took != after {
		k.T.Fatalf("%q, %v, %d %q after %v, want %d %q after %v", line, err, k.Code, k.Reason, took, code, reason, after)
	}
}

// TestConversationAwaits: a client has its time for the message that a protocol waits for, and more of it after a
// refusal, and a frame of the protocol reports that it has passed; a client that has sent the message may be silent.
func TestConversationAwaits(t *testing.T) {
	quiet := func(c *edge.Config) {
		edgetest.SampleTalk(c).Heartbeat, c.KeepAlive = protocol.Heartbeat{}, 2*time.Hour
	}
	in := func(name string, do func(t *testing.T)) { t.Run(name, func(t *testing.T) { synctest.Test(t, do) }) }
	in("nothing comes", func(t *testing.T) {
		_, k := pipedTalk(t, quiet)
		expectClose(k, time.Now(), time.Minute, 4008, "say something")
	})
	in("a refusal", func(t *testing.T) {
		h, k := pipedTalk(t, quiet)
		begun := time.Now()
		time.Sleep(59 * time.Second)
		k.Say("nothing of use")
		expect(k, begun, 59*time.Second, "BAD-REQUEST")
		time.Sleep(59 * time.Second)
		k.Say("nor this")
		expect(k, begun, 118*time.Second, "BAD-REQUEST")
		expectClose(k, begun, 178*time.Second, 4008, "say something")
		synctest.Wait()
		if logs := h.Logs.String(); !strings.Contains(logs, `"reason":"timeout"`) || strings.Contains(logs, "ERROR") {
			t.Error(logs)
		}
	})
	in("what it waits for", func(t *testing.T) {
		_, k := pipedTalk(t, quiet)
		begun := time.Now()
		time.Sleep(59 * time.Second)
		k.Say(`{"do":"ping"}`)
		expect(k, begun, 59*time.Second, `"ping"`)
		go func() { time.Sleep(time.Hour); k.Say(`{"do":"bye"}`) }()
		expectClose(k, begun, time.Hour+59*time.Second, 1000, "bye")
	})
	in("the table's words", func(t *testing.T) {
		_, k := pipedTalk(t, quiet, func(c *edge.Config) { edgetest.SampleTalk(c).TimedOut = protocol.Close{} })
		expectClose(k, time.Now(), time.Minute, 1008, "REQUEST-TIMEOUT")
	})
	t.Run("a message that takes long", func(t *testing.T) {
		h := edgetest.NewHouse(t, edgetest.Talking, quiet, func(c *edge.Config) {
			received := edgetest.SampleTalk(c).Received
			edgetest.SampleTalk(c).Received = func(t *protocol.Talk, message []byte) error {
				t.Await(time.Millisecond)
				time.Sleep(50 * time.Millisecond) // the time passes while the message is dealt with
				return received(t, message)
			}
		})
		k := tapTalk(h, 0)
		for range 2 {
			k.Say(`{"do":"ping"}`)
			if line, err := k.Answer(); err != nil || !strings.Contains(line, `"ping"`) {
				t.Fatalf("%q %v", line, err)
			}
		}
	})
}

// TestConversationHeartbeat: a silent conversation shows signs of life in the protocol's own frames, and none else; a
// client that leaves too many without an answer is closed in the protocol's words. What is sent and received counts as
// life, as the protocol has it.
func TestConversationHeartbeat(t *testing.T) {
	in := func(name string, do func(t *testing.T)) { t.Run(name, func(t *testing.T) { synctest.Test(t, do) }) }
	beat := func(n int) string { return fmt.Sprintf(`{"at":%d,"id":"","re":"beat"}`, n) }
	open := func(t *testing.T, change ...func(*edge.Config)) (*edgetest.House, *edgetest.Tap) {
		return pipedTalk(t, append(change, func(c *edge.Config) { edgetest.SampleTalk(c).Patience = 0 })...)
	}
	in("no answer", func(t *testing.T) {
		h, k := open(t)
		begun := time.Now()
		expect(k, begun, time.Minute, beat(1))
		expect(k, begun, 2*time.Minute, beat(2))
		expectClose(k, begun, 3*time.Minute, 4001, "are you there?")
		if k.Signs != 0 {
			t.Errorf("%d pings beside the heartbeats", k.Signs)
		}
		synctest.Wait()
		if logs := h.Logs.String(); !strings.Contains(logs, `"reason":"client gone"`) {
			t.Error(logs)
		}
	})
	in("answers", func(t *testing.T) {
		_, k := open(t)
		begun := time.Now()
		for i := 1; i <= 5; i++ {
			expect(k, begun, time.Duration(i)*time.Minute, beat(i))
			k.Say(`{"do":"alive","at":%d}`, i)
		}
		expect(k, begun, 6*time.Minute, beat(6))
		k.Send(edgetest.ClientFrame(0x8A, "")) // a pong of WebSocket is none
		expect(k, begun, 7*time.Minute, beat(7))
		expectClose(k, begun, 8*time.Minute, 4001, "")
	})
	in("any message is an answer", func(t *testing.T) {
		_, k := open(t)
		begun := time.Now()
		for i := range 5 {
			at := time.Duration(i)*90*time.Second + time.Minute
			expect(k, begun, at, beat(i+1))
			time.Sleep(30 * time.Second)
			k.Say(`{"do":"dance"}`)
			expect(k, begun, at+30*time.Second, "BAD-REQUEST")
		}
	})
	in("events are life", func(t *testing.T) {
		h, k := open(t)
		h.Tell("run", edgetest.Lifecycle("running"))
		begun := time.Now()
		k.Say(`{"do":"subscribe","id":"a","run":"run","after":1}`)
		expect(k, begun, 0, `"subscribe"`)
		for i := range 5 {
			time.Sleep(50 * time.Second)
			h.Tell("run", `{"type":"progress","payload":{"done":1}}`)
			expect(k, begun, time.Duration(i+1)*50*time.Second, `"on":"a"`)
		}
		expect(k, begun, 310*time.Second, beat(1))
	})
	in("no bound on misses", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) { edgetest.SampleTalk(c).Heartbeat.Misses = 0 })
		begun := time.Now()
		for i := 1; i <= 20; i++ {
			expect(k, begun, time.Duration(i)*time.Minute, beat(i))
		}
	})
	in("a default close", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) {
			edgetest.SampleTalk(c).Heartbeat = protocol.Heartbeat{Every: time.Second, Misses: 1,
				Send: edgetest.SampleTalk(c).Heartbeat.Send}
		})
		begun := time.Now()
		expect(k, begun, time.Second, beat(1))
		expectClose(k, begun, 2*time.Second, 1001, "")
	})
	in("a message that takes long", func(t *testing.T) {
		_, k := open(t, func(c *edge.Config) {
			edgetest.SampleTalk(c).Received = func(*protocol.Talk, []byte) error {
				time.Sleep(10 * time.Minute)
				return nil
			}
		})
		begun := time.Now()
		k.Say("x")
		time.Sleep(5 * time.Minute)
		k.Say("x") // is not read while the first one is dealt with: no heartbeat is missed meanwhile
		expect(k, begun, 21*time.Minute, beat(1))
	})
}

// TestConversationRefusesInItsWords: a protocol decides what becomes of a client whose message is too large, no text or
// no UTF-8, and in which words it is closed. Where the frames are sound the conversation goes on behind the message.
func TestConversationRefusesInItsWords(t *testing.T) {
	t.Parallel()
	lenient := func(c *edge.Config) {
		edgetest.SampleTalk(c).Malformed = func(_ *protocol.Talk, bad *protocol.Close) error {
			return dialect.Refuse(dialect.ErrBadRequest, "code %d", bad.Code)
		}
	}
	silent := func(c *edge.Config) {
		edgetest.SampleTalk(c).Malformed = func(*protocol.Talk, *protocol.Close) error { return nil }
	}
	worded := func(c *edge.Config) {
		edgetest.SampleTalk(c).Malformed = func(_ *protocol.Talk, bad *protocol.Close) error {
			return &protocol.Close{Code: 3000 + bad.Code, Reason: `{"code":"bad_frame"}`}
		}
	}
	large := strings.Repeat("x", 4<<10+1)
	big := append([]byte{0x81, 0xFF, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0}, make([]byte, 4<<20)...)
	// most of it never comes
	huge := append([]byte{0x81, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}, large...)
	bits := bytes.Join([][]byte{edgetest.ClientFrame(0x01, "a"), bytes.Repeat(edgetest.ClientFrame(0x00, ""), 5000),
		edgetest.ClientFrame(0x80, "b")}, nil)
	for name, tt := range map[string]struct {
		send []byte
		code int  // of RFC 6455
		over bool // nothing can follow
	}{
		"too large":      {send: edgetest.ClientFrame(0x81, large), code: 1009},
		"much too large": {send: big, code: 1009},
		"too large, in parts": {send: append(edgetest.ClientFrame(0x01, large[1:]),
			edgetest.ClientFrame(0x80, "yyy")...), code: 1009},
		"in too many parts": {send: bits, code: 1009},
		"binary":            {send: edgetest.ClientFrame(0x82, "x"), code: 1003},
		"binary, in parts": {send: bytes.Join([][]byte{edgetest.ClientFrame(0x02, "x"),
			edgetest.ClientFrame(0x89, "?"), edgetest.ClientFrame(0x00, "\xFF"), edgetest.ClientFrame(0x80, large)},
			nil), code: 1003},
		"binary, large":    {send: edgetest.ClientFrame(0x82, large), code: 1003},
		"no UTF-8":         {send: edgetest.ClientFrame(0x81, "a\xFF"+strings.Repeat("b", 300)), code: 1007},
		"half a character": {send: edgetest.ClientFrame(0x81, "\xE2\x82"), code: 1007},
		"reserved bits":    {send: []byte("\xFF\xFF\xFF\xFF\xFF\xFF"), code: 1002, over: true},
		"no mask":          {send: []byte{0x81, 0x01, 'x'}, code: 1002, over: true},
		"binary within a text": {send: append(edgetest.ClientFrame(0x01, "x"), edgetest.ClientFrame(0x82, "y")...),
			code: 1003, over: true},
		"a close with no code":  {send: edgetest.ClientFrame(0x88, "\x00"), code: 1002, over: true},
		"an endless one, begun": {send: huge, code: 1009, over: true},
	} {
		for how, change := range map[string]func(*edge.Config){"lenient": lenient, "silent": silent, "worded": worded} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				h := edgetest.NewHouse(t, edgetest.Talking, change)
				k := tapTalk(h, 0)
				go func() {
					_, _ = k.Tcp.Write(append(bytes.Clone(tt.send), edgetest.ClientFrame(0x81, `{"do":"ping","id":"still here"}`)...))
				}()
				if how == "lenient" {
					var m struct{ Error, Message string }
					line, err := k.Answer()
					if err != nil || json.Unmarshal([]byte(line), &m) != nil || m.Error != "BAD-REQUEST" ||
						m.Message != fmt.Sprintf("code %d", tt.code) {
						t.Fatalf("%v %s", err, line)
					}
				}
				if name == "an endless one, begun" && how != "worded" {
					_ = k.Tcp.Close()
					h.Vacant()
					return // nothing is told until the rest has come
				}
				line, err := k.Answer()
				switch {
				case how == "worded":
					if !errors.Is(err, edgetest.ErrClosed) || k.Code != 3000+tt.code || k.Reason != `{"code":"bad_frame"}` {
						t.Errorf("%q, %v, %d %s", line, err, k.Code, k.Reason)
					}
				case tt.over:
					if !errors.Is(err, edgetest.ErrClosed) || k.Code != tt.code {
						t.Errorf("%q, %v, %d %s", line, err, k.Code, k.Reason)
					}
				case err != nil || !strings.Contains(line, "still here"):
					t.Errorf("%v %s", err, line)
				}
				_ = k.Tcp.Close()
				h.Vacant()
				if strings.Contains(h.Logs.String(), `"level":"ERROR"`) {
					t.Error(h.Logs.String())
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
		h := edgetest.NewHouse(t)
		if _, err := edge.New(edge.Config{Hub: h.Hub, Appender: h.Appender, Protocols: []protocol.Protocol{p}}); err == nil {
			t.Error(name)
		}
	}
}
