package live_test

import (
	"errors"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

// TestConversationWrites has handlers that write with a scope, without one, over the tenant's limit, and that panic.
func TestConversationWrites(t *testing.T) {
	t.Parallel()
	write := func(t *protocol.Talk) error {
		ctx, cancel := t.LogContext()
		defer cancel()
		_, err := t.Append(ctx, "run", []schema.Event{{Type: "custom.said", Payload: []byte("{}")}},
			producers.AppendOptions{})
		return err
	}
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		p := sample.Protocol()
		p.Conversations[0].Received = func(t *protocol.Talk, message []byte) error {
			body, err := t.Message()
			if err != nil || string(body) != string(message) || t.Transport() != dialect.WebSocket {
				return errors.Join(err, errors.New("the call has another message"))
			}
			switch string(message) {
			case "write":
				if err := t.With(auth.ScopeWrite, func() error { return write(t) }); err != nil {
					return err
				}
				t.Reply(200, []byte("written"))
				return nil
			case "command":
				return t.With(auth.ScopeCommand, func() error { return write(t) })
			case "read and write":
				return t.With(auth.ScopeRead, func() error { return write(t) })
			case "write without asking":
				return write(t)
			}
			panic("a handler")
		}
		c.Protocols = append(c.Protocols, p)
		c.IngestLimit = edge.IngestLimit{Events: 5}
		c.Authenticate = readersToo
	})
	k, reader := tapTalk(h, 0), tapTalk(h, 0, edgetest.TenantHeader, "just-reads")
	ask := func(k *edgetest.Tap, message, want string) bool {
		t.Helper()
		k.Send(edgetest.ClientFrame(0x81, message))
		line, err := k.Answer()
		if err != nil || want != "" && !strings.Contains(line, want) {
			t.Fatalf("%s: %v %q, want %s", message, err, line, want)
		}
		return strings.Contains(line, "RATE-LIMITED")
	}
	ask(k, "read and write", "FORBIDDEN")
	ask(k, "write without asking", "FORBIDDEN")
	ask(reader, "write", "FORBIDDEN")
	ask(reader, "command", "FORBIDDEN")
	if last := h.Last("run"); last != 0 {
		t.Fatalf("%d events were written", last)
	}
	ask(k, "write", "written")
	limited := false
	for i := 0; i < 200 && !limited; i++ {
		limited = ask(k, "write", "")
	}
	if !limited {
		t.Error("the tenant's limit does not count what a conversation writes")
	}
	k.Send(edgetest.ClientFrame(0x81, "panic"))
	if _, err := k.Answer(); !errors.Is(err, edgetest.ErrClosed) || k.Code != 1011 {
		t.Errorf("%v: %d %s", err, k.Code, k.Reason)
	}
	_ = reader.Tcp.Close()
	h.Vacant()
}

// TestSubscriptionsCountAsStreams has a node that takes two streams: a conversation is one, a subscription beyond its
// first another.
func TestSubscriptionsCountAsStreams(t *testing.T) {
	t.Parallel()
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) { c.MaxStreams = 2 })
	h.Tell("run", edgetest.Lifecycle("running"))
	k, other := h.Talk(), h.Talk()
	subscribe := func(id, want string) {
		t.Helper()
		if m := k.Ask(nil, `{"do":"subscribe","id":"%s","run":"run","after":1}`, id); m.Re+m.Error != want {
			t.Fatalf("%s: %s, want %s", id, m.Raw, want)
		}
	}
	subscribe("a", "subscribe")
	subscribe("b", "BUSY")
	_ = other.Conn.NetConn().Close()
	edgetest.Eventually(t, "the other has left", func() bool { return h.Server.Census().Streams == 1 })
	subscribe("b", "subscribe")
	if _, err := h.Tap("ws", "/talk/lobby", 0); err == nil || !strings.HasPrefix(err.Error(), "503 ") {
		t.Errorf("a conversation more: %v", err)
	}
	if m := k.Ask(nil, `{"do":"unsubscribe","id":"a"}`); m.Re != "unsubscribe" {
		t.Fatal(m.Raw)
	}
	more := h.Talk()
	for _, c := range []*edgetest.Talker{k, more} {
		_ = c.Conn.NetConn().Close()
	}
	h.Vacant()
}
