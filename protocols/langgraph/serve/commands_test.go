package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
)

// ask sends a command over HTTP, and returns the result, which fits its schema.
func (n *node) ask(thread, method, params string, headers ...string) object {
	n.T.Helper()
	o := n.do("POST", "/threads/"+thread+"/commands", fmt.Sprintf(`{"id":7,"method":%q,"params":%s}`, method, params),
		headers...).OK(200)
	if o.Str("type") != "success" || o["id"] != 7.0 || o.Str("meta", "thread_id") != thread {
		n.T.Fatalf("%s %s: %v", method, params, o)
	}
	text, err := json.Marshal(o["result"])
	if err == nil {
		err = langgraphtest.ValidResult(method, text)
	}
	if err != nil {
		n.T.Errorf("%s: %v: %s", method, err, text)
	}
	return o
}

// refuses holds that a command is refused with a code, and 200.
func (n *node) refuses(thread, method, params, code string) {
	n.T.Helper()
	o := n.do("POST", "/threads/"+thread+"/commands",
		fmt.Sprintf(`{"id":7,"method":%q,"params":%s}`, method, params)).OK(200)
	if o.Str("type") != "error" || o.Str("error") != code || o["id"] != 7.0 || o.Str("message") == "" {
		n.T.Errorf("%s %s: %v, want %s", method, params, o, code)
	}
}

// payloads returns the payloads of a run's records of one type.
func (n *node) payloads(run, typ string) (list []object) {
	n.T.Helper()
	for p, err := range n.Nodes.Log.Packs(n.T.Context(), schema.RunKey{Tenant: tenant, Run: run}, 0, schema.MaxSeq) {
		if err != nil {
			n.T.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				n.T.Fatal(err)
			}
			e, err := r.Event()
			if err != nil {
				n.T.Fatal(err)
			}
			if e.Type == typ {
				var o object
				if err := json.Unmarshal(e.Payload, &o); err != nil {
					n.T.Fatal(err)
				}
				list = append(list, o)
			}
		}
	}
	return list
}

const hello = `{"assistant_id":"agent","input":{"messages":[{"type":"human","content":"hello","id":"m1"}]},"config":{"configurable":{"x":1.50}},"metadata":{"a":null}}`

const working = `run.lifecycle {"state":"running"}
turn.start {"turn_id":"t"}`

// TestNeed26RunStart: the answer has the run's id before there is an agent; the same id is on its events.
func TestNeed26RunStart(t *testing.T) {
	n := start(t, serve.Config{})
	got := n.ask("th", "run.start", hello)
	id := got.Str("result", "run_id")
	if types := n.Types("th"); !slices.Equal(types, []string{"session.created", "command.message"}) || id == "" {
		t.Fatalf("%v, run %q", types, id)
	}
	said := n.payloads("th", "command.message")[0]
	if said.Str("content") != "hello" || said.Str("message_id") != "m1" || said.Str("assistant_id") != "agent" ||
		said.Str("by") != "ann" || said.At("config", "configurable", "x") != 1.5 {
		t.Errorf("the message is %v", said)
	}
	n.Say("th", log(working)...)
	w := n.watch(eventsOf("th"), `{"channels":["lifecycle"]}`)
	defer w.close()
	if e := w.next(); !strings.HasPrefix(e.id, "synth:"+id+":") {
		t.Errorf("running is %q, want run %s", e.id, id)
	}
}

// TestNeed25Applied: applied_through_seq is the number before the run that run.start makes, so that no event of it is
// passed over.
func TestNeed25Applied(t *testing.T) {
	n := start(t, serve.Config{})
	if got := n.ask("th", "run.start", hello); got.At("meta", "applied_through_seq") != 0.0 {
		t.Errorf("on no thread: %v", got)
	}
	n.Say("th", log(working+"\n"+`turn.end {"turn_id":"t","stop_reason":"end_turn"}`+"\n"+
		`commands.taken {"through":2}`)...)
	last := langgraph.Number(dialect.Place{Seq: 6, Slot: dialect.MaxSlot})
	if got := n.ask("th", "run.start", hello).At("meta", "applied_through_seq"); got != float64(last) {
		t.Errorf("applied through %v, want %d", got, last)
	}
}

