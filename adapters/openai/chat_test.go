package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// chunk writes a chunk with one choice.
func chunk(choice string) string {
	return `{"id":"c1","object":"chat.completion.chunk","model":"m","choices":[` + choice + `]}`
}

// delta writes a chunk with one delta of the first choice.
func delta(members string) string { return chunk(`{"index":0,"delta":{` + members + `}}`) }

func finish(reason string) string {
	return chunk(`{"index":0,"delta":{},"finish_reason":"` + reason + `"}`)
}

// sse writes data as the provider does.
func sse(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

func expectChat(t *testing.T, body, want string) {
	t.Helper()
	expect(t, providertest.Decode(t, NewChatDecoder(provider.Config{}), []byte(body)), want)
}

func expectResponses(t *testing.T, body, want string) {
	t.Helper()
	expect(t, providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(body)), want)
}

func expect(t *testing.T, events []schema.Event, want string) {
	t.Helper()
	providertest.CheckPrinted(t, events, want)
	providertest.CheckNumbered(t, events)
}

const (
	chatStart = `message.start {"message_id":"c1","role":"assistant","model":"m","provider":"openai"}
`
	textOfHi = `block.start {"index":0,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi","index":0}
`
	textEnd = `block.end {"index":0,"message_id":"c1","complete":true}
`
	done = "[DONE]"
)

func messageEnd(content, stop, more string) string {
	return `message.end {"message_id":"c1","content":[` + content + `],"stop_reason":` + stop +
		`,"stop_sequence":null` + more + "}\n"
}

func TestChatText(t *testing.T) {
	hi := `{"type":"text","text":"Hi \ud83d\ude00\/"}`
	expectChat(t, ": hello\n\n"+sse(delta(`"role":"assistant","content":""`), delta(`"content":"Hi \ud83d"`),
		delta(`"content":"\ude00\/"`), finish("stop"),
		`{"id":"c1","choices":[],"usage":{"prompt_tokens":1.0},"obfuscation":"xyz"}`, done), chatStart+`block.start {"index":0,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi \ud83d","index":0}
text.delta {"text":"\ude00\/","index":0}
`+textEnd+messageEnd(hi, `"end_turn"`, `,"usage":{"prompt_tokens":1.0},"finish_reason":"stop"`))
}

