package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

const (
	created   = `{"type":"response.created","response":{"id":"c1","object":"response","status":"in_progress","model":"m","output":[],"usage":null}}`
	completed = `{"type":"response.completed","response":{"id":"c1","object":"response","status":"completed","model":"m","usage":{"input_tokens":1.0}}}`
	addedMsg  = `{"type":"response.output_item.added","output_index":0,"item":{"id":"m1","type":"message","status":"in_progress","content":[],"role":"assistant"}}`
	addedPart = `{"type":"response.content_part.added","item_id":"m1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}`
	endOK     = `,"usage":{"input_tokens":1.0},"status":"completed","finish_reason":"completed"`
)

func ev(typ, members string) string { return `{"type":"response.` + typ + `",` + members + `}` }

func at(i int) string {
	return fmt.Sprintf(`"item_id":"i%d","output_index":%d,"content_index":0`, i, i)
}

func textPiece(s string) string { return ev("output_text.delta", at(0)+`,"delta":"`+s+`"`) }

// hello is a response of one text, which its parts repeat.
func hello() []string {
	return []string{created, addedMsg, addedPart, textPiece(`Hi \ud83d`), textPiece(`\ude00`),
		ev("output_text.done", at(0)+`,"text":"Hi 😀"`),
		ev("content_part.done", at(0)+`,"part":{"type":"output_text","text":"Hi 😀","annotations":[]}`),
		ev("output_item.done", `"output_index":0,"item":{"id":"m2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi 😀"}]}`), completed}
}

// TestResponsesText: what is repeated is told once, in whatever spelling, and ids may change on the way.
func TestResponsesText(t *testing.T) {
	want := chatStart + `block.start {"index":0,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi \ud83d","index":0}
text.delta {"text":"\ude00","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m2"}
` + messageEnd(`{"type":"text","text":"Hi \ud83d\ude00","item_id":"m2"}`, `"end_turn"`, endOK)
	expectResponses(t, sse(hello()...), want)
	expectResponses(t, strings.Join(hello(), "\n"), want)
	expectResponses(t, sse(append(hello(), "[DONE]", `{"type":"keepalive"}`)...), want)
	// Lost on the way: the announcements, or the end of the text.
	short := hello()
	expectResponses(t, sse(short[0], short[3], short[4], short[7], completed), want)
	expectResponses(t, sse(short[0], short[1], short[3], short[5], short[8]), chatStart+`block.start {"index":0,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi \ud83d","index":0}
`+"custom.openai.response_output_text_done "+short[5]+"\n"+`block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi 😀","item_id":"m1"}`, `"end_turn"`, endOK))
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Hi you"`),
		completed), chatStart+textOfHi+
		`text.delta {"text":" you","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi you","item_id":"m1"}`, `"end_turn"`, endOK))
	mismatch := ev("output_text.done", at(0)+`,"text":"Bye"`)
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), mismatch, completed), chatStart+textOfHi+"custom.openai.response_output_text_done "+mismatch+`
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Bye","item_id":"m1"}`, `"end_turn"`, endOK))
}

// TestResponsesPart: a part that is said as a whole alone, and one of a kind of the provider's.
func TestResponsesPart(t *testing.T) {
	part := func(what, part string) string { return ev("content_part."+what, at(0)+`,"part":`+part) }
	mismatch := part("done", `{"type":"output_text","text":"Bye"}`)
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), mismatch, completed), chatStart+textOfHi+"custom.openai.response_content_part_done "+mismatch+`
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Bye","item_id":"m1"}`, `"end_turn"`, endOK))
	expectResponses(t, sse(created, addedMsg, part("added", `{"type":"output_text","text":"Hi"}`), part("done", `{"type":"output_text","text":"Hi you","annotations":[1]}`), completed), chatStart+textOfHi+`text.delta {"text":" you","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1","annotations":[1]}
`+messageEnd(`{"type":"text","text":"Hi you","item_id":"m1","annotations":[1]}`, `"end_turn"`, endOK))
	expectResponses(t, sse(created, addedMsg, part("added", `{"type":"sparkle","x":1}`), part("done", `{"type":"sparkle","x":2.0}`), completed), chatStart+`block.start {"index":0,"kind":"sparkle","message_id":"c1","block":{"type":"sparkle","x":1}}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"sparkle","x":2.0,"item_id":"m1"}`, `"end_turn"`, endOK))
}

