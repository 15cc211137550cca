package qoder

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// numbered writes frames as brief does, with short names in the place of ids: e1, e2, … for events in the order in
// which they come, and the names of names.
func numbered(frames []shown, names ...string) string {
	s := brief(frames)
	for i, f := range frames {
		s = strings.ReplaceAll(s, f.id, fmt.Sprintf("e%d", i+1))
	}
	for i := 0; i+1 < len(names); i += 2 {
		s = strings.ReplaceAll(s, names[i], names[i+1])
	}
	return s
}

// hasFrames compares the frames of a log, as numbered writes them, with lines.
func hasFrames(t *testing.T, log, thread, want string) *Projector {
	t.Helper()
	p := Dialect{}.Projector(Request(testRun, thread)).(*Projector)
	got := numbered(feed(t, p, records(t, scenario(log))), ThreadID(testRun, ""), "ROOT", ThreadID(testRun, "kid"),
		"KID", eventID(testRun, 2, 0), "USE")
	var lines strings.Builder
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintln(&lines, line)
		}
	}
	if got != lines.String() {
		t.Errorf("log\n%s\ngot\n%s\nwant\n%s", strings.TrimSpace(log), got, lines.String())
	}
	return p
}

func TestToolFrames(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"plain": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c1","tool":"re\u0061d","input":{"n":1.10}}
			tool.end {"call_id":"c1","ok":true,"output":"a\/\ud800b"}
			turn.end {"turn_id":"t1","stop_reason":"end_turn"}`, `
			session.status_running {}
			agent.tool_use {"name":"re\u0061d","input":{"n":1.10},"evaluated_permission":"allow","call_id":"c1"}
			agent.tool_result {"tool_use_id":"e2","content":[{"type":"text","text":"a\/\ud800b"}],"is_error":false,"call_id":"c1"}
			session.status_idle {"stop_reason":{"type":"end_turn"},"stop_details":null}`},
		"what tools answer": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c","tool":"a","input":{}}
			tool.end {"call_id":"c","ok":true,"output":[{"type":"text","text":"x"},{"type":"image","source":{}}]}
			tool.start {"call_id":"c","tool":"b","input":{}}
			tool.end {"call_id":"c","ok":true,"output":{"a":"\"<"}}
			tool.start {"call_id":"c","tool":"c","input":null}
			tool.end {"call_id":"c","ok":false,"output":[1],"error":{"code":3,"message":"why"},"blob_ref":"b1","duration_ms":1.5}
			tool.start {"call_id":"c","tool":"d"}
			tool.end {"call_id":"c","ok":false,"error":{"code":3}}
			tool.start {"call_id":"c","tool":"e","input":[]}
			tool.end {"call_id":"c","ok":true,"output":null,"error":null}
			tool.start {"call_id":"c","tool":"f","input":[]}
			tool.end {"call_id":"c","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"error","message":"no such file"}}
			tool.start {"call_id":"c","tool":"g","input":[]}
			tool.end {"call_id":"c","ok":false,"error":"KAI-TOOL-TIME-0001","error_detail":null}`, `
			session.status_running {}
			agent.tool_use {"name":"a","input":{},"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e2","content":[{"type":"text","text":"x"},{"type":"image","source":{}}],"is_error":false,"call_id":"c"}
			agent.tool_use {"name":"b","input":{},"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e4","content":[{"type":"text","text":"{\"a\":\"\\\"<\"}"}],"is_error":false,"call_id":"c"}
			agent.tool_use {"name":"c","input":{},"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e6","content":[{"type":"text","text":"[1]"},{"type":"text","text":"why"}],"is_error":true,"call_id":"c","duration_ms":1.5,"blob_ref":"b1"}
			agent.tool_use {"name":"d","input":{},"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e8","content":[{"type":"text","text":"{\"code\":3}"}],"is_error":true,"call_id":"c"}
			agent.tool_use {"name":"e","input":[],"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e10","content":[],"is_error":false,"call_id":"c"}
			agent.tool_use {"name":"f","input":[],"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e12","content":[{"type":"text","text":"no such file"}],"is_error":true,"call_id":"c"}
			agent.tool_use {"name":"g","input":[],"evaluated_permission":"allow","call_id":"c"}
			agent.tool_result {"tool_use_id":"e14","content":[{"type":"text","text":"KAI-TOOL-TIME-0001"}],"is_error":true,"call_id":"c"}`},
		"an end without a start": {`
			tool.end {"call_id":"c1","ok":true,"output":"x"}`, `
			agent.tool_use {"name":"","input":{},"evaluated_permission":"allow","call_id":"c1"}
			agent.tool_result {"tool_use_id":"e1","content":[{"type":"text","text":"x"}],"is_error":false,"call_id":"c1"}`},
		"mcp": {`
			message.start {"message_id":"m","role":"assistant"}
			block.start {"index":0,"kind":"mcp_tool_use","message_id":"m","call_id":"c1","tool":"roll","block":{"type":"mcp_tool_use","server_name":"dice \u0026"}}
			block.end {"index":0,"message_id":"m","call_id":"c1","input":{"d":6}}
			tool.start {"call_id":"c1","tool":"roll","input":{"d":6},"index":0,"kind":"mcp_tool_use"}
			tool.end {"call_id":"c1","ok":true,"output":[{"type":"text","text":"4"}]}
			tool.start {"call_id":"c1","tool":"roll","input":{}}
			tool.start {"call_id":"c2","tool":"roll","input":{},"mcp_server_name":"s"}`, `
			session.status_running {}
			agent.mcp_tool_use {"name":"roll","input":{"d":6},"mcp_server_name":"dice \u0026","evaluated_permission":"allow","call_id":"c1"}
			agent.mcp_tool_result {"mcp_tool_use_id":"e2","content":[{"type":"text","text":"4"}],"is_error":false,"call_id":"c1"}
			agent.tool_use {"name":"roll","input":{},"evaluated_permission":"allow","call_id":"c1"}
			agent.mcp_tool_use {"name":"roll","input":{},"mcp_server_name":"s","evaluated_permission":"allow","call_id":"c2"}`},
		"asked for at its start, and confirmed": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c1","tool":"rm","input":{},"permission":"ask"}
			input.requested {"request_id":"c1","call_id":"c1"}
			command.answer {"request_id":"c1","answer":{"type":"user.tool_confirmation","tool_use_id":"X","result":"allow","more":{"a":1.0}}}
			input.answered {"request_id":"c1","answer":{}}
			tool.end {"call_id":"c1","ok":true}`, `
			session.status_running {}
			agent.tool_use {"name":"rm","input":{},"evaluated_permission":"ask","call_id":"c1"}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			user.tool_confirmation {"tool_use_id":"X","result":"allow","more":{"a":1.0}}
			session.status_running {}
			agent.tool_result {"tool_use_id":"e2","content":[],"is_error":false,"call_id":"c1"}`},
		"asked in a message, said when it has ended": {`
			message.start {"message_id":"m","role":"assistant"}
			tool.start {"call_id":"c1","tool":"a","input":{},"custom":true}
			tool.start {"call_id":"c2","tool":"b","input":{},"custom":true}
			message.end {"message_id":"m","content":[],"stop_reason":"tool_use"}`, `
			session.status_running {}
			agent.custom_tool_use {"name":"a","input":{},"call_id":"c1"}
			agent.custom_tool_use {"name":"b","input":{},"call_id":"c2"}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2","e3"]},"stop_details":null}`},
		"custom tools, one answered by the client and one not": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c1","tool":"a","input":{},"custom":true}
			tool.start {"call_id":"c2","tool":"b","input":{},"custom":true}
			command.answer {"request_id":"c1","answer":{"type":"user.custom_tool_result","custom_tool_use_id":"X","content":[]}}
			tool.end {"call_id":"c1","ok":true,"output":"seen"}
			tool.end {"call_id":"c2","ok":false,"error":"nobody"}`, `
			session.status_running {}
			agent.custom_tool_use {"name":"a","input":{},"call_id":"c1"}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			agent.custom_tool_use {"name":"b","input":{},"call_id":"c2"}
			session.status_running {}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2","e4"]},"stop_details":null}
			user.custom_tool_result {"custom_tool_use_id":"X","content":[]}
			session.status_running {}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e4"]},"stop_details":null}
			agent.tool_result {"tool_use_id":"e4","content":[{"type":"text","text":"nobody"}],"is_error":true,"call_id":"c2"}
			session.status_running {}`},
		"the client is faster than the agent's request": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c1","tool":"a","input":{}}
			command.answer {"request_id":"c1","answer":{"type":"user.tool_result","tool_use_id":"X","content":"r"}}
			input.requested {"request_id":"c1","call_id":"c1"}
			input.answered {"request_id":"c1"}
			tool.end {"call_id":"c1","ok":true,"output":"r"}`, `
			session.status_running {}
			agent.tool_use {"name":"a","input":{},"evaluated_permission":"allow","call_id":"c1"}
			user.tool_result {"tool_use_id":"X","content":"r"}
			agent.tool_result {"tool_use_id":"e2","content":[{"type":"text","text":"r"}],"is_error":false,"call_id":"c1"}`},
		"a request about a call, answered in other words": {`
			turn.start {"turn_id":"t1"}
			tool.start {"call_id":"c1","tool":"a","input":{}}
			input.requested {"request_id":"r1","call_id":"c1","prompt":"Sure?"}
			input.requested {"request_id":"r1","call_id":"c1","prompt":"Sure??"}
			command.answer {"request_id":"other","answer":1}
			command.answer {"request_id":"r1","answer":{"yes":true}}
			command.answer {"request_id":"r1","answer":"no"}`, `
			session.status_running {}
			agent.tool_use {"name":"a","input":{},"evaluated_permission":"allow","call_id":"c1"}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			user.custom_tool_result {"custom_tool_use_id":"e2","content":[{"type":"text","text":"{\"yes\":true}"}],"is_error":false}
			session.status_running {}`},
		"requests, answered by the agent's own word or not at all": {`
			turn.start {"turn_id":"t1"}
			input.requested {"request_id":"r1","prompt":"A?","options":["x"]}
			input.answered {"request_id":"r1","answer":["x",1]}
			input.requested {"request_id":"r2","prompt":"B?","schema":{}}
			turn.end {"turn_id":"t1","stop_reason":"end_turn"}`, `
			session.status_running {}
			agent.custom_tool_use {"name":"request_input","input":{"prompt":"A?","options":["x"]}}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			user.custom_tool_result {"custom_tool_use_id":"e2","content":[{"type":"text","text":"[\"x\",1]"}],"is_error":false}
			session.status_running {}
			agent.custom_tool_use {"name":"request_input","input":{"prompt":"B?","schema":{}}}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e6"]},"stop_details":null}`},
		"a run that ends with something waiting": {`
			turn.start {"turn_id":"t1"}
			input.requested {"request_id":"r1","prompt":"A?"}
			run.lifecycle {"state":"aborted","reason":null}
			command.answer {"request_id":"r1","answer":"late"}`, `
			session.status_running {}
			agent.custom_tool_use {"name":"request_input","input":{"prompt":"A?"}}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			session.status_running {}
			session.status_idle {"stop_reason":{"type":"cancelled"},"stop_details":null}`},
		"a turn that is cancelled with something waiting": {`
			turn.start {"turn_id":"t1"}
			input.requested {"request_id":"r1","prompt":"A?"}
			turn.end {"turn_id":"t1","stop_reason":"cancelled"}
			turn.start {"turn_id":"t2"}
			turn.end {"turn_id":"t2"}`, `
			session.status_running {}
			agent.custom_tool_use {"name":"request_input","input":{"prompt":"A?"}}
			session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e2"]},"stop_details":null}
			session.status_running {}
			session.status_idle {"stop_reason":{"type":"cancelled"},"stop_details":null}
			session.status_running {}
			session.status_idle {"stop_reason":{"type":"end_turn"},"stop_details":null}`},
	} {
		t.Run(name, func(t *testing.T) { hasFrames(t, c.log, "", c.want) })
	}
}

