package transcript

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// Blocks that several formats have.

func field(name string, value json.RawMessage) provider.Field {
	return provider.Field{Name: name, Value: value}
}

// textBlock emits text that came as a whole; value is a JSON string. Empty text emits nothing.
func textBlock(m *provider.Message, value json.RawMessage) {
	if jsonscan.IsString(value) && len(value) > len(`""`) {
		wholeText(m, "text", value, nil)
	}
}

func thinkingBlock(m *provider.Message, value, signature json.RawMessage) {
	if jsonscan.IsString(value) && (len(value) > len(`""`) || signature != nil) {
		wholeText(m, "reasoning", value, signature)
	}
}

func wholeText(m *provider.Message, kind string, value, signature json.RawMessage) {
	b := m.Begin(provider.TextBlock(len(m.Blocks), kind))
	b.Text(value)
	if jsonscan.IsString(signature) && len(signature) > len(`""`) {
		b.Late = b.Late.Set("signature", bytes.Clone(signature))
	}
	b.End(true)
}

// callBlock emits a call. arguments is a JSON string that holds JSON, or the input itself. raw may be
// nil.
func callBlock(m *provider.Message, id, name, kind string, arguments, raw json.RawMessage) *provider.Block {
	b := &provider.Block{Index: len(m.Blocks), Kind: "tool_use", ToolUse: true, Call: id, Tool: name, CallKind: kind,
		Raw: raw}
	if !jsonscan.IsString(arguments) {
		b.Input = bytes.Clone(arguments)
	}
	m.Begin(b)
	if jsonscan.IsString(arguments) {
		b.Text(arguments)
	}
	b.End(true)
	if m.Stop == nil {
		m.Stop = provider.Quote("tool_use")
	}
	return b
}

// otherBlock emits a content block of an unknown kind.
func otherBlock(m *provider.Message, raw json.RawMessage, answers string) {
	raw = bytes.Clone(raw)
	base, ok := provider.Parse(raw)
	kind := base.Str("type")
	if !ok || provider.IsReserved(kind) {
		kind = "part"
		base = provider.Fields{field("type", provider.Quote(kind)), field("part", raw)}
		raw = base.Encode()
	}
	m.Begin(&provider.Block{Index: len(m.Blocks), Kind: kind, Base: base, Raw: raw,
		Answers: provider.ShortenID(answers)}).End(true)
}

// contentBlocks emits the content of a chat message: a string, or a list of blocks.
func contentBlocks(m *provider.Message, content json.RawMessage) {
	if jsonscan.IsString(content) {
		textBlock(m, content)
		return
	}
	list := provider.Elements(content)
	if list == nil && content != nil && string(content) != "[]" && !provider.IsNull(content) {
		list = []json.RawMessage{content}
	}
	for _, raw := range list {
		b, _ := provider.Parse(raw)
		switch kind := b.Str("type"); {
		case kind == "text" && jsonscan.IsString(b.Get("text")):
			textBlock(m, b.Get("text"))
		case kind == "thinking" && jsonscan.IsString(b.Get("thinking")):
			thinkingBlock(m, b.Get("thinking"), b.Get("signature"))
		default:
			otherBlock(m, raw, b.Str("tool_use_id"))
		}
	}
}
