package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/serve"
)

// client is a request whose answer is read as far as a test reads it.
type client struct {
	leave context.CancelFunc
	resp  chan *http.Response
}

// open asks without waiting for the answer.
func (n *node) open(method, path, body string, headers ...string) *client {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		n.T.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	c := &client{leave: cancel, resp: make(chan *http.Response, 1)}
	go func() {
		resp, err := n.HTTP.Do(r)
		if err != nil {
			resp = nil
		}
		c.resp <- resp
	}()
	n.T.Cleanup(c.close)
	return c
}

// close leaves, and waits until the request is over.
func (c *client) close() {
	c.leave()
	if resp, ok := <-c.resp; ok {
		if resp != nil {
			resp.Body.Close()
		}
		close(c.resp)
	}
}

// cancels counts the cancellations of a thread.
func (n *node) cancels(thread string) (many int) {
	for _, name := range n.Types(thread) {
		if name == "command.cancel" {
			many++
		}
	}
	return many
}

// busy begins a thread with a run that goes on, and returns the run.
func (n *node) busy(thread string) string {
	run := n.ask(thread, "run.start", hello).Str("result", "run_id")
	n.Say(thread, log(working)...)
	return run
}

// TestClientLeaves: a run is cancelled when the client leaves that asked for it, however it watches: once, and by who
// it is.
func TestClientLeaves(t *testing.T) {
	n := start(t, serve.Config{KeepAlive: 100 * time.Millisecond}) // so that the answer of who waits begins
	for name, path := range map[string]string{
		"stream": "/stream?cancel_on_disconnect=1", "stream-true": "/stream?cancel_on_disconnect=true",
		"join": "/join?cancel_on_disconnect=1",
	} {
		run := n.busy(name)
		c := n.open("GET", "/threads/"+name+"/runs/"+run+path, "")
		n.settle(name, c)
		c.close()
		eventually(t, name+" is cancelled", func() bool { return n.cancels(name) == 1 })
		if why := n.payloads(name, "command.cancel")[0]; why.Str("by") != "ann" || why.Str("reason") == "" {
			t.Errorf("%s: %v", name, why)
		}
	}
	for _, name := range []string{"stream", "wait"} {
		thread := "begun-" + name
		body := `{"assistant_id":"a","input":{"messages":[]},"if_not_exists":"create","on_disconnect":"cancel"}`
		c := n.open("POST", "/threads/"+thread+"/runs/"+name, body)
		eventually(t, "it has begun", func() bool {
			return n.do("GET", "/threads/"+thread, "").Status == 200 && slices.Contains(n.Types(thread), "command.message")
		})
		n.settle(thread, c)
		c.close()
		eventually(t, thread+" is cancelled", func() bool { return n.cancels(thread) == 1 })
	}
}

// TestClientLeavesTwice: clients that all asked for it, on two nodes, and one that cancels by hand and leaves, cancel
// a run once. A run that nobody works on yet is cancelled too.
func TestClientLeavesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := edgetest.Share()
		var nodes []*node
		for range 2 {
			all.Pipes = edgetest.NewPipes()
			nodes = append(nodes, join(t, all, serve.Config{}))
		}
		run := nodes[0].ask("t", "run.start", hello).Str("result", "run_id")
		var tabs []*client
		for i := range 6 {
			c := nodes[i%2].open("GET", "/threads/t/runs/"+run+"/stream?cancel_on_disconnect=1", "")
			nodes[i%2].settle("t", c)
			tabs = append(tabs, c)
		}
		for _, c := range tabs {
			c.leave()
		}
		synctest.Wait()
		if n := nodes[0].cancels("t"); n != 1 {
			t.Errorf("%d cancellations of one run", n)
		}
		run = nodes[0].busy("u")
		c := nodes[0].open("GET", "/threads/u/runs/"+run+"/stream?cancel_on_disconnect=1", "")
		nodes[0].settle("u", c)
		for range 2 {
			nodes[1].do("POST", "/threads/u/runs/"+run+"/cancel", "")
		}
		c.close()
		synctest.Wait()
		if n := nodes[0].cancels("u"); n != 1 {
			t.Errorf("%d cancellations of a run that was cancelled by hand", n)
		}
		for _, c := range tabs {
			c.close()
		}
		for _, n := range nodes {
			n.Stop()
		}
	})
}

// TestClientLeavesUnanswered: so is one whose client waits, and leaves before the answer has begun.
func TestClientLeavesUnanswered(t *testing.T) {
	n := start(t, serve.Config{})
	at := "/threads/t/runs/" + n.busy("t") + "/join?cancel_on_disconnect=1"
	eventually(t, "it is cancelled", func() bool {
		c := n.open("GET", at, "")
		select { // the request is there, as a rule
		case resp := <-c.resp:
			c.resp <- resp
		case <-time.After(100 * time.Millisecond):
		}
		c.close()
		return n.cancels("t") > 0
	})
}

// settle waits until the answer has begun.
func (n *node) settle(thread string, c *client) {
	n.T.Helper()
	resp := <-c.resp
	c.resp <- resp
	if resp == nil || resp.StatusCode != 200 {
		n.T.Fatalf("%s: %v", thread, resp)
	}
}

// TestClientLeavesRun: nothing is cancelled by clients that did not ask for it, that have the run's end, or that a
// node which goes away has cut off.
func TestClientLeavesRun(t *testing.T) {
	all := edgetest.Share()
	n, other := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	run := n.busy("t")
	at := "/threads/t/runs/" + run
	stays := n.open("GET", at+"/stream?cancel_on_disconnect=1", "")
	n.settle("t", stays)
	for _, path := range []string{at + "/stream", at + "/stream?cancel_on_disconnect=0", "/threads/t/stream"} {
		c := n.open("GET", path, "")
		n.settle("t", c)
		c.close()
	}
	n.open("GET", at+"/join?cancel_on_disconnect=false", "").close()
	n.Say("t", log(`turn.end {"turn_id":"t","stop_reason":"end_turn"}
		commands.taken {"through":2}`)...)
	resp := <-stays.resp
	stays.resp <- resp
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "event: end") {
		t.Errorf("%v: %s", err, body)
	}
	stays.close()
	cut := n.open("GET", "/threads/u/runs/"+n.busy("u")+"/stream?cancel_on_disconnect=1", "")
	n.settle("u", cut)
	n.Stop()
	for _, thread := range []string{"t", "u"} {
		if other.cancels(thread) > 0 {
			t.Errorf("%s is cancelled", thread)
		}
	}
}

// TestClientLeavesRefused: who may not cancel a run may not have it cancelled, and bad values are refused.
func TestClientLeavesRefused(t *testing.T) {
	n := start(t, serve.Config{})
	at := "/threads/t/runs/" + n.busy("t")
	for _, path := range []string{"/stream", "/join"} {
		n.do("GET", at+path+"?cancel_on_disconnect=1", "", as, "may:read").refused(403, "permission_denied")
		n.do("GET", at+path+"?cancel_on_disconnect=maybe", "").refused(422, "invalid_argument")
	}
	body := `{"assistant_id":"a","on_disconnect":"stop"}`
	n.do("POST", "/threads/t/runs/stream", body, "Content-Type", "application/json").refused(422, "invalid_argument")
	a := n.do("POST", "/threads/t/runs", `{"assistant_id":"a","input":null,"on_disconnect":"cancel"}`, "Content-Type",
		"application/json")
	var o object
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil ||
		!strings.Contains(a.Header.Get("Location"), "cancel_on_disconnect=true") {
		t.Errorf("%d %s %v", a.Status, a.Body, a.Header)
	}
}