// TestChatEnds: what ends a message, and what makes it incomplete.
func TestChatEnds(t *testing.T) {
	hi, cut := `{"type":"text","text":"Hi"}`, func(s string) string { return `,"incomplete":true,"error":{"type":"stream_cut","message":"` + s + `"}` }
	open := `block.end {"index":0,"message_id":"c1","complete":false,"problem":"cut short"}
`
	for name, tt := range map[string]struct{ body, want string }{
		"no done": {sse(delta(`"content":"Hi"`), finish("stop")),
			textEnd + messageEnd(hi, `"end_turn"`, `,"finish_reason":"stop"`)},
		"no finish": {sse(delta(`"content":"Hi"`)),
			open + messageEnd(hi, "null", cut("the provider's stream ended before the message did"))},
		"done only": {sse(delta(`"content":"Hi"`), done), textEnd + messageEnd(hi, "null", "")},
		"done amid": {sse(delta(`"content":"Hi"`), delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]`), done), textEnd + `block.start {"index":1,"kind":"tool_use","message_id":"c1","call_id":"a","tool":"f"}
tool.input.delta {"call_id":"a","text":"{","index":1}
` + strings.Replace(strings.Replace(open, `"index":0`, `"index":1`, 1), "}\n", `,"call_id":"a"}`+"\n", 1) +
			messageEnd(hi+`,{"type":"tool_use","id":"a","name":"f","input":{},"partial_json":"{"}`, "null",
				cut("the stream ended without a finish reason"))},
		"length": {sse(delta(`"content":"Hi"`), finish("length"), done, done),
			textEnd + messageEnd(hi, `"max_tokens"`, `,"finish_reason":"length"`)},
		"filter": {sse(delta(`"content":"Hi"`), finish("content_filter"), done),
			textEnd + messageEnd(hi, `"refusal"`, `,"finish_reason":"content_filter"`)},
		"own word": {sse(delta(`"content":"Hi"`), finish("eos"), done),
			textEnd + messageEnd(hi, `"eos"`, `,"finish_reason":"eos"`)},
		"twice": {sse(delta(`"content":"Hi"`), finish("stop"), finish("length"), delta(`"content":""`), done), textEnd + `custom.openai.replaced {"finish_reason":"stop"}
` + messageEnd(hi, `"max_tokens"`, `,"finish_reason":"length"`)},
		"error frame": {sse(delta(`"content":"Hi"`)) + "event: error\n" + sse(`{"error":{"message":"no"}}`), `custom.openai.error {"error":{"message":"no"}}
` + open + messageEnd(hi, `"error"`, `,"error":{"message":"no"}`)},
		"error text": {sse(delta(`"content":"Hi"`), `{"error":"no"}`), `custom.openai.error {"error":"no"}
` + open + messageEnd(hi, `"error"`, `,"error":{"value":"no"}`)},
		"error object": {sse(delta(`"content":"Hi"`), `{"object":"error","message":"no"}`), `custom.openai.error {"object":"error","message":"no"}
` + open + messageEnd(hi, `"error"`, `,"error":{"object":"error","message":"no"}`)},
		"error in choice": {sse(delta(`"content":"Hi"`), chunk(`{"index":0,"delta":{},"error":{"code":5},"finish_reason":"error"}`), done), textEnd + `custom.openai.error {"index":0,"delta":{},"error":{"code":5},"finish_reason":"error"}
` + messageEnd(hi, `"error"`, `,"error":{"code":5},"finish_reason":"error"`)},
		"bad frame": {sse(delta(`"content":"Hi"`), `{broken`, finish("stop"), done), `custom.openai.bad_frame {"problem":"invalid JSON","event":"","bytes":7,"text":"{broken"}
` + textEnd + messageEnd(hi, `"end_turn"`, `,"finish_reason":"stop"`)},
	} {
		t.Run(name, func(t *testing.T) { expectChat(t, tt.body, chatStart+textOfHi+tt.want) })
	}
}

// TestChatKinds: what is no text does not count as text, whatever its spelling.
func TestChatKinds(t *testing.T) {
	block := func(kind, deltaType, content string) string {
		stop := map[bool]string{true: `"refusal"`, false: `"end_turn"`}[kind == "refusal"]
		return fmt.Sprintf("block.start {\"index\":0,\"kind\":%q,\"message_id\":\"c1\"}\n%s {\"text\":\"Hm\",\"index\":0}\n", kind, deltaType) + textEnd +
			messageEnd(content, stop, `,"finish_reason":"stop"`)
	}
	thought := block("reasoning", "reasoning.delta", `{"type":"thinking","thinking":"Hm"}`)
	for name, tt := range map[string]struct{ members, want string }{
		"refusal": {`"refusal":"Hm","content":null`,
			block("refusal", "text.delta", `{"type":"refusal","refusal":"Hm"}`)},
		"reasoning_content": {`"reasoning_content":"Hm","content":null`, thought},
		"reasoning":         {`"reasoning":"Hm","content":""`, thought},
		"both":              {`"reasoning":"Hm","reasoning_content":"Hm"`, thought},
		"list":              {`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]`, thought},
		"text list": {`"content":[{"type":"text","text":"Hm"}]`,
			block("text", "text.delta", `{"type":"text","text":"Hm"}`)},
		"transcript": {`"audio":{"transcript":"Hm"}`,
			block("audio_transcript", "text.delta", `{"type":"audio_transcript","transcript":"Hm"}`)},
	} {
		t.Run(name, func(t *testing.T) { expectChat(t, sse(delta(tt.members), finish("stop")), chatStart+tt.want) })
	}
	t.Run("both, and they differ", func(t *testing.T) {
		expectChat(t, sse(delta(`"reasoning":"Other","reasoning_content":"Hm"`), finish("stop")), chatStart+
			strings.Replace(thought, "block.end", "custom.openai.delta {\"reasoning\":\"Other\"}\nblock.end", 1))
	})
	t.Run("details", func(t *testing.T) {
		expectChat(t, sse(delta(`"reasoning":"H","reasoning_details":[{"type":"reasoning.text","text":"H","format":"f","index":0}]`),
			delta(`"reasoning_details":[{"type":"reasoning.text","text":"m","index":0,"signature":"S"},{"type":"reasoning.encrypted","data":"E","id":"r1"}]`),
			delta(`"content":"Hi"`), finish("stop")), chatStart+`block.start {"index":0,"kind":"reasoning","message_id":"c1"}
reasoning.delta {"text":"H","index":0}
reasoning.delta {"text":"m","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"reasoning_details":[{"type":"reasoning.text","format":"f","index":0,"signature":"S"},{"type":"reasoning.encrypted","data":"E","id":"r1"}]}
block.start {"index":1,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi","index":1}
block.end {"index":1,"message_id":"c1","complete":true}
`+messageEnd(`{"type":"thinking","thinking":"Hm","reasoning_details":[{"type":"reasoning.text","format":"f","index":0,"signature":"S"},{"type":"reasoning.encrypted","data":"E","id":"r1"}]},{"type":"text","text":"Hi"}`,
			`"end_turn"`, `,"finish_reason":"stop"`))
	})
}

// TestChatCalls: calls in every form that services give them.
func TestChatCalls(t *testing.T) {
	type c struct{ id, name, input string }
	for name, tt := range map[string]struct {
		deltas []string
		want   []c
	}{
		"in turns": {[]string{`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}},{"index":1,"id":"b","function":{"name":"g"}}]`,
			`"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]`,
			`"tool_calls":[{"index":0,"function":{"arguments":":1.10}"}}]`}, []c{{"a", "f", `{"x":1.10}`}, {"b", "g", `{}`}}},
		"no ids": {[]string{`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]`},
			[]c{{"call_c1_0", "f", `{}`}}},
		"id is late": {[]string{`"tool_calls":[{"index":0,"function":{"name":"f"}}]`,
			`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]`}, []c{{"a", "f", `{}`}}},
		"no index": {[]string{`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]`,
			`"tool_calls":[{"function":{"arguments":"}"}}]`,
			`"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]`}, []c{{"a", "f", `{}`}, {"b", "f", `{}`}}},
		"index 0": {[]string{`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]`}, []c{{"a", "f", `{}`}, {"b", "g", `{}`}}},
		"id repeated": {[]string{`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]`,
			`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]`}, []c{{"a", "f", `{}`}}},
		"as it is": {[]string{`"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x" : 1.0}}}]`},
			[]c{{"a", "f", `{"x" : 1.0}`}}},
		"legacy": {[]string{`"function_call":{"name":"f","arguments":""}`,
			`"function_call":{"arguments":"{\"x\":2}"}`}, []c{{"call_c1_0", "f", `{"x":2}`}}},
		"custom":   {[]string{`"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"f","input":"SELECT"}}]`, `"tool_calls":[{"index":0,"custom":{"input":" 1"}}]`}, []c{{"a", "f", `"SELECT 1"`}}},
		"no input": {[]string{`"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]`}, []c{{"a", "f", `{}`}}},
		"no name":  {[]string{`"tool_calls":[{"index":0,"id":"a"}]`}, []c{{"a", "unnamed", `{}`}}},
	} {
		for _, reason := range []string{"tool_calls", "stop"} {
			t.Run(name+" "+reason, func(t *testing.T) {
				var frames []string
				for _, d := range tt.deltas {
					frames = append(frames, delta(d))
				}
				events := providertest.Decode(t, NewChatDecoder(provider.Config{}),
					[]byte(sse(append(frames, finish(reason), done)...)))
				checkEvents(t, events)
				var got []c
				for _, e := range events {
					p, _ := provider.Parse(e.Payload)
					switch e.Type {
					case schema.TypeToolStart:
						got = append(got, c{p.Str("call_id"), p.Str("tool"), string(p.Get("input"))})
					case schema.TypeMessageEnd:
						if p.Str("stop_reason") != "tool_use" || p.Str("finish_reason") != reason {
							t.Errorf("%s", e.Payload)
						}
						for i, raw := range provider.Elements(p.Get("content")) {
							b, _ := provider.Parse(raw)
							if i < len(tt.want) && (c{b.Str("id"), b.Str("name"), string(b.Get("input"))}) != tt.want[i] {
								t.Errorf("content %s", raw)
							}
						}
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("got %v, want %v\n%s", got, tt.want, providertest.Print(events))
				}
			})
		}
	}
	expectChat(t, sse(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"},"extra_content":{"s":1}}]`), finish("length")), chatStart+
		`block.start {"index":0,"kind":"tool_use","message_id":"c1","call_id":"a","tool":"f"}
tool.input.delta {"call_id":"a","text":"{\"x","index":0}
block.end {"index":0,"message_id":"c1","complete":false,"problem":"invalid JSON","call_id":"a","extra_content":{"s":1}}
`+messageEnd(`{"type":"tool_use","id":"a","name":"f","input":{},"partial_json":"{\"x","extra_content":{"s":1}}`, `"max_tokens"`, `,"finish_reason":"length"`))
}

// TestChatLateNames: input that comes before the name of its call waits for it. An id that comes when the call has
// begun is kept, because whoever answers may use it.
func TestChatLateNames(t *testing.T) {
	expectChat(t, sse(delta(`"tool_calls":[{"index":0,"function":{"arguments":"{"}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]`),
		delta(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"}"}}]`), finish("tool_calls")), chatStart+
		`block.start {"index":0,"kind":"tool_use","message_id":"c1","call_id":"call_c1_0","tool":"f"}
tool.input.delta {"call_id":"call_c1_0","text":"{","index":0}
tool.input.delta {"call_id":"call_c1_0","text":"}","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"call_id":"call_c1_0","input":{},"late_id":"a"}
tool.start {"call_id":"call_c1_0","tool":"f","input":{},"index":0,"kind":"function"}
`+messageEnd(`{"type":"tool_use","id":"call_c1_0","name":"f","input":{},"late_id":"a"}`, `"tool_use"`, `,"finish_reason":"tool_calls"`))
}

// TestChatChoices: the first choice is the message, the others lie beside it.
func TestChatChoices(t *testing.T) {
	second := `{"index":1,"delta":{"content":"No"}}`
	call := `{"index":2,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}`
	expectChat(t, sse(delta(`"content":"Hi"`), chunk(second), chunk(call),
		chunk(`{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{},"finish_reason":"length"}`), done),
		chatStart+textOfHi+
			"custom.openai.choice "+second+"\ncustom.openai.choice "+call+"\n"+textEnd+`custom.openai.choice {"index":1,"delta":{},"finish_reason":"length"}
`+messageEnd(`{"type":"text","text":"Hi"}`, `"end_turn"`, `,"finish_reason":"stop","choices":[`+
			`{"index":1,"content":[{"type":"text","text":"No"}],"stop_reason":"max_tokens","finish_reason":"length"},`+
			`{"index":2,"content":[{"type":"tool_use","id":"a","name":"f","input":{}}],"stop_reason":"tool_use","finish_reason":"tool_calls"}]`))
	expectChat(t, sse(delta(`"content":"Hi"`), chunk(second), finish("stop")),
		chatStart+textOfHi+"custom.openai.choice "+second+"\n"+textEnd+
			messageEnd(`{"type":"text","text":"Hi"}`, `"end_turn"`,
				`,"finish_reason":"stop","choices":[{"index":1,"content":[{"type":"text","text":"No"}],"stop_reason":null,"incomplete":true,"error":{"type":"stream_cut","message":"the choice has no finish reason"}}]`))
	var many []string
	for i := range 1000 {
		many = append(many, chunk(fmt.Sprintf(`{"index":%d,"delta":{"content":"x"},"finish_reason":"stop"}`, i)))
	}
	events := providertest.Decode(t, NewChatDecoder(provider.Config{}), []byte(sse(many...)))
	checkEvents(t, events)
	if told := providertest.Print(events); strings.Count(told, "custom.openai.choice") != 999 ||
		strings.Count(told[strings.Index(told, "message.end"):], `"index":`) != maxChoices-1 {
		t.Error("many choices are not bounded, or not kept")
	}
}

// TestChatWhole: answers that were not streamed, and the older API.
func TestChatWhole(t *testing.T) {
	whole := `{"id":"c1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"annotations":[],` +
		`"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3},"system_fingerprint":"s"}`
	want := chatStart + textOfHi + textEnd + `block.start {"index":1,"kind":"tool_use","message_id":"c1","call_id":"a","tool":"f"}
tool.input.delta {"call_id":"a","text":"{\"x\":1}","index":1}
block.end {"index":1,"message_id":"c1","complete":true,"call_id":"a","input":{"x":1}}
tool.start {"call_id":"a","tool":"f","input":{"x":1},"index":1,"kind":"function"}
` + messageEnd(`{"type":"text","text":"Hi"},{"type":"tool_use","id":"a","name":"f","input":{"x":1}}`, `"tool_use"`, `,"usage":{"prompt_tokens":3},"finish_reason":"tool_calls","created":5,"system_fingerprint":"s"`)
	expectChat(t, whole, want)
	var printed bytes.Buffer
	if err := json.Indent(&printed, []byte(whole), "", "  "); err != nil {
		t.Fatal(err)
	}
	expectChat(t, printed.String(), want)
	expectChat(t, sse(`{"id":"c1","object":"text_completion","model":"m","choices":[{"index":0,"text":"Hi","finish_reason":"stop"}]}`, done), chatStart+textOfHi+textEnd+
		messageEnd(`{"type":"text","text":"Hi"}`, `"end_turn"`, `,"finish_reason":"stop"`))
	expectChat(t, `{"error":{"message":"no","type":"x"}}`, `custom.openai.error {"error":{"message":"no","type":"x"}}`)
	expectChat(t, sse(chunk(`{"index":0,"delta":{"content":"Hi"},"message":{"content":"Hi"}}`), finish("stop")),
		chatStart+textOfHi+textEnd+
			messageEnd(`{"type":"text","text":"Hi"}`, `"end_turn"`, `,"finish_reason":"stop"`))
}

// TestChatSeveral: when another message begins, and when an id means nothing.
func TestChatSeveral(t *testing.T) {
	id := func(id, s string) string { return strings.Replace(s, `"c1"`, `"`+id+`"`, 1) }
	role := `"role":"assistant","content":"a"`
	for name, tt := range map[string]struct {
		frames []string
		want   string
	}{
		"finished": {[]string{delta(role), finish("stop"), id("c2", delta(`"content":"b"`)),
			id("c2", finish("stop"))}, "c1 c2"},
		"done": {[]string{delta(role), finish("stop"), done, delta(role), finish("stop"), done}, "c1 c1"},
		"cut":  {[]string{delta(role), delta(`"content":"b"`), id("c2", delta(role))}, "c1 c2"},
		"rotating": {[]string{delta(role), id("c2", delta(`"content":"b"`)), id("c3", delta(`"content":"c"`)),
			id("c4", finish("stop"))}, "c1"},
		"role always": {[]string{delta(role), id("c2", delta(role)), id("c3", delta(role))}, "c1"},
		"id is late": {[]string{strings.Replace(delta(role), `"id":"c1"`, `"id":""`, 1), delta(role), finish("stop")},
			"msg_unnamed_1"},
	} {
		t.Run(name, func(t *testing.T) {
			events := providertest.Decode(t, NewChatDecoder(provider.Config{}), []byte(sse(tt.frames...)))
			checkEvents(t, events)
			var ids []string
			for _, e := range events {
				if p, _ := provider.Parse(e.Payload); e.Type == schema.TypeMessageEnd {
					ids = append(ids, p.Str("message_id"))
				}
			}
			if got := strings.Join(ids, " "); got != tt.want {
				t.Errorf("messages %s\n%s", got, providertest.Print(events))
			}
		})
	}
}

// TestChatKept: what has no name in the catalogue is kept.
func TestChatKept(t *testing.T) {
	prompt := `{"choices":[],"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}`
	logprobs := `{"content":[{"token":"Hi","logprob":-0.10}]}`
	expectChat(t, sse(prompt, chunk(`{"index":0,"delta":{"content":"Hi","sparkle":1.0,"channel":"a"},"logprobs":`+
		logprobs+`,"stop_reason":7}`),
		chunk(`{"index":0,"delta":{"channel":"b"},"finish_reason":"stop","native_finish_reason":"end"}`), `{"x":1}`,
		done, `{"id":"c1","choices":[],"usage":{"a":1}}`),
		"custom.openai.chunk "+prompt+"\n"+chatStart+`custom.openai.logprobs {"index":0,"logprobs":`+logprobs+"}\n"+textOfHi+`custom.openai.delta {"sparkle":1.0}
custom.openai.member {"stop_reason":7}
custom.openai.replaced {"channel":"a"}
`+textEnd+"custom.openai.chunk {\"x\":1}\n"+
			messageEnd(`{"type":"text","text":"Hi"}`, `"end_turn"`,
				`,"channel":"b","native_finish_reason":"end","finish_reason":"stop"`)+
			"custom.openai.chunk {\"id\":\"c1\",\"choices\":[],\"usage\":{\"a\":1}}\n")
	audio := providertest.Decode(t, NewChatDecoder(provider.Config{}),
		[]byte(sse(delta(`"audio":{"id":"a1","data":"AAAA"}`), delta(`"audio":{"data":"BBBB","expires_at":5}`),
			delta(`"audio":{"data":"AAAAA"}`), finish("stop"))))
	expect(t, audio, chatStart+`block.start {"index":0,"kind":"data","message_id":"c1"}
data.delta {"media_type":"audio/pcm","data":"AAAA","index":0,"name":"audio"}
custom.openai.delta {"audio":{"id":"a1"}}
data.delta {"media_type":"audio/pcm","data":"BBBB","index":0,"name":"audio"}
custom.openai.delta {"audio":{"expires_at":5}}
custom.openai.delta {"audio":{"data":"AAAAA"}}
block.end {"index":0,"message_id":"c1","complete":true}
`+messageEnd(`{"type":"data","media_type":"audio/pcm","name":"audio"}`, `"end_turn"`, `,"finish_reason":"stop"`))
}
