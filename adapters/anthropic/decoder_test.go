package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

func decodeAll(t testing.TB, body []byte) []schema.Event {
	t.Helper()
	return providertest.Decode(t, NewDecoder(provider.Config{}), body)
}

// sse writes data as the provider does.
func sse(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var v struct{ Type string }
		_ = json.Unmarshal([]byte(d), &v)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", v.Type, d)
	}
	return b.String()
}

const (
	start     = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}}`
	textStart = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	blockStop = `{"type":"content_block_stop","index":0}`
	msgDelta  = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}`
	msgStop   = `{"type":"message_stop"}`
)

func textDelta(raw string) string {
	return `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + raw + `"}}`
}

func expect(t *testing.T, body, want string) {
	t.Helper()
	events := decodeAll(t, []byte(body))
	providertest.CheckPrinted(t, events, want)
}

const plainEvents = `
message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":5,"output_tokens":1}}
block.start {"index":0,"kind":"text","message_id":"msg_1"}
text.delta {"text":"Hi","index":0}
text.delta {"text":" \u00fc\/\ud800","index":0}
block.end {"index":0,"message_id":"msg_1","complete":true}
message.end {"message_id":"msg_1","content":[{"type":"text","text":"Hi \u00fc\/\ud800"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":9}}
`

// TestForms: the same stream in each spelling of the wire.
func TestForms(t *testing.T) {
	data := []string{start, `{"type": "ping"}`, textStart, textDelta("Hi"), textDelta(""), textDelta(` \u00fc\/\ud800`),
		blockStop, msgDelta, msgStop}
	lf := sse(data...)
	for name, body := range map[string]string{
		"lf":           lf,
		"crlf":         strings.ReplaceAll(lf, "\n", "\r\n"),
		"cr":           strings.ReplaceAll(lf, "\n", "\r"),
		"unterminated": strings.TrimRight(lf, "\n"),
		"one feed":     strings.TrimRight(lf, "\n") + "\n",
		"bom":          "\xef\xbb\xbf" + lf,
		"blank before": "\n\n\r\n" + lf,
		"comments":     ": hello\n\n" + strings.ReplaceAll(lf, "\n\n", "\n: keepalive\n\n:\n\n"),
		"no space":     strings.ReplaceAll(lf, "data: ", "data:"),
		"ids":          strings.ReplaceAll(lf, "event: ", "id: 7\nretry: 10\nevent: "),
		"no names":     strings.ReplaceAll(strings.ReplaceAll(lf, "event: ", ": "), "data", "data"),
		"two data":     strings.ReplaceAll(lf, `{"type":`, "{\ndata: \"type\":"),
		"done":         lf + "data: [DONE]\n\n",
		"jsonl":        strings.Join(data, "\n"),
		"jsonl crlf":   strings.Join(data, "\r\n") + "\r\n",
		"jsonl blank":  "\n  \n" + strings.Join(data, "\n\n  "),
	} {
		t.Run(name, func(t *testing.T) { expect(t, body, plainEvents) })
	}
}

func TestTypeFromEventName(t *testing.T) {
	expect(t, "event: error\ndata: {\"error\":{\"type\":\"x\"}}\n\n", `custom.anthropic.error {"error":{"type":"x"}}`)
}

