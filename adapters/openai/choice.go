package openai

import (
	"bytes"
	"encoding/json"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// choice is one choice of a completion while it is put together.
type choice struct {
	provider.Assembly
	index    int
	audio    *provider.Block
	details  []provider.Fields // of reasoning_details, without their text
	refused  bool              // the model has refused and explained why
	finished bool
}

// newChoice begins a choice. The first one is the message; the events of another are its writer's alone.
func newChoice(out *provider.Writer, msg *provider.Message, index int) *choice {
	if index > 0 {
		out = out.Aside()
		msg = out.Start("", "assistant", nil, nil)
	}
	c := &choice{index: index}
	c.Out, c.Msg = out, msg
	return c
}

// add adds one piece to the choice: all is the choice, content its delta or message.
func (c *choice) add(all, content provider.Fields, whole bool) {
	reason := all.Str("finish_reason")
	if reason == "null" {
		reason = ""
	}
	again := reason != "" && !whole && c.IsRepeat("text", content.Get("content"))
	c.Step(whole || again)
	before := c.Pieces
	if content == nil { // legacy completions
		c.Say("text", all.Get("text"))
	}
	if c.index == 0 {
		logprobs(c.Out, 0, all)
	}
	if again {
		c.Out.Beside("delta", content)
	}
	c.reasoning(content)
	c.content("text", "content", content.Get("content"))
	refusal := content.Get("refusal")
	c.Say("refusal", refusal)
	c.refused = c.refused || len(jsonscan.Inner(refusal)) > 0
	if a := content.Object("audio"); a != nil {
		c.sound(a, whole)
	}
	c.toolCalls(content)
	c.unknown(content)
	c.Msg.Count(all.Object("usage"))
	known := []string{"index", "delta", "message", "text", "logprobs", "finish_reason", "error", "usage"}
	keepAll(c.Out, c.Msg, "choice", all.Without(known...))
	if reason != "" {
		c.finish(reason, all.Get("finish_reason"), c.Pieces == before)
	}
}

// endThought sets what the details of a thought have beside their text.
func (c *choice) endThought(b *provider.Block) {
	var list []json.RawMessage
	for _, d := range c.details {
		list = append(list, d.Encode())
	}
	if list != nil {
		b.Late = b.Late.Set("reasoning_details", provider.List(list))
	}
	c.details = nil
}

// content takes a text of some kind, or a list of parts, as some services write it.
func (c *choice) content(kind, member string, v json.RawMessage) {
	if jsonscan.IsString(v) {
		c.Say(kind, v)
		return
	}
	for _, raw := range provider.Elements(v) {
		part, _ := provider.Parse(raw)
		text, thought := part.Get("text"), part.Get("thinking")
		switch typ := part.Str("type"); {
		case typ == "thinking" && (jsonscan.IsString(thought) || provider.Elements(thought) != nil):
			c.content("reasoning", typ, thought)
		case jsonscan.IsString(text) && (typ == "text" || kind == "reasoning"):
			c.Say(kind, text)
		default:
			c.Out.Custom("delta", provider.Fields{{Name: member, Value: raw}})
		}
	}
}

// reasoning takes a thought in any of its spellings. Services that use two send the same in both.
func (c *choice) reasoning(content provider.Fields) {
	var thought json.RawMessage
	for _, name := range []string{"reasoning_content", "reasoning"} {
		v := content.Get(name)
		switch {
		case !provider.HasValue(v):
		case !jsonscan.IsString(v) || thought != nil && !bytes.Equal(v, thought):
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
	b := c.Open("reasoning")
	b.Ending = func() { c.endThought(b) }
	var rest provider.Fields
	for _, f := range all {
		if (f.Name == "text" || f.Name == "summary") && jsonscan.IsString(f.Value) {
			if !emitted {
				c.Say("reasoning", f.Value)
			}
		} else if !provider.IsNull(f.Value) {
			rest = append(rest, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
		}
	}
	for i, d := range c.details {
		differs := func(f provider.Field) bool {
			v := d.Get(f.Name)
			return v != nil && !bytes.Equal(v, f.Value)
		}
		same := d.Str("type") == rest.Str("type") && d.Index("index") == rest.Index("index")
		if same && !slices.ContainsFunc(rest, differs) {
			c.details[i] = d.Overlay(rest)
			return
		}
	}
	c.details = append(c.details, rest)
}

// sound takes audio and its transcript. The stream does not name the format: what is streamed is
// PCM, for there is no other.
func (c *choice) sound(a provider.Fields, whole bool) {
	c.Say("audio_transcript", a.Get("transcript"))
	media := "audio/pcm"
	if whole {
		media = "application/octet-stream"
	}
	rest := provider.Fields{}
	for _, f := range a {
		switch {
		case f.Name == "transcript" && jsonscan.IsString(f.Value) || !provider.HasValue(f.Value):
		case f.Name == "data" && isBase64(f.Value):
			if c.audio == nil || !c.audio.Open() {
				name := provider.Fields{{Name: "name", Value: provider.Quote("audio")}}
				c.audio = c.Msg.Begin(provider.DataBlock(c.Next(), media, name))
			}
			c.audio.Data(f.Value)
		default:
			rest = append(rest, f)
		}
	}
	if len(rest) > 0 {
		c.Out.Custom("delta", provider.Fields{{Name: "audio", Value: rest.Encode()}})
	}
}

// shapes are the members of a delta, with what their values are where they are understood.
var shapes = map[string]func([]byte) bool{
	"role": jsonscan.IsString, "refusal": jsonscan.IsString,
	"audio": provider.IsObject, "function_call": provider.IsObject,
	"reasoning": isAny, "reasoning_content": isAny, "reasoning_details": isList, "tool_calls": isList,
	"content": func(v []byte) bool { return jsonscan.IsString(v) || isList(v) },
}

func isAny([]byte) bool    { return true }
func isList(v []byte) bool { return v[0] == '[' }

// unknown keeps the members of a delta that are none of those above.
func (c *choice) unknown(content provider.Fields) {
	var rest provider.Fields
	for _, f := range content {
		is := shapes[f.Name]
		switch {
		case is != nil && is(f.Value) || !provider.HasValue(f.Value):
		case f.Name == "channel": // sent with every piece
			keep(c.Out, c.Msg, f)
		default:
			rest = append(rest, f)
		}
	}
	if rest != nil {
		c.Out.Custom("delta", rest)
	}
}

// finish takes the reason why the choice ended. alone: its piece had nothing else. Services send a reason with every
// piece, so that nothing ends with it but what nothing follows.
func (c *choice) finish(reason string, raw json.RawMessage, alone bool) {
	c.finished = true
	if alone {
		c.Stop()
	}
	keep(c.Out, c.Msg, provider.Field{Name: "finish_reason", Value: raw})
	c.Msg.Stop = stopReason(reason, len(c.Calls.List) > 0, c.refused)
}

// endMessage ends the choice's message. done: the service has said that the stream is over.
func (c *choice) endMessage(cut string, done bool) {
	finished := c.finished || done && c.Msg.Fault == nil && c.Entire()
	if !finished {
		c.Msg.Abandon(cut)
		return
	}
	if !c.finished && len(c.Calls.List) > 0 {
		c.Msg.Stop = provider.Quote("tool_use")
	}
	c.Stop()
	c.Msg.End(nil)
}

// words are the common values for the APIs' reasons. Others stay as they are.
var words = map[string]string{
	"stop": "end_turn", "completed": "end_turn", "length": "max_tokens", "max_output_tokens": "max_tokens",
	"tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal",
}

// stopReason returns the common stop_reason for a finish reason.
func stopReason(reason string, calls, refused bool) json.RawMessage {
	word := words[reason]
	switch {
	case word == "":
		word = provider.ShortenID(reason)
	case word == "end_turn" && calls:
		word = "tool_use"
	case word == "end_turn" && refused:
		word = "refusal"
	}
	return provider.Quote(word)
}
