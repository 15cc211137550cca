package schematest

import (
	"fmt"
	"math/rand/v2"

	"agentstream/schema"
)

// Telling makes a random run in which every kind of control events occurs: turns, messages with their blocks, requests
// to models, calls of tools, tasks, children, a plan, questions, checkpoints, states. All of its ids are its own,
// nothing is repeated, and it goes on after an end. The same seed produces the same run.
func Telling(seed uint64) Scenario {
	t := teller{rng: rand.New(rand.NewPCG(seed, 0x7e11))}
	t.add(schema.TypeSessionCreated, "agent", "a")
	for range 1 + t.rng.IntN(3) {
		t.turn()
	}
	if t.rng.IntN(3) == 0 {
		t.state(schema.StateDone, "")
		t.turn()
	}
	t.state(schema.StateDone, "")
	return Scenario{Name: fmt.Sprintf("telling-%d", seed), Events: t.events}
}

type teller struct {
	script
	rng   *rand.Rand
	n     int // ids so far
	plans int
}

func (t *teller) id(kind string) string {
	t.n++
	return fmt.Sprintf("%s_%d", kind, t.n)
}

// turn emits a turn of the run itself.
func (t *teller) turn() {
	t.by("user", func() { t.add(schema.TypeCommandMessage, "content", t.id("go"), "message_id", t.id("u")) })
	t.state(schema.StateRunning, t.id("why"))
	turn := t.id("turn")
	t.script.turn = turn
	t.add(schema.TypeTurnStart, "turn_id", turn)
	for range 1 + t.rng.IntN(5) {
		t.step(0)
	}
	t.add(schema.TypeTurnEnd, "turn_id", turn, "stop_reason", "end_turn")
	t.script.turn = ""
}

// step emits one thing that an agent does; children nest twice at most.
func (t *teller) step(depth int) {
	switch t.rng.IntN(9) {
	case 0:
		t.call(t.id("call"), "direct", t.rng.IntN(3) == 0)
	case 1:
		t.question("")
	case 2:
		task := t.id("task")
		t.add(schema.TypeTaskStart, "task_id", task, "name", "node")
		t.emitMessage()
		t.add(schema.TypeTaskEnd, "task_id", task, "ok", true)
	case 3:
		t.add(schema.TypeStateValues, "values", raw(fmt.Sprintf(`{"n":%d}`, t.n)))
		t.add(schema.TypeCheckpoint, "checkpoint_id", t.id("cp"), "step", t.n)
	case 4:
		t.plan()
	case 5:
		if depth < 2 {
			t.spawn(depth)
		}
	case 6:
		t.add(schema.TypeSessionUpdated, "title", t.id("title"))
		t.add(schema.TypeStepBoundary, "step_index", t.n, "step_kind", "tool-roundtrip", "checkpoint_id", t.id("cp"))
	default:
		t.emitMessage()
	}
}

// plan proposes one, which is approved. There is one at most.
func (t *teller) plan() {
	if t.plans > 0 || t.child != "" {
		return
	}
	t.plans++
	id := t.id("plan")
	t.add(schema.TypePlanProposal, "plan", raw(fmt.Sprintf(`{"id":%q,"steps":[{"id":"s","title":"t"}]}`, id)),
		"planning_gate", "required")
	t.state(schema.StateAwaitingApproval, t.id("why"))
	t.by("user", func() { t.add("command.approve_plan", "plan_id", id) })
	t.state(schema.StateRunning, t.id("why"))
}

// emitMessage emits a request to a model, its message, and the calls that it asks for.
func (t *teller) emitMessage() {
	model, id := t.id("model"), t.id("msg")
	t.add(schema.TypeModelStart, "call_id", model, "model", "scripted-1", "provider", "scripted")
	var blocks []block
	for range 1 + t.rng.IntN(3) {
		switch t.rng.IntN(3) {
		case 0:
			blocks = append(blocks, block{kind: "reasoning", text: "thought " + t.id("w"), piece: 4})
		case 1:
			blocks = append(blocks, block{kind: "text", text: "text " + t.id("w"), piece: 4})
		default:
			blocks = append(blocks, block{kind: "tool_use", call: t.id("call"), tool: "asked",
				text: fmt.Sprintf(`{"n":%d}`, t.n)})
		}
	}
	t.message(id, "end_turn", fmt.Sprintf(`{"input_tokens":%d,"output_tokens":1}`, t.n), blocks...)
	t.add(schema.TypeModelEnd, "call_id", model, "ok", true, "duration_ms", t.n)
	for _, b := range blocks {
		if b.kind == "tool_use" {
			t.works(b.call)
		}
	}
}

// call emits a call that no message has asked for. One that is the client's waits for it.
func (t *teller) call(id, tool string, custom bool) {
	pairs := []any{"call_id", id, "tool", tool, "input", raw(fmt.Sprintf(`{"n":%d}`, t.n))}
	if !custom {
		t.add(schema.TypeToolStart, pairs...)
		t.works(id)
		return
	}
	t.add(schema.TypeToolStart, append(pairs, "custom", true)...)
	t.add(schema.TypeToolEnd, "call_id", id, "ok", true, "output", "by the client "+id)
}

// works emits what becomes of a call that has started.
func (t *teller) works(id string) {
	if t.rng.IntN(4) == 0 {
		t.question(id)
	}
	if t.rng.IntN(2) == 0 {
		t.add(schema.TypeToolRun, "call_id", id)
		t.add(schema.TypeToolOutputDelta, "call_id", id, "text", "piece")
	}
	if t.rng.IntN(4) == 0 {
		t.add(schema.TypeToolEnd, "call_id", id, "ok", false, "error", "failed "+id)
		return
	}
	t.add(schema.TypeToolEnd, "call_id", id, "ok", true, "output", "result of "+id, "duration_ms", t.n)
}

// question asks for input, about a call or not, and takes the answer.
func (t *teller) question(call string) {
	id := t.id("q")
	pairs := []any{"request_id", id, "prompt", "ask " + id}
	if call != "" {
		pairs = append(pairs, "call_id", call)
	}
	t.add(schema.TypeInputRequested, pairs...)
	if t.rng.IntN(2) == 0 {
		t.by("user", func() { t.add("command.answer", "request_id", id, "answer", "yes "+id) })
	}
	t.add(schema.TypeInputAnswered, "request_id", id, "answer", "yes "+id)
}

// spawn emits a child with a turn of its own, to its end.
func (t *teller) spawn(depth int) {
	child, turn := "run_"+t.id("kid"), t.id("turn")
	path := append(t.path[:len(t.path):len(t.path)], child)
	if t.child == "" {
		path = []string{Root, child}
	}
	t.add(schema.TypeChildSpawn, "child_id", child, "prompt", "do "+child, "tools_allowed", []string{})
	t.as(child, path, func() {
		was := t.script.turn
		t.state(schema.StateRunning, t.id("why"))
		t.script.turn = turn
		t.add(schema.TypeTurnStart, "turn_id", turn)
		for range 1 + t.rng.IntN(2) {
			t.step(depth + 1)
		}
		t.add(schema.TypeTurnEnd, "turn_id", turn, "stop_reason", "end_turn")
		t.script.turn = was
		t.state(schema.StateDone, t.id("why"))
	})
}