// TestTool: what a call is made of, with its input kept as the model spelt it.
func TestTool(t *testing.T) {
	input := func(raw string) string {
		return `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + raw + `"}}`
	}
	tool := `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"grep","input":{}}}`
	head := "message.start {\"message_id\":\"msg_1\",\"role\":\"assistant\",\"model\":\"m\",\"provider\":\"anthropic\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}\n" +
		"block.start {\"index\":0,\"kind\":\"tool_use\",\"message_id\":\"msg_1\",\"call_id\":\"toolu_1\",\"tool\":\"grep\"}\n"
	tail := `"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":9}}`
	t.Run("spelling", func(t *testing.T) {
		expect(t, sse(start, tool, input(""), input(`{\"n\": 1.10,\n \"big\":1234567890`),
			input(`1234567890, \"s\":\"\ud83d`), input(`\ude00 \\ud800 \ud800\"}`), blockStop, msgDelta, msgStop), head+
			`tool.input.delta {"call_id":"toolu_1","text":"{\"n\": 1.10,\n \"big\":1234567890","index":0}
tool.input.delta {"call_id":"toolu_1","text":"1234567890, \"s\":\"\ud83d","index":0}
tool.input.delta {"call_id":"toolu_1","text":"\ude00 \\ud800 \ud800\"}","index":0}
block.end {"index":0,"message_id":"msg_1","complete":true,"call_id":"toolu_1","input":{"n":1.10,"big":12345678901234567890,"s":"😀 \ud800 \ud800"}}
tool.start {"call_id":"toolu_1","tool":"grep","input":{"n":1.10,"big":12345678901234567890,"s":"😀 \ud800 \ud800"},"index":0,"kind":"tool_use"}
message.end {"message_id":"msg_1","content":[{"type":"tool_use","id":"toolu_1","name":"grep","input":{"n":1.10,"big":12345678901234567890,"s":"😀 \ud800 \ud800"}}],`+tail)
	})
	t.Run("no input", func(t *testing.T) {
		expect(t, sse(start, tool, blockStop, msgDelta, msgStop), head+`block.end {"index":0,"message_id":"msg_1","complete":true,"call_id":"toolu_1","input":{}}
tool.start {"call_id":"toolu_1","tool":"grep","input":{},"index":0,"kind":"tool_use"}
message.end {"message_id":"msg_1","content":[{"type":"tool_use","id":"toolu_1","name":"grep","input":{}}],`+tail)
	})
	t.Run("bad input", func(t *testing.T) {
		expect(t, sse(start, tool, input(`{\"n\":`), blockStop, msgDelta, msgStop), head+`tool.input.delta {"call_id":"toolu_1","text":"{\"n\":","index":0}
block.end {"index":0,"message_id":"msg_1","complete":false,"problem":"invalid JSON","call_id":"toolu_1"}
message.end {"message_id":"msg_1","content":[{"type":"tool_use","id":"toolu_1","name":"grep","input":{},"partial_json":"{\"n\":"}],`+tail)
	})
}

// TestWholeMessage: blocks that come in message_start, and responses that were not streamed.
func TestWholeMessage(t *testing.T) {
	m := `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"A\/"},{"type":"thinking","thinking":"B","signature":"S"},` +
		`{"type":"tool_use","id":"t1","name":"grep","input":{"q" : 1.0}},{"type":"mcp_tool_result","tool_use_id":"t0","is_error":true,"content":[{"type":"text","text":"no"}]}],` +
		`"stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c"},"usage":{"input_tokens":1}}`
	want := `message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":1}}
block.start {"index":0,"kind":"text","message_id":"msg_1"}
text.delta {"text":"A\/","index":0}
block.end {"index":0,"message_id":"msg_1","complete":true}
block.start {"index":1,"kind":"reasoning","message_id":"msg_1"}
reasoning.delta {"text":"B","index":1}
block.end {"index":1,"message_id":"msg_1","complete":true,"signature":"S"}
block.start {"index":2,"kind":"tool_use","message_id":"msg_1","call_id":"t1","tool":"grep"}
block.end {"index":2,"message_id":"msg_1","complete":true,"call_id":"t1","input":{"q" : 1.0}}
tool.start {"call_id":"t1","tool":"grep","input":{"q" : 1.0},"index":2,"kind":"tool_use"}
block.start {"index":3,"kind":"mcp_tool_result","message_id":"msg_1","call_id":"t0","block":{"type":"mcp_tool_result","tool_use_id":"t0","is_error":true,"content":[{"type":"text","text":"no"}]}}
block.end {"index":3,"message_id":"msg_1","complete":true}
tool.end {"call_id":"t0","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":[{"type":"text","text":"no"}],"kind":"mcp_tool_result"}
message.end {"message_id":"msg_1","content":[{"type":"text","text":"A\/"},{"type":"thinking","thinking":"B","signature":"S"},{"type":"tool_use","id":"t1","name":"grep","input":{"q" : 1.0}},{"type":"mcp_tool_result","tool_use_id":"t0","is_error":true,"content":[{"type":"text","text":"no"}]}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1},"container":{"id":"c"}}`
	expect(t, sse(`{"type":"message_start","message":`+m+`}`, msgStop), want)
	expect(t, m, want)
}

