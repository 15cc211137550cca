package openai

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
)

// choice is one choice of a completion while it is put together.
type choice struct {
	out      *provider.Writer
	msg      *provider.Message
	live     bool            // its events are emitted
	now      *provider.Block // text, thought or refusal that is being emitted
	nowKind  string
	audio    *provider.Block
	calls    calls
	details  []provider.Fields // of reasoning_details, without their text
	refused  bool              // the model has refused and explained why
	finished bool
	blocks   int // begun so far
}

// take takes one piece of the choice: all is the choice, content its delta or message.
func (c *choice) take(all, content provider.Fields, whole bool) {
	if v := all.Get("text"); content == nil && provider.IsString(v) { // legacy completions
		c.say("text", v)
	}
	if v := all.Get("logprobs"); filled(v) && c.live {
		c.out.Custom("logprobs", provider.Fields{{Name: "index", Value: provider.Number(0)}, {Name: "logprobs", Value: v}})
	}
	c.reasoning(content)
	c.content(content.Get("content"))
	if v := content.Get("refusal"); provider.IsString(v) {
		c.say("refusal", v)
		c.refused = c.refused || filled(v)
	}
	if a := content.Object("audio"); a != nil {
		c.sound(a, whole)
	}
	c.toolCalls(content)
	c.unknown(content)
	if len(all) > maxMembers {
		c.out.Custom("choice", all)
	} else {
		for _, f := range all {
			switch f.Name {
			case "index", "delta", "message", "text", "logprobs", "finish_reason", "error":
			default:
				keep(c.out, c.msg, f)
			}
		}
	}
	if reason := all.Str("finish_reason"); reason != "" {
		c.finish(reason, all.Get("finish_reason"))
	}
}

// begin begins a block of text, thought or refusal, after the one before.
func (c *choice) begin(kind string) {
	c.endNow(true)
	c.now, c.nowKind = c.msg.Begin(plainBlock(c.next(), kind)), kind
}

// next returns the index of the next block.
func (c *choice) next() int {
	c.blocks++
	return c.blocks - 1
}

// plainBlock makes a block that holds text of some kind.
func plainBlock(index int, kind string) *provider.Block {
	b := provider.TextBlock(index, kind)
	if kind == "audio_transcript" {
		b.Field, b.Base[1].Name = "transcript", "transcript"
	}
	return b
}

func (c *choice) endNow(finished bool) {
	if c.now == nil {
		return
	}
	if c.nowKind == "reasoning" && c.details != nil {
		list := make([]json.RawMessage, len(c.details))
		for i, d := range c.details {
			list[i] = d.Encode()
		}
		c.now.Late = c.now.Late.Set("reasoning_details", provider.List(list))
		c.details = nil
	}
	c.now.End(finished)
	c.now, c.nowKind = nil, ""
}

// say emits a piece of text of some kind. What is empty begins no block.
func (c *choice) say(kind string, v json.RawMessage) {
	if len(provider.Inner(v)) == 0 {
		return
	}
	if c.now == nil || c.nowKind != kind || !c.now.Open() {
		c.begin(kind)
	}
	c.now.Text(v)
}

// content takes text, or a list of parts, as some services write it.
func (c *choice) content(v json.RawMessage) {
	if provider.IsString(v) {
		c.say("text", v)
		return
	}
	for _, raw := range provider.Elements(v) {
		part, _ := provider.Parse(raw)
		text, inner := part.Get("text"), provider.Elements(part.Get("thinking"))
		switch {
		case part.Str("type") == "text" && provider.IsString(text):
			c.say("text", text)
		case part.Str("type") == "thinking" && provider.IsString(part.Get("thinking")):
			c.say("reasoning", part.Get("thinking"))
		case part.Str("type") == "thinking" && len(inner) > 0:
			for _, raw := range inner {
				if p, _ := provider.Parse(raw); provider.IsString(p.Get("text")) {
					c.say("reasoning", p.Get("text"))
				} else {
					c.out.Custom("delta", provider.Fields{{Name: "thinking", Value: raw}})
				}
			}
		default:
			c.out.Custom("delta", provider.Fields{{Name: "content", Value: raw}})
		}
	}
}

// reasoning takes a thought in any of its spellings. Services that use two send the same in both.
func (c *choice) reasoning(content provider.Fields) {
	var thought json.RawMessage
	for _, name := range []string{"reasoning_content", "reasoning"} {
		v := content.Get(name)
		switch {
		case !filled(v):
		case !provider.IsString(v) || thought != nil && !bytes.Equal(v, thought):
			c.out.Custom("delta", provider.Fields{{Name: name, Value: v}})
		case thought == nil:
			thought = v
			c.say("reasoning", v)
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
		c.out.Custom("delta", provider.Fields{{Name: "reasoning_details", Value: raw}})
		return
	}
	if c.now == nil || c.nowKind != "reasoning" || !c.now.Open() {
		c.begin("reasoning")
	}
	var rest provider.Fields
	for _, f := range all {
		if (f.Name == "text" || f.Name == "summary") && provider.IsString(f.Value) {
			if !emitted {
				c.say("reasoning", f.Value)
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
		c.say("audio_transcript", v)
	}
	media := "audio/pcm"
	if whole {
		media = "application/octet-stream"
	}
	rest := provider.Fields{}
	for _, f := range a {
		switch {
		case f.Name == "transcript" && provider.IsString(f.Value) || !filled(f.Value):
		case f.Name == "data" && base64Text(f.Value) != nil:
			if c.audio == nil || !c.audio.Open() {
				c.audio = dataBlock(c.msg, c.next(), media, "audio")
			}
			emitData(c.out, c.audio, media, "audio", base64Text(f.Value))
		default:
			rest = append(rest, f)
		}
	}
	if len(rest) > 0 {
		c.out.Custom("delta", provider.Fields{{Name: "audio", Value: rest.Encode()}})
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
			keep(c.out, c.msg, f)
			continue
		}
		if filled(f.Value) {
			rest = append(rest, f)
		}
	}
	if rest != nil {
		c.out.Custom("delta", rest)
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

// finish takes the reason why the choice ended, and ends its blocks.
func (c *choice) finish(reason string, raw json.RawMessage) {
	c.endBlocks()
	c.finished = true
	if old := c.msg.Rest.Get("finish_reason"); old == nil || !bytes.Equal(old, raw) {
		keep(c.out, c.msg, provider.Field{Name: "finish_reason", Value: raw})
	}
	c.msg.Stop = stopReason(reason, c.calls.begun > 0, c.refused)
}

func (c *choice) endBlocks() {
	c.endNow(true)
	if c.audio != nil {
		c.audio.End(true)
	}
	c.endCalls()
}

// end ends the choice's message.
func (c *choice) end(cut string, failed json.RawMessage) {
	if c.finished {
		c.endBlocks()
	} else {
		c.beginWaiting()
		c.endNow(false)
	}
	switch {
	case failed != nil:
		c.msg.Fail(failed)
	case !c.finished:
		c.msg.Abandon(cut)
	default:
		c.msg.End(nil)
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
