package gemini

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// part emits one part of the content. Kinds that are not known stand as blocks of their own name.
func (a *answer) part(raw json.RawMessage) {
	p, ok := provider.Parse(raw)
	if !ok || len(p) == 0 {
		a.Out.Custom("part", provider.Fields{{Name: "part", Value: raw}})
		return
	}
	sig := p.Get("thoughtSignature")
	if sig = bytes.Clone(sig); !provider.IsString(sig) || len(sig) <= len(`""`) {
		sig = nil
	}
	kind := "text"
	for _, known := range []string{"functionCall", "executableCode", "codeExecutionResult", "inlineData"} {
		if provider.IsObject(p.Get(known)) {
			kind = known
		}
	}
	if kind == "text" && !provider.IsString(p.Get("text")) {
		a.other(p, sig)
		return
	}
	for _, f := range p {
		if f.Name != kind && f.Name != "thought" && f.Name != "thoughtSignature" {
			a.Out.Custom("part", p) // members that nothing below looks at
			break
		}
	}
	inner := p.Object(kind)
	switch kind {
	case "text":
		a.text(p.Get("text"), string(p.Get("thought")) == "true", sig)
	case "functionCall":
		a.function(inner, sig)
	case "executableCode":
		a.executable(inner, sig)
	case "codeExecutionResult":
		a.executed(inner, sig)
	case "inlineData":
		a.data(inner, sig)
	}
}

// text goes on with the open block, if it is of the kind, or begins one.
func (a *answer) text(value json.RawMessage, thought bool, sig json.RawMessage) {
	if len(provider.Inner(value)) == 0 && sig == nil {
		return
	}
	kind := "text"
	if thought {
		kind = "reasoning"
	}
	if a.Run == nil || a.Run.Kind != kind || sig != nil && a.Run.Late != nil {
		a.close()
	}
	if sig == nil {
		a.Say(kind, value)
		return
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

// close ends the blocks that another kind of part ends.
func (a *answer) close() {
	a.StopRun()
	a.media.end(true)
	a.media = nil
}

// whole emits a block that came at once.
func (a *answer) whole(b *provider.Block, sig json.RawMessage) {
	a.close()
	b.Index = a.Next()
	b.Raw = b.Base.Encode()
	a.Msg.Begin(b)
	sign(b, sig)
	b.End(true)
}

// other emits a part of an unknown kind.
func (a *answer) other(p provider.Fields, sig json.RawMessage) {
	kind := ""
	base := provider.Fields{{Name: "type"}}
	for _, f := range p {
		switch f.Name {
		case "thoughtSignature":
			if sig != nil {
				continue
			}
		case "type":
			f.Name = "part_type"
		case "signature":
			f.Name = "part_signature"
		case "thought":
		default:
			if kind == "" {
				kind = provider.Bounded(f.Name)
			}
		}
		base = append(base, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
	}
	if provider.Reserved(kind) {
		kind = "part"
		base = append(base[:1:1], provider.Field{Name: kind, Value: p.Encode()})
	}
	base[0].Value = provider.Quote(kind)
	a.whole(&provider.Block{Kind: kind, Base: base}, sig)
}

// typed returns an object of the API as a block: its members, with the kind as type.
func typed(kind string, inner provider.Fields) provider.Fields {
	base := provider.Fields{{Name: "type", Value: provider.Quote(kind)}}
	for _, f := range inner {
		if f.Name == "type" {
			f.Name = "part_type"
		}
		base = append(base, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
	}
	return base
}

// executable emits code that the API runs itself: a block, and a call that has begun.
func (a *answer) executable(c provider.Fields, sig json.RawMessage) {
	const kind = "executableCode"
	b := &provider.Block{Kind: kind, Base: typed(kind, c)}
	a.whole(b, sig)
	call := a.callID(c.Str("id"), b.Index)
	input := provider.Fields{}
	for _, f := range c {
		if f.Name != "id" {
			input = append(input, f)
		}
	}
	a.Out.Add(schema.TypeToolStart, provider.Fields{
		{Name: "call_id", Value: provider.Quote(call)}, {Name: "tool", Value: provider.Quote("code_execution")}, {Name: "input", Value: input.Encode()},
		{Name: "index", Value: provider.Number(b.Index)}, {Name: "kind", Value: provider.Quote(kind)},
	})
	a.code = call
}

// executed emits the result of the code.
func (a *answer) executed(c provider.Fields, sig json.RawMessage) {
	const kind = "codeExecutionResult"
	call := provider.Bounded(c.Str("id"))
	if call == "" {
		call = a.code
	}
	a.whole(&provider.Block{Kind: kind, Base: typed(kind, c), Answers: call}, sig)
	a.Out.Result(call, c.Str("outcome") != "OUTCOME_OK", c.Get("output"), kind)
	if call == a.code {
		a.code = ""
	}
}

// medium is data that is being emitted.
type medium struct {
	b     *provider.Block
	media string
	bytes int // of base64 so far
}

const (
	maxPiece       = 256 << 10 // bytes of base64 in one data.delta; whole quanta of four
	maxDataContent = 64 << 10  // bytes of base64 in the content of message.end
)

// data emits inline data. Sound comes in pieces, which go on in one block; anything else is whole.
func (a *answer) data(c provider.Fields, sig json.RawMessage) {
	media, data := c.Str("mimeType"), c.Get("data")
	if !provider.IsString(data) {
		a.other(provider.Fields{{Name: "inlineData", Value: c.Encode()}}, sig)
		return
	}
	if !strings.HasPrefix(media, "audio/") || a.media == nil || a.media.media != media || sig != nil && a.media.b.Late != nil {
		a.close()
		base := provider.Fields{{Name: "type", Value: provider.Quote("data")}, {Name: "media_type", Value: provider.Quote(provider.Bounded(media))}}
		for _, f := range c {
			switch f.Name {
			case "mimeType", "data", "type", "media_type", "bytes", "signature":
			default:
				base = append(base, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
			}
		}
		a.media = &medium{media: media, b: a.Msg.Begin(&provider.Block{Index: a.Next(), Kind: "data", Base: base})}
	}
	sign(a.media.b, sig)
	a.media.add(a, data)
	if !strings.HasPrefix(media, "audio/") {
		a.close()
	}
}

func (d *medium) add(a *answer, data json.RawMessage) {
	name := provider.Quote(provider.Bounded(d.media))
	say := func(piece json.RawMessage) {
		a.Out.Add(schema.TypeDataDelta, provider.Fields{{Name: "media_type", Value: name}, {Name: "data", Value: piece}, {Name: "index", Value: provider.Number(d.b.Index)}})
	}
	first := d.bytes == 0
	if len(data) <= maxPiece {
		d.bytes += len(data) - len(`""`)
		say(data)
	} else {
		rest := provider.Unescape(provider.Inner(data)) // a character of base64 may be written as an escape
		d.bytes += len(rest)
		for ; len(rest) > maxPiece; rest = rest[maxPiece:] {
			say(provider.Quote(string(rest[:maxPiece])))
		}
		say(provider.Quote(string(rest)))
	}
	if first && len(data) <= maxDataContent {
		d.b.Base = d.b.Base.Set("data", bytes.Clone(data))
		return
	}
	if d.b.Base.Get("data") != nil { // pieces of base64 are not joined
		base := provider.Fields{}
		for _, f := range d.b.Base {
			if f.Name != "data" {
				base = append(base, f)
			}
		}
		d.b.Base = base
	}
	d.b.Base = d.b.Base.Set("bytes", provider.Number(d.bytes))
}

func (d *medium) end(finished bool) {
	if d != nil {
		d.b.End(finished)
	}
}
