package langgraphtest

// AllChannels is a log whose thread has events of all nine channels: one event per line, its type and payload, "child:"
// before those of a child. Two requests interrupt its first run; the third is cancelled.
const AllChannels = `
	session.created {"agent":"graph"}
	command.message {"content":"Go on.","message_id":"h1"}
	turn.start {"turn_id":"t1"}
	run.lifecycle {"state":"running"}
	checkpoint.created {"checkpoint_id":"c0","step":-1,"source":"input"}
	state.values {"values":{"messages":[],"n":1}}
	task.start {"task_id":"k1","name":"agent","input":{"n":1}}
	message.start {"message_id":"m1","role":"assistant","model":"x"}
	block.start {"index":0,"kind":"reasoning"}
	reasoning.delta {"text":"Hm. ","index":0}
	block.start {"index":1,"kind":"text"}
	text.delta {"text":"I ask ","index":1}
	text.delta {"text":"two.","index":1}
	block.start {"index":2,"kind":"tool_use","call_id":"k","tool":"task"}
	tool.input.delta {"call_id":"k","text":"{\"a\":","index":2}
	tool.input.delta {"call_id":"k","text":"1}","index":2}
	block.end {"index":2,"call_id":"k"}
	message.end {"message_id":"m1","stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}
	tool.start {"call_id":"k","tool":"task","input":{"a":1}}
	child.spawn {"child_id":"kid","call_id":"k","name":"helper"}
	kid:run.lifecycle {"state":"running"}
	kid:text.delta {"text":"I help."}
	kid:custom.note {"x":1}
	kid:run.lifecycle {"state":"done"}
	tool.output.delta {"call_id":"k","text":"half"}
	tool.end {"call_id":"k","ok":true,"output":"whole"}
	custom.progress {"done":1}
	data.delta {"media_type":"image/png","data":"AAAABBBB"}
	data.delta {"media_type":"image/png","data":"CCCC"}
	state.update {"node":"agent","values":{"n":2}}
	task.end {"task_id":"k1","result":{"n":2}}
	input.requested {"request_id":"i1","payload":{"q":"ok?"}}
	input.requested {"request_id":"i2","prompt":"Sure?"}
	turn.end {"turn_id":"t1","stop_reason":"end_turn"}
	commands.taken {"through":2}
	command.answer {"request_id":"i1","answer":"yes"}
	command.answer {"request_id":"i2","answer":"no"}
	input.answered {"request_id":"i1","answer":"yes"}
	input.answered {"request_id":"i2","answer":"no"}
	turn.start {"turn_id":"t2"}
	text.delta {"text":"Good."}
	turn.end {"turn_id":"t2","stop_reason":"end_turn"}
	commands.taken {"through":37}
	command.message {"content":"More.","message_id":"h2"}
	turn.start {"turn_id":"t3"}
	text.delta {"text":"More."}
	command.cancel {"reason":"enough"}
	turn.end {"turn_id":"t3","stop_reason":"cancelled","reason":"enough"}
	commands.taken {"through":44}
	run.lifecycle {"state":"done"}
`

// Everything asks for all channels.
const Everything = `{"channels":["lifecycle","messages","tools","input","values","updates","checkpoints","tasks","custom"]}`

// Filters are eight requests for different events, the first for all.
var Filters = []string{
	Everything,
	`{"channels":["lifecycle"]}`,
	`{"channels":["messages","tools"],"namespaces":[[]],"depth":0}`,
	`{"channels":["messages","lifecycle"],"namespaces":[["tools"]]}`,
	`{"channels":["values","updates","checkpoints","tasks"]}`,
	`{"channels":["custom:progress","input"]}`,
	`{"channels":["custom"],"namespaces":[[],["tools:k"]],"depth":1}`,
	`{"channels":["messages"],"namespaces":[["tools:k"]],"depth":3}`,
}
