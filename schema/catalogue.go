package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Family groups types that a reader treats alike.
type Family string

// The families, in the order of the catalogue.
const (
	FamilyReasoning  Family = "reasoning"
	FamilyText       Family = "text"
	FamilyTool       Family = "tool"
	FamilyStep       Family = "step"
	FamilyChild      Family = "child"
	FamilyPlan       Family = "plan"
	FamilyLifecycle  Family = "lifecycle"
	FamilyMessage    Family = "message"
	FamilyData       Family = "data"
	FamilyModel      Family = "model"
	FamilyTurn       Family = "turn"
	FamilyInput      Family = "input"
	FamilyState      Family = "state"
	FamilyCheckpoint Family = "checkpoint"
	FamilyTask       Family = "task"
	FamilyProgress   Family = "progress"
	FamilyCommand    Family = "command"
	FamilyLoss       Family = "loss"
	FamilySession    Family = "session"
	FamilyCustom     Family = "custom"
)

// Names of types that code here or elsewhere treats by name.
const (
	TypeReasoningDelta  = "reasoning.delta"
	TypeTextDelta       = "text.delta"
	TypeToolStart       = "tool.start"
	TypeToolEnd         = "tool.end"
	TypeToolRun         = "tool.run"
	TypeToolInputDelta  = "tool.input.delta"
	TypeToolOutputDelta = "tool.output.delta"
	TypeStepBoundary    = "step.boundary"
	TypeChildSpawn      = "child.spawn"
	TypePlanProposal    = "plan.proposal"
	TypeRunLifecycle    = "run.lifecycle"
	TypeMessageStart    = "message.start"
	TypeMessageEnd      = "message.end"
	TypeBlockStart      = "block.start"
	TypeBlockEnd        = "block.end"
	TypeDataDelta       = "data.delta"
	TypeModelStart      = "model.start"
	TypeModelEnd        = "model.end"
	TypeTurnStart       = "turn.start"
	TypeTurnEnd         = "turn.end"
	TypeInputRequested  = "input.requested"
	TypeInputAnswered   = "input.answered"
	TypeStateValues     = "state.values"
	TypeStateUpdate     = "state.update"
	TypeCheckpoint      = "checkpoint.created"
	TypeTaskStart       = "task.start"
	TypeTaskEnd         = "task.end"
	TypeProgress        = "progress"
	TypeCommandMessage  = "command.message"
	TypeCommandsTaken   = "commands.taken"
	TypeLoss            = "loss"

	TypeSessionCreated  = "session.created"
	TypeSessionUpdated  = "session.updated"
	TypeSessionArchived = "session.archived"
	TypeSessionDeleted  = "session.deleted"
)

// TypeInfo is one row of the catalogue.
type TypeInfo struct {
	Name   string
	Family Family
	// Delta events are pieces of something that a later event holds whole; neighbours of one type
	// and child may be merged, and a reader that lags may be spared them (native §4 R1, R4).
	Delta bool
	// Control events go at once and are never merged or dropped (native §4 R3). Every type is a
	// delta or a control event.
	Control bool
	// Terminal types can end a run; whether one does is in its payload (run.lifecycle state).
	Terminal bool
	// Late events may follow the end of a run, which stays ended: they are about the session, and nobody has to act
	// on them.
	Late bool
	// Command types are what people say to an agent, or decide about its session: whoever writes one needs the scope
	// command. All others are an agent's own, which a producer may write.
	Command bool
	// Native is one of the eight types of the published protocol (native §3).
	Native bool
	// Schema is the JSON Schema (draft 2020-12) of the payload. Unknown fields are always allowed.
	Schema string
}

// customPrefix opens the one namespace that needs no row in the catalogue.
const customPrefix = "custom."

// maxTypeName bounds a type's name, in bytes.
const maxTypeName = 100

// Lookup returns the row of a type. custom.* types are control events of FamilyCustom. Any other
// unknown name wraps ErrUnknownType (KAI-STREAM-PROTO-0002).
func Lookup(name string) (TypeInfo, error) {
	if i, ok := catalogueIndex[name]; ok {
		return catalogue[i], nil
	}
	if strings.HasPrefix(name, customPrefix) && len(name) > len(customPrefix) && validTypeName(name) == nil {
		return TypeInfo{Name: name, Family: FamilyCustom, Control: true, Schema: objectSchema}, nil
	}
	return TypeInfo{}, fmt.Errorf("%w %s", ErrUnknownType, quote(name))
}

// Types returns the catalogue in its order. The caller owns the slice.
func Types() []TypeInfo { return slices.Clone(catalogue) }

// IsCommand reports whether a type is one of those that need the scope command (TypeInfo.Command).
func IsCommand(typ string) bool {
	i, ok := catalogueIndex[typ]
	return ok && catalogue[i].Command
}

// IsDelta reports, without allocating, whether a record's type is a delta.
func (r Record) IsDelta() bool {
	i, ok := catalogueIndex[string(r.Type)]
	return ok && catalogue[i].Delta
}

// validTypeName accepts lower-case words joined by dots: what a reader may meet in a log that is
// newer than itself. It keeps line breaks and quotes out of frames.
func validTypeName(s string) error {
	if s == "" || len(s) > maxTypeName {
		return fmt.Errorf("%w %s", ErrUnknownType, quote(s))
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '.' && !tokenByte[c] {
			return fmt.Errorf("%w %s", ErrUnknownType, quote(s))
		}
	}
	return nil
}

var catalogueIndex = func() map[string]int {
	m := make(map[string]int, len(catalogue))
	for i, t := range catalogue {
		m[t.Name] = i
	}
	return m
}()

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
			"est_tools":{"type":"array","items":{"type":"string"}},"est_cost_usd":{"type":"number"}}}}}},
		"planning_gate":{}}}`},
	{Name: TypeRunLifecycle, Family: FamilyLifecycle, Control: true, Terminal: true, Native: true,
		Schema: `{"type":"object","required":["state"],"properties":{
		"state":{"enum":["planning","awaiting_approval","running","paused","redirecting","done","aborted","error"]},
		"reason":{"type":["string","null"]},"planning_gate":{}}}`},

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
		"metadata":{"type":["object","null"]},
		"tags":{"type":["array","null"],"maxItems":32,"items":{"type":"string","minLength":1,"maxLength":64}},"resources":{"type":["array","null"]},
		"vault_ids":{"type":["array","null"]},"memory_store_ids":{"type":["array","null"]},
		"incremental_streaming_enabled":{"type":"boolean"}}}`
	command = `{"type":"object","properties":{"reason":{"type":["string","null"]},
		"instruction":{"type":"string"},"plan_id":{"type":"string"}}}`
)

// IsBorder reports whether an event of a type ends the message of its lane that no event has announced, in snapshots
// and in the readings of all protocols: such a message does not go on behind it. The work of tools and models is not
// among them, since it goes on while a message does.
func IsBorder(typ string) bool {
	switch typ {
	case TypeStepBoundary, TypeTurnStart, TypeTurnEnd, TypeTaskStart, TypeTaskEnd, TypeRunLifecycle, TypeInputRequested:
		return true
	}
	return false
}
