package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/metis/serve"
	"agentstream/schema"
)

// answers are the events of a turn that an agent answers with one message.
func answers(turn string) []schema.Event {
	return []schema.Event{
		event(schema.TypeTurnStart, fmt.Sprintf(`{"turn_id":%q}`, turn)),
		event(schema.TypeModelStart, `{"model":"m"}`),
		event(schema.TypeMessageStart, fmt.Sprintf(`{"message_id":"m%s","role":"assistant"}`, turn)),
		event(schema.TypeTextDelta, `{"text":"good "}`), event(schema.TypeTextDelta, `{"text":"day"}`),
		event(schema.TypeMessageEnd, fmt.Sprintf(`{"message_id":"m%s"}`, turn)),
		event(schema.TypeModelEnd, `{"model":"m","input_tokens":1,"output_tokens":2}`),
		event(schema.TypeTurnEnd, fmt.Sprintf(`{"turn_id":%q,"stop_reason":"end_turn"}`, turn)),
	}
}

// endings are the events with which an agent ends such a turn before its time.
func endings(turn string) []schema.Event {
	return []schema.Event{
		event(schema.TypeMessageEnd, fmt.Sprintf(`{"message_id":"m%s","stop_reason":"cancelled"}`, turn)),
		event(schema.TypeModelEnd, `{"ok":false,"error":{"type":"cancelled"}}`),
		event(schema.TypeTurnEnd, fmt.Sprintf(`{"turn_id":%q,"stop_reason":"cancelled"}`, turn)),
	}
}

// told are the types that preset:full shows of such a turn.
var told = []string{"turn.started", "route.decided", "llm.call_started", "message.start", "text.delta", "text.delta",
	"message.complete", "llm.call_completed", "turn.completed"}

// TestStream is the worked example 10.1: ack, snapshot, and a turn whose events all bear the id that its POST answers.
func TestStream(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	k := n.attach(id)
	ack := k.subscribed(full, "", true)
	if ack.At("since") != nil || ack.At("snapshot") != true || ack.At("replay_event_count") != 0.0 ||
		ack.At("resolved_filter", "event_types") != nil {
		t.Errorf("%v", ack)
	}
	if shot := k.want("snapshot"); shot.Str("session", "id") != id || shot.Str("snapshot_at_event_id") == "" ||
		len(shot["messages"].([]any)) != 0 {
		t.Errorf("%v", shot)
	}
	turn := n.submit(id)
	n.Say(id, answers("t1")...)
	for _, typ := range told {
		if e := k.want(typ); e.Str("event", "turn_id") != turn || e.Str("event", "session_id") != id {
			t.Errorf("%v", e)
		}
	}
	if o := n.do("GET", path+"/"+id, "").OK(200); o.At("turn_count") != 1.0 || o.At("current_turn_id") != nil ||
		o.Str("id") != id || o.Str("session_id") != id {
		t.Errorf("%v", o)
	}
	// A second turn, begun while the socket waits for the third thing: a subscribe behind the ack is passed over.
	k.say(subscribe(chat, "", true))
	k.say(`{"type":"ping","nonce":"n1"}`)
	if pong := k.want("pong"); pong.Str("nonce") != "n1" {
		t.Errorf("%v", pong)
	}
	n.do("DELETE", path+"/"+id, "").OK(200)
	k.want("session.ended")
	k.ends(1000, "")
}

