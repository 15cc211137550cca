package schematest

import (
	"fmt"

	"agentstream/schema"
)

const smallUsage = `{"input_tokens":42,"output_tokens":17}`

func plain(s *script) {
	s.state(schema.StatePlanning, "")
	s.state(schema.StateRunning, "")
	s.message("msg_1", "end_turn", smallUsage,
		block{kind: "reasoning", text: "The question is short, so the answer can be."},
		block{kind: "text", text: "A log is a list that only grows. Readers remember where they were."})
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "text-only", "checkpoint_id", nil)
	s.state(schema.StateDone, "")
}

func tool(s *script) {
	s.state(schema.StateRunning, "")
	s.message("msg_1", "tool_use", smallUsage,
		block{kind: "text", text: "I will look at the file."},
		block{kind: "tool_use", call: "call_1", tool: "read_file", text: `{"path":"notes/queue.md","lines":[1,40]}`})
	for i := range 3 {
		s.add(schema.TypeToolOutputDelta, "call_id", "call_1", "text", fmt.Sprintf("line %d\n", i+1))
	}
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", "line 1\nline 2\nline 3\n", "duration_ms", 38)
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "tool-roundtrip", "checkpoint_id", "cp_1")
	s.message("msg_2", "end_turn", smallUsage, block{kind: "text", text: "The file has three lines."})
	s.add(schema.TypeStepBoundary, "step_index", 1, "step_kind", "done", "checkpoint_id", nil)
	s.state(schema.StateDone, "")
}

func parallelTools(s *script) {
	s.state(schema.StateRunning, "")
	calls := []block{
		{kind: "tool_use", call: "call_a", tool: "search", text: `{"q":"ring buffer"}`},
		{kind: "tool_use", call: "call_b", tool: "search", text: `{"q":"linked list"}`},
		{kind: "tool_use", call: "call_c", tool: "clock", text: `{}`},
	}
	s.messageStart("msg_1")
	for i, b := range calls {
		s.add(schema.TypeBlockStart, "index", i, "kind", b.kind, "message_id", "msg_1", "call_id", b.call, "tool", b.tool)
	}
	for piece := range 4 { // inputs stream side by side
		for i, b := range calls {
			if parts := pieces(b.text, 5); piece < len(parts) {
				s.add(schema.TypeToolInputDelta, "call_id", b.call, "text", parts[piece], "index", i)
			}
		}
	}
	content := make([]string, len(calls))
	for i, b := range calls {
		s.add(schema.TypeBlockEnd, "index", i, "message_id", "msg_1", "complete", true, "call_id", b.call, "input",
			raw(b.text))
		s.add(schema.TypeToolStart, "call_id", b.call, "tool", b.tool, "input", raw(b.text), "index", i)
		content[i] = b.content()
	}
	s.messageEnd("msg_1", "tool_use", smallUsage, content)
	s.add(schema.TypeToolOutputDelta, "call_id", "call_b", "text", "node → ")
	s.add(schema.TypeToolOutputDelta, "call_id", "call_a", "text", "[0][1]")
	s.add(schema.TypeToolOutputDelta, "call_id", "call_b", "text", "node")
	s.add(schema.TypeToolEnd, "call_id", "call_c", "ok", true, "output", raw(`{"now":"2026-01-02T03:04:05Z"}`),
		"duration_ms", 1)
	s.add(schema.TypeToolEnd, "call_id", "call_b", "ok", true, "output", "node → node", "duration_ms", 120)
	s.add(schema.TypeToolEnd, "call_id", "call_a", "ok", false, "error", "KAI-TOOL-TIME-0001", "duration_ms", 5000)
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "fan-in", "checkpoint_id", nil)
	s.message("msg_2", "end_turn", smallUsage, block{kind: "text", text: "One search worked, one did not."})
	s.state(schema.StateDone, "")
}

