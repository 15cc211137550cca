package openai

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/producers/provider"
	"agentstream/producers/provider/providertest"
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
		ev("output_text.done", at(0)+`,"text":"Hi 😀"`), ev("content_part.done", at(0)+`,"part":{"type":"output_text","text":"Hi 😀","annotations":[]}`),
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
`+messageEnd(`{"type":"text","text":"Hi \ud83d","item_id":"m1"}`, `"end_turn"`, endOK))
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), ev("output_text.done", at(0)+`,"text":"Hi you"`), completed), chatStart+textOfHi+
		`text.delta {"text":" you","index":0}
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi you","item_id":"m1"}`, `"end_turn"`, endOK))
	mismatch := ev("output_text.done", at(0)+`,"text":"Bye"`)
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), mismatch, completed), chatStart+textOfHi+"custom.openai.response_output_text_done "+mismatch+`
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi","item_id":"m1"}`, `"end_turn"`, endOK))
}

// TestResponsesPart: a part that is said as a whole alone, and one of a kind of the provider's.
func TestResponsesPart(t *testing.T) {
	part := func(what, part string) string { return ev("content_part."+what, at(0)+`,"part":`+part) }
	mismatch := part("done", `{"type":"output_text","text":"Bye"}`)
	expectResponses(t, sse(created, addedMsg, textPiece("Hi"), mismatch, completed), chatStart+textOfHi+"custom.openai.response_content_part_done "+mismatch+`
block.end {"index":0,"message_id":"c1","complete":true,"item_id":"m1"}
`+messageEnd(`{"type":"text","text":"Hi","item_id":"m1"}`, `"end_turn"`, endOK))
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
		"max":       {end("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"}`), open + cut + messageEnd(text, `"max_tokens"`, `,"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"finish_reason":"max_output_tokens"`)},
		"filter":    {end("incomplete", `,"incomplete_details":{"reason":"content_filter"}`), open + cut + messageEnd(text, `"refusal"`, `,"status":"incomplete","incomplete_details":{"reason":"content_filter"},"finish_reason":"content_filter"`)},
		"failed":    {end("failed", `,"error":{"code":"x"}`), open + cut + messageEnd(text, `"error"`, `,"error":{"code":"x"},"status":"failed","finish_reason":"failed"`)},
		"for no":    {end("failed", ``), open + cut + messageEnd(text, `"error"`, `,"error":{"type":"response_failed"},"status":"failed","finish_reason":"failed"`)},
		"cancelled": {end("cancelled", ``), open + cut + messageEnd(text, `"cancelled"`, `,"status":"cancelled","finish_reason":"cancelled"`)},
		"nothing":   {`{"type":"keepalive"}`, open + cut + messageEnd(text, "null", `,"incomplete":true,"error":{"type":"stream_cut","message":"the provider's stream ended before the response did"},"status":"in_progress"`)},
		"error":     {failed, open + "custom.openai.error " + failed + "\n" + cut + messageEnd(text, `"error"`, `,"error":`+failed+`,"status":"in_progress"`)},
		"another":   {strings.ReplaceAll(end("queued", ""), "c1", "c2"), open + cut + messageEnd(text, "null", `,"incomplete":true,"error":{"type":"stream_cut","message":"another response began"},"status":"in_progress"`) + "message.start {\"message_id\":\"c2\",\"role\":\"assistant\",\"provider\":\"openai\"}\n" + `message.end {"message_id":"c2","content":[],"stop_reason":null,"stop_sequence":null,"incomplete":true,"error":{"type":"stream_cut","message":"the provider's stream ended before the response did"},"status":"queued"}`},
	} {
		t.Run(name, func(t *testing.T) { expectResponses(t, sse(created, addedMsg, textPiece("Hi"), tt.last), tt.want) })
	}
}

