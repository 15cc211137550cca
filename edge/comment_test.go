package edge_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
)

// through reads a stream up to a line.
func (f *feed) through(last string) (list []string) {
	f.t.Helper()
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			f.t.Fatalf("%v behind %q", err, list)
		}
		if list = append(list, strings.TrimSuffix(line, "\n")); list[len(list)-1] == last {
			return list
		}
	}
}

// TestComments: a stream says where the replay ends, behind what there was when it was opened, and how much is no longer kept,
// of which it begins with the first that is if its protocol says so.
func TestComments(t *testing.T) {
	h := newHouse(t, withSample)
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	h.feed(t, "POST", "/sample/look", `{"run":"run","await":true}`).through(": up to 0")
	w := newWriter(t, h, key)
	w.state("running")
	for range 50 {
		w.progress()
	}
	w.state("done")
	d := net.Dialer{}
	c, err := d.DialContext(t.Context(), "tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /sample/look HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"+`{"run":"run"}`)
	for _, f := range []*feed{h.feed(t, "POST", "/sample/look", `{"run":"run"}`), {t, nil, bufio.NewReader(c)}} { // the latter through the HTTP server
		if got := strings.Join(f.through(": up to 52"), "\n"); strings.Count(got, "data: ") < 52 || strings.Contains(got, "gone") {
			t.Errorf("before the end of the replay: %s", got)
		}
	}
	h.log.Expire(key, 40)
	hub, err := fanout.New(fanout.Config{Stream: h.log, Tail: h.log, CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	later := newHouse(t, withSample, func(c *edge.Config) { c.Hub = hub })
	got := strings.Join(later.feed(t, "POST", "/sample/look", `{"run":"run","kept":true}`).through(": up to 52"), "\n")
	if n := strings.Count(got, "data: "); n < 12 || !strings.HasPrefix(got[strings.Index(got, ":"):], ": 40 are gone") && !strings.Contains(got, "\n: 40 are gone\n") {
		t.Errorf("%d events of what is kept: %s", n, got)
	}
}

// TestFuturePlace: a place in a record that is not there yet is one from the future.
func TestFuturePlace(t *testing.T) {
	h := newHouse(t, withSample)
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	at := string(dialect.Place{Seq: 2}.AppendID(nil, "run"))
	if a := h.do("GET", "/sample/run/feed", "", "Last-Event-ID", at); a.status != 409 || !strings.Contains(a.body, "CURSOR-AHEAD") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestConversationOverflows: a handler that passes an overflow on ends its conversation; an id that no run has is refused
// before the upgrade.
func TestConversationOverflows(t *testing.T) {
	h := newHouse(t, talking, func(c *edge.Config) {
		v := sampleTalk(c)
		v.Received = func(*protocol.Talk, []byte) error { return fmt.Errorf("a subscription ended: %w", dialect.ErrOverflow) }
		other := *v
		other.Name, other.Pattern, other.Late = "of", "GET /talk/of/{run}", false
		c.Protocols[len(c.Protocols)-1].Conversations = append(c.Protocols[len(c.Protocols)-1].Conversations, other)
	})
	k := h.talk()
	k.say("{}")
	if _, ce := k.wait(t); ce.Code != 1013 {
		t.Errorf("closed with %d %s", ce.Code, ce.Reason)
	}
	if _, resp, err := h.dial("/talk/of/no%20run", "Sec-Websocket-Protocol", "talk"); err == nil || resp == nil || resp.StatusCode != 400 {
		t.Errorf("an id that no run has: %v, %v", resp, err)
	}
}