func failure(s *script) {
	s.state(schema.StateRunning, "")
	s.messageStart("msg_1")
	s.add(schema.TypeBlockStart, "index", 0, "kind", "text", "message_id", "msg_1")
	s.deltas(0, block{kind: "text", text: "I was about to say"})
	s.add(schema.TypeBlockEnd, "index", 0, "message_id", "msg_1", "complete", false)
	s.add(schema.TypeMessageEnd, "message_id", "msg_1", "stop_reason", "error",
		"error", raw(`{"type":"overloaded_error","message":"try again later"}`))
	s.state(schema.StateError, "provider: overloaded_error")
}

func cancelInText(s *script) {
	s.state(schema.StateRunning, "")
	s.messageStart("msg_1")
	s.add(schema.TypeBlockStart, "index", 0, "kind", "text", "message_id", "msg_1")
	s.deltas(0, block{kind: "text", text: "This sentence is not going to be"})
	s.by("user", func() { s.add("command.cancel", "reason", "changed my mind") })
	s.add(schema.TypeTextDelta, "text", " fin", "index", 0)
	s.add(schema.TypeBlockEnd, "index", 0, "message_id", "msg_1", "complete", false)
	s.messageEnd("msg_1", "cancelled", smallUsage,
		[]string{object("type", "text", "text", "This sentence is not going to be fin")})
	s.state(schema.StateAborted, "cancelled by user")
}

func cancelInTool(s *script) {
	s.state(schema.StateRunning, "")
	s.message("msg_1", "tool_use", smallUsage,
		block{kind: "tool_use", call: "call_1", tool: "build", text: `{"target":"all"}`})
	s.add(schema.TypeToolOutputDelta, "call_id", "call_1", "text", "compiling 1 of 900\n")
	s.by("user", func() { s.add("command.cancel", "reason", nil) })
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", false, "error", "cancelled", "duration_ms", 800)
	s.state(schema.StateAborted, "cancelled by user")
}

func cancelBetween(s *script) {
	s.state(schema.StateRunning, "")
	s.message("msg_1", "tool_use", smallUsage,
		block{kind: "tool_use", call: "call_1", tool: "clock", text: `{}`})
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", raw(`12`), "duration_ms", 2)
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "tool-roundtrip", "checkpoint_id", nil)
	s.by("user", func() { s.add("command.cancel") })
	s.state(schema.StateAborted, "cancelled by user")
}

// children has two children that emit by turns, one of which has a child of its own.
func children(s *script) {
	s.state(schema.StateRunning, "")
	s.message("msg_1", "end_turn", smallUsage, block{kind: "text", text: "I split the work."})
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "fan-out", "checkpoint_id", nil)
	s.add(schema.TypeChildSpawn, "child_id", ChildA, "prompt", "Count the writers.", "tools_allowed", []string{"search"})
	s.add(schema.TypeChildSpawn, "child_id", ChildB, "prompt", "Count the readers.", "tools_allowed", []string{})
	a, b, g := []string{Root, ChildA}, []string{Root, ChildB}, []string{Root, ChildA, Grandchild}
	s.as(ChildA, a, func() {
		s.state(schema.StateRunning, "")
		s.messageStart("msg_a")
		s.add(schema.TypeBlockStart, "index", 0, "kind", "text", "message_id", "msg_a")
	})
	s.as(ChildB, b, func() {
		s.state(schema.StateRunning, "")
		s.messageStart("msg_b")
		s.add(schema.TypeBlockStart, "index", 0, "kind", "text", "message_id", "msg_b")
	})
	textA, textB := pieces("There are two writers.", 6), pieces("There are many readers.", 6)
	for i := range max(len(textA), len(textB)) {
		if i < len(textA) {
			s.as(ChildA, a, func() { s.add(schema.TypeTextDelta, "text", textA[i], "index", 0) })
		}
		if i < len(textB) {
			s.as(ChildB, b, func() { s.add(schema.TypeTextDelta, "text", textB[i], "index", 0) })
		}
		if i == 1 {
			s.as(ChildA, a, func() { s.add(schema.TypeChildSpawn, "child_id", Grandchild, "prompt", "Check.") })
			s.as(Grandchild, g, func() {
				s.state(schema.StateRunning, "")
				s.message("msg_g", "end_turn", "", block{kind: "text", text: "Checked: two."})
				s.state(schema.StateDone, "")
			})
		}
	}
	end := func(child string, path []string, id, text string) {
		s.as(child, path, func() {
			s.add(schema.TypeBlockEnd, "index", 0, "message_id", id, "complete", true)
			s.messageEnd(id, "end_turn", smallUsage, []string{object("type", "text", "text", text)})
			s.state(schema.StateDone, "")
		})
	}
	end(ChildB, b, "msg_b", "There are many readers.")
	end(ChildA, a, "msg_a", "There are two writers.")
	s.add(schema.TypeStepBoundary, "step_index", 1, "step_kind", "fan-in", "checkpoint_id", nil)
	s.message("msg_2", "end_turn", smallUsage, block{kind: "text", text: "Two writers, many readers."})
	s.state(schema.StateDone, "")
}

