package provider

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Outcome is how a model call went, for the end of the run. A body with several messages is judged by its last one,
// and by all frames that could not be read. The zero value is ready; use one for each body.
type Outcome struct {
	messages int
	reason   string // why it failed; "" when it did not
	cut      bool   // that was the end of the stream, and not the provider
	broken   string // why the first frame that cannot be read cannot
	kept     int    // events under custom.*
	making   bool   // a response is still being made, and will be asked for another time
}

// CountKept counts what the adapter has no type for in the catalogue, or cannot read: unknown events and
// blocks, bad frames. They are in the run under custom.*.
func (o *Outcome) CountKept() int { return o.kept }

// See takes the next event of a decoder.
func (o *Outcome) See(e *schema.Event) {
	if strings.HasPrefix(e.Type, "custom.") {
		o.kept++
	}
	ends := e.Type == schema.TypeMessageEnd
	switch {
	case e.Type == schema.TypeMessageStart:
		o.messages++
		o.reason, o.cut = "", false
	case ends, isCustom(e.Type, ".error"):
		all, _ := Parse(e.Payload)
		if v := all.Get("error"); v != nil && !IsNull(v) {
			o.reason = ErrorText(v)
			o.cut = ends && all.Object("error").Str("type") == errorCut
		}
	case isCustom(e.Type, ".response"):
		all, _ := Parse(e.Payload)
		o.making = all.Str("status") == "queued" || all.Str("status") == "in_progress"
	case o.broken == "" && isCustom(e.Type, ".bad_frame"):
		all, _ := Parse(e.Payload)
		o.broken = "a frame of the stream cannot be read: " + all.Str("problem")
	}
}

func isCustom(typ, name string) bool {
	return strings.HasPrefix(typ, "custom.") && strings.HasSuffix(typ, name)
}

// State returns the final state and its reason. A failure that the provider reports counts more than what is
// wrong with the stream, and that the stream was cut more than the frame that it was cut in.
func (o *Outcome) State() (schema.RunState, string) {
	if why := cmp.Or(o.reason, o.Damage()); why != "" {
		return schema.StateError, why
	}
	return schema.StateDone, ""
}

// Damage returns why the stream is not as the provider sent it: it was cut, a frame cannot be read, or no
// message is in it and no error either. "" where it is whole; a call that failed may be.
func (o *Outcome) Damage() string {
	switch {
	case o.cut:
		return o.reason
	case o.broken != "":
		return o.broken
	case o.messages == 0 && o.reason == "" && !o.making:
		return "the stream holds no message"
	}
	return ""
}

// maxReason bounds a reason that is made of a provider's text, in bytes.
const maxReason = 1 << 10

// ErrorOf makes an error as payloads have it.
func ErrorOf(typ, message string) json.RawMessage {
	return Fields{{"type", Quote(typ)}, {"message", Quote(message)}}.Encode()
}

// FailureFields returns the fields of a tool.end with why the call failed: a code of schema, and what is known besides.
func FailureFields(code string, detail json.RawMessage) Fields {
	return Fields{{"error", Quote(code)}, {"error_detail", OrNull(detail)}}
}

// StateFields returns the fields of a run.lifecycle. reason is shortened; "" is none.
func StateFields(state schema.RunState, reason string) Fields {
	p := Fields{{"state", Quote(string(state))}}
	if reason != "" {
		p = append(p, Field{"reason", Quote(Clip(reason))})
	}
	return p
}

// ErrorText returns the text of a provider's error, an object or a string.
func ErrorText(v json.RawMessage) string {
	all, _ := Parse(v)
	parts := []string{all.Str("type"), all.Str("code"), all.Str("message")}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	text := strings.Join(slices.Compact(parts), ": ")
	return Clip(cmp.Or(text, jsonscan.FirstText(string(v), v)))
}

// Clip shortens a text that becomes a reason, at a character's end.
func Clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxReason)], "") }
