package producers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// deltaText joins the texts of the deltas of a type.
func deltaText(t *testing.T, events []schema.Event, typ string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		if e.Type != typ {
			continue
		}
		var p struct{ Text string }
		must(t, json.Unmarshal(e.Payload, &p))
		b.WriteString(p.Text)
	}
	return b.String()
}

// TestPiecesEndWithinCharacters: wherever a text is cut into three pieces, it is joined again at its characters: in
// texts, thoughts, inputs and outputs of calls.
func TestPiecesEndWithinCharacters(t *testing.T) {
	const text = "\"Привет, 世界 👍🏽 é\""
	for i := range len(text) {
		for j := i; j < len(text); j++ {
			var s told
			writePieces(t, &s, text[:i], text[i:j], text[j:])
			for _, typ := range []string{schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta,
				schema.TypeToolOutputDelta} {
				if got := deltaText(t, s.events, typ); got != text {
					t.Fatalf("%s, cut at %d and %d: %q", typ, i, j, got)
				}
			}
		}
	}
}

// TestCharactersThatNeverEnd: the beginning of a character whose end does not come is U+FFFD at the end of what it is
// in.
func TestCharactersThatNeverEnd(t *testing.T) {
	var s told
	writePieces(t, &s, `"a`, "\xf0\x9f\x91", `"`)
	for _, typ := range []string{schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta,
		schema.TypeToolOutputDelta} {
		if got, want := deltaText(t, s.events, typ), "\"a\ufffd\ufffd\ufffd\""; got != want {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
	s = told{}
	r := newRun(t, &s)
	must(t, r.State(t.Context(), schema.StateRunning, ""))
	turn, err := r.Turn(t.Context())
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	must(t, m.Text("a\xd0"), m.Reasoning("b\xd0"), m.Fail(nil), turn.End("end_turn"), r.Finish(t.Context()))
	if got := deltaText(t, s.events, schema.TypeTextDelta) +
		deltaText(t, s.events, schema.TypeReasoningDelta); got != "a\ufffdb\ufffd" {
		t.Errorf("%q", got)
	}
}

// writePieces writes the pieces as a thought, a text, and the input and the output of a call.
func writePieces(t *testing.T, s *told, pieces ...string) {
	t.Helper()
	r := newRun(t, s)
	must(t, r.State(t.Context(), schema.StateRunning, ""))
	turn, err := r.Turn(t.Context())
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	write := func(fn func(string) error) {
		for _, p := range pieces {
			must(t, fn(p))
		}
	}
	write(m.Reasoning)
	write(m.Text)
	c, err := m.Call("", "tool")
	must(t, err)
	write(c.Input)
	must(t, c.Ready(nil), m.End("tool_use", nil), c.Run())
	write(c.Output)
	must(t, c.Finish("done"), turn.End("end_turn"), r.Finish(t.Context()))
}
