package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
)

// The tests of this file are the points of "What the real client needs" (digest, §8) that are about streams and
// sockets. Those about frames are beside the translation.

const everything = langgraphtest.Everything

// text is what an agent says.
func text(s string) schema.Event { return event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, s)) }

// TestNeed08Headers: the answer begins at once, before there is any event.
func TestNeed08Headers(t *testing.T) {
	n := start(t, serve.Config{})
	w := n.watch(eventsOf("none"), everything) // it returns
	if i := w.next(); i.comment != "replayed 0" {
		t.Errorf("%+v", i)
	}
}

// TestNeed09ContentType: every path says that it is a stream, and that nothing may hold it back.
func TestNeed09ContentType(t *testing.T) {
	n := start(t, serve.Config{})
	for _, path := range []string{"/threads/t/stream/events", "/threads/t/stream", "/langgraph/threads/t/stream/events",
		"/langgraph/threads/t/stream"} {
		h := n.watch(path, everything).resp.Header
		if h.Get("Content-Type") != "text/event-stream" || !strings.Contains(h.Get("Cache-Control"), "no-transform") {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// TestNeed10NotThereYet: a stream of a thread that is not there is silent until it is, on both transports and on
// another node.
func TestNeed10NotThereYet(t *testing.T) {
	all := edgetest.Share()
	n, other := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	w, k := n.watch(eventsOf("later"), everything), other.dial(eventsOf("later"))
	if o := k.ask("subscription.subscribe", everything); o.At("result", "replayed_through") != 0. {
		t.Errorf("%v", o)
	}
	w.replayed()
	n.Say("later", event(schema.TypeCommandMessage, `{"content":"Hi."}`))
	for _, want := range []string{"message-start", "content-block-start", "content-block-delta", "content-block-finish",
		"message-finish"} {
		var e object
		if err := json.Unmarshal([]byte(w.next().data), &e); err != nil || e.Str("params", "data", "event") != want {
			t.Fatalf("%v, want %s", e, want)
		}
		if e := k.next(); e.Str("params", "data", "event") != want {
			t.Fatalf("%v, want %s", e, want)
		}
	}
}

// TestNeed11Open: streams go on when a run has ended, and behind the end of all of it; the next run is in them.
func TestNeed11Open(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", text("a"), event(schema.TypeRunLifecycle, `{"state":"done"}`))
	w, k := n.watch(eventsOf("t"), `{"channels":["lifecycle"]}`), n.dial(eventsOf("t"))
	k.ask("subscription.subscribe", `{"channels":["lifecycle"]}`)
	n.Say("t", event(schema.TypeRunLifecycle, `{"state":"running"}`),
		event(schema.TypeRunLifecycle, `{"state":"error","reason":"no"}`))
	if i := w.next(); i.event != "lifecycle" {
		t.Fatalf("%+v", i)
	}
	w.next()
	if i := w.next(); !strings.HasPrefix(i.comment, "replayed ") {
		t.Fatalf("%+v", i)
	}
	for _, want := range []string{"running", "failed"} {
		if i := w.next(); !strings.Contains(i.data, `"event":"`+want) {
			t.Fatalf("%+v, want %s", i, want)
		}
	}
	for _, want := range []string{"running", "completed", "running", "failed"} {
		if e := k.next(); e.Str("params", "data", "event") != want {
			t.Fatalf("%v, want %s", e, want)
		}
	}
}

// TestNeed12Drain: a node that goes away cuts its streams, without the end that a client would take for the thread's,
// and closes sockets with 1012.
func TestNeed12Drain(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", text("a"))
	w, k := n.watch(eventsOf("t"), everything), n.dial(eventsOf("t"))
	k.ask("subscription.subscribe", everything)
	w.replayed()
	n.Stop()
	<-w.done
	if errors.Is(w.err, io.EOF) && !errors.Is(w.err, io.ErrUnexpectedEOF) {
		t.Error("the stream ends as if it were complete")
	}
	k.ends(1012, "")
}

// TestNeed13KeepAlive: a silent stream shows a sign of life at least every 15 s, also where others hear something, and
// a client that expects one every 10 s never misses it.
func TestNeed13KeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := edgetest.Share()
		all.Pipes = edgetest.NewPipes()
		n := join(t, all, serve.Config{}, func(c *edge.Config) { c.KeepAlive = time.Hour })
		n.Say("t", text("a"))
		silent, busy := n.watch(eventsOf("t"), `{"channels":["tasks"]}`), n.watch(eventsOf("t"), everything)
		silent.replayed()
		busy.replayed()
		synctest.Wait()
		for range 20 {
			before := silent.count()
			for range 5 {
				time.Sleep(2 * time.Second)
				n.Say("t", text("b"))
			}
			synctest.Wait()
			if silent.count() == before {
				t.Error("10 s without a sign of life")
			}
		}
		silent.close()
		busy.close()
		n.Stop()
	})
}

// TestNeed15ManyStreams: a page has several streams, which a filter each tells apart; each event is the same in all of
// them.
func TestNeed15ManyStreams(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	whole := n.watch(eventsOf("t"), everything).replayed()
	for _, f := range langgraphtest.Filters {
		for _, i := range n.watch(eventsOf("t"), f).replayed() {
			if !slices.Contains(whole, i) {
				t.Errorf("%s: %+v", f, i)
			}
		}
	}
}

