package openai

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
)

// choice is one choice of a completion while it is put together.
type choice struct {
	provider.Assembly
	live     bool // its events are emitted
	audio    *provider.Block
	details  []provider.Fields // of reasoning_details, without their text
	refused  bool              // the model has refused and explained why
	finished bool
}

func newChoice(out *provider.Writer, msg *provider.Message, live bool) *choice {
	c := &choice{live: live}
	c.Out, c.Msg, c.Make = out, msg, c.block
	return c
}

// rows are the members of a delta that are text.
var rows = []struct{ member, kind string }{{"content", "text"}, {"refusal", "refusal"}}

// take takes one piece of the choice: all is the choice, content its delta or message.
func (c *choice) take(all, content provider.Fields, whole bool) {
	reason := all.Str("finish_reason")
	if reason == "null" {
		reason = ""
	}
	again := reason != "" && !whole && c.Heard("text", content.Get("content"))
	c.Step(whole || again)
	before := c.Said()
	if v := all.Get("text"); content == nil && provider.IsString(v) { // legacy completions
		c.Say("text", v)
	}
	if v := all.Get("logprobs"); provider.Filled(v) && c.live {
		c.Out.Beside("logprobs", provider.Fields{{Name: "index", Value: provider.Number(0)}, {Name: "logprobs", Value: v}})
	}
	if again {
		c.Out.Beside("delta", content)
	}
	c.reasoning(content)
	c.content(content.Get("content"))
	if v := content.Get("refusal"); provider.IsString(v) {
		c.Say("refusal", v)
		c.refused = c.refused || provider.Filled(v)
	}
	if a := content.Object("audio"); a != nil {
		c.sound(a, whole)
	}
	c.toolCalls(content)
	c.unknown(content)
	c.members(all)
	if reason != "" {
		c.finish(reason, all.Get("finish_reason"), c.Said() == before)
	}
}

// members takes what a choice has beside its content.
func (c *choice) members(all provider.Fields) {
	if len(all) > maxMembers {
		c.Out.Custom("choice", all)
		return
	}
	for _, f := range all {
		switch f.Name {
		case "index", "delta", "message", "text", "logprobs", "finish_reason", "error":
		case "usage":
			c.Msg.Count(all.Object("usage"))
		default:
			keep(c.Out, c.Msg, f)
		}
	}
}

// block makes a block of text, thought or refusal.
func (c *choice) block(index int, kind string) *provider.Block {
	b := plainBlock(index, kind)
	if kind == "reasoning" {
		b.Ending = func() { c.endThought(b) }
	}
	return b
}

// plainBlock makes a block that holds text of some kind.
func plainBlock(index int, kind string) *provider.Block {
	b := provider.TextBlock(index, kind)
	if kind == "audio_transcript" {
		b.Field, b.Base[1].Name = "transcript", "transcript"
	}
	return b
}

func (c *choice) endThought(b *provider.Block) {
	if c.details == nil {
		return
	}
	list := make([]json.RawMessage, len(c.details))
	for i, d := range c.details {
		list[i] = d.Encode()
	}
	b.Late = b.Late.Set("reasoning_details", provider.List(list))
	c.details = nil
}

// content takes text, or a list of parts, as some services write it.
func (c *choice) content(v json.RawMessage) {
	if provider.IsString(v) {
		c.Say("text", v)
		return
	}
	for _, raw := range provider.Elements(v) {
		part, _ := provider.Parse(raw)
		text, inner := part.Get("text"), provider.Elements(part.Get("thinking"))
		switch {
		case part.Str("type") == "text" && provider.IsString(text):
			c.Say("text", text)
		case part.Str("type") == "thinking" && provider.IsString(part.Get("thinking")):
			c.Say("reasoning", part.Get("thinking"))
		case part.Str("type") == "thinking" && len(inner) > 0:
			for _, raw := range inner {
				if p, _ := provider.Parse(raw); provider.IsString(p.Get("text")) {
					c.Say("reasoning", p.Get("text"))
				} else {
					c.Out.Custom("delta", provider.Fields{{Name: "thinking", Value: raw}})
				}
			}
		default:
			c.Out.Custom("delta", provider.Fields{{Name: "content", Value: raw}})
		}
	}
}

// reasoning takes a thought in any of its spellings. Services that use two send the same in both.
func (c *choice) reasoning(content provider.Fields) {
	var thought json.RawMessage
	for _, name := range []string{"reasoning_content", "reasoning"} {
		v := content.Get(name)
		switch {
		case !provider.Filled(v):
		case !provider.IsString(v) || thought != nil && !bytes.Equal(v, thought):
			c.Out.Custom("delta", provider.Fields{{Name: name, Value: v}})
		case thought == nil:
			thought = v
			c.Say("reasoning", v)
		}
	}
	for _, raw := range provider.Elements(content.Get("reasoning_details")) {
		c.detail(raw, thought != nil)
	}
}

// maxDetails bounds the details that are kept for the end of a thought.
const maxDetails = 256

