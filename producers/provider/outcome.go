package provider

import (
	"encoding/json"
	"strings"

	"agentstream/schema"
)

// Outcome says how model calls went, for whoever ends the run. A run is judged by its last message.
// The zero value is ready.
type Outcome struct {
	messages int
	reason   string // why it failed; "" when it did not
}

// See takes the next event of a decoder.
func (o *Outcome) See(e *schema.Event) {
	switch {
	case e.Type == schema.TypeMessageStart:
		o.messages++
		o.reason = ""
	case e.Type == schema.TypeMessageEnd, strings.HasPrefix(e.Type, "custom.") && strings.HasSuffix(e.Type, ".error"):
		all, _ := Parse(e.Payload)
		if v := all.Get("error"); v != nil && !IsNull(v) {
			o.reason = ErrorText(v)
		}
	}
}

// End gives the final state and its reason.
func (o *Outcome) End() (schema.RunState, string) {
	switch {
	case o.reason != "":
		return schema.StateError, o.reason
	case o.messages == 0:
		return schema.StateError, "the stream holds no message"
	}
	return schema.StateDone, ""
}

// maxReason bounds a reason that is made of what a provider said, in bytes.
const maxReason = 1 << 10

// ErrorText puts a provider's error, an object or a string, into words.
func ErrorText(v json.RawMessage) string {
	text := ""
	if all, ok := Parse(v); ok {
		for _, part := range []string{all.Str("type"), all.Str("code"), all.Str("message")} {
			if part != "" && part != text {
				if text != "" {
					text += ": "
				}
				text += part
			}
		}
	} else if IsString(v) {
		text = Fields{{"s", v}}.Str("s")
	}
	if text == "" {
		text = string(v)
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
