package qoder

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync/atomic"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// tools is what is remembered of calls, of tools and of models, and of requests for input, while they are open.
type tools struct {
	open    ordered.Map[string, *toolCall] // by callKey and its like, the oldest first
	waiting ordered.Map[string, *toolCall] // for the client, the oldest first
	lanes   shared[string, *laneCalls]     // those of open, by child
}

// laneCalls are the keys of what is open in a lane.
type laneCalls struct {
	keys map[string]struct{}
	by   *atomic.Bool // of the tools that may change it
}

// callKind is what a client is shown of a call, and how it answers.
type callKind uint8

const (
	callTool    callKind = iota
	callCustom           // the client's own
	callMCP              // of an MCP server
	callRequest          // a request for input, shown as a custom tool
	callModel            // a model request
	callAlias            // the id of a request for input about a call
)

// toolCall is one that is open. It is replaced, never changed.
type toolCall struct {
	id       string // event id; for callAlias the call's key
	child    string // lane
	key      string // its own
	request  []byte // what an answer names: the call's id or the request's, a JSON string
	settled  []byte // what the newest answer named
	seq      schema.Seq
	kind     callKind
	also     bool // shown in the session, too, when it is of a child
	answered bool // the client's result was shown
}

// Bounds of what is open at a time, in a session. The oldest is forgotten: its end is shown as that of a call that
// nobody began. What waits beyond its bound can be answered, and is not among the events that a status names.
const (
	maxCalls   = 4096
	maxWaiting = 256
	maxKey     = 128 // bytes of an id that stands in a key
)

func (t *tools) clone() tools {
	return tools{open: t.open.Clone(), waiting: t.waiting.Clone(), lanes: t.lanes.clone()}
}

func (t *tools) size() int {
	n := 0
	for _, c := range t.open.All() {
		n += 384 + len(c.id) + len(c.key) + len(c.request) + len(c.settled)
	}
	return n + 128*t.waiting.Len()
}

// callKey is the place of a lane's call with an id, a JSON value.
func callKey(child string, id []byte) string { return keyOf('c', child, id) }

// requestKey is that of a request for input, which is the whole session's.
func requestKey(id []byte) string { return keyOf('r', "", id) }

func modelKey(child string, id []byte) string { return keyOf('m', child, id) }

func keyOf(kind byte, child string, id []byte) string {
	s := unquote(id)
	if len(s) > maxKey {
		sum := sha256.Sum256([]byte(s))
		s = "\x00" + hex.EncodeToString(sum[:])
	}
	return string(kind) + child + "\x00" + s
}

// call returns one that is open; nil when there is none.
func (t *tools) call(key string) *toolCall {
	c, _ := t.open.Get(key)
	return c
}

// byID returns the tool use, or request, with an event id.
func (t *tools) byID(id string) *toolCall {
	for _, c := range t.open.All() {
		if c.id == id && c.kind <= callRequest {
			return c
		}
	}
	return nil
}

// put opens a call, in the place of the one with its key.
func (t *tools) put(c *toolCall) *toolCall {
	t.drop(c.key)
	if t.open.Len() >= maxCalls {
		t.drop(t.oldest())
	}
	t.open.Set(c.key, c)
	t.lane(c.child).keys[c.key] = struct{}{}
	return c
}

// lane returns what is open in a lane, which may be changed.
func (t *tools) lane(child string) *laneCalls {
	t.lanes.own()
	l := t.lanes.m[child]
	switch {
	case l == nil:
		l = &laneCalls{map[string]struct{}{}, t.lanes.by}
	case l.by != t.lanes.by:
		l = &laneCalls{maps.Clone(l.keys), t.lanes.by}
	}
	t.lanes.m[child] = l
	return l
}

// oldest returns the key of the call that is forgotten first. What waits for the client is not: a status names it. It
// goes behind all others, so that it is not passed over each time.
func (t *tools) oldest() (oldest string) {
	for key, c := range t.open.All() {
		if !t.isHeld(key) {
			return key
		}
		t.open.Delete(key)
		t.open.Set(key, c)
	}
	return "" // more are open than wait
}

