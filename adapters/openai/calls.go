package openai

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
)

// calls are the tool calls of a choice. They stay open until it ends, for their pieces may come in
// turns.
type calls struct {
	list    []*call
	byIndex map[int]*call
	byID    map[string]*call
	legacy  *call
	begun   int
}

// call is one of them. Its block begins when its name and id are known, or with its first piece.
type call struct {
	b        *provider.Block
	id, name string
	kind     string
	input    json.RawMessage
	late     provider.Fields
}

// maxCalls bounds the calls of one choice that are open at a time.
const maxCalls = 4096

// toolCalls takes the calls of a delta, also one in the old spelling.
func (c *choice) toolCalls(content provider.Fields) {
	for _, raw := range provider.Elements(content.Get("tool_calls")) {
		if all, ok := provider.Parse(raw); !ok || !c.toolCall(all) {
			c.out.Custom("delta", provider.Fields{{Name: "tool_calls", Value: provider.List([]json.RawMessage{raw})}})
		}
	}
	f := content.Object("function_call")
	if f == nil {
		return
	}
	if c.calls.legacy == nil {
		c.calls.legacy = c.addCall(&call{kind: "function_call"})
	}
	if c.calls.legacy == nil || !c.piece(c.calls.legacy, f, f.Get("arguments"), "", nil) {
		c.out.Custom("delta", provider.Fields{{Name: "function_call", Value: content.Get("function_call")}})
	}
}

// toolCall takes a piece of a call. false: it has no place.
func (c *choice) toolCall(all provider.Fields) bool {
	in, input := all.Object("function"), "arguments"
	custom := all.Str("type") == "custom" || in == nil && all.Object("custom") != nil
	if custom {
		in, input = all.Object("custom"), "input"
	}
	if len(all) > maxMembers || len(in) > maxMembers {
		return false
	}
	id := all.Str("id")
	k := c.callOf(all.Index(), id, in.Str("name"))
	if k == nil {
		return false
	}
	if k.kind == "" {
		if k.kind = all.Str("type"); k.kind == "" && custom {
			k.kind = "custom"
		}
	}
	var late provider.Fields
	for _, f := range all {
		switch f.Name {
		case "index", "id", "type", "function", "custom":
		default:
			late = append(late, f)
		}
	}
	for _, f := range in {
		if f.Name != "name" && f.Name != input {
			late = append(late, f)
		}
	}
	return c.piece(k, in, in.Get(input), id, late)
}

// callOf finds the call of a piece, or begins one. Services leave out index or id, and some give every
// call the index 0: an id that differs is another call.
func (c *choice) callOf(index int, id, name string) *call {
	s := &c.calls
	var k *call
	switch {
	case index >= 0:
		if k = s.byIndex[index]; k != nil && id != "" && k.id != "" && k.id != id {
			k = s.byID[id]
		}
	case id != "":
		k = s.byID[id]
	case name == "" && len(s.list) > 0:
		k = s.list[len(s.list)-1]
	}
	if k == nil {
		if k = c.addCall(&call{}); k == nil {
			return nil
		}
	}
	if s.byIndex == nil {
		s.byIndex, s.byID = make(map[int]*call), make(map[string]*call)
	}
	if index >= 0 {
		s.byIndex[index] = k
	}
	if id != "" {
		s.byID[id] = k
	}
	return k
}

func (c *choice) addCall(k *call) *call {
	if len(c.calls.list) >= maxCalls {
		return nil
	}
	c.calls.list = append(c.calls.list, k)
	return k
}

// piece takes one piece of a call. false: the call has ended.
func (c *choice) piece(k *call, in provider.Fields, input json.RawMessage, id string, late provider.Fields) bool {
	text := provider.IsString(input) && len(provider.Inner(input)) > 0
	if k.b != nil && !k.b.Open() {
		return !text && !filled(input)
	}
	name := in.Str("name")
	if k.b != nil && k.id == "" && id != "" { // too late to be the call's
		late = append(late, provider.Field{Name: "late_id", Value: provider.Quote(id)})
	}
	if k.b != nil && k.name == "" && name != "" {
		late = append(late, provider.Field{Name: "late_name", Value: provider.Quote(name)})
	}
	if k.id == "" {
		k.id = id
	}
	if k.name == "" {
		k.name = name
	}
	for _, f := range late {
		if filled(f.Value) && len(k.late) < maxMembers {
			k.late = k.late.Set(f.Name, bytes.Clone(f.Value))
		}
	}
	if !provider.IsString(input) && filled(input) { // not as text, but as it is
		k.input = bytes.Clone(input)
	}
	if k.b == nil && (text || k.id != "" && k.name != "") {
		c.beginCall(k)
	}
	if text {
		k.b.Text(input)
	}
	return true
}

func (c *choice) beginCall(k *call) {
	c.endNow(true)
	c.calls.begun++
	if k.kind == "" {
		k.kind = "function"
	}
	k.b = c.msg.Begin(&provider.Block{
		Index: c.next(), Kind: "tool_use", ToolUse: true, Call: k.id, Tool: k.name, CallKind: provider.Bounded(k.kind), FreeText: k.kind == "custom",
	})
}

// beginWaiting begins the calls of which too little came to begin them before.
func (c *choice) beginWaiting() {
	for _, k := range c.calls.list {
		if k.b == nil {
			c.beginCall(k)
		}
		k.b.Late, k.b.Input = k.late, k.input
	}
}

func (c *choice) endCalls() {
	c.beginWaiting()
	for _, k := range c.calls.list {
		k.b.End(true)
	}
	c.calls = calls{begun: c.calls.begun}
}