// A child's calls are the child's own affair, except what waits for the client: the session is shown that, and
// waits with it.
func TestToolsOfChildren(t *testing.T) {
	log := `
		turn.start {"turn_id":"t1"}
		tool.start {"call_id":"c1","tool":"task","input":{}}
		child.spawn {"child_id":"kid","prompt":"Go \ud800","call_id":"c1","agent_name":"helper"}
		kid:run.lifecycle {"state":"running"}
		kid:tool.start {"call_id":"c1","tool":"ls","input":{}}
		kid:tool.end {"call_id":"c1","ok":true}
		kid:tool.start {"call_id":"c2","tool":"rm","input":{},"permission":"ask"}
		kid:input.requested {"request_id":"r1","call_id":"c2","prompt":"rm?"}
		kid:command.answer {"request_id":"c2","answer":{"type":"user.tool_confirmation","tool_use_id":"X","result":"deny"}}
		kid:command.answer {"request_id":"r1","answer":"no"}
		kid:tool.end {"call_id":"c2","ok":false}
		kid:run.lifecycle {"state":"done"}`
	hasFrames(t, log, "", `
		session.status_running {}
		agent.tool_use {"name":"task","input":{},"evaluated_permission":"allow","call_id":"c1"}
		session.thread_created {"agent_name":"helper","parent_thread_id":"ROOT","parent_tool_use_id":"e2","workflow_run_id":null}
		agent.thread_message_sent {"content":[{"type":"text","text":"Go \ud800"}],"to_agent_name":"helper","direction":"sent","to_session_thread_id":"KID"}
		session.thread_status_running {"agent_name":"helper"}
		agent.tool_use {"name":"rm","input":{},"evaluated_permission":"ask","call_id":"c2"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e6"]},"stop_details":null}
		session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e6"]},"stop_details":null}
		agent.custom_tool_use {"name":"request_input","input":{"prompt":"rm?","call_id":"c2"}}
		session.thread_status_running {"agent_name":"helper"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e6","e9"]},"stop_details":null}
		session.status_running {}
		session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e6","e9"]},"stop_details":null}
		user.tool_confirmation {"tool_use_id":"X","result":"deny"}
		session.thread_status_running {"agent_name":"helper"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e9"]},"stop_details":null}
		session.status_running {}
		session.status_idle {"stop_reason":{"type":"requires_action","event_ids":["e9"]},"stop_details":null}
		user.custom_tool_result {"custom_tool_use_id":"e9","content":[{"type":"text","text":"no"}],"is_error":false}
		session.thread_status_running {"agent_name":"helper"}
		session.status_running {}
		agent.tool_result {"tool_use_id":"e6","content":[],"is_error":true,"call_id":"c2"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"end_turn"},"stop_details":null}
		session.thread_status_terminated {"agent_name":"helper"}`)
	p := hasFrames(t, log, ThreadID(testRun, "kid"), `
		session.thread_created {"agent_name":"helper","parent_thread_id":"ROOT","parent_tool_use_id":"USE","workflow_run_id":null}
		agent.thread_message_received {"content":[{"type":"text","text":"Go \ud800"}],"from_agent_name":null,"direction":"received","from_session_thread_id":"ROOT"}
		session.thread_status_running {"agent_name":"helper"}
		agent.tool_use {"name":"ls","input":{},"evaluated_permission":"allow","call_id":"c1"}
		agent.tool_result {"tool_use_id":"e4","content":[],"is_error":false,"call_id":"c1"}
		agent.tool_use {"name":"rm","input":{},"evaluated_permission":"ask","call_id":"c2"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e6"]},"stop_details":null}
		agent.custom_tool_use {"name":"request_input","input":{"prompt":"rm?","call_id":"c2"}}
		session.thread_status_running {"agent_name":"helper"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e6","e8"]},"stop_details":null}
		user.tool_confirmation {"tool_use_id":"X","result":"deny"}
		session.thread_status_running {"agent_name":"helper"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"requires_action","event_ids":["e8"]},"stop_details":null}
		user.custom_tool_result {"custom_tool_use_id":"e8","content":[{"type":"text","text":"no"}],"is_error":false}
		session.thread_status_running {"agent_name":"helper"}
		agent.tool_result {"tool_use_id":"e6","content":[],"is_error":true,"call_id":"c2"}
		session.thread_status_idle {"agent_name":"helper","stop_reason":{"type":"end_turn"},"stop_details":null}
		session.thread_status_terminated {"agent_name":"helper"}`)
	if use := p.threads.lanes.m["kid"].use; use == "" {
		t.Errorf("the child was spawned by %q", use)
	}
}

