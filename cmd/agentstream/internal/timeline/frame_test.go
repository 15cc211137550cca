package timeline

import (
	"encoding/json"
	"testing"

	"agentstream/cmd/agentstream/internal/terminal"
	"agentstream/schema"
)

// TestTimelineFrame: what stands around messages is silent when it went well, and says what did not.
func TestTimelineFrame(t *testing.T) {
	for _, tt := range []struct{ typ, payload, want string }{
		{"turn.start", `{"turn_id":"t"}`, ""},
		{"turn.end", `{"turn_id":"t","stop_reason":"end_turn"}`, ""},
		{"turn.end", `{"turn_id":"t","stop_reason":"cancelled","reason":"stop"}`, "          ✗ turn cancelled: stop\n"},
		{"model.start", `{"call_id":"m"}`, ""},
		{"model.end", `{"call_id":"m","ok":true,"duration_ms":4}`, ""},
		{"model.end", `{"call_id":"m","ok":false,"error":{"type":"cancelled","message":"stop"}}`,
			"          ✗ model: cancelled: stop\n"},
		{"tool.end", `{"call_id":"c","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"error","message":"no such file"}}`, "          ✗ c error: no such file\n"},
		{"tool.end", `{"call_id":"c","ok":false,"error":"KAI-TOOL-TIME-0001","error_detail":null}`,
			"          ✗ c KAI-TOOL-TIME-0001\n"},
		{"tool.end", `{"call_id":"c","ok":false,"error":{"type":"error","message":"of an old log"}}`,
			"          ✗ c error: of an old log\n"},
		{"task.start", `{"task_id":"k1","name":"index"}`, "          ▷ index\n"},
		{"task.end", `{"task_id":"k1"}`, "          ✓ k1\n"},
		{"task.end", `{"task_id":"k1","ok":false}`, "          ✗ k1\n"},
		{"loss", `{"reason":"the buffer was full","bytes":2048,"events":3}`,
			"          ! lost 3 events, 2.0 kB: the buffer was full\n"},
		{"commands.taken", `{"through":4}`, ""},
		{"input.answered", `{"request_id":"r","answer":null}`, "          » no answer\n"},
	} {
		if got := show(t, terminal.Screen{}, []schema.Event{{Type: tt.typ,
			Payload: json.RawMessage(tt.payload)}}); got != tt.want {
			t.Errorf("%s %s\n got %q\nwant %q", tt.typ, tt.payload, got, tt.want)
		}
	}
}
