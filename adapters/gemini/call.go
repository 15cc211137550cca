package gemini

import (
	"cmp"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
)

// streamedCall is one whose arguments stream.
type streamedCall struct {
	*provider.Call
	args arguments
	bad  bool   // a piece has no place
	path []step // the newest; its room is used again
}

// function emits a functionCall part: a whole call, or a piece of one whose arguments stream.
func (a *answer) function(fc provider.Fields, sig json.RawMessage) {
	if fc.Without("id", "name", "args", "partialArgs", "willContinue") != nil {
		a.Out.Custom("function_call", fc)
	}
	more := string(fc.Get("willContinue")) == "true"
	id, name := fc.Str("id"), fc.Str("name")
	goesOn := a.call != nil && (id != "" && provider.ShortenID(id) == a.call.Block.Call || id == "" && name == "")
	if !goesOn {
		if len(fc) == 0 {
			a.Out.Custom("function_call", fc) // the end of a call that never began
			return
		}
		a.endCall(false)
		p := provider.Piece{ID: id, Name: cmp.Or(name, "unnamed"), Kind: kindCall, Place: -1, Begins: true}
		whole := !more && fc.Get("partialArgs") == nil
		if whole {
			p.Input = fc.Get("args")
		}
		k := a.Call(p)
		if k == nil { // there are too many
			a.Out.Custom("function_call", fc)
		}
		if k == nil || !k.Open() { // it was sent twice
			return
		}
		sign(k.Block, sig)
		if whole {
			k.End(true)
			a.called = true
			return
		}
		a.call = &streamedCall{Call: k}
	}
	sign(a.call.Block, sig)
	a.call.feed(a, fc)
	if !more {
		a.endCall(true)
	}
}

// feed takes the arguments that a piece brings.
func (c *streamedCall) feed(a *answer, fc provider.Fields) {
	for _, f := range fc.Object("args") {
		c.say(c.args.set([]step{{name: f.Name, in: '{'}}, f.Value, false))
	}
	list := fc.Get("partialArgs")
	if provider.HasValue(list) && provider.Elements(list) == nil {
		c.bad = true
		a.Out.Custom("partial_arg", provider.Fields{{Name: "partialArgs", Value: list}})
	}
	for _, raw := range provider.Elements(list) {
		arg, _ := provider.Parse(raw)
		path, ok := parsePath(c.path[:0], arg.Str("jsonPath"))
		c.path = path
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

// firsts are the members of a piece that have its value, and what one may begin with. A number in quotes is "NaN" or
// its like, which JSON cannot write.
var firsts = map[string]string{
	"stringValue": `"`, "boolValue": "tf", "numberValue": `"-0123456789`,
}

// valueOf returns the value of a piece, nil when it has none.
func valueOf(arg provider.Fields) json.RawMessage {
	for _, f := range arg {
		switch {
		case f.Name == "nullValue":
			return json.RawMessage("null")
		case strings.IndexByte(firsts[f.Name], f.Value[0]) >= 0:
			return f.Value
		}
	}
	return nil
}

func (c *streamedCall) say(text []byte, ok bool) {
	c.bad = c.bad || !ok
	if len(text) > 0 {
		c.Text(provider.Quote(string(text)))
	}
}

// endCall ends the call whose arguments stream. finished is false when the provider did not end it.
func (a *answer) endCall(finished bool) {
	c := a.call
	if c == nil {
		return
	}
	a.call = nil
	finished = finished && !c.bad
	if finished && !c.args.disordered && len(c.args.root.kids) > 0 {
		c.say(c.args.leave(0), true)
	}
	c.End(finished && !c.args.disordered)
	if finished && c.args.disordered {
		whole := provider.Piece{ID: c.Block.Call, Name: c.Tool, Kind: kindCall, Place: -1, Begins: true}
		whole.Input = c.args.root.encode(nil)
		if again := a.Call(whole); again != nil {
			again.End(true)
		}
	}
	a.called = a.called || finished
}