// TestResponsesWhole: a response that was not streamed, one that says all in its end, and one that is
// still being made.
func TestResponsesWhole(t *testing.T) {
	body := `"id":"c1","object":"response","model":"m","output":[{"id":"r1","type":"reasoning","encrypted_content":"E","summary":[{"type":"summary_text","text":"A"},{"type":"summary_text","text":"B"}],"content":[{"type":"reasoning_text","text":"C"}]},` +
		`{"id":"m1","type":"message","role":"assistant","phase":"final","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation"}]},{"type":"refusal","refusal":"No"}]},` +
		`{"id":"f1","type":"function_call","status":"completed","call_id":"a","name":"f","arguments":"{\"x\":1}"}],"status":"completed","usage":{"input_tokens":1.0}`
	want := chatStart + `block.start {"index":0,"kind":"reasoning","message_id":"c1"}
reasoning.delta {"text":"A","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"r1"}
block.start {"index":1,"kind":"reasoning","message_id":"c1"}
reasoning.delta {"text":"B","index":1}
block.start {"index":2,"kind":"reasoning","message_id":"c1","block":{"type":"reasoning_text"}}
reasoning.delta {"text":"C","index":2}
block.end {"index":1,"message_id":"c1","complete":true,"item_id":"r1","encrypted_content":"E"}
block.end {"index":2,"message_id":"c1","complete":true,"item_id":"r1"}
block.start {"index":3,"kind":"text","message_id":"c1"}
text.delta {"text":"Hi","index":3}
block.start {"index":4,"kind":"refusal","message_id":"c1"}
text.delta {"text":"No","index":4}
block.end {"index":3,"message_id":"c1","complete":true,"item_id":"m1","annotations":[{"type":"url_citation"}]}
block.end {"index":4,"message_id":"c1","complete":true,"item_id":"m1","phase":"final"}
block.start {"index":5,"kind":"tool_use","message_id":"c1","call_id":"a","tool":"f"}
tool.input.delta {"call_id":"a","text":"{\"x\":1}","index":5}
block.end {"index":5,"message_id":"c1","complete":true,"call_id":"a","input":{"x":1},"item_id":"f1"}
tool.start {"call_id":"a","tool":"f","input":{"x":1},"index":5,"kind":"function_call"}
` + messageEnd(`{"type":"thinking","thinking":"A","item_id":"r1"},{"type":"thinking","thinking":"B","item_id":"r1","encrypted_content":"E"},{"type":"reasoning_text","text":"C","item_id":"r1"},`+
		`{"type":"text","text":"Hi","item_id":"m1","annotations":[{"type":"url_citation"}]},{"type":"refusal","refusal":"No","item_id":"m1","phase":"final"},`+
		`{"type":"tool_use","id":"a","name":"f","input":{"x":1},"item_id":"f1"}`, `"tool_use"`, endOK)
	expectResponses(t, "{"+body+"}", want)
	expectResponses(t, sse(`{"type":"response.completed","response":{`+body+`}}`), want)
	making := `{"id":"c1","object":"response","status":"queued","output":[]}`
	expectResponses(t, making, "custom.openai.response "+making)
	expectResponses(t, `{"error":{"message":"no"}}`, `custom.openai.error {"error":{"message":"no"}}`)
}

