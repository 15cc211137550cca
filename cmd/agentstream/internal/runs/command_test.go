package runs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/schema"
)

// The commands' routes and payloads, and what is printed.
func TestCommandsTell(t *testing.T) {
	var got []string
	status := http.StatusOK
	s := clitest.NewStandIn(t)
	s.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.Path+" "+string(body)+" "+r.Header.Get("Idempotency-Key"))
		if status != http.StatusOK {
			clitest.Problem(w, status, "RUN-ENDED", "the run has ended", 0)
			return true
		}
		fmt.Fprint(w, `{"first_seq":7,"last_seq":7}`)
		return true
	}
	var out bytes.Buffer
	at := CommandFlags{ServerFlags: cli.ServerFlags{Server: s.URL}, RunID: "r1", Key: "k",
		Streams: cli.Streams{Out: &out, Err: io.Discard}}
	for _, c := range []struct {
		cmd  interface{ Run(context.Context) error }
		want string
	}{
		{&CancelCmd{ServerFlags: at.ServerFlags, RunID: "r1", Key: "k", Streams: at.Streams}, "cancel {}"},
		{&CancelCmd{ServerFlags: at.ServerFlags, RunID: "r1", Key: "k", Streams: at.Streams, Reason: "enough"},
			`cancel {"reason":"enough"}`},
		{&PauseCmd{CommandFlags: at}, "pause {}"},
		{&ResumeCmd{at}, "resume {}"},
		{&ApproveCmd{CommandFlags: at}, "approve_plan {}"},
		{&ApproveCmd{at, "p1"}, `approve_plan {"plan_id":"p1"}`},
		{&RejectCmd{at, "p1", "too dear"}, `reject_plan {"plan_id":"p1","reason":"too dear"}`},
		{&RedirectCmd{at, "look <there>"}, `redirect {"instruction":"look <there>"}`},
		{&AnswerCmd{at, "q1", "", false}, `answer {"answer":"","request_id":"q1"}`},
		{&AnswerCmd{at, "q1", "42", false}, `answer {"answer":"42","request_id":"q1"}`},
		{&AnswerCmd{at, "q1", `{"a":1.0}`, true}, `answer {"answer":{"a":1.0},"request_id":"q1"}`},
		{&UpdateCmd{at, new("Find it"), []string{"a", "b"}, false, map[string]string{"k": "v", "gone": ""}},
			`update {"metadata":{"gone":null,"k":"v"},"tags":["a","b"],"title":"Find it"}`},
		{&UpdateCmd{at, new(""), nil, true, nil}, `update {"tags":null,"title":null}`},
		{&SayCmd{at, "hello"}, `messages {"content":"hello"}`},
	} {
		out.Reset()
		got = nil
		if err := c.cmd.Run(t.Context()); err != nil {
			t.Fatalf("%T: %v", c.cmd, err)
		}
		if want := []string{"/v1/agent/runs/r1/" + c.want + " k"}; !slices.Equal(got, want) ||
			out.String() != "run=r1 seq=7\n" {
			t.Errorf("%T sent %q, want %q; printed %q", c.cmd, got, want, out.String())
		}
	}
	status = http.StatusConflict
	if err := (&PauseCmd{CommandFlags: at}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "RUN-ENDED") {
		t.Errorf("refused: %v", err)
	}
	got = nil
	at.RunID = "a/b"
	if err := (&PauseCmd{CommandFlags: at}).Run(t.Context()); err == nil || len(got) != 0 {
		t.Errorf("bad run: %v", err)
	}
	at.RunID = "r1"
	if err := (&AnswerCmd{at, "q1", "{", true}).Run(t.Context()); err == nil || len(got) != 0 {
		t.Errorf("bad answer: %v", err)
	}
}

// TestCancelMany holds that cancel takes all runs of a state that are old, and none with --dry-run.
func TestCancelMany(t *testing.T) {
	var got []string
	s := clitest.NewStandIn(t)
	s.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodGet {
			if q := r.URL.Query(); q.Get("state") != "running" || !q.Has("until") || q.Get("tag") != "t" {
				t.Errorf("%v", q)
			}
			if r.URL.Query().Get("cursor") == "" {
				fmt.Fprint(w, `{"runs":[{"run_id":"a"},{"run_id":"b"}],"next_cursor":"more"}`)
			} else {
				fmt.Fprint(w, `{"runs":[{"run_id":"c"}],"next_cursor":null}`)
			}
			return true
		}
		got = append(got, r.URL.Path)
		if strings.Contains(r.URL.Path, "/b/") {
			clitest.Problem(w, http.StatusConflict, "STATE-FORBIDS", "the run is over", 0)
			return true
		}
		fmt.Fprint(w, `{"first_seq":7,"last_seq":7}`)
		return true
	}
	var out bytes.Buffer
	cmd := CancelCmd{ServerFlags: cli.ServerFlags{Server: s.URL}, State: []schema.RunState{"running"}, Older: "24h",
		Tag: "t", DryRun: true, Streams: cli.Streams{Out: &out, Err: io.Discard}}
	if err := cmd.Run(t.Context()); err != nil || out.String() != "run=a\nrun=b\nrun=c\n" || len(got) != 0 {
		t.Errorf("dry run: %v %q %q", err, out.String(), got)
	}
	cmd.DryRun = false
	want := []string{"/v1/agent/runs/a/cancel", "/v1/agent/runs/b/cancel", "/v1/agent/runs/c/cancel"}
	if err := cmd.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "STATE-FORBIDS") ||
		!slices.Equal(got, want) {
		t.Errorf("%v %q", err, got)
	}
	for _, bad := range []CancelCmd{{}, {State: cmd.State}, {Older: "1h"}, {RunID: "r", State: cmd.State},
		{RunID: "r", DryRun: true}, {State: []schema.RunState{"done"}, Older: "1h"}} {
		got = nil
		bad.ServerFlags, bad.Streams = cmd.ServerFlags, cmd.Streams
		if err := bad.Run(t.Context()); err == nil || len(got) != 0 {
			t.Errorf("%+v: %v %q", bad, err, got)
		}
	}
}
