package anthropic

import (
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// TestBroken: each kind of break that translators have, in small.
func TestBroken(t *testing.T) {
	begin := func(index, block string) string {
		return `{"type":"content_block_start"` + index + `,"content_block":` + block + `}`
	}
	piece := func(index, typ, member, text string) string {
		return `{"type":"content_block_delta"` + index + `,"delta":{"type":"` + typ + `","` + member + `":"` + text + `"}}`
	}
	const (
		text, thinking, tool = `{"type":"text","text":""}`, `{"type":"thinking","thinking":""}`,
			`{"type":"tool_use","id":"t1","name":"f","input":{}}`
		none, zero, one = "", `,"index":0`, `,"index":1`
		ends            = `{"type":"content_block_stop"}`
	)
	reason := func(s string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + s + `"},"usage":{"output_tokens":9}}`
	}
	used := `{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"output_tokens":0}}`
	for name, tt := range map[string]struct {
		frames []string
		want   string
	}{
		"deltas without index": {[]string{begin(zero, text), piece(none, "text_delta", "text", "Hi"), ends,
			begin(one, tool), piece(none, "input_json_delta", "partial_json", "{}"), ends, reason("tool_use"), msgStop},
			"t1 f{}, text:Hi, tool_use"},
		"all at 0, no stops": {[]string{begin(zero, text), piece(zero, "text_delta", "text", "Hi"), begin(zero, tool),
			piece(zero, "input_json_delta", "partial_json", "{}"), reason("tool_use"), msgStop}, "t1 f{}, text:Hi, tool_use"},
		"thought in the text": {[]string{begin(zero, thinking), piece(zero, "thinking_delta", "thinking", "It is "),
			blockStop, begin(one, text), piece(one, "thinking_delta", "thinking", "81."),
			piece(one, "text_delta", "text", "So."), ends, reason("end_turn"), msgStop},
			"thinking:It is 81., text:So., end_turn"},
		"text in the thought": {[]string{begin(zero, thinking), piece(zero, "thinking_delta", "thinking", "Hm."),
			piece(zero, "text_delta", "text", "So."), blockStop, reason("end_turn"), msgStop},
			"thinking:Hm., text:So., end_turn"},
		"input in a text": {[]string{begin(zero, tool), begin(one, text),
			piece(one, "input_json_delta", "partial_json", "{}"), piece(one, "text_delta", "text", "Hi"), ends,
			reason("tool_use"), msgStop}, "t1 f{}, text:Hi, tool_use"},
		"starts twice": {[]string{start, begin(zero, tool), begin(zero, tool),
			piece(zero, "input_json_delta", "partial_json", "{}"), blockStop, blockStop, reason("tool_use"), msgStop},
			"t1 f{}, tool_use"},
		"more behind the stop": {[]string{begin(zero, text), piece(zero, "text_delta", "text", "Hel"), blockStop,
			piece(zero, "text_delta", "text", "lo."), blockStop, reason("end_turn"), msgStop}, "text:Hello., end_turn"},
		"two calls in turns": {[]string{begin(zero, tool), begin(one, strings.Replace(tool, "t1", "t2", 1)),
			piece(zero, "input_json_delta", "partial_json", `{\"x\"`),
			piece(one, "input_json_delta", "partial_json", "{}"),
			piece(zero, "input_json_delta", "partial_json", ":1}"), blockStop, reason("tool_use"), msgStop},
			`t1 f{"x":1}, t2 f{}, tool_use`},
		"message again": {[]string{begin(zero, text), piece(zero, "text_delta", "text", "Hi"), blockStop,
			reason("end_turn"), msgStop, `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"text","text":"Hi"}]}`}, "text:Hi, end_turn"},
		"usage empty behind": {[]string{begin(zero, text), piece(zero, "text_delta", "text", "Hi"), blockStop,
			reason("end_turn"), used, msgStop}, "text:Hi, end_turn"},
	} {
		t.Run(name, func(t *testing.T) {
			events := decodeAll(t, []byte(sse(append([]string{start}, tt.frames...)...)))
			providertest.CheckEvents(t, events)
			providertest.CheckNumbered(t, events)
			var out []string
			for _, e := range events {
				p, _ := provider.Parse(e.Payload)
				switch e.Type {
				case schema.TypeToolStart:
					out = append(out, p.Str("call_id")+" "+p.Str("tool")+string(p.Get("input")))
				case schema.TypeMessageEnd:
					for _, raw := range provider.Elements(p.Get("content")) {
						if b, _ := provider.Parse(raw); b.Str("type") != "tool_use" {
							out = append(out, b.Str("type")+":"+b.Str("text")+b.Str("thinking"))
						}
					}
					out = append(out, p.Str("stop_reason"))
					if got := string(p.Get("usage")); got != `{"input_tokens":5,"output_tokens":9}` {
						t.Errorf("usage %s", got)
					}
				}
			}
			if got := strings.Join(out, ", "); got != tt.want {
				t.Errorf("\n got %s\nwant %s\n%s", got, tt.want, providertest.Print(events))
			}
		})
	}
}
