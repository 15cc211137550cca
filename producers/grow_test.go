//go:build !race

package producers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/internal/cputime"
)

// TestProviderGrowsSlowly: whatever member a provider repeats under ever new names or with ever new values, an
// answer costs time as its length, and no more memory than a message may have.
func TestProviderGrowsSlowly(t *testing.T) {
	type body struct {
		decoder func(provider.Config) *provider.Decoder
		head    string
		frame   string // %[1]d is its number, %[2]s some text
	}
	const open = `{"type":"message_start","message":{"id":"m","role":"assistant","content":[]}}` + "\n"
	for name, b := range map[string]body{
		"usage": {anthropic.NewDecoder, open, `{"type":"message_delta","delta":{},"usage":{"k%[1]d":"%[2]s"}}`},
		"delta": {anthropic.NewDecoder, open, `{"type":"message_delta","delta":{"k%[1]d":"%[2]s"}}`},
		"rest":  {anthropic.NewDecoder, open, `{"type":"message_delta","delta":{},"k%[1]d":"%[2]s"}`},
		"citations": {anthropic.NewDecoder, open +
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n",
			`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"k%[1]d":"%[2]s"}}}`},
		"signature": {anthropic.NewDecoder, open +
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}` + "\n",
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"%[1]d%[2]s"}}`},
		"unknown": {anthropic.NewDecoder, open +
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n",
			`{"type":"content_block_delta","index":0,"delta":{"type":"k%[1]d_delta","k%[1]d":"%[2]s"}}`},
		"blocks": {anthropic.NewDecoder, open,
			`{"type":"content_block_start","index":%[1]d,"content_block":{"type":"tool_use","id":"c%[1]d","name":"%[2]s"}}`},
		"chat usage": {openai.NewChatDecoder, "",
			`{"id":"m","choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"k%[1]d":"%[2]s"}}`},
		"chat delta": {openai.NewChatDecoder, "", `{"id":"m","choices":[{"index":0,"delta":{"k%[1]d":"%[2]s"}}]}`},
		"chat chunk": {openai.NewChatDecoder, "", `{"id":"m","k%[1]d":"%[2]s","choices":[{"index":0,"delta":{}}]}`},
		"chat tools": {openai.NewChatDecoder, "",
			`{"id":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":%[1]d,"id":"c%[1]d","function":{"name":"%[2]s","arguments":"{"}}]}}]}`},
		"choices": {openai.NewChatDecoder, "", `{"id":"m","choices":[{"index":%[1]d,"delta":{"content":"%[2]s"}}]}`},
		"chats":   {openai.NewChatDecoder, "", `{"id":"m%[1]d","choices":[{"index":0,"delta":{"content":"%[2]s"}}]}`},
		"items": {openai.NewResponsesDecoder, `{"type":"response.created","response":{"id":"r"}}` + "\n",
			`{"type":"response.output_item.added","output_index":%[1]d,"item":{"type":"function_call","id":"i%[1]d","call_id":"c%[1]d","name":"%[2]s"}}`},
		"parts":      {gemini.NewDecoder, "", `{"candidates":[{"index":0,"content":{"parts":[{"functionCall":{"name":"k%[1]d","args":{"a":"%[2]s"}}}]}}]}`},
		"candidates": {gemini.NewDecoder, "", `{"candidates":[{"index":%[1]d,"content":{"parts":[{"text":"%[2]s"}]}}]}`},
		"gemini":     {gemini.NewDecoder, "", `{"k%[1]d":"%[2]s","candidates":[{"index":0,"k%[1]d":"%[2]s","content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"k%[1]d":"%[2]s"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Repeat("w", 200)
			cost := func(n int) (took time.Duration, kept int) {
				before := heap()
				d := b.decoder(provider.Config{})
				took = cputime.Of(func() {
					_, err := d.Write([]byte(b.head))
					must(t, err)
					for i := range n {
						if _, err := d.Write(fmt.Appendf(nil, b.frame+"\n", i, words)); err != nil {
							t.Fatal(err)
						}
					}
				})
				kept = heap() - before
				for _, e := range d.Close() {
					must(t, e.Prepare("run_1"))
				}
				return took, kept
			}
			few, _ := cost(3000)
			many, kept := cost(24000)
			t.Logf("3000 in %v, 24000 in %v, %.1f MiB kept", few, many, float64(kept)/(1<<20))
			if many > 30*few+200*time.Millisecond { // 64 times if it were quadratic
				t.Errorf("3000 frames in %v, 24000 in %v", few, many)
			}
			if kept > 32<<20 {
				t.Errorf("%d MiB are kept", kept>>20)
			}
		})
	}
}