// detail takes an element of reasoning_details. Its text is the thought, which may have been emitted; what
// else it has (signature, format, encrypted data) must go back to the service one day.
func (c *choice) detail(raw json.RawMessage, emitted bool) {
	all, ok := provider.Parse(raw)
	if !ok || len(all) > maxMembers || len(c.details) >= maxDetails {
		c.Out.Custom("delta", provider.Fields{{Name: "reasoning_details", Value: raw}})
		return
	}
	c.Open("reasoning")
	var rest provider.Fields
	for _, f := range all {
		if (f.Name == "text" || f.Name == "summary") && provider.IsString(f.Value) {
			if !emitted {
				c.Say("reasoning", f.Value)
			}
		} else if !provider.IsNull(f.Value) {
			rest = append(rest, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
		}
	}
	for i, d := range c.details {
		if d.Str("type") == rest.Str("type") && d.Index() == rest.Index() && agrees(d, rest) {
			c.details[i] = d.Overlay(rest)
			return
		}
	}
	c.details = append(c.details, rest)
}

// agrees reports whether no member of b has another value in a.
func agrees(a, b provider.Fields) bool {
	for _, f := range b {
		if v := a.Get(f.Name); v != nil && !bytes.Equal(v, f.Value) {
			return false
		}
	}
	return true
}

// sound takes audio and its transcript. The stream does not name the format: what is streamed is
// PCM, for there is no other.
func (c *choice) sound(a provider.Fields, whole bool) {
	if v := a.Get("transcript"); provider.IsString(v) {
		c.Say("audio_transcript", v)
	}
	media := "audio/pcm"
	if whole {
		media = "application/octet-stream"
	}
	rest := provider.Fields{}
	for _, f := range a {
		switch {
		case f.Name == "transcript" && provider.IsString(f.Value) || !provider.Filled(f.Value):
		case f.Name == "data" && base64Text(f.Value) != nil:
			if c.audio == nil || !c.audio.Open() {
				c.audio = dataBlock(c.Msg, c.Next(), media, "audio")
			}
			emitData(c.Out, c.audio, media, "audio", base64Text(f.Value))
		default:
			rest = append(rest, f)
		}
	}
	if len(rest) > 0 {
		c.Out.Custom("delta", provider.Fields{{Name: "audio", Value: rest.Encode()}})
	}
}

// unknown keeps the members of a delta that are none of those above.
func (c *choice) unknown(content provider.Fields) {
	var rest provider.Fields
	for _, f := range content {
		switch f.Name {
		case "role", "refusal", "content", "reasoning", "reasoning_content", "reasoning_details", "audio", "tool_calls", "function_call":
			if known(f) {
				continue
			}
		case "channel": // sent with every piece
			keep(c.Out, c.Msg, f)
			continue
		}
		if provider.Filled(f.Value) {
			rest = append(rest, f)
		}
	}
	if rest != nil {
		c.Out.Custom("delta", rest)
	}
}

// known reports whether a member has the form in which it was understood.
func known(f provider.Field) bool {
	switch f.Name {
	case "role", "refusal":
		return provider.IsString(f.Value)
	case "content":
		return provider.IsString(f.Value) || provider.Elements(f.Value) != nil
	case "reasoning_details", "tool_calls":
		return provider.Elements(f.Value) != nil
	case "audio", "function_call":
		return provider.IsObject(f.Value)
	}
	return true
}

// finish takes the reason why the choice ended. alone: its piece had nothing else. Services send a reason with every
// piece, so that nothing ends with it but what nothing follows.
func (c *choice) finish(reason string, raw json.RawMessage, alone bool) {
	c.finished = true
	if alone {
		c.Stop()
		if c.audio != nil {
			c.audio.Stop()
		}
	}
	if old := c.Msg.Rest.Get("finish_reason"); old == nil || !bytes.Equal(old, raw) {
		keep(c.Out, c.Msg, provider.Field{Name: "finish_reason", Value: raw})
	}
	c.Msg.Stop = stopReason(reason, c.Calls(), c.refused)
}

// end ends the choice's message. done: the service has said that the stream is over.
func (c *choice) end(cut string, done bool, failed json.RawMessage) {
	entire := done && failed == nil && c.Entire()
	c.Assembly.End(c.finished || entire)
	if c.audio != nil {
		c.audio.End(c.finished || entire)
	}
	switch {
	case failed != nil:
		c.Msg.Fail(failed)
	case c.finished:
		c.Msg.End(nil)
	case entire:
		if c.Calls() {
			c.Msg.Stop = provider.Quote("tool_use")
		}
		c.Msg.End(nil)
	default:
		c.Msg.Abandon(cut)
	}
}

// stopReason returns the common stop_reason for a finish reason.
func stopReason(reason string, calls, refused bool) json.RawMessage {
	switch reason {
	case "stop":
		if calls {
			return provider.Quote("tool_use")
		}
		if refused {
			return provider.Quote("refusal")
		}
		return provider.Quote("end_turn")
	case "length":
		return provider.Quote("max_tokens")
	case "tool_calls", "function_call":
		return provider.Quote("tool_use")
	case "content_filter":
		return provider.Quote("refusal")
	}
	return provider.Quote(provider.Bounded(reason))
}
