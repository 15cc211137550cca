package openai

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/internal/cputime"
	"agentstream/schema"
)

// decoders are both of the package's.
var decoders = map[string]func(provider.Config) *provider.Decoder{"chat": NewChatDecoder, "responses": NewResponsesDecoder}

// TestBadInput: whatever comes, what came before it stays, and nothing is silent about the rest.
func TestBadInput(t *testing.T) {
	good := map[string]string{
		"chat":      sse(delta(`"role":"assistant","content":"Hi"`)),
		"responses": sse(created, addedMsg, textPiece("Hi")),
	}
	deep := strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300)
	huge := strings.Repeat("x", 10<<20)
	var wide strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&wide, `,"m%d":%d`, i, i)
	}
	for name, tt := range map[string]struct{ body, want string }{
		"invalid JSON": {"data: {\"choices\":[\n\n", `"problem":"invalid JSON"`},
		"no object":    {"data: [1]\n\n", `"problem":"not an object"`},
		"a number":     {"data: 5\n\n", `"problem":"not an object"`},
		"latin-1":      {"data: {\"choices\":[{\"delta\":{\"content\":\"\xe4\xf6\"}}]}\n\n", `"problem":"invalid UTF-8"`},
		"cut utf-8":    {"data: {\"x\":\"\xf0\x9f\"}\n\n", `"problem":"invalid UTF-8"`},
		"deep":         {"data: {\"choices\":" + deep + ",\"output\":" + deep + "}\n\n", `"problem":"nested too deeply"`},
		"10 MB frame": {"data: {\"type\":\"x\",\"choices\":[{\"delta\":{\"content\":\"" + huge + "\"}}]}\n\n",
			`"problem":"longer than a frame may be"`},
		"unknown":     {`data: {"type":"y","object":"y","z":1.0}` + "\n\n", `{"type":"y","object":"y","z":1.0}`},
		"wrong types": {`data: {"type":"response.output_text.delta","object":1,"choices":[5,null,"x",{"index":"0","delta":[],"finish_reason":5}],"output_index":"0","delta":{}}` + "\n\n", `custom.openai.`},
		"wide":        {`data: {"type":"y","object":"y"` + wide.String() + "}\n\n", `"m99999":99999`},
		"wide choice": {`data: {"type":"response.x","choices":[{"index":0,"delta":{}` + wide.String() + "}]}\n\n",
			`"omitted"`},
		"wide item": {`data: {"type":"response.output_item.added","choices":[{"index":0,"delta":{"tool_calls":[{"id":"a"` + wide.String() + `}]}}],"output_index":3,"item":{"type":"function_call"` + wide.String() + "}}\n\n", `"omitted"`},
	} {
		for api, decoder := range decoders {
			t.Run(name+" "+api, func(t *testing.T) {
				var events []schema.Event
				took := cputime.Of(func() {
					events = providertest.Decode(t, decoder(provider.Config{}), []byte(good[api]+tt.body))
				})
				if took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				providertest.CheckNumbered(t, events)
				told := providertest.Print(events)
				if !strings.Contains(told, tt.want) {
					t.Errorf("no %s in %.2000s", tt.want, told)
				}
				if !strings.Contains(told, `"text":"Hi"`) || !strings.Contains(told, `"incomplete":true`) {
					t.Errorf("what came before is lost, or not said to be cut: %.2000s", told)
				}
			})
		}
	}
}

// TestWrongEncoding: a body in UTF-16 has no frames, and is not swallowed.
func TestWrongEncoding(t *testing.T) {
	for _, text := range []string{sse(delta(`"content":"Hi"`)), delta(`"content":"Hi"`)} {
		body := []byte{0xff, 0xfe}
		for _, u := range utf16.Encode([]rune(text)) {
			body = append(body, byte(u), byte(u>>8))
		}
		for api, decoder := range decoders {
			events := providertest.Decode(t, decoder(provider.Config{}), body)
			checkEvents(t, events)
			if told := providertest.Print(events); !strings.Contains(told, "custom.openai.bad_frame") ||
				strings.Contains(told, "message.start") {
				t.Errorf("%s: %.500s", api, told)
			}
		}
	}
}

