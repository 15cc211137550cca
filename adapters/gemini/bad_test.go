package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/gemini/geminitest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// TestKept: what the catalogue has no place for is kept, and harms nothing.
func TestKept(t *testing.T) {
	expect(t, sse(`{"x":1}`, parts(`{"newPart":{"a":1.0},"thought":true},7,{},{"text":5},{"text":"a","videoMetadata":{}},{"functionCall":{}},{"functionCall":{"name":"f","new":1}}`, `,"new":{"b" : 2}`),
		`{"candidates":7,"responseId":"r1"}`, `{"candidates":[8,{"content":9,"finishReason":"STOP"}],"responseId":"r1"}`)+"data: {broken\n\ndata: [1]\n\n"+sse(`{"candidates":[{"content":{"parts":null,"role":"model","odd":1}}],"createTime":"t"}`), `
custom.gemini.unnamed {"x":1}
`+head+`block.start {"index":0,"kind":"newPart","message_id":"r1","block":{"type":"newPart","newPart":{"a":1.0},"thought":true}}
block.end {"index":0,"message_id":"r1","complete":true}
custom.gemini.part {"part":7}
custom.gemini.part {"part":{}}
block.start {"index":1,"kind":"part","message_id":"r1","block":{"type":"part","part":{"text":5}}}
block.end {"index":1,"message_id":"r1","complete":true}
custom.gemini.part {"text":"a","videoMetadata":{}}
block.start {"index":2,"kind":"text","message_id":"r1"}
text.delta {"text":"a","index":2}
custom.gemini.function_call {}
custom.gemini.function_call {"name":"f","new":1}
block.end {"index":2,"message_id":"r1","complete":true}
block.start {"index":3,"kind":"tool_use","message_id":"r1","call_id":"call_r1_3","tool":"f"}
block.end {"index":3,"message_id":"r1","complete":true,"call_id":"call_r1_3","input":{}}
tool.start {"call_id":"call_r1_3","tool":"f","input":{},"index":3,"kind":"functionCall"}
custom.gemini.candidates {"candidates":7}
custom.gemini.candidate {"candidate":8}
custom.gemini.content {"content":9}
custom.gemini.bad_frame {"problem":"invalid JSON","event":"","bytes":7,"text":"{broken"}
custom.gemini.bad_frame {"problem":"not an object","event":"","bytes":3,"text":"[1]"}
custom.gemini.content {"parts":null,"role":"model","odd":1}
message.end {"message_id":"r1","content":[{"type":"newPart","newPart":{"a":1.0},"thought":true},{"type":"part","part":{"text":5}},{"type":"text","text":"a"},{"type":"tool_use","id":"call_r1_3","name":"f","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"new":{"b" : 2},"finish_reason":"STOP","createTime":"t"}`)
}

// TestIncomplete: a body without a reason to finish is one that was cut.
func TestIncomplete(t *testing.T) {
	expect(t, sse(parts(`{"text":"a"}`)), head+`block.start {"index":0,"kind":"text","message_id":"r1"}
text.delta {"text":"a","index":0}
block.end {"index":0,"message_id":"r1","complete":false,"problem":"cut short"}
message.end {"message_id":"r1","content":[{"type":"text","text":"a"}],"stop_reason":null,"stop_sequence":null,"incomplete":true,"error":{"type":"stream_cut","message":"the provider's stream ended before the message did"}}`)
	// Two responses in one body; what goes without an id belongs to the last.
	second := strings.Replace(parts(`{"text":"b"}`, stop), "r1", "r2", 1)
	anonymous := strings.ReplaceAll(parts(`{"text":"c"}`, stop), `,"responseId":"r1"`, "")
	first := parts(`{"text":"a"}`)
	events := decodeAll(t, []byte(sse(first, first, first, second, anonymous)))
	checkEvents(t, events)
	if o := geminitest.FromFold(t, events); len(o) != 2 || o[0].Err == nil || o[0].Text != "aaa" || o[1].Text != "bc" ||
		o[1].Err != nil {
		t.Error(providertest.Print(events))
	}
}

// TestNoStream: an error page in place of an answer is not swallowed.
func TestNoStream(t *testing.T) {
	expect(t, "<html>\n<h1>502</h1>\n", `custom.gemini.bad_frame {"problem":"not a stream of messages","event":"","bytes":19,"text":"<html>\n<h1>502</h1>"}`)
	expect(t, "", "")
	expect(t, "[]", "")
}