func TestRunStartWhileActive(t *testing.T) {
	for _, c := range []struct {
		strategy string
		types    []string
		same     bool // the answer names the run under way
	}{
		{"", []string{"command.message"}, true},
		{`,"multitask_strategy":"enqueue"`, []string{"command.message"}, false},
		{`,"multitaskStrategy":"interrupt"`, []string{"command.cancel", "command.message"}, false},
		{`,"multitask_strategy":"rollback"`, []string{"command.cancel", "command.message"}, false},
	} {
		n := start(t, serve.Config{})
		first := n.ask("th", "run.start", hello).Str("result", "run_id")
		n.Say("th", log(working)...)
		params := strings.Replace(hello, `,"input"`, c.strategy+`,"input"`, 1)
		second := n.ask("th", "run.start", params).Str("result", "run_id")
		if types := n.Types("th")[4:]; !slices.Equal(types, c.types) || second == first != c.same {
			t.Errorf("%q: %v, run %s behind %s", c.strategy, types, second, first)
		}
	}
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.refuses("th", "run.start", strings.Replace(hello, `,"input"`, `,"multitask_strategy":"reject","input"`, 1),
		"invalid_argument")
	n.refuses("th", "run.start", strings.Replace(hello, `,"input"`, `,"multitask_strategy":"wait","input"`, 1),
		"invalid_argument")
	if got := n.Types("th"); len(got) != 2 {
		t.Errorf("a refusal has stored %v", got)
	}
}

const asking = working + `
input.requested {"request_id":"q1","prompt":"one?"}
input.requested {"request_id":"q2","prompt":"two?"}
turn.end {"turn_id":"t","stop_reason":"end_turn"}
commands.taken {"through":2}`

// TestNeed27Respond: an answer to what is not asked, or is answered, is an error.
func TestNeed27Respond(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(asking)...)
	n.refuses("th", "input.respond", `{"namespace":[],"interrupt_id":"q3","response":1}`, "no_such_interrupt")
	n.refuses("th", "input.respond", `{"namespace":["x"],"interrupt_id":"q1","response":1}`, "no_such_namespace")
	n.refuses("th", "input.respond", `{"namespace":[]}`, "invalid_argument")
	n.refuses("th", "input.respond", `{"responses":[]}`, "invalid_argument")
	n.refuses("th", "input.respond", `{"responses":[{"namespace":[],"interrupt_id":"q1","response":1},{"namespace":[],"interrupt_id":"q1","response":2}]}`, "invalid_argument")
	n.ask("th", "input.respond", `{"responses":[{"namespace":[],"interrupt_id":"q1","response":{"yes":true}},{"namespace":[],"interruptId":"q2","response":null,"goto":"node"}]}`)
	if got := n.payloads("th", "command.answer"); len(got) != 2 || got[0].At("answer", "yes") != true ||
		got[1].Str("goto") != "node" || got[1].Str("by") != "ann" {
		t.Errorf("answers %v", got)
	}
	n.refuses("th", "input.respond", `{"namespace":[],"interrupt_id":"q1","response":1}`, "no_such_interrupt") // answered
	n.refuses("nothing", "input.respond", `{"namespace":[],"interrupt_id":"q1","response":1}`, "no_such_run")
}