var (
	statusFrame = regexp.MustCompile(`^session\.(thread_)?status_(running|idle)$`)
	hostileText = []string{`"a"`, `"b"`, `"kid"`, `""`, `7`, `null`, `{}`, `["a"]`, `"assistant"`, `"ask"`, `true`,
		`"done"`, `"running"`, `"error"`, `"paused"`, `"user.tool_confirmation"`, `{"type":"user.custom_tool_result"}`}
	hostileType = []string{
		"tool.start", "tool.end", "tool.start", "tool.end", "input.requested", "input.answered", "command.answer",
		"turn.start", "turn.end",
		"run.lifecycle", "run.lifecycle", "model.start", "model.end", "message.start", "message.end", "block.start",
		"text.delta", "child.spawn", "command.message",
		"command.cancel", "command.redirect", "loss", "session.created", "session.updated", "session.archived",
		"session.deleted", "custom.x",
	}
	hostileName = []string{
		"call_id", "request_id", "state", "turn_id", "stop_reason", "reason", "role", "permission", "custom", "answer",
		"child_id", "prompt", "content",
		"output", "input", "error", "ok", "message_id", "event", "agent", "title", "metadata", "type", "id", "kind",
		"index", "text", "usage",
	}
)

// Whatever a log holds: statuses of a thread alternate, a status names nothing that was not shown before, and a
// result is that of a use that was shown; every frame is JSON, with an id of its own.
func TestFramesHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var log strings.Builder
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			lane := rapid.SampledFrom([]string{"", "", "", "kid:", "a:"}).Draw(rt, "lane")
			fields := map[string]json.RawMessage{}
			for range rapid.IntRange(0, 6).Draw(rt, "fields") {
				fields[rapid.SampledFrom(hostileName).Draw(rt,
					"name")] = json.RawMessage(rapid.SampledFrom(hostileText).Draw(rt, "value"))
			}
			payload, _ := json.Marshal(fields)
			fmt.Fprintf(&log, "%s%s %s\n", lane, rapid.SampledFrom(hostileType).Draw(rt, "type"), payload)
		}
		list := records(t, scenario(log.String()))
		for _, thread := range []string{"", ThreadID(testRun, ""), ThreadID(testRun, "kid"), ThreadID(testRun, "a")} {
			p := Dialect{Increments: true}.Projector(Request(testRun, thread)).(*Projector)
			if complaint := holds(feed(t, p, list)); complaint != "" {
				rt.Fatalf("%s\n%s", complaint, log.String())
			}
			if thread == "" {
				objectsHold(t, p)
			}
		}
	})
}