// TestBounds: nothing that the API sends is larger than what the log takes; what had to be left out is
// named, and the deltas hold it.
func TestBounds(t *testing.T) {
	huge := strings.Repeat("x", 10<<20)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for name, tt := range map[string]struct {
		body string
		want []string
	}{
		"text": {sse(parts(`{"text":"`+huge[:7<<20]+`"}`, stop)), []string{`"omitted":["content"]`}},
		"frame": {sse(parts(`{"text":"`+huge+`"}`, stop), parts(`{"text":"b"}`, stop)),
			[]string{`"problem":"longer than a frame may be"`, `"text":"b"`}},
		"args": {sse(parts(`{"functionCall":{"name":"f","args":{"q":"`+huge[:1<<20]+`"}}}`, stop)),
			[]string{`"omitted":["input"]`}},
		"streamed": {sse(parts(`{"functionCall":{"name":"f","willContinue":true}}`),
			parts(piece(false, arg("$.q", "stringValue", `"`+huge[:1<<20]+`"`, false)), stop)), []string{`"omitted":["input"]`}},
		"signature": {sse(parts(`{"text":"a","thoughtSignature":"`+huge[:1<<20]+`"}`, stop)),
			[]string{`"omitted":["signature"]`}},
		"part": {sse(parts(`{"odd":"`+huge[:1<<20]+`"}`, stop)),
			[]string{`"omitted":["block"]`, `"omitted":["content"]`}},
		"ids": {sse(strings.ReplaceAll(parts(`{"functionCall":{"name":"`+huge[:1<<20]+`","id":"`+huge[:1<<20]+
			`"}}`, stop), "r1", huge[:1<<20])), []string{"tool.start"}},
		"reason": {sse(parts("", `,"finishReason":"`+huge[:1<<20]+`"`)), []string{`"omitted":["finish_reason"]`}},
		"metadata": {sse(parts("", stop, `,"groundingMetadata":{"x":"`+huge[:1<<20]+`"}`)),
			[]string{`"omitted":["groundingMetadata"]`}},
		"mime":  {sse(parts(`{"inlineData":{"mimeType":"`+huge[:1<<20]+`","data":""}}`, stop)), []string{"data.delta"}},
		"deep":  {sse(parts(`{"odd":`+deep+`}`, stop)), []string{`"problem":"nested too deeply"`}},
		"utf8":  {sse(parts("{\"text\":\"\xff\"}", stop)), []string{`"problem":"invalid UTF-8"`}},
		"utf16": {"d\x00a\x00t\x00a\x00:\x00 \x00{\x00}\x00", []string{"custom.gemini.bad_frame"}},
		"index": {sse(`{"candidates":[{"index":-5,"content":{"parts":[{"text":"a"}]}},{"index":1e99,"content":{}}]}`),
			[]string{`"text":"a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			events := decodeAll(t, []byte(tt.body))
			checkEvents(t, events)
			told := providertest.Print(events)
			for _, w := range tt.want {
				if !strings.Contains(told, w) {
					t.Errorf("no %s", w)
				}
			}
			if name == "text" && geminitest.FromFold(t, events)[0].Text != huge[:7<<20] {
				t.Error("the deltas lost text")
			}
		})
	}
}

func TestLane(t *testing.T) {
	d := NewDecoder(provider.Config{ChildID: "run_c", TurnID: "t1", Path: []string{"run_1", "run_c"}})
	events, err := d.Write([]byte(sse(parts(`{"text":"a"}`, stop))))
	events = append(events, d.Close()...)
	if err != nil || len(events) != 5 {
		t.Fatal(err, len(events))
	}
	for _, e := range events {
		if e.ChildID != "run_c" || e.TurnID != "t1" || len(e.Path) != 2 {
			t.Errorf("%+v", e)
		}
	}
	if _, err := d.Write(nil); !errors.Is(err, provider.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

// FuzzDecoder: no input harms, the pieces do not matter, and what comes out is fit for the log.
func FuzzDecoder(f *testing.F) {
	for _, body := range []string{
		sse(parts(`{"text":"a\ud83d","thought":true,"thoughtSignature":"s"},{"text":"\ude00"}`, stop)),
		sse(parts(`{"functionCall":{"name":"f","willContinue":true}}`),
			parts(piece(true, arg("$.a[0].b", "stringValue", `"x\""`, true))),
			parts(piece(true, arg("$.a[0].b", "stringValue", `""`, false))), parts(`{"functionCall":{}}`, stop)),
		sse(parts(`{"functionCall":{"name":"f","willContinue":true}}`),
			parts(piece(true, arg("$['q'].z", "boolValue", `true`, false), arg("$.c", "nullValue", "null", false),
				arg("$.q.y", "numberValue", "1", false))), parts(`{"functionCall":{}}`, stop)),
		sse(parts(`{"executableCode":{"code":"x"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},{"inlineData":{"mimeType":"audio/x","data":"AAAA"}},{"inlineData":{"mimeType":"audio/x","data":"AAAA"}}`, stop)),
		"[" + parts(`{"odd":1}`) + ",\n" + `{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]}}],"responseId":"r1"}` + "]",
		`{"error":{"code":1}}`, `{"promptFeedback":{"blockReason":"X"}}`, `{"response":{"candidates":[]}}`, "<html>",
		"{}", "\r\r\n\n", "data: [DONE]",
	} {
		f.Add([]byte(body), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		events := decodeAll(t, body)
		checkEvents(t, events)
		checkDeltas(t, events)
		providertest.CheckPieces(t, func() *provider.Decoder { return NewDecoder(provider.Config{}) }, body,
			func() int { return int(step) + 1 })
	})
}

// checkDeltas: the deltas of a complete call join to its input.
func checkDeltas(t *testing.T, events []schema.Event) {
	var f schema.Fold
	for i := range events {
		f.Add(&events[i])
	}
	for _, m := range f.Messages {
		for _, b := range m.Blocks {
			if b.Kind != "tool_use" || !b.Complete || b.Text.Len() == 0 || b.Input == nil {
				continue
			}
			var joined, input any
			if json.Unmarshal([]byte(b.Text.String()), &joined) != nil || json.Unmarshal(b.Input, &input) != nil ||
				fmt.Sprint(joined) != fmt.Sprint(input) {
				t.Fatalf("deltas %q, input %s", b.Text.String(), b.Input)
			}
		}
	}
}

func BenchmarkDecoder(b *testing.B) {
	var chunks []string
	for range 200 {
		chunks = append(chunks, parts(`{"text":"a few words of it "}`))
	}
	body := []byte(sse(append(chunks, parts("", stop))...))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(provider.Config{})
		_, _ = d.Write(body)
		d.Close()
	}
}