// TestErrors: an error is told twice, as itself and as the message's end.
func TestErrors(t *testing.T) {
	failed := `{"type":"error","error":{"type":"overloaded_error","message":"later \/"},"request_id":"req_1"}`
	expect(t, sse(failed), `custom.anthropic.error `+failed)
	expect(t, failed, `custom.anthropic.error `+failed)
	expect(t, sse(start, textStart, textDelta("Hi"), failed, msgStop), `
message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":5,"output_tokens":1}}
block.start {"index":0,"kind":"text","message_id":"msg_1"}
text.delta {"text":"Hi","index":0}
custom.anthropic.error `+failed+`
block.end {"index":0,"message_id":"msg_1","complete":false,"problem":"cut short"}
message.end {"message_id":"msg_1","content":[{"type":"text","text":"Hi"}],"stop_reason":"error","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1},"error":{"type":"overloaded_error","message":"later \/"}}
custom.anthropic.message_stop {"type":"message_stop"}`)
	expect(t, sse(start, `{"type":"error","error":"text"}`), `
message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":5,"output_tokens":1}}
custom.anthropic.error {"type":"error","error":"text"}
message.end {"message_id":"msg_1","content":[],"stop_reason":"error","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1},"error":{"value":"text"}}`)
}

// TestKept: what the catalogue has no place for is kept, byte for byte, and harms nothing.
func TestKept(t *testing.T) {
	future := `{"type":"content_block_delta","index":0,"delta":{"type":"sparkle_delta", "x":1.10}}`
	unknown := `{"type":"weird event\u0000/名","n":-0.0, "n":2}`
	body := sse(start, textStart, future, unknown, `{"x":1}`, blockStop, blockStop, `{"x":2}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"late"}}`) +
		"data: {broken\n\ndata: [1]\n\n" + sse(msgDelta, msgStop, msgDelta)
	expect(t, body, `
message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":5,"output_tokens":1}}
block.start {"index":0,"kind":"text","message_id":"msg_1"}
custom.anthropic.sparkle_delta `+future+`
custom.anthropic.weird_event_____ `+unknown+`
custom.anthropic.unnamed {"x":1}
block.end {"index":0,"message_id":"msg_1","complete":true}
custom.anthropic.unnamed {"x":2}
custom.anthropic.content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"late"}}
custom.anthropic.bad_frame {"problem":"invalid JSON","event":"","bytes":7,"text":"{broken"}
custom.anthropic.bad_frame {"problem":"not an object","event":"","bytes":3,"text":"[1]"}
message.end {"message_id":"msg_1","content":[{"type":"text","text":""}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":9}}
custom.anthropic.message_delta `+msgDelta)
}

