package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/protocols/sample"
)

// attach asks the sample's route for a ticket.
func (g *guarded) attach(run, token string) string {
	g.T.Helper()
	a := g.Do("GET", "/talk/tickets/"+run, "", "Authorization", "Bearer "+token)
	var out struct {
		Attach string
		Until  time.Time
	}
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil || a.Status != 200 ||
		!strings.HasPrefix(out.Attach, "talk_") || time.Until(out.Until) > time.Minute {
		g.T.Fatalf("%d %s", a.Status, a.Body)
	}
	return g.secret(out.Attach)
}

// enterByTicket opens the sample's conversation with a ticket; nil when it is closed with 1008 behind the upgrade.
func enterByTicket(h *edgetest.House, query string, headers ...string) *edgetest.Tap {
	h.T.Helper()
	k := h.MustTap("ws", "/talk/lobby?"+query, 0, headers...)
	switch line, err := k.Event(); {
	case err == nil && strings.Contains(line, `"hello"`):
		return k
	case !errors.Is(err, edgetest.ErrClosed) || k.Code != 1008 || !strings.HasPrefix(k.Reason, "UNAUTHORIZED"):
		h.T.Fatalf("%q, %v, %d %s", line, err, k.Code, k.Reason)
	}
	return nil
}

// TestTicketsOfAProtocol: a protocol's routes make tickets of its own kind. One opens a conversation once, on whichever
// node, for its run alone and with no more than its caller may; any other is refused in the protocol's way. None is
// logged.
func TestTicketsOfAProtocol(t *testing.T) {
	var cfg edge.Config
	g := newGuarded(t, edgetest.Talking, func(c *edge.Config) { cfg = *c })
	other := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		c.Hub, c.Appender, c.Authenticate, c.Still, c.Tickets = cfg.Hub, cfg.Appender, cfg.Authenticate, cfg.Still, cfg.Tickets
	})
	g.has("acme", "second")
	key, reader := g.key("writer", auth.ScopeAll), g.key("reader", auth.ScopeRead)
	ask := func(k *edgetest.Tap, want, format string, a ...any) {
		t.Helper()
		k.Say(format, a...)
		line, err := k.Answer()
		for err == nil && strings.HasPrefix(line, `{"on"`) {
			line, err = k.Answer()
		}
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("%s: %v %s, want %s", fmt.Sprintf(format, a...), err, line, want)
		}
	}
	const subscribe, say = `{"do":"subscribe","id":"a","run":"%s","after":1}`, `{"do":"say","run":"%s","text":"x"}`
	k := enterByTicket(g.matrix.House, "attach="+g.attach("run", key))
	ask(k, `"subscribe"`, subscribe, "run")
	ask(k, "NOT-FOUND", strings.Replace(subscribe, `"a"`, `"b"`, 1), "second")
	ask(k, "NOT-FOUND", say, "second")
	ask(k, `"unsubscribe"`, `{"do":"unsubscribe","id":"a"}`)
	ask(k, `"say"`, say, "run")
	ask(enterByTicket(other, "attach="+g.attach("run", reader)), "FORBIDDEN", say, "run")

	ticket := g.attach("run", key) // many at once, on two nodes
	var opened, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			k := enterByTicket([]*edgetest.House{g.House, other}[i%2], "attach="+ticket)
			mu.Lock()
			defer mu.Unlock()
			if k != nil {
				opened++
			} else {
				refused++
			}
		})
	}
	if all.Wait(); opened != 1 || refused != 7 {
		t.Errorf("one ticket opened %d, %d were refused", opened, refused)
	}

	ticket = g.attach("run", key)
	for _, query := range []string{"attach=", "attach=" + ticket[:len(ticket)-1], "attach=" + strings.ToLower(ticket),
		"ticket=" + ticket,
		"attach=" + g.ticket("run", key), "attach=" + key, "attach=" + ticket + "&attach=" + ticket,
		"attach=tkt_" + strings.TrimPrefix(ticket, "talk_"),
		"attach=" + strings.Repeat("talk_", 500)} {
		if enterByTicket(g.matrix.House, query) != nil {
			t.Errorf("%s opens it", query)
		}
	}
	if enterByTicket(g.matrix.House, "attach="+ticket, "Authorization", "Bearer "+key) != nil {
		t.Error("two credentials open it")
	}
	if a := g.Do("GET", "/v1/agent/runs/run/stream?ticket="+ticket, ""); a.Status != 401 {
		t.Errorf("another protocol takes it: %d", a.Status)
	}
	if a := g.Do("GET", "/talk/tickets/run?attach="+ticket, ""); a.Status != 401 {
		t.Errorf("a route takes it: %d", a.Status)
	}
	if enterByTicket(g.matrix.House, "attach="+ticket) == nil {
		t.Error("what was refused has used it up")
	}
	for run, want := range map[string]int{"never": 404, "a.b": 404} {
		if a := g.Do("GET", "/talk/tickets/"+run, "", "Authorization", "Bearer "+key); a.Status != want {
			t.Errorf("a ticket for %s: %d %s", run, a.Status, a.Body)
		}
	}
	k = enterByTicket(g.matrix.House, "attach="+g.attach("run", key))
	ask(k, `"subscribe"`, subscribe, "run")
	g.writeKeys("")
	if line, err := k.Answer(); err == nil || k.Code != 1008 || !strings.HasPrefix(k.Reason, "CREDENTIAL-EXPIRED") {
		for err == nil { // events that came before
			line, err = k.Answer()
		}
		if k.Code != 1008 || !strings.HasPrefix(k.Reason, "CREDENTIAL-EXPIRED") {
			t.Errorf("after the key was taken back: %q, %v, %d %s", line, err, k.Code, k.Reason)
		}
	}
	g.silent()
	if logs := other.Logs.String(); strings.Contains(logs, "talk_") || strings.Contains(logs, "ERROR") {
		t.Error(logs)
	}
}

