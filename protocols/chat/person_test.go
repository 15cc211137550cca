package chat

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// TestPerson: what a person says is the same after it was stored.
func TestPerson(t *testing.T) {
	for name, parts := range map[string][]Part{
		"a text":   {{Text: "hello \u2028 \"you\""}},
		"two":      {{Text: "a"}, {Text: "b"}},
		"an image": {{Text: "see"}, {URL: "data:image/png;base64,AAAA", Media: "image/png", Name: "x.png"}},
		"a page":   {{URL: "https://example.com/a.pdf", Media: "document/*", Name: "a"}},
	} {
		payload, err := Payload("m1", parts)
		if err != nil {
			t.Fatal(err)
		}
		records := recordsOf(t, []schema.Event{{Type: schema.TypeCommandMessage, Payload: payload}})
		if id, got, ok := MessageOf(records[0]); !ok || id != "m1" || !slices.Equal(got, parts) {
			t.Errorf("%s: %q %+v", name, id, got)
		}
	}
	for _, bad := range []struct {
		id    string
		parts []Part
	}{{"", []Part{{Text: "x"}}}, {strings.Repeat("x", MaxID+1), []Part{{Text: "x"}}}, {"m", nil}} {
		if _, err := Payload(bad.id, bad.parts); !errors.Is(err, dialect.ErrBadRequest) {
			t.Errorf("%.10q %v: %v", bad.id, bad.parts, err)
		}
	}
	for _, e := range []schema.Event{ev(says, `{"content":"x","role":"system"}`), ev(text, `{"text":"x"}`),
		ev("kid: "+says, `{"content":"x"}`)} {
		if _, _, ok := MessageOf(recordsOf(t, []schema.Event{e})[0]); ok {
			t.Errorf("%s %s", e.Type, e.Payload)
		}
	}
}
