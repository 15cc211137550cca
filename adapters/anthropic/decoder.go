package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// Provider is the value of "provider" in message.start.
const Provider = "anthropic"

// NewDecoder returns a decoder for one response body, which may hold several messages.
func NewDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine {
		return &machine{Assembly: provider.Assembly{Out: out}}
	})
}

// machine is what the provider's events mean.
type machine struct {
	provider.Assembly
	id     string // of the message, as the provider has it; also behind its end
	over   *provider.Message
	blocks provider.Register[provider.Block]
}

// Close ends a message that the provider did not end.
func (d *machine) Close() { d.abandon("the provider's stream ended before the message did") }

// Frame takes one event of the provider.
func (d *machine) Frame(name string, all provider.Fields) {
	switch typ := cmp.Or(all.Str("type"), name); typ {
	case "ping":
	case "message_start":
		if m := all.Object("message"); !d.same(m) {
			d.startMessage(m)
		}
	case "message": // a response that was not streamed
		d.whole(all)
	case "content_block_start":
		d.startBlock(all)
	case "content_block_delta":
		d.delta(all)
	case "content_block_stop":
		d.stop(typ, all)
	case "message_delta":
		d.messageDelta(all)
	case "message_stop":
		if d.Msg == nil {
			d.Out.Custom(typ, all)
			return
		}
		d.endMessage()
	case "error":
		d.fail(all)
	default:
		d.Out.Custom(typ, all)
	}
}

// fail takes an error event (overloaded, time-out) that the provider sends in place of the rest.
func (d *machine) fail(all provider.Fields) {
	d.Out.Custom("error", all)
	if d.Msg != nil {
		d.Msg.Fault = provider.OrNull(bytes.Clone(all.Get("error")))
		d.abandon("")
	}
}

func (d *machine) abandon(why string) {
	if d.Msg != nil {
		d.Msg.Abandon(why)
		d.Msg = nil
	}
}

// same reports whether a message is the one that is open.
func (d *machine) same(m provider.Fields) bool {
	return d.Msg != nil && d.id != "" && m.Str("id") == d.id
}

// startMessage opens a message. Blocks that came whole with it are emitted at once.
func (d *machine) startMessage(m provider.Fields) {
	d.abandon("another message began")
	*d = machine{Assembly: provider.Assembly{Out: d.Out}, id: m.Str("id")}
	d.Msg = d.Out.Start(d.id, m.Str("role"), m.Get("model"), m.Object("usage"))
	d.members(m)
	for i, raw := range provider.Elements(m.Get("content")) {
		if provider.IsObject(raw) {
			d.beginBlock(i, raw).End(true)
		}
	}
}

// whole takes a message as a whole: one that was not streamed, or the streamed one once more.
func (d *machine) whole(m provider.Fields) {
	if d.Msg == nil && d.over != nil && d.id != "" && m.Str("id") == d.id {
		d.Msg = d.over
		d.repeat(m)
		d.Msg = nil
		return
	}
	if d.same(m) {
		d.repeat(m)
		d.members(m)
		d.Msg.CountMore(m.Object("usage"))
	} else {
		d.startMessage(m)
	}
	d.endMessage()
}

// repeat takes the content of a message that was emitted. What is new in it is emitted while the message is open.
func (d *machine) repeat(m provider.Fields) {
	d.Step(true)
	for i, raw := range provider.Elements(m.Get("content")) {
		b, _ := provider.Parse(raw)
		kind := b.Str("type")
		member, call := b.Get(kind), b.Str("id")
		same := func(old *provider.Block) bool {
			return old.Base.Str("type") == kind && (call == "" || old.Call == provider.ShortenID(call))
		}
		known := slices.ContainsFunc(d.Msg.Blocks, same)
		switch {
		case !known && d.over == nil:
			d.beginBlock(i, raw).End(true)
		case !known:
			d.Out.Beside("message", provider.Fields{{Name: "content", Value: raw}})
		case kind == "text":
			d.Rest("text", member)
		case kind == "thinking":
			d.Rest("reasoning", member)
		}
	}
}

// members keeps what a message has beside its content.
func (d *machine) members(m provider.Fields) {
	for _, f := range m.Without("id", "type", "role", "model", "content", "usage") {
		d.keep(f)
	}
}

// keep stores a member of the message for its end.
func (d *machine) keep(f provider.Field) {
	if f.Name != "stop_reason" {
		d.Msg.Keep(f)
		return
	}
	if jsonscan.IsString(f.Value) || provider.IsNull(f.Value) && d.Msg.Stop == nil {
		d.Msg.Stop = bytes.Clone(f.Value)
	}
}

func (d *machine) messageDelta(all provider.Fields) {
	if d.Msg == nil {
		d.Out.Custom("message_delta", all)
		return
	}
	d.Msg.CountMore(all.Object("usage"))
	for _, f := range append(all.Object("delta"), all.Without("type", "delta", "usage")...) {
		d.keep(f)
	}
}

// endMessage ends the message, and the blocks that the provider left open. The input of a call must be whole then.
func (d *machine) endMessage() {
	called := string(d.Msg.Stop) == `"tool_use"`
	for _, b := range slices.Clone(d.Msg.Blocks) {
		b.End(b.IsStopped() || !b.ToolUse || b.Whole() || called && b.Len() == 0)
	}
	d.Msg.End(nil)
	d.Msg, d.over = nil, d.Msg
}

// find returns the block of an index, else the newest, that fits; nil when none does.
func (d *machine) find(index int, fits func(*provider.Block) bool) *provider.Block {
	if b := d.blocks.Find("", index, fits); b != nil {
		return b
	}
	return d.blocks.Newest(fits)
}

// startBlock begins a block. That ends the one before, unless it is a call whose input may still come.
func (d *machine) startBlock(all provider.Fields) {
	index, source := all.Index("index"), all.Get("content_block")
	if !provider.IsObject(source) {
		source = json.RawMessage("{}")
	}
	base, _ := provider.Parse(source)
	old := d.find(index, (*provider.Block).Open)
	switch {
	case old == nil:
	case !old.IsStopped() && old.Len() == 0 && bytes.Equal(old.Base.Encode(), base.Encode()): // sent twice
		return
	case !old.ToolUse || old.Whole() || d.blocks.Find("", index, (*provider.Block).Open) == old:
		old.Stop()
	}
	d.beginBlock(index, source)
}

// stop takes the end of a block.
func (d *machine) stop(typ string, all provider.Fields) {
	if b := d.find(all.Index("index"), func(b *provider.Block) bool { return b.Open() && !b.IsStopped() }); b != nil {
		b.Stop()
	} else if d.Msg == nil || len(d.Msg.Blocks) == 0 {
		d.Out.Custom(typ, all)
	}
}
