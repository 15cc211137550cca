package langgraph

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript"
	"agentstream/schema/schematest"
)

// expectation is what expected.json says of a recording, whatever the provider.
type expectation struct {
	Text, Reasoning, Refusal, RawReasoning providertest.Digest
	ToolCalls                              []struct {
		ID, Name string
		Input    any
	}
	Usage map[string]any
}

// TestRecordings: each message of each recording is well-formed, and texts, calls and usage of those of providers are
// as expected.json says.
func TestRecordings(t *testing.T) {
	t.Parallel()
	decoders := map[string]func(provider.Config) *provider.Decoder{
		"anthropic": anthropic.NewDecoder, "openai-chat": openai.NewChatDecoder,
		"openai-responses": openai.NewResponsesDecoder, "gemini": gemini.NewDecoder,
	}
	seen := 0
	for _, folder := range append(slices.Sorted(maps.Keys(decoders)), "transcripts") {
		want, read := providertest.Recordings[expectation](t, 4, folder)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			seen++
			s := schematest.Scenario{Name: name}
			if d := decoders[folder]; d != nil {
				s.Events = providertest.Decode(t, d(provider.Config{}), read(name))
			} else {
				for e, err := range transcript.Decode(strings.Split(name, ".")[1], bytes.NewReader(read(name)),
					transcript.Config{}) {
					if err != nil {
						t.Fatal(err)
					}
					e.RunID, e.ChildID, e.ID, e.Path = "", "", "", nil
					s.Events = append(s.Events, e)
				}
			}
			all := told(t, s)
			if wrong := malformed(all); wrong != "" {
				t.Errorf("%s: %s", name, wrong)
			}
			if decoders[folder] != nil {
				compare(t, name, all, want[name])
			}
		}
	}
	if seen < 63 {
		t.Errorf("only %d recordings", seen)
	}
}

func compare(t *testing.T, name string, all []event, want expectation) {
	var said, thought strings.Builder
	var usage map[string]any
	calls := map[string]any{}
	for _, e := range all {
		switch c := e.d.Content; {
		case e.Method != "messages":
		case e.d.Event == "message-finish" || e.d.Event == "usage":
			if e.d.Usage != nil {
				usage = e.d.Usage
			}
		case e.d.Event != "content-block-finish":
		case c.Type == "text":
			said.WriteString(c.Text)
		case c.Type == "reasoning":
			thought.WriteString(c.Reasoning)
		case c.Type == "tool_call" || c.Type == "server_tool_call":
			var input any
			_ = json.Unmarshal(c.Args, &input)
			calls[c.ID] = input
		case c.Type == "non_standard":
			var v struct{ Content, Refusal, Text string }
			_ = json.Unmarshal(c.Value, &v)
			said.WriteString(v.Content)
			if v.Refusal != "" && providertest.DigestOf(v.Refusal) != want.Refusal {
				t.Errorf("%s: refusal %q", name, v.Refusal)
			}
		}
	}
	if got := providertest.DigestOf(said.String()); got != want.Text {
		t.Errorf("%s: text %v, want %v", name, got, want.Text)
	}
	if got := providertest.DigestOf(thought.String()); got != want.Reasoning && got != want.RawReasoning {
		t.Errorf("%s: reasoning %v, want %v", name, got, want.Reasoning)
	}
	for _, c := range want.ToolCalls {
		if got, ok := calls[c.ID]; c.ID != "" && (!ok || c.Input != nil && !reflect.DeepEqual(got, c.Input)) {
			t.Errorf("%s: call %s %v, want %v", name, c.ID, got, c.Input)
		}
	}
	number := func(names ...string) (sum float64) {
		for _, n := range names {
			v, _ := want.Usage[n].(float64)
			sum += v
		}
		return sum
	}
	in := number("input_tokens", "prompt_tokens", "promptTokenCount", "toolUsePromptTokenCount",
		"cache_creation_input_tokens", "cache_read_input_tokens")
	out := number("output_tokens", "completion_tokens", "candidatesTokenCount", "thoughtsTokenCount")
	if len(want.Usage) > 0 && (usage["input_tokens"] != in || usage["output_tokens"] != out) {
		t.Errorf("%s: usage %v, want %v", name, usage, want.Usage)
	}
}
