package openai

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// maxMembers bounds the members of an object that are taken one by one: each is looked for among the
// others.
const maxMembers = 128

// keep stores a member for the end of the message. A value that it replaces is emitted now, and so is one
// that has no room there.
func keep(out *provider.Writer, m *provider.Message, f provider.Field) {
	if !provider.Filled(f.Value) {
		return
	}
	old := m.Rest.Get(f.Name)
	if bytes.Equal(old, f.Value) {
		return
	}
	if old != nil {
		out.Custom("replaced", provider.Fields{{Name: f.Name, Value: old}})
	}
	if old != nil || len(m.Rest) < maxMembers {
		m.Keep(f)
	}
	if !bytes.Equal(m.Rest.Get(f.Name), f.Value) {
		out.Custom("member", provider.Fields{f})
	}
}

// base64Text returns the inside of a string of base64; nil when it is none.
func base64Text(v json.RawMessage) []byte {
	if !provider.IsString(v) {
		return nil
	}
	text := provider.Unescape(provider.Inner(v))
	for i, c := range text {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=' && i >= len(text)-2:
		default:
			return nil
		}
	}
	if len(text) == 0 || len(text)%4 != 0 {
		return nil
	}
	return text
}

// maxData bounds the data of one event, in bytes of base64. It is a multiple of 4: every piece can be
// decoded by itself.
const maxData = 256 << 10

// dataBlock begins a block of data.
func dataBlock(m *provider.Message, index int, media, name string) *provider.Block {
	return m.Begin(&provider.Block{Index: index, Kind: "data", Base: provider.Fields{
		{Name: "type", Value: provider.Quote("data")}, {Name: "media_type", Value: provider.Quote(media)}, {Name: "name", Value: provider.Quote(name)},
	}})
}

// emitData emits a piece of data, passed as base64.
func emitData(out *provider.Writer, b *provider.Block, media, name string, text []byte) {
	for len(text) > 0 {
		n := min(len(text), maxData)
		out.Add(schema.TypeDataDelta, provider.Fields{
			{Name: "media_type", Value: provider.Quote(media)}, {Name: "data", Value: provider.Enquote(text[:n])},
			{Name: "index", Value: provider.Number(b.Index)}, {Name: "name", Value: provider.Quote(name)},
		})
		text = text[n:]
	}
}
