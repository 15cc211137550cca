package qoder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// open is a log with something of each kind that can be answered: events 2, 3 and 4 are the uses of a tool, of a
// custom one and of an MCP server's, 5 is a request, 6 the use of a child's tool.
const open = `
	turn.start {"turn_id":"t"}
	tool.start {"call_id":"c1","tool":"a","input":{},"permission":"ask"}
	tool.start {"call_id":"c2","tool":"b","input":{},"custom":true}
	tool.start {"call_id":"c3","tool":"c","input":{},"mcp_server_name":"s"}
	input.requested {"request_id":"r1","prompt":"?"}
	kid:tool.start {"call_id":"c1","tool":"a","input":{},"permission":"ask"}`

// uses returns the event ids of open by their seq.
func uses(t testing.TB, p *Projector) map[int]string {
	t.Helper()
	ids := map[int]string{}
	for _, c := range p.tools.open.All() {
		ids[int(c.seq)] = c.id
	}
	if len(ids) != 5 {
		t.Fatal(ids)
	}
	return ids
}

// What is sent is shown again as it was sent, by every reader, whatever it holds beyond what is known.
func TestSentAndShown(t *testing.T) {
	p := fed(t, open, "")
	ids := uses(t, p)
	kid := ThreadID(testRun, "kid")
	for sent, want := range map[string]struct{ typ, child, payload, shown string }{
		`{"type":"user.message","content":"a\u0041\ud800<","x":1.0,"message_id":"m1","role":"system","id":"no"}`: {
			"command.message", "", `{"content":"a\u0041\ud800<","message_id":"m1","x":1.0}`,
			`user.message {"content":[{"type":"text","text":"a\u0041\ud800<"}],"message_id":"m1","x":1.0}`},
		`{"type":"user.message","content":[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"new","x":1}],"session_thread_id":"KID"}`: {
			"command.message", "kid", `{"content":[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"new","x":1}]}`,
			`user.message {"content":[{"type":"text","text":"a"},{"type":"image","source":{}},{"type":"new","x":1}]}`},
		"{\"type\":\"system.message\",\r\n\"content\":[{\"type\":\"text\",\n\"text\":\"be brief\"}]}": {
			"command.message", "", `{"content":[{"type":"text","text":"be brief"}],"role":"system"}`,
			`system.message {"content":[{"type":"text","text":"be brief"}]}`},
		`{"type":"user.interrupt"}`: {"command.cancel", "", `{"interrupt":true}`, `user.interrupt {}`},
		`{"type":"user.interrupt","session_thread_id":"KID","reason":"enough"}`: {
			"command.cancel", "kid", `{"interrupt":true,"reason":"enough"}`, `user.interrupt {"reason":"enough"}`},
		`{"type":"user.tool_confirmation","tool_use_id":"E2","result":"deny","deny_message":"no \ud800"}`: {
			"command.answer", "", `{"request_id":"c1","answer":{"type":"user.tool_confirmation","deny_message":"no \ud800","result":"deny","tool_use_id":"E2"}}`,
			`user.tool_confirmation {"deny_message":"no \ud800","result":"deny","tool_use_id":"E2"}`},
		`{"type":"user.tool_confirmation","tool_use_id":"E4","decision":"approve"}`: {
			"command.answer", "", `{"request_id":"c3","answer":{"type":"user.tool_confirmation","result":"allow","decision":"approve","tool_use_id":"E4"}}`,
			`user.tool_confirmation {"result":"allow","decision":"approve","tool_use_id":"E4"}`},
		`{"type":"user.tool_confirmation","tool_use_id":"E6","result":"allow"}`: {
			"command.answer", "kid", `{"request_id":"c1","answer":{"type":"user.tool_confirmation","result":"allow","tool_use_id":"E6"}}`,
			`user.tool_confirmation {"result":"allow","tool_use_id":"E6"}`},
		`{"type":"user.custom_tool_result","custom_tool_use_id":"E3","content":"x","is_error":true}`: {
			"command.answer", "", `{"request_id":"c2","answer":{"type":"user.custom_tool_result","content":"x","custom_tool_use_id":"E3","is_error":true}}`,
			`user.custom_tool_result {"content":"x","custom_tool_use_id":"E3","is_error":true}`},
		`{"type":"user.custom_tool_result","custom_tool_use_id":"E5","content":[]}`: {
			"command.answer", "", `{"request_id":"r1","answer":{"type":"user.custom_tool_result","content":[],"custom_tool_use_id":"E5"}}`,
			`user.custom_tool_result {"content":[],"custom_tool_use_id":"E5"}`},
		`{"type":"user.tool_result","tool_use_id":"E2"}`: {
			"command.answer", "", `{"request_id":"c1","answer":{"type":"user.tool_result","tool_use_id":"E2"}}`,
			`user.tool_result {"tool_use_id":"E2"}`},
		`{"type":"user.define_outcome","description":"win \u0041","rubric":{"type":"text","content":"x"},"max_iterations":3}`: {
			"command.redirect", "", `{"instruction":"win \u0041","event":{"type":"user.define_outcome","description":"win \u0041","max_iterations":3,"rubric":{"type":"text","content":"x"}}}`,
			`user.define_outcome {"description":"win \u0041","max_iterations":3,"rubric":{"type":"text","content":"x"},"outcome_id":"OUT"}`},
	} {
		real := strings.NewReplacer("KID", kid, "E2", ids[2], "E3", ids[3], "E4", ids[4], "E5", ids[5], "E6", ids[6])
		e, err := p.Command(json.RawMessage(real.Replace(sent)))
		if err != nil {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		if e.Type != want.typ || e.ChildID != want.child || e.Actor != "user" ||
			string(e.Payload) != real.Replace(want.payload) {
			t.Errorf("%s\ngot  %s %q %s\nwant %s %q %s", sent, e.Type, e.ChildID, e.Payload, want.typ, want.child, want.payload)
		}
		if err := e.Prepare(testRun); err != nil {
			t.Errorf("%s: %v", sent, err)
		}
		s := scenario(open)
		s.Events = append(s.Events, e)
		list, thread := records(t, s), ""
		if e.ChildID != "" {
			thread = ThreadID(testRun, e.ChildID)
		}
		q := p.For(Request(testRun, thread)).(*Projector)
		frames := feed(t, q, list[len(list)-1:])
		got := brief(frames[:1])
		got = strings.ReplaceAll(got, "outc_"+strings.TrimPrefix(frames[0].id, EventPrefix), "OUT")
		if strings.TrimSpace(got) != real.Replace(want.shown) {
			t.Errorf("%s\nshown %s\nwant  %s", sent, got, want.shown)
		}
	}
}

func TestCommandRefused(t *testing.T) {
	p := fed(t, open+`
		command.answer {"request_id":"c2","answer":{"type":"user.custom_tool_result","custom_tool_use_id":"x"}}
		child.spawn {"child_id":"shut"}
		shut:session.archived {}
		tool.start {"call_id":"done","tool":"x"}
		tool.end {"call_id":"done","ok":true}`, "")
	ids := map[string]string{"E2": "", "E3": "", "E5": ""}
	for _, c := range p.tools.open.All() {
		ids[fmt.Sprintf("E%d", c.seq)] = c.id
	}
	for sent, param := range map[string]string{
		``: "", `7`: "", `[]`: "", `{`: "", `null`: "", "{\"type\":\"user.message\",\"content\":\"\xff\"}": "",
		`{"type":"user.message","content":"a","content":"b"}`: "",
		`{}`: "type", `{"type":7}`: "type", `{"type":"agent.message","content":"x"}`: "type", `{"type":"user.dance"}`: "type",
		`{"type":"user.message"}`: "content", `{"type":"user.message","content":null}`: "content",
		`{"type":"user.message","content":{}}`: "content",
		`{"type":"user.message","content":[]}`: "content", `{"type":"user.message","content":["x"]}`: "content[0]",
		`{"type":"user.message","content":[{"type":7}]}`:                                        "content[0].type",
		`{"type":"user.message","content":[{"type":"text","text":"a"},{"type":"text"}]}`:        "content[1].text",
		`{"type":"user.message","content":[{"type":"image"}]}`:                                  "content[0].source",
		`{"type":"user.message","content":"x","message_id":7}`:                                  "message_id",
		`{"type":"user.message","content":"x","session_thread_id":7}`:                           "session_thread_id",
		`{"type":"user.message","content":"x","session_thread_id":"sthr_1"}`:                    "session_thread_id",
		`{"type":"user.interrupt","session_thread_id":"SHUT"}`:                                  "session_thread_id",
		`{"type":"user.interrupt","reason":7}`:                                                  "reason",
		`{"type":"system.message","content":[{"type":"image","source":{}}]}`:                    "content[0].type",
		`{"type":"user.tool_confirmation"}`:                                                     "tool_use_id",
		`{"type":"user.tool_confirmation","tool_use_id":"evt_1","result":"allow"}`:              "tool_use_id",
		`{"type":"user.tool_confirmation","tool_use_id":"E2"}`:                                  "result",
		`{"type":"user.tool_confirmation","tool_use_id":"E2","result":"maybe"}`:                 "result",
		`{"type":"user.tool_confirmation","tool_use_id":"E2","decision":"maybe"}`:               "decision",
		`{"type":"user.tool_confirmation","tool_use_id":"E2","result":"deny","deny_message":7}`: "deny_message",
		`{"type":"user.tool_confirmation","tool_use_id":"E5","result":"allow"}`:                 "tool_use_id",
		`{"type":"user.tool_result","tool_use_id":"E3"}`:                                        "tool_use_id",
		`{"type":"user.tool_result","tool_use_id":"DONE"}`:                                      "tool_use_id",
		`{"type":"user.tool_result","tool_use_id":"E2","is_error":"no"}`:                        "is_error",
		`{"type":"user.tool_result","tool_use_id":"E2","content":{}}`:                           "content",
		// has its result
		`{"type":"user.custom_tool_result","custom_tool_use_id":"E3"}`:        "custom_tool_use_id",
		`{"type":"user.custom_tool_result","custom_tool_use_id":"E4"}`:        "custom_tool_use_id",
		`{"type":"user.custom_tool_result","tool_use_id":"E5"}`:               "custom_tool_use_id",
		`{"type":"user.define_outcome"}`:                                      "description",
		`{"type":"user.define_outcome","description":""}`:                     "description",
		`{"type":"user.define_outcome","description":"x","rubric":"y"}`:       "rubric",
		`{"type":"user.define_outcome","description":"x","max_iterations":0}`: "max_iterations",
	} {
		real := strings.NewReplacer("SHUT", ThreadID(testRun, "shut"), "E2", ids["E2"], "E3", ids["E3"], "E4",
			ids["E4"], "E5", ids["E5"], "DONE", eventID(testRun, 10, 0))
		_, err := p.Command(json.RawMessage(real.Replace(sent)))
		refused(t, sent, err, param)
	}
}

// Native commands are shown by their sense, and what has none by nothing.
func TestNativeCommands(t *testing.T) {
	hasFrames(t, `
		command.message {"content":{"odd":1}}
		command.message {}
		command.message {"content":[],"role":"user"}
		command.cancel {"reason":null}
		command.answer {"request_id":"none","answer":1}
		command.answer {}
		command.redirect {"instruction":"x","event":{"type":"user.message"}}
		command.resume {}`, "", `
		user.message {"content":[{"type":"text","text":"{\"odd\":1}"}]}
		user.message {"content":[]}
		user.message {"content":[]}
		user.interrupt {"reason":null}`)
}

// A message that the agent repeats as one of its own is shown once.
func TestRepeatedMessage(t *testing.T) {
	hasFrames(t, `
		command.message {"content":[{"type":"text","text":"hello"}]}
		message.start {"message_id":"u","role":"user"}
		message.end {"message_id":"u","content":[{"type":"text","text":"hello"}]}
		message.start {"message_id":"u2","role":"user"}
		message.end {"message_id":"u2","content":[{"type":"text","text":"hello"}]}`, "", `
		user.message {"content":[{"type":"text","text":"hello"}]}
		user.message {"content":[{"type":"text","text":"hello"}],"message_id":"u2"}`)
}

// Whatever is sent: it is refused in words, or the log takes it and every reader is shown one event of its type.
func TestCommandHolds(t *testing.T) {
	values := append([]string{`"E2"`, `"E3"`, `"KID"`, `[{"type":"text","text":"x"}]`, `[{"type":"text"}]`, `"allow"`,
		`"approve"`, `-1`, `1e400`}, hostileText...)
	names := append([]string{"tool_use_id", "custom_tool_use_id", "result", "decision", "is_error", "description",
		"rubric", "session_thread_id", "processed_at", "\u2028"}, hostileName...)
	types := []string{sentMessage, sentSystem, sentInterrupt, sentConfirmation, sentCustomResult, sentResult,
		sentOutcome, "x"}
	p := fed(t, open, "")
	ids := uses(t, p)
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(types).Draw(rt, "type")
		var b strings.Builder
		fmt.Fprintf(&b, `{"type":%q`, typ)
		seen := map[string]bool{"type": true}
		for range rapid.IntRange(0, 5).Draw(rt, "fields") {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			if !seen[name] {
				seen[name] = true
				fmt.Fprintf(&b, ",%s:%s", appendString(nil, name), rapid.SampledFrom(values).Draw(rt, "value"))
			}
		}
		sent := strings.NewReplacer("KID", ThreadID(testRun, "kid"), "E2", ids[2], "E3", ids[3]).Replace(b.String() + "}")
		e, err := p.Command(json.RawMessage(sent))
		if err != nil {
			refusedHolds(rt, sent, err)
			return
		}
		if err := e.Prepare(testRun); err != nil {
			rt.Fatalf("%s: %v", sent, err)
		}
		s := scenario(open)
		s.Events = append(s.Events, e)
		events := schematest.NumberEvents(testRun, s)
		r, err := schema.ScanLine(events[len(events)-1].AppendLine(nil))
		if err != nil {
			rt.Fatal(err)
		}
		thread := ""
		if e.ChildID != "" {
			thread = ThreadID(testRun, e.ChildID)
		}
		var out dialect.Frames
		if err := p.For(Request(testRun, thread)).Project(&out, r); err != nil || len(out.List) == 0 ||
			string(out.List[0].Event) != typ || !json.Valid(out.List[0].Data) {
			rt.Fatalf("%s: %v, %d frames", sent, err, len(out.List))
		}
	})
}

func refusedHolds(rt *rapid.T, sent string, err error) {
	if b := (Dialect{}).AppendError(nil, dialect.Problem{Reason: dialect.ReasonBadRequest, Status: 400,
		Message: err.Error()}); !json.Valid(b) || err.Error() == "" {
		rt.Fatalf("%s: %s", sent, b)
	}
}
