package gemini

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

func decodeAll(t testing.TB, body []byte) []schema.Event {
	t.Helper()
	return providertest.Decode(t, NewDecoder(provider.Config{}), body)
}

// sse writes chunks as the API does.
func sse(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\r\n\r\n")
	}
	return b.String()
}

// parts is a chunk with these parts; more are members of the candidate.
func parts(list string, more ...string) string {
	return `{"candidates":[{"content":{"parts":[` + list + `],"role":"model"}` + strings.Join(more, "") +
		`}],"modelVersion":"m","responseId":"r1"}`
}

const stop = `,"finishReason":"STOP"`

// checkEvents: the indexes of blocks are the adapter's own.
func checkEvents(t testing.TB, events []schema.Event) {
	t.Helper()
	providertest.CheckEvents(t, events)
	providertest.CheckNumbered(t, events)
}

func expect(t *testing.T, body, want string) {
	t.Helper()
	events := decodeAll(t, []byte(body))
	providertest.CheckPrinted(t, events, want)
	providertest.CheckNumbered(t, events)
}

const head = `message.start {"message_id":"r1","role":"assistant","model":"m","provider":"gemini"}
`

// TestSpelling: strings pass as the API wrote them.
func TestSpelling(t *testing.T) {
	expect(t, sse(parts(`{"text":"a\u003d\/"}`), parts(`{"text":"\ud83d"}`),
		parts(`{"text":"\ude00\\","thoughtSignature":"S\u003d"}`, stop)), head+
		`block.start {"index":0,"kind":"text","message_id":"r1"}
text.delta {"text":"a\u003d\/","index":0}
text.delta {"text":"\ud83d","index":0}
text.delta {"text":"\ude00\\","index":0}
block.end {"index":0,"message_id":"r1","complete":true,"signature":"S\u003d"}
message.end {"message_id":"r1","content":[{"type":"text","text":"a\u003d\/\ud83d\ude00\\","signature":"S\u003d"}],"stop_reason":"end_turn","stop_sequence":null,"finish_reason":"STOP"}`)
}

// TestThoughts: what is a block, and where signatures belong.
func TestThoughts(t *testing.T) {
	expect(t, sse(parts(`{"text":"T","thought":true},{"text":"U","thought":true,"thoughtSignature":"1"},{"text":"a"},{"text":"","thoughtSignature":"2"},{"text":"b"},{"text":"c","thoughtSignature":"3"}`),
		parts(`{"functionCall":{"name":"f","args":{"x" : 1.0}},"thoughtSignature":"4"},{"text":""},{"text":"","thoughtSignature":"5"}`, stop)), head+
		`block.start {"index":0,"kind":"reasoning","message_id":"r1"}
reasoning.delta {"text":"T","index":0}
reasoning.delta {"text":"U","index":0}
block.end {"index":0,"message_id":"r1","complete":true,"signature":"1"}
block.start {"index":1,"kind":"text","message_id":"r1"}
text.delta {"text":"a","index":1}
text.delta {"text":"b","index":1}
block.end {"index":1,"message_id":"r1","complete":true,"signature":"2"}
block.start {"index":2,"kind":"text","message_id":"r1"}
text.delta {"text":"c","index":2}
block.end {"index":2,"message_id":"r1","complete":true,"signature":"3"}
block.start {"index":3,"kind":"tool_use","message_id":"r1","call_id":"call_r1_3","tool":"f"}
block.end {"index":3,"message_id":"r1","complete":true,"call_id":"call_r1_3","input":{"x" : 1.0},"signature":"4"}
tool.start {"call_id":"call_r1_3","tool":"f","input":{"x" : 1.0},"index":3,"kind":"functionCall"}
block.start {"index":4,"kind":"text","message_id":"r1"}
block.end {"index":4,"message_id":"r1","complete":true,"signature":"5"}
message.end {"message_id":"r1","content":[{"type":"thinking","thinking":"TU","signature":"1"},{"type":"text","text":"ab","signature":"2"},{"type":"text","text":"c","signature":"3"},{"type":"tool_use","id":"call_r1_3","name":"f","input":{"x" : 1.0},"signature":"4"},{"type":"text","text":"","signature":"5"}],"stop_reason":"tool_use","stop_sequence":null,"finish_reason":"STOP"}`)
}

