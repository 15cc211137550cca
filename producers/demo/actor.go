package demo

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

const (
	agentModel    = "scripted-1"
	agentProvider = "demo"
	systemTokens  = 320 // of what its model reads before the first message
)

// Pace of the agent's output: a thought runs faster than text, a tool's input faster still.
const (
	thoughtPace = 38 * time.Millisecond
	textPace    = 66 * time.Millisecond
	inputPace   = 26 * time.Millisecond
)

// try takes the error of a call that emits.
func (a *actor) try(err error) {
	if a.err == nil {
		a.err = err
	}
}

// wait lets the others run for so long.
func (a *actor) wait(d time.Duration) { a.pause(rest{at: a.s.clock + d}) }

// await waits until something holds, for so long at most, or forever.
func (a *actor) await(most time.Duration, until func() bool) {
	at := forever
	if most != forever {
		at = a.s.clock + most
	}
	a.pause(rest{at, until})
}

func (a *actor) pause(r rest) {
	if a.err == nil && !a.yield(r) {
		a.err = errLeft
	}
}

// begin begins a turn.
func (a *actor) begin() {
	if a.err == nil {
		a.turn, a.err = a.lane.Turn(a.s.ctx)
	}
}

// state emits the role's state.
func (a *actor) state(st schema.RunState, reason string) {
	if a.err != nil {
		return
	}
	if a.try(a.lane.State(a.s.ctx, st, reason)); a.err == nil {
		a.role.state = st
	}
}

// step emits the end of a part.
func (a *actor) step(kind string) {
	if a.err == nil {
		a.try(a.lane.Step(a.s.ctx, a.steps, kind, ""))
		a.steps++
	}
}

func (a *actor) say(typ string, payload any) {
	if a.err == nil {
		a.try(a.lane.Emit(a.s.ctx, typ, payload))
	}
}

func (a *actor) flush() {
	if a.err == nil {
		a.try(a.s.run.Flush(a.s.ctx))
	}
}

// user emits what the person has asked for.
func (a *actor) user(text string) {
	if a.err == nil {
		a.try(a.turn.User(text))
		a.read(text)
		a.wait(600 * time.Millisecond)
	}
}

// read adds a text to what the role's model reads next.
func (a *actor) read(text string) { a.context += len(words(text)) }

// usage counts three disjoint kinds of tokens; a word is one.
type usage struct {
	Input  int `json:"input_tokens"`
	Cached int `json:"cache_read_input_tokens"`
	Output int `json:"output_tokens"`
}

// modelStart and modelEnd emit one call of the model.
type modelStart struct {
	CallID   string `json:"call_id"`
	Model    string `json:"model"`
	Provider string `json:"provider"`
}

type modelEnd struct {
	CallID string `json:"call_id"`
	OK     bool   `json:"ok"`
	Usage  usage  `json:"usage"`
	Took   int64  `json:"duration_ms"`
}

// part is a piece of a message.
type part func(*actor, *producers.Message)

// model is one call of the model: a message in parts. It returns the tool calls that the message asks for.
func (a *actor) model(parts ...part) []*producers.Call {
	if a.err != nil {
		return nil
	}
	id, began := a.s.id("model"), a.s.clock
	a.say(schema.TypeModelStart, modelStart{id, agentModel, agentProvider})
	if a.err != nil {
		return nil
	}
	m, err := a.turn.Message(producers.MessageInfo{Model: agentModel, Provider: agentProvider})
	a.try(err)
	a.asked, a.said = nil, 0
	for _, p := range parts {
		if a.err != nil {
			return nil
		}
		p(a, m)
	}
	if a.err != nil {
		return nil
	}
	stop := "end_turn"
	if len(a.asked) > 0 {
		stop = "tool_use"
	}
	used := usage{a.context - a.cached, a.cached, a.said}
	a.try(m.End(stop, used))
	a.say(schema.TypeModelEnd, modelEnd{id, true, used, (a.s.clock - began).Milliseconds()})
	a.cached = a.context
	a.context += a.said
	return a.asked
}

// thought is reasoning, word by word, with a signature as providers give it.
func thought(text string) part {
	return func(a *actor, m *producers.Message) {
		a.spell(words(text), thoughtPace, m.Reasoning)
		if a.err == nil {
			sum := sha256.Sum256([]byte(text))
			a.try(m.Signed(base64.StdEncoding.EncodeToString(sum[:])))
		}
	}
}

