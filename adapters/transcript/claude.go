package transcript

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// claude reads the lines of Claude Code's stream-json. Its messages are those of the Anthropic API; a
// message comes block by block in assistant lines of one id, and where partial messages were asked for
// also as the API's own events before them. A line with parent_tool_use_id is a sub-agent's: the child
// that this call delegates to.
type claude struct {
	s     *recorder
	out   *provider.Writer
	root  *claudeLane
	lanes map[string]*claudeLane // of children that run, by the call that delegates to them
	order []*claudeLane
	tasks map[string]task // calls that may delegate, without a result yet
	named int             // messages that had no id
	used  map[string]bool // ids of children

	verdict verdict
	over    bool // a result came, and nothing of the run behind it
}

// task is what a call asks of a sub-agent.
type task struct {
	lane   *claudeLane
	prompt string
}

// Bounds of what is remembered of sub-agents.
const (
	maxChildren = 256 // at once
	maxTasks    = 1024
)

func newClaude(s *recorder, out *provider.Writer) *claude {
	c := &claude{s: s, out: out, lanes: map[string]*claudeLane{}, tasks: map[string]task{},
		used: map[string]bool{s.cfg.RunID: true, s.cfg.ChildID: true}}
	c.root = newClaudeLane(s, s.cfg.lane())
	return c
}

func (c *claude) line(all provider.Fields) {
	typ := all.Str("type")
	switch typ {
	case "assistant", "user", "stream_event":
		c.over = false
		l := c.laneOf(all.Str("parent_tool_use_id"))
		if l == nil {
			c.out.Custom(typ, all) // more sub-agents than anybody runs
			return
		}
		switch typ {
		case "assistant":
			c.assistant(l, all)
		case "user":
			c.user(l, all)
		default:
			c.decodeStreamed(l, all)
		}
	case "result":
		c.result(all)
	case "system":
		c.out.Custom("system_"+all.Str("subtype"), all)
	default:
		c.out.Custom(typ, all)
	}
}

// laneOf returns the lane of a sub-agent, and announces it when it is new.
func (c *claude) laneOf(call string) *claudeLane {
	if call == "" {
		return c.root
	}
	if l := c.lanes[call]; l != nil {
		return l
	}
	if len(c.lanes) >= maxChildren {
		return nil
	}
	from := c.tasks[call]
	if from.lane == nil {
		from.lane = c.root
	}
	cfg := from.lane.cfg
	cfg.ChildID = c.childID(call)
	if path := cfg.Path; len(path) > 0 || c.s.cfg.RunID != "" {
		if len(path) == 0 {
			path = []string{c.s.cfg.RunID}
		}
		cfg.Path = append(append([]string{}, path...), cfg.ChildID)
	}
	from.lane.endMessage() // its calls are running
	l := newClaudeLane(c.s, cfg)
	l.call, l.parent = call, from.lane
	c.lanes[call], c.order = l, append(c.order, l)
	spawn := provider.Fields{field("child_id", provider.Quote(cfg.ChildID)),
		field("prompt", provider.Quote(from.prompt)), field("call_id", provider.Quote(provider.ShortenID(call)))}
	c.s.emit(from.lane.out, schema.TypeChildSpawn, spawn)
	c.s.emit(l.out, schema.TypeRunLifecycle, provider.StateFields(schema.StateRunning, ""))
	return l
}

// childID names a child after its call, where that is a name for a run, and never twice.
func (c *claude) childID(call string) string {
	id := call
	if schema.ValidRunID(id) != nil || len(id) > 100 {
		id = "child"
	}
	for n := 2; c.used[id]; n++ {
		id = fmt.Sprintf("%s_%d", strings.TrimSuffix(id, fmt.Sprintf("_%d", n-1)), n)
	}
	if len(c.used) > 1<<16 {
		clear(c.used)
	}
	c.used[id] = true
	return id
}

// assistant emits the blocks of one line. A message that its stream has emitted is not emitted again.
func (c *claude) assistant(l *claudeLane, all provider.Fields) {
	m := all.Object("message")
	for _, raw := range blocksOf(m) {
		c.noteTask(l, raw)
	}
	if e := all.Get("error"); e != nil && !provider.IsNull(e) {
		defer c.out.Custom("error", provider.Fields{field("error", e), field("message_id", provider.Quote(m.Str("id")))})
	}
	id := m.Str("id")
	if l.wasStreamed(id) {
		return
	}
	if id == "" {
		id = c.name("assistant")
	}
	l.message(id, m)
}

func (c *claude) name(role string) string {
	c.named++
	return fmt.Sprintf("%s_%d", role, c.named)
}