// TestRunStartInterrupted: the input is the answer to what the thread waits for.
func TestRunStartInterrupted(t *testing.T) {
	n := start(t, serve.Config{})
	first := n.ask("th", "run.start", hello).Str("result", "run_id")
	n.Say("th", log(asking)...)
	n.refuses("th", "run.start", `{"assistant_id":"agent","input":"yes"}`, "invalid_argument") // to which of the two?
	second := n.ask("th", "run.start", `{"assistant_id":"agent","input":{"q1":"a","q2":"b"}}`).Str("result", "run_id")
	got := n.payloads("th", "command.answer")
	if len(got) != 2 || got[0].Str("answer") != "a" || got[1].Str("answer") != "b" || second == first {
		t.Errorf("answers %v, run %s behind %s", got, second, first)
	}
	n.Say("th", log(working)...)
	w := n.watch(eventsOf("th"), `{"channels":["lifecycle"]}`)
	defer w.close()
	var ids []string
	for range 3 {
		ids = append(ids, w.next().id)
	}
	if !strings.HasPrefix(ids[2], "synth:"+second+":") {
		t.Errorf("running again is %q, want run %s", ids[2], second)
	}
}

// TestTwoAtOnce: of what two nodes are asked for at once, each counts as the thread is when it is stored.
func TestTwoAtOnce(t *testing.T) {
	all := edgetest.Share()
	a, b := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	for i := range 20 {
		thread := fmt.Sprintf("th%d", i)
		var wg sync.WaitGroup
		ids := make([]string, 2)
		for k, n := range []*node{a, b} {
			wg.Go(func() { ids[k] = n.ask(thread, "run.start", hello).Str("result", "run_id") })
		}
		wg.Wait()
		if got := a.Types(thread); len(got) != 3 || ids[0] != ids[1] { // the second is injected into the run of the first
			t.Fatalf("%v, runs %v", got, ids)
		}
		a.Say(thread, log(strings.ReplaceAll(asking, `"through":2`, `"through":3`))...)
		codes := make([]string, 2)
		for k, n := range []*node{a, b} {
			wg.Go(func() {
				codes[k] = n.do("POST", "/threads/"+thread+"/commands",
					`{"id":1,"method":"input.respond","params":{"namespace":[],"interrupt_id":"q1","response":1}}`).OK(200).Str("error")
			})
		}
		wg.Wait()
		if slices.Sort(codes); !slices.Equal(codes, []string{"", "no_such_interrupt"}) ||
			len(a.payloads(thread, "command.answer")) != 1 {
			t.Fatalf("two answers: %v", codes)
		}
	}
}

func TestInject(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+`
child.spawn {"child_id":"kid","call_id":"c1"}
kid:run.lifecycle {"state":"running"}`)...)
	n.ask("th", "input.inject", `{"namespace":[],"message":{"role":"system","content":"be brief"}}`)
	n.ask("th", "input.inject", `{"namespace":["tools:c1"],"message":{"role":"user","content":[{"type":"text","text":"and you?"}],"name":"ann"}}`)
	n.refuses("th", "input.inject", `{"namespace":["tools:c2"],"message":{"role":"user","content":"x"}}`,
		"no_such_namespace")
	n.refuses("th", "input.inject", `{"namespace":[],"message":{"role":"assistant","content":"x"}}`, "invalid_argument")
	n.refuses("th", "input.inject", `{"namespace":[],"message":"x"}`, "invalid_argument")
	got := n.payloads("th", "command.message")
	if len(got) != 3 || got[1].Str("role") != "system" || got[2].Str("name") != "ann" {
		t.Errorf("messages %v", got)
	}
	tree := n.ask("th", "agent.getTree", `{}`)
	children, _ := tree.At("result", "tree", "children").([]any)
	if tree.Str("result", "tree", "status") != "running" || len(children) != 1 ||
		children[0].(map[string]any)["status"] != "running" {
		t.Errorf("tree %v", tree["result"])
	}
	n.refuses("th", "agent.getTree", `{"run_id":"none"}`, "no_such_run")
}

const points = `checkpoint.created {"checkpoint_id":"k1","step":0}
state.values {"values":{"n":1,"messages":[]}}
checkpoint.created {"checkpoint_id":"k2","step":1}
state.values {"values":{"n":2,"messages":[]}}
checkpoint.created {"checkpoint_id":"k3","step":2}
state.values {"values":{"n":3,"messages":[],"big":12345678901234567890}}`

