package otlp

import (
	"bytes"
	"cmp"
	"slices"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// chatMessage is a message in the form of the conventions: {"role", "parts"}.
type chatMessage []byte

// addContent adds a value that may be what people, models or tools have said. A string is added as it reads, anything
// else as JSON.
func (t *tracer) addContent(s *openSpan, key string, v []byte) {
	if !t.options.Contents || len(v) == 0 || string(v) == "null" {
		return
	}
	say := string(v)
	if jsonscan.IsString(v) {
		say = jsonscan.DecodeString(v)
	}
	if len(say) > maxContent {
		s.lost = true
	}
	s.add(text(key, clip(say, maxContent)))
}

// hear keeps what the record at hand says to an agent, for its next request to a model.
func (t *tracer) hear(typ, child string) {
	switch typ {
	case schema.TypeCommandMessage:
		if t.options.Contents {
			l := t.laneOf(child)
			l.heard = appendMessage(l.heard, contentMessage("user", t.run.Field("content")))
		}
	case schema.TypeSessionCreated:
		t.nameAgent(t.laneOf(child))
	}
}

// nameAgent names the agent of a session.
func (t *tracer) nameAgent(l *laneSpans) {
	agent := t.run.Field("agent")
	name, ok := jsonscan.Unquote(agent)
	if !ok {
		fields := jsonscan.Fields(nil).Read(agent)
		name = cmp.Or(fields.Str("name"), fields.Str("id"))
	}
	if name != "" && !l.self.ended {
		l.self.pb.Name = clip("invoke_agent "+name, maxName)
		l.self.addText("gen_ai.agent.name", name)
	}
}

// appendMessage appends a message, nil for none. The oldest go when there are too many.
func appendMessage(all []chatMessage, m chatMessage) []chatMessage {
	if m == nil {
		return all
	}
	all = append(all, m)
	size := 0
	for i, m := range slices.Backward(all) {
		size += len(m)
		if size > maxInputs {
			return slices.Clone(all[i+1:])
		}
	}
	return all
}

func joinMessages(all []chatMessage) string {
	b := []byte{'['}
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	return string(append(b, ']'))
}

// toolMessage returns the result of a call.
func toolMessage(id string, output []byte) chatMessage {
	part := jsonscan.Object{'{'}.Str("type", "tool_call_response").Str("id", id)
	output = bytes.TrimSpace(output)
	if len(output) > 0 && len(output) <= maxContent {
		part = part.Raw("response", output)
	}
	return wrapParts("tool", part.End())
}

func wrapParts(role string, parts []byte) chatMessage {
	list := append(append([]byte{'['}, parts...), ']')
	whole := jsonscan.Object{'{'}.Str("role", role).Raw("parts", list).End()
	return chatMessage(bytes.ToValidUTF8(whole, []byte("\uFFFD")))
}

// contentMessage returns a content, which is a list of blocks or a string. One that is too long has its texts
// shortened, and one that is still too long has no parts.
func contentMessage(role string, content []byte) chatMessage {
	if len(content) == 0 {
		return nil
	}
	for _, most := range []int{maxContent, maxContent / 16} {
		var parts []byte
		if jsonscan.IsString(content) {
			parts = textPart("text", jsonscan.DecodeString(content), most)
		}
		for block := range jsonscan.Elements(content) {
			if len(parts) > 0 {
				parts = append(parts, ',')
			}
			parts = append(parts, partOf(block, most)...)
		}
		if len(parts) <= maxContent {
			return wrapParts(role, parts)
		}
	}
	return wrapParts(role, nil)
}

func textPart(kind, v string, most int) []byte {
	return jsonscan.Object{'{'}.Str("type", kind).Str("content", clip(v, most)).End()
}

// partOf returns a block as the conventions have it. Of what they have no word for there is the type alone.
func partOf(block []byte, most int) []byte {
	c := assemble.ReadPart(block)
	switch {
	case c.IsText():
		return textPart("text", jsonscan.DecodeInner(c.Text), most)
	case c.IsThought():
		return textPart("reasoning", jsonscan.DecodeInner(c.Reasoning()), most)
	case string(c.Type) == `"tool_use"`:
		part := jsonscan.Object{'{'}.Str("type", "tool_call").Str("id", jsonscan.DecodeString(c.ID))
		part = part.Str("name", jsonscan.DecodeString(c.Name))
		if len(c.Input) > 0 && len(c.Input) <= most {
			part = part.Raw("arguments", c.Input)
		}
		return part.End()
	}
	kind, _ := jsonscan.Unquote(c.Type)
	return jsonscan.Object{'{'}.Str("type", clip(kind, maxName)).End()
}