// TestEveryPlace resumes behind each event, with three filters: prefix and rest are the whole, and the ack has said how
// many.
func TestEveryPlace(t *testing.T) {
	n := start(t, serve.Config{})
	other := join(t, n.Nodes, serve.Config{})
	id := n.create()
	for i := range 3 {
		n.submit(id)
		n.Say(id, answers(fmt.Sprint("t", i))...)
	}
	for _, filter := range []string{full, chat, `{"event_types":["text.delta","turn.completed"],"actors":["agent"]}`} {
		all := events(n, id, filter, first(n, id))
		for i, line := range all {
			if i > 0 && idOf(line) <= idOf(all[i-1]) {
				t.Fatalf("ids are not in the order of the log: %s", line)
			}
		}
		for i, since := range ids(events(n, id, full, first(n, id))) {
			rest := events(other, id, filter, since)
			want := slices.DeleteFunc(slices.Clone(all), func(line string) bool { return idOf(line) <= since })
			if !slices.Equal(rest, want) {
				t.Fatalf("%s behind event %d: %d events, want %d", filter, i, len(rest), len(want))
			}
		}
	}
}

// first returns the id of the session's first event.
func first(n *node, id string) string {
	n.T.Helper()
	var page struct{ Events []struct{ ID string } }
	if err := json.Unmarshal([]byte(n.do("GET", path+"/"+id+"/events?limit=1", "").Body), &page); err != nil ||
		len(page.Events) != 1 {
		n.T.Fatal(err)
	}
	return page.Events[0].ID
}

// events returns the frames behind an id, as many as the ack says.
func events(n *node, id, filter, since string) (list []string) {
	n.T.Helper()
	k := n.attach(id)
	count := int(k.subscribed(filter, since, false).At("replay_event_count").(float64))
	for range count {
		k.next()
		k.mu.Lock()
		list = append(list, k.frames[k.at-1])
		k.mu.Unlock()
	}
	k.say(`{"type":"ping","nonce":"end"}`)
	k.want("pong")
	_ = k.conn.WriteClose(1000, nil)
	<-k.closed
	return list
}

func idOf(line string) string {
	var o struct{ Event struct{ ID string } }
	_ = json.Unmarshal([]byte(line), &o)
	return o.Event.ID
}

func ids(lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, idOf(line))
	}
	return all
}

// TestSnapshotSeam attaches at random moments while a turn is written: the events behind the snapshot are exactly those
// whose ids are greater.
func TestSnapshotSeam(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	n.submit(id)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 40 {
			n.Say(id, event(schema.TypeProgress, `{}`), event("custom.metis.skill.loaded", fmt.Sprintf(`{"skill_id":"s%d"}`, i)))
			time.Sleep(time.Millisecond)
		}
	})
	var all []*talker
	var at []string
	for range 20 {
		k := n.attach(id)
		k.subscribed(`{"event_types":["skill.loaded"]}`, "", true)
		at, all = append(at, k.want("snapshot").Str("snapshot_at_event_id")), append(all, k)
	}
	wg.Wait()
	whole := ids(events(n, id, `{"event_types":["skill.loaded"]}`, first(n, id)))
	if len(whole) != 40 {
		t.Fatalf("%d events", len(whole))
	}
	for i, k := range all {
		for _, want := range whole {
			if want <= at[i] {
				continue
			}
			if got := k.want("skill.loaded").Str("event", "id"); got != want {
				t.Fatalf("attach %d: %s, want %s", i, got, want)
			}
		}
	}
}

// TestSnapshotWins: since is not used beside snapshot:true.
func TestSnapshotWins(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	n.submit(id)
	k := n.attach(id)
	if ack := k.subscribed(full, first(n, id), true); ack.At("replay_event_count") != 0.0 {
		t.Errorf("%v", ack)
	}
	if shot := k.want("snapshot"); len(shot["messages"].([]any)) != 1 ||
		shot.Str("session", "current_turn_status") != "in_flight" {
		t.Errorf("%v", shot)
	}
}