// piece is a part of a call whose arguments stream.
func piece(more bool, args ...string) string {
	return fmt.Sprintf(`{"functionCall":{"partialArgs":[%s],"willContinue":%v}}`, strings.Join(args, ","), more)
}

func arg(path, member, value string, more bool) string {
	return fmt.Sprintf(`{"jsonPath":%q,%q:%s,"willContinue":%v}`, path, member, value, more)
}

// TestStreamedArguments: what the deltas join to, and the input.
func TestStreamedArguments(t *testing.T) {
	begin := `{"functionCall":{"name":"f","willContinue":true}}`
	for name, tt := range map[string]struct {
		pieces []string
		deltas string // "" where they do not come to the input
		input  string // "" where there is none
		blocks int
	}{
		"nothing": {[]string{`{"functionCall":{}}`}, ``, `{}`, 1},
		"kinds": {[]string{piece(true, arg("$.a", "numberValue", "1.50", false),
			arg("$.b", "boolValue", "false", false)), piece(false, arg("$.c", "nullValue", `"NULL_VALUE"`, false))},
			`{"a":1.50,"b":false,"c":null}`, `{"a":1.50,"b":false,"c":null}`, 1},
		"long string": {[]string{piece(true, arg("$.a", "stringValue", `"x\n\""`, true)),
			piece(true, arg("$.a", "stringValue", `"\ud83d"`, true)),
			piece(true, arg("$.a", "stringValue", `"\ude00"`, false)), `{"functionCall":{}}`},
			`{"a":"x\n\"\ud83d\ude00"}`, `{"a":"x\n\"\ud83d\ude00"}`, 1},
		"unended": {[]string{piece(true, arg("$.a", "stringValue", `"x"`, true)),
			piece(false, arg("$.b", "stringValue", `"y"`, true))}, `{"a":"x","b":"y"}`, `{"a":"x","b":"y"}`, 1},
		"nested": {[]string{piece(false, arg("$.a.b[0].c", "numberValue", "1", false),
			arg("$.a.b[0].d", "numberValue", "2", false), arg("$.a.b[1].c", "numberValue", "3", false),
			arg("$.a.e", "numberValue", "4", false), arg("$.f[0][0]", "numberValue", "5", false))},
			`{"a":{"b":[{"c":1,"d":2},{"c":3}],"e":4},"f":[[5]]}`, `{"a":{"b":[{"c":1,"d":2},{"c":3}],"e":4},"f":[[5]]}`, 1},
		"quoted names": {[]string{piece(false, arg(`$['a b'].c`, "numberValue", "1", false),
			arg(`$["q\"\u00fc'"]`, "numberValue", "2", false), arg(`$['it\'s']`, "numberValue", "3", false))},
			`{"a b":{"c":1},"q\"ü'":2,"it's":3}`, `{"a b":{"c":1},"q\"ü'":2,"it's":3}`, 1},
		"with args": {[]string{`{"functionCall":{"args":{"z":[1, 2]},"willContinue":true}}`,
			piece(false, arg("$.a", "numberValue", "1", false))}, `{"z":[1, 2],"a":1}`, `{"z":[1, 2],"a":1}`, 1},
		"back": {[]string{piece(true, arg("$.a.b", "numberValue", "1", false),
			arg("$.c", "numberValue", "2", false)),
			piece(false, arg("$.a.d", "stringValue", `"x\u0041"`, true), arg("$.a.d", "stringValue", `"y"`, false))},
			"", `{"a":{"b":1,"d":"x\u0041y"},"c":2}`, 2},
		"again": {[]string{piece(false, arg("$.a", "numberValue", "1", false),
			arg("$.a", "numberValue", "2", false))}, "", `{"a":2}`, 2},
		"gap": {[]string{piece(false, arg("$.a[0]", "numberValue", "1", false),
			arg("$.a[5]", "numberValue", "2", false))}, "", "", 1},
		"no place": {[]string{piece(false, arg("$.a", "numberValue", "1", false),
			arg("$.a.b", "numberValue", "2", false))}, "", "", 1},
		"over a list": {[]string{piece(false, arg("$.a[0]", "numberValue", "1", false),
			arg("$.a", "numberValue", "2", false))}, "", "", 1},
		"no path":   {[]string{piece(false, `{"stringValue":"x"}`)}, "", "", 1},
		"no value":  {[]string{piece(false, `{"jsonPath":"$.a"}`)}, "", "", 1},
		"no list":   {[]string{`{"functionCall":{"partialArgs":7}}`}, "", "", 1},
		"wild path": {[]string{piece(false, arg("$..a", "numberValue", "1", false))}, "", "", 1},
		"deep":      {[]string{piece(false, arg("$"+strings.Repeat(".a", 200), "numberValue", "1", false))}, "", "", 1},
		"cut":       {[]string{piece(true, arg("$.a", "stringValue", `"x"`, true))}, "", "", 1},
		"another": {[]string{piece(true, arg("$.a", "stringValue", `"x"`, true)),
			`{"functionCall":{"name":"g","args":{}}}`}, "", `{}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			chunks := []string{parts(begin)}
			for _, p := range tt.pieces {
				chunks = append(chunks, parts(p))
			}
			events := decodeAll(t, []byte(sse(append(chunks, parts("", stop))...)))
			checkEvents(t, events)
			o := geminitest.FromFold(t, events)[0]
			if len(o.Calls)+len(o.Open) != tt.blocks || tt.input == "" && len(o.Calls) > 0 {
				t.Fatalf("%+v\n%s", o, providertest.Print(events))
			}
			if tt.input == "" {
				if *o.Stop != "end_turn" {
					t.Errorf("stop %s", *o.Stop)
				}
				return
			}
			c := o.Calls[0]
			if c.Deltas != tt.deltas || !strings.Contains(providertest.Print(events), `"input":`+tt.input+`,"index"`) {
				t.Errorf("deltas %s\n%s", c.Deltas, providertest.Print(events))
			}
		})
	}
}

// TestCallIDs: an id that the API gives is kept, and one that is made stays the same.
func TestCallIDs(t *testing.T) {
	body := sse(parts(`{"functionCall":{"name":"f","id":"x"}},{"functionCall":{"name":"f"}},{"functionCall":{"name":"f"}},{"functionCall":{"id":"y","args":{}}}`, stop))
	a, b := decodeAll(t, []byte(body)), decodeAll(t, []byte(body))
	checkEvents(t, a)
	if providertest.Lines(a) != providertest.Lines(b) {
		t.Error("the ids change")
	}
	var ids []string
	for _, c := range geminitest.FromFold(t, a)[0].Calls {
		ids = append(ids, c.ID+" "+c.Name)
	}
	if got := strings.Join(ids, ", "); got != "x f, call_r1_1 f, call_r1_2 f, y unnamed" {
		t.Error(got)
	}
	// A call whose pieces carry its id.
	events := decodeAll(t, []byte(sse(parts(`{"functionCall":{"name":"f","id":"x","willContinue":true}}`),
		parts(`{"functionCall":{"name":"f","id":"x","partialArgs":[{"jsonPath":"$.a","boolValue":true}]}}`, stop))))
	if c := geminitest.FromFold(t, events)[0].Calls; len(c) != 1 || c[0].Deltas != `{"a":true}` {
		t.Error(providertest.Print(events))
	}
}

func TestCode(t *testing.T) {
	expect(t, sse(parts(`{"executableCode":{"language":"PYTHON","code":"x"}},{"codeExecutionResult":{"outcome":"OUTCOME_FAILED","output":"no\/"}},{"executableCode":{"code":"y","id":"c2"}}`, stop)), head+
		`block.start {"index":0,"kind":"executableCode","message_id":"r1","block":{"type":"executableCode","language":"PYTHON","code":"x"}}
block.end {"index":0,"message_id":"r1","complete":true}
tool.start {"call_id":"call_r1_0","tool":"code_execution","input":{"language":"PYTHON","code":"x"},"index":0,"kind":"executableCode"}
block.start {"index":1,"kind":"codeExecutionResult","message_id":"r1","call_id":"call_r1_0","block":{"type":"codeExecutionResult","outcome":"OUTCOME_FAILED","output":"no\/"}}
block.end {"index":1,"message_id":"r1","complete":true}
tool.end {"call_id":"call_r1_0","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":"no\/","kind":"codeExecutionResult"}
block.start {"index":2,"kind":"executableCode","message_id":"r1","block":{"type":"executableCode","code":"y","id":"c2"}}
block.end {"index":2,"message_id":"r1","complete":true}
tool.start {"call_id":"c2","tool":"code_execution","input":{"code":"y"},"index":2,"kind":"executableCode"}
tool.end {"call_id":"c2","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"no_result","message":"the answer holds no result of this code"},"kind":"codeExecutionResult"}
message.end {"message_id":"r1","content":[{"type":"executableCode","language":"PYTHON","code":"x"},{"type":"codeExecutionResult","outcome":"OUTCOME_FAILED","output":"no\/"},{"type":"executableCode","code":"y","id":"c2"}],"stop_reason":"end_turn","stop_sequence":null,"finish_reason":"STOP"}`)
}

// TestData: pictures are whole, sound comes in pieces, and large data stays out of the content.
func TestData(t *testing.T) {
	expect(t, sse(parts(`{"inlineData":{"mimeType":"image/png","data":"aGk\u003d"}},{"inlineData":{"mimeType":"image/png","data":"aG8="},"thoughtSignature":"S"},{"fileData":{"mimeType":"a/b","fileUri":"gs://x"}}`, stop)), head+
		`block.start {"index":0,"kind":"data","message_id":"r1"}
data.delta {"media_type":"image/png","data":"aGk\u003d","index":0}
block.end {"index":0,"message_id":"r1","complete":true}
block.start {"index":1,"kind":"data","message_id":"r1"}
data.delta {"media_type":"image/png","data":"aG8=","index":1}
block.end {"index":1,"message_id":"r1","complete":true,"signature":"S"}
block.start {"index":2,"kind":"fileData","message_id":"r1","block":{"type":"fileData","fileData":{"mimeType":"a/b","fileUri":"gs://x"}}}
block.end {"index":2,"message_id":"r1","complete":true}
message.end {"message_id":"r1","content":[{"type":"data","media_type":"image/png","data":"aGk\u003d"},{"type":"data","media_type":"image/png","data":"aG8=","signature":"S"},{"type":"fileData","fileData":{"mimeType":"a/b","fileUri":"gs://x"}}],"stop_reason":"end_turn","stop_sequence":null,"finish_reason":"STOP"}`)
	sound := func(data string) string {
		return parts(`{"inlineData":{"mimeType":"audio/L16;rate=24000","data":"` + data + `"}}`)
	}
	events := decodeAll(t, []byte(sse(sound("AAAA"), sound("BBBB"), parts(`{"text":"x"}`), sound("CCCC"),
		parts("", stop))))
	checkEvents(t, events)
	if told := providertest.Print(events); strings.Count(told, "block.start") != 3 ||
		!strings.Contains(told, `"content":[{"type":"data","media_type":"audio/L16;rate=24000","bytes":8},{"type":"text","text":"x"},{"type":"data","media_type":"audio/L16;rate=24000","data":"CCCC"}]`) {
		t.Error(told)
	}
	big := strings.Repeat("QUJD", 300<<10) // 1.2 MB
	events = decodeAll(t, []byte(sse(parts(`{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"`+big+`"}}`,
		stop))))
	checkEvents(t, events)
	joined := ""
	for _, e := range events {
		if e.Type == schema.TypeDataDelta {
			piece := providertest.Object(t, e.Payload)["data"].(string)
			if len(piece)%4 != 0 {
				t.Errorf("a piece of %d bytes", len(piece))
			}
			joined += piece
		}
	}
	if told := providertest.Print(events); joined != big ||
		!strings.Contains(told, `"content":[{"type":"text","text":"x"},{"type":"data","media_type":"image/png","bytes":1228800}]`) {
		t.Errorf("%d bytes of data", len(joined))
	}
}

// TestStops: the common word, and the API's own beside it.
func TestStops(t *testing.T) {
	for reason, want := range map[string]string{"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "SAFETY": "refusal",
		"RECITATION": "refusal", "PROHIBITED_CONTENT": "refusal",
		"BLOCKLIST": "refusal", "SPII": "refusal", "IMAGE_SAFETY": "refusal", "MALFORMED_FUNCTION_CALL": "error",
		"UNEXPECTED_TOOL_CALL": "error", "OTHER": "other", "NEW_ONE": "new_one"} {
		events := decodeAll(t, []byte(sse(parts(`{"text":"a"}`),
			parts("", `,"finishReason":"`+reason+`","finishMessage":"why"`))))
		checkEvents(t, events)
		o := geminitest.FromFold(t, events)[0]
		if *o.Stop != want || *o.Finish != reason || (o.Err != nil) != (want == "error") {
			t.Errorf("%s: %s %s %v", reason, *o.Stop, *o.Finish, o.Err)
		}
		var out provider.Outcome
		for i := range events {
			out.See(&events[i])
		}
		if state, why := out.State(); (state == schema.StateError) != (want == "error") {
			t.Errorf("%s: %s %s", reason, state, why)
		}
	}
}

// TestBlockedPrompt: the model never spoke, and that is a refusal, not an error.
func TestBlockedPrompt(t *testing.T) {
	expect(t, sse(`{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]},"usageMetadata":{"promptTokenCount":3},"modelVersion":"m"}`),
		`message.start {"message_id":"msg_unnamed_1","role":"assistant","model":"m","provider":"gemini"}
message.end {"message_id":"msg_unnamed_1","content":[],"stop_reason":"refusal","stop_sequence":null,"usage":{"promptTokenCount":3},"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]}}`)
}

// TestErrors: an error is told twice, as itself and as the message's end.
func TestErrors(t *testing.T) {
	failed := `{"error":{"code":503,"message":"later \/","status":"UNAVAILABLE"}}`
	expect(t, sse(failed), `custom.gemini.error `+failed)
	expect(t, "[{\n  \"error\": {\n    \"code\": 400\n  }\n}\n]", `custom.gemini.error {"error":{"code":400}}`)
	expect(t, sse(parts(`{"text":"a"},{"functionCall":{"name":"f","willContinue":true}}`), failed,
		parts(`{"text":"b"}`, stop)), head+
		`block.start {"index":0,"kind":"text","message_id":"r1"}
text.delta {"text":"a","index":0}
block.end {"index":0,"message_id":"r1","complete":true}
block.start {"index":1,"kind":"tool_use","message_id":"r1","call_id":"call_r1_1","tool":"f"}
custom.gemini.error `+failed+`
block.end {"index":1,"message_id":"r1","complete":false,"problem":"cut short","call_id":"call_r1_1"}
message.end {"message_id":"r1","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"call_r1_1","name":"f","input":{},"partial_json":""}],"stop_reason":"error","stop_sequence":null,"error":{"code":503,"message":"later \/","status":"UNAVAILABLE"}}
`+head+`block.start {"index":0,"kind":"text","message_id":"r1"}
text.delta {"text":"b","index":0}
block.end {"index":0,"message_id":"r1","complete":true}
message.end {"message_id":"r1","content":[{"type":"text","text":"b"}],"stop_reason":"end_turn","stop_sequence":null,"finish_reason":"STOP"}`)
	// Behind the end, the message is as it was.
	events := decodeAll(t, []byte(sse(parts(`{"text":"a"}`, stop), failed)))
	if o := geminitest.FromFold(t, events)[0]; *o.Stop != "end_turn" || o.Err != nil {
		t.Error(providertest.Print(events))
	}
}

// TestUsage: counts are running totals, the last ones stand, also behind the end.
func TestUsage(t *testing.T) {
	with := func(chunk, usage string) string {
		return strings.Replace(chunk, `"modelVersion"`, `"usageMetadata":`+usage+`,"modelVersion"`, 1)
	}
	events := decodeAll(t, []byte(sse(with(parts(`{"text":"a"}`), `{"a":1,"b":2}`),
		with(parts("", stop), `{"a":3,"x":1.50}`), `{"usageMetadata":{"a":4,"d":[1, 2]},"responseId":"r1"}`)))
	checkEvents(t, events)
	if told := providertest.Print(events); strings.Count(told, "message.end") != 1 ||
		!strings.Contains(told, `"usage":{"a":4,"d":[1, 2]}`) {
		t.Error(told)
	}
}

// TestMetadata: what the catalogue has no name for stands in message.end; what a later one replaces
// is kept.
func TestMetadata(t *testing.T) {
	events := decodeAll(t, []byte(sse(
		parts(`{"text":"a"}`, `,"groundingMetadata":{},"safetyRatings":[{"x":1}]`),
		parts(`{"text":"b"}`, `,"groundingMetadata":{"webSearchQueries":["q"]},"safetyRatings":[{"x":2}]`),
		parts(`{"text":"c"}`, `,"groundingMetadata":{},"citationMetadata":{"citationSources":[]}`),
		parts(`{"text":"d"}`, stop, `,"groundingMetadata":{"groundingChunks":[1]},"avgLogprobs":-0.10,"error":"odd","stop_reason":"odd"`))))
	checkEvents(t, events)
	told := providertest.Print(events)
	for _, want := range []string{`"groundingMetadata":{"groundingChunks":[1]}`, `"safetyRatings":[{"x":2}]`,
		`"citationMetadata":{"citationSources":[]}`, `"avgLogprobs":-0.10`,
		`custom.gemini.groundingMetadata {"groundingMetadata":{"webSearchQueries":["q"]}}`,
		`custom.gemini.member {"error":"odd"}`, `custom.gemini.member {"stop_reason":"odd"}`, `"stop_reason":"end_turn"`} {
		if !strings.Contains(told, want) {
			t.Errorf("no %s in\n%s", want, told)
		}
	}
}

// TestCandidates: one after the other, each once, with the usage in the first.
func TestCandidates(t *testing.T) {
	chunk := func(index int, text, more string) string {
		return fmt.Sprintf(`{"candidates":[{"index":%d,"content":{"parts":[{"text":%q}],"role":"model"}%s}],"usageMetadata":{"n":1},"responseId":"r1"}`, index, text, more)
	}
	events := decodeAll(t, []byte(sse(chunk(0, "a", ""), chunk(2, "x", ""), chunk(1, "m", ""), chunk(0, "b", stop),
		chunk(1, "n", ""), chunk(2, "y", `,"finishReason":"SAFETY"`))))
	checkEvents(t, events)
	var got []string
	for _, o := range geminitest.FromFold(t, events) {
		got = append(got, fmt.Sprint(o.Text, o.Usage != nil, o.Stop != nil, o.Err != nil))
	}
	if s := strings.Join(got, " "); s != "abtrue true false xyfalse true false mnfalse false true" ||
		!strings.Contains(providertest.Print(events), `"message_id":"r1_candidate_2"`) {
		t.Error(s)
	}
	// What there is no room for is kept as it came.
	long := chunk(1, strings.Repeat("x", 300<<10), "")
	events = decodeAll(t, []byte(sse(append([]string{chunk(0, "a", "")},
		strings.Split(strings.Repeat(long+"\n", 20)+chunk(0, "b", stop), "\n")...)...)))
	checkEvents(t, events)
	told := providertest.Print(events)
	text := geminitest.FromFold(t, events)[1].Text
	if n := strings.Count(told, "custom.gemini.candidate "); n < 5 || n*(300<<10)+len(text) != 20*(300<<10) {
		t.Errorf("%d kept, %d bytes told", n, len(text))
	}
}