// TestIncomplete: streams that begin in the middle or end before their end.
func TestIncomplete(t *testing.T) {
	cut := `"error":{"type":"stream_cut","message":"the provider's stream ended before the message did"}`
	expect(t, sse(textDelta("a"), textDelta("b")), `
message.start {"message_id":"msg_unnamed_1","role":"assistant","provider":"anthropic"}
block.start {"index":0,"kind":"text","message_id":"msg_unnamed_1"}
text.delta {"text":"a","index":0}
text.delta {"text":"b","index":0}
block.end {"index":0,"message_id":"msg_unnamed_1","complete":false,"problem":"cut short"}
message.end {"message_id":"msg_unnamed_1","content":[{"type":"text","text":"ab"}],"stop_reason":null,"stop_sequence":null,"incomplete":true,`+cut+`}`)
	expect(t, sse(start, msgDelta), `
message.start {"message_id":"msg_1","role":"assistant","model":"m","provider":"anthropic","usage":{"input_tokens":5,"output_tokens":1}}
message.end {"message_id":"msg_1","content":[],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":9},"incomplete":true}`)
	second := strings.Replace(start, "msg_1", "msg_2", 1)
	events := decodeAll(t, []byte(sse(start, textStart, textDelta("a"), second, textStart, textDelta("b"), blockStop,
		msgDelta, msgStop)+sse(start, textStart, textDelta("c"), msgStop)))
	providertest.CheckEvents(t, events)
	o := anthropictest.FromFold(t, events)
	if o.Text != "abc" || strings.Join(o.Messages, " ") != "msg_1 msg_2 msg_1" {
		t.Errorf("%q %v", o.Text, o.Messages)
	}
	if !strings.Contains(providertest.Print(events), `"message":"another message began"`) {
		t.Error("nothing says that the first message was not finished")
	}
}

// TestNoStream: an error page in place of a stream is not swallowed.
func TestNoStream(t *testing.T) {
	expect(t, "<html>\n<h1>502</h1>\n", `custom.anthropic.bad_frame {"problem":"not a stream of messages","event":"","bytes":19,"text":"<html>\n<h1>502</h1>"}`)
	expect(t, "upstream gone", `custom.anthropic.bad_frame {"problem":"not a stream of messages","event":"","bytes":13,"text":"upstream gone"}`)
	expect(t, "", "")
	expect(t, " \r\n\t", "")
	expect(t, ": only\n\n: comments\n", "")
	page := decodeAll(t, bytes.Repeat([]byte("line\n"), 1<<16))
	if len(page) != 1 || len(page[0].Payload) > 8<<10 {
		t.Errorf("%d events, %d bytes", len(page), len(page[0].Payload))
	}
}