// TestTooMuch: 10,000 matching events replay, one more does not, whatever the filter hides.
func TestTooMuch(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	since := first(n, id)
	many := func(count int) {
		for ; count > 0; count -= 500 {
			var list []schema.Event
			for range min(count, 500) {
				list = append(list, event("custom.metis.skill.loaded", `{}`))
			}
			n.Say(id, list...)
		}
	}
	loaded := `{"event_types":["skill.loaded"]}`
	many(10_000)
	if got := events(n, id, loaded, since); len(got) != 10_000 {
		t.Fatalf("%d events", len(got))
	}
	many(1)
	k := n.attach(id)
	k.say(subscribe(loaded, since, false))
	if o := k.want("subscribe_error"); o.Str("code") != "replay_too_large" {
		t.Errorf("%v", o)
	}
	k.subscribed(`{"event_types":["turn.started"]}`, since, false) // none of them matches
}

// TestWorkers: a child is a session of its own, hidden from its parent's clients unless they ask for it, or attached
// directly.
func TestWorkers(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	n.submit(id)
	hidden, shown := n.attach(id), n.attach(id)
	hidden.subscribed(`{"event_types":["delegate.started","skill.loaded","session.created","delegate.completed"]}`, "",
		false)
	shown.subscribed(`{"event_types":["delegate.started","skill.loaded","session.created"],"include_worker_sessions":true}`, "", false)
	n.Say(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeChildSpawn, `{"child_id":"kid"}`))
	worker := shown.want("delegate.started").Str("event", "payload", "worker_session_id")
	if e := shown.want("session.created"); e.Str("event", "session_id") != worker || e.Str("event", "actor") != "worker" {
		t.Errorf("%v", e)
	}
	k := n.attach(worker)
	k.subscribed(`{"event_types":["skill.loaded"]}`, "", true)
	if shot := k.want("snapshot"); shot.Str("session", "id") != worker || shot.Str("session", "parent_session_id") != id {
		t.Errorf("%v", shot)
	}
	n.Say(id, of("kid", event("custom.metis.skill.loaded", `{}`)))
	a, b := shown.want("skill.loaded"), k.want("skill.loaded")
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%v\n%v", a, b)
	}
	n.Say(id, of("kid", event(schema.TypeRunLifecycle, `{"state":"done","reason":null}`)))
	k.ends(1000, "") // its session has ended, which its filter hides
	hidden.want("delegate.started", "delegate.completed")
	again := n.attach(worker)
	again.subscribed(full, "", true)
	again.want("snapshot")
	again.ends(1000, "")
	rest := n.attach(worker)
	rest.subscribed(`{"event_types":["skill.loaded"]}`, first(n, worker), false)
	rest.want("skill.loaded")
	rest.ends(1000, "")
	n.do("POST", path+"/"+worker+"/turns", hello).refused(409, "session_already_ended")
}

// TestEndedSession: what is left of a session that has ended is told, then the socket closes.
func TestEndedSession(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	since := first(n, id)
	n.do("DELETE", path+"/"+id, "").OK(200)
	k := n.attach(id)
	k.subscribed(full, since, false)
	last := k.want("session.ended").Str("event", "id")
	k.ends(1000, "")
	for _, snapshot := range []bool{false, true} {
		k = n.attach(id)
		k.subscribed(full, last, snapshot)
		if snapshot {
			k.want("snapshot")
		}
		k.ends(1000, "")
	}
}

