package openai

import (
	"encoding/json"
	"math"

	"agentstream/adapters/provider"
)

// toolCalls takes the calls of a delta, also one in the old spelling.
func (c *choice) toolCalls(content provider.Fields) {
	list := provider.Elements(content.Get("tool_calls"))
	for _, raw := range list {
		all, _ := provider.Parse(raw)
		if p, ok := pieceOf(all); !ok || c.Call(p) == nil {
			c.Out.Custom("delta", provider.Fields{{Name: "tool_calls", Value: provider.List([]json.RawMessage{raw})}})
		}
	}
	f := content.Object("function_call")
	if f == nil || len(list) > 0 && list[0] != nil && f.Str("name") == nameOf(list[0]) { // sent in both spellings
		return
	}
	p := provider.Piece{Name: f.Str("name"), Kind: "function_call", Place: math.MaxInt}
	setInput(&p, f.Get("arguments"))
	if c.Call(p) == nil {
		c.Out.Custom("delta", provider.Fields{{Name: "function_call", Value: content.Get("function_call")}})
	}
}

func nameOf(call json.RawMessage) string {
	all, _ := provider.Parse(call)
	return all.Object("function").Str("name")
}

// pieceOf reads a piece of a call. false: it is none.
func pieceOf(all provider.Fields) (p provider.Piece, ok bool) {
	in, input, kind := all.Object("function"), "arguments", "function"
	p.FreeText = all.Str("type") == "custom" || in == nil && all.Object("custom") != nil
	if p.FreeText {
		in, input, kind = all.Object("custom"), "input", "custom"
	}
	p.ID, p.Place, p.Name, p.Kind = all.Str("id"), all.Index(), in.Str("name"), all.Str("type")
	p.Begins = p.Kind != ""
	if !p.Begins {
		p.Kind = kind
	}
	for _, f := range all {
		switch f.Name {
		case "index", "id", "type", "function", "custom":
		default:
			p.Late = append(p.Late, f)
		}
	}
	for _, f := range in {
		if f.Name != "name" && f.Name != input {
			p.Late = append(p.Late, f)
		}
	}
	setInput(&p, in.Get(input))
	return p, all != nil && len(all) <= maxMembers && len(in) <= maxMembers
}

// setInput sets the input of a piece, which is text, or an object as it is.
func setInput(p *provider.Piece, v json.RawMessage) {
	if provider.IsString(v) {
		p.Text = v
	} else {
		p.Input = v
	}
}
