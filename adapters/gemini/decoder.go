package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"agentstream/adapters/provider"
)

// Provider is the value of "provider" in message.start.
const Provider = "gemini"

// NewDecoder returns a decoder for one response body.
func NewDecoder(cfg provider.Config) *provider.Decoder {
	return provider.NewDecoder(Provider, cfg, NewMachine)
}

// NewMachine returns what responses mean, for who has frames already. Close ends the response at hand;
// another may follow.
func NewMachine(out *provider.Writer) provider.Machine { return &machine{out: out} }

type machine struct {
	out     *provider.Writer
	now     *answer // the candidate that is being emitted; nil between responses
	id      string  // of its response
	steady  int     // chunks in a row with this id; negative: ids mean nothing
	failed  bool    // an error has come in the place of a response
	waiting []*candidate
	held    int // bytes that wait
}

// candidate is one that waits for the first to end.
type candidate struct {
	index  int
	chunks []json.RawMessage
}

// Bounds of the candidates that wait.
const (
	maxHeld    = 4 << 20 // bytes
	maxWaiting = 64
)

const cut = "the provider's stream ended before the message did"

// Done: some relays end every stream so.
func (d *machine) Done() {}

// Close ends the response at hand.
func (d *machine) Close() { d.end(cut) }

// Frame takes one response or one chunk of it.
func (d *machine) Frame(name string, all provider.Fields) {
	whole := all
	if inner := all.Object("response"); isResponse(inner) { // as Code Assist wraps it
		all = inner
	}
	failed := all.Get("error")
	if failed != nil && provider.IsNull(failed) {
		failed = nil
	}
	switch {
	case isResponse(all):
		d.response(all)
	case failed == nil:
		d.out.Custom(name, whole)
	}
	if failed != nil {
		d.fail(whole, failed)
	}
}

// isResponse reports whether an object has what a response has.
func isResponse(all provider.Fields) bool {
	for _, name := range []string{"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"} {
		if all.Get(name) != nil {
			return true
		}
	}
	return false
}

// fail takes an error in place of the rest.
func (d *machine) fail(whole provider.Fields, failed json.RawMessage) {
	if d.now != nil && d.now.finished {
		d.end(cut)
	}
	d.out.Custom("error", whole)
	if d.now != nil {
		d.now.settle(false)
		d.now.Msg.Fail(bytes.Clone(failed))
		d.now = nil
		d.end(cut)
	}
	d.failed = true
}

func (d *machine) response(all provider.Fields) {
	list := provider.Elements(all.Get("candidates"))
	id := all.Str("responseId")
	if d.now != nil && d.isNext(id) {
		d.end("another response began")
	}
	if d.now == nil && d.failed && len(list) == 0 {
		d.out.Custom("chunk", all)
		return
	}
	if d.now == nil {
		d.begin(id, all, list)
	}
	if id != "" {
		d.id = id
	}
	m := d.now.Msg
	for _, f := range all {
		switch f.Name {
		case "candidates":
			if len(list) == 0 && string(f.Value) != "[]" && !provider.IsNull(f.Value) {
				d.out.Custom("candidates", provider.Fields{f})
			}
		case "responseId", "modelVersion":
		case "usageMetadata":
			m.Count(all.Object(f.Name))
		default:
			d.now.keep(f)
		}
	}
	for _, raw := range list {
		d.candidate(raw)
	}
	if reason := all.Object("promptFeedback").Str("blockReason"); reason != "" && len(list) == 0 {
		d.now.refused()
	}
}

// isNext reports whether a chunk belongs to another response than the one at hand: it has another id, and ids mean
// something. Services give an id of its own to every chunk, and a reason to finish. Without ids a body is one response.
func (d *machine) isNext(id string) bool {
	if id == "" || d.id == "" || id == d.id || d.steady < 0 {
		d.steady++
		return false
	}
	if d.steady > 2 || d.now.finished {
		return true
	}
	d.steady = math.MinInt
	return false
}

func (d *machine) begin(id string, all provider.Fields, list []json.RawMessage) {
	a := newAnswer(d.out, -1)
	role := ""
	if len(list) > 0 {
		c, _ := provider.Parse(list[0])
		a.index = place(c)
		role = c.Object("content").Str("role")
	}
	a.Msg = d.out.Start(id, role, bytes.Clone(all.Get("modelVersion")), nil)
	d.now, d.id, d.steady = a, id, 1
}

// place of a candidate: the first one may leave it out.
func place(c provider.Fields) int { return max(c.Index(), 0) }