func holds(frames []shown) string {
	seen, uses, running := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range frames {
		e := []byte(f.data)
		var ids []string
		_ = json.Unmarshal(field(field(e, "stop_reason"), "event_ids"), &ids) // what people sent may be anything
		if seen[f.id] {
			return "id comes twice: " + f.data
		}
		seen[f.id] = true
		switch {
		case statusFrame.MatchString(f.event):
			runs := strings.HasSuffix(f.event, "running")
			thread := text(e, "session_thread_id")
			if running[thread] == runs {
				return "status comes twice: " + f.data
			}
			running[thread] = runs
			for _, id := range ids {
				if !uses[id] {
					return "status names what was not shown: " + f.data
				}
			}
		case strings.HasSuffix(f.event, "tool_use"):
			uses[f.id] = true
		case f.event == "agent.tool_result" && !uses[text(e, "tool_use_id")], f.event == "agent.mcp_tool_result" &&
			!uses[text(e, "mcp_tool_use_id")]:
			return "result of no use: " + f.data
		}
	}
	return ""
}

func objectsHold(t *testing.T, p *Projector) {
	t.Helper()
	if b := p.AppendSession(nil); !json.Valid(b) {
		t.Fatalf("session is no JSON: %s", b)
	}
	for _, th := range p.Threads() {
		if b, ok := p.AppendThread(nil, th.ID); !ok || !json.Valid(b) {
			t.Fatalf("thread is no JSON: %s", b)
		}
	}
}
