package producers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
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

// written are units of text that a cut may divide: characters, those that are combined, and what JSON escapes.
var written = []string{"a", "\u00e9", "e\u0301", "я", "й", "世", "\u202e", "👍🏽", "👩‍👩‍👧", "🇨🇿", "\u0000", "\n",
	`\`, `"`, " "}

func someText(rnd *rand.Rand) string {
	var b strings.Builder
	for range 1 + rnd.IntN(30) {
		b.WriteString(written[rnd.IntN(len(written))])
	}
	return b.String()
}

// TestOutputsOfProcessesBesideEachOther reads two processes as they write, a few bytes at a time and in turns, and a
// model's pieces that are cut anywhere: what is joined is what was said.
func TestOutputsOfProcessesBesideEachOther(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		said := [2]string{someText(rnd), someText(rnd)}
		var s told
		r := newRun(t, &s)
		must(t, r.State(t.Context(), schema.StateRunning, ""))
		turn, err := r.Turn(t.Context())
		must(t, err)
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		for i := 0; i < len(said[0]); {
			n := min(1+rnd.IntN(5), len(said[0])-i)
			must(t, m.Text(said[0][i:i+n]))
			i += n
		}
		callBeside(t, rnd, m, said)
		must(t, turn.End("end_turn"), r.Finish(t.Context()))
		if got := deltaText(t, s.events, schema.TypeTextDelta); got != said[0] {
			t.Errorf("seed %d: %q, want %q", seed, got, said[0])
		}
		for i, want := range said {
			own := slices.DeleteFunc(slices.Clone(s.events), func(e schema.Event) bool {
				return !strings.Contains(string(e.Payload), fmt.Sprintf(`"call_%d"`, i))
			})
			if got := deltaText(t, own, schema.TypeToolOutputDelta); got != want {
				t.Errorf("seed %d: output %d is %q, want %q", seed, i, got, want)
			}
		}
	}
}

// callBeside ends a message with two calls, whose outputs are those of processes that say the texts.
func callBeside(t *testing.T, rnd *rand.Rand, m *producers.Message, said [2]string) {
	t.Helper()
	var calls [2]*producers.Call
	var outputs [2]io.Reader
	for i := range calls {
		var err error
		calls[i], err = m.Call(fmt.Sprint("call_", i), "cat")
		must(t, err, calls[i].Ready(map[string]string{"say": said[i]}))
		process := exec.CommandContext(t.Context(), "cat")
		process.Stdin = strings.NewReader(said[i])
		outputs[i], err = process.StdoutPipe()
		must(t, err, process.Start())
		t.Cleanup(func() { _ = process.Wait() })
	}
	must(t, m.End("tool_use", nil), calls[0].Run(), calls[1].Run())
	for open := 2; open > 0; {
		i := rnd.IntN(2)
		if outputs[i] == nil {
			continue
		}
		piece := make([]byte, 1+rnd.IntN(7))
		n, err := outputs[i].Read(piece)
		must(t, calls[i].Output(string(piece[:n])))
		if err != nil {
			outputs[i] = nil
			open--
		}
	}
	must(t, calls[0].Finish("done"), calls[1].Finish("done"))
}