// candidate emits one candidate of a chunk, or holds it until its turn.
func (d *machine) candidate(raw json.RawMessage) {
	c, ok := provider.Parse(raw)
	if !ok {
		d.out.Custom("candidate", provider.Fields{{Name: "candidate", Value: raw}})
		return
	}
	index := place(c)
	if d.now.index < 0 {
		d.now.index = index
	}
	if index == d.now.index {
		d.now.emit(c)
		return
	}
	for _, w := range d.waiting {
		if w.index == index && d.held+len(raw) <= maxHeld {
			w.chunks, d.held = append(w.chunks, bytes.Clone(raw)), d.held+len(raw)
			return
		} else if w.index == index {
			d.out.Custom("candidate", c)
			return
		}
	}
	if len(d.waiting) >= maxWaiting || d.held+len(raw) > maxHeld {
		d.out.Custom("candidate", c)
		return
	}
	d.waiting, d.held = append(d.waiting, &candidate{index, []json.RawMessage{bytes.Clone(raw)}}), d.held+len(raw)
}

// end ends the response at hand: the message that is open, and those that waited for it.
func (d *machine) end(why string) {
	if d.now != nil {
		d.now.end(why)
	}
	first := d.now
	d.now = nil
	waiting := d.waiting
	d.waiting, d.held = nil, 0
	for _, w := range waiting {
		id := d.id
		if id == "" && first != nil {
			id = first.Msg.ID
		}
		if id != "" {
			id += "_candidate_" + strconv.Itoa(w.index)
		}
		a := newAnswer(d.out, w.index)
		a.Msg = d.out.Start(id, "assistant", nil, nil)
		for _, raw := range w.chunks {
			c, _ := provider.Parse(raw)
			a.emit(c)
		}
		a.end(why)
	}
	d.id = ""
}

// answer is one candidate as it is emitted: one message.
type answer struct {
	provider.Assembly
	index int

	media *medium                    // data that may go on
	call  *call                      // whose arguments stream
	made  map[string]json.RawMessage // arguments of the whole calls, by id
	calls bool                       // a call was made
	code  string                     // code whose result is not known yet

	finished        bool
	reason, message string // why, as the API says
}

func newAnswer(out *provider.Writer, index int) *answer {
	a := &answer{index: index}
	a.Out = out
	return a
}

// keep stores a member for message.end. What has no place there is kept beside it.
func (a *answer) keep(f provider.Field) {
	switch f.Name {
	case "message_id", "content", "usage", "error", "incomplete", "omitted", "omitted_bytes", "stop_reason", "stop_sequence", "finish_reason":
		a.Out.Custom("member", provider.Fields{f})
		return
	}
	old := a.Msg.Rest.Get(f.Name)
	switch {
	case string(f.Value) == "{}" && old != nil, bytes.Equal(old, f.Value):
		return // it is empty
	case f.Name != "safetyRatings" && len(old) > len("{}") && (old[0] == '{' || old[0] == '['):
		a.Out.Custom(f.Name, provider.Fields{{Name: f.Name, Value: old}}) // the newer one counts; nothing is lost
	}
	a.Msg.Keep(f)
}

// emit takes a chunk of the candidate.
func (a *answer) emit(c provider.Fields) {
	content, isList := provider.Parse(c.Get("content"))
	parts := provider.Elements(content.Get("parts"))
	reason := c.Str("finishReason")
	again := reason != "" && a.Heard("text", content.Get("parts"))
	if again {
		a.Out.Beside("content", content)
	}
	a.Step(again)
	for _, raw := range parts {
		a.part(raw)
	}
	for _, f := range content {
		if f.Name != "parts" && f.Name != "role" {
			a.Out.Custom("content", content)
			break
		}
	}
	for _, f := range c {
		switch f.Name {
		case "index", "finishReason":
		case "content":
			if !isList && !provider.IsNull(f.Value) {
				a.Out.Custom("content", provider.Fields{f})
			}
		default:
			a.keep(f)
		}
	}
	if reason != "" {
		a.finish(reason, c.Str("finishMessage"), len(parts) == 0)
	}
}

// end ends the message.
func (a *answer) end(why string) {
	a.settle(a.finished)
	if !a.finished {
		a.Msg.Abandon(why)
		return
	}
	a.stop()
}

// settle ends what is open of the blocks. Arguments that were to go on are cut short in any case.
func (a *answer) settle(finished bool) {
	if a.call != nil {
		a.call.end(a, false)
	}
	a.Assembly.End(finished)
	a.media.end(finished)
	a.media = nil
	if a.code != "" {
		a.Out.Result(a.code, true, provider.ErrorOf("no_result", "the answer holds no result of this code"), "codeExecutionResult")
		a.code = ""
	}
}

// callID names a call that the API did not name.
func (a *answer) callID(id string, index int) string {
	if id = provider.Bounded(id); id == "" {
		id = fmt.Sprintf("call_%s_%d", a.Msg.ID, index)
	}
	return id
}
