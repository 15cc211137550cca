package chat

import (
	"encoding/json"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Part is a part of what a person says: a text, or a file.
type Part struct {
	Text  string
	URL   string // of a file, which may be a data: URL; "" for a text
	Media string // of a file
	Name  string // of a file; "" for none
}

// Payload returns what a person says as the payload of a command.message: the text alone, or blocks as the providers
// have them. The error wraps dialect.ErrBadRequest where nothing is said, or the id is none.
func Payload(id string, parts []Part) (json.RawMessage, error) {
	if id == "" || len(id) > MaxID {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the message has no id of 1 to %d bytes", MaxID)
	}
	var blocks []any
	for _, p := range parts {
		if p.URL == "" {
			blocks = append(blocks, map[string]string{"type": "text", "text": p.Text})
			continue
		}
		typ, source := "document", map[string]string{"type": "url", "url": p.URL}
		if head, data, ok := strings.Cut(p.URL, ";base64,"); ok && strings.HasPrefix(head, "data:") {
			source = map[string]string{"type": "base64", "media_type": head[len("data:"):], "data": data}
		}
		if strings.HasPrefix(p.Media, "image/") {
			typ = "image"
		}
		blocks = append(blocks, map[string]any{"type": typ, "source": source, "title": p.Name})
	}
	switch {
	case len(parts) == 0:
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the message has no part that is a text or a file")
	case len(parts) == 1 && parts[0].URL == "":
		return json.Marshal(map[string]any{"content": parts[0].Text, "message_id": id})
	}
	return json.Marshal(map[string]any{"content": blocks, "message_id": id})
}

// MessageOf returns what a person says with a record, and the id of the message, which may be "". ok is false
// for any other record.
func MessageOf(r schema.Record) (id string, parts []Part, ok bool) {
	f := jsonscan.Fields(nil).Read(r.Payload())
	if string(r.Type) != schema.TypeCommandMessage || len(r.Child) > 0 || f.Str("role") == "system" {
		return "", nil, false
	}
	content := f.Raw("content")
	if jsonscan.IsString(content) {
		parts = append(parts, Part{Text: jsonscan.DecodeString(content)})
	}
	for block := range jsonscan.Elements(content) {
		b := jsonscan.Fields(nil).Read(block)
		source := jsonscan.Fields(nil).Read(b.Object("source"))
		p := Part{Text: b.Str("text"), URL: source.Str("url"), Media: source.Str("media_type"), Name: b.Str("title")}
		if data := source.Str("data"); data != "" {
			p.URL = "data:" + p.Media + ";base64," + data
		}
		if p.URL != "" && p.Media == "" {
			p.Media = b.Str("type") + "/*"
		}
		if p.Text != "" || p.URL != "" {
			parts = append(parts, p)
		}
	}
	return f.Str("message_id"), parts, true
}
