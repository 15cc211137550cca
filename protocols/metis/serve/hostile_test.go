package serve_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lxzan/gws"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/edgetest"
	"agentstream/protocols/metis/serve"
	"agentstream/schema"
)

// TestTokens: a token that is missing, used, expired, or of another session, closes with 1008 behind the upgrade,
// without a frame; so does a session that is foreign or was never there.
func TestTokens(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	n := start(t, serve.Config{}, func(c *edge.Config) {
		tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil),
			Still: func(auth.Caller) error { return nil },
			Now:   func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
		if err != nil {
			t.Fatal(err)
		}
		c.Tickets = tickets
	})
	id, other := n.create(), n.create()
	used, expired := n.token(id), n.token(id)
	n.dial(path+"/"+id+"/stream?attach="+used).subscribed(chat, "", false)
	mu.Lock()
	now = now.Add(61 * time.Second)
	mu.Unlock()
	foreign := n.do("POST", path, `{"workspace_path":"/w"}`, as, "tenant:other").OK(201).Str("id")
	for name, at := range map[string]string{
		"missing": id + "/stream", "empty": id + "/stream?attach=", "used": id + "/stream?attach=" + used,
		"expired":            id + "/stream?attach=" + expired,
		"of another session": id + "/stream?attach=" + n.token(other),
		"made up":            id + "/stream?attach=atk_" + strings.Repeat("A", 52), "twice": id + "/stream?attach=a&attach=b",
		"of a native stream": id + "/stream?attach=" +
			n.do("POST", "/v1/agent/runs/"+id+"/tickets", "").OK(201).Str("ticket"),
		"in the native parameter": id + "/stream?ticket=" + n.token(id),
		"foreign":                 foreign + "/stream?attach=" + n.token(id),
		"nowhere":                 "nobody/stream?attach=" + n.token(id),
	} {
		t.Run(name, func(t *testing.T) {
			k := n.dial(path + "/" + at)
			k.ends(1008, "")
			if len(k.frames) > 0 {
				t.Errorf("%q", k.frames)
			}
		})
	}
}

// TestBadFrames: what is no frame closes, what is unknown is passed over.
func TestBadFrames(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	for _, text := range []string{``, `x`, `[]`, `null`, `"subscribe"`, `{`, `{"type":"ping"} x`} {
		k := n.attach(id)
		k.say(text)
		k.ends(1008, `{"code":"bad_frame",`)
	}
	k := n.attach(id)
	if err := k.conn.WriteMessage(gws.OpcodeBinary, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	k.ends(1003, "")
	k = n.attach(id)
	k.say(`{"type":"ping","nonce":"` + strings.Repeat("x", 70<<10) + `"}`)
	k.ends(1009, "")

	k = n.attach(id)
	turn := n.submit(id)
	ignored := []string{`{}`, `{"type":1}`, `{"type":null}`, `{"type":"made.up"}`, `{"type":"ack","id":"x"}`,
		`{"type":"pong","nonce":"x"}`, `{"type":"pong"}`,
		`{"type":"cancel"}`, `{"type":"cancel","turn_id":7}`, `{"type":"cancel","turn_id":"x"}`,
		fmt.Sprintf(`{"type":"cancel","turn_id":%q}`, strings.Replace(turn, "turn_", "evt_", 1))}
	for _, text := range ignored {
		k.say(text)
	}
	k.say(`{"type":"ping","nonce":"before"}`)
	if o := k.want("pong"); o.Str("nonce") != "before" {
		t.Errorf("%v", o)
	}
	k.subscribed(chat, "", false)
	for _, text := range append(ignored, subscribe(full, "", true), subscribe(`{"event_types":["made.up"]}`, "", false)) {
		k.say(text)
	}
	k.say(`{"type":"ping"}`)
	if o := k.want("pong"); o.At("nonce") != "" {
		t.Errorf("%v", o)
	}
	if n := count(n.Types(id), "command.cancel"); n != 0 {
		t.Errorf("%d cancellations", n)
	}
}

// TestBadSubscribes: each has its code, and the socket takes another one.
func TestBadSubscribes(t *testing.T) {
	n := start(t, serve.Config{})
	id, other := n.create(), n.create()
	k := n.attach(id)
	for _, tt := range []struct{ code, words, frame string }{
		{"invalid_filter", "made.up.thing", subscribe(`{"event_types":["made.up.thing"]}`, "", false)},
		{"invalid_filter", "boss", subscribe(`{"actors":["boss"]}`, "", false)},
		{"invalid_filter", "preset:some", subscribe(`"preset:some"`, "", false)},
		{"invalid_filter", "filter", `{"type":"subscribe"}`},
		{"invalid_filter", "filter", subscribe(`7`, "", false)},
		{"invalid_filter", "event_types", subscribe(`{"event_types":"text.delta"}`, "", false)},
		{"invalid_filter", "event_types", subscribe(`{"event_types":[1]}`, "", false)},
		{"invalid_filter", "include_worker_sessions", subscribe(`{"include_worker_sessions":"yes"}`, "", false)},
		{"invalid_filter", "since", `{"type":"subscribe","filter":"preset:full","since":7,"snapshot":false}`},
		{"invalid_filter", "snapshot", `{"type":"subscribe","filter":"preset:full","since":null,"snapshot":"yes"}`},
		{"cursor_expired", "", subscribe(full, "x", false)},
		{"cursor_expired", "", subscribe(full, first(n, other), false)},
		{"cursor_expired", "", subscribe(full, "evt_"+strings.Repeat("v", 20), false)},
	} {
		k.say(tt.frame)
		if o := k.want("subscribe_error"); o.Str("code") != tt.code || o.Str("message") == "" ||
			!strings.Contains(o.Str("message"), tt.words) {
			t.Errorf("%s: %v", tt.frame, o)
		}
	}
	k.subscribed(`{"event_types":null,"actors":null,"include_worker_sessions":null}`, first(n, id), false)
}

// TestGone: a session that was deleted while its client was on the way is not found.
func TestGone(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	k := n.attach(id)
	n.Say(id, event(schema.TypeSessionDeleted, `{}`))
	k.say(subscribe(full, "", true))
	if o := k.want("subscribe_error"); o.Str("code") != "session_not_found" {
		t.Errorf("%v", o)
	}
	k.say(`{"type":"cancel","turn_id":"x"}`)
	k.say(`{"type":"ping","nonce":"x"}`)
	k.want("pong")
	n.do("GET", path+"/"+id, "").refused(404, "session_not_found")
}

// TestSocketCancel cancels by the socket, twice, and by another one: everybody sees one and the same ending.
func TestSocketCancel(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	turn := n.submit(id)
	n.Say(id, answers("t1")[:5]...)
	shown := `{"event_types":["message.complete","llm.call_failed","turn.cancelled","turn.completed"]}`
	a, b := n.attach(id), join(t, n.Nodes, serve.Config{}).attach(id)
	a.subscribed(shown, "", false)
	b.subscribed(shown, "", false)
	stop := fmt.Sprintf(`{"type":"cancel","turn_id":%q,"reason":"timeout"}`, turn)
	for _, k := range []*talker{a, a, b} {
		k.say(stop)
		k.say(`{"type":"ping","nonce":"x"}`)
		k.want("pong")
	}
	if n := count(n.Types(id), "command.cancel"); n != 1 {
		t.Fatalf("%d cancellations", n)
	}
	n.Say(id, endings("t1")...)
	a.say(stop) // of a turn that is over
	for _, k := range []*talker{a, b} {
		if e := k.want("message.complete", "llm.call_failed", "turn.cancelled"); e.Str("event", "payload",
			"reason") != "timeout" {
			t.Errorf("%v", e)
		}
		k.say(`{"type":"ping","nonce":"x"}`)
		k.want("pong")
	}
	if n := count(n.Types(id), "command.cancel"); n != 1 {
		t.Errorf("%d cancellations", n)
	}
	frames := func(k *talker) []string {
		return slices.DeleteFunc(slices.Clone(k.frames),
			func(s string) bool { return !strings.Contains(s, `"type":"event"`) })
	}
	if !slices.Equal(frames(a), frames(b)) {
		t.Errorf("%q\n%q", frames(a), frames(b))
	}
}

// onClock runs a test with a node on a clock of its own.
func onClock(t *testing.T, name string, do func(t *testing.T, n *node)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := edgetest.Share()
			all.Pipes = edgetest.NewPipes()
			do(t, join(t, all, serve.Config{}))
		})
	})
}