// TestMuch: much of everything costs what its bytes cost, and no event is too large for the log.
func TestMuch(t *testing.T) {
	const n = 20_000
	many := func(first string, frame func(i int) string, last string) func(n int) string {
		return func(n int) string {
			var b strings.Builder
			b.WriteString(first + "\n")
			for i := range n {
				b.WriteString(frame(i) + "\n")
			}
			b.WriteString(last + "\n")
			return b.String()
		}
	}
	for name, tt := range map[string]struct {
		api  string
		body func(int) string
	}{
		"calls": {"chat", many(delta(""), func(i int) string {
			return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"a%d","function":{"name":"f","arguments":"{}"}}]`, i, i))
		}, finish("stop"))},
		"kinds": {"chat", many(delta(""), func(i int) string { return delta([]string{`"content":"x"`, `"reasoning":"x"`}[i%2]) }, finish("stop"))},
		"members": {"chat", many(delta(""), func(i int) string {
			return fmt.Sprintf(`{"id":"c1","choices":[],"m%d":1,"same":%d,"usage":{"a":1}}`, i, i)
		}, finish("stop"))},
		"details": {"chat", many(delta(""), func(i int) string {
			return delta(fmt.Sprintf(`"reasoning_details":[{"type":"t","index":%d,"data":"x"}]`, i))
		}, finish("stop"))},
		"items": {"responses", many(created, func(i int) string {
			return ev("output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"type":"message","id":"m%d"}`, i, i))
		}, completed)},
		"parts": {"responses", many(created, func(i int) string {
			return ev("output_text.delta", fmt.Sprintf(`"output_index":0,"content_index":%d,"delta":"x"`, i))
		}, completed)},
		"replies": {"responses", many(created,
			func(i int) string { return strings.Replace(created, "c1", fmt.Sprintf("c%d", i), 1) }, completed)},
		"notes": {"responses", many(created, func(i int) string {
			return ev("output_text.annotation.added", at(0)+fmt.Sprintf(`,"annotation":{"n":%d}`, i))
		}, completed)},
		"numbers": {"responses", many(created,
			func(i int) string { return ev("x", fmt.Sprintf(`"sequence_number":%d`, i*1000)) }, completed)},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int) time.Duration {
				body := []byte(tt.body(n))
				var events []schema.Event
				took := cputime.Of(func() { events = providertest.Decode(t, decoders[tt.api](provider.Config{}), body) })
				providertest.CheckNumbered(t, events)
				return took
			}
			few, all := cost(n/8), cost(n)
			t.Logf("%6d: %8v  %6d: %8v", n/8, few, n, all)
			if all > 40*few+time.Second { // 64 times if it were quadratic
				t.Errorf("%v for %d, %v for %d", few, n/8, all, n)
			}
		})
	}
}

// TestLane: events carry the lane that they were given.
func TestLane(t *testing.T) {
	for api, decoder := range decoders {
		events := providertest.Decode(t, decoder(provider.Config{ChildID: "run_c", TurnID: "t1",
			Path: []string{"run_1", "run_c"}}), []byte(sse(delta(`"content":"Hi"`), created)))
		for _, e := range events {
			if e.ChildID != "run_c" || e.TurnID != "t1" || len(e.Path) != 2 {
				t.Errorf("%s: %+v", api, e)
			}
		}
	}
}

