package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/protocols/langgraph/serve"
)

// waits is what a state says of the thread's questions.
func waits(o object) string {
	return fmt.Sprint(o["next"], o["tasks"])
}

// listOf reads a list of states.
func listOf(a answer) (list []object) {
	a.T.Helper()
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != 200 {
		a.T.Fatalf("%s: %d %s", a.Asked, a.Status, a.Body)
	}
	return list
}

// waiting are threads that wait for answers, with checkpoints, by what happened last.
var waiting = map[string]string{
	"question last":           working + "\n" + points + "\n" + question,
	"state after it":          working + "\n" + points + "\n" + question + "\n" + later,
	"checkpoint after it":     working + "\n" + question + "\n" + points,
	"state is the interrupt":  working + "\n" + points + "\n" + question + "\n" + bareInterrupt,
	"state has the interrupt": working + "\n" + points + "\n" + question + "\n" + fullInterrupt,
	"no checkpoint":           working + "\n" + question + "\n" + later,
	"messages alone":          working + "\n" + question,
	"turn is over":            working + "\n" + points + "\n" + question + "\n" + over,
	"child asks": working + "\n" + points + "\n" + `child.spawn {"child_id":"c","name":"x"}` + "\nc:" +
		question,
	"two": working + "\n" + points + "\n" + question + "\n" + second,
}

const (
	question      = `input.requested {"request_id":"q1","payload":{"q":"one?"}}`
	second        = `input.requested {"request_id":"q2","payload":{"q":"two?"}}`
	later         = `state.values {"values":{"n":4,"messages":[]}}`
	over          = `turn.end {"turn_id":"t","stop_reason":"end_turn"}`
	bareInterrupt = `state.values {"values":{"__interrupt__":[{"id":"q1","value":{"q":"one?"}}]}}`
	fullInterrupt = `state.values {"values":{"n":5,"__interrupt__":[{"id":"q1","value":{"q":"one?"}}]}}`
)

// TestHistoryAgreesWithState: the newest state of a history is the state of the thread, with what it waits for, and so
// is the one that is asked for by its checkpoint. Once all is answered none waits.
func TestHistoryAgreesWithState(t *testing.T) {
	n := start(t, serve.Config{})
	for name, text := range waiting {
		id := strings.ReplaceAll(name, " ", "-")
		n.ask(id, "run.start", hello)
		n.Say(id, log(text)...)
		state := n.do("GET", "/threads/"+id+"/state", "").OK(200)
		if !strings.Contains(waits(state), "one?") || waits(state)[:2] == "[]" {
			t.Errorf("%s: state %s", name, waits(state))
		}
		for _, body := range []string{`{}`, `{"limit":1}`, `{"limit":1000}`} {
			list := listOf(n.do("POST", "/threads/"+id+"/history", body))
			if fmt.Sprint(list[0]) != fmt.Sprint(state) {
				t.Errorf("%s: history begins with\n%v, the state is\n%v", name, list[0], state)
			}
			for _, old := range list[1:] {
				if waits(old) != "[] []" {
					t.Errorf("%s: an old state waits: %v", name, old)
				}
			}
		}
		if _, is := state.At("values").(map[string]any)["__interrupt__"]; is {
			t.Errorf("%s: the interrupt is in the values: %v", name, state)
		}
		at := state.Str("checkpoint", "checkpoint_id")
		if one := n.do("GET", "/threads/"+id+"/state/"+at, "").OK(200); fmt.Sprint(one) != fmt.Sprint(state) {
			t.Errorf("%s: the state at %s is\n%v, the newest is\n%v", name, at, one, state)
		}
	}
	if got := fmt.Sprint(n.do("GET", "/threads/state-has-the-interrupt/state", "").OK(200).At("values", "n")); got != "5" {
		t.Errorf("a state that came with its interrupt is lost: n is %s", got)
	}
	n.ask("two", "input.respond", `{"responses":[{"namespace":[],"interrupt_id":"q1","response":1},`+
		`{"namespace":[],"interrupt_id":"q2","response":2}]}`)
	state := n.do("GET", "/threads/two/state", "").OK(200)
	if first := listOf(n.do("GET", "/threads/two/history", ""))[0]; fmt.Sprint(first) != fmt.Sprint(state) ||
		strings.Contains(waits(state), "?") {
		t.Errorf("answered: %v, history %v", state, first)
	}
}

