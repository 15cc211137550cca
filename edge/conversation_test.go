package edge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

// talking makes a server speak the sample's conversation.
func talking(c *edge.Config) { c.Protocols = append(c.Protocols, sample.Protocol()) }

// sampleTalk is the sample's conversation, for a test to change.
func sampleTalk(c *edge.Config) *protocol.Conversation {
	return &c.Protocols[len(c.Protocols)-1].Conversations[0]
}

// heard is a message of the sample's server.
type heard struct {
	Re, ID    string
	At        schema.Seq
	Error     string
	Message   string
	On        string
	Line      json.RawMessage
	line, raw string
	seq       schema.Seq
}

// talker is a client of the sample's conversation that reads message by message.
type talker struct {
	t testing.TB
	*socket
	at int
}

// talk opens a conversation and hears the greeting.
func (h *house) talk(headers ...string) *talker {
	h.t.Helper()
	s, _, err := h.dial("/talk/lobby", append([]string{"Sec-Websocket-Protocol", "talk"}, headers...)...)
	if err != nil {
		h.t.Fatal(err)
	}
	k := &talker{t: h.t, socket: s}
	if m := k.next(); m.Re != "hello" || m.ID != "lobby" {
		h.t.Fatalf("greeted with %+v", m)
	}
	return k
}

func (k *talker) say(format string, a ...any) {
	k.t.Helper()
	if err := k.conn.WriteString(fmt.Sprintf(format, a...)); err != nil {
		k.t.Fatal(err)
	}
}

// next returns the next message.
func (k *talker) next() (m heard) {
	k.t.Helper()
	eventually(k.t, "a message comes", func() bool {
		select {
		case <-k.closed:
			if k.count() <= k.at {
				k.t.Fatalf("closed by %v behind %d messages", k.err, k.at)
			}
		default:
		}
		return k.count() > k.at
	})
	k.mu.Lock()
	m.raw = k.lines[k.at]
	k.mu.Unlock()
	k.at++
	if err := json.Unmarshal([]byte(m.raw), &m); err != nil {
		k.t.Fatalf("%v: %s", err, m.raw)
	}
	if m.line = string(m.Line); m.On != "" {
		e, err := schema.DecodeLine(m.Line)
		if err != nil {
			k.t.Fatal(err)
		}
		m.seq = e.Seq
	}
	return m
}

// ask sends a message and returns the answer; frames of subscriptions that come before it go to seen.
func (k *talker) ask(seen func(heard), format string, a ...any) heard {
	k.t.Helper()
	k.say(format, a...)
	for {
		m := k.next()
		if m.On == "" {
			return m
		}
		if seen == nil {
			k.t.Fatalf("%s before the answer", m.raw)
		}
		seen(m)
	}
}

// parked waits until so many subscriptions are.
func (h *house) parked(n int) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%d subscriptions are parked", n), func() bool { return h.srv.Census().Parked == n })
}

func TestConversation(t *testing.T) {
	h := newHouse(t, talking)
	progress := `{"type":"progress","payload":{"done":1}}`
	h.tell("run", lifecycle("running"), progress)
	k := h.talk()
	if m := k.ask(nil, `{"do":"ping","id":"x"}`); m.Re != "ping" || m.ID != "x" {
		t.Fatalf("%+v", m)
	}
	if m := k.ask(nil, `{"do":"subscribe","id":"a","run":"run"}`); m.Re != "subscribe" || m.At != 0 {
		t.Fatalf("%+v", m)
	}
	for i := range schema.Seq(2) {
		if m := k.next(); m.On != "a" || m.seq != i+1 {
			t.Fatalf("event %d: %s", i, m.raw)
		}
	}
	if m := k.ask(nil, `{"do":"subscribe","id":"b","run":"run","after":1}`); m.Re != "subscribe" || m.At != 1 {
		t.Fatalf("%+v", m)
	}
	if m := k.next(); m.On != "b" || m.seq != 2 {
		t.Fatalf("%s", m.raw)
	}
	h.parked(2)
	got := map[string]schema.Seq{}
	k.say(`{"do":"say","run":"run","text":"hi"}`)
	for len(got) < 3 {
		m := k.next()
		got[m.On+m.Re] = max(m.seq, m.At)
	}
	if got["a"] != 3 || got["b"] != 3 || got["say"] != 3 {
		t.Fatalf("%v", got)
	}
	if m := k.ask(nil, `{"do":"unsubscribe","id":"a"}`); m.Re != "unsubscribe" || m.At != 3 {
		t.Fatalf("%+v", m)
	}
	h.tell("run", progress)
	if m := k.next(); m.On != "b" || m.seq != 4 {
		t.Fatalf("%s", m.raw)
	}
	if m := k.ask(nil, `{"do":"change","id":"b","run":"run","types":["%s"]}`, schema.TypeRunLifecycle); m.Re != "change" || m.At != 4 {
		t.Fatalf("%+v", m)
	}
	h.tell("run", progress)
	h.tell("run", lifecycle("done"))
	if m := k.next(); m.On != "b" || m.seq != 6 {
		t.Fatalf("%s", m.raw)
	}
	if m := k.next(); m.Re != "ended" || m.ID != "b" {
		t.Fatalf("%s", m.raw)
	}
	k.say(`{"do":"bye"}`)
	if _, ce := k.wait(t); ce.Code != 1000 || string(ce.Reason) != "bye" {
		t.Fatalf("%d %s", ce.Code, ce.Reason)
	}
	h.vacant()
	if logs := h.logs.String(); !strings.Contains(logs, `"route":"GET /talk/{room}","status":101`) || !strings.Contains(logs, `"dialect":"sample","transport":"ws"`) || strings.Contains(logs, "ERROR") {
		t.Error(logs)
	}
}
