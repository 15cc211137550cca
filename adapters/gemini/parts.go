package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// kinds are the members of parts that are objects, and what they mean.
var kinds = map[string]func(a *answer, inner provider.Fields, sig json.RawMessage){
	kindCall: (*answer).function, kindCode: (*answer).addCode, kindResult: (*answer).addResult,
	"inlineData": (*answer).data,
}

// The API's names of calls, and of what it runs itself.
const (
	kindCall   = "functionCall"
	kindCode   = "executableCode"
	kindResult = "codeExecutionResult"
)

// part emits one part of the content. Kinds that are not known stand as blocks of their own name.
func (a *answer) part(raw json.RawMessage) {
	p, ok := provider.Parse(raw)
	if !ok || len(p) == 0 {
		a.Out.Custom("part", provider.Fields{{Name: "part", Value: raw}})
		return
	}
	sig := bytes.Clone(p.Get("thoughtSignature"))
	if !jsonscan.IsString(sig) || !provider.HasValue(sig) {
		sig = nil
	}
	kind := "text"
	for _, f := range p {
		if kinds[f.Name] != nil && provider.IsObject(f.Value) {
			kind = f.Name
		}
	}
	if kind == "text" && !jsonscan.IsString(p.Get("text")) {
		a.other(p, sig)
		return
	}
	if p.Without(kind, "thought", "thoughtSignature") != nil {
		a.Out.Custom("part", p) // members that nothing below looks at
	}
	if kind == "text" {
		a.text(p.Get("text"), string(p.Get("thought")) == "true", sig)
	} else {
		kinds[kind](a, p.Object(kind), sig)
	}
}

// text goes on with the open block, if it is of the kind, or begins one.
func (a *answer) text(value json.RawMessage, thought bool, sig json.RawMessage) {
	kind := "text"
	if thought {
		kind = "reasoning"
	}
	if sig == nil {
		a.Say(kind, value)
		return
	}
	if a.Run != nil && a.Run.Late != nil {
		a.StopRun()
	}
	b := a.Open(kind)
	b.Text(value)
	sign(b, sig)
}

// sign sets the signature of a block.
func sign(b *provider.Block, sig json.RawMessage) {
	if sig != nil {
		b.Late = b.Late.Set("signature", sig)
	}
}

// whole emits a block that came at once.
func (a *answer) whole(b *provider.Block, sig json.RawMessage) {
	a.StopRun()
	b.Index = a.Next()
	b.Raw = b.Base.Encode()
	a.Msg.Begin(b)
	sign(b, sig)
	b.End(true)
}

// other emits a part of an unknown kind.
func (a *answer) other(p provider.Fields, sig json.RawMessage) {
	whole := p
	if sig != nil {
		p = p.Without("thoughtSignature")
	}
	kind := ""
	rest := p.Without("thoughtSignature", "type", "signature", "thought")
	if len(rest) > 0 {
		kind = provider.ShortenID(rest[0].Name)
	}
	if provider.IsReserved(kind) {
		kind, p = "part", provider.Fields{{Name: "part", Value: whole.Encode()}}
	}
	a.whole(&provider.Block{Kind: kind, Base: membersOf(kind, p)}, sig)
}

// membersOf returns an object of the API as a block: its members, with the kind as type.
func membersOf(kind string, inner provider.Fields) provider.Fields {
	base := inner.Copy()
	for i := range base {
		switch base[i].Name {
		case "type", "signature": // a block's own
			base[i].Name = "part_" + base[i].Name
		}
	}
	return append(provider.Fields{{Name: "type", Value: provider.Quote(kind)}}, base...)
}

// addCode emits code that the API runs itself: a block, and a call that has begun.
func (a *answer) addCode(c provider.Fields, sig json.RawMessage) {
	b := &provider.Block{Kind: kindCode, Base: membersOf(kindCode, c)}
	a.whole(b, sig)
	a.code = cmp.Or(provider.ShortenID(c.Str("id")), b.InventID())
	a.Out.Add(schema.TypeToolStart, provider.Fields{
		{Name: "call_id", Value: provider.Quote(a.code)}, {Name: "tool", Value: provider.Quote("code_execution")},
		{Name: "input", Value: c.Without("id").Encode()},
		{Name: "index", Value: provider.Number(b.Index)}, {Name: "kind", Value: provider.Quote(kindCode)},
	})
}

// addResult emits the result of the code.
func (a *answer) addResult(c provider.Fields, sig json.RawMessage) {
	call := cmp.Or(provider.ShortenID(c.Str("id")), a.code)
	a.whole(&provider.Block{Kind: kindResult, Base: membersOf(kindResult, c), Answers: call}, sig)
	a.Out.Result(call, c.Str("outcome") != "OUTCOME_OK", c.Get("output"), kindResult)
	if call == a.code {
		a.code = ""
	}
}

// maxDataContent bounds the data in the content of message.end, in bytes of base64.
const maxDataContent = 64 << 10

// data emits inline data. Sound comes in pieces, which go on in one block; anything else is whole.
func (a *answer) data(c provider.Fields, sig json.RawMessage) {
	media, data := c.Str("mimeType"), c.Get("data")
	if !jsonscan.IsString(data) {
		a.other(provider.Fields{{Name: "inlineData", Value: c.Encode()}}, sig)
		return
	}
	sound, b := strings.HasPrefix(media, "audio/"), a.Run
	goesOn := sound && b != nil && b.Kind == "data" && b.Base.Str("media_type") == provider.ShortenID(media)
	if !goesOn || sig != nil && b.Late != nil {
		a.StopRun()
		rest := c.Without("mimeType", "data", "type", "media_type", "bytes", "signature").Copy()
		b = a.Msg.Begin(provider.DataBlock(a.Next(), media, rest))
		a.Run = b
	}
	sign(b, sig)
	first := b.Len() == 0
	b.Data(data)
	if first && len(data) <= maxDataContent {
		b.Base = b.Base.Set("data", bytes.Clone(data))
	} else { // pieces of base64 are not joined
		b.Base = b.Base.Without("data").Set("bytes", provider.Number(b.Len()))
	}
	if !sound {
		b.End(true)
		a.Run = nil
	}
}