// TestBounds: nothing that a provider sends is larger than what the log takes, and what had to be
// left out is named.
func TestBounds(t *testing.T) {
	huge := strings.Repeat("x", 700<<10)
	escapes := strings.Repeat(`\ud83d\ude00ü\\\"\n`, 60<<10)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	block := func(b string) string { return `{"type":"content_block_start","index":0,"content_block":` + b + `}` }
	for name, tt := range map[string]struct{ frames, want []string }{
		"text":    {[]string{start, textStart, textDelta(huge), blockStop, msgStop}, []string{`"omitted":["content"]`}},
		"escapes": {[]string{start, textStart, textDelta(escapes), blockStop, msgStop}, []string{`"omitted":["content"]`}},
		"result": {[]string{start, block(`{"type":"web_search_tool_result","tool_use_id":"t1","content":"` + huge +
			`"}`), blockStop, msgStop}, []string{`"omitted":["block"]`, `"omitted":["output"]`, `"omitted":["content"]`}},
		"input": {[]string{start, block(`{"type":"tool_use","id":"t1","name":"grep","input":{"q":"` + huge + `"}}`),
			blockStop, msgStop}, []string{`"omitted":["input"]`}},
		"signature": {[]string{start, block(`{"type":"thinking","thinking":"x"}`),
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"` + huge + `"}}`,
			blockStop, msgStop}, []string{`"omitted":["signature"]`}},
		"error": {[]string{start, `{"type":"error","error":{"message":"` + huge + `"}}`},
			[]string{`"omitted":["error"],"omitted_bytes"`}},
		"unknown": {[]string{`{"type":"x","y":1,"z":"` + huge + `"}`},
			[]string{`{"type":"x","y":1,"omitted":["z"],"omitted_bytes":716802}`}},
		"usage": {[]string{strings.Replace(start, `"input_tokens":5`, `"input_tokens":5,"x":"`+huge+`"`, 1),
			msgStop}, []string{`"omitted":["usage"]`}},
		"ids": {[]string{strings.Replace(start, "msg_1", huge, 1),
			block(`{"type":"tool_use","id":"` + huge + `","name":"` + huge + `"}`), blockStop, msgStop},
			[]string{`"tool.start`}},
		"kind": {[]string{start, block(`{"type":"` + huge + `"}`), blockStop, msgStop}, []string{`"omitted":["block"]`}},
		"deep": {[]string{`{"type":"x","y":` + deep + `}`}, []string{`"problem":"nested too deeply"`}},
		"deep input": {[]string{start, block(`{"type":"tool_use","id":"t1","name":"grep","input":{}}`),
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + deep +
				`"}}`, blockStop, msgStop}, []string{`"complete":false,"problem":"nested too deeply"`}},
		"index": {[]string{`{"type":"content_block_start","index":1e99,"content_block":{"type":"text","text":"a"}}`},
			[]string{`"index":0`}},
	} {
		t.Run(name, func(t *testing.T) {
			events := decodeAll(t, []byte(sse(tt.frames...)))
			providertest.CheckEvents(t, events)
			told := providertest.Print(events)
			for _, w := range tt.want {
				if !strings.Contains(`"`+strings.ReplaceAll(told, "\n", "\n\""), w) {
					t.Errorf("no %s", w)
				}
			}
			if name == "text" && fromFoldText(events) != huge {
				t.Error("the deltas lost text")
			}
			if name == "escapes" {
				var joined string
				if json.Unmarshal([]byte(`"`+escapes+`"`), &joined) != nil || fromFoldText(events) != joined {
					t.Error("the deltas lost text")
				}
			}
		})
	}
}

func fromFoldText(events []schema.Event) string {
	var f schema.Fold
	for i := range events {
		f.Add(&events[i])
	}
	return f.Text("", "text")
}

// TestLongFrames: a frame without end costs bounded memory, and the stream goes on behind it.
func TestLongFrames(t *testing.T) {
	long := "data: {\"type\":\"x\",\"y\":\"" + strings.Repeat("x", 5000) + "\"}\n\n"
	for _, body := range []string{
		long + sse(start, msgStop), ": " + strings.Repeat("c", 5000) + "\n" + sse(start, msgStop) + long,
		strings.Repeat("data: "+strings.Repeat(" ", 900)+"\n", 5) + "\n" + sse(start, msgStop),
	} {
		for _, step := range []int{1, 100, 100000} {
			d := NewDecoder(provider.Config{MaxFrameBytes: 1000})
			var events []schema.Event
			for rest := []byte(body); len(rest) > 0; {
				n := min(step, len(rest))
				more, _ := d.Write(rest[:n])
				events, rest = append(events, more...), rest[n:]
			}
			events = append(events, d.Close()...)
			providertest.CheckEvents(t, events)
			told := providertest.Print(events)
			if !strings.Contains(told, `message.end {"message_id":"msg_1"`) ||
				strings.Count(told, "longer than a frame may be") != 1 {
				t.Errorf("in steps of %d: %.600s", step, told)
			}
		}
	}
	d := NewDecoder(provider.Config{MaxFrameBytes: 1000})
	events, _ := d.Write([]byte(`{"type":"x","y":"` + strings.Repeat("x", 5000) + "\"}\n" + start + "\n" + msgStop + "\n"))
	if told := providertest.Print(events); !strings.Contains(told, "longer than a frame may be") ||
		!strings.Contains(told, "message.end") {
		t.Errorf("%.600s", told)
	}
}