// TestResponsesEnds: every way in which a response may end.
func TestResponsesEnds(t *testing.T) {
	end := func(status, more string) string {
		return ev(status, `"response":{"id":"c1","status":"`+status+`"`+more+`}`)
	}
	open := chatStart + textOfHi
	closed := func(complete string) string {
		return `block.end {"index":0,"message_id":"c1","complete":` + complete + `,"item_id":"m1"}` + "\n"
	}
	cut, text := closed(`false,"problem":"cut short"`), `{"type":"text","text":"Hi","item_id":"m1"}`
	failed := `{"type":"error","code":"x","message":"no","param":null}`
	for name, tt := range map[string]struct{ last, want string }{
		"max": {end("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"}`),
			open + cut + messageEnd(text, `"max_tokens"`,
				`,"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"finish_reason":"max_output_tokens"`)},
		"filter": {end("incomplete", `,"incomplete_details":{"reason":"content_filter"}`),
			open + cut + messageEnd(text, `"refusal"`,
				`,"status":"incomplete","incomplete_details":{"reason":"content_filter"},"finish_reason":"content_filter"`)},
		"failed": {end("failed", `,"error":{"code":"x"}`),
			open + cut + messageEnd(text, `"error"`, `,"error":{"code":"x"},"status":"failed","finish_reason":"failed"`)},
		"for no": {end("failed", ``), open + cut +
			messageEnd(text, `"error"`, `,"error":{"type":"response_failed"},"status":"failed","finish_reason":"failed"`)},
		"cancelled": {end("cancelled", ``), open + cut +
			messageEnd(text, `"cancelled"`, `,"status":"cancelled","finish_reason":"cancelled"`)},
		"nothing": {`{"type":"keepalive"}`, open + cut +
			messageEnd(text, "null", `,"incomplete":true,"error":{"type":"stream_cut","message":"the provider's stream ended before the response did"},"status":"in_progress"`)},
		"error": {failed, open + "custom.openai.error " + failed + "\n" + cut +
			messageEnd(text, `"error"`, `,"error":`+failed+`,"status":"in_progress"`)},
		"another": {strings.ReplaceAll(ev("created", `"response":{"id":"c1","status":"queued"}`), "c1", "c2"),
			open + cut + messageEnd(text, "null",
				`,"incomplete":true,"error":{"type":"stream_cut","message":"another response began"},"status":"in_progress"`) + "message.start {\"message_id\":\"c2\",\"role\":\"assistant\",\"provider\":\"openai\"}\n" + `message.end {"message_id":"c2","content":[],"stop_reason":null,"stop_sequence":null,"incomplete":true,"error":{"type":"stream_cut","message":"the provider's stream ended before the response did"},"status":"queued"}`},
	} {
		t.Run(name, func(t *testing.T) { expectResponses(t, sse(created, addedMsg, textPiece("Hi"), tt.last), tt.want) })
	}
}

// TestResponsesContradict: the last whole of a text, or of a call's input, is what the message has, whatever was
// streamed. One that is empty says nothing.
func TestResponsesContradict(t *testing.T) {
	done := func(text string) string {
		return ev("output_item.done", `"output_index":0,"item":{"id":"i0","type":"message","status":"completed","content":[{"type":"output_text","text":"`+text+`"}]}`)
	}
	call := `"output_index":0,"item":{"id":"f1","type":"function_call","call_id":"a","name":"f","arguments":"`
	args := func(what, text string) string {
		return ev("function_call_arguments."+what, `"item_id":"f1","output_index":0,`+text)
	}
	for name, tt := range map[string]struct {
		frames []string
		want   string // in message.end
		kept   int    // frames under custom
	}{
		"text": {[]string{addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Bye"`),
			done("Bye")}, `{"type":"text","text":"Bye","item_id":"i0"}`, 1},
		"text twice": {[]string{addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Bye"`),
			done("By")}, `{"type":"text","text":"By","item_id":"i0"}`, 2},
		"taken back": {[]string{addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Bye"`),
			done("Hi")}, `{"type":"text","text":"Hi","item_id":"i0"}`, 1},
		"in the item": {[]string{addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Hi"`), done("H")},
			`{"type":"text","text":"H","item_id":"i0"}`, 1},
		"empty": {[]string{addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":""`), done("Hi")},
			`{"type":"text","text":"Hi","item_id":"i0"}`, 1},
		"arguments": {[]string{ev("output_item.added", call+`"}`), args("delta", `"delta":"{\"x\":1}"`),
			args("done", `"arguments":"{\"x\":2}"`), ev("output_item.done", call+`{\"x\":2}"}`)},
			`"input":{"x":2},"item_id":"f1"}`, 1},
		"refusal": {[]string{addedMsg, ev("refusal.delta", at(0)+`,"delta":"No"`),
			ev("refusal.done", at(0)+`,"refusal":"No"`)}, `"stop_reason":"refusal"`, 0},
		"whole refusal": {[]string{addedMsg, ev("content_part.done",
			at(0)+`,"part":{"type":"refusal","refusal":"No"}`)}, `"stop_reason":"refusal"`, 0},
		"refusal unsaid": {[]string{addedMsg, ev("content_part.added", at(0)+`,"part":{"type":"refusal","refusal":""}`),
			textPiece("Hi")}, `"stop_reason":"end_turn"`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}),
				[]byte(sse(append(append([]string{created}, tt.frames...), completed)...)))
			checkEvents(t, events)
			kept := 0
			for _, e := range events {
				if strings.HasPrefix(e.Type, "custom.") {
					kept++
				}
				if p := string(e.Payload); e.Type == schema.TypeMessageEnd && !strings.Contains(p, tt.want) ||
					e.Type == schema.TypeToolStart && !strings.Contains(p, `"input":{"x":2}`) {
					t.Errorf("%s %s", e.Type, p)
				}
			}
			if kept != tt.kept {
				t.Errorf("%d frames are kept, want %d", kept, tt.kept)
			}
		})
	}
}