// TestResponsesBuiltin: the provider's own tools are calls with their items, inputs and results.
func TestResponsesBuiltin(t *testing.T) {
	added := func(item string) string { return ev("output_item.added", `"output_index":0,"item":`+item) }
	done := func(item string) string { return ev("output_item.done", `"output_index":0,"item":`+item) }
	body := func(kind, tool, first, middle, input, item, result string) string {
		call := "call_1"
		return chatStart + `block.start {"index":0,"kind":"` + kind + `","message_id":"c1","call_id":"` + call + `","tool":"` + tool + `","block":` + first + "}\n" + middle +
			`block.end {"index":0,"message_id":"c1","complete":true,"call_id":"` + call + `","input":` + input + "}\n" +
			`tool.start {"call_id":"` + call + `","tool":"` + tool + `","input":` + input + `,"index":0,"kind":"` + kind + "\"}\n" + result +
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
		"code": {[]string{added(code), ev("code_interpreter_call_code.delta", `"output_index":0,"item_id":"y","delta":"1\n"`), ev("code_interpreter_call_code.delta", `"output_index":0,"delta":"2"`), ev("code_interpreter_call_code.done", `"output_index":0,"code":"1\n2"`), done(codeDone)},
			body("code_interpreter_call", "code_interpreter", code, "tool.input.delta {\"call_id\":\"call_1\",\"text\":\"1\\n\",\"index\":0}\ntool.input.delta {\"call_id\":\"call_1\",\"text\":\"2\",\"index\":0}\n", `"1\n2"`, unput(codeDone, `"1\n2"`), result("true", `"output":[{"logs":"2"}]`, "code_interpreter_call"))},
		"search": {[]string{added(search), ev("web_search_call.searching", `"output_index":0`), done(searchDone)},
			body("web_search_call", "web_search", search, "custom.openai.response_web_search_call_searching {\"type\":\"response.web_search_call.searching\",\"output_index\":0}\n", `{"type":"search","query":"q"}`, unput(searchDone, `{"type":"search","query":"q"}`), result("true", `"output":{"status":"completed"}`, "web_search_call"))},
		"mcp": {[]string{added(mcp), ev("mcp_call_arguments.done", `"output_index":0,"arguments":"{\"d\":6}"`), done(mcpDone)},
			body("mcp_call", "roll", mcp, "tool.input.delta {\"call_id\":\"call_1\",\"text\":\"{\\\"d\\\":6}\",\"index\":0}\n", `{"d":6}`, unput(mcpDone, `{"d":6}`), result("false", `"error":{"code":5}`, "mcp_call"))},
	} {
		t.Run(name, func(t *testing.T) {
			expectResponses(t, sse(append(append([]string{created}, tt.frames...), completed)...), tt.want)
		})
	}
	shell := `{"id":"l1","type":"local_shell_call","call_id":"call_1","status":"completed","action":{"type":"exec"}}`
	if told := providertest.Story(providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(sse(created, done(shell), completed)))); strings.Contains(told, "tool.end") || !strings.Contains(told, `"stop_reason":"tool_use"`) {
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

// TestResponsesImage: images are data, each by itself, and no event is too large for the log.
func TestResponsesImage(t *testing.T) {
	image := strings.Repeat("iVBORw0K", 100<<10)
	body := sse(created, ev("output_item.added", `"output_index":0,"item":{"id":"g1","type":"image_generation_call","status":"in_progress"}`),
		ev("image_generation_call.partial_image", `"output_index":0,"partial_image_index":0,"partial_image_b64":"AA\/A","size":"1x1"`),
		ev("output_item.done", `"output_index":0,"item":{"id":"g1","type":"image_generation_call","status":"completed","output_format":"webp","result":"`+image+`"}`), completed)
	events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(body))
	checkEvents(t, events)
	var f schema.Fold
	for i := range events {
		f.Add(&events[i])
	}
	blocks := f.Messages[0].Blocks
	if len(blocks) != 3 || blocks[1].Data[0] != "AA/A" || blocks[1].MediaType != "image/png" || strings.Join(blocks[2].Data, "") != image || blocks[2].MediaType != "image/webp" || len(blocks[2].Data) < 2 {
		t.Errorf("%d blocks: %.3000s", len(blocks), providertest.Story(events))
	}
	told := providertest.Story(events)
	for _, want := range []string{`"size":"1x1"`, `"output":{"index":2}`, `{"type":"data","media_type":"image/webp","name":"image"}`} {
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
	body := sse(created, ev("output_item.added", `"output_index":0,"item":{"id":"r1","type":"reasoning","summary":[],"encrypted_content":"A"}`),
		ev("reasoning_text.delta", at(0)+`,"delta":"raw"`), ev("reasoning_summary_part.added", `"output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}`),
		ev("reasoning_summary_text.delta", `"output_index":0,"summary_index":0,"delta":"sum"`), ev("reasoning_summary_text.delta", `"output_index":0,"summary_index":1,"delta":"two"`),
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
		ev("sparkle.delta", `"delta":1.0`), `{"type":"weird"}`, ev("output_item.done", `"output_index":7,"item":5`), ev("function_call_arguments.delta", `"output_index":9,"delta":"x"`),
		ev("output_text.delta", at(0)+`,"delta":5`), ev("output_item.added", `"output_index":0,"item":{"type":"message"}`), ev("output_item.done", `"output_index":0,"item":{"type":"function_call"}`),
		ev("reasoning_text.delta", at(0)+`,"delta":"x"`), ev("content_part.added", at(0)+`,"part":null`), ev("image_generation_call.partial_image", `"partial_image_b64":"?"`),
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
		"all are 0":    {zero(created), zero(strings.Replace(created, "created", "in_progress", 1)), zero(addedMsg), zero(textPiece("H")), zero(textPiece("i")), zero(completed)},
		"out of order": {strings.Replace(created, `{`, `{"sequence_number":5,`, 1), strings.Replace(addedMsg, `{`, `{"sequence_number":4,`, 1), textPiece("H"), textPiece("i"), completed},
	} {
		events := providertest.Decode(t, NewResponsesDecoder(provider.Config{}), []byte(sse(frames...)))
		checkEvents(t, events)
		if told := providertest.Story(events); !strings.Contains(told, `"text":"Hi"`) {
			t.Errorf("%s: %s", name, told)
		}
	}
}
