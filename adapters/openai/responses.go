package openai

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
)

// NewResponsesDecoder returns a decoder for one response body of the Responses API, which may hold
// several responses, or for several bodies of one response (see the package's contract).
func NewResponsesDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, func(out *provider.Writer) provider.Machine {
		d := &responses{Assembly: provider.Assembly{Out: out}}
		d.forget()
		return d
	})
}

// responses is what the events of the Responses API mean.
type responses struct {
	provider.Assembly
	id        string // of the response; "" when nothing has named it yet
	seq       sequence
	items     provider.Register[item]    // by id and output_index
	ended     map[[sha256.Size]byte]bool // items as their ends had them
	end       [sha256.Size]byte          // of the response before: its output and usage
	over      string                     // id of the response before
	announced bool                       // items are
	named     bool                       // the message began with its model
	calls     bool                       // something waits for the client
	refused   bool                       // the model has refused and explained why
	held      []result
	answered  map[string]bool // calls whose result was emitted
}

// FinishStream ends a response whose items have all ended, and needs nothing else. The API does not end its
// streams with [DONE], but services with the same API do.
func (d *responses) FinishStream() {
	if d.Msg == nil || len(d.items.List) == 0 || d.Msg.Fault != nil ||
		slices.ContainsFunc(d.items.List, func(it *item) bool { return !it.done }) {
		return
	}
	d.emitHeld()
	if d.calls {
		d.Msg.Stop = provider.Quote("tool_use")
	}
	d.Msg.End(nil)
	d.forget()
}

// Close ends a response that the provider did not end.
func (d *responses) Close() { d.abandon("the provider's stream ended before the response did") }

// Rejoin announces that what comes next may have been emitted before.
func (d *responses) Rejoin() { d.seq.repeats = true }

// Frame takes one event, or a whole response.
func (d *responses) Frame(name string, all provider.Fields) {
	typ := cmp.Or(all.Str("type"), name)
	if typ == "" || typ == "response" {
		d.readWhole(all)
		return
	}
	another, repeated := d.seq.see(typ, all)
	if repeated {
		return
	}
	if another && (len(d.items.List) > 0 || d.Msg != nil && d.Msg.Fault != nil) {
		d.abandon(anotherBegan)
	}
	switch typ {
	case "keepalive", "ping":
	case "response.created", "response.queued", "response.in_progress":
		d.open(all.Object("response"))
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		d.finish(strings.TrimPrefix(typ, "response."), all.Object("response"), all)
	case "response.output_item.added":
		d.addItem(typ, all)
	case "response.output_item.done":
		d.endItem(typ, all)
	case "error":
		d.fail(all)
	default:
		if !d.piece(typ, all) {
			d.Out.Custom(typ, all)
		}
	}
}

// readWhole reads a response that was not streamed, or an error in its place.
func (d *responses) readWhole(all provider.Fields) {
	status, object, id := all.Str("status"), all.Str("object"), all.Str("id")
	if object == "response" && id != "" && d.id != "" && id != d.id {
		d.abandon(anotherBegan)
	}
	switch {
	case object == "response" && status != "queued" && status != "in_progress":
		d.finish(cmp.Or(status, "completed"), all, all)
	case object != "response" && provider.HasValue(all.Get("error")):
		d.fail(all)
	default: // a response that is still being made will be emitted one day
		d.Out.Custom(object, all)
	}
}

// fail takes an error. The response may have more of it in its end, so the message is still open.
func (d *responses) fail(all provider.Fields) {
	d.Out.Custom("error", all)
	if d.Msg != nil {
		d.Msg.Fault = errorOf("error", all)
	}
}

func (d *responses) abandon(why string) {
	if d.Msg == nil {
		return
	}
	d.closeItems(false)
	d.Msg.Abandon(why)
	d.forget()
}

// forget makes room for the next response.
func (d *responses) forget() {
	*d = responses{Assembly: provider.Assembly{Out: d.Out}, seq: d.seq, over: d.id}
	d.ended, d.answered = make(map[[sha256.Size]byte]bool), make(map[string]bool)
}

// anotherBegan is why a response is abandoned that the provider did not end.
const anotherBegan = "another response began"

