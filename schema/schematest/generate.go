package schematest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"agentstream/schema"
)

// Generate makes a random run of exactly n events (at least 2) with several children and hostile
// payloads among them. The same n and seed produce the same run. It begins with state running and ends
// with done.
func Generate(n int, seed uint64) Scenario {
	g := generator{rng: rand.New(rand.NewPCG(seed, 0x5eed)), hostile: shallowPayloads()}
	g.lanes = []*speaker{{}}
	g.state(schema.StateRunning, "")
	for len(g.events) < n-1 {
		l := g.lanes[g.rng.IntN(len(g.lanes))]
		g.as(l.id, l.path, func() { g.step(l, n-1-len(g.events)) })
	}
	g.state(schema.StateDone, "")
	return Scenario{Name: fmt.Sprintf("generated-%d-%d", n, seed), Events: g.events}
}

type generator struct {
	script
	rng     *rand.Rand
	hostile []string
	lanes   []*speaker
	calls   int
	msgs    int
}

// speaker is one lane with what it has open.
type speaker struct {
	id    string
	path  []string
	msg   string // open message
	kind  string // kind of the open block
	index int
	call  string // call of the open tool block, or the tool that runs
	over  bool
}

const maxLanes = 9

// step emits one thing on a lane; room is how many events still fit.
func (g *generator) step(l *speaker, room int) {
	switch {
	case l.over:
		g.add(schema.TypeProgress, "message", "still here", "done", g.rng.IntN(100))
	case l.msg == "" && l.call != "":
		g.runTool(l)
	case l.msg == "":
		g.idle(l)
	case l.kind == "":
		g.openBlock(l)
	case g.rng.IntN(12) == 0:
		g.closeBlock(l, room)
	default:
		g.delta(l)
	}
}

func (g *generator) idle(l *speaker) {
	switch r := g.rng.IntN(20); {
	case r == 0 && len(g.lanes) < maxLanes && len(l.path) < 4:
		g.spawn(l)
	case r == 1 && l.id != "":
		l.over = true
		g.state(schema.StateDone, "")
	case r == 2:
		g.raw("custom.generated", g.payload())
	default:
		g.msgs++
		l.msg, l.index = fmt.Sprintf("msg_%d", g.msgs), 0
		g.messageStart(l.msg)
	}
}

func (g *generator) spawn(l *speaker) {
	child := &speaker{id: fmt.Sprintf("run_gen_%d", len(g.lanes))}
	if child.path = append(child.path, l.path...); len(child.path) == 0 {
		child.path = []string{Root}
	}
	child.path = append(child.path, child.id)
	g.lanes = append(g.lanes, child)
	g.add(schema.TypeChildSpawn, "child_id", child.id, "prompt", g.words(), "tools_allowed", []string{"search"})
}

func (g *generator) openBlock(l *speaker) {
	if l.index > g.rng.IntN(4) {
		g.add(schema.TypeMessageEnd, "message_id", l.msg, "stop_reason", "end_turn", "usage", raw(smallUsage))
		l.msg = ""
		return
	}
	l.kind = []string{"reasoning", "text", "text", "tool_use"}[g.rng.IntN(4)]
	if l.kind != "tool_use" {
		g.add(schema.TypeBlockStart, "index", l.index, "kind", l.kind, "message_id", l.msg)
		return
	}
	g.calls++
	l.call = fmt.Sprintf("call_%d", g.calls)
	g.add(schema.TypeBlockStart, "index", l.index, "kind", l.kind, "message_id", l.msg, "call_id", l.call, "tool",
		"search")
}

// closeBlock ends a block. A tool's needs three events, which must still fit.
func (g *generator) closeBlock(l *speaker, room int) {
	if l.kind != "tool_use" {
		g.add(schema.TypeBlockEnd, "index", l.index, "message_id", l.msg, "complete", true)
		l.kind = ""
		l.index++
		return
	}
	if room < 3 {
		g.delta(l)
		return
	}
	input := object("q", g.words(), "n", g.rng.Int64())
	g.add(schema.TypeBlockEnd, "index", l.index, "message_id", l.msg, "complete", true, "call_id", l.call, "input",
		raw(input))
	g.add(schema.TypeToolStart, "call_id", l.call, "tool", "search", "input", raw(input), "index", l.index)
	g.add(schema.TypeMessageEnd, "message_id", l.msg, "stop_reason", "tool_use", "usage", raw(smallUsage))
	l.kind, l.msg = "", ""
}

func (g *generator) runTool(l *speaker) {
	if g.rng.IntN(4) > 0 {
		g.add(schema.TypeToolOutputDelta, "call_id", l.call, "text", g.words())
		return
	}
	if g.rng.IntN(5) == 0 {
		g.add(schema.TypeToolEnd, "call_id", l.call, "ok", false, "error", g.words(), "duration_ms", g.rng.IntN(9000))
	} else {
		g.add(schema.TypeToolEnd, "call_id", l.call, "ok", true, "output", raw(g.payload()), "duration_ms", g.rng.IntN(9000))
	}
	l.call = ""
}

func (g *generator) delta(l *speaker) {
	switch l.kind {
	case "tool_use":
		g.add(schema.TypeToolInputDelta, "call_id", l.call, "text", g.words(), "index", l.index)
	case "reasoning":
		g.add(schema.TypeReasoningDelta, "text", g.words(), "index", l.index)
	default:
		if g.rng.IntN(25) == 0 {
			g.raw(schema.TypeTextDelta, g.payload())
			return
		}
		g.add(schema.TypeTextDelta, "text", g.words(), "index", l.index)
	}
}

func (g *generator) payload() string { return g.hostile[g.rng.IntN(len(g.hostile))] }

func (g *generator) words() string {
	list := []string{"log ", "reader ", "writer ", "ends", "\n", "größe ", "日志 ", "😀", "\"quoted\" ", "\\ ",
		"the next seq is ", "\u2028", "\x00"}
	var b strings.Builder
	for range 1 + g.rng.IntN(6) {
		b.WriteString(list[g.rng.IntN(len(list))])
	}
	return b.String()
}
