package openai

import (
	"bytes"
	"encoding/json"
	"math"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Provider is the value of "provider" in message.start.
const Provider = "openai"

// NewChatDecoder returns a decoder for one response body of Chat Completions, which may hold several
// messages.
func NewChatDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine { return &chat{out: out} })
}

// chat is what chunks mean.
type chat struct {
	out    *provider.Writer
	msg    *provider.Message
	id     string // of the chunks of msg
	model  string
	main   *choice
	others map[int]*other
	order  []int           // of others
	failed json.RawMessage // error that came within msg
	roles  bool            // chunks of msg go without a role
	steady int             // chunks in a row with the id of msg; -1: ids mean nothing
	whole  bool            // the last one had the whole message
}

// other is a choice beside the first one. Its events go nowhere; only its end is read.
type other struct {
	*choice
	events *provider.Decoder
}

// maxChoices bounds the choices that are put together.
const maxChoices = 128

// Done ends the message: nothing of it comes behind [DONE].
func (d *chat) Done() { d.endMessage("the stream ended without a finish reason", true) }

// Close ends a message that the provider did not end.
func (d *chat) Close() { d.endMessage("the provider's stream ended before the message did", false) }

// Frame takes one chunk, or a whole answer.
func (d *chat) Frame(name string, all provider.Fields) {
	failed := errorOf(name, all)
	if failed != nil {
		d.out.Custom("error", all)
	}
	choices := provider.Elements(all.Get("choices"))
	switch {
	case len(choices) > 0:
		d.open(all, choices)
	case d.msg == nil || all.Get("choices") == nil && usageOf(all) == nil:
		if failed == nil {
			d.keepFrame(name, all)
		} else if d.msg != nil {
			d.failed = failed
		}
		return
	}
	if failed != nil {
		d.failed = failed
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
	if e := all.Get("error"); provider.Filled(e) {
		return bytes.Clone(e)
	}
	if name == "error" || all.Str("object") == "error" || all.Str("type") == "error" && all.Get("choices") == nil {
		return all.Encode()
	}
	return nil
}

// keepFrame keeps a frame that belongs to no message, the verdict on the prompt for one.
func (d *chat) keepFrame(name string, all provider.Fields) {
	for _, n := range []string{all.Str("object"), name, "chunk"} {
		if n != "" {
			d.out.Custom(n, all)
			return
		}
	}
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
		said := c.Object("delta").Str("role")
		if said == "" {
			said = c.Object("message").Str("role")
		}
		if said != "" && (d.msg == nil || d.begun(max(c.Index(), 0))) { // else it is another choice that begins
			role = said
			break
		}
	}
	if d.another(id, role) && !d.repeated(choices) {
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
	model := all.Get("model")
	if d.model == "" {
		model = nil
	}
	d.msg = d.out.Start(id, role, model, nil)
}

// another reports whether a chunk begins another message: it has another id, and a role although chunks go without one, or
// the message has its finish reason. Services give an id of its own to every chunk, and a reason.
func (d *chat) another(id, role string) bool {
	if d.msg == nil || id == "" || d.id == "" || id == d.id {
		return false
	}
	return d.steady > 0 && (role != "" && d.roles || d.finished() && (d.steady > 1 || d.whole))
}

// repeated reports whether choices are the text of the message once more.
func (d *chat) repeated(choices []json.RawMessage) bool {
	c, _ := provider.Parse(choices[0])
	return d.main != nil && d.main.Heard("text", c.Object("message").Get("content"))
}

// begun reports whether a choice has begun.
func (d *chat) begun(index int) bool { return index == 0 && d.main != nil || d.others[index] != nil }

// finished reports whether every choice of the message has its finish reason.
func (d *chat) finished() bool {
	for _, o := range d.others {
		if !o.finished {
			return false
		}
	}
	return d.main == nil || d.main.finished
}

// choice takes a chunk's part of one choice. It reports whether that is the whole choice.
func (d *chat) choice(all provider.Fields, object string) (whole bool) {
	index := max(all.Index(), 0)
	delta := all.Object("delta")
	if message := all.Object("message"); message != nil && (delta == nil || object == "chat.completion") {
		delta, whole = message, true // some services repeat the message so far beside each delta
	}
	if index == 0 {
		if d.main == nil {
			d.main = newChoice(d.out, d.msg, true)
		}
		d.main.take(all, delta, whole)
		if e := all.Get("error"); provider.Filled(e) { // some services put it here
			d.out.Custom("error", all)
			d.failed = bytes.Clone(e)
		}
		return whole
	}
	d.out.Custom("choice", all)
	o := d.others[index]
	if o == nil {
		if len(d.order) >= maxChoices-1 {
			return whole
		}
		o = newOther()
		if d.others == nil {
			d.others = make(map[int]*other)
		}
		d.others[index] = o
		d.order = append(d.order, index)
	}
	o.take(all, delta, whole)
	_, _ = o.events.Write(nil) // its events are nobody's
	return whole
}

func newOther() *other {
	o := &other{}
	o.events = provider.NewDecoder(Provider, provider.Config{}, func(out *provider.Writer) provider.Machine {
		o.choice = newChoice(out, out.Start("", "assistant", nil, nil), false)
		return silent{}
	})
	return o
}

// silent is the machine of a decoder that is given no frames.
type silent struct{}

func (silent) Frame(string, provider.Fields) {}
func (silent) Done()                         {}
func (silent) Close()                        {}

// whole returns the choice as message.end has it.
func (o *other) whole(index int) json.RawMessage {
	out := provider.Fields{{Name: "index", Value: provider.Number(index)}}
	o.end("the choice has no finish reason", false, nil)
	for _, e := range o.events.Close() {
		if e.Type != schema.TypeMessageEnd {
			continue
		}
		members, _ := provider.Parse(e.Payload)
		for _, f := range members {
			if f.Name != "message_id" && f.Name != "stop_sequence" {
				out = append(out, f)
			}
		}
	}
	return out.Encode()
}

// members takes what a chunk has beside its choices.
func (d *chat) members(all provider.Fields) {
	if len(all) > maxMembers {
		d.out.Custom("chunk", all)
		return
	}
	d.msg.Count(usageOf(all))
	for _, f := range all {
		switch f.Name {
		case "id", "object", "choices", "error", "obfuscation":
		case "usage":
		case "model":
			if m := all.Str("model"); m != "" && m != d.model {
				keep(d.out, d.msg, f)
			}
		default:
			keep(d.out, d.msg, f)
		}
	}
}

// endMessage ends the message, if one is open, with its other choices.
func (d *chat) endMessage(cut string, done bool) {
	if d.msg == nil {
		return
	}
	var list []json.RawMessage
	for _, index := range d.order {
		list = append(list, d.others[index].whole(index))
	}
	if list != nil {
		d.msg.Keep(provider.Field{Name: "choices", Value: provider.List(list)})
	}
	switch {
	case d.main != nil:
		if d.whole && !done {
			cut = "the answer has no finish reason"
		}
		d.main.end(cut, done, d.failed)
	case d.failed != nil:
		d.msg.Fail(d.failed)
	default: // there are others alone
		d.msg.End(nil)
	}
	d.msg, d.main, d.others, d.order, d.failed = nil, nil, nil, nil, nil
}
