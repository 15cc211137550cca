package anthropic

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// block is a content block that begins, takes deltas and ends.
func block(index int, begin string, deltas ...string) (frames []string) {
	frames = append(frames, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, begin))
	for _, d := range deltas {
		frames = append(frames, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, d))
	}
	return append(frames, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

func ended(reason string) []string {
	return []string{`{"type":"message_delta","delta":{"stop_reason":"` + reason +
		`","stop_sequence":null},"usage":{"output_tokens":9}}`, msgStop}
}

// features are all things that the provider can say, each with the events that must tell it, and the
// state in which a run ends that holds nothing else.
var features = []struct {
	name   string
	frames []string
	want   []string // in this order
	state  schema.RunState
}{
	{"thinking with a signature", append(block(0, `{"type":"thinking","thinking":"","signature":""}`,
		`{"type":"thinking_delta","thinking":"Hm"}`, `{"type":"thinking_delta","thinking":"m."}`,
		`{"type":"signature_delta","signature":"c2ln"}`), ended("end_turn")...), []string{
		`block.start {"index":0,"kind":"reasoning","message_id":"msg_1"}`, `reasoning.delta {"text":"Hm","index":0}`,
		`block.end {"index":0,"message_id":"msg_1","complete":true,"signature":"c2ln"}`,
		`"content":[{"type":"thinking","thinking":"Hmm.","signature":"c2ln"}]`}, schema.StateDone},
	{"thinking that is not shown", append(block(0, `{"type":"thinking","thinking":"","signature":""}`,
		`{"type":"thinking_delta","thinking":"","estimated_tokens":50}`,
		`{"type":"thinking_delta","thinking":"","estimated_tokens":null}`,
		`{"type":"signature_delta","signature":"c2ln"}`), ended("end_turn")...), []string{
		`custom.anthropic.thinking_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","estimated_tokens":50}}` + "\nblock.end",
		`"content":[{"type":"thinking","thinking":"","signature":"c2ln"}]`}, schema.StateDone},
	{"redacted thinking", append(block(0, `{"type":"redacted_thinking","data":"RW5j"}`), ended("end_turn")...), []string{
		`block.start {"index":0,"kind":"redacted_thinking","message_id":"msg_1","block":{"type":"redacted_thinking","data":"RW5j"}}`,
		`"content":[{"type":"redacted_thinking","data":"RW5j"}]`}, schema.StateDone},
	{"server tool and its result", append(append(block(0,
		`{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{},"caller":{"type":"direct"}}`,
		`{"type":"input_json_delta","partial_json":"{\"query\":"}`,
		`{"type":"input_json_delta","partial_json":" \"eclipse\"}"}`),
		block(1, `{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"type":"web_search_result","url":"u","encrypted_content":"x"}]}`)...), ended("end_turn")...), []string{
		`"call_id":"srv_1","tool":"web_search","block":{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{},"caller":{"type":"direct"}}`,
		`tool.start {"call_id":"srv_1","tool":"web_search","input":{"query": "eclipse"},"index":0,"kind":"server_tool_use"}`,
		`block.start {"index":1,"kind":"web_search_tool_result","message_id":"msg_1","call_id":"srv_1"`,
		`tool.end {"call_id":"srv_1","ok":true,"output":[{"type":"web_search_result","url":"u","encrypted_content":"x"}],"kind":"web_search_tool_result"}`}, schema.StateDone},
	{"server tool that fails", append(block(0,
		`{"type":"web_fetch_tool_result","tool_use_id":"srv_1","content":{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"}}`), ended("end_turn")...), []string{
		`tool.end {"call_id":"srv_1","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"web_fetch_tool_result_error","error_code":"url_not_accessible"},"kind":"web_fetch_tool_result"}`}, schema.StateDone},
	{"web fetch", append(block(0, `{"type":"web_fetch_tool_result","tool_use_id":"srv_1","content":{"type":"web_fetch_result","url":"u","content":{"type":"document"}}}`), ended("end_turn")...), []string{
		`tool.end {"call_id":"srv_1","ok":true,"output":{"type":"web_fetch_result"`}, schema.StateDone},
	{"code execution", append(block(0, `{"type":"bash_code_execution_tool_result","tool_use_id":"srv_1","content":{"type":"bash_code_execution_result","stdout":"4\n","return_code":0,"content":[]}}`), ended("end_turn")...), []string{
		`tool.end {"call_id":"srv_1","ok":true,"output":{"type":"bash_code_execution_result","stdout":"4\n","return_code":0,"content":[]},"kind":"bash_code_execution_tool_result"}`}, schema.StateDone},
	{"advisor and tool search", append(append(block(0,
		`{"type":"advisor_tool_result","tool_use_id":"srv_1","content":{"type":"advisor_result","text":"x"}}`),
		block(1, `{"type":"tool_search_tool_result","tool_use_id":"srv_2","content":{"type":"tool_search_tool_result_error","error_code":"unavailable"}}`)...), ended("end_turn")...), []string{
		`tool.end {"call_id":"srv_1","ok":true`, `tool.end {"call_id":"srv_2","ok":false`}, schema.StateDone},
	{"tool of an MCP server", append(append(block(0,
		`{"type":"mcp_tool_use","id":"mcp_1","name":"echo","server_name":"srv","input":{}}`,
		`{"type":"input_json_delta","partial_json":"{\"a\":1}"}`),
		block(1, `{"type":"mcp_tool_result","tool_use_id":"mcp_1","is_error":true,"content":[{"type":"text","text":"no"}]}`)...), ended("end_turn")...), []string{
		`"tool":"echo","block":{"type":"mcp_tool_use","id":"mcp_1","name":"echo","server_name":"srv","input":{}}`,
		`tool.start {"call_id":"mcp_1","tool":"echo","input":{"a":1},"index":0,"kind":"mcp_tool_use"}`,
		`tool.end {"call_id":"mcp_1","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":[{"type":"text","text":"no"}],"kind":"mcp_tool_result"}`,
		`{"type":"mcp_tool_use","id":"mcp_1","name":"echo","server_name":"srv","input":{"a":1}}`}, schema.StateDone},
	{"memory and other tools of the client",
		append(block(0, `{"type":"tool_use","id":"t_1","name":"memory","input":{},"caller":{"type":"direct"}}`,
			`{"type":"input_json_delta","partial_json":"{\"command\":\"view\"}"}`), ended("tool_use")...), []string{
			`"block":{"type":"tool_use","id":"t_1","name":"memory","input":{},"caller":{"type":"direct"}}`,
			`tool.start {"call_id":"t_1","tool":"memory","input":{"command":"view"}`,
			`"stop_reason":"tool_use"`}, schema.StateDone},
	{"fine-grained tool streaming that is no JSON",
		append(block(0, `{"type":"tool_use","id":"t_1","name":"write","input":{}}`,
			`{"type":"input_json_delta","partial_json":"{\"text\":\"half"}`), ended("max_tokens")...), []string{
			`"complete":false,"problem":"invalid JSON","call_id":"t_1"}`, `"partial_json":"{\"text\":\"half"}`,
			`"stop_reason":"max_tokens"`}, schema.StateDone},
	{"citations", append(block(0, `{"type":"text","text":"","citations":[]}`, `{"type":"text_delta","text":"So."}`,
		`{"type":"citations_delta","citation":{"type":"page_location","cited_text":"a","start_page_number":1}}`,
		`{"type":"citations_delta","citation":{"type":"char_location","cited_text":"b"}}`), ended("end_turn")...), []string{
		`block.end {"index":0,"message_id":"msg_1","complete":true,"citations":[{"type":"page_location","cited_text":"a","start_page_number":1},{"type":"char_location","cited_text":"b"}]}`,
		`"content":[{"type":"text","text":"So.","citations":[{"type":"page_location"`}, schema.StateDone},
	{"compaction", append(block(0, `{"type":"compaction","content":null}`,
		`{"type":"compaction_delta","content":"All so far.","encrypted_content":"ZW5j"}`), ended("end_turn")...), []string{
		`block.start {"index":0,"kind":"compaction"`,
		`custom.anthropic.compaction_delta {"type":"content_block_delta","index":0`,
		`"content":[{"type":"compaction","content":"All so far.","encrypted_content":"ZW5j"}]`}, schema.StateDone},
	{"compaction that failed", append(block(0, `{"type":"compaction","content":null}`,
		`{"type":"compaction_delta","content":null,"encrypted_content":null}`), ended("end_turn")...), []string{
		`"content":[{"type":"compaction","content":null,"encrypted_content":null}]`}, schema.StateDone},
	{"container upload", append(block(0, `{"type":"container_upload","file_id":"file_1"}`), ended("end_turn")...),
		[]string{
			`"block":{"type":"container_upload","file_id":"file_1"}`,
			`"content":[{"type":"container_upload","file_id":"file_1"}]`}, schema.StateDone},
	{"fallback to another model", append(append(block(0, `{"type":"text","text":"No"}`),
		block(1, `{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}`)...), ended("end_turn")...), []string{
		`block.start {"index":1,"kind":"fallback","message_id":"msg_1","block":{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}}`,
		`{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}]`}, schema.StateDone},
	{"connector text", append(block(0, `{"type":"connector_text","connector_text":""}`,
		`{"type":"connector_text_delta","connector_text":"via"}`), ended("end_turn")...), []string{
		`text.delta {"text":"via","index":0}`, `"content":[{"type":"connector_text","connector_text":"via"}]`},
		schema.StateDone},
	{"a block of a kind to come", append(block(0, `{"type":"hologram","x":1.0}`, `{"type":"hologram_delta","y":2}`),
		ended("end_turn")...), []string{
		`block.start {"index":0,"kind":"hologram","message_id":"msg_1","block":{"type":"hologram","x":1.0}}`,
		`custom.anthropic.hologram_delta {"type":"content_block_delta","index":0,"delta":{"type":"hologram_delta","y":2}}`}, schema.StateDone},
	{"pause_turn", append(block(0, `{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query":"a"}}`),
		ended("pause_turn")...), []string{
		`tool.start {"call_id":"srv_1","tool":"web_search","input":{"query":"a"}`, `"stop_reason":"pause_turn"`},
		schema.StateDone},
	{"after pause_turn", append(block(0, `{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[]}`),
		ended("end_turn")...), []string{
		`tool.end {"call_id":"srv_1","ok":true,"output":[]`}, schema.StateDone},
	{"refusal", []string{`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":"bio","explanation":null}},"usage":{"output_tokens":0}}`, msgStop}, []string{
		`"stop_reason":"refusal","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":0},"stop_details":{"type":"refusal","category":"bio","explanation":null}`}, schema.StateDone},
	{"context window exceeded", append(block(0, `{"type":"text","text":"A"}`),
		ended("model_context_window_exceeded")...), []string{`"stop_reason":"model_context_window_exceeded"`},
		schema.StateDone},
	{"stop sequence", []string{`{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"\u00a7"},"usage":{"output_tokens":1}}`, msgStop}, []string{
		`"stop_reason":"stop_sequence","stop_sequence":"\u00a7"`}, schema.StateDone},
	{"container, context editing and changed input",
		[]string{`{"type":"message_delta","context_management":{"applied_edits":[{"type":"clear_tool_uses_20250919","cleared_tool_uses":3}]},"input_transformations":[{"type":"thinking_dropped"}],` +
			`"delta":{"stop_reason":"end_turn","container":{"id":"c_1","expires_at":"2026-01-01T00:00:00Z"}},"usage":{"output_tokens":1,"server_tool_use":{"web_search_requests":2}}}`, msgStop}, []string{
			`"usage":{"input_tokens":5,"output_tokens":1,"server_tool_use":{"web_search_requests":2}},"container":{"id":"c_1","expires_at":"2026-01-01T00:00:00Z"},` +
				`"context_management":{"applied_edits":[{"type":"clear_tool_uses_20250919","cleared_tool_uses":3}]},"input_transformations":[{"type":"thinking_dropped"}]`}, schema.StateDone},
	{"error in mid-stream", append(block(0, `{"type":"text","text":"A"}`),
		`{"type":"error","error":{"type":"overloaded_error","message":"later"}}`), []string{
		`custom.anthropic.error {"type":"error"`,
		`message.end {"message_id":"msg_1","content":[{"type":"text","text":"A"}],"stop_reason":"error"`,
		`"error":{"type":"overloaded_error","message":"later"}`}, schema.StateError},
	{"the end of the stream is missing", block(0, `{"type":"text","text":"A"}`),
		[]string{`"incomplete":true,"error":{"type":"stream_cut"`}, schema.StateError},
	{"a frame that cannot be read", append([]string{`{"type":"content_block_st`},
		append(block(0, `{"type":"text","text":"A"}`), ended("end_turn")...)...), []string{
		`custom.anthropic.bad_frame {"problem":"invalid JSON"`, `"stop_reason":"end_turn"`}, schema.StateError},
}

func TestFeatures(t *testing.T) {
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			events := decodeAll(t, []byte(sse(append([]string{start}, f.frames...)...)))
			providertest.CheckEvents(t, events)
			var o provider.Outcome
			for i := range events {
				o.See(&events[i])
			}
			if state, reason := o.State(); state != f.state || (reason == "") != (state == schema.StateDone) {
				t.Errorf("the run ends %s: %s", state, reason)
			}
			told := providertest.Print(events)
			rest := told
			for _, want := range f.want {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %s\nin %s", want, told)
				}
				rest = rest[i+len(want):]
			}
		})
	}
}

