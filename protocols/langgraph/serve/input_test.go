package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
)

// many is a JSON list of n times the same.
func many(n int, of string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "]"
}

// TestBadFilters: SSE answers 400, a socket an error with the id, in the protocol's form; neither costs anybody else
// anything.
func TestBadFilters(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	k := n.dial(eventsOf("t"))
	for _, bad := range []string{
		`{}`, `{"channels":[]}`, `{"channels":null}`, `{"channels":"messages"}`, `{"channels":["nonsense"]}`,
		`{"channels":["custom:"]}`, `{"channels":[1]}`,
		`{"channels":["tools"],"namespaces":"a"}`, `{"channels":["tools"],"namespaces":["a"]}`,
		`{"channels":["tools"],"namespaces":[[1]]}`, `{"channels":["tools"],"namespaces":[null]}`,
		`{"channels":["tools"],"depth":-1}`, `{"channels":["tools"],"depth":"1"}`, `{"channels":["tools"],"depth":1.5}`,
		`{"channels":["tools"],"since":-1}`, `{"channels":["tools"],"since":"7"}`,
		`{"channels":["tools"],"since":9007199254740992}`, `{"channels":["tools"],"since_event_id":7}`,
		`{"channels":["tools"],"since_event_id":""}`, `{"channels":["tools"],"snapshot":1}`,
		`{"channels":` + many(65, `"custom:x"`) + `}`, `{"channels":["tools"],"namespaces":` + many(65, `["a"]`) + `}`,
		`{"channels":["tools"],"namespaces":[` + many(65, `"a"`) + `]}`,
		`[]`, `"x"`, `null`, `7`,
	} {
		n.do("POST", eventsOf("t"), bad, "Content-Type", "application/json").refused(400, "invalid_argument")
		if o := k.ask("subscription.subscribe", bad); o.Str("error") != "invalid_argument" {
			t.Errorf("%s: %v", bad, o)
		}
	}
	n.do("POST", eventsOf("t"), `{"channels":`, "Content-Type", "application/json").refused(400, "invalid_argument")
	for _, good := range []string{
		`{"channels":["tools"],"nobody":"knows","namespaces":null,"depth":null,"since":null,"sinceEventId":null}`,
		`{"channels":["tools"],"namespaces":[],"depth":0}`,
	} {
		n.watch(eventsOf("t"), good)
		if o := k.ask("subscription.subscribe", good); o.Str("type") != "success" {
			t.Errorf("%s: %v", good, o)
		}
	}
}

