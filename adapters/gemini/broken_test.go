package gemini

import (
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider/providertest"
)

// TestBroken: each kind of break that services have, in small.
func TestBroken(t *testing.T) {
	id := func(s string) string { return strings.Replace(parts(`{"text":"`+s+`"}`), "r1", "r"+s, 1) }
	noID := func(s string) string {
		return strings.Replace(parts(`{"text":"`+s+`"}`, stop), `,"responseId":"r1"`, "", 1)
	}
	call := `{"functionCall":{"id":"x","name":"f","args":{"a":1}}}`
	for name, tt := range map[string]struct {
		frames []string
		want   string // the text, and the calls
	}{
		"STOP on each chunk": {[]string{parts(`{"text":"Hel"}`, stop), parts(`{"text":"lo."}`, stop),
			parts(call, stop)}, "Hello. f"},
		"STOP on each, no ids": {[]string{noID("Hel"), noID("lo.")}, "Hello."},
		"STOP amid arguments": {[]string{parts(`{"functionCall":{"name":"f","willContinue":true}}`, stop),
			parts(piece(false, arg("$.a", "numberValue", "1", false)), stop)}, " f"},
		"an id for each chunk": {[]string{id("a"), id("b"), id("c"), parts("", stop)}, "abc"},
		"a call twice":         {[]string{parts(call), parts(call), parts("", stop)}, " f"},
		"text again": {[]string{parts(`{"text":"It is as "}`), parts(`{"text":"long as"}`),
			parts(`{"text":" that."}`), parts(`{"text":"It is as long as that."}`, stop)}, "It is as long as that."},
		"no usage behind the usage": {[]string{strings.Replace(parts(`{"text":"a"}`), `"modelVersion"`,
			`"usageMetadata":{"n":3},"modelVersion"`, 1),
			strings.Replace(parts("", stop), `"modelVersion"`, `"usageMetadata":{"n":0},"modelVersion"`, 1)}, "a"},
		"counts behind an error":   {[]string{`{"error":{"code":1}}`, `{"usageMetadata":{"n":3}}`}, "none"},
		"a list within one event":  {[]string{"[" + parts(`{"text":"a"}`) + "," + parts(`{"text":"b"}`, stop) + "]"}, "ab"},
		"two objects in one event": {[]string{parts(`{"text":"a"}`) + parts(`{"text":"b"}`, stop)}, "ab"},
		"one object in two events": {[]string{parts(`{"text":"a"}`)[:20], parts(`{"text":"a"}`)[20:],
			parts("", stop)}, "a"},
		"the same chunk, with count": {[]string{strings.Replace(parts(`{"text":"a"}`), `"modelVersion"`,
			`"usageMetadata":{"candidatesTokenCount":3},"modelVersion"`, 1),
			strings.Replace(parts(`{"text":"a"}`), `"modelVersion"`,
				`"usageMetadata":{"candidatesTokenCount":3},"modelVersion"`, 1), parts("", stop)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			events := decodeAll(t, []byte(sse(tt.frames...)))
			checkEvents(t, events)
			got := "none"
			for i, o := range geminitest.FromFold(t, events) {
				if i > 0 {
					t.Error("another message began")
				}
				got = o.Text
				for _, c := range o.Calls {
					got += " " + c.Name
				}
				if o.Err != nil || strings.Contains(name, "usage") &&
					!strings.Contains(providertest.Print(events), `"usage":{"n":3}`) {
					t.Error(providertest.Print(events))
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q\n%s", got, tt.want, providertest.Print(events))
			}
		})
	}
}
