package qoder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/schema/schematest"
)

func TestThreadObjects(t *testing.T) {
	p := fed(t, `
		session.created {"agent":{"id":"agent_1","version":2,"name":"N\u0041"}}
		turn.start {"turn_id":"t"}
		tool.start {"call_id":"c","tool":"task","input":{}}
		child.spawn {"child_id":"kid","call_id":"c","name":"helper"}
		kid:turn.start {"turn_id":"k"}
		kid:message.end {"message_id":"m","usage":{"input_tokens":1}}
		kid:turn.end {"turn_id":"k"}
		stray:text.delta {"text":"x"}`, "")
	var got []string
	for _, th := range p.Threads() {
		b, ok := p.AppendThread(nil, th.ID)
		if child, found := p.Lane(th.ID); !ok || !found || child != th.Child || !json.Valid(b) {
			t.Fatalf("%+v: %s", th, b)
		}
		got = append(got, fmt.Sprintf("%s/%s/%s/%s/%s/%s/%s", th.Child, th.Status, text(b, "status"), text(b, "role"),
			text(b, "name"), field(b, "stop_reason"), field(b, "agent_id")))
	}
	want := []string{
		`/running/running/coordinator/NA/null/"agent_1"`, `kid/idle/idle/child/helper/{"type":"end_turn"}/null`,
		`stray/running/running/child/stray/null/null`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	b, _ := p.AppendThread(nil, ThreadID(testRun, "kid"))
	const agent = `{"id":null,"type":"agent","version":null,"name":"helper","model":{"id":null},"description":null,"system":null,"tools":[],"skills":[],` +
		`"mcp_servers":[],"multiagent":null,"execution_identity":{"type":"service_account"}}`
	if want := `{"id":"` + ThreadID(testRun, "kid") +
		`","type":"session_thread","session_id":"run_golden","parent_thread_id":"` + ThreadID(testRun, "") +
		`","agent":` + agent +
		`,"agent_id":null,"agent_version":null,"name":"helper","role":"child","status":"idle","stop_reason":{"type":"end_turn"},"created_by_tool_use_id":"` + eventID(testRun, 3, 0) +
		`","stats":{"active_seconds":0.014,"duration_seconds":0.028},"usage":` + string(appendUsage(nil, counts{input: 1})) +
		`,"workflow_run_id":null,"archived_at":null,"created_at":"2026-01-02T03:04:05.021Z","updated_at":"2026-01-02T03:04:05.042Z"}`; string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	if b, ok := p.AppendThread([]byte("x"), ThreadID(testRun, "none")); ok || string(b) != "x" {
		t.Errorf("%s", b)
	}
	if _, ok := p.Lane("sthr_x"); ok {
		t.Error("a thread that is not there")
	}
}

func TestThreadsEnd(t *testing.T) {
	const log = `
		run.lifecycle {"state":"running"}
		kid:run.lifecycle {"state":"running"}
		kid:run.lifecycle {"state":"error","reason":"why"}
		kid:run.lifecycle {"state":"error","reason":"why"}
		other:run.lifecycle {"state":"running"}
		kid:turn.start {"turn_id":"t"}
		kid:turn.end {"turn_id":"t"}
		run.lifecycle {"state":"aborted"}`
	hasFrames(t, log, ThreadID(testRun, ""), `
		session.status_running {}
		session.thread_created {"agent_name":"kid","parent_thread_id":"ROOT","workflow_run_id":null}
		session.thread_status_running {"agent_name":"kid"}
		session.thread_status_idle {"agent_name":"kid","stop_reason":{"type":"retries_exhausted"},"stop_details":null}
		session.thread_status_terminated {"agent_name":"kid"}
		session.thread_created {"agent_name":"other","parent_thread_id":"ROOT","workflow_run_id":null}
		session.thread_status_running {"agent_name":"other"}
		session.thread_status_running {"agent_name":"kid"}
		session.thread_status_idle {"agent_name":"kid","stop_reason":{"type":"end_turn"},"stop_details":null}
		session.thread_status_idle {"agent_name":"other","stop_reason":{"type":"cancelled"},"stop_details":null}
		session.status_idle {"stop_reason":{"type":"cancelled"},"stop_details":null}`)
	hasFrames(t, log, ThreadID(testRun, "kid"), `
		session.thread_created {"agent_name":"kid","parent_thread_id":"ROOT","workflow_run_id":null}
		session.thread_status_running {"agent_name":"kid"}
		session.error {"error":{"type":"unknown_error","message":"why","retry_status":{"type":"exhausted"}}}
		session.thread_status_idle {"agent_name":"kid","stop_reason":{"type":"retries_exhausted"},"stop_details":null}
		session.thread_status_terminated {"agent_name":"kid"}
		session.thread_status_running {"agent_name":"kid"}
		session.thread_status_idle {"agent_name":"kid","stop_reason":{"type":"end_turn"},"stop_details":null}`)
}

// The session's frames and the coordinator's thread's are the same; a child of a child is below that child.
func TestThreadForms(t *testing.T) {
	list := records(t, schematest.ByName("children"))
	session, root := projected(t, false, form{}, list), projected(t, false, form{thread: ThreadID(testRun, "")}, list)
	if fmt.Sprint(session) != fmt.Sprint(root) {
		t.Errorf("session\n%s\nroot\n%s", brief(session), brief(root))
	}
	p := Dialect{}.Projector(Request(testRun, "")).(*Projector)
	feed(t, p, list)
	b, _ := p.AppendThread(nil, ThreadID(testRun, schematest.Grandchild))
	if text(b, "parent_thread_id") != ThreadID(testRun, schematest.ChildA) {
		t.Errorf("%s", b)
	}
	// Frames that two forms show are the same.
	seen := map[string]string{}
	for _, child := range []string{"", schematest.ChildA, schematest.ChildB, schematest.Grandchild} {
		for _, f := range projected(t, true, form{thread: ThreadID(testRun, child)}, list) {
			if data, twice := seen[f.id]; twice && data != f.data {
				t.Errorf("%s\n%s", data, f.data)
			}
			seen[f.id] = f.data
		}
	}
}

// A path names the parent of a child that nobody announced.
func TestThreadPath(t *testing.T) {
	s := scenario(`
		a:progress {}
		b:progress {}`)
	s.Events[1].Path = []string{schematest.Root, "a", "b"}
	p := Dialect{}.Projector(Request(testRun, "")).(*Projector)
	feed(t, p, records(t, s))
	if got := p.threads.lanes.m["b"].parent; got != "a" {
		t.Errorf("parent %q", got)
	}
}

// Spawns that make no sense make no thread, and none goes in a circle.
func TestSpawnHostile(t *testing.T) {
	p := fed(t, `
		child.spawn {}
		child.spawn {"child_id":"bad id"}
		child.spawn {"child_id":7,"prompt":"x"}
		a:child.spawn {"child_id":"a","prompt":"x"}
		a:child.spawn {"child_id":"b","agent":"`+strings.Repeat("n", 300)+`"}
		b:child.spawn {"child_id":"a","call_id":{}}`, "")
	var got []string
	for _, th := range p.Threads() {
		got = append(got, th.Child+"<"+p.threads.lanes.m[th.Child].parent)
	}
	if fmt.Sprint(got) != "[< a< b<a]" {
		t.Error(got)
	}
}
