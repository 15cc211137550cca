package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Provider is the value of "provider" in message.start.
const Provider = "openai"

// NewChatDecoder returns a decoder for one response body of Chat Completions, which may hold several messages.
func NewChatDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine { return &chat{out: out} })
}

// chat is what chunks mean.
type chat struct {
	out     *provider.Writer
	msg     *provider.Message
	id      string // of the chunks of msg
	model   string
	choices []*choice // in the order in which they began
	roles   bool      // chunks of msg go without a role
	steady  int       // chunks in a row with the id of msg; -1: ids mean nothing
	whole   bool      // the last one had the whole message
}

// maxChoices bounds the choices that are put together.
const maxChoices = 128

// FinishStream ends the message: nothing of it comes after [DONE].
func (d *chat) FinishStream() { d.endMessage("the stream ended without a finish reason", true) }

// Close ends a message that the provider did not end.
func (d *chat) Close() { d.endMessage("the provider's stream ended before the message did", false) }

// Frame takes one chunk, or a whole answer.
func (d *chat) Frame(name string, all provider.Fields) {
	failed := errorOf(name, all)
	if failed != nil {
		d.out.Custom("error", all)
	}
	choices := provider.Elements(all.Get("choices"))
	if len(choices) > 0 {
		d.open(all, choices)
	}
	if d.msg != nil && failed != nil {
		d.msg.Fault = failed
	}
	if d.msg == nil || all.Get("choices") == nil && usageOf(all) == nil {
		if failed == nil { // it belongs to no message: the verdict on the prompt, for one
			d.out.Custom(cmp.Or(all.Str("object"), name, "chunk"), all)
		}
		return
	}
	for _, raw := range choices {
		if c, ok := provider.Parse(raw); ok {
			d.whole = d.choice(c, all.Str("object"))
		} else {
			d.out.Custom("choice", provider.Fields{{Name: "choice", Value: raw}})
		}
	}
	d.members(all)
}

// usageOf returns the usage of a chunk, which may stand in a member of the vendor's; nil when there is none.
func usageOf(all provider.Fields) (usage provider.Fields) {
	for _, f := range all {
		switch {
		case !provider.IsObject(f.Value):
		case f.Name == "usage":
			return all.Object("usage")
		case usage == nil:
			usage = all.Object(f.Name).Object("usage")
		}
	}
	return usage
}

// errorOf returns the error in a frame; nil when there is none.
func errorOf(name string, all provider.Fields) json.RawMessage {
	if e := all.Get("error"); provider.HasValue(e) {
		return bytes.Clone(e)
	}
	if name == "error" || all.Str("object") == "error" || all.Str("type") == "error" && all.Get("choices") == nil {
		return all.Encode()
	}
	return nil
}

// open makes sure that the message of a chunk is open.
func (d *chat) open(all provider.Fields, choices []json.RawMessage) {
	id, role := all.Str("id"), ""
	if d.msg != nil && d.roles && id == d.id {
		d.steady++
		return
	}
	for _, raw := range choices {
		c, _ := provider.Parse(raw)
		said := cmp.Or(c.Object("delta").Str("role"), c.Object("message").Str("role"))
		// else it is another choice that begins
		if said != "" && (d.msg == nil || d.find(max(c.Index("index"), 0)) != nil) {
			role = said
			break
		}
	}
	if d.another(id, role) && !d.isRepeat(choices) {
		d.endMessage("another message began", false)
	}
	if d.msg != nil {
		if d.id == "" && id != "" {
			d.id = id
			keep(d.out, d.msg, provider.Field{Name: "id", Value: provider.Quote(id)})
		}
		d.roles = d.roles || role == ""
		if d.steady++; id != d.id {
			d.steady = math.MinInt
		}
		return
	}
	*d = chat{out: d.out, id: id, model: all.Str("model"), steady: 1}
	d.msg = d.out.Start(id, role, all.Get("model"), nil)
}

// another reports whether a chunk begins another message: it has another id, and a role although chunks go without
// one, or the message has its finish reason. Services give an id of its own to every chunk, and a reason.
func (d *chat) another(id, role string) bool {
	if d.msg == nil || id == "" || d.id == "" || id == d.id {
		return false
	}
	goesOn := slices.ContainsFunc(d.choices, func(c *choice) bool { return !c.finished })
	return d.steady > 0 && (role != "" && d.roles || !goesOn && (d.steady > 1 || d.whole))
}

// isRepeat reports whether choices are the text of the message once more.
func (d *chat) isRepeat(choices []json.RawMessage) bool {
	c, _ := provider.Parse(choices[0])
	main := d.find(0)
	return main != nil && main.IsRepeat("text", c.Object("message").Get("content"))
}

// find returns a choice; nil when it has not begun.
func (d *chat) find(index int) *choice {
	at := slices.IndexFunc(d.choices, func(c *choice) bool { return c.index == index })
	if at < 0 {
		return nil
	}
	return d.choices[at]
}

// choice takes a chunk's part of one choice. It reports whether that is the whole choice.
func (d *chat) choice(all provider.Fields, object string) (whole bool) {
	index := max(all.Index("index"), 0)
	delta := all.Object("delta")
	if message := all.Object("message"); message != nil && (delta == nil || object == "chat.completion") {
		delta, whole = message, true // some services repeat the message so far beside each delta
	}
	c := d.find(index)
	if c == nil && (index == 0 || len(d.choices) < maxChoices) {
		c = newChoice(d.out, d.msg, index)
		d.choices = append(d.choices, c)
	}
	if index > 0 {
		d.out.Custom("choice", all)
	}
	if c == nil {
		return whole
	}
	c.add(all, delta, whole)
	e := all.Get("error")
	switch {
	case index > 0:
		c.Out.Drain() // they are nobody's
	case provider.HasValue(e): // some services put it here
		d.out.Custom("error", all)
		d.msg.Fault = bytes.Clone(e)
	}
	return whole
}

// whole ends a choice beside the first, and returns it as message.end has it.
func (c *choice) whole() json.RawMessage {
	out := provider.Fields{{Name: "index", Value: provider.Number(c.index)}}
	c.endMessage("the choice has no finish reason", false)
	for _, e := range c.Out.Drain() {
		if e.Type == schema.TypeMessageEnd {
			members, _ := provider.Parse(e.Payload)
			out = append(out, members.Without("message_id", "stop_sequence")...)
		}
	}
	return out.Encode()
}

// members takes what a chunk has beside its choices.
func (d *chat) members(all provider.Fields) {
	d.msg.Count(usageOf(all))
	known := []string{"id", "object", "choices", "error", "obfuscation", "usage"}
	if model := all.Str("model"); model == "" || model == d.model {
		known = append(known, "model")
	}
	keepAll(d.out, d.msg, "chunk", all.Without(known...))
}

// endMessage ends the message, if one is open, with its other choices.
func (d *chat) endMessage(cut string, done bool) {
	if d.msg == nil {
		return
	}
	var list []json.RawMessage
	for _, c := range d.choices {
		if c.index > 0 {
			list = append(list, c.whole())
		}
	}
	if list != nil {
		d.msg.Keep(provider.Field{Name: "choices", Value: provider.List(list)})
	}
	if d.whole && !done {
		cut = "the answer has no finish reason"
	}
	if main := d.find(0); main != nil {
		main.endMessage(cut, done)
	}
	d.msg.End(nil) // there may be others alone
	d.msg, d.choices = nil, nil
}