// drop closes a call.
func (t *tools) drop(key string) *toolCall {
	c, ok := t.open.Delete(key)
	if !ok {
		return nil
	}
	l := t.lane(c.child)
	delete(l.keys, key)
	if len(l.keys) == 0 {
		t.lanes.remove(c.child)
	}
	t.waiting.Delete(key)
	return c
}

// hold makes a call wait for the client.
func (t *tools) hold(c *toolCall) {
	if t.waiting.Len() < maxWaiting && !t.isHeld(c.key) {
		t.waiting.Set(c.key, c)
	}
}

// isHeld reports whether a call waits for its client.
func (t *tools) isHeld(key string) bool {
	_, ok := t.waiting.Get(key)
	return ok
}

// release lets a call go on. It reports whether it has waited.
func (t *tools) release(key string) bool {
	_, ok := t.waiting.Delete(key)
	return ok
}

// countWaiting counts what waits in a lane; for the coordinator in the session.
func (t *tools) countWaiting(child string) (n int) {
	if child == "" {
		return t.waiting.Len()
	}
	for _, c := range t.waiting.All() {
		if c.child == child {
			n++
		}
	}
	return n
}

// forget closes all calls of a lane; for the coordinator those of the session.
func (t *tools) forget(child string) {
	if child == "" {
		*t = tools{}
		return
	}
	if l := t.lanes.m[child]; l != nil {
		for key := range l.keys {
			t.drop(key)
		}
	}
}

// tool reads tool calls and requests for input.
func (p *Projector) tool() {
	switch string(p.rec.Type) {
	case schema.TypeToolStart:
		if p.isNews(assemble.CallStart, "call_id") {
			p.use()
		}
	case schema.TypeToolEnd:
		if p.isNews(assemble.CallEnd, "call_id") {
			p.result()
		}
	case schema.TypeInputRequested:
		if p.isNews(assemble.InputRequest, "request_id") {
			p.ask()
		}
	case schema.TypeInputAnswered:
		if c := p.callOf(field(p.rec.payload, "request_id")); c != nil {
			p.showReply(c, field(p.rec.payload, "answer"))
		}
	}
}

// isNews reports whether the record at hand has something new of a kind: what comes once more, or late, is
// passed over. One that has no id is read as it is.
func (p *Projector) isNews(kind assemble.Kind, id string) bool {
	if !isString(field(p.rec.payload, id)) {
		return true
	}
	return slices.ContainsFunc(p.rec.steps, func(t assemble.Transition) bool { return t.Kind == kind && !t.Repaired })
}

// use reads a tool call that begins.
func (p *Projector) use() {
	t, id := p.rec.thread, field(p.rec.payload, "call_id")
	c := &toolCall{child: t.child, key: callKey(t.child, id), request: clip(id), seq: p.rec.Seq}
	server := assemble.ServerOf(p.rec.payload)
	for _, s := range p.rec.steps {
		if s.Kind == assemble.CallStart && server == nil { // the block that became the call may have named it
			server = s.Item.Server
		}
	}
	switch {
	case string(field(p.rec.payload, "custom")) == "true":
		c.kind = callCustom
	case server != nil:
		c.kind = callMCP
	}
	permission := p.permission()
	waits := c.kind == callCustom || permission == "ask"
	c.also = waits
	c.id = p.emitCall(c, emission{also: waits}, field(p.rec.payload, "tool"), field(p.rec.payload, "input"), server,
		permission)
	p.tools.put(c)
	if !waits {
		return
	}
	p.tools.hold(c)
	if t := p.rec.thread; t.open {
		p.change(t, func(t *thread) { t.pending = true })
		return
	}
	p.waiting(p.rec.thread)
}

// permission is what was decided about a call, before it began.
func (p *Projector) permission() string {
	for _, v := range jsonscan.Values(p.rec.payload, []string{"permission", "evaluated_permission"}) {
		switch s := unquote(v); s {
		case "allow", "ask", "deny":
			return s
		}
	}
	return "allow"
}

