package timeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// eventsOf returns a recording's events, 250 ms apart.
func eventsOf(t *testing.T, format, file string) (events []schema.Event) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := decoderNamed(format); d != nil {
		events = providertest.Decode(t, d, data)
	} else {
		for e, err := range transcript.Decode(format, bytes.NewReader(data),
			transcript.Config{RunID: "run_golden", Lifecycle: true}) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range events {
		events[i].TS = at.Add(time.Duration(i) * 250 * time.Millisecond).Format(schema.TimeLayout)
	}
	return events
}

// decoderNamed returns the decoder of a provider; nil for transcripts.
func decoderNamed(format string) *provider.Decoder {
	decoders := map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder, "openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	}
	if decoders[format] == nil {
		return nil
	}
	return decoders[format](provider.Config{})
}

// TestTimelineRecordings holds what a person sees of each recording to testdata/recordings.txt: a sum over
// it, and how many lines begin with which sign, for the recordings themselves are never part of the repository.
// Nothing of the catalogue is shown as raw JSON.
func TestTimelineRecordings(t *testing.T) {
	var lines []string
	for format, files := range clitest.Recordings(t) {
		if decoderNamed(format) == nil && !slices.Contains(transcript.Formats(), format) {
			continue
		}
		for _, file := range files {
			name := format + "/" + filepath.Base(file)
			text := show(t, terminal.Screen{}, eventsOf(t, format, file))
			signs := map[string]int{}
			for line := range strings.Lines(text) {
				rest := strings.TrimLeft(strings.TrimPrefix(line, strings.SplitN(line+" ", "s ", 2)[0]+"s "), " ")
				sign, shown, _ := strings.Cut(rest, " ")
				if strings.TrimSpace(line[:min(len(line), clockColumns)]) == "" ||
					!strings.Contains("~ … < # · ◇ ◆ ▫ ! ✗ ✓ ▶ ▷ ↳", sign) || sign == "" {
					sign = "text"
				}
				signs[sign]++
				if typ, _, _ := strings.Cut(strings.TrimSpace(shown), " "); sign == "·" && !strings.HasPrefix(typ, "custom.") {
					t.Errorf("%s: %s is shown as it is: %.120s", name, typ, line)
				}
			}
			var counts []string
			for sign, n := range signs {
				counts = append(counts, fmt.Sprintf("%s %d", sign, n))
			}
			slices.Sort(counts)
			lines = append(lines, fmt.Sprintf("%s %x %s\n", name, sha256.Sum256([]byte(text)), strings.Join(counts, ", ")))
		}
	}
	if slices.Sort(lines); len(lines) != 63 {
		t.Errorf("%d recordings", len(lines))
	}
	golden(t, "recordings.txt", strings.Join(lines, ""))
}

// TestTimelineOddFields puts into every event of every scenario fields of other types than expected: what is shown of
// the others stays, and where an event's own field is odd the event is there as it is as well.
func TestTimelineOddFields(t *testing.T) {
	for _, sc := range schematest.All() {
		if sc.Name == "long" || sc.Name == "hostile" {
			continue
		}
		events := told(t, sc.Name)
		plain := show(t, terminal.Screen{}, events)
		for i := range events {
			info, err := schema.Lookup(events[i].Type)
			if err != nil {
				t.Fatal(err)
			}
			var p map[string]json.RawMessage
			if err := json.Unmarshal(events[i].Payload, &p); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"text", "tools", "reason", "index", "message", "options", "state", "ok",
				"tools_allowed", "plan", "kind", "name", "done"} {
				if _, there := p[name]; !there && !strings.Contains(info.Schema, `"`+name+`"`) {
					p[name] = json.RawMessage(`{"odd":[1]}`)
				}
			}
			if events[i].Payload, err = json.Marshal(p); err != nil {
				t.Fatal(err)
			}
		}
		if got := show(t, terminal.Screen{}, events); got != plain && !strings.Contains(plain, " · ") {
			// a type without a look is shown with all that it has
			t.Errorf("%s: odd fields of others change what is shown\n%s", sc.Name, firstDifference(got, plain))
		}
	}
	for _, tt := range []struct{ typ, payload, want string }{
		{"text.delta", `{"text":7}`, `text.delta {"text":7}`},
		{"message.end", `{"message_id":"m","stop_reason":7,"content":[{"type":"text","text":"Hello"},{"type":"x","text":{}}]}`, "Hello"},
		{"message.end", `{"message_id":"m","stop_reason":7,"usage":{"input_tokens":5,"output_tokens":"x"}}`, "5 in"},
		{"tool.end", `{"call_id":"c","ok":true,"output":"done it","duration_ms":"12"}`, "done it"},
		{"tool.start", `{"call_id":"c","tool":"ls","input":{"a":1},"text":{},"error":7}`, "ls(a=1)"},
		{"run.lifecycle", `{"state":"done","reason":{"why":1}}`, "done"},
		{"plan.proposal", `{"plan":{"steps":7}}`, `plan.proposal {"plan":{"steps":7}}`},
	} {
		if got := show(t, terminal.Screen{}, []schema.Event{{Type: tt.typ,
			Payload: json.RawMessage(tt.payload)}}); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s is shown as %q", tt.typ, tt.payload, got)
		}
	}
}
