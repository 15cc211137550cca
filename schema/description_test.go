package schema_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"agentstream/schema"
)

func TestOpening(t *testing.T) {
	long := strings.Repeat("да ", 400)
	for payload, want := range map[string]string{
		`{"content":"  Find \n the\tleak "}`: "Find the leak",
		`{"content":[{"type":"image"},{"type":"text","text":" "},{"type":"text","text":"a\u0000b"}]}`: "a\uFFFDb",
		`{"content":[{"text":"plain"}]}`: "plain",
		`{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c","name":"grep","input":{"text":"no"}},` +
			`{"type":"tool_result","content":[{"type":"text","text":"no"}]},{"type":"text","text":" Found\nit."}]}`: "I look. Found it.",
		`{"content":[{"text":"` + long + `"},{"text":"behind"}]}`: long[:len("да ")*66] + "д…",
		`{"content":"x","role":"system"}`:                         "",
		`{"content":[]}`:                                          "", `{}`: "", `{"content":7}`: "", `{"content":null}`: "", `[]`: "",
		`{"content":"\ud800x"}`:      "\uFFFDx",
		`{"content":"` + long + `"}`: long[:len("да ")*66] + "д…",
	} {
		for _, typ := range []string{schema.TypeCommandMessage, schema.TypeMessageEnd} {
			got := schema.Opening(typ, []byte(payload))
			if got != want || !utf8.ValidString(got) {
				t.Errorf("%s: %q, want %q", payload, got, want)
			}
		}
	}
	if got := schema.Opening(schema.TypeTextDelta, []byte(`{"content":"x"}`)); got != "" {
		t.Errorf("a delta opens with %q", got)
	}
	for n := range 2000 { // every cut
		if got := schema.Opening(schema.TypeCommandMessage,
			[]byte(`{"content":"`+strings.Repeat("a", n)+strings.Repeat("€", 800)+`"}`)); !utf8.ValidString(got) ||
			strings.ContainsRune(got, utf8.RuneError) {
			t.Fatalf("cut behind %d: %q", n, got)
		}
	}
}

// TestParseDescription holds that what a client writes into the headers is what is said of the run.
func TestParseDescription(t *testing.T) {
	d, err := schema.ParseDescription(map[string][]string{
		schema.HeaderTitle: {" Путь%2C 100%25 "}, schema.HeaderTags: {"a, b%20c,,d"},
		schema.HeaderMetadata: {"k=v=w, %3D=%2C"},
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.Event()
	if want := `{"title":"Путь, 100%","tags":["a","b c","d"],"metadata":{"=":",","k":"v=w"}}`; err != nil ||
		string(e.Payload) != want {
		t.Errorf("%s %v, want %s", e.Payload, err, want)
	}
	if d, err = schema.ParseDescription(nil); err != nil || !d.IsZero() {
		t.Errorf("%+v %v without headers", d, err)
	}
}