// TestNeed16Browser: a page may send what the client sends.
func TestNeed16Browser(t *testing.T) {
	n := start(t, serve.Config{}, func(c *edge.Config) { c.Origins = []string{"http://page.example"} })
	a := n.do("OPTIONS", eventsOf("t"), "", "Origin", "http://page.example", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "x-api-key, content-type")
	if h := a.Header.Get("Access-Control-Allow-Headers"); a.Status != http.StatusNoContent ||
		!strings.Contains(h, "X-Api-Key") || !strings.Contains(h, "Content-Type") {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}

// TestNeed18Answers: every command is answered, also one that waits for a thread, and those that nobody knows.
func TestNeed18Answers(t *testing.T) {
	n := start(t, serve.Config{})
	k := n.dial(eventsOf("none"))
	if o := k.ask("subscription.subscribe", everything); o.Str("type") != "success" {
		t.Errorf("%v", o)
	}
	if o := k.ask("no.such", `{}`); o.Str("error") != "unknown_command" {
		t.Errorf("%v", o)
	}
}

// TestNeed19Order: the answer comes before its replay; a replay comes in full, whatever another subscription had; a
// live event comes once.
func TestNeed19Order(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	k := n.dial(eventsOf("t"))
	for i, filter := range []string{everything, `{"channels":["messages"]}`, everything} {
		want := n.watch(eventsOf("t"), filter).replayed()
		k.ask("subscription.subscribe", filter)
		if len(k.early) > 0 {
			t.Fatalf("%d: %v came before the answer", i, k.early)
		}
		for range want {
			k.next()
		}
	}
	at := k.at
	n.Say("t", event(schema.TypeRunLifecycle, `{"state":"running"}`), event("custom.last", `{"x":1}`))
	n.Say("t", event("custom.end", `{"x":2}`))
	for k.next().Str("params", "data", "name") != "end" {
	}
	got := 0
	for _, f := range k.read(at) {
		got += strings.Count(f, `"name":"last"`)
	}
	if got != 1 {
		t.Errorf("a live event comes %d times", got)
	}
}

// TestNeed20IDs: an id is echoed as it came, and may come again.
func TestNeed20IDs(t *testing.T) {
	k := start(t, serve.Config{}).dial(eventsOf("t"))
	for _, id := range []string{"0", "9007199254740991", "1", "1"} {
		k.say(`{"id":` + id + `,"method":"no.such","params":{}}`)
		if f := k.line(); !strings.Contains(f, `"id":`+id+`,`) {
			t.Errorf("%s: %s", id, f)
		}
	}
}

// TestNeed21NoID: what is no command gets an error without an id, and the socket goes on.
func TestNeed21NoID(t *testing.T) {
	k := start(t, serve.Config{}).dial(eventsOf("t"))
	for _, bad := range []string{``, `x`, `[]`, `null`, `{}`, `{"id":1}`, `{"method":"agent.getTree"}`,
		`{"id":"1","method":"agent.getTree"}`, `{"id":-1,"method":"x"}`,
		`{"id":1.5,"method":"x"}`, `{"id":9007199254740992,"method":"x"}`, `{"id":null,"method":"x"}`} {
		k.say(bad)
		o := k.next()
		if _, there := o["id"]; o.Str("error") != "invalid_argument" || !there || o["id"] != nil &&
			!strings.HasPrefix(bad, `{"id":1}`) {
			t.Errorf("%s: %v", bad, o)
		}
	}
	if err := k.conn.WriteMessage(2, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if o := k.next(); o.Str("error") != "invalid_argument" || o["id"] != nil {
		t.Errorf("binary: %v", o)
	}
	if o := k.ask("no.such", ""); o.Str("error") != "unknown_command" {
		t.Errorf("%v", o)
	}
}

// TestNeed22Refused: who may not go on is told by a close code behind which no client comes again.
func TestNeed22Refused(t *testing.T) {
	until := time.Now().Add(200 * time.Millisecond)
	n := start(t, serve.Config{}, func(c *edge.Config) {
		c.Authenticate = func(r *http.Request) (auth.Caller, error) {
			caller, err := edgetest.ByHeader(r)
			caller.Expires = until
			return caller, err
		}
	})
	n.dial(eventsOf("t")).ends(4401, "")
}

// TestNeed23Pings: a client that pings gets its pongs.
func TestNeed23Pings(t *testing.T) {
	k := start(t, serve.Config{}).dial(eventsOf("t"))
	if err := k.conn.WritePing([]byte("are you there?")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pong comes", func() bool { return k.pongs.Load() == 1 })
}

// TestNeed24Gathered: subscriptions that come together are replayed as one: each event once, in the order of the
// thread.
func TestNeed24Gathered(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	want := n.watch(eventsOf("t"), `{"channels":["messages","tools","lifecycle","values"]}`).replayed()
	k := n.dial(eventsOf("t"))
	for i, c := range []string{`"messages"`, `"tools","lifecycle"`, `"lifecycle","messages","values"`} {
		k.say(fmt.Sprintf(`{"id":%d,"method":"subscription.subscribe","params":{"channels":[%s]}}`, i, c))
	}
	for i := range 3 {
		if o := k.next(); o["id"] != float64(i) {
			t.Fatalf("%d: %v", i, o)
		}
	}
	for i, w := range want {
		if got := k.line(); got != w.data {
			t.Fatalf("%d: %s, want %s", i, got, w.data)
		}
	}
}
