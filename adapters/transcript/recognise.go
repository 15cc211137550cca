package transcript

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentstream/schema"
)

// Names of the model streams, of LangGraph's events and of this project's own, that Recognise knows beside Formats.
const (
	Native          = "native"
	Anthropic       = "anthropic"
	OpenAIChat      = "openai-chat"
	OpenAIResponses = "openai-responses"
	Gemini          = "gemini"
	LangGraph       = "langgraph"
)

// Recognise returns by the first bytes of a file what it is: one of Formats, or a stream that an adapter
// beside this package reads (anthropic, openai-chat, openai-responses, gemini, langgraph), or native events. A few
// kilobytes are enough, unless the first line is longer and shows what it is at its end. ok is false
// when they do not show it; then format is "".
func Recognise(head []byte) (format string, ok bool) {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(head) == 0 {
		return "", false
	}
	switch head[0] {
	case '{', '[':
		format = ofObjects(head)
	default:
		format = ofEvents(head)
	}
	return format, format != ""
}

// maxLook bounds how many lines or objects are looked at.
const maxLook = 64

// ofObjects looks at objects: one per line, in a list, or one document.
func ofObjects(b []byte) string {
	for range maxLook {
		i := bytes.IndexByte(b, '{')
		if i < 0 {
			return ""
		}
		b = b[i:]
		if format := ofObject(b); format != "" {
			return format
		}
		end, whole := valueEnd(b, 0)
		if !whole {
			return ""
		}
		b = b[end:]
	}
	return ""
}

// ofEvents looks at server-sent events.
func ofEvents(b []byte) string {
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	for range maxLook * 8 {
		line, rest, more := bytes.Cut(b, []byte("\n"))
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if format := ofObject(bytes.TrimSpace(data)); format != "" {
				return format
			}
			if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '[' {
				if format := ofObjects(data); format != "" {
					return format
				}
			}
		}
		if !more {
			return ""
		}
		b = rest
	}
	return ""
}

// shape is what is known of an object: its members' names, and the short strings among them.
type shape struct {
	values map[string][]byte
}

func shapeOf(b []byte) shape {
	list, _ := members(b)
	s := shape{values: make(map[string][]byte, len(list))}
	for _, m := range list {
		s.values[m.name] = m.value
	}
	return s
}

func (s shape) has(names ...string) bool {
	for _, name := range names {
		if _, ok := s.values[name]; !ok {
			return false
		}
	}
	return true
}

func (s shape) any(names ...string) bool {
	for _, name := range names {
		if s.has(name) {
			return true
		}
	}
	return false
}

func (s shape) str(name string) (text string) {
	if v := s.values[name]; len(v) < 256 {
		_ = json.Unmarshal(v, &text)
	}
	return text
}

func ofObject(b []byte) string {
	s := shapeOf(b)
	switch {
	case len(s.values) == 0:
		return ""
	case s.has("method", "params") && shapeOf(s.values["params"]).has("data"):
		return LangGraph
	case s.has("method", "response"):
		return GeminiCLI
	case s.any("trajectory") || s.has("history", "environment"):
		return SWEAgent
	case s.has("kind", "timestamp", "source"):
		return OpenHands
	}
	if format := ofType(s); format != "" {
		return format
	}
	return ofMembers(s)
}

// ofType judges by the member that most formats have.
func ofType(s shape) string {
	typ := s.str("type")
	_, err := schema.Lookup(typ)
	switch {
	case typ == "":
	case err == nil, s.any("payload", "seq", "run_id"): // a type of the catalogue, or where only events have theirs
		return Native
	case strings.HasPrefix(typ, "response."), typ == "error" && s.has("sequence_number"):
		return OpenAIResponses
	case typ == "stream_event" && s.has("event"), typ == "result" && s.any("session_id", "is_error"), typ == "system" &&
		s.has("subtype"),
		(typ == "assistant" || typ == "user") && s.has("message"):
		return ClaudeCode
	case typ == "message_start" && s.has("message"), typ == "message" && s.any("role", "content"), typ == "ping",
		strings.HasPrefix(typ, "content_block_"), typ == "message_delta", typ == "error" && s.has("error"):
		return Anthropic
	}
	return ""
}

// ofMembers judges by the members that a provider's answers have.
func ofMembers(s shape) string {
	object := s.str("object")
	switch {
	case s.any("candidates", "usageMetadata", "promptFeedback", "modelVersion"):
		return Gemini
	case object == "response":
		return OpenAIResponses
	case strings.HasPrefix(object, "chat.completion"), s.any("choices"):
		return OpenAIChat
	case s.has("response"):
		if inner := shapeOf(s.values["response"]); inner.any("candidates", "usageMetadata") {
			return Gemini
		}
	case s.has("error"):
		switch inner := shapeOf(s.values["error"]); {
		case inner.has("status", "message"):
			return Gemini
		case inner.has("param", "message"):
			return OpenAIChat
		}
	}
	return ""
}