// TestStateOfCheckpoint: each state of a thread can be had by the id of its checkpoint; an unknown one is refused.
func TestStateOfCheckpoint(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+points)...)
	send := func(body string) answer {
		return n.do("POST", "/threads/th/state/checkpoint", body, "Content-Type", "application/json")
	}
	for _, want := range listOf(n.do("GET", "/threads/th/history", "")) {
		id := want.Str("checkpoint", "checkpoint_id")
		for _, a := range []answer{
			n.do("GET", "/threads/th/state/"+id, ""), n.do("GET", "/langgraph/threads/th/state/"+id, ""),
			send(`{"checkpoint":{"checkpoint_id":"` + id + `","checkpoint_ns":""}}`),
		} {
			if got := a.OK(200); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s is %v, want %v", id, got, want)
			}
		}
	}
	n.do("GET", "/threads/th/state/k9", "").refused(404, "no_such_checkpoint")
	n.do("GET", "/threads/none/state/k1", "").refused(404, "no_such_run")
	n.do("GET", "/threads/th/state/k1", "", as, "tenant:globex").refused(404, "no_such_run")
	n.do("GET", "/threads/th/state/k1", "", as, "may:write").refused(403, "permission_denied")
	send(`{"checkpoint":{"checkpoint_id":"k9"}}`).refused(404, "no_such_checkpoint")
	send(`{"checkpoint":{"checkpoint_id":"k1","checkpoint_ns":"x"}}`).refused(404, "no_such_checkpoint")
	send(`{"checkpoint":7}`).refused(400, "invalid_argument")
	send(`{}`).refused(400, "invalid_argument")
	send(`[]`).refused(400, "invalid_argument")
}

// TestHistoryOfNamespace: the newest state of a namespace has the requests that wait in it, and no others.
func TestHistoryOfNamespace(t *testing.T) {
	n := start(t, serve.Config{})
	n.ask("th", "run.start", hello)
	n.Say("th", log(working+"\n"+question+`
child.spawn {"child_id":"c","name":"x"}
c:checkpoint.created {"checkpoint_id":"c1","step":0}
c:state.values {"values":{"n":1}}
c:checkpoint.created {"checkpoint_id":"c2","step":1}
c:state.values {"values":{"n":2}}
c:input.requested {"request_id":"q2","payload":{"q":"two?"}}`)...)
	list := listOf(n.do("POST", "/threads/th/history", `{"checkpoint":{"checkpoint_ns":"x:c"}}`))
	if len(list) != 2 || !strings.Contains(waits(list[0]), "two?") || strings.Contains(waits(list[0]), "one?") ||
		waits(list[1]) != "[] []" {
		t.Fatalf("%v", list)
	}
	for _, want := range list {
		id := want.Str("checkpoint", "checkpoint_id")
		body := fmt.Sprintf(`{"checkpoint":{"checkpoint_ns":"x:c","checkpoint_id":%q}}`, id)
		got := n.do("POST", "/threads/th/state/checkpoint", body, "Content-Type", "application/json").OK(200)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// folded is what the older SDK holds of the values of a stream: a frame with an interrupt is laid over them, any other
// replaces them.
func folded(list []part) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, p := range list {
		if p.event != "values" {
			continue
		}
		next := map[string]json.RawMessage{}
		_ = json.Unmarshal([]byte(p.data), &next) // the server wrote it
		if next["__interrupt__"] == nil {
			all = next
			continue
		}
		for name, v := range next {
			all[name] = v
		}
	}
	return all
}

// TestValuesKeepInterrupts: whoever has streamed the values of a run holds all that it waits for, as join answers it.
func TestValuesKeepInterrupts(t *testing.T) {
	n := start(t, serve.Config{})
	for name, text := range waiting {
		if name == "child asks" { // its question is its own namespace's
			text += "\n" + later
		}
		id := strings.ReplaceAll(name, " ", "-")
		run := n.ask(id, "run.start", hello).Str("result", "run_id")
		n.Say(id, log(text+"\ncommands.taken {\"through\":2}\n"+over)...)
		at := "/threads/" + id + "/runs/" + run
		got := folded(parts(n.do("GET", at+"/stream?stream_mode=values", "")))
		joined := n.do("GET", at+"/join", "").OK(200)
		var asked any
		_ = json.Unmarshal(got["__interrupt__"], &asked) // nil shows below
		if fmt.Sprint(idsOf(asked)) != fmt.Sprint(idsOf(joined["__interrupt__"])) || len(idsOf(asked)) == 0 {
			t.Errorf("%s: streamed %s, joined %v", name, got["__interrupt__"], joined["__interrupt__"])
		}
	}
}

// idsOf returns the ids of a list of interrupts, none for what is no list.
func idsOf(list any) (out []string) {
	all, _ := list.([]any)
	for _, e := range all {
		out = append(out, fmt.Sprint(e.(map[string]any)["id"]))
	}
	return out
}