// after holds that the socket is closed so long after a moment.
func (k *talker) after(begun time.Time, took time.Duration, code uint16, reason string) {
	k.t.Helper()
	<-k.closed
	if d := time.Since(begun); d != took {
		k.t.Errorf("closed after %v, want %v", d, took)
	}
	k.ends(code, reason)
}

// TestPatience: no subscribe in 10 s closes, whatever else is sent; after an error there are 10 s more.
func TestPatience(t *testing.T) {
	onClock(t, "nothing comes", func(t *testing.T, n *node) {
		k, begun := n.attach(n.create()), time.Now()
		k.after(begun, 10*time.Second, 1008, `"subscribe_timeout"`)
	})
	onClock(t, "only pings", func(t *testing.T, n *node) {
		k, begun := n.attach(n.create()), time.Now()
		time.Sleep(9 * time.Second)
		k.say(`{"type":"ping","nonce":"x"}`)
		k.after(begun, 10*time.Second, 1008, `"subscribe_timeout"`)
		k.want("pong")
	})
	onClock(t, "after an error", func(t *testing.T, n *node) {
		k, begun := n.attach(n.create()), time.Now()
		time.Sleep(9 * time.Second)
		k.say(subscribe(`"preset:x"`, "", false))
		time.Sleep(9 * time.Second)
		k.say(subscribe(full, "x", false))
		k.after(begun, 28*time.Second, 1008, `"subscribe_timeout"`)
		k.want("subscribe_error", "subscribe_error")
	})
	onClock(t, "not behind the ack", func(t *testing.T, n *node) {
		k, begun := n.attach(n.create()), time.Now()
		k.say(subscribe(full, "", false))
		k.after(begun, 120*time.Second, 1001, "")
		k.want("subscribe_ack", "ping", "ping", "ping")
	})
}

// TestHeartbeat: a client that is idle for 30 s is sent a ping; three that are not answered close 1001, any answer
// counts.
func TestHeartbeat(t *testing.T) {
	onClock(t, "answered", func(t *testing.T, n *node) {
		id := n.create()
		k, begun := n.attach(id), time.Now()
		k.say(subscribe(`{"event_types":["skill.loaded"]}`, "", false))
		for range 2 {
			time.Sleep(95 * time.Second)
			k.say(`{"type":"pong","nonce":"x"}`)
		}
		time.Sleep(time.Second)
		n.Say(id, event("custom.metis.skill.loaded", `{}`)) // it is not idle then
		k.after(begun, (191+4*30)*time.Second, 1001, "")
		k.want("subscribe_ack", "ping", "ping", "ping", "ping", "ping", "ping", "skill.loaded", "ping", "ping", "ping")
	})
}

// TestDrain: a node that goes away says so.
func TestDrain(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	k := n.attach(id)
	k.subscribed(full, "", false)
	idle := n.attach(id)
	idle.say(`{"type":"ping"}`)
	idle.want("pong")
	n.Stop()
	k.ends(1001, "")
	idle.ends(1001, "")
}
