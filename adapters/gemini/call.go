package gemini

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
)

// call is one whose arguments stream.
type call struct {
	b    *provider.Block
	args arguments
	bad  bool // a piece has no place
}

// function emits a functionCall part: a whole call, or a piece of one whose arguments stream.
func (a *answer) function(fc provider.Fields, sig json.RawMessage) {
	for _, f := range fc {
		switch f.Name {
		case "id", "name", "args", "partialArgs", "willContinue":
		default:
			a.Out.Custom("function_call", fc)
		}
	}
	more := string(fc.Get("willContinue")) == "true"
	id, name := fc.Str("id"), fc.Str("name")
	goesOn := a.call != nil && (id != "" && provider.Bounded(id) == a.call.b.Call || id == "" && name == "")
	switch {
	case goesOn:
	case len(fc) == 0:
		a.Out.Custom("function_call", fc) // the end of a call that never began
		return
	case id != "" && a.made[id] != nil && bytes.Equal(a.made[id], fc.Get("args")): // sent twice
		return
	default:
		if a.call != nil {
			a.call.end(a, false)
		}
		a.close()
		b := a.beginCall(id, name)
		sign(b, sig)
		if sig = nil; !more && fc.Get("partialArgs") == nil {
			b.Input = bytes.Clone(fc.Get("args"))
			if b.End(true); a.made == nil {
				a.made = make(map[string]json.RawMessage)
			}
			a.calls = true
			if len(a.made) < maxMade {
				a.made[id] = b.Input
			}
			return
		}
		a.call = &call{b: b}
	}
	if c := a.call; sig != nil {
		sign(c.b, sig)
	}
	a.call.feed(a, fc)
	if !more {
		a.call.end(a, true)
	}
}

// maxMade bounds the calls that are compared with those that come later.
const maxMade = 256

func (a *answer) beginCall(id, name string) *provider.Block {
	return a.Msg.Begin(&provider.Block{Index: a.Next(), Kind: "tool_use", ToolUse: true, Call: id, Tool: name, CallKind: "functionCall"})
}

// feed takes the arguments that a piece brings.
func (c *call) feed(a *answer, fc provider.Fields) {
	for _, f := range fc.Object("args") {
		c.say(c.args.set([]step{{name: f.Name}}, f.Value, false))
	}
	list := fc.Get("partialArgs")
	if list != nil && provider.Elements(list) == nil && string(list) != "[]" && !provider.IsNull(list) {
		c.bad = true
		a.Out.Custom("partial_arg", provider.Fields{{Name: "partialArgs", Value: list}})
	}
	for _, raw := range provider.Elements(list) {
		arg, _ := provider.Parse(raw)
		path, ok := parsePath(arg.Str("jsonPath"))
		value := valueOf(arg)
		if !ok || value == nil {
			c.bad = true
			a.Out.Custom("partial_arg", provider.Fields{{Name: "partialArg", Value: raw}})
			continue
		}
		text, ok := c.args.set(path, value, string(arg.Get("willContinue")) == "true")
		if !ok {
			a.Out.Custom("partial_arg", arg)
		}
		c.say(text, ok)
	}
}

// valueOf returns the value of a piece, nil when it has none.
func valueOf(arg provider.Fields) json.RawMessage {
	for _, f := range arg {
		switch {
		case f.Name == "stringValue" && provider.IsString(f.Value),
			f.Name == "boolValue" && (string(f.Value) == "true" || string(f.Value) == "false"),
			f.Name == "numberValue" && (f.Value[0] == '-' || f.Value[0] >= '0' && f.Value[0] <= '9'):
			return f.Value
		case f.Name == "numberValue" && provider.IsString(f.Value): // "NaN" and its like, which JSON cannot write
			return f.Value
		case f.Name == "nullValue":
			return json.RawMessage("null")
		}
	}
	return nil
}

func (c *call) say(text []byte, ok bool) {
	if !ok {
		c.bad = true
	}
	if len(text) > 0 {
		c.b.Text(provider.Enquote(escape(text)))
	}
}

// end ends the call. finished is false when the provider did not end it.
func (c *call) end(a *answer, finished bool) {
	a.call = nil
	switch {
	case !finished || c.bad:
		c.b.End(false)
		return
	case c.args.disordered:
		c.b.End(false)
		again := a.beginCall(c.b.Call, c.b.Tool)
		again.Input = c.args.encode()
		again.End(true)
	default:
		c.say(c.args.finish(), true)
		c.b.End(true)
	}
	a.calls = true
}

// escape writes JSON text as the inside of a JSON string. Its own strings have no bare control
// characters; between its tokens there may be tabs.
func escape(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/4)
	for _, c := range text {
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, c)
		}
	}
	return out
}