// ids returns a field of the objects in a list.
func ids(list any, name string) (out []string) {
	for _, e := range list.([]any) {
		out = append(out, fmt.Sprint(e.(map[string]any)[name]))
	}
	return out
}

func TestStates(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+points)...)
	if got := n.ask("th", "state.get", `{"namespace":[],"keys":["n"]}`); fmt.Sprint(got.At("result",
		"values")) != "map[n:3]" || got.Str("result", "checkpoint", "id") != "k3" {
		t.Errorf("state %v", got["result"])
	}
	n.refuses("th", "state.get", `{"namespace":["x"]}`, "no_such_namespace")
	n.refuses("th", "state.get", `{"namespace":[1]}`, "invalid_argument")
	if got := ids(n.ask("th", "state.listCheckpoints", `{}`).At("result", "checkpoints"), "id"); !slices.Equal(got,
		[]string{"k3", "k2", "k1"}) {
		t.Errorf("checkpoints %v", got)
	}
	if got := ids(n.ask("th", "state.listCheckpoints", `{"limit":1,"before":"k3"}`).At("result", "checkpoints"),
		"id"); !slices.Equal(got, []string{"k2"}) {
		t.Errorf("before k3: %v", got)
	}
	n.refuses("th", "state.listCheckpoints", `{"before":"k9"}`, "no_such_checkpoint")
	n.refuses("th", "state.listCheckpoints", `{"limit":0}`, "invalid_argument")
	n.refuses("th", "state.fork", `{"checkpoint_id":"k9"}`, "no_such_checkpoint")
	n.refuses("th", "run.start", `{"assistant_id":"a","input":null,"config":{"configurable":{"checkpoint_id":"k9"}}}`,
		"no_such_checkpoint")
	if !strings.Contains(n.do("GET", "/threads/th/state", "").Body, `"big":12345678901234567890`) {
		t.Error("a number of the state was changed")
	}
}

// TestFork: a new thread begins with a state of another one, and waits for a run.
func TestFork(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+points)...)
	forked := n.ask("th", "state.fork", `{"checkpoint_id":"k2"}`)
	made := forked.Str("result", "thread_id")
	state := n.do("GET", "/threads/"+made+"/state", "").OK(200)
	if fmt.Sprint(state.At("values", "n")) != "2" || state.Str("checkpoint", "checkpoint_id") != "k2" ||
		len(state["next"].([]any)) != 0 {
		t.Errorf("forked to %v", state)
	}
	if tree := n.ask(made, "agent.getTree", `{}`); tree.Str("result", "tree", "status") != "started" ||
		tree.Str("result", "tree", "graph_name") != "agent" {
		t.Errorf("tree %v", tree["result"])
	}
	w := n.watch(eventsOf(made), `{"channels":["lifecycle","values"]}`)
	defer w.close()
	if e := w.next(); !strings.Contains(e.data, `"method":"values"`) {
		t.Errorf("first %s: no run is under way", e.data)
	}
	run := n.ask(made, "run.start", hello).Str("result", "run_id")
	n.Say(made, log(working)...)
	e := w.next()
	for e.id == "" { // a comment
		e = w.next()
	}
	if !strings.HasPrefix(e.id, "synth:"+run+":") {
		t.Errorf("then %q, want run %s", e.id, run)
	}
	got := n.ask("th", "state.fork", `{"checkpoint_id":"k1","input":{"messages":[{"role":"user","content":"go"}]}}`)
	if got.Str("result", "run_id") == "" {
		t.Errorf("with input %v", got)
	}
	// Its message is that of a run.start: an agent finds whom it is for, and an id for its state.
	if m := n.payloads(got.Str("result", "thread_id"), "command.message")[0]; m.Str("content") != "go" ||
		m.Str("assistant_id") != "agent" || m.Str("message_id") == "" {
		t.Errorf("the message of a fork is %v", m)
	}
}

