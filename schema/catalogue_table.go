package schema

const objectSchema = `{"type":"object"}`

// catalogue is the one table of event types. The first eight are the published protocol (native
// §3); the framing types state what readers must otherwise guess: where messages and blocks begin
// and end, what a tool's input looked like while it streamed, who asked whom for what.
var catalogue = []TypeInfo{
	{Name: TypeReasoningDelta, Family: FamilyReasoning, Delta: true, Native: true, Schema: textDelta},
	{Name: TypeTextDelta, Family: FamilyText, Delta: true, Native: true, Schema: textDelta},
	{Name: TypeToolStart, Family: FamilyTool, Control: true, Native: true, Schema: `{"type":"object",
		"required":["call_id","tool"],"properties":{
		"call_id":{"type":"string","minLength":1},"tool":{"type":"string","minLength":1},"input":{},
		"skill_id":{"type":"string"},"index":{"type":"integer","minimum":0}}}`},
	{Name: TypeToolEnd, Family: FamilyTool, Control: true, Native: true, Schema: `{"type":"object",
		"required":["call_id","ok"],"properties":{
		"call_id":{"type":"string","minLength":1},"ok":{"type":"boolean"},"output":{},
		"error":{"description":"A code, KAI-TOOL-…; in logs of before, what error_detail is."},"error_detail":{},
		"duration_ms":{"type":"number","minimum":0},"blob_ref":{"type":"string"},
		"output_bytes":{"type":"integer","minimum":0},"output_preview":{"type":"string"}}}`},
	{Name: TypeStepBoundary, Family: FamilyStep, Control: true, Native: true, Schema: `{"type":"object",
		"required":["step_index","step_kind"],"properties":{
		"step_index":{"type":"integer","minimum":0},
		"step_kind":{"enum":["plan","tool-roundtrip","text-only","fan-out","fan-in","done"]},
		"checkpoint_id":{"type":["string","null"]}}}`},
	{Name: TypeChildSpawn, Family: FamilyChild, Control: true, Native: true, Schema: `{"type":"object",
		"required":["child_id"],"properties":{
		"child_id":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,128}$"},"prompt":{"type":"string"},
		"call_id":{"type":"string"},"tools_allowed":{"type":"array","items":{"type":"string"}}}}`},
	{Name: TypePlanProposal, Family: FamilyPlan, Control: true, Native: true, Schema: `{"type":"object",
		"required":["plan"],"properties":{"plan":{"type":"object","required":["id","steps"],"properties":{
		"id":{"type":"string"},"run_id":{"type":"string"},"est_total_cost_usd":{"type":"number"},
		"steps":{"type":"array","items":{"type":"object","required":["id","title"],"properties":{
			"id":{"type":"string"},"title":{"type":"string"},
			"intent":{"enum":["research","write","edit","execute","verify","report","other"]},
			"est_tools":{"type":"array","items":{"type":"string"}},"est_cost_usd":{"type":"number"}}}}}}}}`},
	{Name: TypeRunLifecycle, Family: FamilyLifecycle, Control: true, Terminal: true, Native: true,
		Schema: `{"type":"object","required":["state"],"properties":{
		"state":{"enum":["planning","awaiting_approval","running","paused","redirecting","done","aborted","error"]},
		"reason":{"type":["string","null"]}}}`},

	{Name: TypeMessageStart, Family: FamilyMessage, Control: true, Schema: `{"type":"object",
		"required":["message_id","role"],"properties":{"message_id":{"type":"string","minLength":1},
		"role":{"enum":["user","assistant","system","tool"]},"model":{"type":"string"},
		"provider":{"type":"string"},"usage":{"type":"object"}}}`},
	{Name: TypeMessageEnd, Family: FamilyMessage, Control: true, Schema: `{"type":"object",
		"required":["message_id"],"properties":{"message_id":{"type":"string","minLength":1},
		"content":{"type":"array","items":{"type":"object"}},"stop_reason":{"type":["string","null"]},
		"stop_sequence":{"type":["string","null"]},"usage":{"type":"object"},"error":{"type":"object"},
		"incomplete":{"type":"boolean"}}}`},
	{Name: TypeBlockStart, Family: FamilyMessage, Control: true, Schema: `{"type":"object",
		"required":["index","kind"],"properties":{"index":{"type":"integer","minimum":0},
		"kind":{"type":"string","minLength":1},"message_id":{"type":"string"},
		"call_id":{"type":"string"},"tool":{"type":"string"},"free_text":{"type":"boolean"},"block":{"type":"object"}}}`},
	{Name: TypeBlockEnd, Family: FamilyMessage, Control: true, Schema: `{"type":"object",
		"required":["index"],"properties":{"index":{"type":"integer","minimum":0},
		"message_id":{"type":"string"},"call_id":{"type":"string"},"complete":{"type":"boolean"},"problem":{"type":"string"},
		"input":{},"signature":{"type":"string"},"citations":{"type":"array"}}}`},
	// A call of a tool is begun with tool.start, as a rule within the message that asks for it. tool.run says when the
	// tool begins to work: between the two a call waits, for a person or for its turn.
	{Name: TypeToolRun, Family: FamilyTool, Control: true, Schema: `{"type":"object",
		"required":["call_id"],"properties":{"call_id":{"type":"string","minLength":1}}}`},
	{Name: TypeToolInputDelta, Family: FamilyTool, Delta: true, Schema: callDelta},
	{Name: TypeToolOutputDelta, Family: FamilyTool, Delta: true, Schema: callDelta},
	{Name: TypeDataDelta, Family: FamilyData, Delta: true, Schema: `{"type":"object",
		"required":["media_type","data"],"properties":{"media_type":{"type":"string"},
		"data":{"type":"string"},"index":{"type":"integer","minimum":0},"name":{"type":"string"}}}`},
	{Name: TypeModelStart, Family: FamilyModel, Control: true, Schema: `{"type":"object",
		"required":["call_id"],"properties":{"call_id":{"type":"string"},"model":{"type":"string"},
		"provider":{"type":"string"}}}`},
	{Name: TypeModelEnd, Family: FamilyModel, Control: true, Schema: `{"type":"object",
		"required":["call_id"],"properties":{"call_id":{"type":"string"},"ok":{"type":"boolean"},
		"usage":{"type":"object"},"duration_ms":{"type":"number","minimum":0},"error":{"type":"object"}}}`},
	{Name: TypeTurnStart, Family: FamilyTurn, Control: true, Schema: turn},
	{Name: TypeTurnEnd, Family: FamilyTurn, Control: true, Schema: turn},
	{Name: TypeInputRequested, Family: FamilyInput, Control: true, Schema: `{"type":"object",
		"required":["request_id"],"properties":{"request_id":{"type":"string","minLength":1},
		"prompt":{"type":"string"},"schema":{"type":"object"},"options":{"type":"array"}}}`},
	{Name: TypeInputAnswered, Family: FamilyInput, Control: true, Schema: `{"type":"object",
		"required":["request_id"],"properties":{"request_id":{"type":"string","minLength":1},"answer":{}}}`},
	{Name: TypeStateValues, Family: FamilyState, Control: true, Schema: `{"type":"object",
		"required":["values"],"properties":{"values":{}}}`},
	{Name: TypeStateUpdate, Family: FamilyState, Control: true, Schema: `{"type":"object",
		"required":["values"],"properties":{"node":{"type":"string"},"values":{}}}`},
	{Name: TypeCheckpoint, Family: FamilyCheckpoint, Control: true, Schema: `{"type":"object",
		"required":["checkpoint_id"],"properties":{"checkpoint_id":{"type":"string","minLength":1}}}`},
	{Name: TypeTaskStart, Family: FamilyTask, Control: true, Schema: task},
	{Name: TypeTaskEnd, Family: FamilyTask, Control: true, Schema: task},
	{Name: TypeProgress, Family: FamilyProgress, Control: true, Schema: `{"type":"object","properties":{
		"message":{"type":"string"},"done":{"type":"number"},"total":{"type":"number"}}}`},
	{Name: TypeCommandMessage, Family: FamilyCommand, Control: true, Command: true, Schema: `{"type":"object",
		"required":["content"],"properties":{"content":{"type":["string","array"]},
		"message_id":{"type":"string"}}}`},
	{Name: "command.cancel", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.pause", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.resume", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.redirect", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.approve_plan", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.reject_plan", Family: FamilyCommand, Control: true, Command: true, Schema: command},
	{Name: "command.answer", Family: FamilyCommand, Control: true, Command: true, Schema: `{"type":"object",
		"required":["request_id"],"properties":{"request_id":{"type":"string","minLength":1},"answer":{}}}`},
	// Written by the agent's library: commands of the lane up to this number have been dealt with, so
	// that an agent which begins again is not handed them a second time.
	{Name: TypeCommandsTaken, Family: FamilyCommand, Control: true, Schema: `{"type":"object",
		"required":["through"],"properties":{"through":{"type":"integer","minimum":1}}}`},
	// Where a producer had to let something go: loss is never silent.
	{Name: TypeLoss, Family: FamilyLoss, Control: true, Schema: `{"type":"object",
		"required":["reason"],"properties":{"reason":{"type":"string","minLength":1},
		"events":{"type":"integer","minimum":0},"bytes":{"type":"integer","minimum":0}}}`},

	// What a session is beside its conversation. session.updated holds what has changed;
	// session.archived with a child is that of the child's thread.
	{Name: TypeSessionCreated, Family: FamilySession, Control: true, Schema: session},
	{Name: TypeSessionUpdated, Family: FamilySession, Control: true, Late: true, Schema: session},
	{Name: TypeSessionArchived, Family: FamilySession, Control: true, Late: true, Command: true, Schema: objectSchema},
	{Name: TypeSessionDeleted, Family: FamilySession, Control: true, Late: true, Command: true, Schema: objectSchema},
}

const (
	textDelta = `{"type":"object","required":["text"],"properties":{
		"text":{"type":"string"},"index":{"type":"integer","minimum":0}}}`
	callDelta = `{"type":"object","required":["call_id","text"],"properties":{
		"call_id":{"type":"string","minLength":1},"text":{"type":"string"},
		"index":{"type":"integer","minimum":0}}}`
	turn = `{"type":"object","required":["turn_id"],"properties":{"turn_id":{"type":"string","minLength":1},
		"stop_reason":{"type":["string","null"]},"reason":{"type":"string"}}}`
	task = `{"type":"object","required":["task_id"],"properties":{"task_id":{"type":"string","minLength":1},
		"name":{"type":"string"},"ok":{"type":"boolean"}}}`
	session = `{"type":"object","properties":{"agent":{"type":["object","string","null"]},
		"environment_id":{"type":["string","null"]},"title":{"type":["string","null"]},
		"metadata":{"type":["object","null"]},"resources":{"type":["array","null"]},
		"vault_ids":{"type":["array","null"]},"memory_store_ids":{"type":["array","null"]},
		"incremental_streaming_enabled":{"type":"boolean"}}}`
	command = `{"type":"object","properties":{"reason":{"type":["string","null"]},
		"instruction":{"type":"string"},"plan_id":{"type":"string"}}}`
)
