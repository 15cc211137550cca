package metis

import (
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

const (
	asking  = "command.message {\"content\":[{\"type\":\"text\",\"text\":\"go\"}]}\nturn.start {\"turn_id\":\"t\"}\n"
	model   = "model.start {\"call_id\":\"m1\",\"model\":\"x\",\"provider\":\"y\"}\nmessage.start {\"message_id\":\"a\",\"role\":\"assistant\"}\n"
	reading = model + `block.start {"index":0,"kind":"tool_use","call_id":"c1","tool":"read"}
		tool.input.delta {"call_id":"c1","text":"{\"p\":1}","index":0}
		block.end {"index":0,"call_id":"c1","complete":true,"input":{"p":1}}
		tool.start {"call_id":"c1","tool":"read","input":{"p":1},"index":0}
	`
	complete  = "message.end {\"message_id\":\"a\",\"stop_reason\":\"tool_use\"}\nmodel.end {\"call_id\":\"m1\",\"ok\":true}\n"
	begun     = "turn.started\nroute.decided\nllm.call_started\nmessage.start\n"
	used      = "tool.use_start\ntool.use_input_delta\ntool.use_end\n"
	finished  = "message.complete(tool_use)\nllm.call_completed(tool_use)\n"
	cancelEnd = `tool.end {"call_id":"c1","ok":false,"error":"KAI-TOOL-CANCEL-0001"}
		turn.end {"turn_id":"t","stop_reason":"cancelled","reason":"stop"}
	`
)

// TestSequences: what each part of a turn becomes, in particular the ends of digest 7.
func TestSequences(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"cancelled in the model's answer (6.2.1)": {asking + model + `block.start {"index":0,"kind":"text"}
			text.delta {"text":"I wi","index":0}
			block.start {"index":1,"kind":"tool_use","call_id":"c1","tool":"read"}
			tool.input.delta {"call_id":"c1","text":"{\"p","index":1}
			command.cancel {"reason":"user_cancel"}
			block.end {"index":1,"complete":false}
			message.end {"message_id":"a","stop_reason":"cancelled"}
			model.end {"call_id":"m1","ok":false,"error":{"type":"cancelled"}}
			turn.end {"turn_id":"t","stop_reason":"cancelled"}`,
			begun + "text.delta\ntool.use_start\ntool.use_input_delta\ntool.use_end\nmessage.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled with a call that began (6.2.1)": {asking + reading + `command.cancel {}
			message.end {"message_id":"a","stop_reason":"cancelled"}
			model.end {"call_id":"m1","ok":false,"error":{"type":"cancelled"}}
			` + cancelEnd,
			begun + used + "message.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled by the turn's end alone (6.2.1)": {asking + model + `block.start {"index":0,"kind":"text"}
			text.delta {"text":"I wi","index":0}
			block.start {"index":1,"kind":"tool_use","call_id":"c1","tool":"read"}
			tool.input.delta {"call_id":"c1","text":"{\"p","index":1}
			turn.end {"turn_id":"t","stop_reason":"cancelled"}
			message.end {"message_id":"a","stop_reason":"cancelled"}
			model.end {"call_id":"m1","ok":false}
			command.message {"content":"go on"}
			turn.start {"turn_id":"t2"}
			` + model + `message.end {"message_id":"a"}`,
			begun + "text.delta\ntool.use_start\ntool.use_input_delta\ntool.use_end\nmessage.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n" +
				begun + "message.complete(end_turn)\n"},
		"cancelled by the turn's end alone, with a call that began": {asking + reading + `tool.run {"call_id":"c1"}
			` + cancelEnd,
			begun + used + "message.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled by the turn's end alone, without a message of its own": {asking + `text.delta {"text":"a"}
			turn.end {"turn_id":"t","stop_reason":"cancelled"}`,
			begun + "text.delta\nmessage.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"failed in the model's answer": {asking + model + `text.delta {"text":"a"}
			turn.end {"turn_id":"t","stop_reason":"error"}`,
			begun + "text.delta\nmessage.complete(error)\nllm.call_failed(other)\nturn.completed(error)\n"},
		"cancelled while a tool works (6.2.2)": {asking + reading + complete + `tool.run {"call_id":"c1"}
			command.cancel {}
			` + cancelEnd,
			begun + used + finished + "tool.called\ntool.failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled at the seam (6.2.3)": {asking + reading + complete + "command.cancel {}\n" + cancelEnd,
			begun + used + finished + "tool.failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled in a follow-up call (6.2.4)": {asking + reading + complete + `tool.run {"call_id":"c1"}
			tool.end {"call_id":"c1","ok":true}
			model.start {"call_id":"m2"}
			message.start {"message_id":"b","role":"assistant"}
			text.delta {"text":"So"}
			command.cancel {}
			message.end {"message_id":"b","stop_reason":"cancelled"}
			model.end {"call_id":"m2","ok":false,"error":{"type":"cancelled"}}
			turn.end {"turn_id":"t","stop_reason":"cancelled"}`,
			begun + used + finished + "tool.called\ntool.completed\nllm.call_started\nmessage.start\ntext.delta\n" +
				"message.complete(cancelled)\nllm.call_failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled with a worker (6.4)": {asking + reading + complete + `child.spawn {"child_id":"w","call_id":"c1","prompt":"p"}
			w:turn.start {"turn_id":"u"}
			w:message.start {"message_id":"z","role":"assistant"}
			w:text.delta {"text":"a"}
			command.cancel {}
			w:message.end {"message_id":"z","stop_reason":"cancelled"}
			w:turn.end {"turn_id":"u","stop_reason":"cancelled"}
			w:run.lifecycle {"state":"aborted"}
			` + cancelEnd,
			begun + used + finished + "tool.called\ndelegate.started\nsession.created@\nturn.started@\nroute.decided@\nllm.call_started@\nmessage.start@\ntext.delta@\n" +
				"message.complete@(cancelled)\nllm.call_failed@(cancelled)\nturn.cancelled@(user_cancel)\nsession.ended@\ndelegate.failed(cancelled_by_user)\n" +
				"tool.failed(cancelled)\nturn.cancelled(user_cancel)\n"},
		"cancelled before an agent took it": {`command.message {"content":"go"}
			command.cancel {"reason":"too late"}
			commands.taken {"through":3}`, "turn.started\nturn.cancelled(user_cancel)\n"},
		"a run that is aborted ends its workers first": {asking + reading + complete + `child.spawn {"child_id":"w","call_id":"c1"}
			w:message.start {"message_id":"z","role":"assistant"}
			run.lifecycle {"state":"aborted"}`,
			begun + used + finished + "tool.called\ndelegate.started\nsession.created@\nturn.started@\nroute.decided@\nllm.call_started@\nmessage.start@\n" +
				"message.complete@(cancelled)\nllm.call_failed@(cancelled)\nturn.cancelled@(user_cancel)\nsession.ended@\ndelegate.failed(cancelled_by_user)\n" +
				"tool.failed(cancelled)\nturn.cancelled(user_cancel)\nsession.ended\n"},
		"dispatched by output": {asking + reading + complete + `tool.output.delta {"call_id":"c1","text":"x"}
			tool.output.delta {"call_id":"c1","text":"y"}
			tool.end {"call_id":"c1","ok":true}
			turn.end {"turn_id":"t"}`, begun + used + finished + "tool.called\ntool.completed\nturn.completed(end_turn)\n"},
		"dispatched by an end": {asking + reading + complete +
			`tool.end {"call_id":"c1","ok":false,"error":"KAI-TOOL-TIME-0001"}`,
			begun + used + finished + "tool.called\ntool.failed(timeout)\n"},
		"dispatched before the request ends": {asking + reading + `tool.run {"call_id":"c1"}
			tool.end {"call_id":"c1","ok":true}
			` + complete, begun + used + finished + "tool.called\ntool.completed\n"},
		"begun outside of a request": {asking + `tool.start {"call_id":"c1","tool":"read","input":{}}
			tool.end {"call_id":"c1","ok":true}`, "turn.started\ntool.called\ntool.completed\n"},
		"denied": {asking + reading + complete + `input.requested {"request_id":"r","call_id":"c1","prompt":"May I?"}
			command.answer {"request_id":"r","answer":{"result":"deny"}}
			input.answered {"request_id":"r","answer":{"result":"deny"}}
			tool.end {"call_id":"c1","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"message":"denied: no"}}`,
			begun + used + finished + "tool.confirmation_requested\ntool.confirmation_resolved\ntool.failed(user_denied)\n"},
		"nobody answers": {asking + reading + complete + `input.requested {"request_id":"r","call_id":"c1"}
			input.answered {"request_id":"r","answer":null}
			tool.end {"call_id":"c1","ok":false,"error":"KAI-TOOL-FAIL-0001"}`,
			begun + used + finished + "tool.confirmation_requested\ntool.confirmation_resolved\ntool.failed(confirmation_timeout)\n"},
		"failed": {asking + model + `text.delta {"text":"a"}
			message.end {"message_id":"a","stop_reason":"error","error":{"type":"overloaded_error","message":"later"}}
			model.end {"call_id":"m1","ok":false,"error":{"type":"overloaded_error","message":"later"}}
			turn.end {"turn_id":"t","stop_reason":"error"}`,
			begun + "text.delta\nmessage.complete(error)\nllm.call_failed(server_error)\nturn.completed(error)\n"},
		"a message waits for the turn in flight": {asking + `command.message {"content":"more"}
			turn.end {"turn_id":"t"}
			turn.start {"turn_id":"t2"}
			turn.end {"turn_id":"t2"}`,
			"turn.started\nturn.completed(end_turn)\nturn.started\nturn.completed(end_turn)\n"},
		"a message that is answered in the turn in flight begins none": {asking + `command.message {"content":"more"}
			commands.taken {"through":4}
			turn.end {"turn_id":"t"}`, "turn.started\nturn.completed(end_turn)\n"},
		"ended and begun anew": {asking + `turn.end {"turn_id":"t"}
			run.lifecycle {"state":"done"}
			command.message {"content":"more"}
			turn.start {"turn_id":"t2"}`,
			"turn.started\nturn.completed(end_turn)\nsession.ended\nsession.resumed\nturn.started\n"},
		"without turns": {`command.message {"content":"go"}
			text.delta {"text":"a"}
			step.boundary {"step_index":0,"step_kind":"text-only"}
			command.message {"content":"more"}
			run.lifecycle {"state":"done"}`,
			begun + "text.delta\nmessage.complete(end_turn)\nllm.call_completed(end_turn)\nturn.completed(end_turn)\nturn.started\nturn.completed(end_turn)\nsession.ended\n"},
		"published": {asking + `custom.metis.route.decided {"chosen_model":"z"}
			custom.metis.skill.loaded {"skill_id":"s"}
			custom.metis.turn.completed {}
			custom.metis.made.up {}
			custom.own {}
			loss {"reason":"full","events":3}
			` + model, "turn.started\nroute.decided\nskill.loaded\ncustom.metis.turn.completed\nmade.up\ncustom.own\nbus.gap_detected\nllm.call_started\nmessage.start\n"},
	} {
		t.Run(name, func(t *testing.T) {
			list := records(t, log("session.created {}\n"+c.log))
			got := types(events(t, project(t, projector(Filter{Workers: true}, ""), list)))
			if want := "session.created\n" + c.want; strings.ReplaceAll(got, "×", "") != want {
				t.Errorf("got\n%s want\n%s", got, want)
			}
			c := newChecker()
			for _, e := range events(t, project(t, projector(Filter{Workers: true}, ""), list)) {
				if wrong := c.see(e); wrong != "" {
					t.Errorf("%s: %s", e.Type, wrong)
				}
			}
		})
	}
}

// TestTurnID: all events of a turn have the id that its message's place makes, from the first one on.
func TestTurnID(t *testing.T) {
	list := records(t, log("session.created {}\n"+asking+reading+complete+`tool.end {"call_id":"c1","ok":true}`))
	want := TurnID(schematest.Root, 2)
	for _, e := range events(t, project(t, projector(Filter{}, ""), list))[1:] {
		if e.Turn == nil || *e.Turn != want {
			t.Errorf("%s has turn %v", e.Type, e.Turn)
		}
	}
	p := projector(Filter{}, "")
	project(t, p, list)
	if got := p.Turn(); got != want {
		t.Errorf("in flight: %s", got)
	}
	if seq, err := ParseTurnID(schematest.Root, want); seq != 2 || err != nil {
		t.Errorf("parsed as %d: %v", seq, err)
	}
}

// TestReasons: of a cancellation's reason the protocol has three words; others are user_cancel and stay as they were
// said.
func TestReasons(t *testing.T) {
	for _, c := range []struct{ cancel, end, reason, text, actor string }{
		{`{"reason":"timeout"}`, ``, "timeout", "", "user"},
		{`{"reason":"changed my mind"}`, ``, "user_cancel", "changed my mind", "user"},
		{`{}`, `,"reason":"cancelled by the user"`, "user_cancel", "", "user"},
		{``, `,"reason":"client_disconnect"`, "client_disconnect", "", "system"},
		{``, `,"reason":"its process ends"`, "user_cancel", "its process ends", "system"},
	} {
		text := asking
		if c.cancel != "" {
			text += "command.cancel " + c.cancel + "\ncommand.cancel {\"reason\":\"again\"}\n"
		}
		text += `turn.end {"turn_id":"t","stop_reason":"cancelled"` + c.end + `}`
		all := events(t, project(t, projector(Filter{}, ""), records(t, log(text))))
		e := all[len(all)-1]
		if e.Type != "turn.cancelled" || e.p.Reason != c.reason || e.p.ReasonText != c.text || e.Actor != c.actor {
			t.Errorf("%s%s: %s by %s", c.cancel, c.end, e.Payload, e.Actor)
		}
	}
}

// TestExpired: events have the ids that they had, when the beginning of the run is no longer kept: but for those that
// only that has, and of several calls that one record lets begin.
func TestExpired(t *testing.T) {
	for _, s := range all(t) {
		list := records(t, s)
		from := len(list) / 2
		got, want := map[string]bool{}, 0
		for _, f := range project(t, projector(Filter{Workers: true}, ""), list[from:]) {
			got[f.id] = true
		}
		var missing []string
		at := map[schema.Seq]int{}
		whole := project(t, projector(Filter{Workers: true}, ""), list)
		for i, e := range events(t, whole) {
			if e.Type == "tool.called" {
				at[whole[i].seq]++
			}
			if whole[i].seq > schema.Seq(from) && at[whole[i].seq] < 1 { // what several calls have waited for counts them
				if want++; !got[e.ID] {
					missing = append(missing, e.Type)
				}
			}
		}
		if len(missing) > 4+want/20 && !strings.HasPrefix(s.Name, "random") {
			// those begin in the middle of all that is wrong
			t.Errorf("%s: %d of %d events behind seq %d have other ids: %v", s.Name, len(missing), want, from, missing)
		}
	}
}

// TestConfirmation: a request is known by its id, and as answered from the answer on.
func TestConfirmation(t *testing.T) {
	list := records(t, log(asking+reading+complete+
		"input.requested {\"request_id\":\"r\",\"call_id\":\"c1\"}\ncommand.answer "+
		string(AnswerPayload("r", "allow", "session"))+
		"\ninput.answered {\"request_id\":\"r\",\"answer\":{\"result\":\"allow\",\"scope\":\"session\"}}"))
	p := projector(Filter{}, "")
	want := map[schema.Seq]Confirmation{schema.Seq(len(list) - 2): {Call: "c1", Waits: true},
		schema.Seq(len(list) - 1): {Call: "c1", Resolved: true}, schema.Seq(len(list)): {Call: "c1", Resolved: true}}
	for _, r := range list {
		project(t, p, []schema.Record{r})
		c, ok := p.Confirmation("r")
		if w, is := want[r.Seq]; ok != is || c != w {
			t.Errorf("at %d: %v %v", r.Seq, c, ok)
		}
	}
	if _, ok := p.Confirmation("c1"); ok {
		t.Error("a call is no request")
	}
}
