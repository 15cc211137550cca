package serve_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/protocols/langgraph/serve"
)

// TestSubscriptionsOfOneBreath: no event is sent before the subscriptions that a client has asked for are answered,
// however long the second takes to arrive: a page that has seen the run's end by one of them reads no more from the
// others. The client's pong says that all has arrived.
func TestSubscriptionsOfOneBreath(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", event("message.start", `{"message_id":"m","role":"assistant"}`), event("text.delta", `{"text":"a"}`),
		event("message.end", `{"message_id":"m","stop_reason":"end_turn"}`),
		event("custom.progress", `{"done":1}`), event("run.lifecycle", `{"state":"done"}`))
	k := n.dial(eventsOf("t"))
	k.held.Store(true)
	subscribe := func(id int, channel string) {
		k.say(fmt.Sprintf(`{"id":%d,"method":"subscription.subscribe","params":{"channels":[%q,"lifecycle"]}}`, id, channel))
	}
	subscribe(1, "messages")
	if o := k.next(); o.Str("type") != "success" {
		t.Fatal(o)
	}
	time.Sleep(100 * time.Millisecond) // the machine is busy: ten times what subscriptions wait for each other
	subscribe(2, "custom")
	if o := k.next(); o.Str("type") != "success" || o["id"] != 2.0 {
		t.Fatalf("before the answer to the second subscription came %v", o)
	}
	k.answer()
	last, custom := 0.0, false
	for {
		o := k.next()
		seq := o["seq"].(float64)
		if seq < last {
			t.Errorf("%v after %v", seq, last)
		}
		last = seq
		custom = custom || o.Str("method") == "custom"
		if o.Str("method") == "lifecycle" && o.Str("params", "data", "event") == "completed" {
			break
		}
	}
	if !custom {
		t.Error("the run's end came before its custom event")
	}
	k.held.Store(false)
}

// TestSubscriptionsOfASilentClient: a client that answers no ping gets its events a second later.
func TestSubscriptionsOfASilentClient(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", event("message.start", `{"message_id":"m","role":"assistant"}`))
	k := n.dial(eventsOf("t"))
	k.held.Store(true)
	k.ask("subscription.subscribe", `{"channels":["messages"]}`)
	if o := k.next(); o.Str("method") != "messages" {
		t.Error(o)
	}
}