func plan(s *script) {
	s.turn = "turn_1"
	s.state(schema.StatePlanning, "")
	s.add(schema.TypePlanProposal, "plan", raw(`{"id":"plan_1","steps":[`+
		`{"id":"s1","title":"Read the three designs","intent":"research","est_tools":["search"],"est_cost_usd":0.01},`+
		`{"id":"s2","title":"Write the comparison","intent":"write","est_tools":[],"est_cost_usd":0.02}],`+
		`"est_total_cost_usd":0.03}`))
	s.state(schema.StateAwaitingApproval, "plan plan_1")
	s.by("user", func() { s.add("command.approve_plan", "plan_id", "plan_1") })
	s.state(schema.StateRunning, "")
	s.add(schema.TypeInputRequested, "request_id", "req_1", "prompt", "Which audience?", "options",
		[]string{"engineers", "managers"})
	s.by("user", func() { s.add("command.answer", "request_id", "req_1", "answer", "engineers") })
	s.add(schema.TypeInputAnswered, "request_id", "req_1", "answer", "engineers")
	s.message("msg_1", "end_turn", smallUsage, block{kind: "text", text: "Here is the comparison."})
	s.state(schema.StateDone, "")
}

// native uses the eight published types alone, as producers without message framing do.
func native(s *script) {
	s.state(schema.StatePlanning, "")
	s.add(schema.TypePlanProposal, "plan", raw(`{"id":"plan_1","steps":[{"id":"s1","title":"Ask the clock"}]}`))
	s.state(schema.StateRunning, "")
	for _, p := range pieces("I should ask the clock.", 6) {
		s.add(schema.TypeReasoningDelta, "text", p)
	}
	for _, p := range pieces("Asking.", 3) {
		s.add(schema.TypeTextDelta, "text", p)
	}
	s.add(schema.TypeToolStart, "call_id", "call_1", "tool", "clock", "input", raw(`{"zone":"UTC"}`), "skill_id",
		"clock@1.0.0")
	s.add(schema.TypeTextDelta, "text", "tick ")
	s.add(schema.TypeTextDelta, "text", "tock")
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", "03:04", "duration_ms", 3)
	s.add(schema.TypeStepBoundary, "step_index", 0, "step_kind", "tool-roundtrip", "checkpoint_id", nil)
	s.add(schema.TypeChildSpawn, "child_id", ChildA, "prompt", "Say it nicely.", "tools_allowed", []string{})
	s.as(ChildA, nil, func() {
		s.state(schema.StateRunning, "")
		s.add(schema.TypeTextDelta, "text", "four past three")
		s.state(schema.StateDone, "")
	})
	s.add(schema.TypeTextDelta, "text", "It is four past three.")
	s.add(schema.TypeStepBoundary, "step_index", 1, "step_kind", "done", "checkpoint_id", nil)
	s.state(schema.StateDone, "")
}

