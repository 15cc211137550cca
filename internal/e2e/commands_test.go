package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// snapshotOf is what the test reads of a snapshot.
type snapshotOf struct {
	LastSeq int    `json:"last_seq"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Plan    *struct {
		Decision string `json:"decision"`
	} `json:"plan"`
	Commands []struct {
		Command string `json:"command"`
	} `json:"commands"`
	Messages []struct {
		Role string `json:"role"`
	} `json:"messages"`
}

// TestDemoObeys gives commands to the demo run of a real process while it is watched: the agent reads
// them in its log, obeys, and every one of them is on the stream.
func TestDemoObeys(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--data", t.TempDir(), "--demo-speed", "2", "--demo-gate", "required")
	p.start()
	base := "http://" + p.addr + "/v1/agent/runs/demo"
	look := func() (s snapshotOf) {
		t.Helper()
		resp, err := http.Get(base + "/snapshot")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == http.StatusOK && json.Unmarshal(body, &s) != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return s
	}
	state := func(want string) snapshotOf {
		t.Helper()
		var s snapshotOf
		eventually(t, 60*time.Second, "state "+want, func() bool { s = look(); return s.State == want })
		return s
	}
	order := func(name, body string, status int) {
		t.Helper()
		resp, err := http.Post(base+"/"+name, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != status {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, b)
		}
	}

	state("awaiting_approval")
	seen := watchTypes(t, base+"/stream?types=run.lifecycle,command.*")
	order("pause", "", 409)
	order("approve_plan", `{"plan_id":"plan_1"}`, 202)
	order("approve_plan", `{"plan_id":"plan_1"}`, 409)
	if s := state("running"); s.Plan == nil || s.Plan.Decision != "approved" || len(s.Commands) != 0 {
		t.Errorf("%+v", s)
	}
	order("pause", "", 202)
	before := state("paused")
	for range 20 { // the agent says nothing
		if now := look(); now.LastSeq != before.LastSeq {
			t.Fatalf("paused at %d, and now %d", before.LastSeq, now.LastSeq)
		}
	}
	order("resume", "", 202)
	state("running")
	order("cancel", `{"reason":"enough"}`, 202)
	if s := state("aborted"); s.Reason != "cancelled by the user" {
		t.Errorf("%+v", s)
	}
	want := "planning awaiting_approval command.approve_plan running command.pause paused command.resume running command.cancel aborted"
	if got := strings.Join(<-seen, " "); got != want {
		t.Errorf("stream\nwant %s\n got %s", want, got)
	}
	order("resume", "", 409)
	order("messages", `{"content":"and if I have no disk?"}`, 202)
	s := state("done")
	if n := len(s.Messages); n < 3 || s.Messages[n-2].Role != "user" || s.Messages[n-1].Role != "assistant" ||
		len(s.Commands) != 0 {
		t.Errorf("%+v", s)
	}
}

// watchTypes reads a stream to its end and gives its states and commands.
func watchTypes(t *testing.T, url string) <-chan []string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan []string, 1)
	go func() {
		defer resp.Body.Close()
		var types []string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			if !ok {
				continue
			}
			var e struct {
				Type    string
				ChildID *string `json:"child_id"`
				Payload struct{ State string }
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				types = append(types, fmt.Sprint(err))
			}
			switch {
			case e.ChildID != nil:
			case e.Type == "run.lifecycle":
				types = append(types, e.Payload.State)
			default:
				types = append(types, e.Type)
			}
		}
		out <- types
	}()
	return out
}
