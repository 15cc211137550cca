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
	"agentstream/edge/protocol"
	"agentstream/protocols/sample"
)

// attach asks the sample's route for a ticket.
func (g *guarded) attach(run, token string) string {
	g.t.Helper()
	a := g.do("GET", "/talk/tickets/"+run, "", "Authorization", "Bearer "+token)
	var out struct {
		Attach string
		Until  time.Time
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 || !strings.HasPrefix(out.Attach, "talk_") || time.Until(out.Until) > time.Minute {
		g.t.Fatalf("%d %s", a.status, a.body)
	}
	return g.secret(out.Attach)
}

// enter opens the sample's conversation with a ticket; nil when it is closed with 1008 behind the upgrade.
func (h *house) enter(query string, headers ...string) *tap {
	h.t.Helper()
	k := h.mustTap("ws", "/talk/lobby?"+query, 0, headers...)
	switch line, err := k.event(); {
	case err == nil && strings.Contains(line, `"hello"`):
		return k
	case !errors.Is(err, errClosed) || k.code != 1008 || !strings.HasPrefix(k.reason, "UNAUTHORIZED"):
		h.t.Fatalf("%q, %v, %d %s", line, err, k.code, k.reason)
	}
	return nil
}

// TestTicketsOfAProtocol: a protocol's routes make tickets of its own kind. One opens a conversation once, on whichever
// node, for its run alone and with no more than its caller may; any other is refused in the protocol's way. None is logged.
func TestTicketsOfAProtocol(t *testing.T) {
	var cfg edge.Config
	g := newGuarded(t, talking, func(c *edge.Config) { cfg = *c })
	other := newHouse(t, talking, func(c *edge.Config) {
		c.Hub, c.Appender, c.Authenticate, c.Still, c.Tickets = cfg.Hub, cfg.Appender, cfg.Authenticate, cfg.Still, cfg.Tickets
	})
	g.has("acme", "second")
	key, reader := g.key("writer", auth.ScopeAll), g.key("reader", auth.ScopeRead)
	ask := func(k *tap, want, format string, a ...any) {
		t.Helper()
		k.say(format, a...)
		line, err := k.answer()
		for err == nil && strings.HasPrefix(line, `{"on"`) {
			line, err = k.answer()
		}
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("%s: %v %s, want %s", fmt.Sprintf(format, a...), err, line, want)
		}
	}
	const subscribe, say = `{"do":"subscribe","id":"a","run":"%s","after":1}`, `{"do":"say","run":"%s","text":"x"}`
	k := g.enter("attach=" + g.attach("run", key))
	ask(k, `"subscribe"`, subscribe, "run")
	ask(k, "NOT-FOUND", strings.Replace(subscribe, `"a"`, `"b"`, 1), "second")
	ask(k, "NOT-FOUND", say, "second")
	ask(k, `"unsubscribe"`, `{"do":"unsubscribe","id":"a"}`)
	ask(k, `"say"`, say, "run")
	ask(other.enter("attach="+g.attach("run", reader)), "FORBIDDEN", say, "run")

	ticket := g.attach("run", key) // many at once, on two nodes
	var opened, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			k := []*house{g.house, other}[i%2].enter("attach=" + ticket)
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
	for _, query := range []string{"attach=", "attach=" + ticket[:len(ticket)-1], "attach=" + strings.ToLower(ticket), "ticket=" + ticket,
		"attach=" + g.ticket("run", key), "attach=" + key, "attach=" + ticket + "&attach=" + ticket, "attach=tkt_" + strings.TrimPrefix(ticket, "talk_"),
		"attach=" + strings.Repeat("talk_", 500)} {
		if g.enter(query) != nil {
			t.Errorf("%s opens it", query)
		}
	}
	if g.enter("attach="+ticket, "Authorization", "Bearer "+key) != nil {
		t.Error("two credentials open it")
	}
	if a := g.do("GET", "/v1/agent/runs/run/stream?ticket="+ticket, ""); a.status != 401 {
		t.Errorf("another protocol takes it: %d", a.status)
	}
	if a := g.do("GET", "/talk/tickets/run?attach="+ticket, ""); a.status != 401 {
		t.Errorf("a route takes it: %d", a.status)
	}
	if g.enter("attach="+ticket) == nil {
		t.Error("what was refused has used it up")
	}
	for run, want := range map[string]int{"never": 404, "a.b": 404} {
		if a := g.do("GET", "/talk/tickets/"+run, "", "Authorization", "Bearer "+key); a.status != want {
			t.Errorf("a ticket for %s: %d %s", run, a.status, a.body)
		}
	}
	k = g.enter("attach=" + g.attach("run", key))
	ask(k, `"subscribe"`, subscribe, "run")
	g.writeKeys("")
	if line, err := k.answer(); err == nil || k.code != 1008 || !strings.HasPrefix(k.reason, "CREDENTIAL-EXPIRED") {
		for err == nil { // events that came before
			line, err = k.answer()
		}
		if k.code != 1008 || !strings.HasPrefix(k.reason, "CREDENTIAL-EXPIRED") {
			t.Errorf("after the key was taken back: %q, %v, %d %s", line, err, k.code, k.reason)
		}
	}
	g.silent()
	if logs := other.logs.String(); strings.Contains(logs, "talk_") || strings.Contains(logs, "ERROR") {
		t.Error(logs)
	}
}

// TestTicketsOfAProtocolsStreams: they open streams over SSE and WebSocket, for the run in the path, in the protocol's
// parameter.
func TestTicketsOfAProtocolsStreams(t *testing.T) {
	g := newGuarded(t, talking)
	g.has("acme", "second")
	key := g.key("writer", auth.ScopeAll)
	ticket := g.attach("run", key)
	if a := g.do("GET", "/sample/second/feed?attach="+ticket, ""); a.status != 401 || !strings.Contains(a.body, `{"error":"`) {
		t.Errorf("for another run: %d %s", a.status, a.body)
	}
	g.feed(t, "GET", "/sample/run/feed?attach="+ticket, "").want(`hello {"after":0}`)
	if a := g.do("GET", "/sample/run/feed?attach="+ticket, ""); a.status != 401 {
		t.Errorf("the same ticket again: %d", a.status)
	}
	s, resp, err := g.dial("/sample/run/feed?attach="+g.attach("run", key), "Sec-Websocket-Protocol", "sample")
	if err != nil {
		t.Fatalf("%v %v", resp, err)
	}
	eventually(t, "the socket has begun", func() bool { return s.count() > 0 })
	_ = s.conn.NetConn().Close()
	if a := g.do("POST", "/sample/run/ask?attach="+g.attach("run", key), `{"text":"x"}`, "Content-Type", "application/json"); a.status != 401 {
		t.Errorf("a POST takes one: %d", a.status)
	}
	g.silent()
}

// TestTicketsAreValidated: a protocol whose tickets cannot be is refused when the server is made.
func TestTicketsAreValidated(t *testing.T) {
	h := newHouse(t)
	for _, terms := range []auth.Terms{{Prefix: "atk"}, {Prefix: "_"}, {Prefix: "a-b_"}, {Prefix: "Atk_"}, {Prefix: strings.Repeat("a", 17) + "_"}, {TTL: time.Millisecond}, {TTL: time.Hour}} {
		p := sample.Protocol()
		p.Ticket.Terms = terms
		if _, err := edge.New(edge.Config{Hub: h.hub, Appender: h.app, Protocols: []protocol.Protocol{p}}); err == nil {
			t.Errorf("%+v", terms)
		}
	}
}