// followUp ends and is taken up again by a message of the user.
func followUp(s *script) {
	s.state(schema.StateRunning, "")
	s.message("msg_1", "end_turn", smallUsage, block{kind: "text", text: "Done."})
	s.state(schema.StateDone, "")
	s.by("user", func() { s.add(schema.TypeCommandMessage, "content", "And what about readers?", "message_id", "msg_u") })
	s.state(schema.StateRunning, "")
	s.message("msg_2", "end_turn", smallUsage, block{kind: "text", text: "They remember where they were."})
	s.state(schema.StateDone, "")
}

// session is opened and archived through an API of sessions: a person asks, allows a tool, a child helps.
func session(s *script) {
	s.by("user", func() {
		s.add(schema.TypeSessionCreated, "agent", raw(`{"id":"agent_1","type":"agent","version":1}`), "environment_id",
			"env_1",
			"title", "Queues", "metadata", raw(`{"team":"log","draft":"1"}`), "resources", []string{}, "vault_ids", []string{},
			"memory_store_ids", []string{}, "incremental_streaming_enabled", true)
		s.add(schema.TypeCommandMessage, "content", raw(`[{"type":"text","text":"Empty the queue."}]`))
	})
	s.turn = "turn_1"
	s.add(schema.TypeTurnStart, "turn_id", "turn_1")
	s.state(schema.StateRunning, "")
	s.message("msg_1", "tool_use", smallUsage,
		block{kind: "text", text: "That needs a tool."},
		block{kind: "tool_use", call: "call_1", tool: "empty_queue", text: `{"queue":"mail"}`})
	s.add(schema.TypeInputRequested, "request_id", "req_1", "call_id", "call_1", "prompt", "Empty the queue mail?")
	s.by("user", func() {
		s.add("command.answer", "request_id", "req_1", "answer", raw(`{"type":"user.tool_confirmation","result":"allow"}`))
	})
	s.add(schema.TypeInputAnswered, "request_id", "req_1", "answer", raw(`{"result":"allow"}`))
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", "12 letters", "duration_ms", 40)
	s.add(schema.TypeChildSpawn, "child_id", ChildA, "prompt", "Count what is left.", "tools_allowed", []string{})
	s.as(ChildA, []string{Root, ChildA}, func() {
		s.state(schema.StateRunning, "")
		s.message("msg_a", "end_turn", "", block{kind: "text", text: "Nothing is left."})
		s.state(schema.StateDone, "")
	})
	s.message("msg_2", "end_turn", smallUsage, block{kind: "text", text: "The queue is empty."})
	s.add(schema.TypeTurnEnd, "turn_id", "turn_1", "stop_reason", "end_turn")
	s.state(schema.StateDone, "")
	s.turn = ""
	s.add(schema.TypeRunLifecycle, "state", schema.StatePlanning, "reason", nil, "session", true)
	s.by("user", func() {
		s.add(schema.TypeSessionUpdated, "title", "The empty queue", "metadata", raw(`{"draft":null,"stage":"2"}`))
		s.as(ChildA, []string{Root, ChildA}, func() { s.raw(schema.TypeSessionArchived, `{}`) })
		s.raw(schema.TypeSessionArchived, `{}`)
	})
	s.add(schema.TypeRunLifecycle, "state", schema.StateDone, "reason", nil, "session", true)
}

// late is a run that is over, to whose session events are appended afterwards.
func late(s *script) {
	s.add(schema.TypeSessionCreated, "agent", "ring")
	s.by("user", func() { s.add(schema.TypeCommandMessage, "content", "Read the log.") })
	s.state(schema.StateRunning, "")
	s.add(schema.TypeChildSpawn, "child_id", ChildA, "prompt", "Read page 1.", "tools_allowed", []string{})
	s.as(ChildA, []string{Root, ChildA}, func() {
		s.state(schema.StateRunning, "")
		s.message("msg_a", "end_turn", "", block{kind: "text", text: "Page 1 is empty."})
	})
	s.message("msg_1", "end_turn", smallUsage, block{kind: "text", text: "The log is empty."})
	s.state(schema.StateDone, "all is said")
	s.by("user", func() {
		s.add(schema.TypeSessionUpdated, "title", "An empty log")
		s.add(schema.TypeCommandMessage, "content", "Be brief.", "role", "system")
		s.as(ChildA, []string{Root, ChildA}, func() { s.raw(schema.TypeSessionArchived, `{}`) })
		s.raw(schema.TypeSessionArchived, `{}`)
	})
}