// noteTask remembers what a call asks, in case it turns out to delegate.
func (c *claude) noteTask(l *claudeLane, raw json.RawMessage) {
	b, _ := provider.Parse(raw)
	if name := b.Str("name"); b.Str("type") != "tool_use" || name != "Task" && name != "Agent" ||
		len(c.tasks) >= maxTasks {
		return
	}
	prompt := b.Object("input").Str("prompt")
	if prompt == "" {
		prompt = b.Object("input").Str("description")
	}
	c.tasks[b.Str("id")] = task{l, strings.ToValidUTF8(prompt[:min(len(prompt), 64<<10)], "")}
}

// user emits messages of the user and results of tools. The result of a call that delegated ends the child.
func (c *claude) user(l *claudeLane, all provider.Fields) {
	m := all.Object("message")
	l.endMessage()
	blocks := blocksOf(m)
	for _, raw := range blocks {
		b, _ := provider.Parse(raw)
		if b.Str("type") != "tool_result" {
			continue
		}
		state, reason := schema.StateDone, ""
		if string(b.Get("is_error")) == "true" {
			state, reason = schema.StateError, "the sub-agent failed"
		}
		if child := c.lanes[b.Str("tool_use_id")]; child != nil {
			child.endMessage()
			c.endChild(child.call, state, reason)
		}
		delete(c.tasks, b.Str("tool_use_id"))
	}
	id := all.Str("uuid")
	if id == "" {
		id = c.name("user")
	}
	whole := provider.Fields{field("type", provider.Quote("message")), field("id", provider.Quote(id)),
		field("role", provider.Quote("user")), field("content", provider.List(blocks))}
	for _, f := range all {
		switch f.Name {
		case "type", "message", "uuid", "session_id", "parent_tool_use_id", "timestamp", "id", "role", "content", "model", "usage", "stop_reason", "stop_sequence":
		default:
			if !provider.IsNull(f.Value) {
				whole = append(whole, f)
			}
		}
	}
	l.write(whole.Encode())
}

// decodeStreamed decodes an event of the API.
func (c *claude) decodeStreamed(l *claudeLane, all provider.Fields) {
	event := all.Object("event")
	if event == nil {
		c.out.Custom("stream_event", all)
		return
	}
	if event.Str("type") == "message_start" {
		l.endMessage()
		l.stream(event.Object("message").Str("id"))
	}
	l.write(all.Get("event"))
}

// result ends a turn, and the run if nothing follows.
func (c *claude) result(all provider.Fields) {
	for _, l := range c.all() {
		l.endMessage()
	}
	c.out.Custom("result", all)
	c.over = true
	if string(all.Get("is_error")) != "true" && all.Str("subtype") == "success" {
		c.verdict = verdict{schema.StateDone, "", true}
		return
	}
	reason := all.Str("subtype")
	for _, raw := range provider.Elements(all.Get("errors")) {
		reason += ": " + provider.ErrorText(raw)
	}
	if text := all.Str("result"); text != "" {
		reason += ": " + text
	}
	c.verdict = verdict{schema.StateError, reason, true}
	if strings.HasPrefix(all.Str("terminal_reason"), "aborted") {
		c.verdict.state = schema.StateAborted
	}
}

// all lanes, children before what they belong to.
func (c *claude) all() []*claudeLane {
	out := make([]*claudeLane, 0, len(c.order)+1)
	for i := len(c.order) - 1; i >= 0; i-- {
		out = append(out, c.order[i])
	}
	return append(out, c.root)
}

// endChild ends the child of a call, and those below it.
func (c *claude) endChild(call string, state schema.RunState, reason string) {
	l := c.lanes[call]
	if l == nil {
		return
	}
	for _, below := range c.all() {
		if below.parent == l {
			c.endChild(below.call, schema.StateError, "the agent that asked for it ended before")
		}
	}
	c.s.add(l.dec.Close()...)
	c.s.endLane(l.out, l.cfg.ChildID, state, reason)
	delete(c.lanes, call)
	for i, other := range c.order {
		if other == l {
			c.order = append(c.order[:i:i], c.order[i+1:]...)
			break
		}
	}
}

func (c *claude) finish() verdict {
	v := c.verdict
	if !c.over {
		v = verdict{schema.StateError, "the transcript ends before the run does", false}
	}
	for len(c.order) > 0 {
		c.endChild(c.order[len(c.order)-1].call, schema.StateError, "the transcript does not say how the sub-agent ended")
	}
	c.s.add(c.root.dec.Close()...)
	return v
}

// blocksOf returns the content of a message as a list of blocks.
func blocksOf(m provider.Fields) []json.RawMessage {
	content := m.Get("content")
	if jsonscan.IsString(content) {
		return []json.RawMessage{provider.Fields{field("type", provider.Quote("text")), field("text", content)}.Encode()}
	}
	return provider.Elements(content)
}
