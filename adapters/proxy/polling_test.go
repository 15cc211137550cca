package proxy_test

import (
	"strings"
	"testing"

	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// TestPolling: an agent that calls the same tool with the same input again and again, and gets the same result: each
// call has its own, once, with the whole history, with its newest part alone, in a child, and with an image in the
// result.
func TestPolling(t *testing.T) {
	call := `{"id":"call_0","type":"function","function":{"name":"poll","arguments":"{}"}}`
	answer := `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[` + call + `]},"finish_reason":"tool_calls"}]}`
	user := `{"role":"user","content":"watch it"}`
	made := `{"role":"assistant","content":null,"tool_calls":[` + call + `]}`
	for name, c := range map[string]struct {
		result string
		window int // messages of the history that are sent; 0: all
		child  string
	}{
		"whole":  {`"pending"`, 0, ""},
		"window": {`"pending"`, 2, ""},
		"child":  {`"pending"`, 0, "run_child_1"},
		"image":  {`[{"type":"text","text":"pending"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, replay([]byte(answer), "application/json"))
			history := []string{user}
			const steps = 5
			for range steps {
				sent := history
				if c.window > 0 && len(sent) > c.window {
					sent = sent[len(sent)-c.window:]
				}
				headers := []string{proxy.HeaderRun, "run_poll"}
				if c.child != "" {
					headers = append(headers, proxy.HeaderChild, c.child)
				}
				r.post("/v1/chat/completions", `{"messages":[`+strings.Join(sent, ",")+`]}`, headers...)
				history = append(history, made, `{"role":"tool","tool_call_id":"call_0","content":`+c.result+`}`)
			}
			var got []string
			for _, e := range r.calls("run_poll", steps) {
				switch {
				case e.Type == schema.TypeToolStart:
					got = append(got, "call")
				case e.Type == schema.TypeToolEnd:
					got = append(got, "result")
				case e.Type == schema.TypeMessageEnd && e.Actor == "user":
					got = append(got, "user")
				}
			}
			want := "user call" + strings.Repeat(" result call", steps-1)
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s\nwant %s", text, want)
			}
		})
	}
}
