package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// toolCalls takes the calls of a delta, also one in the old spelling.
func (c *choice) toolCalls(content provider.Fields) {
	f, both := content.Object("function_call"), false // spellings
	for _, raw := range provider.Elements(content.Get("tool_calls")) {
		all, _ := provider.Parse(raw)
		both = both || all.Object("function").Str("name") == f.Str("name")
		if p, ok := pieceOf(all); !ok || c.Call(p) == nil {
			c.Out.Custom("delta", provider.Fields{{Name: "tool_calls", Value: provider.List([]json.RawMessage{raw})}})
		}
	}
	if f == nil || both {
		return
	}
	p := provider.Piece{Name: f.Str("name"), Kind: "function_call", Place: math.MaxInt}
	setInput(&p, f.Get("arguments"))
	if c.Call(p) == nil {
		c.Out.Custom("delta", provider.Fields{{Name: "function_call", Value: content.Get("function_call")}})
	}
}

// pieceOf reads a piece of a call. false: it is none.
func pieceOf(all provider.Fields) (p provider.Piece, ok bool) {
	in, input, kind := all.Object("function"), "arguments", "function"
	p.FreeText = all.Str("type") == "custom" || in == nil && all.Object("custom") != nil
	if p.FreeText {
		in, input, kind = all.Object("custom"), "input", "custom"
	}
	p.ID, p.Place, p.Name, p.Kind = all.Str("id"), all.Index("index"), in.Str("name"), all.Str("type")
	p.Begins = p.Kind != ""
	p.Kind = cmp.Or(p.Kind, kind)
	p.Late = append(all.Without("index", "id", "type", "function", "custom"), in.Without("name", input)...)
	setInput(&p, in.Get(input))
	return p, all != nil && len(all) <= maxMembers && len(in) <= maxMembers
}

// setInput sets the input of a piece, which is text, or an object as it is.
func setInput(p *provider.Piece, v json.RawMessage) {
	if jsonscan.IsString(v) {
		p.Text = v
	} else {
		p.Input = v
	}
}

// maxMembers bounds the members of an object that are taken one by one: each is looked for among the others.
const maxMembers = 128

// keep stores a member for the end of the message. A value that it replaces is emitted.
func keep(out *provider.Writer, m *provider.Message, f provider.Field) {
	if !provider.HasValue(f.Value) {
		return
	}
	if old := m.Keep(f); old != nil {
		out.Custom("replaced", provider.Fields{{Name: f.Name, Value: old}})
	}
}

// keepAll stores members of an object of some name. Where there are too many the object is emitted.
func keepAll(out *provider.Writer, m *provider.Message, name string, list provider.Fields) {
	if len(list) > maxMembers {
		out.Custom(name, list)
		return
	}
	for _, f := range list {
		keep(out, m, f)
	}
}

// logprobs emits the probabilities that a piece of a block's text has beside it.
func logprobs(out *provider.Writer, index int, all provider.Fields) {
	if v := all.Get("logprobs"); provider.HasValue(v) {
		at := provider.Field{Name: "index", Value: provider.Number(index)}
		out.Beside("logprobs", provider.Fields{at, {Name: "logprobs", Value: v}})
	}
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// isBase64 reports whether a value is a string of base64 that is not empty.
func isBase64(v json.RawMessage) bool {
	text := jsonscan.Unescape(jsonscan.Inner(v))
	padding := string(bytes.TrimLeft(text, alphabet))
	return len(text) > 0 && len(text)%4 == 0 && (padding == "" || padding == "=" || padding == "==")
}
