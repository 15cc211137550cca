package proxy_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// asks sends requests of one run one after the other, and returns what each of them added.
func asks(t *testing.T, path string, upstream http.Handler, requests ...string) (added []string) {
	t.Helper()
	r := start(t, upstream)
	before := 0
	for i, body := range requests {
		r.post(path, body, proxy.HeaderRun, "run_q", "X-Call", fmt.Sprint(i+1))
		events := r.calls("run_q", i+1)
		framed(t, events)
		var said []schema.Event
		for _, e := range events[before:] {
			if e.Type == schema.TypeModelStart {
				break
			}
			if e.Type != schema.TypeRunLifecycle {
				said = append(said, e)
			}
		}
		added, before = append(added, story(said)), len(events)
	}
	return added
}

func calling(tool string) string {
	return strings.Replace(answer("msg_1", "look"), `data: {"type":"message_delta"`, `data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"`+tool+`","input":{}}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"message_delta"`, 1)
}

// TestConversation: of requests that repeat the whole conversation, only what is new is told.
func TestConversation(t *testing.T) {
	user := `{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 100<<10) + `"}}]}`
	call := `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"grep","input":{}}]}`
	result := `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"found \u00fc","is_error":true},{"type":"tool_result","tool_use_id":"toolu_foreign","content":"x"}]}`
	up := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("X-Call") {
		case "1":
			w.WriteHeader(529)
		case "2":
			replay([]byte(calling("grep")), sse).ServeHTTP(w, req)
		default:
			says("done").ServeHTTP(w, req)
		}
	})
	got := asks(t, "/v1/messages", up,
		`{"messages":[`+user+`]}`, // it fails
		`{"messages":[`+user+`]}`, // and is repeated
		`{"messages":[`+user+`,`+call+`,`+result+`]}`,
		`{"messages":[`+user+`,`+call+`,`+result+`,{"role":"assistant","content":"done"},{"role":"user","content":"and?"}]}`,
		`{"messages":[`+user+`,`+call+`,`+result+
			`,{"role":"assistant","content":"done"},{"role":"user","content":"and?"},{"role":"assistant","content":"It"}]}`,
		`{"messages":[{"role":"user","content":""}]}`)
	mustContain(t, got[0], `"role":"user"`, `"text":"hi"`, `"kind":"image"`, `"omitted":["source"]`, `"omitted_bytes":10`)
	want := `tool.end {"call_id":"toolu_1","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":"found \u00fc","kind":"tool_result"}` + "\n"
	if got[1] != "" || got[2] != want || got[4] != "" {
		t.Errorf("%q\n%q\n%q", got[1], got[2], got[4])
	}
	mustContain(t, got[3], `"text":"and?"`)
	mustContain(t, got[5], `"content":[{"type":"text","text":""}]`)
	if strings.Count(got[3], "tool.end") != 0 {
		t.Errorf("a result is told twice: %s", got[3])
	}
}

// TestConversations of the other APIs.
func TestConversations(t *testing.T) {
	chat := `data: {"id":"c1","object":"chat.completion.chunk","model":"g","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"grep","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
	response := `{"id":"resp_1","object":"response","status":"completed","model":"g","output":[{"type":"function_call","id":"fc_1","call_id":"call_1","name":"grep","arguments":"{}","status":"completed"}]}`
	// The end of the response has another id for the call, and the agent answers that.
	late := `data: {"type":"response.output_item.done","output_index":0,"item":` +
		`{"type":"function_call","id":"fc_1","call_id":"call_1","name":"grep","arguments":"{}","status":"completed"}}` +
		"\n\ndata: " + `{"type":"response.completed","response":` + strings.ReplaceAll(response, "call_1", "call_9") + "}\n\n"
	gemini := `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"grep","args":{}}}]},"finishReason":"STOP"}],"modelVersion":"g"}`
	for _, tt := range []struct{ path, typ, answer, first, second, want string }{
		{"/v1/chat/completions", sse, chat,
			`{"model":"g","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"call_1","content":"found"}]}`,
			`"output":"found","kind":"tool"`},
		{"/v1/responses", "application/json", response,
			`{"model":"g","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`,
			`{"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"call_1","output":"found"}]}`,
			`"output":"found","kind":"function_call_output"`},
		{"/v1/responses", sse, late,
			`{"model":"g","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`,
			`{"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"call_9","output":"found"}]}`,
			`"output":"found","kind":"function_call_output"`},
		{"/v1beta/models/g:generateContent", "application/json", gemini,
			`{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`,
			`{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[]},{"role":"user","parts":[{"functionResponse":{"name":"grep","response":{"output":"found"}}}]}]}`,
			`"output":{"output":"found"},"kind":"functionResponse"`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			got := asks(t, tt.path, replay([]byte(tt.answer), tt.typ), tt.first, tt.second, tt.second)
			mustContain(t, got[0], `"role":"user"`, `"text":"hi"`)
			mustContain(t, got[1], `tool.end {"call_id":`, `"ok":true`, tt.want)
			if strings.Contains(got[1], "hi") {
				t.Errorf("the message is told twice: %s", got[1])
			}
		})
	}
	// A request that continues another holds only what is new: the same words are said again.
	got := asks(t, "/v1/responses", replay([]byte(response), "application/json"), `{"input":"go on"}`,
		`{"input":"go on","previous_response_id":"resp_1"}`)
	mustContain(t, got[0], "go on")
	mustContain(t, got[1], "go on")
}

// TestOddRequests: whatever a client sends reaches the upstream unchanged, and is told or its loss is.
func TestOddRequests(t *testing.T) {
	var packed bytes.Buffer
	z, _ := zstd.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"messages":[{"role":"user","content":"squeezed"}]}`))
	z.Close()
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 70<<10) + `"}]}`
	up := &seen{serve: says("fine")}
	r := start(t, up, func(c *proxy.Config) { c.CallBytes = 64 << 10 })
	for i, tt := range []struct{ body, coding, want string }{
		{packed.String(), "zstd", "squeezed"},
		{long, "", fmt.Sprintf(`loss {"reason":"the request is longer than is kept","bytes":%d}`, len(long))},
		{"no zstd", "zstd", `loss {"reason":"the content coding cannot be read","bytes":7}`},
		{"not JSON", "", "bad_frame"},
		{"{\"model\":\"m\",\n  \"messages\":[{\"role\":\"user\",\n\"content\":\"in lines\"}]\n}\n", "", "in lines"},
		{`{"messages":` + deep + `}`, "", "bad_frame"},
		{`{"messages":{"role":"user"},"model":7}`, "", "model.start"},
		{`{"messages":[null,7,"x",{"role":"user","content":[null,{"type":null},{"type":"text","text":7}]}]}`, "",
			"message.end"},
		{`[]`, "", "model.start"}, {``, "", "model.start"}, {"\xff\xfe", "", "bad_frame"},
		{`{"messages":[{"role":"user","content":"a"}]}{"messages":[]}`, "", `"text":"a"`},
	} {
		resp, got := r.post("/v1/messages", tt.body, "Content-Encoding", tt.coding)
		if string(got) != answer("msg_1", "fine") {
			t.Errorf("%.40q: %q", tt.body, got)
		}
		events := r.ended(resp.Header.Get(proxy.HeaderRun))
		framed(t, events)
		mustContain(t, story(events), tt.want, "fine")
		up.mu.Lock()
		if up.bodies[i] != tt.body {
			t.Errorf("the upstream got %.40q", up.bodies[i])
		}
		up.mu.Unlock()
	}
}
