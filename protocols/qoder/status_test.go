package qoder

import (
	"regexp"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

var madeID = regexp.MustCompile(`"message_id":"asst_[^"]*"`)

func TestStatusFrames(t *testing.T) {
	const running, end = `session.status_running {}`, `session.status_idle {"stop_reason":{"type":"end_turn"},"stop_details":null}`
	const cancelled = `session.status_idle {"stop_reason":{"type":"cancelled"},"stop_details":null}`
	const exhausted = `session.status_idle {"stop_reason":{"type":"retries_exhausted"},"stop_details":null}`
	const action = `session.status_idle {"stop_reason":{"type":"requires_action","event_ids":[]},"stop_details":null}`
	failed := func(why string) string {
		return `session.error {"error":{"type":"unknown_error","message":"` + why + `","retry_status":{"type":"exhausted"}}}`
	}
	lines := func(all ...string) string { return strings.Join(all, "\n") }
	for name, c := range map[string]struct{ log, want string }{
		"a turn in a run that goes on": {`
			run.lifecycle {"state":"planning"}
			run.lifecycle {"state":"running"}
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1","stop_reason":"max_tokens"}
			turn.start {"turn_id":"t2"}
			turn.end {"turn_id":"t2"}
			run.lifecycle {"state":"done"}`, lines(running, end, running, end)},
		"nothing but an end": {`run.lifecycle {"state":"done"}`, lines(running, end)},
		"text alone": {`
			text.delta {"text":"a"}
			text.delta {"text":"b"}
			run.lifecycle {"state":"done"}`, lines(running, `agent.message {"content":[{"type":"text","text":"ab"}],"message_id":"MADE"}`, end)},
		"a failed turn is said once": {`
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1","stop_reason":"error","reason":"no \ud800 more"}
			run.lifecycle {"state":"error","reason":"again"}
			run.lifecycle {"state":"error","reason":"and again"}`, lines(running, failed(`no \ud800 more`), exhausted)},
		"a run that fails after its turn": {`
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1","stop_reason":"end_turn"}
			run.lifecycle {"state":"error","reason":""}`, lines(running, end, failed("the agent has failed"))},
		"a cancelled turn, by its own word": {`
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1","stop_reason":"cancelled"}`, lines(running, cancelled)},
		"a cancelled turn, by command": {`
			turn.start {"turn_id":"t1"}
			command.cancel {"reason":"enough","interrupt":true,"more":1}
			turn.end {"turn_id":"t1","stop_reason":"end_turn"}
			turn.start {"turn_id":"t2"}
			turn.end {"turn_id":"t2","stop_reason":"end_turn"}`,
			lines(running, `user.interrupt {"reason":"enough","more":1}`, cancelled, running, end)},
		"cancelled when nothing runs": {`
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1"}
			command.cancel {}
			turn.start {"turn_id":"t2"}
			turn.end {"turn_id":"t2"}`, lines(running, end, `user.interrupt {}`, running, end)},
		"a cancelled turn that fails": {`
			turn.start {"turn_id":"t1"}
			command.cancel {}
			turn.end {"turn_id":"t1","stop_reason":"error","reason":"x"}`, lines(running, `user.interrupt {}`, failed("x"), exhausted)},
		"refused": {`
			turn.start {"turn_id":"t1"}
			turn.end {"turn_id":"t1","stop_reason":"refusal"}`,
			lines(running, `session.status_idle {"stop_reason":{"type":"refusal"},"stop_details":{"type":"refusal","category":null,"explanation":null}}`)},
		"paused, in the middle of a word": {`
			turn.start {"turn_id":"t1"}
			message.start {"message_id":"m","role":"assistant"}
			run.lifecycle {"state":"paused"}
			run.lifecycle {"state":"paused"}
			text.delta {"text":"a"}
			command.cancel {}
			run.lifecycle {"state":"running"}
			turn.end {"turn_id":"t1"}`, lines(running, action, `user.interrupt {}`, running, cancelled)},
		"a plan waits": {`
			run.lifecycle {"state":"awaiting_approval"}
			plan.proposal {"plan":{"id":"p","steps":[]}}
			command.approve_plan {"plan_id":"p"}
			run.lifecycle {"state":"running"}
			run.lifecycle {"state":"aborted"}`, lines(running, action, running, cancelled)},
		"a message that nobody answers": {`
			run.lifecycle {"state":"done"}
			command.message {"content":"go on"}
			run.lifecycle {"state":"error","reason":"nobody is there"}`,
			lines(running, end, `user.message {"content":[{"type":"text","text":"go on"}]}`, failed("nobody is there"),
				running, exhausted)},
		"lifecycles that are there for the session alone": {`
			run.lifecycle {"state":"error","reason":"x"}
			run.lifecycle {"state":"planning","reason":null,"session":true}
			session.updated {"title":"T"}
			run.lifecycle {"state":"error","reason":"x","session":true}`,
			lines(failed("x"), running, exhausted, `session.updated {"title":"T"}`)},
		"what is no state": {`
			run.lifecycle {"state":"dreaming"}
			step.boundary {"step_index":0,"step_kind":"plan"}
			progress {"message":"x"}
			state.values {"values":{}}
			custom.x {"a":1}
			command.pause {}
			command.redirect {"instruction":"x"}`, ""},
		"loss": {`
			loss {"reason":"too \u0041 slow","events":3,"bytes":90}
			loss {"reason":"x","events":"many"}
			loss {}`, lines(
			`session.error {"error":{"type":"unknown_error","message":"3 events, 90 bytes of this session were lost: too \u0041 slow","retry_status":{"type":"terminal"}}}`,
			`session.error {"error":{"type":"unknown_error","message":"events of this session were lost: x","retry_status":{"type":"terminal"}}}`,
			`session.error {"error":{"type":"unknown_error","message":"events of this session were lost","retry_status":{"type":"terminal"}}}`)},
		"model calls": {`
			model.start {"call_id":"1","model":"m","provider":"p"}
			message.end {"message_id":"x","usage":{"prompt_tokens":3,"completion_tokens":4}}
			model.end {"call_id":"1","ok":true}
			model.end {"call_id":"2","ok":false,"error":{"type":"e"},"usage":{"input_tokens":1,"output_tokens":2,"cache_creation_input_tokens":5,"cache_read_input_tokens":6}}`, lines(
			running, `span.model_request_start {"model":"m","provider":"p"}`,
			`span.model_request_end {"model_request_start_id":"e2","is_error":false,"model_usage":{"input_tokens":3,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"speed":null}}`,
			`span.model_request_start {}`,
			`span.model_request_end {"model_request_start_id":"e4","is_error":true,"model_usage":{"input_tokens":1,"output_tokens":2,"cache_creation_input_tokens":5,"cache_read_input_tokens":6,"speed":null},"error":{"type":"e"}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			p := Dialect{}.Projector(Request(testRun, "")).(*Projector)
			got := numbered(feed(t, p, records(t, scenario(c.log))))
			got = madeID.ReplaceAllString(got, `"message_id":"MADE"`)
			if strings.TrimSpace(got) != c.want {
				t.Errorf("log\n%s\ngot\n%s\nwant\n%s", strings.TrimSpace(c.log), got, c.want)
			}
		})
	}
}

// Wherever a scenario is cut, by failure or by cancellation, the session ends idle, once, with that reason.
func TestEndsAnywhere(t *testing.T) {
	for _, s := range schematest.All() {
		for _, end := range []struct{ payload, stop string }{
			{`{"state":"error","reason":"gone"}`, "retries_exhausted"},
			{`{"state":"aborted","reason":"cancelled"}`, "cancelled"}, {`{"state":"done"}`, "end_turn"},
		} {
			for at := 1; at < len(s.Events) && at < 60; at++ {
				if typ := s.Events[at-1].Type; typ == "run.lifecycle" || typ == "turn.end" {
					continue // it is idle already
				}
				cut := schematest.Scenario{Name: s.Name, Events: append(s.Events[:at:at], said("", "run.lifecycle", end.payload))}
				stop := end.stop
				for _, e := range s.Events[:at] {
					if e.Type == "command.cancel" && e.ChildID == "" && stop == "end_turn" {
						stop = "cancelled"
					}
				}
				p := Dialect{}.Projector(Request(testRun, "")).(*Projector)
				frames := feed(t, p, records(t, cut))
				last := frames[len(frames)-1]
				if complaint := holds(frames); complaint != "" || p.Busy() {
					t.Fatalf("%s cut at %d: %s", s.Name, at, complaint)
				}
				if got := text(field([]byte(last.data), "stop_reason"), "type"); got != stop &&
					last.event == "session.status_idle" || p.tools.waiting.Len()+p.tools.open.Len() > 0 {
					t.Fatalf("%s cut at %d: stop %q, want %q\n%s", s.Name, at, got, stop, brief(frames))
				}
				if strings.HasPrefix(end.payload, `{"state":"error"`) && !strings.Contains(brief(frames), "session.error") {
					t.Fatalf("%s cut at %d: the failure is not said", s.Name, at)
				}
			}
		}
	}
}

// A turn's id is that of everything in it, also where events do not say it.
func TestTurnID(t *testing.T) {
	frames := projected(t, false, form{}, records(t, scenario(`
		turn.start {"turn_id":"t1"}
		tool.start {"call_id":"c","tool":"x"}
		turn.end {"turn_id":"t1"}
		command.message {"content":"x"}`)))
	for i, want := range []string{"t1", "t1", "t1", ""} {
		if got := text([]byte(frames[i].data), "turn_id"); got != want {
			t.Errorf("%s: turn %q, want %q", frames[i].event, got, want)
		}
	}
}
