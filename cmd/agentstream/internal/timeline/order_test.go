package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/provider/providertest"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// builtIn are the recordings in which the provider runs tools within a message.
var builtIn = []string{
	"anthropic/code-execution-long.jsonl", "anthropic/mcp-tool.sse", "anthropic/pause-turn-step1.sse",
	"anthropic/pause-turn-step2.sse",
	"anthropic/web-search-citations.sse", "openai-responses/code-interpreter.jsonl",
	"openai-responses/web-search.jsonl", "gemini/code-execution.sse",
}

// TestOrderOfBuiltInTools: text, thoughts and calls of a message with tools of the provider's are shown in the order in
// which they came, by the console and by tail.
func TestOrderOfBuiltInTools(t *testing.T) {
	recordings, dir := providertest.Dir(t), t.TempDir()
	want := map[string][]string{}
	for _, name := range builtIn {
		format, _, _ := strings.Cut(name, "/")
		events := eventsOf(t, format, filepath.Join(recordings, filepath.FromSlash(name)))
		file := strings.ReplaceAll(name, "/", "_")
		want[file] = cameAs(t, events)
		var lines bytes.Buffer
		for i, e := range events {
			e.Seq, e.RunID = schema.Seq(i+1), "run"
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(line, '\n'))
		}
		if err := os.WriteFile(filepath.Join(dir, file), lines.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if shown := glyphs(show(t, terminal.Screen{}, events)); shown != glyphsOf(want[file]) {
			t.Errorf("%s: tail shows %s, and %s came", name, shown, glyphsOf(want[file]))
		}
	}
	program := testkit.Node(t)
	// node
	out, err := exec.CommandContext(t.Context(), program, "../../../../edge/console/testdata/order.mjs",
		dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range bytes.Lines(out) {
		var got struct {
			File  string
			Shown []string
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		if w := want[got.File]; !slices.Equal(got.Shown, w) || len(w) < 2 {
			t.Errorf("%s\n shown %q\n  came %q", got.File, got.Shown, w)
		}
		delete(want, got.File)
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
}

// glyphs returns the kinds of the paragraphs that tail has shown: text and thoughts, each once in a row, and the calls'
// beginnings, or their ends where they began elsewhere.
func glyphs(shown string) string {
	var out strings.Builder
	running := 0
	for line := range strings.Lines(shown) {
		if len(line) < clockColumns+glyphColumns || strings.TrimSpace(line[:clockColumns]) == "" {
			continue
		}
		kind := "t"
		switch rest := line[clockColumns:]; {
		case strings.HasPrefix(rest, "~"):
			kind = "r"
		case strings.HasPrefix(rest, "▶"):
			kind = "c"
			running++
		case strings.HasPrefix(rest, "✓") && running > 0:
			running--
			continue
		case strings.HasPrefix(rest, "✓"):
			kind = "c"
		case !strings.HasPrefix(rest, "  "):
			continue
		}
		if kind == "c" || !strings.HasSuffix(out.String(), kind) {
			out.WriteString(kind)
		}
	}
	return out.String()
}

func glyphsOf(came []string) string {
	out := ""
	for _, what := range came {
		if kind := what[:1]; kind == "c" || !strings.HasSuffix(out, kind) {
			out += kind
		}
	}
	return out
}

// cameAs returns what a person is to see of events, in their order.
func cameAs(t *testing.T, events []schema.Event) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		var p struct {
			Index  int
			CallID string `json:"call_id"`
			Text   json.RawMessage
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		kind, isDelta := strings.CutSuffix(e.Type, ".delta")
		what := fmt.Sprintf("%s %d", kind, p.Index)
		if e.Type == schema.TypeToolStart || e.Type == schema.TypeToolEnd {
			what = "call " + p.CallID
		} else if !isDelta || kind != "text" && kind != "reasoning" || string(p.Text) == `""` {
			continue
		}
		if !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	return out
}