// TestNothingAliases: events hold nothing of the bytes that they were made of, which the next read
// overwrites, nor of each other.
func TestNothingAliases(t *testing.T) {
	for _, f := range features {
		body := []byte(sse(append([]string{start}, f.frames...)...))
		want := providertest.Lines(decodeAll(t, body))
		for _, step := range []int{1, 50, 700, len(body)} {
			d := NewDecoder(provider.Config{})
			var events []schema.Event
			buf := make([]byte, step)
			for rest := body; len(rest) > 0; {
				n := copy(buf, rest)
				more, _ := d.Write(buf[:n])
				copy(buf, bytes.Repeat([]byte("#"), step))
				events, rest = append(events, more...), rest[n:]
			}
			events = append(events, d.Close()...)
			if got := providertest.Lines(events); got != want {
				t.Fatalf("%s in steps of %d\n got %s\nwant %s", f.name, step, got, want)
			}
			for i := range events { // overwriting one event must leave the others
				kept := providertest.Lines(events[i+1:])
				for j := range events[i].Payload {
					events[i].Payload[j] = '#'
				}
				if providertest.Lines(events[i+1:]) != kept {
					t.Fatalf("%s: event %d shares bytes with a later one", f.name, i)
				}
			}
		}
	}
}

// BenchmarkLong shows that the time for an event does not grow with the message that it belongs to.
func BenchmarkLong(b *testing.B) {
	text := `{"type":"text_delta","text":"a few words of it "}`
	for _, n := range []int{1000, 10_000, 100_000} {
		many := func(delta string) []byte {
			deltas := make([]string, n)
			for i := range deltas {
				deltas[i] = delta
			}
			return []byte(sse(append(append([]string{start}, block(0, `{"type":"text","text":""}`, deltas...)...),
				ended("end_turn")...)...))
		}
		var blocks []string
		for i := range n {
			blocks = append(blocks, block(i, `{"type":"text","text":""}`, text)...)
		}
		for name, body := range map[string][]byte{
			"deltas":    many(text),
			"citations": many(`{"type":"citations_delta","citation":{"type":"char_location","cited_text":"a"}}`),
			"input": []byte(strings.ReplaceAll(string(many(`{"type":"input_json_delta","partial_json":" "}`)),
				`{"type":"text","text":""}`, `{"type":"tool_use","id":"t","name":"n","input":{}}`)),
			"blocks": []byte(sse(append(append([]string{start}, blocks...), ended("end_turn")...)...)),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					d := NewDecoder(provider.Config{})
					for rest := body; len(rest) > 0; {
						k := min(len(rest), 32<<10)
						_, _ = d.Write(rest[:k]) // not closed yet
						rest = rest[k:]
					}
					d.Close()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/delta")
			})
		}
	}
}

// TestBlocksWithinTheBeginning: what came whole with message_start is in the end as it came, whatever came after it.
func TestBlocksWithinTheBeginning(t *testing.T) {
	content := `[{"type":"tool_use","id":"t1","name":"f","input":{"key":"value"}},{"type":"redacted_thinking","data":"RW5j"}]`
	begin := strings.Replace(start, `"content":[]`, `"content":`+content, 1)
	later := strings.Repeat(`~`, len(begin)/2)
	frames := append([]string{begin}, block(2, `{"type":"text","text":""}`, `{"type":"text_delta","text":"`+later+`"}`)...)
	told := providertest.Print(providertest.Decode(t, NewDecoder(provider.Config{}),
		[]byte(sse(append(frames, ended("tool_use")...)...))))
	if !strings.Contains(told, `"content":`+strings.TrimSuffix(content, "]")) {
		t.Errorf("message.end has not what came: %s", strings.ReplaceAll(told, later, "…"))
	}
}