// TestResponsesBuiltin: the provider's own tools are calls with their items, inputs and results.
func TestResponsesBuiltin(t *testing.T) {
	added := func(item string) string { return ev("output_item.added", `"output_index":0,"item":`+item) }
	done := func(item string) string { return ev("output_item.done", `"output_index":0,"item":`+item) }
	body := func(kind, tool, first, middle, input, item, result string) string {
		call := "call_1"
		return chatStart + `block.start {"index":0,"kind":"` + kind + `","message_id":"c1","call_id":"` + call +
			`","tool":"` + tool + `",` + map[bool]string{true: `"free_text":true,`}[kind == "code_interpreter_call"] +
			`"block":` + first + "}\n" + middle +
			`block.end {"index":0,"message_id":"c1","complete":true,"call_id":"` + call + `","input":` + input + "}\n" +
			`tool.start {"call_id":"` + call + `","tool":"` + tool + `","input":` + input + `,"index":0,"kind":"` +
			kind + "\"}\n" + result +
			messageEnd(item, `"end_turn"`, endOK)
	}
	result := func(ok, output, kind string) string {
		return `tool.end {"call_id":"call_1","ok":` + ok + `,` + output + `,"kind":"` + kind + "\"}\n"
	}
	code := `{"id":"call_1","type":"code_interpreter_call","status":"in_progress","code":""}`
	codeDone := `{"id":"x","type":"code_interpreter_call","status":"completed","code":"1\n2","outputs":[{"logs":"2"}]}`
	search := `{"id":"call_1","type":"web_search_call","status":"in_progress"}`
	searchDone := `{"id":"call_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}`
	mcp := `{"id":"call_1","type":"mcp_call","name":"roll","server_label":"s","arguments":""}`
	mcpDone := `{"id":"call_1","type":"mcp_call","name":"roll","server_label":"s","arguments":"{\"d\":6}","output":null,"error":{"code":5}}`
	unput := func(item, input string) string { return strings.TrimSuffix(item, "}") + `,"input":` + input + "}" }
	for name, tt := range map[string]struct {
		frames []string
		want   string
	}{
		"code": {[]string{added(code), ev("code_interpreter_call_code.delta",
			`"output_index":0,"item_id":"y","delta":"1\n"`),
			ev("code_interpreter_call_code.delta", `"output_index":0,"delta":"2"`),
			ev("code_interpreter_call_code.done", `"output_index":0,"code":"1\n2"`), done(codeDone)},
			body("code_interpreter_call", "code_interpreter", code,
				"tool.input.delta {\"call_id\":\"call_1\",\"text\":\"1\\n\",\"index\":0}\ntool.input.delta {\"call_id\":\"call_1\",\"text\":\"2\",\"index\":0}\n", `"1\n2"`, unput(codeDone, `"1\n2"`), result("true", `"output":[{"logs":"2"}]`, "code_interpreter_call"))},
		"search": {[]string{added(search), ev("web_search_call.searching", `"output_index":0`), done(searchDone)},
			body("web_search_call", "web_search", search,
				"custom.openai.response_web_search_call_searching {\"type\":\"response.web_search_call.searching\",\"output_index\":0}\n", `{"type":"search","query":"q"}`, unput(searchDone, `{"type":"search","query":"q"}`), result("true", `"output":{"status":"completed"}`, "web_search_call"))},
		"mcp": {[]string{added(mcp), ev("mcp_call_arguments.done", `"output_index":0,"arguments":"{\"d\":6}"`),
			done(mcpDone)},
			body("mcp_call", "roll", mcp, "tool.input.delta {\"call_id\":\"call_1\",\"text\":\"{\\\"d\\\":6}\",\"index\":0}\n", `{"d":6}`, unput(mcpDone, `{"d":6}`), result("false", `"error":"KAI-TOOL-FAIL-0001","error_detail":{"code":5}`, "mcp_call"))},
	} {
		t.Run(name, func(t *testing.T) {
			expectResponses(t, sse(append(append([]string{created}, tt.frames...), completed)...), tt.want)
		})
	}
	shell := `{"id":"l1","type":"local_shell_call","call_id":"call_1","status":"completed","action":{"type":"exec"}}`
	if told := providertest.Print(providertest.Decode(t, NewResponsesDecoder(provider.Config{}),
		[]byte(sse(created, done(shell), completed)))); strings.Contains(told, "tool.end") ||
		!strings.Contains(told, `"stop_reason":"tool_use"`) {
		t.Error("a call that the client runs has a result: " + told)
	}
	list := `{"id":"l1","type":"mcp_list_tools","tools":[]}`
	expectResponses(t, sse(created, added(`{"id":"l1","type":"mcp_list_tools"}`), done(list), completed), chatStart+`block.start {"index":0,"kind":"mcp_list_tools","message_id":"c1","block":{"id":"l1","type":"mcp_list_tools"}}
block.end {"index":0,"message_id":"c1","complete":true}
`+messageEnd(list, `"end_turn"`, endOK))
	out := `{"id":"o1","type":"shell_call_output","call_id":"call_9","output":[1]}`
	expectResponses(t, sse(created, done(out), completed), chatStart+`block.start {"index":0,"kind":"shell_call_output","message_id":"c1","call_id":"call_9","block":`+out+`}
block.end {"index":0,"message_id":"c1","complete":true}
tool.end {"call_id":"call_9","ok":true,"output":[1],"kind":"shell_call_output"}
`+messageEnd(out, `"end_turn"`, endOK))
}

