package agui

import (
	"context"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema/jsonscan"
)

// hydrate answers a page of TanStack's that begins: the messages of the thread in the form of its UIMessage, the run of
// AG-UI that goes on, without its messages, for the page reads them next, and what a person is asked.
func hydrate(ctx context.Context, c *protocol.Call) error {
	head, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: c.Path("run")})
	if err != nil {
		return err
	}
	t, err := readThread(ctx, c, c.Path("run"), head.Last)
	if err != nil {
		return err
	}
	active := ""
	if p.now.running {
		active = p.now.response.String()
	}
	o := append(jsonscan.Object("{").Name("messages"), '[')
	o = append(t.ui(o, active), ']')
	o = o.Name("activeRun")
	if active != "" {
		o = append(o, '{').Str("runId", p.now.runID).End()
	} else {
		o = append(o, "null"...)
	}
	o = o.Name("interrupts")
	if active == "" && len(p.waiting()) > 0 {
		o = append(append(o, '{').Str("runId", p.now.runID).Name("pending"), '[')
		o = append(p.interrupts(o), "]}"...)
	} else {
		o = append(o, "null"...)
	}
	o = append(o.Name("page"), '{').Bool("truncated", t.dropped > 0).End()
	c.Reply(http.StatusOK, o.End())
	return nil
}

// ui appends the messages as UIMessages, but for those of the response that goes on. A thought and the results of calls
// are parts of the message that they belong to.
func (t *thread) ui(o jsonscan.Object, active string) jsonscan.Object {
	var thoughts []*entity
	results := map[string]*entity{}
	for _, m := range t.list {
		if m.role == "tool" {
			results[m.call] = m
		}
	}
	for _, m := range t.list {
		switch {
		case m.role == "tool" || m.role != "user" && active != "" && m.response == active:
		case m.role == "reasoning":
			thoughts = append(thoughts, m)
		default:
			o = uiMessage(o, m.id, m, thoughts, results)
			thoughts = nil
		}
	}
	if len(thoughts) > 0 {
		o = uiMessage(o, thoughts[0].id, &entity{role: "assistant"}, thoughts, results)
	}
	return o
}

func uiMessage(o jsonscan.Object, id string, m *entity, thoughts []*entity,
	results map[string]*entity) jsonscan.Object {
	if o[len(o)-1] != '[' {
		o = append(o, ',')
	}
	o = append(append(o, '{').Str("id", id).Str("role", m.role).Name("parts"), '[')
	part := func(typ string) {
		if o[len(o)-1] != '[' {
			o = append(o, ',')
		}
		o = append(o, '{').Str("type", typ)
	}
	for _, th := range thoughts {
		part("thinking")
		o = o.Inner("content", th.content).End()
	}
	for _, text := range m.texts() {
		part("text")
		o = o.Raw("content", text).End()
	}
	for _, c := range m.calls {
		part("tool-call")
		result := results[c.id]
		state := map[bool]string{false: "input-complete", true: "complete"}[result != nil]
		o = o.Str("id", c.id).Str("name", c.name).Inner("arguments", c.args).Str("state", state).End()
		if result != nil {
			part("tool-result")
			o = o.Str("toolCallId", c.id).Inner("content", result.content).Str("state", "complete").End()
		}
	}
	return append(o, ']').End()
}

// texts are those of a message, as JSON strings.
func (m *entity) texts() (list [][]byte) {
	content := jsonscan.Fields(nil).Read(m.raw).Raw("content")
	switch {
	case len(m.content) > 0:
		return [][]byte{append(append([]byte{'"'}, m.content...), '"')}
	case jsonscan.IsString(content):
		return [][]byte{content}
	}
	for part := range jsonscan.Elements(content) {
		text := jsonscan.Fields(nil).Read(part).Raw("text")
		if text != nil {
			list = append(list, text)
		}
	}
	return list
}