// TestNeed28State: what useStream reads before it opens a stream.
func TestNeed28State(t *testing.T) {
	n := start(t, serve.Config{})
	n.do("GET", "/threads/none/state", "").refused(404, "no_such_run")
	n.ask("th", "run.start", hello)
	state := n.do("GET", "/threads/th/state", "").OK(200)
	if len(state["next"].([]any)) == 0 { // 29: it would be taken for idle, and no stream opened
		t.Errorf("a run is under way: %v", state)
	}
	n.Say("th", log(asking)...)
	state = n.do("GET", "/threads/th/state", "").OK(200)
	tasks, _ := state["tasks"].([]any)
	if len(tasks) != 1 || len(tasks[0].(map[string]any)["interrupts"].([]any)) != 2 ||
		len(ids(state.At("values", "messages"), "id")) != 1 {
		t.Errorf("state %v", state)
	}
}

// TestNeed30CreatedAt: no live event is older than the state says it is.
func TestNeed30CreatedAt(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+points)...)
	at := n.do("GET", "/threads/th/state", "").OK(200).Str("created_at")
	if ts := n.do("GET", "/threads/th/history", "").Body; !strings.Contains(ts, `"created_at":"`+at[:19]) {
		t.Errorf("created at %s, history %s", at, ts)
	}
}

// TestNeed31Open: a message that still streams is no part of the state.
func TestNeed31Open(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+`
message.start {"message_id":"a1","role":"assistant"}
text.delta {"text":"half"}`)...)
	if got := n.do("GET", "/threads/th/state", "").Body; strings.Contains(got, "half") || !strings.Contains(got, "hello") {
		t.Errorf("state %s", got)
	}
}

func TestNeed32History(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+points)...)
	for _, got := range []string{n.do("GET", "/threads/th/history?limit=2", "").Body,
		n.do("POST", "/threads/th/history", `{"limit":2}`).Body} {
		var list []object
		if err := json.Unmarshal([]byte(got), &list); err != nil || len(list) != 2 ||
			list[0].Str("checkpoint", "checkpoint_id") != "k3" || list[1].Str("parent_checkpoint", "checkpoint_id") != "k1" {
			t.Errorf("%v: %s", err, got)
		}
	}
	if got := n.do("POST", "/threads/th/history",
		`{"checkpoint":{"checkpoint_ns":"tools:x"}}`).Body; strings.TrimSpace(got) != "[]" {
		t.Errorf("of a namespace without states %s", got)
	}
}

func TestBadCommands(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	for method, all := range map[string][]string{
		"run.start": {`{}`, `{"assistant_id":1}`, `[]`, `"x"`, `{"assistant_id":"a","config":[]}`,
			`{"assistant_id":"a","metadata":1}`, `{"assistant_id":"a","multitask_strategy":1}`},
		"state.fork": {`{}`, `{"checkpoint_id":7}`},
		"input.respond": {`{"interrupt_id":""}`, `{"responses":{}}`, `{"responses":[1]}`,
			`{"interrupt_id":"q","namespace":"x"}`},
		"input.inject":  {`{}`, `{"message":{}}`, `{"message":{"role":"user"}}`, `{"message":{"role":"user","content":7}}`},
		"agent.getTree": {`{"run_id":7}`}, "state.get": {`{"keys":"a"}`, `{"namespace":{}}`},
		"state.listCheckpoints": {`{"limit":"x"}`, `{"before":1}`},
	} {
		for _, params := range all {
			n.refuses("th", method, params, "invalid_argument")
		}
	}
	n.refuses("th", "run.stop", `{}`, "unknown_command")
	n.refuses("th", "subscription.subscribe", `{"channels":["values"]}`, "not_supported")
	reader := []string{as, "may:read"}
	n.do("POST", "/threads/th/commands", `{"id":1,"method":"run.start","params":`+hello+`}`, reader...).refused(403,
		"permission_denied")
	n.ask("th", "agent.getTree", `{}`, reader...)
	n.do("POST", "/threads/th/commands", `{"id":1,"method":"agent.getTree","params":{}}`, as, "tenant:other").OK(200)
	if got := len(n.Types("th")); got != 2 {
		t.Errorf("%d records", got)
	}
}