// dispatch has tools that say when they begin to work: one waits for a person, one is cancelled at work, one before.
func dispatch(s *script) {
	s.turn = "turn_1"
	s.add(schema.TypeTurnStart, "turn_id", "turn_1")
	s.state(schema.StateRunning, "")
	s.message("msg_1", "tool_use", smallUsage,
		block{kind: "tool_use", call: "call_1", tool: "search", text: `{"q":"log"}`},
		block{kind: "tool_use", call: "call_2", tool: "delete", text: `{"id":7}`},
		block{kind: "tool_use", call: "call_3", tool: "build", text: `{}`},
		block{kind: "tool_use", call: "call_4", tool: "clock", text: `{}`})
	s.add(schema.TypeToolRun, "call_id", "call_1")
	s.add(schema.TypeInputRequested, "request_id", "req_1", "call_id", "call_2", "prompt", "Delete 7?")
	s.add(schema.TypeToolOutputDelta, "call_id", "call_1", "text", "1 hit\n")
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", "1 hit\n", "duration_ms", 12)
	s.by("user", func() { s.add("command.answer", "request_id", "req_1", "answer", "allow") })
	s.add(schema.TypeInputAnswered, "request_id", "req_1", "answer", "allow")
	s.add(schema.TypeToolRun, "call_id", "call_2")
	s.add(schema.TypeToolEnd, "call_id", "call_2", "ok", true, "output", "deleted", "duration_ms", 3000)
	s.add(schema.TypeToolRun, "call_id", "call_3")
	s.by("user", func() { s.add("command.cancel", "reason", "enough") })
	for _, call := range []string{"call_3", "call_4"} {
		s.add(schema.TypeToolEnd, "call_id", call, "ok", false, "error", schema.CodeToolCancelled, "duration_ms", 800)
	}
	s.add(schema.TypeTurnEnd, "turn_id", "turn_1", "stop_reason", "cancelled", "reason", "enough")
	s.turn = ""
	s.state(schema.StateDone, "")
}

// long has LongEvents events: turn after turn of thought, text and tools.
func long(s *script) {
	s.state(schema.StatePlanning, "")
	s.state(schema.StateRunning, "")
	for n := 0; ; n++ {
		var t script
		id := fmt.Sprintf("msg_%d", n+1)
		call := fmt.Sprintf("call_%d", n+1)
		t.message(id, "tool_use", smallUsage,
			block{kind: "reasoning", text: fmt.Sprintf("Turn %d begins with a thought about what the last turn found.",
				n), piece: 4},
			block{kind: "text", text: fmt.Sprintf("Turn %d reads the next page of the log and writes down what is there.", n), piece: 3},
			block{kind: "tool_use", call: call, tool: "read_page", text: fmt.Sprintf(`{"page":%d,"size":100}`, n)})
		for i := range 5 {
			t.add(schema.TypeToolOutputDelta, "call_id", call, "text", fmt.Sprintf("entry %d.%d\n", n, i))
		}
		t.add(schema.TypeToolEnd, "call_id", call, "ok", true, "output", fmt.Sprintf("5 entries of page %d", n),
			"duration_ms", 10+n)
		t.add(schema.TypeStepBoundary, "step_index", n, "step_kind", "tool-roundtrip", "checkpoint_id",
			fmt.Sprintf("cp_%d", n))
		if len(s.events)+len(t.events)+1 > LongEvents {
			break
		}
		s.events = append(s.events, t.events...)
	}
	for i := 0; len(s.events) < LongEvents-1; i++ {
		s.add(schema.TypeProgress, "message", "closing", "done", i)
	}
	s.state(schema.StateDone, "")
}

// LongEvents is the number of events in the scenario "long".
const LongEvents = 2000
