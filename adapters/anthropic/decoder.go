package anthropic

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
)

// Provider is the value of "provider" in message.start.
const Provider = "anthropic"

// NewDecoder returns a decoder for one response body, which may hold several messages.
func NewDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine { return &machine{out: out} })
}

// machine is what the provider's events mean.
type machine struct {
	out *provider.Writer
	msg *provider.Message
}

// Done: some proxies end every stream so.
func (d *machine) Done() {}

// Close ends a message that the provider did not end.
func (d *machine) Close() { d.abandon("the provider's stream ended before the message did") }

// Frame takes one event of the provider.
func (d *machine) Frame(name string, all provider.Fields) {
	typ := all.Str("type")
	if typ == "" {
		typ = name
	}
	switch typ {
	case "ping":
	case "message_start":
		d.startMessage(all.Object("message"))
	case "message": // a response that was not streamed
		d.startMessage(all)
		d.endMessage()
	case "content_block_start":
		d.startBlock(all)
	case "content_block_delta":
		d.delta(all)
	case "content_block_stop":
		if b := d.openBlock(all.Index()); b != nil {
			d.endBlock(b)
		} else {
			d.out.Custom(typ, all)
		}
	case "message_delta":
		d.messageDelta(all)
	case "message_stop":
		if d.msg == nil {
			d.out.Custom(typ, all)
			return
		}
		d.endMessage()
	case "error":
		d.fail(all)
	default:
		d.out.Custom(typ, all)
	}
}

// fail takes an error event (overloaded, time-out) that the provider sends in place of the rest.
func (d *machine) fail(all provider.Fields) {
	d.out.Custom("error", all)
	if d.msg != nil {
		d.msg.Fail(bytes.Clone(all.Get("error")))
		d.msg = nil
	}
}

func (d *machine) abandon(why string) {
	if d.msg != nil {
		d.msg.Abandon(why)
		d.msg = nil
	}
}

// startMessage opens a message. Blocks that came whole with it are emitted at once.
func (d *machine) startMessage(m provider.Fields) {
	d.abandon("another message began")
	var usage provider.Fields
	if provider.IsObject(m.Get("usage")) {
		usage = append(provider.Fields{}, m.Object("usage")...)
	}
	d.msg = d.out.Start(m.Str("id"), m.Str("role"), m.Get("model"), usage)
	for _, f := range m {
		switch f.Name {
		case "id", "type", "role", "model", "content", "usage":
		default:
			d.keep(f)
		}
	}
	for i, raw := range provider.Elements(m.Get("content")) {
		if provider.IsObject(raw) {
			d.endBlock(d.beginBlock(i, raw))
		}
	}
}

// keep stores a member of the message for its end.
func (d *machine) keep(f provider.Field) {
	if f.Name != "stop_reason" {
		d.msg.Keep(f)
		return
	}
	if provider.IsString(f.Value) || provider.IsNull(f.Value) && d.msg.Stop == nil {
		d.msg.Stop = bytes.Clone(f.Value)
	}
}

func (d *machine) messageDelta(all provider.Fields) {
	if d.msg == nil {
		d.out.Custom("message_delta", all)
		return
	}
	d.msg.Usage = d.msg.Usage.Overlay(all.Object("usage"))
	for _, f := range all.Object("delta") {
		d.keep(f)
	}
	for _, f := range all {
		if f.Name != "type" && f.Name != "delta" && f.Name != "usage" {
			d.keep(f)
		}
	}
}

func (d *machine) endMessage() {
	d.msg.End(nil)
	d.msg = nil
}

// openMessage returns the open message, or begins one that the provider did not announce.
func (d *machine) openMessage() *provider.Message {
	if d.msg == nil {
		d.startMessage(nil)
	}
	return d.msg
}

// openBlock returns the block at index if it has begun and not ended.
func (d *machine) openBlock(index int) *provider.Block {
	if d.msg == nil {
		return nil
	}
	if b := d.msg.At(index); b != nil && b.Open() {
		return b
	}
	return nil
}

func (d *machine) startBlock(all provider.Fields) {
	m := d.openMessage()
	index := all.Index()
	if index < 0 {
		index = len(m.Blocks)
	}
	if b := d.openBlock(index); b != nil {
		b.End(false)
	}
	d.beginBlock(index, all.Get("content_block"))
}

func isObjectOrEmpty(v json.RawMessage) json.RawMessage {
	if !provider.IsObject(v) {
		return json.RawMessage("{}")
	}
	return bytes.Clone(v)
}
