package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/langgraphtest"
	"agentstream/protocols/langgraph/serve"
)

// part is an event of the older API.
type part struct{ id, event, data string }

// parts reads a body of SSE that has ended.
func parts(a answer) (all []part) {
	a.T.Helper()
	if a.Status != 200 || !strings.Contains(a.Header.Get("Content-Type"), "text/event-stream") {
		a.T.Fatalf("%s: %d %s", a.Asked, a.Status, a.Body)
	}
	var p part
	for line := range strings.Lines(a.Body) {
		name, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			p.id = v
		case "event":
			p.event = v
		case "data":
			p.data = v
		case "":
			if p.data != "" {
				all = append(all, p)
			}
			p = part{}
		}
	}
	return all
}

const allModes = "?stream_mode=values&stream_mode=updates&stream_mode=messages-tuple&stream_mode=custom&stream_mode=tasks&stream_mode=checkpoints&stream_mode=tools&stream_subgraphs=true"

// TestLegacyResume: behind every event of a run that has an id, on the other of two nodes, Last-Event-ID gives the
// rest; behind the last one nothing, on a stream that ends at once.
func TestLegacyResume(t *testing.T) {
	all := edgetest.Share()
	n, other := join(t, all, serve.Config{}), join(t, all, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	var runs []struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal([]byte(n.do("GET", "/threads/t/runs", "").Body), &runs); err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for i, want := range []string{"interrupted", "success", "interrupted"} {
		if runs[i].Status != want {
			t.Errorf("run %d is %s", i, runs[i].Status)
		}
		n.do("GET", "/threads/t/runs/"+runs[i].ID, "").OK(200)
		at := "/langgraph/threads/t/runs/" + runs[i].ID + "/stream" + allModes
		whole := parts(n.do("GET", at, "", "Last-Event-ID", "-1"))
		if got := parts(other.do("GET", at, "")); fmt.Sprint(got) != fmt.Sprint(whole) || len(whole) < 3 {
			t.Errorf("without a cursor: %v", got)
		}
		for j, p := range whole {
			if p.id == "" {
				continue
			}
			if got := parts(other.do("GET", at, "", "Last-Event-ID", p.id)); fmt.Sprint(got) != fmt.Sprint(whole[j+1:]) {
				t.Errorf("behind %s: %v, want %v", p.id, got, whole[j+1:])
			}
		}
	}
	first := parts(n.do("GET", "/threads/t/runs/"+runs[2].ID+"/stream", ""))
	if got := parts(n.do("GET", "/threads/t/runs/"+runs[2].ID+"/stream?stream_mode=",
		"")); fmt.Sprint(got) != fmt.Sprint(first) {
		t.Errorf("an empty mode, as the SDK for Python sends it: %v, want %v", got, first)
	}
	n.do("GET", "/threads/t/runs/"+runs[0].ID+"/stream", "", "Last-Event-ID", first[0].id).refused(400, "invalid_argument")
	if got := n.do("GET", "/threads/t/runs/"+runs[1].ID+"/join", ""); got.Status != 200 ||
		!strings.Contains(got.Body, `"n":1`) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// TestLegacyRefused: the rows of bad input that are of the older API.
func TestLegacyRefused(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(langgraphtest.AllChannels)...)
	n.do("POST", "/threads/t/runs", `{"assistant_id":"a","multitask_strategy":"later"}`, "Content-Type",
		"application/json").refused(422, "invalid_argument")
	for _, path := range []string{"/threads/t/runs/stream", "/threads/t/runs", "/threads/t/runs/wait"} {
		send := func(body string) answer { return n.do("POST", path, body, "Content-Type", "application/json") }
		send(`{"assistant_id":"a","stream_mode":"debug"}`).refused(422, "invalid_argument")
		send(`{"assistant_id":"a","stream_mode":["values","x"]}`).refused(422, "invalid_argument")
		send(`{"assistant_id":"a","stream_mode":7}`).refused(422, "invalid_argument")
		send(`{"assistant_id":"a","command":{"resume":1}}`).refused(422, "invalid_argument")
		send(`{"assistant_id":`).refused(400, "invalid_argument")
		send(`[]`).refused(400, "invalid_argument")
		n.do("POST", strings.Replace(path, "/t/", "/none/", 1), `{"assistant_id":"a"}`, "Content-Type",
			"application/json").refused(404, "no_such_run")
		n.do("POST", strings.Replace(path, "/t/", "/a%20b/", 1), `{"assistant_id":"a"}`, "Content-Type",
			"application/json").refused(400, "invalid_argument")
		n.do("POST", path, `{"assistant_id":"a"}`, "Content-Type", "application/json", as, "may:read").refused(403,
			"permission_denied")
	}
	n.do("GET", "/threads/t/runs/none", "").refused(404, "no_such_run")
	n.do("GET", "/threads/t/runs/none/stream", "").refused(404, "no_such_run")
	n.do("GET", "/threads/t/runs/none/join", "").refused(404, "no_such_run")
	n.do("POST", "/threads/t/runs/none/cancel", "").refused(404, "no_such_run")
	n.do("POST", "/threads/t/runs/none/cancel?action=undo", "").refused(422, "invalid_argument")
	n.do("GET", "/threads/t/runs?limit=x", "").refused(400, "invalid_argument")
	n.do("GET", "/threads/t/runs/x/stream?stream_mode=nothing", "").refused(422, "invalid_argument")
	n.do("GET", "/threads/t/stream", "", "Last-Event-ID", "7-7").refused(400, "invalid_argument")
	n.do("GET", "/threads/t/runs", "", as, "tenant:globex").refused(404, "no_such_run")
}

// TestThreads: threads are created, described, changed and deleted.
func TestThreads(t *testing.T) {
	n := start(t, serve.Config{})
	send := func(method, path, body string) answer {
		return n.do(method, path, body, "Content-Type", "application/json")
	}
	o := send("POST", "/threads", `{"metadata":{"graph_id":"g","who":"ann"}}`).OK(200)
	id := o.Str("thread_id")
	if o.Str("status") != "idle" || o.Str("metadata", "who") != "ann" || o.Str("created_at") == "" {
		t.Errorf("%v", o)
	}
	send("POST", "/threads", `{"thread_id":"`+id+`"}`).refused(409, "invalid_argument")
	if o := send("POST", "/threads", `{"thread_id":"`+id+`","if_exists":"do_nothing"}`).OK(200); o.Str("metadata",
		"who") != "ann" {
		t.Errorf("%v", o)
	}
	send("POST", "/threads", `{"thread_id":"a b"}`).refused(400, "invalid_argument")
	send("POST", "/threads", `{"if_exists":"never"}`).refused(422, "invalid_argument")
	send("POST", "/threads", `{"metadata":7}`).refused(422, "invalid_argument")
	if o := send("PATCH", "/langgraph/threads/"+id, `{"metadata":{"who":"bob"}}`).OK(200); o.Str("metadata",
		"who") != "bob" {
		t.Errorf("%v", o)
	}
	n.Say(id, log(`
		command.message {"content":"Hi"}
		turn.start {"turn_id":"t1"}
		text.delta {"text":"Hello."}
		input.requested {"request_id":"i1","payload":{"q":"ok?"}}
		turn.end {"turn_id":"t1","stop_reason":"end_turn"}
		commands.taken {"through":3}`)...)
	o = n.do("GET", "/threads/"+id, "").OK(200)
	if o.Str("status") != "interrupted" || len(o["interrupts"].(map[string]any)) != 1 ||
		len(o.At("values", "messages").([]any)) != 2 {
		t.Errorf("%v", o)
	}
	n.do("GET", "/threads/"+id, "", as, "tenant:globex").refused(404, "no_such_run")
	if a := n.do("DELETE", "/threads/"+id, ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, path := range []string{"", "/runs", "/runs/x/stream"} {
		n.do("GET", "/threads/"+id+path, "").refused(404, "no_such_run")
	}
	n.do("DELETE", "/threads/"+id, "").refused(404, "no_such_run")
	n.do("GET", "/info", "").OK(200)
	if o := n.do("GET", "/assistants/g", "").OK(200); o.Str("graph_id") != "g" {
		t.Errorf("%v", o)
	}
	n.do("GET", "/langgraph/assistants/g/schemas", "").OK(200)
}

// TestCancelRun: the run under way is cancelled; one that has ended is left alone.
func TestCancelRun(t *testing.T) {
	n := start(t, serve.Config{})
	n.Say("t", log(`
		command.message {"content":"Hi"}
		turn.start {"turn_id":"t1"}
		command.message {"content":"And","multitask_strategy":"enqueue"}`)...)
	var runs []struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal([]byte(n.do("GET", "/threads/t/runs", "").Body), &runs); err != nil || len(runs) != 2 ||
		runs[0].Status != "pending" || runs[1].Status != "running" {
		t.Fatal(runs, err)
	}
	n.do("POST", "/threads/t/runs/"+runs[0].ID+"/cancel", "").refused(409, "invalid_argument")
	if a := n.do("POST", "/threads/t/runs/"+runs[1].ID+"/cancel?wait=0&action=interrupt", ""); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	n.Say("t", log(`turn.end {"turn_id":"t1","stop_reason":"cancelled"}
		commands.taken {"through":4}`)...)
	for _, run := range runs {
		if a := n.do("POST", "/threads/t/runs/"+run.ID+"/cancel?wait=1", ""); a.Status != 204 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		if got := parts(n.do("GET", "/threads/t/runs/"+run.ID+"/stream", "")); got[len(got)-1].event != "end" {
			t.Errorf("%v", got)
		}
	}
	if got := n.Types("t"); len(got) != 6 {
		t.Errorf("%v", got)
	}
}
