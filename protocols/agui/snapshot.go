package agui

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// maxSnapshot bounds the messages of a snapshot, in bytes: the client fails where an event has more than 10 MB.
const maxSnapshot = 8 << 20

// thread is a run as a client has it that was never cut.
type thread struct {
	list    []*entity
	byID    map[string]*entity
	owners  map[string]*entity // messages by the ids of their calls
	state   map[string][]byte
	names   []string // of state, in order
	size    int
	dropped int // messages that there is no room for
}

// entity is a message.
type entity struct {
	id, role, lane string
	response       string
	content        []byte // inside of a JSON string; nil: there is none
	raw            []byte // a message of a person, whole
	calls          []*calling
	call           string // whose result it is
	sign           []byte
}

// calling is a call of a message.
type calling struct {
	id, name string
	args     []byte // inside of a JSON string
}

// readThread returns a run as it was after a record.
func readThread(ctx context.Context, c *protocol.Call, run string, through schema.Seq) (*thread, error) {
	t, err := walk(ctx, c, run, 0, through)
	gone := new(fanout.ExpiredError)
	if errors.As(err, &gone) && gone.First > 1 { // what is kept
		return walk(ctx, c, run, gone.First-1, through)
	}
	return t, err
}

func walk(ctx context.Context, c *protocol.Call, run string, after, through schema.Seq) (*thread, error) {
	t := newThread()
	p := Dialect{}.Projector(dialect.Request{Run: run, Form: formAll}).(*projector)
	for r, err := range c.Records(ctx, run, after, through) {
		if err == nil {
			err = t.next(p, r)
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

func newThread() *thread {
	return &thread{byID: map[string]*entity{}, owners: map[string]*entity{}, state: map[string][]byte{}}
}

// next does with the events of the next record what a client does.
func (t *thread) next(p *projector, r schema.Record) error {
	if len(r.Child) == 0 && string(r.Type) == schema.TypeCommandMessage {
		_, _, run := r.Envelope()
		t.addPerson(string(run), r)
	}
	var out dialect.Frames
	if err := p.Project(&out, r); err != nil {
		return err
	}
	for _, f := range out.List {
		t.add(f.Data, string(f.Token))
	}
	t.dropOldest()
	return nil
}

// dropOldest drops the oldest messages where all are too large for one event.
func (t *thread) dropOldest() {
	for len(t.list) > 0 && t.size > maxSnapshot {
		t.size -= t.list[0].size()
		t.list = t.list[1:]
		t.dropped++
	}
}

func (m *entity) size() int {
	n := 256 + len(m.content) + len(m.raw) + len(m.sign)
	for _, c := range m.calls {
		n += 128 + len(c.args)
	}
	return n
}

// addPerson adds what a person says.
func (t *thread) addPerson(run string, r schema.Record) {
	f := jsonscan.Fields(nil).Read(r.Payload())
	if f.Str("role") == "system" {
		return
	}
	raw := userMessage(nil, run, r.Seq, func(name string) []byte { return f.Raw(name) })
	t.put(&entity{id: jsonscan.DecodeString(schema.Field(raw, "id")), role: "user", raw: raw})
}

// put adds a message after all others, if its id is new, and returns the one that has it.
func (t *thread) put(m *entity) *entity {
	if have := t.byID[m.id]; have != nil {
		return have
	}
	t.list, t.byID[m.id] = append(t.list, m), m
	t.size += m.size()
	return m
}

// add does with an event what the client does. token is the event's id.
func (t *thread) add(event []byte, token string) {
	f := jsonscan.Fields(nil).Read(event)
	response, _, _ := strings.Cut(token, ".")
	m := &entity{id: f.Str("messageId"), lane: f.Str("subagentRunId"), response: response}
	call := f.Str("toolCallId")
	switch f.Str("type") {
	case "TEXT_MESSAGE_START":
		m.role, m.content = "assistant", []byte{}
		t.put(m)
	case "REASONING_MESSAGE_START":
		m.role, m.content = "reasoning", []byte{}
		t.put(m)
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT":
		if have := t.byID[m.id]; have != nil {
			delta := jsonscan.Inner(f.Raw("delta"))
			have.content = append(have.content, delta...)
			t.size += len(delta)
		}
	case "REASONING_ENCRYPTED_VALUE":
		if have := t.byID[f.Str("entityId")]; have != nil {
			have.sign = bytes.Clone(f.Raw("encryptedValue"))
			t.size += len(have.sign)
		}
	case "TOOL_CALL_START":
		t.addCall(m, call, f.Str("parentMessageId"), f.Str("toolCallName"))
	case "TOOL_CALL_ARGS":
		t.args(call, jsonscan.Inner(f.Raw("delta")))
	case "TOOL_CALL_RESULT":
		m.role, m.call, m.content = "tool", call, bytes.Clone(jsonscan.Inner(f.Raw("content")))
		t.result(m)
	case "STATE_SNAPSHOT":
		t.state, t.names = map[string][]byte{}, nil
		for name, v := range jsonscan.Members(f.Raw("snapshot")) {
			t.set(string(name), v)
		}
	case "STATE_DELTA":
		for op := range jsonscan.Elements(f.Raw("delta")) {
			o := jsonscan.Fields(nil).Read(op)
			t.set(unpointer.Replace(strings.TrimPrefix(o.Str("path"), "/")), o.Raw("value"))
		}
	}
}

// unpointer reads a step of a JSON Pointer.
var unpointer = strings.NewReplacer("~1", "/", "~0", "~")

func (t *thread) set(name string, value []byte) {
	if t.state[name] == nil {
		t.names = append(t.names, name)
	}
	t.state[name] = bytes.Clone(value)
}

// addCall adds a call to its message, or to one of its own.
func (t *thread) addCall(m *entity, call, parent, name string) {
	if t.owners[call] != nil {
		return
	}
	owner := t.byID[parent]
	if owner == nil || owner.role != "assistant" {
		m.id, m.role = call, "assistant"
		owner = t.put(m)
	}
	owner.calls = append(owner.calls, &calling{id: call, name: name})
	t.owners[call] = owner
	t.size += 128
}

func (t *thread) args(call string, delta []byte) {
	owner := t.owners[call]
	if owner == nil {
		return
	}
	i := slices.IndexFunc(owner.calls, func(c *calling) bool { return c.id == call })
	owner.calls[i].args = append(owner.calls[i].args, delta...)
	t.size += len(delta)
}

// result adds a result after those that follow the message of its call.
func (t *thread) result(m *entity) {
	if t.put(m) != m {
		return
	}
	i := slices.Index(t.list, t.owners[m.call])
	if i < 0 {
		return
	}
	for i++; t.list[i].role == "tool" && t.list[i] != m; {
		i++
	}
	t.list = slices.Insert(t.list[:len(t.list)-1], i, m)
}

// append appends the message as AG-UI has it.
func (m *entity) append(dst []byte) []byte {
	if m.raw != nil {
		return append(dst, m.raw...)
	}
	o := append(jsonscan.Object(dst), '{').Str("id", m.id).Str("role", m.role)
	if m.content != nil {
		o = o.Inner("content", m.content)
	}
	o = o.OptStr("toolCallId", m.call).OptRaw("encryptedValue", m.sign).OptStr("subagentRunId", m.lane)
	for i, c := range m.calls {
		if i == 0 {
			o = append(o.Name("toolCalls"), '[')
		} else {
			o = append(o, ',')
		}
		o = append(o, '{').Str("id", c.id).Str("type", "function")
		o = append(o.Name("function"), '{').Str("name", c.name).Inner("arguments", c.args).End().End()
	}
	if len(m.calls) > 0 {
		o = append(o, ']')
	}
	return o.End()
}

// messages appends those of the thread, after those of the client that are not of it.
func (t *thread) messages(dst []byte, theirs [][]byte) []byte {
	dst = append(dst, '[')
	comma := func() {
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
	}
	room := maxSnapshot - t.size
	for _, raw := range theirs {
		f := jsonscan.Fields(nil).Read(raw)
		id, role := f.Str("id"), f.Str("role")
		known := t.byID[id] != nil || role == "reasoning" || role == "tool" && t.owners[f.Str("toolCallId")] != nil
		if known || len(raw) > room {
			continue
		}
		room -= len(raw)
		comma()
		dst = append(dst, raw...)
	}
	for _, m := range t.list {
		comma()
		dst = m.append(dst)
	}
	return append(dst, ']')
}

// prelude replaces what the client of a POST holds by the thread as it is at the seam, and opens what is open there.
func prelude(c *protocol.Call, at protocol.Seam) ([]dialect.Frame, error) {
	if at.Request.Cursor.Seq == 0 || at.Request.Cursor.Token != "" {
		return nil, nil
	}
	b := new(post)
	if at.Input.Body != nil {
		var err error
		b, err = read(at.Input.Body, at.Input.Path["run"])
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	t, err := readThread(ctx, c, at.Request.Run, at.After)
	if err != nil {
		return nil, err
	}
	p := at.State.(*projector)
	theirs := make([][]byte, len(b.Messages))
	for i, raw := range b.Messages {
		theirs[i] = raw
	}
	return p.opening(at.Request, b.RunID, t, theirs), nil
}

// opening returns the events of a prelude. Where the response has not begun, they are a run of AG-UI of their own.
func (p *projector) opening(req dialect.Request, runID string, t *thread, theirs [][]byte) []dialect.Frame {
	var out dialect.Frames
	p.out, p.every, p.run = &out, true, req.Run
	goesOn := p.now.running && p.now.response.String() == req.Span
	if !goesOn {
		p.now = wire{response: p.now.response, running: true}
	}
	if runID == "" {
		runID = p.now.runID
	}
	ids := func(o jsonscan.Object) jsonscan.Object { return o.Str("threadId", req.Run).Str("runId", runID) }
	p.emit("RUN_STARTED", "", func(o jsonscan.Object) jsonscan.Object { return ids(o).Str("protocolVersion", "1.0") })
	for lane, over := range p.now.lanes.All() {
		p.startLane(lane, nil)
		if over {
			p.emit("SUBAGENT_FINISHED", lane, nil)
		}
	}
	if len(t.names) > 0 {
		p.emit("STATE_SNAPSHOT", "", func(o jsonscan.Object) jsonscan.Object {
			o = append(o.Name("snapshot"), '{')
			for _, name := range t.names {
				o = o.Raw(name, t.state[name])
			}
			return o.End()
		})
	}
	p.emit("MESSAGES_SNAPSHOT", "", func(o jsonscan.Object) jsonscan.Object { return append(o.Name("messages"), t.nothing()...) })
	p.emit("MESSAGES_SNAPSHOT", "", func(o jsonscan.Object) jsonscan.Object { return t.messages(o.Name("messages"), theirs) })
	if t.dropped > 0 {
		p.custom("agentstream:truncated", "", jsonscan.Object("{").Int("messages", int64(t.dropped)).Int("limit",
			maxSnapshot).End())
	}
	p.reopen()
	if !goesOn {
		p.emit("RUN_FINISHED", "", func(o jsonscan.Object) jsonscan.Object { return append(ids(o), `,"outcome":{"type":"success"}`...) })
	}
	for i := range out.List {
		out.List[i].Token = nil
	}
	return out.List
}

// nothing is a snapshot after which a client holds nothing of the thread: it keeps the order of what it holds, and adds
// what is new after that. Thoughts go only if there is one in the snapshot; the next one, which has others, removes
// this.
func (t *thread) nothing() string {
	for _, m := range t.list {
		if m.role == "reasoning" {
			return `[{"id":"agentstream-nothing","role":"reasoning","content":""}]`
		}
	}
	return "[]"
}

// reopen opens what is open.
func (p *projector) reopen() {
	texts, calls := p.now.texts.Clone(), p.now.calls.Clone()
	for id, t := range texts.All() {
		p.startText(id, t)
	}
	for id, c := range calls.All() {
		p.startCall(id, c)
	}
}

// empty is a run that is over at once.
func (b *post) empty() []dialect.Frame {
	o := jsonscan.Object("{").Str("type", "RUN_STARTED").Str("threadId", b.ThreadID).Str("runId",
		b.RunID).Str("protocolVersion", "1.0").End()
	end := jsonscan.Object("{").Str("type", "RUN_FINISHED").Str("threadId", b.ThreadID).Str("runId", b.RunID)
	end = append(end.Name("outcome"), '{').Str("type", "success").End().End()
	return []dialect.Frame{{Data: o}, {Data: end}}
}