// TestSlowClient: a client that does not read is cut with its reason and goes on with since; another one loses nothing.
func TestSlowClient(t *testing.T) {
	cut := make(chan dialect.Reason, 8)
	n := start(t, serve.Config{Backlog: 50}, func(c *edge.Config) {
		c.Hooks.StreamClosed = func(_ string, _ dialect.Transport, why dialect.Reason) { cut <- why }
	})
	id := n.create()
	n.submit(id)
	good, k := n.attach(id), n.attach(id)
	loaded := `{"event_types":["skill.loaded"]}`
	good.subscribed(loaded, "", false)
	k.subscribed(loaded, "", false)
	for range 3 { // both are live
		n.Say(id, event("custom.metis.skill.loaded", `{"n":-1}`))
		good.want("skill.loaded")
		k.want("skill.loaded")
	}
	wake := k.stops()
	defer wake()
	fill := strings.Repeat("x", 60<<10)
	const events = 400
	for i := range events {
		n.Say(id, event("custom.metis.skill.loaded", fmt.Sprintf(`{"n":%d,"fill":%q}`, i, fill)))
		if e := good.want("skill.loaded"); e.At("event", "payload", "n") != float64(i) {
			t.Fatalf("%v, want %d", e.At("event", "payload", "n"), i)
		}
	}
	wake()
	select {
	case why := <-cut:
		if why != dialect.ReasonOverflow {
			t.Errorf("cut for %s", why)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it was not cut")
	}
	k.ends(1008, `{"code":"client_too_slow","message":"Outbound queue overflowed; reconnect with replay."}`)
	last, next := "", 0
	got := func(k *talker) {
		t.Helper()
		e := k.want("skill.loaded")
		if e.At("event", "payload", "n") != float64(next) {
			t.Fatalf("%v, want %d", e.At("event", "payload", "n"), next)
		}
		last = e.Str("event", "id")
		next++
	}
	for k.at < len(k.frames) {
		got(k)
	}
	again := n.attach(id)
	again.subscribed(loaded, last, false)
	for next < events {
		got(again)
	}
}

// TestExpired: an event that is no longer kept is told apart from one that is; the snapshot is there all the same.
func TestExpired(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	gone := first(n, id)
	n.submit(id)
	n.Say(id, answers("t1")...)
	all := events(n, id, full, gone)
	n.Nodes.Log.Expire(edgetest.Key(id), 5)
	other := join(t, n.Nodes, serve.Config{}) // it has read nothing
	k := other.attach(id)
	k.say(subscribe(full, gone, false))
	if o := k.want("subscribe_error"); o.Str("code") != "cursor_expired" {
		t.Errorf("%v", o)
	}
	k.subscribed(full, "", true)
	k.want("snapshot")
	late := other.attach(id)
	late.subscribed(full, idOf(all[len(all)-2]), false)
	late.want("turn.completed")
}

// TestWorkerIsASession: turns of a worker are submitted and cancelled by its own id, and are not its parent's.
func TestWorkerIsASession(t *testing.T) {
	n := start(t, serve.Config{})
	id := n.create()
	turn := n.submit(id)
	n.Say(id, event(schema.TypeTurnStart, `{"turn_id":"t"}`), event(schema.TypeChildSpawn, `{"child_id":"kid"}`))
	own := n.submit("kid")
	n.do("POST", path+"/kid/turns/"+turn+"/cancel", "").refused(404, "turn_not_found")
	n.do("POST", path+"/"+id+"/turns/"+own+"/cancel", "").refused(404, "turn_not_found")
	k := n.attach("kid")
	k.subscribed(`{"event_types":["turn.cancelled","session.ended"]}`, "", false)
	k.say(fmt.Sprintf(`{"type":"cancel","turn_id":%q}`, turn))
	k.say(fmt.Sprintf(`{"type":"cancel","turn_id":%q}`, own))
	k.say(`{"type":"ping","nonce":"x"}`)
	k.want("pong")
	if n := count(n.Types(id), "command.cancel"); n != 1 {
		t.Errorf("%d cancellations", n)
	}
	n.Say(id, of("kid", event(schema.TypeCommandsTaken, fmt.Sprintf(`{"through":%d}`, len(n.Types(id))))))
	if e := k.want("turn.cancelled"); e.Str("event", "turn_id") != own || e.Str("event", "session_id") != "kid" {
		t.Errorf("%v", e)
	}
	if o := n.do("DELETE", path+"/kid", "").OK(200); o.Str("id") != "kid" || o.Str("parent_session_id") != id {
		t.Errorf("%v", o)
	}
	k.want("session.ended")
	k.ends(1000, "")
	if o := n.do("GET", path+"/"+id, "").OK(200); o.Str("current_turn_id") != turn {
		t.Errorf("%v", o)
	}
}
