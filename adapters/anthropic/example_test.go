package anthropic_test

import (
	"fmt"
	"strings"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/provider"
)

// A provider's stream becomes events as its bytes arrive.
func ExampleNewDecoder() {
	body := strings.NewReader(`event: message_start
data: {"type":"message_start","message":{"id":"msg_1","role":"assistant","model":"claude","content":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good day"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`)
	for event, err := range provider.Decode(body, anthropic.NewDecoder(provider.Config{})) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Type)
	}
	// Output:
	// message.start
	// block.start
	// text.delta
	// block.end
	// message.end
}
