package langgraph

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// The tests of this file are the points of "What the real client needs" (digest, §8) that are about frames and about
// the state.

// TestNeed01EventIDs: on every event, unique in the thread, the same on every replay.
func TestNeed01EventIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range told(t, log(allChannels)) {
		if e.EventID == "" || seen[e.EventID] {
			t.Errorf("id %q", e.EventID)
		}
		seen[e.EventID] = true
	}
	for _, e := range told(t, log(allChannels)) {
		if !seen[e.EventID] {
			t.Errorf("id %q is new", e.EventID)
		}
	}
}

// TestNeed02Seq: integers below 2^53 that rise over the whole thread, across runs, and say the frame's place.
func TestNeed02Seq(t *testing.T) {
	last := int64(0)
	for _, e := range told(t, log(allChannels)) {
		if e.Seq <= last || e.Seq >= 1<<53 || Number(PlaceOf(e.Seq)) != e.Seq {
			t.Errorf("%d behind %d", e.Seq, last)
		}
		last = e.Seq
	}
	if n := Number(dialect.Place{Seq: MaxNumber >> slotBits, Slot: dialect.MaxSlot}); n != MaxNumber {
		t.Errorf("the greatest number is %d", n)
	}
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// TestNeed03RootLifecycle: ids synth:RUN:…, which say the run that was asked for before an agent was there; run_id in
// the envelope. Each run has one running and one terminal.
func TestNeed03RootLifecycle(t *testing.T) {
	var got []string
	for _, e := range told(t, log(allChannels)) {
		if e.Method != "lifecycle" || len(e.Params.Namespace) > 0 {
			continue
		}
		parts := strings.Split(e.EventID, ":")
		if len(parts) != 3 || parts[0] != "synth" || !uuid.MatchString(parts[1]) || parts[1] != e.RunID {
			t.Errorf("id %s of run %s", e.EventID, e.RunID)
		}
		got = append(got, e.d.Event+" "+parts[1])
	}
	want := []string{}
	for _, run := range []struct {
		seq schema.Seq
		end string
	}{{2, interrupted}, {36, completed}, {44, interrupted}} {
		want = append(want, "running "+RunID(schematest.Root, run.seq), run.end+" "+RunID(schematest.Root, run.seq))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestNeed04OtherIDs: digits-digits; both forms are cursors.
func TestNeed04OtherIDs(t *testing.T) {
	shape := regexp.MustCompile(`^\d+-\d+$`)
	for _, e := range told(t, log(allChannels)) {
		if root := strings.HasPrefix(e.EventID, synth); !root && !shape.MatchString(e.EventID) {
			t.Errorf("id %s", e.EventID)
		}
		for _, id := range []string{e.EventID, e.EventID[strings.LastIndexByte(e.EventID, ':')+1:]} {
			if at, err := ParseEventID(schematest.Root, id); err != nil || Number(at) != e.Seq {
				t.Errorf("%s is %+v: %v", id, at, err)
			}
			if _, err := ParseEventID("another", id); err == nil {
				t.Errorf("%s is one of another thread, too", id)
			}
		}
	}
	req, err := Dialect{}.Open(dialect.Input{Body: []byte(`{"channels":["values"],"since":40000}`),
		Path:   map[string]string{"run": "r"},
		Header: map[string][]string{"Last-Event-Id": {EventID("r", dialect.Place{Seq: 9, Slot: 2})}}})
	if err != nil || req.Cursor.Place != (dialect.Place{Seq: 9, Slot: 2}) {
		t.Errorf("%+v: %v", req, err)
	}
}

// TestNeed05Params: the namespace is a list also at the root, the timestamp a number.
func TestNeed05Params(t *testing.T) {
	for _, e := range told(t, log(allChannels)) {
		if e.Params.Namespace == nil || e.Params.Timestamp == nil || *e.Params.Timestamp < 1.7e12 || e.Type != "event" {
			t.Errorf("%+v", e)
		}
	}
}

// TestNeed06ModelRuns: every payload of messages has the id of its model call and of its message.
func TestNeed06ModelRuns(t *testing.T) {
	runs := map[string]string{}
	for _, e := range told(t, schematest.ByName("children")) {
		if e.Method != "messages" {
			continue
		}
		if !uuid.MatchString(e.d.RunID) || e.d.MessageID == "" || e.d.RunID == e.RunID {
			t.Errorf("%s", e.Params.Data)
		}
		if was := runs[e.d.RunID]; was != "" && was != e.d.MessageID {
			t.Errorf("%s is of %s and %s", e.d.RunID, was, e.d.MessageID)
		}
		runs[e.d.RunID] = e.d.MessageID
	}
	if len(runs) != 5 {
		t.Errorf("%d model calls", len(runs))
	}
}

// TestNeed07Subagents: children of a call are tools:…, with cause; two of one call are apart; calls of a child are
// within its namespace.
func TestNeed07Subagents(t *testing.T) {
	got := short(told(t, log(`
		run.lifecycle {"state":"running"}
		tool.start {"call_id":"k","tool":"task"}
		child.spawn {"child_id":"a","call_id":"k","name":"helper"}
		child.spawn {"child_id":"b","call_id":"k"}
		child.spawn {"child_id":"c","name":"fetch:er"}
		a:tool.start {"call_id":"l","tool":"search"}
		a:tool.end {"call_id":"l","ok":true,"output":1}
		a:run.lifecycle {"state":"error","reason":"no"}
		tool.end {"call_id":"k","ok":false,"error_detail":{"message":"bad"}}
		run.lifecycle {"state":"done"}`)))
	want(t, got, `
		lifecycle running
		tools tool-started
		lifecycle started @tools:k
		lifecycle started @tools:k-b
		lifecycle started @fetch_er:c
		tools tool-started @tools:k
		tools tool-finished @tools:k
		lifecycle failed no @tools:k
		tools tool-error bad
		lifecycle completed @tools:k-b
		lifecycle completed @fetch_er:c
		lifecycle completed`)
	for _, e := range told(t, log(allChannels)) {
		if e.Method == "lifecycle" && e.d.Event == "started" {
			if c := e.d.Cause; c == nil || c.Type != "toolCall" || c.Call != "k" {
				t.Errorf("%s", e.Params.Data)
			}
		}
	}
}

// TestNeed14NoCursor: everything from the first event on; a thread that is not there is waited for (need 10).
func TestNeed14NoCursor(t *testing.T) {
	for _, body := range []string{everything, `{"channels":["values"],"since":0}`} {
		if req := requested(t, body); !req.Await || req.Newest || req.Cursor != (dialect.Cursor{}) {
			t.Errorf("%s: %+v", body, req)
		}
	}
}

// TestNeed16BodyKeys: channels, namespaces, depth and since. depth without namespaces means nothing.
func TestNeed16BodyKeys(t *testing.T) {
	a, b := requested(t, `{"channels":["values"],"depth":0}`), requested(t, `{"channels":["values"],"namespaces":[]}`)
	if a.Select.Key() != b.Select.Key() {
		t.Errorf("%s, %s", a.Select.Key(), b.Select.Key())
	}
	c := requested(t, `{"channels":["values","values"],"namespaces":[["b"],["a"],["b"]],"depth":1}`)
	d := requested(t, `{"namespaces":[["a"],["b"]],"depth":1,"channels":["values"],"more":{}}`)
	if c.Select.Key() != d.Select.Key() || c.Select.Key() == a.Select.Key() {
		t.Errorf("%s, %s", c.Select.Key(), d.Select.Key())
	}
}

// state returns the thread's state at the end of a log.
func stateOf(t *testing.T, s schematest.Scenario) (p *Projector, got struct {
	Values   struct{ Messages []struct{ ID, Type string } }
	Next     []string
	Tasks    []struct{ Interrupts []struct{ ID string } }
	Created  string `json:"created_at"`
	Metadata struct{ Step int }
}) {
	t.Helper()
	list := records(t, s)
	p = projector(t, everything)
	project(t, p, list)
	b, err := p.AppendState(nil, walk(list))
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return p, got
}

// TestNeed28State: the shape of the state, from messages where none was stored.
func TestNeed28State(t *testing.T) {
	p, s := stateOf(t, schematest.ByName("follow-up"))
	var ids []string
	for _, m := range s.Values.Messages {
		ids = append(ids, m.Type+" "+m.ID)
	}
	if want := []string{"ai msg_1", "human msg_u", "ai msg_2"}; !slices.Equal(ids, want) || p.Status() != "idle" ||
		s.Metadata.Step != 3 {
		t.Errorf("%v, %s, %+v", ids, p.Status(), s.Metadata)
	}
	stored := log(`run.lifecycle {"state":"running"}
		checkpoint.created {"checkpoint_id":"c","step":4}
		state.values {"values":{"messages":[{"id":"x","type":"ai"}]}}`)
	if _, s := stateOf(t, stored); len(s.Values.Messages) != 1 || s.Metadata.Step != 4 {
		t.Errorf("%+v", s)
	}
}

// TestNeed29Next: not empty while a run goes on or waits for an answer.
func TestNeed29Next(t *testing.T) {
	all := log(allChannels)
	for n, want := range map[int]string{2: "busy", 20: "busy", 35: "interrupted", 36: "busy", 43: "idle", 47: "busy",
		50: "idle"} {
		p, s := stateOf(t, schematest.Scenario{Events: all.Events[:n]})
		if p.Status() != want || (len(s.Next) == 0) != (want == "idle") {
			t.Errorf("after %d: %s, next %v, want %s", n, p.Status(), s.Next, want)
		}
		if asks := len(s.Tasks) > 0 && len(s.Tasks[0].Interrupts) == 2; want == interrupted && !asks {
			t.Errorf("after %d: %+v", n, s.Tasks)
		}
	}
}

// TestNeed30CreatedAt: on the clock of the events, and not later than what is still to come of what it does not have.
func TestNeed30CreatedAt(t *testing.T) {
	all := schematest.ByName("tool")
	list := records(t, all)
	for n := 3; n <= len(list); n++ {
		_, s := stateOf(t, schematest.Scenario{Events: all.Events[:n]})
		_, newest, _ := list[n-1].Envelope()
		if s.Created > string(newest) || s.Created == "" && len(s.Values.Messages) > 0 {
			t.Errorf("after %d: %q, the newest record is of %s", n, s.Created, newest)
		}
	}
}

// TestNeed31Sealed: a message that streams is not in the state.
func TestNeed31Sealed(t *testing.T) {
	all := schematest.ByName("plain")
	for n := range all.Events {
		_, s := stateOf(t, schematest.Scenario{Events: all.Events[:n+1]})
		if ended := n+1 >= 23; (len(s.Values.Messages) > 0) != ended {
			t.Errorf("after %d: %+v", n+1, s.Values.Messages)
		}
	}
}

// TestNeed33Blocks: the finish is whole; a block of which nothing was streamed has a delta all the same.
func TestNeed33Blocks(t *testing.T) {
	all := told(t, log(`
		message.end {"message_id":"m","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Hi."},{"type":"tool_use","id":"c","name":"n","input":{"a":1}}]}`))
	want(t, short(all), `
		lifecycle running
		messages message-start
		messages content-block-start reasoning
		messages content-block-delta reasoning-delta
		messages content-block-finish reasoning
		messages content-block-start text
		messages content-block-delta text-delta
		messages content-block-finish text
		messages content-block-start tool_call_chunk
		messages content-block-finish tool_call
		messages message-finish`)
	if wrong := malformed(all); wrong != "" {
		t.Error(wrong)
	}
}

// TestNeed35Cancel: open messages end with an error, before the terminal, also where nobody ends them.
func TestNeed35Cancel(t *testing.T) {
	want(t, short(told(t, log(`
		run.lifecycle {"state":"running"}
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"I am "}
		kid:text.delta {"text":"Me too"}
		command.cancel {}
		run.lifecycle {"state":"aborted","reason":"enough"}`))), `
		lifecycle running
		messages message-start
		messages content-block-start text
		messages content-block-delta text-delta
		lifecycle started @kid
		messages message-start @kid
		messages content-block-start text @kid
		messages content-block-delta text-delta @kid
		messages content-block-finish text
		messages error enough
		messages content-block-finish text @kid
		messages error enough @kid
		lifecycle interrupted @kid
		lifecycle interrupted`)
}

// TestNeed36LateEvents: nothing of a run follows its terminal, which has the last slot of its record.
func TestNeed36LateEvents(t *testing.T) {
	for _, s := range scenarios() {
		over := map[string]bool{}
		for _, e := range told(t, s) {
			if over[e.RunID] && s.Name != "late" && s.Name != "hostile" {
				t.Errorf("%s: %s %s behind the terminal of its run", s.Name, e.Method, e.Params.Data)
			}
			if e.Method == "lifecycle" && len(e.Params.Namespace) == 0 && e.d.Event != "running" {
				over[e.RunID] = true
				if PlaceOf(e.Seq).Slot != slotLast {
					t.Errorf("%s: slot %d", s.Name, PlaceOf(e.Seq).Slot)
				}
			}
		}
	}
}

// TestInterrupts: one interrupted follows the last of several requests; the payload stands under both names; an answer
// begins the next run and is told.
func TestInterrupts(t *testing.T) {
	all := told(t, log(allChannels))
	var got []string
	for _, e := range all {
		switch e.Method {
		case "input.requested":
			if string(e.d.Payload) != string(e.d.Value) || e.d.InterruptID == "i1" && string(e.d.Payload) != `{"q":"ok?"}` {
				t.Errorf("%s", e.Params.Data)
			}
			got = append(got, "? "+e.d.InterruptID)
		case "input.answered":
			got = append(got, "! "+e.d.Interrupts[0])
		case "lifecycle":
			if len(e.Params.Namespace) == 0 {
				got = append(got, e.d.Event)
			}
		}
	}
	if want := "running,? i1,? i2,interrupted,! i1,! i2,running,completed,running,interrupted"; strings.Join(got,
		",") != want {
		t.Errorf("%v", got)
	}
}

// TestMultitask: an injected message is answered in the run under way, whose terminal waits for it; one that is
// enqueued has a run of its own; a cancellation leaves what came before it unanswered.
func TestMultitask(t *testing.T) {
	runs := func(text string) (got []string) {
		for _, e := range told(t, log(text)) {
			if e.Method == "lifecycle" && len(e.Params.Namespace) == 0 {
				for seq := range schema.Seq(20) {
					if RunID(schematest.Root, seq) == e.RunID {
						got = append(got, fmt.Sprintf("%d:%s", seq, e.d.Event))
					}
				}
			}
		}
		return got
	}
	const two = `command.message {"content":"a"}
		turn.start {"turn_id":"1"}
		command.message {"content":"b"%s}
		turn.end {"turn_id":"1"}
		commands.taken {"through":1}
		turn.start {"turn_id":"2"}
		turn.end {"turn_id":"2"}
		commands.taken {"through":3}`
	for strategy, want := range map[string]string{
		"": "[1:running 1:completed]", `,"multitask_strategy":"enqueue"`: "[1:running 1:completed 3:running 3:completed]",
	} {
		if got := fmt.Sprint(runs(fmt.Sprintf(two, strategy))); got != want {
			t.Errorf("%s: %s, want %s", strategy, got, want)
		}
	}
	// A worker says what it has taken within the turn, and answers again what one that has died did not.
	if got := fmt.Sprint(runs(`session.created {}
		command.message {"content":"a"}
		commands.taken {"through":1}
		turn.start {"turn_id":"1"}
		turn.end {"turn_id":"1","stop_reason":"error","reason":"the worker has died"}
		turn.start {"turn_id":"2"}
		commands.taken {"through":2}
		turn.end {"turn_id":"2","stop_reason":"end_turn"}
		command.message {"content":"b"}
		turn.start {"turn_id":"3"}
		command.message {"content":"c"}
		commands.taken {"through":9}
		turn.end {"turn_id":"3","stop_reason":"end_turn"}
		turn.start {"turn_id":"4"}
		commands.taken {"through":11}
		turn.end {"turn_id":"4","stop_reason":"end_turn"}`)); got != "[2:running 2:completed 9:running 9:completed]" {
		t.Error(got)
	}
	if got := fmt.Sprint(runs(`command.message {"content":"a"}
		turn.start {"turn_id":"1"}
		command.message {"content":"b"}
		command.cancel {}
		command.message {"content":"c","multitask_strategy":"interrupt"}
		turn.end {"turn_id":"1","stop_reason":"cancelled"}
		commands.taken {"through":4}
		turn.start {"turn_id":"2"}
		turn.end {"turn_id":"2"}
		commands.taken {"through":5}`)); got != "[1:running 1:interrupted 5:running 5:completed]" {
		t.Error(got)
	}
}

// TestLongBlocks: a text of more than 256 KiB ends and goes on as the next block; a call that long is said to be
// invalid unless its producer has it whole.
func TestLongBlocks(t *testing.T) {
	piece := strings.Repeat("x", 50_000)
	var b strings.Builder
	b.WriteString(`message.start {"message_id":"m","role":"assistant"}` + "\n")
	for range 20 {
		fmt.Fprintf(&b, "text.delta {\"text\":%q,\"index\":0}\n", piece)
	}
	b.WriteString(`block.start {"index":1,"kind":"tool_use","call_id":"c","tool":"t"}` + "\n")
	for range 8 {
		fmt.Fprintf(&b, "tool.input.delta {\"call_id\":\"c\",\"text\":%q}\n", piece)
	}
	b.WriteString(`block.end {"index":1,"input":{"whole":true}}` + "\n" + `message.end {"message_id":"m"}`)
	all := told(t, log(b.String()))
	if wrong := malformed(all); wrong != "" {
		t.Fatal(wrong)
	}
	said, finishes := 0, 0
	for _, e := range all {
		if c := e.d.Content; e.d.Event == "content-block-finish" && c.Type == "text" {
			said += len(c.Text)
			if finishes++; len(c.Text) > limits.Text {
				t.Errorf("a block of %d bytes", len(c.Text))
			}
		} else if c.Type == "tool_call" && string(c.Args) != `{"whole":true}` {
			t.Errorf("%.80s", c.Args)
		}
	}
	if said != 1_000_000 || finishes != 4 {
		t.Errorf("%d bytes in %d blocks", said, finishes)
	}
}

// TestArguments: what is sent of a call's arguments is whole each time, and together at most five times the final
// bytes.
func TestArguments(t *testing.T) {
	final := `{"text":"` + strings.Repeat("abc ", 3000) + `"}`
	for _, size := range []int{1, 7, 100, len(final)} {
		var b strings.Builder
		b.WriteString(`block.start {"index":0,"kind":"tool_use","call_id":"c","tool":"t"}` + "\n")
		for i := 0; i < len(final); i += size {
			fmt.Fprintf(&b, "tool.input.delta {\"call_id\":\"c\",\"text\":%q}\n", final[i:min(i+size, len(final))])
		}
		b.WriteString(`block.end {"index":0}`)
		sum, deltas := 0, 0
		for _, e := range told(t, log(b.String())) {
			if f := e.d.Delta.Fields; f.Type != "" {
				var args string
				if err := json.Unmarshal(f.Args, &args); err != nil || !strings.HasPrefix(final, args) || f.ID != "c" ||
					f.Name != "t" {
					t.Fatalf("%s: %v", e.Params.Data, err)
				}
				sum, deltas = sum+len(args), deltas+1
			} else if e.d.Event == "content-block-finish" && string(e.d.Content.Args) != final {
				t.Errorf("%.80s", e.d.Content.Args)
			}
		}
		if sum > 5*len(final) || deltas == 0 {
			t.Errorf("pieces of %d: %d bytes in %d deltas, %d are final", size, sum, deltas, len(final))
		}
	}
}

// TestMedia: pieces of base64 can be decoded alone, and the finish has all of them under both names.
func TestMedia(t *testing.T) {
	raw := bytes.Repeat([]byte{1, 2, 3, 250, 99}, 40)
	text := base64.StdEncoding.EncodeToString(raw)
	var b strings.Builder
	for i := 0; i < len(text); i += 10 {
		fmt.Fprintf(&b, "data.delta {\"media_type\":\"audio/wav\",\"data\":%q,\"index\":0}\n", text[i:min(i+10, len(text))])
	}
	b.WriteString("turn.end {\"turn_id\":\"t\"}\n")
	var got []byte
	for _, e := range told(t, log(b.String())) {
		if d := e.d.Delta.Data; d != "" {
			piece, err := base64.StdEncoding.DecodeString(d)
			if err != nil {
				t.Fatalf("%q: %v", d, err)
			}
			got = append(got, piece...)
		}
		if e.d.Event == "content-block-finish" &&
			(e.d.Content.Data != text || e.d.Content.Base64 != text || e.d.Content.Type != "audio") {
			t.Errorf("%s", e.Params.Data)
		}
	}
	if !bytes.Equal(got, raw) {
		t.Errorf("%d bytes", len(got))
	}
}

// TestNamespacesOfProducers: the namespace and the node that a LangGraph agent has put into an event come out as they
// went in.
func TestNamespacesOfProducers(t *testing.T) {
	for _, e := range told(t, log(`
		run.lifecycle {"state":"running"}
		message.start {"message_id":"m","role":"assistant","namespace":["fetcher:9f3c","x|y"],"node":"model"}
		text.delta {"text":"x"}
		message.end {"message_id":"m"}
		state.values {"values":{"n":1},"namespace":["fetcher:9f3c","x|y"],"node":"model"}
		custom.note {"payload":7,"namespace":["fetcher:9f3c","x|y"],"node":"model"}`))[1:] {
		if strings.Join(e.Params.Namespace, " ") != "fetcher:9f3c x|y" || e.Params.Node != "model" {
			t.Errorf("%s: %+v", e.Method, e.Params)
		}
		if e.Method == "custom" && string(e.d.Payload) != "7" {
			t.Errorf("%s", e.Params.Data)
		}
	}
}

// TestSnapshot: a stream that begins with the newest state has it first, under its own number.
func TestSnapshot(t *testing.T) {
	list := records(t, log(allChannels))
	kept := newProjector(dialect.Request{})
	for _, r := range list {
		if err := kept.Project(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	var number int64
	for _, e := range told(t, log(allChannels)) {
		if e.Method == "values" {
			number = e.Seq
		}
	}
	for body, want := range map[string]int{`{"channels":["values"],"snapshot":true}`: 1,
		`{"channels":["messages"],"snapshot":true}`: 0, `{"channels":["values"]}`: 0,
		`{"channels":["values"],"namespaces":[["x"]],"snapshot":true}`: 0,
		`{"channels":["values"],"snapshot":true,"since":99999}`:        0} {
		var out dialect.Frames
		if err := kept.For(requested(t, body)).(*Projector).Open(&out, 0); err != nil || len(out.List) != want {
			t.Fatalf("%s: %d frames: %v", body, len(out.List), err)
		}
		var e event
		if want > 0 && (json.Unmarshal(out.List[0].Data, &e) != nil || e.Seq != number ||
			string(e.Params.Data) != `{"messages":[],"n":1}`) {
			t.Errorf("%s", out.List[0].Data)
		}
	}
}
