package edgetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/protocol"
	"agentstream/protocols/native"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

// Talking makes a server speak the sample's conversation.
func Talking(c *edge.Config) { c.Protocols = append(c.Protocols, sample.Protocol()) }

// SampleTalk is the sample's conversation, for a test to change.
func SampleTalk(c *edge.Config) *protocol.Conversation {
	return &c.Protocols[len(c.Protocols)-1].Conversations[0]
}

// Heard is a message of the sample's server.
type Heard struct {
	Re, ID    string
	At        schema.Seq
	Error     string
	Message   string
	On        string
	Line      json.RawMessage
	Text, Raw string
	Seq       schema.Seq
}

// Talker is a client of the sample's conversation that reads message by message.
type Talker struct {
	T testing.TB
	*Socket
	at int
}

// Talk opens a conversation and hears the greeting.
func (h *House) Talk(headers ...string) *Talker {
	h.T.Helper()
	s, _, err := h.Dial("/talk/lobby", append([]string{"Sec-Websocket-Protocol", "talk"}, headers...)...)
	if err != nil {
		h.T.Fatal(err)
	}
	k := &Talker{T: h.T, Socket: s}
	if m := k.Next(); m.Re != "hello" || m.ID != "lobby" {
		h.T.Fatalf("greeted with %+v", m)
	}
	return k
}

// Say sends a message.
func (k *Talker) Say(format string, a ...any) {
	k.T.Helper()
	if err := k.Conn.WriteString(fmt.Sprintf(format, a...)); err != nil {
		k.T.Fatal(err)
	}
}

// Next returns the next message.
func (k *Talker) Next() (m Heard) {
	k.T.Helper()
	Eventually(k.T, "a message comes", func() bool {
		select {
		case <-k.closed:
			if k.Count() <= k.at {
				k.T.Fatalf("closed by %v behind %d messages", k.err, k.at)
			}
		default:
		}
		return k.Count() > k.at
	})
	k.mu.Lock()
	m.Raw = k.lines[k.at]
	k.mu.Unlock()
	k.at++
	if err := json.Unmarshal([]byte(m.Raw), &m); err != nil {
		k.T.Fatalf("%v: %s", err, m.Raw)
	}
	m.Text = string(m.Line)
	if m.On != "" {
		e, err := schema.DecodeLine(m.Line)
		if err != nil {
			k.T.Fatal(err)
		}
		m.Seq = e.Seq
	}
	return m
}

// Ask sends a message and returns the answer; frames of subscriptions that come before it go to seen.
func (k *Talker) Ask(seen func(Heard), format string, a ...any) Heard {
	k.T.Helper()
	k.Say(format, a...)
	for {
		m := k.Next()
		if m.On == "" {
			return m
		}
		if seen == nil {
			k.T.Fatalf("%s before the answer", m.Raw)
		}
		seen(m)
	}
}

// WithSample serves the sample beside the native protocol.
func WithSample(c *edge.Config) {
	c.Protocols = []protocol.Protocol{native.Protocol(), sample.Protocol()}
}

// Sampled is one event of a stream over SSE.
type Sampled struct{ Name, Data, Id string }

// Feed is an open stream.
type Feed struct {
	T     *testing.T
	Resp  *http.Response
	Lines *bufio.Reader
}

// Feed asks for the stream of the sample, and reads it line by line.
func (h *House) Feed(t *testing.T, method, path, body string, headers ...string) *Feed {
	t.Helper()
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	resp, err := h.Client.Do(h.Request(method, path, body, headers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	return &Feed{t, resp, bufio.NewReader(resp.Body)}
}

// Next returns the next event; the error is that of the body's end.
func (f *Feed) Next() (s Sampled, err error) {
	for {
		line, err := f.Lines.ReadString('\n')
		if err != nil {
			return s, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			s.Name = value
		case "data":
			s.Data = value
		case "id":
			s.Id = value
		case "":
			if s.Data != "" {
				return s, nil
			}
		}
	}
}

// Want reads events and compares name and data.
func (f *Feed) Want(list ...string) (last Sampled) {
	f.T.Helper()
	for _, want := range list {
		var err error
		if last, err = f.Next(); err != nil || last.Name+" "+last.Data != want {
			f.T.Fatalf("%s %s (%v), want %s", last.Name, last.Data, err, want)
		}
	}
	return last
}