func TestInvalidUTF8(t *testing.T) {
	events := decodeAll(t, []byte(sse(start, textStart, textDelta("ok"), textDelta("\xff\xc3"), blockStop, msgDelta,
		msgStop)))
	providertest.CheckEvents(t, events)
	if told := providertest.Print(events); fromFoldText(events) != "ok" ||
		!strings.Contains(told, `"problem":"invalid UTF-8"`) {
		t.Error(told)
	}
}

func TestLane(t *testing.T) {
	d := NewDecoder(provider.Config{ChildID: "run_c", TurnID: "t1", Path: []string{"run_1", "run_c"}})
	events, err := d.Write([]byte(sse(start, msgStop)))
	if err != nil || len(events) != 2 {
		t.Fatal(err, len(events))
	}
	for _, e := range events {
		if e.ChildID != "run_c" || e.TurnID != "t1" || len(e.Path) != 2 {
			t.Errorf("%+v", e)
		}
	}
	if more := d.Close(); len(more) != 0 || len(d.Close()) != 0 {
		t.Errorf("Close gives %d events", len(more))
	}
	if _, err := d.Write(nil); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestDecode(t *testing.T) {
	body := sse(start, textStart, textDelta("Hi"))
	broken := errors.New("connection reset")
	for _, fail := range []error{nil, broken} {
		var r io.Reader = strings.NewReader(body)
		if fail != nil {
			r = io.MultiReader(r, iotest.ErrReader(fail))
		}
		var events []schema.Event
		var last error
		for e, err := range provider.Decode(iotest.OneByteReader(r), NewDecoder(provider.Config{})) {
			if last = err; err == nil {
				events = append(events, e)
			}
		}
		providertest.CheckEvents(t, events)
		if !errors.Is(last, fail) || fromFoldText(events) != "Hi" {
			t.Errorf("%v: %s", last, providertest.Print(events))
		}
	}
	for range provider.Decode(strings.NewReader(body), NewDecoder(provider.Config{})) {
		break // leaving early is no fault
	}
}

// FuzzDecoder: no input harms, the pieces do not matter, and what comes out is fit for the log.
func FuzzDecoder(f *testing.F) {
	for _, body := range []string{
		sse(start, textStart, textDelta(`a\ud83d`), textDelta(`\ude00\u0000`), blockStop, msgDelta, msgStop),
		strings.ReplaceAll(sse(start, textStart, textDelta("x"), `{"type":"error","error":{}}`), "\n", "\r\n"),
		start + "\n" + textStart + "\n{broken\n" + msgStop,
		sse(start, `{"type":"content_block_start","index":0,"content_block":{"type":"mcp_tool_use","id":"t","name":"n","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":[1,\n2]}"}}`, blockStop, msgStop),
		sse(start, `{"type":"content_block_start","index":3,"content_block":{"type":"bash_tool_result","tool_use_id":"t","content":{"type":"e_error"}}}`,
			`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{}}}`,
			`{"type":"content_block_delta","index":3,"delta":{"type":"compaction_delta","content":null}}`),
		`{"type":"message","content":[{"type":"thinking","thinking":"\\"},7,null],"stop_reason":5,"usage":[]}`,
		"\xef\xbb\xbf: c\n\ndata:{\"type\"\ndata: :\"ping\"}\n\n", "<html>", "{}", "\r\r\n\n", "data", "data: [DONE]",
	} {
		f.Add([]byte(body), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		events := decodeAll(t, body)
		providertest.CheckEvents(t, events)
		providertest.CheckPieces(t, func() *provider.Decoder { return NewDecoder(provider.Config{}) }, body,
			func() int { return int(step) + 1 })
	})
}

func BenchmarkDecoder(b *testing.B) {
	var frames []string
	frames = append(frames, start, textStart)
	for range 200 {
		frames = append(frames, textDelta("a few words of it "))
	}
	body := []byte(sse(append(frames, blockStop, msgDelta, msgStop)...))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(provider.Config{})
		_, _ = d.Write(body)
		d.Close()
	}
}