// open makes sure that the message of a response is open, and keeps what that has beside its output. Later events have
// the same again, or what has become of it.
func (d *responses) open(r provider.Fields) {
	id := r.Str("id")
	switch {
	case d.Msg == nil:
		d.id = id
		d.named = provider.HasValue(r.Get("model"))
		d.Msg = d.Out.Start(id, "assistant", r.Get("model"), nil)
	case id != "" && id != d.id: // the newest counts: it is what must go back
		d.id = id
		d.Msg.Keep(provider.Field{Name: "response_id", Value: provider.Quote(id)})
	}
	if len(r) > maxMembers {
		d.Out.Custom("response", r)
		return
	}
	for _, f := range r.Without("id", "object", "output", "output_text", "usage", "error") {
		if provider.HasValue(f.Value) && (f.Name != "model" || !d.named) {
			d.Msg.Keep(f)
		}
	}
}

// finish ends a response. What its output holds that was not emitted is emitted now.
func (d *responses) finish(status string, r, all provider.Fields) {
	sum := sha256.Sum256(slices.Concat(r.Get("output"), r.Get("usage")))
	if id := r.Str("id"); d.Msg == nil && (id != "" && id == d.over || sum == d.end) {
		return // its end once more
	}
	d.open(r)
	for i, raw := range provider.Elements(r.Get("output")) {
		src, ok := provider.Parse(raw)
		it := d.match(i, src)
		if it != nil && it.done {
			it.renameCall(src)
			continue
		}
		if !ok {
			d.Out.Custom("output", provider.Fields{{Name: "output", Value: raw}})
			continue
		}
		if it == nil {
			it = d.openItem(-1, src)
			if it == nil {
				d.Out.Custom("item", src)
				continue
			}
			it.seen = true
		}
		d.complete(it, src, "response."+status, all)
	}
	d.closeItems(status == "completed")
	d.Msg.Count(r.Object("usage"))
	d.endMessage(status, r)
	d.forget()
	d.end = sum
}

// endMessage emits the end of the message.
func (d *responses) endMessage(status string, r provider.Fields) {
	reason := cmp.Or(r.Object("incomplete_details").Str("reason"), status)
	e := r.Get("error")
	d.Msg.Keep(provider.Field{Name: "finish_reason", Value: provider.Quote(provider.ShortenID(reason))})
	switch {
	case d.Msg.Fault != nil && provider.HasValue(e):
		d.Msg.Keep(provider.Field{Name: "response_error", Value: e})
	case provider.HasValue(e):
		d.Msg.Fault = bytes.Clone(e)
	case d.Msg.Fault == nil && status == "failed":
		d.Msg.Fault = json.RawMessage(`{"type":"response_failed"}`)
	}
	d.Msg.Stop = stopReason(reason, d.calls, d.refused)
	d.Msg.End(nil)
}

// sequence knows by their sequence_number which events of a response have been seen. They are passed over only once it
// is known that a response is being repeated: there are services that number wrongly.
type sequence struct {
	response string // whose numbers they are; "" when nothing has named it yet
	last     int    // highest number so far
	repeats  bool   // the response is sent again from somewhere

	number int // of the newest event, and its type and text
	typ    string
	delta  []byte
	rises  int // how often a number was higher than the one before it; -1 once one was not
}

// see notes an event. It reports whether another response begins with it, and whether it was sent before. An id that
// differs is no other response by itself: proxies give every event one of its own.
func (s *sequence) see(typ string, all provider.Fields) (another, repeated bool) {
	id, n := all.Object("response").Str("id"), all.Index("sequence_number")
	opens := typ == "response.created" || typ == "response.queued" || typ == "response.in_progress"
	goesBack := opens && n >= 0 && n < s.last
	another = s.response != "" && id != "" && id != s.response && (typ == "response.created" || goesBack && !s.repeats)
	if another {
		*s = sequence{}
		goesBack = false
	}
	s.response = cmp.Or(s.response, id)
	if n < 0 {
		return another, false
	}
	s.repeats = s.repeats || goesBack
	repeated = s.repeats && n <= s.last && s.last > 0 // some services number all events alike
	s.last = max(s.last, n)
	return another, s.double(n, typ, all.Get("delta")) || repeated
}

// double notes the newest event. It reports whether it is the one before it once more, perhaps by another item's id:
// type, text and number are the same, and numbers have risen with each event before.
func (s *sequence) double(n int, typ string, delta []byte) (twice bool) {
	switch {
	case s.typ == "" || s.rises < 0:
	case n > s.number:
		s.rises++
	case s.rises > 1 && n == s.number && typ == s.typ && bytes.Equal(delta, s.delta):
		twice = true
	default:
		s.rises = -1
	}
	s.number, s.typ = n, typ
	s.delta = append(s.delta[:0], delta...)
	return twice
}
