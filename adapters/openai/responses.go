package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
)

// NewResponsesDecoder returns a decoder for one response body of the Responses API, which may hold
// several responses, or for several bodies of one response (see the package's contract).
func NewResponsesDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine { return &responses{out: out} })
}

// responses is what the events of the Responses API mean.
type responses struct {
	out       *provider.Writer
	msg       *provider.Message // of the response that is being emitted
	id        string            // of the response; "" when nothing has named it yet
	seq       sequence
	failed    json.RawMessage            // error that came within msg
	items     []*item                    // in the order in which they began
	found     provider.Register[*item]   // by id and output_index
	ended     map[[sha256.Size]byte]bool // items as their ends had them
	end       [sha256.Size]byte          // of the response before: its output and usage
	over      string                     // id of the response before
	announced bool                       // items are
	named     bool                       // the message began with its model
	blocks    int                        // begun so far
	calls     bool                       // something waits for the client
	refused   bool                       // the model has refused and explained why
	held      []result
	// answered are calls whose result was emitted.
	answered map[string]bool
}

// Done: the API does not end its streams so, but services with the same API do. A response whose items have all ended needs
// nothing else then.
func (d *responses) Done() {
	if d.msg == nil || len(d.items) == 0 || d.failed != nil || slices.ContainsFunc(d.items, func(it *item) bool { return !it.done }) {
		return
	}
	d.emitHeld()
	if d.calls {
		d.msg.Stop = provider.Quote("tool_use")
	}
	d.msg.End(nil)
	d.forget()
}

// Close ends a response that the provider did not end.
func (d *responses) Close() { d.abandon("the provider's stream ended before the response did") }

// Rejoin announces that what comes next may have been emitted before.
func (d *responses) Rejoin() { d.seq.repeats = true }

// Frame takes one event, or a whole response.
func (d *responses) Frame(name string, all provider.Fields) {
	typ := all.Str("type")
	if typ == "" {
		typ = name
	}
	if typ == "" || typ == "response" {
		d.untyped(all)
		return
	}
	another, repeated := d.seq.see(typ, all)
	if repeated {
		return
	}
	if another && (len(d.items) > 0 || d.failed != nil) {
		d.abandon(anotherBegan)
	}
	switch typ {
	case "keepalive", "ping":
	case "response.created", "response.queued", "response.in_progress":
		d.open(all.Object("response"))
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		d.finish(strings.TrimPrefix(typ, "response."), all.Object("response"), all)
	case "response.output_item.added":
		d.added(typ, all)
	case "response.output_item.done":
		d.done(typ, all)
	case "error":
		d.fail(all)
	default:
		if !d.piece(typ, all) {
			d.out.Custom(typ, all)
		}
	}
}

// untyped takes a response that was not streamed, or an error in its place.
func (d *responses) untyped(all provider.Fields) {
	status := all.Str("status")
	if id := all.Str("id"); all.Str("object") == "response" && id != "" && d.id != "" && id != d.id {
		d.abandon(anotherBegan)
	}
	switch {
	case all.Str("object") == "response" && status != "queued" && status != "in_progress":
		if status == "" {
			status = "completed"
		}
		d.finish(status, all, all)
	case all.Str("object") == "response": // it is still being made, and will be emitted one day
		d.out.Custom("response", all)
	case provider.Filled(all.Get("error")):
		d.fail(all)
	default:
		d.out.Custom(all.Str("object"), all)
	}
}

// fail takes an error. The response may have more of it in its end, so the message is still open.
func (d *responses) fail(all provider.Fields) {
	d.out.Custom("error", all)
	if d.msg == nil {
		return
	}
	if e := all.Get("error"); provider.Filled(e) {
		d.failed = bytes.Clone(e)
	} else {
		d.failed = all.Encode()
	}
}

func (d *responses) abandon(why string) {
	if d.msg == nil {
		return
	}
	d.closeItems(false)
	if d.failed != nil {
		d.msg.Fail(d.failed)
	} else {
		d.msg.Abandon(why)
	}
	d.forget()
}