// text emits text, word by word.
func text(text string) part {
	return func(a *actor, m *producers.Message) { a.spell(words(text), textPace, m.Text) }
}

// report emits text in clauses: a reader can follow several that write at once.
func report(text string) part {
	return func(a *actor, m *producers.Message) {
		var clauses []string
		for _, w := range words(text) {
			if n := len(clauses); n == 0 || strings.ContainsAny(clauses[n-1], ",.:;") {
				clauses = append(clauses, w)
			} else {
				clauses[n-1] += w
			}
		}
		for _, c := range clauses {
			a.spell([]string{c}, time.Duration(len(words(c)))*textPace, m.Text)
			a.said += len(words(c)) - 1
		}
	}
}

// call asks for a tool. Its input streams in.
func call(id, tool, input string) part {
	return func(a *actor, m *producers.Message) {
		c, err := m.Call(id, tool)
		if a.try(err); a.err != nil {
			return
		}
		var pieces []string
		for rest := input; rest != ""; {
			n := min(5, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		a.spell(pieces, inputPace, c.Input)
		if a.err == nil {
			a.try(c.Ready(nil))
			a.asked = append(a.asked, c)
		}
	}
}

// picture returns an image.
func picture(mediaType, name string, data []byte) part {
	return func(a *actor, m *producers.Message) { a.try(m.Data("image", mediaType, name, data)) }
}

// breaksOff is a part in which the model fails.
func breaksOff(why string) part {
	return func(a *actor, _ *producers.Message) { a.try(&scripted{errors.New(why)}) }
}

// spell emits pieces at a pace.
func (a *actor) spell(pieces []string, pace time.Duration, say func(string) error) {
	for _, p := range pieces {
		if a.wait(pace); a.err != nil {
			return
		}
		a.try(say(p))
		a.said++
	}
}

// words cuts text into pieces that end behind their white space.
func words(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexAny(text, " \n") + 1
		if n == 0 {
			n = len(text)
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

// tool is what a call does: it prints lines, each after a while, and has a result, or an error.
type tool struct {
	after  time.Duration // before the first line, on top
	every  time.Duration
	lines  []string
	result string
	fails  string
}

// use runs a tool beside the role that asked for it.
func (a *actor) use(c *producers.Call, t tool) *actor {
	if a.err != nil {
		return a
	}
	return a.s.enter(a.role, func(b *actor) {
		b.wait(t.after)
		for _, line := range t.lines {
			if b.wait(t.every); b.err != nil {
				return
			}
			b.try(c.Output(line))
		}
		b.wait(t.every / 2)
		switch {
		case b.err != nil:
		case t.fails != "":
			b.read(t.fails)
			b.try(c.Fail(errors.New(t.fails)))
		default:
			b.read(t.result)
			b.try(c.Finish(t.result))
		}
	})
}

// join waits until others are through, or were sent off.
func (a *actor) join(others ...*actor) {
	a.await(forever, func() bool {
		for _, b := range others {
			if !b.over {
				return false
			}
		}
		return true
	})
}

// delegate sends a child out, for a call of a tool. The result of tell is the call's output.
func (a *actor) delegate(c *producers.Call, name string, tell func(*actor) string, tools ...string) *actor {
	var task struct {
		Task string `json:"task"`
	}
	a.try(json.Unmarshal(c.Args(), &task))
	r := &role{call: c, state: schema.StateRunning, context: systemTokens + len(words(task.Task))}
	if a.err == nil {
		r.lane, a.err = a.lane.Spawn(a.s.ctx, childID(a.s.cfg.RunID, name), task.Task, c.ID(), tools...)
	}
	if a.err != nil {
		return a
	}
	a.s.roles = append(a.s.roles, r)
	return a.s.enter(r, func(b *actor) {
		b.begin()
		result := tell(b)
		b.turnOff()
		b.replies()
		b.step("done")
		if b.err != nil {
			return
		}
		b.try(b.turn.End("end_turn"))
		b.state(schema.StateDone, "")
		b.flush() // the parent goes on only when the child's end is stored
		if b.err == nil {
			a.read(result)
			b.try(c.Finish(result))
		}
	})
}

// finish ends the run well, after messages and commands to the agent have been followed and answered.
func (a *actor) finish() {
	a.turnOff()
	a.replies()
	a.step("done")
	if a.err != nil {
		return
	}
	a.try(a.turn.End("end_turn"))
	a.flush()
	a.state(schema.StateDone, "")
	a.flush()
}
