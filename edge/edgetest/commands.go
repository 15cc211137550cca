package edgetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentstream/schema"
)

const (
	AskPlan     = `{"type":"plan.proposal","payload":{"plan":{"id":"p1","steps":[]},"planning_gate":"required"}}`
	showPlan    = `{"type":"plan.proposal","payload":{"plan":{"id":"p1","steps":[]},"planning_gate":"preview"}}`
	AskInput    = `{"type":"input.requested","payload":{"request_id":"q1","prompt":"Which?"}}`
	askCall     = `{"type":"tool.start","payload":{"call_id":"q1","tool":"delete","input":{},"permission":"ask"}}`
	AskCall2    = `{"type":"tool.start","payload":{"call_id":"c2","tool":"ask","input":{},"custom":true}}`
	ChildAsks   = `{"type":"input.requested","child_id":"kid","payload":{"request_id":"k1","prompt":"Where?"}}`
	askOfCall   = `{"type":"input.requested","payload":{"request_id":"q1","call_id":"q1"}}`
	endCall     = `{"type":"tool.end","payload":{"call_id":"q1","ok":false,"error":"KAI-TOOL-CANCEL-0001"}}`
	ChildSpeaks = `{"type":"run.lifecycle","child_id":"kid","payload":{"state":"running"}}`
)

// Lifecycle returns the line of a run.lifecycle.
func Lifecycle(state string) string {
	return `{"type":"run.lifecycle","payload":{"state":"` + state + `"}}`
}

func endTurn(why string) string {
	return `{"type":"turn.end","payload":{"turn_id":"t","stop_reason":"` + why + `"}}`
}

// CommandLine returns the line of a command of a person.
func CommandLine(name, payload string) string {
	return `{"type":"command.` + name + `","actor":"user","payload":` + payload + `}`
}

// Situation is a run in a state, with the names of the commands that it takes.
type Situation struct {
	Name  string
	Lines []string
	Takes string
}

// Situations are runs in each state that a command may meet, with the commands that they take.
var Situations = []Situation{
	{"nothing said of its state", []string{`{"type":"text.delta","payload":{"text":"hi"}}`},
		"pause redirect cancel messages"},
	{"planning", []string{Lifecycle("planning")}, "pause redirect cancel messages"},
	{"plan shown, approval not awaited yet", []string{Lifecycle("planning"), AskPlan}, "pause redirect cancel messages"},
	{"approval awaited", []string{Lifecycle("planning"), AskPlan, Lifecycle("awaiting_approval")},
		"approve_plan reject_plan redirect cancel messages"},
	{"approved", []string{Lifecycle("planning"), AskPlan, Lifecycle("awaiting_approval"),
		CommandLine("approve_plan", `{}`)}, "redirect cancel messages"},
	{"rejected", []string{Lifecycle("planning"), AskPlan, Lifecycle("awaiting_approval"),
		CommandLine("reject_plan", `{}`)}, "redirect cancel messages"},
	{"approval awaited without a plan", []string{Lifecycle("awaiting_approval")}, "redirect cancel messages"},
	{"preview, planning", []string{Lifecycle("planning"), showPlan},
		"approve_plan reject_plan pause redirect cancel messages"},
	{"preview, running", []string{Lifecycle("planning"), showPlan, Lifecycle("running")},
		"approve_plan reject_plan pause redirect cancel messages"},
	{"preview, done", []string{Lifecycle("planning"), showPlan, Lifecycle("done")}, "messages"},
	{"running", []string{Lifecycle("running")}, "pause redirect cancel messages"},
	{"told to pause", []string{Lifecycle("running"), CommandLine("pause", `{}`)}, "resume redirect cancel messages"},
	{"told to pause and not to", []string{Lifecycle("running"), CommandLine("pause", `{}`),
		CommandLine("resume", `{}`)}, "pause redirect cancel messages"},
	{"paused", []string{Lifecycle("running"), Lifecycle("paused")}, "resume redirect cancel messages"},
	{"told to resume", []string{Lifecycle("paused"), CommandLine("resume", `{}`)}, "redirect cancel messages"},
	{"redirecting", []string{Lifecycle("redirecting")}, "redirect cancel messages"},
	{"told to cancel", []string{Lifecycle("running"), CommandLine("cancel", `{}`)}, "pause redirect messages"},
	{"asked", []string{Lifecycle("running"), AskInput}, "pause redirect cancel answer messages"},
	{"asked and answered", []string{Lifecycle("running"), AskInput,
		CommandLine("answer", `{"request_id":"q1","answer":1}`)}, "pause redirect cancel messages"},
	{"asked and over", []string{Lifecycle("running"), AskInput, Lifecycle("aborted")}, "messages"},
	{"asked, and the turn cancelled", []string{Lifecycle("running"), AskInput, endTurn("cancelled")},
		"pause redirect cancel messages"},
	{"asked, and the turn interrupted by it", []string{Lifecycle("running"), AskInput, endTurn("interrupted")},
		"pause redirect cancel answer messages"},
	{"asked about a call that has ended", []string{Lifecycle("running"), askCall, askOfCall, endCall},
		"pause redirect cancel messages"},
	{"a call asks", []string{Lifecycle("running"), askCall}, "pause redirect cancel answer messages"},
	{"a call has asked", []string{Lifecycle("running"), askCall, endCall}, "pause redirect cancel messages"},
	{"asked, and told to cancel", []string{Lifecycle("running"), AskInput, CommandLine("cancel", `{}`)},
		"pause redirect answer messages"},
	{"asked, and cancelled behind the turn",
		[]string{Lifecycle("running"), AskInput, endTurn("end_turn"), CommandLine("cancel", `{}`)},
		"pause redirect messages"},
	{"asked, aborted and begun anew", []string{Lifecycle("running"), AskInput, Lifecycle("aborted"),
		CommandLine("message", `{"content":"and?"}`)}, "pause redirect cancel messages"},
	{"done", []string{Lifecycle("done")}, "messages"},
	{"aborted", []string{Lifecycle("aborted")}, "messages"},
	{"error", []string{Lifecycle("error")}, "messages"},
	{"taken up again", []string{Lifecycle("done"), CommandLine("message", `{"content":"and?"}`)},
		"pause redirect cancel messages"},
}

// Bodies are what each command brings in these tests.
var Bodies = map[string]string{
	"approve_plan": `{"plan_id":"p1"}`, "reject_plan": `{"reason":"dear"}`, "pause": ``, "resume": `{}`,
	"redirect": `{"instruction":"look at <latency> & cost"}`, "cancel": `{"reason":null}`,
	"answer": `{"request_id":"q1","answer":{"choice":[1,2]}}`, "messages": `{"content":"and readers?","message_id":"u1"}`,
}

// Tell stores lines in a run of acme, each in a pack of its own.
func (h *House) Tell(run string, lines ...string) {
	h.T.Helper()
	if a := h.Do("POST", "/v1/agent/runs/"+run+"/events", strings.Join(lines, "\n")); a.Status != 200 {
		h.T.Fatalf("%d %s", a.Status, a.Body)
	}
}

// Event reads one event back.
func (h *House) Event(run string, seq schema.Seq) schema.Event {
	h.T.Helper()
	a := h.Do("GET", fmt.Sprintf("/v1/agent/runs/%s/events?after=%d&limit=1", run, seq-1), "")
	var page struct{ Events []schema.Event }
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Events) != 1 {
		h.T.Fatalf("%v: %s", err, a.Body)
	}
	return page.Events[0]
}