// TestBadCursors: beyond the newest event, of another thread, no longer kept. Without a cursor what is kept comes, and
// how much is not.
func TestBadCursors(t *testing.T) {
	n := start(t, serve.Config{})
	for range 40 {
		n.Say("t", text("a"))
	}
	other := langgraph.EventID("other", langgraph.PlaceOf(2<<15|16384))
	refused := func(status int, params string, headers ...string) {
		t.Helper()
		n.do("POST", eventsOf("t"), params, append(headers, "Content-Type", "application/json")...).refused(status,
			"invalid_argument")
		if len(headers) > 0 {
			return
		}
		if o := n.dial(eventsOf("t")).ask("subscription.subscribe", params); o.Str("error") != "invalid_argument" {
			t.Errorf("%s: %v", params, o)
		}
	}
	since := func(seq int64) string { return fmt.Sprintf(`{"channels":["messages"],"since":%d}`, seq) }
	refused(409, since(41<<15))
	refused(400, `{"channels":["messages"],"since_event_id":"`+other+`"}`)
	refused(400, `{"channels":["messages"]}`, "Last-Event-ID", other)
	refused(400, `{"channels":["messages"]}`, "Last-Event-ID", "41")
	n.do("POST", eventsOf("none"), since(1<<15), "Content-Type", "application/json").refused(404, "no_such_run")
	if w := n.watch(eventsOf("t"), since(40<<15|32767)); w.next().comment != fmt.Sprint("replayed ", 40<<15|32767) {
		t.Error("the newest place is no cursor")
	}

	n.Nodes.Log.Expire(schema.RunKey{Tenant: tenant, Run: "t"}, 30)
	refused(410, since(20<<15))
	k, w := n.dial(eventsOf("t")), n.watch(eventsOf("t"), everything)
	if i := w.next(); i.comment != "missed 30" {
		t.Errorf("%+v", i)
	}
	list := w.replayed()
	if !strings.Contains(list[0].data, fmt.Sprintf(`"seq":%d`, 31<<15|8192)) {
		t.Errorf("%+v", list[0])
	}
	o := k.ask("subscription.subscribe", everything)
	if o.At("result", "missed_events") != 30. {
		t.Errorf("%v", o)
	}
	for _, i := range list {
		if got := k.line(); got != i.data {
			t.Fatalf("%s, want %s", got, i.data)
		}
	}
	// One that joins does not begin before what is kept either.
	if o := k.ask("subscription.subscribe", `{"channels":["lifecycle"]}`); o.At("result", "missed_events") != 30. {
		t.Errorf("%v", o)
	}
	last := list[len(list)-1]
	if o := k.ask("subscription.reconnect",
		fmt.Sprintf(`{"last_event_id":%q,"subscriptions":[%q]}`, langgraph.EventID("t", langgraph.PlaceOf(20<<15)),
			o.Str("result", "subscription_id"))); o.Str("type") != "success" || o.At("result", "restored") != true {
		t.Errorf("%v", o)
	}
	id := o.Str("result", "subscription_id")
	for at, want := range map[string]any{langgraph.EventID("t", langgraph.PlaceOf(20<<15|5)): 10., last.id: nil} {
		o := n.dial(eventsOf("t")).ask("subscription.reconnect",
			fmt.Sprintf(`{"last_event_id":%q,"subscriptions":[%q]}`, at, id))
		if o.At("result", "restored") != true || o.At("result", "missed_events") != want {
			t.Errorf("%s: %v", at, o)
		}
	}
}

// TestBadPaths: an id that no run has, and threads of others.
func TestBadPaths(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", text("a"))
	for _, base := range []string{"", serve.Base} {
		for _, end := range []string{"/stream/events", "/stream"} {
			at := base + "/threads/no%20id" + end
			n.do("POST", at, everything, "Content-Type", "application/json").refused(400, "invalid_argument")
			if _, resp, err := n.tryDial(at); err == nil || resp.StatusCode != 400 {
				t.Errorf("%s: %v", at, err)
			}
			n.do("POST", base+"/threads/t"+end, everything, "Content-Type", "application/json", as,
				"may:write").refused(403, "permission_denied")
			n.do("POST", base+"/threads/t"+end, everything, "Content-Type", "application/json", as,
				"nobody").refused(401, "permission_denied")
			if _, resp, err := n.tryDial(base+"/threads/t"+end, as, "may:write"); err == nil || resp.StatusCode != 403 {
				t.Errorf("%s: %v", at, err)
			}
			theirs := n.watch(base+"/threads/t"+end, everything, as, "tenant:other")
			if i := theirs.next(); i.comment != "replayed 0" {
				t.Errorf("another tenant's thread: %+v", i)
			}
		}
	}
	n.do("POST", "/threads/t/commands", `{"id":1,"method":"subscription.subscribe","params":{}}`, "Content-Type",
		"application/json").refusedIn("not_supported")
	n.do("POST", "/threads/t/commands", `{"id":1,"method":"no.such","params":{}}`, "Content-Type",
		"application/json").refusedIn("unknown_command")
	for _, bad := range []string{`{`, `{}`, `{"id":1}`, `{"method":"no.such"}`, `[]`} {
		n.do("POST", "/threads/t/commands", bad, "Content-Type", "application/json").refused(400, "invalid_argument")
	}
	n.do("POST", "/threads/no%20id/commands", `{"id":1,"method":"no.such"}`, "Content-Type",
		"application/json").refused(400, "invalid_argument")
}