// TestTicketsOfAProtocolsStreams: they open streams over SSE and WebSocket, for the run in the path, in the protocol's
// parameter.
func TestTicketsOfAProtocolsStreams(t *testing.T) {
	g := newGuarded(t, edgetest.Talking)
	g.has("acme", "second")
	key := g.key("writer", auth.ScopeAll)
	ticket := g.attach("run", key)
	if a := g.Do("GET", "/sample/second/feed?attach="+ticket, ""); a.Status != 401 ||
		!strings.Contains(a.Body, `{"error":"`) {
		t.Errorf("for another run: %d %s", a.Status, a.Body)
	}
	g.Feed(t, "GET", "/sample/run/feed?attach="+ticket, "").Want(`hello {"after":0}`)
	if a := g.Do("GET", "/sample/run/feed?attach="+ticket, ""); a.Status != 401 {
		t.Errorf("the same ticket again: %d", a.Status)
	}
	s, resp, err := g.Dial("/sample/run/feed?attach="+g.attach("run", key), "Sec-Websocket-Protocol", "sample")
	if err != nil {
		t.Fatalf("%v %v", resp, err)
	}
	edgetest.Eventually(t, "the socket has begun", func() bool { return s.Count() > 0 })
	_ = s.Conn.NetConn().Close()
	if a := g.Do("POST", "/sample/run/ask?attach="+g.attach("run", key), `{"text":"x"}`, "Content-Type",
		"application/json"); a.Status != 401 {
		t.Errorf("a POST takes one: %d", a.Status)
	}
	g.silent()
}

// TestTicketsAreValidated: a protocol whose tickets cannot be is refused when the server is made.
func TestTicketsAreValidated(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, terms := range []auth.Terms{{Prefix: "atk"}, {Prefix: "_"}, {Prefix: "a-b_"}, {Prefix: "Atk_"},
		{Prefix: strings.Repeat("a", 17) + "_"}, {TTL: time.Millisecond}, {TTL: time.Hour}} {
		p := sample.Protocol()
		p.Ticket.Terms = terms
		if _, err := edge.New(edge.Config{Hub: h.Hub, Appender: h.Appender, Protocols: []protocol.Protocol{p}}); err == nil {
			t.Errorf("%+v", terms)
		}
	}
}
