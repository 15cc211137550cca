package proxy

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// conversation is a request as it is read, the same for all APIs: what was said so far, in order. System prompts,
// thoughts, marks for a provider's cache and ids of items are no part of it: they change from request to request.
type conversation struct {
	scope   string // what the request continues at the provider; "": it holds everything itself
	rolling bool   // the scope is the same in every request, so a repeat may be new
	items   []item
}

type itemKind byte

const (
	userItem itemKind = iota
	assistantItem
	resultItem
)

// item is one step of a conversation. Which fields are set depends on its kind.
type item struct {
	kind  itemKind
	parts []part            // of the user
	texts []json.RawMessage // of the assistant: JSON strings
	calls []requestCall     // of the assistant
	toolResult
}

// requestCall is a call as a request repeats it.
type requestCall struct {
	id, tool string
	input    json.RawMessage // a JSON value, or a JSON string that holds one
}

// toolResult is what a tool answered. id or tool may be "", where the API has none.
type toolResult struct {
	id, tool string
	failed   bool
	output   json.RawMessage
	typ      string // the API's name of it
}

// part is one piece of a user's message.
type part struct {
	text []byte // a JSON string; nil: it is something else
	kind string
	raw  []byte
}

// sum identifies content. The zero sum is none.
type sum [16]byte

func sumOf(b []byte) (s sum) {
	whole := sha256.Sum256(b)
	copy(s[:], whole[:])
	return s
}

// say adds a user's message.
func (c *conversation) say(parts []part) {
	if len(parts) > 0 {
		c.items = append(c.items, item{kind: userItem, parts: parts})
	}
}

func (c *conversation) result(r toolResult) {
	c.items = append(c.items, item{kind: resultItem, toolResult: r})
}

// answer adds a piece of the assistant's: of one that follows another without anything between, to that one.
func (c *conversation) answer(texts []json.RawMessage, calls []requestCall) {
	c.items = append(c.items, item{kind: assistantItem, texts: texts, calls: calls})
}

// askLength returns the number of items that the request asks with: an answer at its end is the beginning of
// the one to come.
func (c *conversation) askLength() int {
	n := len(c.items)
	for n > 0 && c.items[n-1].kind == assistantItem {
		n--
	}
	if n == 0 {
		return len(c.items)
	}
	return n
}

// prefixSums returns a sum for each beginning of the conversation, from that without items to the whole.
func (c *conversation) prefixSums() []sum {
	all := make([]sum, 1, len(c.items)+1)
	all[0] = sumOf([]byte("scope " + c.scope))
	var b []byte
	for i := range c.items {
		last := all[len(all)-1]
		b = c.items[i].append(append(b[:0], last[:]...))
		all = append(all, sumOf(b))
	}
	return all
}

// append writes what identifies the item. Pieces are divided by a byte that JSON has only escaped.
func (it *item) append(b []byte) []byte {
	switch it.kind {
	case userItem:
		return appendParts(append(b, 'u'), it.parts)
	case resultItem:
		if it.failed {
			b = append(b, '!')
		}
		if jsonscan.IsString(it.output) || provider.Elements(it.output) != nil {
			return appendParts(append(b, 'r'), contentOf(it.output))
		}
		return append(append(b, 'R'), it.output...)
	}
	b = append(b, 'a')
	for _, t := range it.texts {
		b = append(append(b, 0), t...)
	}
	for _, k := range it.calls {
		b = append(append(append(append(b, 1), k.tool...), 0), k.input...)
	}
	return b
}

func appendParts(b []byte, parts []part) []byte {
	for _, p := range parts {
		b = append(append(append(b, 0), p.text...), p.raw...)
	}
	return b
}

// maxPart bounds a part of a message that is no text (an image, a document), in bytes: of a larger one
// only the small members are kept.
const maxPart = 64 << 10

// addPart takes an element of a content list: text, or something with a type of its own.
func addPart(parts []part, f provider.Fields, raw []byte) []part {
	if f == nil {
		return parts
	}
	typ := f.Str("type")
	if v := f.Get("text"); jsonscan.IsString(v) && (typ == "text" || strings.HasSuffix(typ, "put_text") || typ == "") {
		return append(parts, part{text: v})
	}
	return append(parts, part{kind: strings.TrimPrefix(typ, "input_"), raw: without(f, raw, "cache_control")})
}

// without returns an object without a member, and as it came where it has none.
func without(f provider.Fields, raw []byte, name string) []byte {
	if f.Get(name) == nil {
		return raw
	}
	var rest provider.Fields
	for _, m := range f {
		if m.Name != name {
			rest = append(rest, m)
		}
	}
	return rest.Encode()
}

// contentOf takes a text, or a list of parts.
func contentOf(v []byte) (parts []part) {
	if jsonscan.IsString(v) {
		return []part{{text: v}}
	}
	for _, raw := range provider.Elements(v) {
		f, _ := provider.Parse(raw)
		parts = addPart(parts, f, raw)
	}
	return parts
}

// textsOf returns the texts of a content, a string or a list.
func textsOf(v []byte) (texts []json.RawMessage) {
	for _, p := range contentOf(v) {
		if p.text != nil {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// textSum identifies the text of an answer, with or without the space around it. It is zero where there is none.
func textSum(texts []json.RawMessage) sum {
	var b []byte
	for _, t := range texts {
		b = append(b, jsonscan.Unescape(jsonscan.Inner(t))...)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return sum{}
	}
	return sumOf([]byte(text))
}

// inputSum identifies the input of a call, whatever the order of its members and the way its strings are written.
func inputSum(input json.RawMessage) sum {
	if jsonscan.IsString(input) {
		inner := jsonscan.Unescape(jsonscan.Inner(input))
		if json.Valid(inner) {
			input = inner
		}
	}
	var v any
	if len(input) == 0 || string(input) == `""` || json.Unmarshal(input, &v) != nil || v == nil {
		v = map[string]any{}
	}
	same, err := json.Marshal(v) // members in order
	if err != nil {
		return sumOf(input)
	}
	return sumOf(same)
}