// refusedIn holds that a command was refused in an answer of 200.
func (a answer) refusedIn(code string) {
	a.T.Helper()
	o := a.OK(200)
	if err := langgraphtest.Valid([]byte(a.Body)); err != nil || o.Str("error") != code {
		a.T.Errorf("%s: want %s: %v: %s", a.Asked, code, err, a.Body)
	}
}

// TestHostile: whatever stands in the place of a command's params, it is answered, with its id and in the protocol's
// form, over both transports; nothing is an internal error, and nothing ends the socket.
func TestHostile(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	values := []string{`null`, `0`, `""`, `"x"`, `[]`, `{}`, `[null]`, `[[]]`, `[{}]`, `{"x":null}`, `-1`, `1e99`,
		`true`, `"\u0000"`, `[["a"],["b"]]`}
	names := []string{"assistant_id", "input", "config", "metadata", "channels", "namespaces", "namespace", "depth",
		"since", "subscription_id", "subscriptions", "run_id",
		"last_event_id", "interrupt_id", "response", "responses", "message", "keys", "limit", "before", "checkpoint_id",
		"multitask_strategy", "goto", "update"}
	k := n.dial(eventsOf("t"))
	for _, method := range []string{"run.start", "subscription.subscribe", "subscription.unsubscribe",
		"subscription.reconnect", "agent.getTree", "input.respond", "input.inject",
		"state.get", "state.listCheckpoints", "state.fork", "", "x", `\u0000`} {
		all := append([]string{""}, values...)
		for i, name := range names {
			all = append(all, fmt.Sprintf(`{%q:%s}`, name, values[i%len(values)]),
				fmt.Sprintf(`{"assistant_id":"a","namespace":[],"interrupt_id":"i","channels":["tools"],%q:%s}`, name,
					values[(i*7+3)%len(values)]))
		}
		for id, params := range all {
			text := fmt.Sprintf(`{"id":%d,"method":"%s"`, id, method)
			if params != "" {
				text += `,"params":` + params
			}
			text += "}"
			a := n.do("POST", "/threads/t/commands", text, "Content-Type", "application/json")
			if a.Status != 200 && a.Status != 400 {
				t.Errorf("%s: %d %s", text, a.Status, a.Body)
			} else if a.Status == 200 {
				if err := langgraphtest.Valid([]byte(a.Body)); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
			k.say(text)
			for o := k.next(); ; o = k.next() {
				if o.Str("type") == "event" {
					continue
				}
				if o["id"] != float64(id) && method != "" {
					t.Errorf("%s: %v", text, o)
				}
				break
			}
		}
	}
}

// TestTooLarge: over 1 MiB on a socket, 8 MiB in a body.
func TestTooLarge(t *testing.T) {
	n := start(t, serve.Config{})
	big := strings.Repeat(" ", 1<<20)
	k := n.dial(eventsOf("t"))
	k.say(`{"id":1,"method":"no.such"}` + big[:1<<20-27])
	if o := k.next(); o.Str("error") != "unknown_command" {
		t.Errorf("a message of 1 MiB: %v", o)
	}
	k.say(`{"id":1,"method":"no.such"}` + big)
	k.ends(1009, "")
	n.do("POST", eventsOf("t"), everything+strings.Repeat(big, 8), "Content-Type", "application/json").refused(413,
		"invalid_argument")
}

// TestSubscriptions: 64 of them, whose ids say their filters, also on another node; one that goes takes nothing from
// the others.
func TestSubscriptions(t *testing.T) {
	all := edgetest.Share()
	n, other := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	k := n.dial(eventsOf("t"))
	var ids []string
	for i := range 64 {
		o := k.ask("subscription.subscribe", fmt.Sprintf(`{"channels":["custom:c%d","values"],"namespaces":[[]],"depth":1}`, i/2))
		ids = append(ids, o.Str("result", "subscription_id"))
	}
	if o := k.ask("subscription.subscribe", everything); o.Str("error") != "invalid_argument" {
		t.Errorf("the 65th: %v", o)
	}
	for _, bad := range []string{`{}`, `{"subscription_id":7}`, `[]`} {
		if o := k.ask("subscription.unsubscribe", bad); o.Str("error") != "invalid_argument" {
			t.Errorf("%s: %v", bad, o)
		}
	}
	if o := k.ask("subscription.unsubscribe", `{"subscription_id":"sub_1_x"}`); o.Str("error") != "no_such_subscription" {
		t.Errorf("%v", o)
	}
	if o := k.ask("subscription.unsubscribe", fmt.Sprintf(`{"subscriptionId":%q}`, ids[63])); o.Str("type") != "success" {
		t.Errorf("%v", o)
	}
	if o := k.ask("subscription.unsubscribe",
		fmt.Sprintf(`{"subscription_id":%q}`, ids[63])); o.Str("error") != "no_such_subscription" {
		t.Errorf("%v", o)
	}

	whole := n.watch(eventsOf("t"), `{"channels":["values"]}`).replayed()
	list, _ := json.Marshal(ids)
	back := other.dial(eventsOf("t"))
	if o := back.ask("subscription.reconnect",
		fmt.Sprintf(`{"run_id":"r","subscriptions":%s}`, list)); o.Str("error") != "no_such_run" {
		t.Errorf("%v", o)
	}
	var first struct {
		Run string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(whole[0].data), &first); err != nil {
		t.Fatal(err)
	}
	o := back.ask("subscription.reconnect",
		fmt.Sprintf(`{"run_id":%q,"last_event_id":%q,"subscriptions":%s}`, first.Run, whole[0].id, list))
	if o.At("result", "restored") != true || o.At("result", "missed_events") != nil {
		t.Fatalf("%v", o)
	}
	for _, i := range whole[1:] {
		if got := back.line(); got != i.data {
			t.Fatalf("%s, want %s", got, i.data)
		}
	}
	n.Say("t", event(schema.TypeRunLifecycle, `{"state":"running"}`), event("custom.c7", `{"x":1}`),
		event("custom.c31", `{"x":1}`), event("custom.other", `{"x":1}`), event("custom.c0", `{"x":1}`))
	for _, want := range []string{"c7", "c31", "c0"} {
		if e := back.next(); e.Str("params", "data", "name") != want {
			t.Fatalf("%v, want %s", e, want)
		}
	}
	for _, bad := range []string{`{"subscriptions":["sub_1_x"]}`, `{"subscriptions":["x"]}`,
		`{"subscriptions":["sub_x_` + ids[0][6:] + `"]}`} {
		if o := back.ask("subscription.reconnect", bad); o.Str("error") != "no_such_subscription" {
			t.Errorf("%s: %v", bad, o)
		}
	}
	for _, bad := range []string{`[]`, `{"subscriptions":7}`,
		`{"subscriptions":["` + ids[0] + `"],"last_event_id":"7-7"}`} {
		if o := back.ask("subscription.reconnect", bad); o.Str("error") != "invalid_argument" {
			t.Errorf("%s: %v", bad, o)
		}
	}
}

// TestSnapshots: a stream that begins with the newest state has that under its own number, and goes on behind the
// newest event.
func TestSnapshots(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	var state item
	for _, i := range n.watch(eventsOf("t"), `{"channels":["values"]}`).replayed() {
		state = i
	}
	body := strings.TrimSuffix(everything, "}") + `,"snapshot":true}`
	w, k := n.watch(eventsOf("t"), body), n.dial(eventsOf("t"))
	k.ask("subscription.subscribe", body)
	state.id = "" // the client goes on behind the newest event
	if got := w.replayed(); len(got) != 1 || got[0] != state {
		t.Errorf("%+v, want %+v", got, state)
	}
	if got := k.line(); got != state.data {
		t.Errorf("%s, want %s", got, state.data)
	}
	n.Say("t", event(schema.TypeRunLifecycle, `{"state":"running"}`))
	if i := w.next(); i.event != "lifecycle" {
		t.Errorf("%+v", i)
	}
	if e := k.next(); e.Str("method") != "lifecycle" {
		t.Errorf("%v", e)
	}
}
