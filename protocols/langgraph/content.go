package langgraph

import (
	"bytes"
	"strings"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// content returns the finished block: its text, the inside of a string, or the input of its call.
func (b *block) content(said, input []byte, free bool) []byte {
	o := object{'{'}
	switch b.kind {
	case blockText:
		o = append(o.Str("type", "text").Inner("text", said), b.extra...)
	case blockReasoning:
		o = append(o.Str("type", "reasoning").Inner("reasoning", said), b.extra...)
	case blockCall, blockServer:
		return callOf(b.kind == blockServer, b.id, b.name, said, input, free, b.parts)
	case blockMedia:
		o = o.Str("type", mediaOf(b.mime)).Str("mime_type", b.mime)
		if len(b.data) > 0 {
			o = o.Inner("base64", b.data).Inner("data", b.data)
		}
	case blockOther:
		start := b.start
		if b.field != "" && len(said) > 0 {
			start = append(object{'{'}.Members(start, b.field).Inner(b.field, said), '}')
		} else if len(said) > 0 {
			start = append(object{'{'}.Members(start, "text").Inner("text", said), '}')
		}
		part := assemble.ReadPart(start)
		return contentOf(&part)
	}
	return o.End()
}

// callOf returns the block of a call with its whole input. One that is no JSON object is marked invalid, but for free
// text.
func callOf(server bool, id, name string, said, input []byte, free, lost bool) []byte {
	typ := "tool_call"
	if server {
		typ = "server_tool_call"
	}
	args, raw := input, jsonscan.DecodeInner(said)
	if args == nil && !lost {
		args = []byte(strings.TrimSpace(raw))
	}
	switch {
	case free && args != nil && !isObject(args):
		if jsonscan.IsString(args) {
			raw = text(args)
		}
		args = append(object{'{'}.Str("input", raw), '}')
	case len(args) == 0 && !lost:
		args = []byte(`{}`)
	}
	o := object{'{'}
	if isObject(args) && jsonscan.Valid(args, 1<<10) {
		return o.Str("type", typ).Str("id", id).Str("name", name).Raw("args", compact(args)).End()
	}
	if input != nil && !isObject(input) { // a list, a number
		raw = string(input)
	}
	problem := "the arguments are no JSON object"
	if lost {
		raw, problem = "", "the arguments are too long to be kept"
	}
	return o.Str("type", "invalid_tool_call").Str("id", id).Str("name", name).Str("args", raw).Str("error", problem).End()
}

// compact takes the line breaks out of JSON: none stands within a string.
func compact(v []byte) []byte {
	if bytes.IndexAny(v, "\n\r") < 0 {
		return v
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(v, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
}

// contentOf returns a block of a stored content in the protocol's form. What has none is a non_standard one.
func contentOf(c *assemble.Part) []byte {
	o := object{'{'}
	typ := text(c.Type)
	switch {
	case c.IsText():
		o = o.Str("type", "text").Inner("text", c.Text)
		if v := schema.Field(c.Raw, "citations"); len(v) > 2 && v[0] == '[' {
			o = appendCitations(o.Name("annotations"), v)
		}
	case c.IsThought():
		o = o.Str("type", "reasoning").Inner("reasoning", c.Reasoning())
		if c.Signature != nil {
			o = append(o.Name("extras"), '{').Raw("signature", c.Signature).End()
		}
	case typ == "tool_use":
		return callOf(false, text(c.ID), text(c.Name), c.Partial, c.Input, false, false)
	case strings.HasSuffix(typ, "tool_use") && c.ID != nil:
		return callOf(true, text(c.ID), text(c.Name), c.Partial, c.Input, false, false)
	case strings.HasSuffix(typ, "tool_result"):
		status := "success"
		output := schema.Field(c.Raw, "content")
		if schemaYes(c.Raw, "is_error") || strings.HasSuffix(text(schema.Field(output, "type")), "_error") {
			status = "error"
		}
		o = o.Str("type", "server_tool_result").Str("tool_call_id",
			text(schema.Field(c.Raw, "tool_use_id"))).Str("status", status).Raw("output", output)
	case typ == "data":
		mime := text(schema.Field(c.Raw, "media_type"))
		o = o.Str("type", mediaOf(mime)).Str("mime_type", mime)
	default:
		o = o.Str("type", "non_standard").Raw("value", c.Raw)
	}
	return o.End()
}

// appendCitations writes citations as annotations.
func appendCitations(o []byte, list []byte) []byte {
	o = append(o, '[')
	for c := range jsonscan.Elements(list) {
		f := jsonscan.Fields(nil).Read(c)
		a := append(object(sepList(o)), '{')
		if f == nil {
			o = a.Str("type", "non_standard_annotation").Raw("value", c).End()
			continue
		}
		a = a.Str("type", "citation").OptRaw("url", f.Kind("url", '"')).OptRaw("title",
			f.Kind("title", '"')).OptRaw("cited_text", f.Kind("cited_text", '"'))
		for _, n := range [][2]string{{"start_index", "start_index"}, {"end_index", "end_index"},
			{"start_char_index", "start_index"}, {"end_char_index", "end_index"}} {
			a = a.OptRaw(n[1], f.Number(n[0]))
		}
		o = a.End()
	}
	return append(o, ']')
}

func sepList(o []byte) []byte {
	if o[len(o)-1] == '[' {
		return o
	}
	return append(o, ',')
}

// mediaOf is the type of a block of a media type.
func mediaOf(mime string) string {
	kind, _, _ := strings.Cut(mime, "/")
	switch kind {
	case "image", "audio", "video":
		return kind
	}
	return "file"
}