// emitCall emits that a call begins and returns its event id.
func (p *Projector) emitCall(c *toolCall, e emission, name, input, server []byte, permission string) string {
	if !isString(name) {
		name = []byte(`""`)
	}
	if len(input) == 0 || string(input) == "null" {
		input = []byte(`{}`)
	}
	if p.rec.out == nil {
		return p.emit(e)
	}
	b := append(append(e.body, `,"name":`...), name...)
	b = append(append(b, `,"input":`...), input...)
	e.typ = "agent.tool_use"
	switch c.kind {
	case callCustom, callRequest:
		e.typ = "agent.custom_tool_use"
	case callMCP:
		e.typ = "agent.mcp_tool_use"
		b = append(append(b, `,"mcp_server_name":`...), server...)
	}
	if e.typ != "agent.custom_tool_use" {
		b = append(append(append(b, `,"evaluated_permission":"`...), permission...), '"')
	}
	if c.kind != callRequest && len(c.request) > 0 {
		b = append(append(b, `,"call_id":`...), c.request...)
	}
	e.body = b
	return p.emit(e)
}

// result reads a tool call that ends. One that nobody began is begun first: a result is always that of a use.
func (p *Projector) result() {
	t, id := p.rec.thread, field(p.rec.payload, "call_id")
	key := callKey(t.child, id)
	c, waited := p.tools.call(key), p.tools.isHeld(key)
	if c == nil {
		c = &toolCall{child: t.child, key: key, request: clip(id), seq: p.rec.Seq}
		c.id = p.emitCall(c, emission{}, p.toolName(), nil, nil, "allow")
	}
	p.tools.drop(key)
	if c.kind != callCustom || !c.answered {
		e := emission{typ: "agent.tool_result", also: c.also}
		name := `,"tool_use_id":"`
		if c.kind == callMCP {
			e.typ, name = "agent.mcp_tool_result", `,"mcp_tool_use_id":"`
		}
		b := append(append(append([]byte(name), c.id...), `","content":`...), resultContent(p.rec.payload)...)
		b = append(b, `,"is_error":`...)
		b = append(b, isFalse(field(p.rec.payload, "ok"))...)
		e.body = append(b, p.extra("call_id", "duration_ms", "blob_ref")...)
		p.emit(e)
	}
	if waited {
		p.settleAll(c.child)
	}
}

// toolName returns the name of a call that nobody began: as its end has it, or the block that asked for it; "" when
// nobody has named it.
func (p *Projector) toolName() []byte {
	if name := field(p.rec.payload, "tool"); isString(name) {
		return name
	}
	for i := range p.rec.steps {
		if t := &p.rec.steps[i]; t.Kind == assemble.CallEnd {
			return appendString(nil, t.Item.Tool)
		}
	}
	return []byte(`""`)
}

// settleAll brings a lane and the session in line with something that does not wait any more: where something
// else still does, the status names what is left.
func (p *Projector) settleAll(child string) {
	for _, lane := range []string{child, ""} {
		if t := p.threads.lanes.m[lane]; t != nil {
			p.settle(t, false)
		}
		if t := p.threads.lanes.m[lane]; t != nil && p.tools.countWaiting(lane) > 0 && !t.running && t.stop == stopAction {
			p.finish(p.run(t), stopAction)
		}
		if child == "" {
			break
		}
	}
}

// isFalse returns JSON's true for JSON's false, and false for the rest.
func isFalse(v []byte) string {
	if string(v) == "false" {
		return "true"
	}
	return "false"
}

// maxRequest bounds the id of a call that is remembered for who answers it, in bytes; of a longer one only the
// answer's own form is known.
const maxRequest = 1 << 10

// clip copies a short value of a record.
func clip(v []byte) []byte {
	if len(v) > maxRequest || !isString(v) {
		return nil
	}
	return slices.Clone(v)
}
