package live_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
)

// readThrough reads a stream up to a line.
func readThrough(f *edgetest.Feed, last string) (list []string) {
	f.T.Helper()
	for {
		line, err := f.Lines.ReadString('\n')
		if err != nil {
			f.T.Fatalf("%v behind %q", err, list)
		}
		if list = append(list, strings.TrimSuffix(line, "\n")); list[len(list)-1] == last {
			return list
		}
	}
}

// TestComments: a stream says where the replay ends, behind what there was when it was opened, and how much is no
// longer kept, of which it begins with the first that is if its protocol says so.
func TestComments(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	readThrough(h.Feed(t, "POST", "/sample/look", `{"run":"run","await":true}`), ": up to 0")
	w := newWriter(t, h, key)
	w.state("running")
	for range 50 {
		w.progress()
	}
	w.state("done")
	d := net.Dialer{}
	c, err := d.DialContext(t.Context(), "tcp", h.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /sample/look HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"+`{"run":"run"}`)
	for _, f := range []*edgetest.Feed{h.Feed(t, "POST", "/sample/look", `{"run":"run"}`),
		{T: t, Lines: bufio.NewReader(c)}} {
		// the latter through the HTTP server
		if got := strings.Join(readThrough(f, ": up to 52"), "\n"); strings.Count(got, "data: ") < 52 ||
			strings.Contains(got, "gone") {
			t.Errorf("before the end of the replay: %s", got)
		}
	}
	h.Log.Expire(key, 40)
	hub, err := fanout.New(fanout.Config{Stream: h.Log, Tail: h.Log, CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	later := edgetest.NewHouse(t, edgetest.WithSample, func(c *edge.Config) { c.Hub = hub })
	got := strings.Join(readThrough(later.Feed(t, "POST", "/sample/look", `{"run":"run","kept":true}`), ": up to 52"),
		"\n")
	if n := strings.Count(got, "data: "); n < 12 ||
		!strings.HasPrefix(got[strings.Index(got, ":"):], ": 40 are gone") && !strings.Contains(got, "\n: 40 are gone\n") {
		t.Errorf("%d events of what is kept: %s", n, got)
	}
}

// TestFuturePlace: a place in a record that is not there yet is one from the future.
func TestFuturePlace(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.WithSample)
	w := newWriter(t, h, schema.RunKey{Tenant: "acme", Run: "run"})
	w.state("running")
	at := string(dialect.Place{Seq: 2}.AppendID(nil, "run"))
	if a := h.Do("GET", "/sample/run/feed", "", "Last-Event-ID", at); a.Status != 409 ||
		!strings.Contains(a.Body, "CURSOR-AHEAD") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestConversationOverflows: a handler that passes an overflow on ends its conversation; an id that no run has is
// refused before the upgrade.
func TestConversationOverflows(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		v := edgetest.SampleTalk(c)
		v.Received = func(*protocol.Talk, []byte) error { return fmt.Errorf("a subscription ended: %w", dialect.ErrOverflow) }
		other := *v
		other.Name, other.Pattern, other.Late = "of", "GET /talk/of/{run}", false
		c.Protocols[len(c.Protocols)-1].Conversations = append(c.Protocols[len(c.Protocols)-1].Conversations, other)
	})
	k := h.Talk()
	k.Say("{}")
	if _, ce := k.Wait(t); ce.Code != 1013 {
		t.Errorf("closed with %d %s", ce.Code, ce.Reason)
	}
	if _, resp, err := h.Dial("/talk/of/no%20run", "Sec-Websocket-Protocol", "talk"); err == nil || resp == nil ||
		resp.StatusCode != 400 {
		t.Errorf("an id that no run has: %v, %v", resp, err)
	}
}