// TestResponsesOutputApart: what a tool gave may come in an item of its own. A call begins once and ends once, with its
// output where there is one, and else, when the response is over, with how it went.
func TestResponsesOutputApart(t *testing.T) {
	items := func(list ...string) string {
		frames := []string{created}
		for i, item := range list {
			frames = append(frames, ev("output_item.added", fmt.Sprintf(`"output_index":%d,"item":%s`, i, item)),
				ev("output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, i, item)))
		}
		return sse(append(frames, completed)...)
	}
	shell := func(call string) string {
		return `{"id":"s` + call + `","type":"shell_call","call_id":"` + call +
			`","status":"completed","action":{"commands":["ls"]},"environment":{"type":"container_auto"}}`
	}
	output := func(call, more string) string {
		return `{"id":"o` + call + `","type":"shell_call_output","call_id":"` + call +
			`","status":"completed","output":[{"stdout":"` + call + `"}]` + more + `}`
	}
	search := `{"id":"t1","type":"tool_search_call","call_id":null,"execution":"server","status":"completed","arguments":{"q":1}}`
	found := `{"id":"t2","type":"tool_search_output","call_id":null,"execution":"server","status":"completed","tools":[{"name":"f"}]}`
	for name, tt := range map[string]struct {
		body string
		ends []string // of the calls, in order
	}{
		"output": {items(shell("a"), output("a", "")),
			[]string{`{"call_id":"a","ok":true,"output":[{"stdout":"a"}],"kind":"shell_call_output"}`}},
		"outputs later": {items(shell("a"), shell("b"), output("b", ""), output("a", "")),
			[]string{`{"call_id":"b","ok":true,"output":[{"stdout":"b"}],"kind":"shell_call_output"}`,
				`{"call_id":"a","ok":true,"output":[{"stdout":"a"}],"kind":"shell_call_output"}`}},
		"output twice": {items(shell("a"), output("a", ""), output("a", `,"x":1`)),
			[]string{`{"call_id":"a","ok":true,"output":[{"stdout":"a"}],"kind":"shell_call_output"}`}},
		"no output": {items(shell("a"), shell("b")),
			[]string{`{"call_id":"a","ok":true,"output":{"status":"completed"},"kind":"shell_call"}`,
				`{"call_id":"b","ok":true,"output":{"status":"completed"},"kind":"shell_call"}`}},
		"without ids": {items(search, found),
			[]string{`{"call_id":"t1","ok":true,"output":[{"name":"f"}],"kind":"tool_search_output"}`}},
		"to come": {items(`{"id":"p1","type":"sparkle_call","call_id":"c","status":"failed"}`,
			`{"id":"p2","type":"sparkle_call_output","call_id":"c","output":"x"}`),
			[]string{`{"call_id":"c","ok":true,"output":"x","kind":"sparkle_call_output"}`}},
		"in itself": {items(`{"id":"p1","type":"sparkle_call","call_id":"c","status":"completed","output":"x"}`,
			`{"id":"p2","type":"sparkle_call_output","call_id":"c","output":"y"}`),
			[]string{`{"call_id":"c","ok":true,"output":"x","kind":"sparkle_call"}`}},
		"cut": {strings.TrimSuffix(items(shell("a")), sse(completed)),
			[]string{`{"call_id":"a","ok":true,"output":{"status":"completed"},"kind":"shell_call"}`}},
		"at the end alone": {sse(strings.Replace(completed, `"usage"`,
			`"output":[`+shell("a")+`,`+output("a", "")+`],"usage"`, 1)),
			[]string{`{"call_id":"a","ok":true,"output":[{"stdout":"a"}],"kind":"shell_call_output"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(tt.body))
			checkEvents(t, events)
			var starts, ends []string
			open := map[any]bool{}
			for _, e := range events {
				switch e.Type {
				case schema.TypeToolStart:
					starts = append(starts, string(e.Payload))
					open[providertest.Object(t, e.Payload)["call_id"]] = true
				case schema.TypeToolEnd:
					ends = append(ends, string(e.Payload))
					id := providertest.Object(t, e.Payload)["call_id"]
					if !open[id] {
						t.Errorf("%v ends and has not begun, or has ended", id)
					}
					delete(open, id)
				}
			}
			if !slices.Equal(ends, tt.ends) || len(starts) != len(ends) || events[len(events)-1].Type != schema.TypeMessageEnd {
				t.Errorf("%d begin, these end:\n%s\nwant\n%s", len(starts), strings.Join(ends, "\n"), strings.Join(tt.ends, "\n"))
			}
		})
	}
}

// TestResponsesImage: images are data, each by itself, and no event is too large for the log.
func TestResponsesImage(t *testing.T) {
	image := strings.Repeat("iVBORw0K", 100<<10)
	body := sse(created, ev("output_item.added",
		`"output_index":0,"item":{"id":"g1","type":"image_generation_call","status":"in_progress"}`),
		ev("image_generation_call.partial_image",
			`"output_index":0,"partial_image_index":0,"partial_image_b64":"AA\/A","size":"1x1"`),
		ev("output_item.done", `"output_index":0,"item":{"id":"g1","type":"image_generation_call","status":"completed","output_format":"webp","result":"`+image+`"}`), completed)
	events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(body))
	checkEvents(t, events)
	var f schema.Fold
	for i := range events {
		f.Add(&events[i])
	}
	blocks := f.Messages[0].Blocks
	if len(blocks) != 3 || blocks[1].Data[0] != "AA/A" || blocks[1].MediaType != "image/png" ||
		strings.Join(blocks[2].Data, "") != image || blocks[2].MediaType != "image/webp" || len(blocks[2].Data) < 2 {
		t.Errorf("%d blocks: %.3000s", len(blocks), providertest.Print(events))
	}
	told := providertest.Print(events)
	for _, want := range []string{`"size":"1x1"`, `"output":{"index":2}`,
		`{"type":"data","media_type":"image/webp","name":"image"}`} {
		if !strings.Contains(told, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(told, "omitted") {
		t.Error("something was left out")
	}
}

// TestResponsesReasoning: summaries and raw thoughts are told apart while they stream.
func TestResponsesReasoning(t *testing.T) {
	body := sse(created, ev("output_item.added",
		`"output_index":0,"item":{"id":"r1","type":"reasoning","summary":[],"encrypted_content":"A"}`),
		ev("reasoning_text.delta", at(0)+`,"delta":"raw"`),
		ev("reasoning_summary_part.added", `"output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}`),
		ev("reasoning_summary_text.delta", `"output_index":0,"summary_index":0,"delta":"sum"`),
		ev("reasoning_summary_text.delta", `"output_index":0,"summary_index":1,"delta":"two"`),
		ev("output_item.done", `"output_index":0,"item":{"id":"r1","type":"reasoning","summary":[],"encrypted_content":"B"}`), completed)
	expectResponses(t, body, chatStart+`block.start {"index":0,"kind":"reasoning","message_id":"c1"}
block.start {"index":1,"kind":"reasoning","message_id":"c1","block":{"type":"reasoning_text"}}
reasoning.delta {"text":"raw","index":1}
reasoning.delta {"text":"sum","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"r1"}
block.start {"index":2,"kind":"reasoning","message_id":"c1"}
reasoning.delta {"text":"two","index":2}
block.end {"index":1,"message_id":"c1","complete":true,"item_id":"r1"}
block.end {"index":2,"message_id":"c1","complete":true,"item_id":"r1","encrypted_content":"B"}
`+messageEnd(`{"type":"thinking","thinking":"sum","item_id":"r1"},{"type":"reasoning_text","text":"raw","item_id":"r1"},{"type":"thinking","thinking":"two","item_id":"r1","encrypted_content":"B"}`, `"end_turn"`, endOK))
}

// TestResponsesKept: what has no place is kept, and harms nothing.
func TestResponsesKept(t *testing.T) {
	for _, odd := range []string{
		ev("sparkle.delta", `"delta":1.0`), `{"type":"weird"}`, ev("output_item.done", `"output_index":7,"item":5`),
		ev("function_call_arguments.delta", `"output_index":9,"delta":"x"`),
		ev("output_text.delta", at(0)+`,"delta":5`),
		ev("output_item.added", `"output_index":0,"item":{"type":"message"}`),
		ev("output_item.done", `"output_index":0,"item":{"type":"function_call"}`),
		ev("reasoning_text.delta", at(0)+`,"delta":"x"`), ev("content_part.added", at(0)+`,"part":null`),
		ev("image_generation_call.partial_image", `"partial_image_b64":"?"`),
	} {
		v, _ := provider.Parse([]byte(odd))
		name := strings.ReplaceAll(v.Str("type"), ".", "_")
		expectResponses(t, sse(created, addedMsg, textPiece("Hi"), odd, completed), chatStart+textOfHi+"custom.openai."+name+" "+odd+`
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi","item_id":"m1"}`, `"end_turn"`, endOK))
	}
}

// TestSequence: numbers are believed only once a response is being repeated.
func TestSequence(t *testing.T) {
	zero := func(s string) string { return strings.Replace(s, `{"type"`, `{"sequence_number":0,"type"`, 1) }
	for name, frames := range map[string][]string{
		"all are 0": {zero(created), zero(strings.Replace(created, "created", "in_progress", 1)), zero(addedMsg),
			zero(textPiece("H")), zero(textPiece("i")), zero(completed)},
		"out of order": {strings.Replace(created, `{`, `{"sequence_number":5,`, 1),
			strings.Replace(addedMsg, `{`, `{"sequence_number":4,`, 1), textPiece("H"), textPiece("i"), completed},
	} {
		events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(sse(frames...)))
		checkEvents(t, events)
		if told := providertest.Print(events); !strings.Contains(told, `"text":"Hi"`) {
			t.Errorf("%s: %s", name, told)
		}
	}
}
