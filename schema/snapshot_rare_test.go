package schema_test

import (
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// rare are runs that show what the named scenarios do not: each says lane, type and payload.
var rare = []schematest.Scenario{
	told("commands", commandsTold),
	told("framing", framingTold),
	told("data", dataTold),
	told("tree", treeTold),
	told("planning", planningTold),
}

type said struct{ lane, typ, payload string }

func told(name string, events []said) schematest.Scenario {
	s := schematest.Scenario{Name: name}
	for _, e := range events {
		ev := schema.Event{Type: e.typ, ChildID: e.lane, Payload: []byte(e.payload)}
		switch {
		case len(e.typ) > 8 && e.typ[:8] == "command.":
			ev.Actor = "user"
		case e.lane == "run_c_1":
			ev.Path = []string{schematest.Root, "run_a", "run_b", "run_c_1"}
		}
		s.Events = append(s.Events, ev)
	}
	return s
}

var commandsTold = []said{
	{"", "run.lifecycle", `{"state":"running"}`},
	{"", "command.pause", `{"reason":"lunch"}`},
	{"", "command.resume", `{}`}, // withdraws the pause
	{"", "command.pause", `{}`},
	{"", "run.lifecycle", `{"state":"paused","reason":"by user"}`},
	{"", "command.redirect", `{"instruction":"look at latency"}`},
	{"", "command.resume", `{}`},
	{"", "run.lifecycle", `{"state":"running"}`},
	{"", "run.lifecycle", `{"state":"redirecting"}`},
	{"", "run.lifecycle", `{"state":"running"}`},
	{"run_a", "run.lifecycle", `{"state":"running"}`},
	{"run_a", "command.pause", `{}`},
	{"", "command.pause", `{}`},
	{"run_a", "run.lifecycle", `{"state":"paused"}`}, // settles its own alone
	{"run_a", "run.lifecycle", `{"state":"done"}`},
	{"run_a", "command.cancel", `{}`}, // too late to wait
	{"", "input.requested", `{"request_id":"r1","prompt":"Which?","options":["a","b"]}`},
	{"", "input.requested", `{"request_id":"r1","prompt":"Which one?","schema":{"type":"string"}}`},
	{"", "input.requested", `{"request_id":"r2"}`},
	{"", "input.requested", `{"request_id":"r3"}`},
	{"", "command.answer", `{"request_id":"r1","answer":{"a":1}}`},
	{"", "command.answer", `{"request_id":"r1","answer":"second"}`},
	{"", "command.answer", `{"request_id":"r2","answer":"waits"}`},
	{"", "command.answer", `{"request_id":"nobody asked","answer":1}`},
	{"", "input.answered", `{"request_id":"r1","answer":"agent's words"}`},
	{"", "input.requested", `{"request_id":"r1","prompt":"again"}`},
	{"", "command.message", `{"content":[{"type":"text","text":"see \ud83d"},{"type":"image","source":{"data":"AAAA"}},7],"message_id":"u1"}`},
	{"", "command.message", `{"content":"second"}`},
	{"", "message.start", `{"message_id":"s","role":"system"}`}, // does not answer
	{"", "message.end", `{"message_id":"s"}`},
	{"", "command.cancel", `{"reason":null}`},
	{"", "input.answered", `{"request_id":"r3","answer":null}`},
}

var framingTold = []said{
	{"", "run.lifecycle", `{"state":"running"}`},
	{"", "message.end", `{"message_id":"nobody"}`},
	{"", "step.boundary", `{"step_index":0,"step_kind":"done"}`},
	{"", "block.end", `{"index":4}`}, // begins a message and finds no block
	{"", "message.start", `{"message_id":"m1","role":"assistant","model":"m-a","usage":{"input_tokens":5}}`},
	{"", "message.end", `{"message_id":"m1","content":[{"type":"text","text":"whole"},{"type":"tool_use","id":"c1","name":"grep","input":{"q":1}},{"type":"thinking","thinking":"hm"}],"stop_reason":"tool_use"}`},
	{"", "tool.start", `{"call_id":"c1","tool":"grep","input":{"q":1}}`},
	{"", "tool.output.delta", `{"call_id":"c1","text":"half \ud83d"}`},
	{"", "tool.output.delta", `{"call_id":"c1","text":"\ude00 whole"}`},
	{"", "tool.end", `{"call_id":"c1","ok":true,"blob_ref":"blob_1","duration_ms":1.50}`},
	{"", "tool.start", `{"call_id":"c1","tool":"grep","input":null}`},
	{"", "tool.end", `{"call_id":"c1","ok":false,"error":{"type":"gone"}}`},
	{"", "tool.start", `{"call_id":"c_code","tool":"t","input":{}}`},
	{"", "tool.end", `{"call_id":"c_code","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"error","message":"no"}}`},
	{"", "tool.start", `{"call_id":"c_bare","tool":"t","input":{}}`},
	{"", "tool.end", `{"call_id":"c_bare","ok":false,"error":"KAI-TOOL-TIME-0001","error_detail":null}`},
	{"run_a", "tool.end", `{"call_id":"c1","ok":true,"output":"of another lane"}`},
	{"", "tool.output.delta", `{"call_id":"early","text":"before its start"}`},
	{"", "tool.start", `{"call_id":"early","tool":"late"}`},
	{"", "message.start", `{"message_id":"m2","role":"assistant"}`},
	{"", "block.start", `{"index":3.0,"kind":"text"}`},
	{"", "text.delta", `{"index":3,"text":"smile \ud83d"}`},
	{"", "text.delta", `{"index":3,"text":"\ude00, lone \udc00"}`},
	{"", "reasoning.delta", `{"index":3,"text":" whatever its kind"}`},
	{"", "text.delta", `{"index":-1,"text":"no index"}`},
	{"", "text.delta", `{"index":"x","text":", still none"}`},
	{"", "text.delta", `{"text":7}`},
	{"", "tool.input.delta", `{"call_id":"p","text":"{"}`},
	{"", "tool.input.delta", `{"call_id":"q","text":"["}`},
	{"", "tool.input.delta", `{"call_id":"p","text":"}"}`},
	{"", "block.start", `{"index":9,"kind":"redacted_thinking","block":{"data":"x"}}`},
	{"", "block.end", `{"index":9,"complete":null}`},
	{"", "block.end", `{"input":{"late":true}}`},                                  // of the last block
	{"", "message.start", `{"message_id":"m3","role":"assistant","model":"m-b"}`}, // ends m2
	{"", "message.end", `{"message_id":"m3","usage":{"input_tokens":7.0,"output_tokens":1e1,"cache_read_input_tokens":9007199254740991,"cost":0.5,"too_many":9007199254740992,"minus":-1,"tier":"a","nested":{"n":1}}}`},
	{"", "message.start", `{"message_id":"m4","role":"assistant","model":"m-b"}`},
	{"", "message.end", `{"message_id":"m4","usage":{"cache_read_input_tokens":2,"output_tokens":3},"error":{"type":"overloaded_error"}}`},
	{"run_a", "text.delta", `{"text":"cut by the end of all"}`},
	{"", "run.lifecycle", `{"state":"error","reason":""}`},
}

var dataTold = []said{
	{"", "run.lifecycle", `{"state":"running"}`},
	{"", "data.delta", `{"media_type":"audio/pcm","data":"AAEC","name":"a"}`},
	{"", "data.delta", `{"media_type":"audio/pcm","data":"AwQ=","name":"a"}`},
	{"", "data.delta", `{"media_type":"audio/pcm","data":"BQ==","name":"b"}`},
	{"", "text.delta", `{"text":"between"}`},
	{"", "data.delta", `{"media_type":"image/png","data":"","index":7}`},
	{"", "data.delta", `{"media_type":"image/png","data":"iVBO","index":7}`},
}

var treeTold = []said{
	{"", "run.lifecycle", `{"state":"running"}`},
	{"run_c_1", "text.delta", `{"text":"speaks before anybody announced it"}`}, // brings run_a and run_b
	{"run_b", "child.spawn", `{"child_id":"run_c_1","prompt":"late","tools_allowed":["grep"]}`},
	{"run_b", "child.spawn", `{"child_id":"run_c_1","prompt":"twice"}`},
	{"", "child.spawn", `{"child_id":"run_d"}`},
	{"run_d", "child.spawn", `{"child_id":"run_a","prompt":"keeps its parent"}`},
	{"run_d", "child.spawn", `{"prompt":"nobody"}`},
	{"run_d", "run.lifecycle", `{"state":"error","reason":"out of \ud800 memory"}`},
	{"run_e", "custom.hello", `{}`},
}

var planningTold = []said{
	{"", "run.lifecycle", `{"state":"planning","planning_gate":"required"}`},
	{"", "plan.proposal", `{"plan":{"id":"p1","steps":[]}}`},
	{"", "run.lifecycle", `{"state":"awaiting_approval"}`},
	{"", "command.approve_plan", `{"plan_id":"another"}`},
	{"", "command.reject_plan", `{"plan_id":"p1","reason":"dear"}`},
	{"", "command.approve_plan", `{"plan_id":"p1"}`}, // too late
	{"", "run.lifecycle", `{"state":"planning","planning_gate":"never"}`},
	{"", "plan.proposal", `{"plan":{"id":"p2","steps":[]},"planning_gate":"preview"}`},
	{"", "command.approve_plan", `{}`}, // decides, and does not wait
	{"", "plan.proposal", `{"plan":{"id":"p3","steps":[]}}`},
	{"", "run.lifecycle", `{"state":"awaiting_approval"}`},
	{"", "command.approve_plan", `{}`},
}
