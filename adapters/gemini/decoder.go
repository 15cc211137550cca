package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

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
	now     *answer   // the candidate that is being emitted; nil between responses
	id      string    // of its response
	steady  int       // chunks in a row with this id; negative: ids mean nothing
	failed  bool      // an error has come in the place of a response
	waiting []*answer // candidates whose events wait for the first to end
	held    int       // bytes of their chunks
}

// Bounds of the candidates that wait.
const (
	maxHeld    = 4 << 20 // bytes
	maxWaiting = 64
)

const cut = "the provider's stream ended before the message did"

// Close ends the response at hand.
func (d *machine) Close() { d.finish(cut) }

// Frame takes one response or one chunk of it.
func (d *machine) Frame(name string, all provider.Fields) {
	whole := all
	if inner := all.Object("response"); isResponse(inner) { // as Code Assist wraps it
		all = inner
	}
	failed := all.Get("error")
	wrong := failed != nil && !provider.IsNull(failed)
	switch {
	case isResponse(all):
		d.response(all)
	case !wrong:
		d.out.Custom(name, whole)
	}
	if wrong {
		d.fail(whole, failed)
	}
}

var response = []string{"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"}

// isResponse reports whether an object has what a response has.
func isResponse(all provider.Fields) bool {
	return slices.ContainsFunc(all, func(f provider.Field) bool { return slices.Contains(response, f.Name) })
}

// fail takes an error in place of the rest.
func (d *machine) fail(whole provider.Fields, failed json.RawMessage) {
	if d.now != nil && d.now.finished {
		d.finish(cut)
	}
	d.out.Custom("error", whole)
	if d.now != nil {
		d.now.Msg.Fault = bytes.Clone(failed)
		d.finish(cut)
	}
	d.failed = true
}

