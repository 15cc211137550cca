package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"
)

// message is the message that is open.
type message struct {
	id     string
	blocks []*block // in the order in which they began
	usage  fields   // of message_start, overlaid with each message_delta
	end    fields   // stop_reason, stop_sequence, stop_details and whatever else the provider adds
}

// at gives the newest block with this index.
func (m *message) at(index int) *block {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		if m.blocks[i].index == index {
			return m.blocks[i]
		}
	}
	return nil
}

// content is the message as it would stand in a response that was not streamed.
func (m *message) content() json.RawMessage {
	b := []byte{'['}
	for i, bl := range m.blocks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, bl.content()...)
	}
	return append(b, ']')
}

// block is one content block and what its deltas added.
type block struct {
	index  int
	kind   string          // the provider's type
	source json.RawMessage // content_block as it began
	raw    fields          // its members
	call   string          // id of a tool use
	tool   string

	text      []byte // inside of the JSON string: text, thinking, or a tool's partial_json
	signature json.RawMessage
	citations []json.RawMessage
	replaced  json.RawMessage // "content" that a delta gave: a compaction's
	input     json.RawMessage
	closed    bool
}

// toolUse says that the block calls a tool: tool_use, server_tool_use, mcp_tool_use and kinds to
// come.
func (b *block) toolUse() bool { return b.kind == "tool_use" || strings.HasSuffix(b.kind, "_tool_use") }

// toolResult says that the block is what a tool of the provider answered.
func (b *block) toolResult() bool {
	return b.kind == "tool_result" || strings.HasSuffix(b.kind, "_tool_result")
}

// name of the kind in canonical events.
func (b *block) canonicalKind() string {
	if b.kind == "thinking" {
		return "reasoning"
	}
	return b.kind
}

// plain says that the block's beginning holds nothing that events do not say anyway.
func (b *block) plain() bool {
	known := map[string]string{"text": "text citations", "thinking": "thinking signature", "tool_use": "id name input"}[b.kind]
	if known == "" {
		return false
	}
	for _, f := range b.raw {
		if f.name != "type" && !strings.Contains(known, f.name) {
			return false
		}
	}
	return true
}

// textField is the member that the block's own deltas fill.
func (b *block) textField() string {
	switch {
	case b.toolUse():
		return "input"
	case b.kind == "thinking":
		return "thinking"
	}
	return "text"
}

// finishInput decides what the input of a tool use is. Deltas count more than what the block began
// with; no input at all is {}. It says why there is none.
func (b *block) finishInput() (why string) {
	text := bytes.TrimSpace(unescape(b.text))
	if len(text) == 0 {
		if b.input = b.raw.get("input"); b.input == nil || isNull(b.input) {
			b.input = json.RawMessage("{}")
		}
		return ""
	}
	if why = problem(text); why != "" {
		return why
	}
	b.input = oneLine(text)
	return ""
}

// content is the block as it would stand in a response that was not streamed. A tool use whose
// input never became JSON carries what there is of it as partial_json.
func (b *block) content() json.RawMessage {
	out := append(fields{}, b.raw...)
	changed := true
	switch {
	case b.toolUse() && b.input != nil:
		out = out.set("input", b.input)
	case b.toolUse():
		out = out.set("partial_json", enquote(b.text))
	case len(b.text) > 0:
		out = out.set(b.textField(), enquote(b.text))
	default:
		changed = false
	}
	if b.signature != nil {
		out, changed = out.set("signature", b.signature), true
	}
	if b.citations != nil {
		out, changed = out.set("citations", list(b.citations)), true
	}
	if b.replaced != nil {
		out, changed = out.set("content", b.replaced), true
	}
	if !changed {
		return b.source
	}
	return out.encode()
}

func list(values []json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