// seeds are bodies that reach much of the decoders.
func seeds() []string {
	return []string{
		sse(delta(`"role":"assistant","content":"a\ud83d"`),
			delta(`"content":"\ude00\u0000","refusal":"n","reasoning":"r"`),
			chunk(`{"index":1,"delta":{"content":"b"}}`), finish("stop"), "[DONE]"),
		strings.ReplaceAll(sse(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"id":"b","custom":{"name":"g","input":"x"}}],"function_call":{"name":"h"}`), finish("length")), "\n", "\r\n"),
		sse(delta(`"reasoning_details":[{"type":"reasoning.text","text":"x","signature":"S"},{"type":"reasoning.encrypted","data":"E"}],"audio":{"data":"AAAA","transcript":"t"}`), `{"error":{"code":5}}`),
		`{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"content":[{"type":"text","text":"x"},7]},"logprobs":{"content":[]}},{"index":5,"text":"y"}],"usage":{"a":1},"error":null}`,
		strings.Join(hello(), "\n"), sse(append(hello(), hello()...)...),
		sse(created, ev("output_item.added", `"output_index":1,"item":{"id":"r","type":"reasoning","encrypted_content":"E"}`), ev("reasoning_summary_text.delta", `"output_index":1,"summary_index":0,"delta":"s","sequence_number":4`), ev("reasoning_text.delta", `"output_index":1,"content_index":0,"delta":"s"`), completed),
		sse(created, ev("output_item.added", `"output_index":0,"item":{"id":"f","type":"function_call","call_id":"a","name":"n","arguments":""}`), ev("function_call_arguments.delta", `"output_index":0,"delta":"{}"`), ev("function_call_arguments.done", `"output_index":0,"arguments":"{ }"`), completed),
		sse(created, ev("output_item.done", `"item":{"id":"g","type":"image_generation_call","result":"AAAA"}`),
			ev("image_generation_call.partial_image", `"partial_image_b64":"AAAA"`),
			ev("output_item.added", `"item":{"type":"mcp_call"}`), `{"type":"error","error":{}}`,
			ev("failed", `"response":{"error":{"code":1}}`)),
		sse(created, ev("content_part.added", `"output_index":0,"part":{"type":"sparkle","x":1}`),
			ev("content_part.done", `"output_index":0,"part":{"type":"sparkle","x":2}`),
			ev("output_text.annotation.added", `"annotation":1`),
			ev("incomplete", `"response":{"incomplete_details":{"reason":"x"}}`)),
		`{"object":"response","status":"completed","output":[{"type":"x_call_output","call_id":"a"},{"type":"code_interpreter_call","code":"x"},5],"usage":[]}`,
		"<html>", "{}", "data: [DONE]", "\r\r\n\n", "[{\"type\":\"response.created\"}]",
	}
}

// FuzzDecoders: no input harms, the pieces do not matter, what comes out is fit for the log, and a
// decoder may be told at any point that another body goes on.
func FuzzDecoders(f *testing.F) {
	for _, body := range seeds() {
		f.Add([]byte(body), uint8(3), uint16(40))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8, cut uint16) {
		for _, decoder := range decoders {
			events := providertest.Decode(t, decoder(provider.Config{}), body)
			checkEvents(t, events)
			providertest.CheckPieces(t, func() *provider.Decoder { return decoder(provider.Config{}) }, body,
				func() int { return int(step) + 1 })
			d := decoder(provider.Config{})
			events, _ = d.Write(body[:min(int(cut), len(body))])
			d.Rejoin()
			providertest.CheckNumbered(t, append(events, providertest.Decode(t, d, body)...))
		}
	})
}

func BenchmarkDecoders(b *testing.B) {
	frames := map[string][]string{"chat": {delta(`"role":"assistant"`)}, "responses": {created, addedMsg, addedPart}}
	for range 200 {
		frames["chat"] = append(frames["chat"], delta(`"content":"a few words of it "`))
		frames["responses"] = append(frames["responses"], textPiece("a few words of it "))
	}
	for api, decoder := range decoders {
		body := []byte(sse(frames[api]...))
		b.Run(api, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d := decoder(provider.Config{})
				_, _ = d.Write(body)
				d.Close()
			}
		})
	}
}