func (d *machine) response(all provider.Fields) {
	list := provider.Elements(all.Get("candidates"))
	id := all.Str("responseId")
	if d.now != nil && d.isNext(id) {
		d.finish("another response began")
	}
	if d.now == nil && d.failed && len(list) == 0 {
		d.out.Custom("chunk", all)
		return
	}
	if d.now == nil {
		first := provider.Fields(nil)
		if len(list) > 0 {
			first, _ = provider.Parse(list[0])
		}
		m := d.out.Start(id, first.Object("content").Str("role"), bytes.Clone(all.Get("modelVersion")), nil)
		d.now = &answer{Assembly: provider.Assembly{Out: d.out, Msg: m}, index: max(first.Index("index"), 0)}
		d.id, d.steady = id, 1
	}
	if id != "" {
		d.id = id
	}
	m := d.now.Msg
	m.Count(all.Object("usageMetadata"))
	odd := all.Get("candidates")
	if len(list) == 0 && provider.HasValue(odd) {
		d.out.Custom("candidates", provider.Fields{{Name: "candidates", Value: odd}})
	}
	for _, f := range all.Without("candidates", "responseId", "modelVersion", "usageMetadata") {
		d.now.keep(f)
	}
	for _, raw := range list {
		d.candidate(raw)
	}
	if reason := all.Object("promptFeedback").Str("blockReason"); reason != "" && len(list) == 0 && len(m.Blocks) == 0 {
		d.now.finished = true // the model never answered
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

// candidate emits one candidate of a chunk.
func (d *machine) candidate(raw json.RawMessage) {
	c, ok := provider.Parse(raw)
	if !ok {
		d.out.Custom("candidate", provider.Fields{{Name: "candidate", Value: raw}})
		return
	}
	a := d.now
	if index := max(c.Index("index"), 0); index != a.index {
		a = d.other(index, len(raw))
	}
	if a == nil {
		d.out.Custom("candidate", c)
		return
	}
	a.emit(c)
}

// other returns a candidate beside the first, whose events wait; nil when there are too many, or too much of them.
func (d *machine) other(index, size int) *answer {
	if d.held+size > maxHeld {
		return nil
	}
	at := slices.IndexFunc(d.waiting, func(a *answer) bool { return a.index == index })
	if at < 0 && len(d.waiting) >= maxWaiting {
		return nil
	}
	d.held += size
	if at >= 0 {
		return d.waiting[at]
	}
	out := d.out.Aside()
	m := out.Start(fmt.Sprintf("%s_candidate_%d", d.now.Msg.ID, index), "assistant", nil, nil)
	a := &answer{Assembly: provider.Assembly{Out: out, Msg: m}, index: index}
	d.waiting = append(d.waiting, a)
	return a
}

// finish ends the response at hand: the message that is open, and those that waited for it.
func (d *machine) finish(why string) {
	if d.now != nil {
		d.now.endMessage(why)
	}
	for _, a := range d.waiting {
		a.endMessage(why)
		d.out.Join(a.Out)
	}
	d.now, d.waiting, d.held, d.id = nil, nil, 0, ""
}

// answer is one candidate as it is emitted: one message.
type answer struct {
	provider.Assembly
	index int

	call   *streamedCall // whose arguments stream
	called bool          // a call was made
	code   string        // code whose result is not known yet

	finished        bool
	reason, message string // why, as the API says
}

// keep stores a member for message.end. The newer one counts, and nothing is lost of what is no number and no rating.
func (a *answer) keep(f provider.Field) {
	if string(f.Value) == "{}" && a.Msg.Rest.Get(f.Name) != nil {
		return
	}
	old := a.Msg.Keep(f)
	if f.Name != "safetyRatings" && provider.HasValue(old) && (old[0] == '{' || old[0] == '[') {
		a.Out.Custom(f.Name, provider.Fields{{Name: f.Name, Value: old}})
	}
}

// emit takes a chunk of the candidate.
func (a *answer) emit(c provider.Fields) {
	content, isObject := provider.Parse(c.Get("content"))
	parts := provider.Elements(content.Get("parts"))
	reason := c.Str("finishReason")
	again := reason != "" && a.IsRepeat("text", content.Get("parts"))
	if again {
		a.Out.Beside("content", content)
	}
	a.Step(again)
	for _, raw := range parts {
		a.part(raw)
	}
	if content.Without("parts", "role") != nil {
		a.Out.Custom("content", content)
	}
	if !isObject && provider.HasValue(c.Get("content")) {
		a.Out.Custom("content", provider.Fields{{Name: "content", Value: c.Get("content")}})
	}
	for _, f := range c.Without("index", "finishReason", "content") {
		a.keep(f)
	}
	if reason == "" {
		return
	}
	if len(parts) == 0 { // services send a reason with every chunk: nothing ends with it but what nothing follows
		a.Stop()
	}
	a.finished, a.reason, a.message = true, reason, c.Str("finishMessage")
	a.Msg.Rest = a.Msg.Rest.Set("finish_reason", provider.Quote(reason))
}

// endMessage ends the message.
func (a *answer) endMessage(why string) {
	a.settle(a.finished)
	if !a.finished {
		a.Msg.Abandon(why)
		return
	}
	word := words[a.reason]
	switch {
	case a.reason == "": // the prompt was blocked
		word = "refusal"
	case word == "":
		word = strings.ToLower(provider.ShortenID(a.reason))
	case a.reason == "STOP" && a.called:
		word = "tool_use"
	}
	a.Msg.Stop = provider.Quote(word)
	if word == failure {
		e := provider.Fields{{Name: "type", Value: provider.Quote(a.reason)}}
		if a.message != "" {
			e = append(e, provider.Field{Name: "message", Value: provider.Quote(a.message)})
		}
		a.Msg.Fault = e.Encode()
	}
	a.Msg.End(nil)
}

// settle ends what is open of the blocks. Arguments that were to go on are cut short in any case.
func (a *answer) settle(finished bool) {
	a.endCall(false)
	if finished {
		a.Stop()
	}
	if a.code != "" {
		missing := provider.ErrorOf("no_result", "the answer holds no result of this code")
		a.Out.Result(a.code, true, missing, kindResult)
		a.code = ""
	}
}

// words are the common values for the API's reasons to finish. Others stay as they are, in small letters.
var words = map[string]string{
	"STOP": "end_turn", "MAX_TOKENS": "max_tokens",
	"SAFETY": "refusal", "RECITATION": "refusal", "LANGUAGE": "refusal", "BLOCKLIST": "refusal",
	"PROHIBITED_CONTENT": "refusal", "SPII": "refusal", "MODEL_ARMOR": "refusal",
	"IMAGE_SAFETY": "refusal", "IMAGE_PROHIBITED_CONTENT": "refusal", "IMAGE_RECITATION": "refusal",
	"MALFORMED_FUNCTION_CALL": failure, "UNEXPECTED_TOOL_CALL": failure, "TOO_MANY_TOOL_CALLS": failure,
	"MISSING_THOUGHT_SIGNATURE": failure, "MALFORMED_RESPONSE": failure,
}

const failure = "error"