// forget makes room for the next response.
func (d *responses) forget() {
	*d = responses{out: d.out, seq: d.seq, over: d.id}
}

// anotherBegan is why a response is abandoned that the provider did not end.
const anotherBegan = "another response began"

// open makes sure that the message of a response is open.
func (d *responses) open(r provider.Fields) {
	id := r.Str("id")
	switch {
	case d.msg == nil:
		d.id = id
		d.named = provider.Filled(r.Get("model"))
		d.msg = d.out.Start(id, "assistant", r.Get("model"), nil)
	case id != "" && id != d.id: // the newest counts: it is what must go back
		d.id = id
		d.msg.Keep(provider.Field{Name: "response_id", Value: provider.Quote(id)})
	}
	d.members(r)
}

// members keeps what a response has beside its output. Later events have the same again, or what has
// become of it.
func (d *responses) members(r provider.Fields) {
	if len(r) > maxMembers {
		d.out.Custom("response", r)
		return
	}
	for _, f := range r {
		switch f.Name {
		case "model":
			if !d.named {
				d.msg.Keep(f)
			}
		case "id", "object", "output", "output_text", "usage", "error":
		default:
			if !provider.Filled(f.Value) {
				continue
			}
			if len(d.msg.Rest) < maxMembers {
				d.msg.Keep(f)
			}
			if !bytes.Equal(d.msg.Rest.Get(f.Name), f.Value) {
				d.out.Custom("member", provider.Fields{f})
			}
		}
	}
}

// finish ends a response. What its output holds that was not emitted is emitted now.
func (d *responses) finish(status string, r, all provider.Fields) {
	sum := sha256.Sum256(slices.Concat(r.Get("output"), r.Get("usage")))
	if id := r.Str("id"); d.msg == nil && (id != "" && id == d.over || sum == d.end) {
		return // its end once more
	}
	d.open(r)
	for i, raw := range provider.Elements(r.Get("output")) {
		src, ok := provider.Parse(raw)
		it := d.match(i, src)
		if it != nil && it.done {
			it.answerAs(src)
			continue
		}
		if !ok {
			d.out.Custom("output", provider.Fields{{Name: "output", Value: raw}})
			continue
		}
		if it == nil {
			it = d.begin(-1, src)
			if it == nil {
				d.out.Custom("item", src)
				continue
			}
			it.seen = true
		}
		d.complete(it, src, "response."+status, all)
	}
	d.closeItems(status == "completed")
	d.msg.Count(r.Object("usage"))
	d.endMessage(status, r)
	d.forget()
	d.end = sum
}

// endMessage emits the end of the message.
func (d *responses) endMessage(status string, r provider.Fields) {
	reason := status
	if why := r.Object("incomplete_details").Str("reason"); why != "" {
		reason = why
	}
	e := r.Get("error")
	d.msg.Keep(provider.Field{Name: "finish_reason", Value: provider.Quote(provider.Bounded(reason))})
	switch {
	case d.failed != nil || provider.Filled(e) || status == "failed":
		if d.failed == nil {
			d.failed = bytes.Clone(e)
		} else if provider.Filled(e) {
			d.msg.Keep(provider.Field{Name: "response_error", Value: e})
		}
		if !provider.Filled(d.failed) {
			d.failed = json.RawMessage(`{"type":"response_failed"}`)
		}
		d.msg.Fail(d.failed)
		return
	case reason == "completed" && d.calls:
		d.msg.Stop = provider.Quote("tool_use")
	case reason == "completed" && d.refused:
		d.msg.Stop = provider.Quote("refusal")
	case reason == "completed":
		d.msg.Stop = provider.Quote("end_turn")
	case reason == "max_output_tokens":
		d.msg.Stop = provider.Quote("max_tokens")
	default:
		d.msg.Stop = stopReason(reason, false, false)
	}
	d.msg.End(nil)
}
