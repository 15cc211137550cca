package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell finds what the scripts of the page on incremental streaming need.
func shell(t *testing.T) {
	t.Helper()
	for _, name := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v; tools/needs installs it", err)
			}
			t.Skipf("SKIPPED, NOTHING WAS TESTED: %v; tools/needs installs it", err)
		}
	}
}

// page runs a script of the page's steps and gives what its steps have printed, by step.
func page(t *testing.T, p *proc, script, token string, env ...string) map[string]string {
	t.Helper()
	out := t.TempDir()
	printed, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	cmd := exec.Command("bash", filepath.Join("qoder", script))
	cmd.Env = append(os.Environ(), "OUT="+out, "BASE_URL="+p.url("/api/v1/cloud"), "QODER_PAT="+token,
		"AGENT_ID=agent_seed", "AGENT_VERSION=1", "ENVIRONMENT_ID=env_seed")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = printed, printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	limit := time.AfterFunc(3*time.Minute, func() { _ = syscall.Kill(-group, syscall.SIGKILL) }) // it may have ended
	err = cmd.Wait()
	limit.Stop()
	_ = syscall.Kill(-group, syscall.SIGKILL) // what it has left behind, if anything
	if text, rerr := os.ReadFile(printed.Name()); err != nil || rerr != nil || len(text) > 0 {
		t.Errorf("%s: %v, %v\n%s", script, err, rerr, text)
	}
	steps := make(map[string]string)
	files, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		steps[filepath.Base(name)] = string(text)
	}
	if t.Failed() {
		t.Fatalf("%q", steps)
	}
	return steps
}

// pageLine is what the page's parser loop prints of one event.
type pageLine struct {
	Type      string  `json:"type"`
	MessageID *string `json:"message_id"`
	Index     *int    `json:"index"`
	Block     *string `json:"block_type"`
	Delta     *string `json:"delta_type"`
	Text      *string `json:"text"`
	Thinking  *string `json:"thinking"`
	Partial   *string `json:"partial_json"`
}

// lines reads what the parser loop has printed: each event: line says what the line of its data does.
func lines(t *testing.T, printed string) (out []pageLine) {
	t.Helper()
	event := ""
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
			continue
		}
		var l pageLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Type != event || event == "" {
			t.Fatalf("event %q, data %q: %v", event, line, err)
		}
		out, event = append(out, l), ""
	}
	return out
}

// sequence returns the types as the page writes them down: deltas in a row once, and those of the turn around left out.
func sequence(events []pageLine) (out []string) {
	for _, e := range events {
		switch e.Type {
		case "user.message", "session.status_running", "span.model_request_start", "span.model_request_end":
			continue
		case "agent.content_block_delta":
			if n := len(out); n > 0 && out[n-1] == e.Type {
				continue
			}
		}
		out = append(out, e.Type)
	}
	return out
}

// What the page prints.
var (
	pageIncrements = []string{"agent.message_start", "agent.content_block_start", "agent.content_block_delta",
		"agent.content_block_stop",
		"agent.message_delta", "agent.message_stop", "agent.message", "session.status_idle"}
	pageFull = []string{"agent.message", "session.status_idle"}
)

const pageReply = "You say “Reply with exactly one short sentence.”."

// The page's own steps, in the form of its own commands, against the built binary: with increments and without, for
// whoever comes and for those who show a token. An agent answers by itself (dev).
func TestPageOnIncrementalStreaming(t *testing.T) {
	beside(t)
	shell(t)
	for name, args := range map[string][]string{"open": nil, "token": {"--auth-token", edgeToken}} {
		t.Run(name, func(t *testing.T) {
			p := newProc(t, "dev", append([]string{"--data", t.TempDir(), "--demo-speed", "3", "--demo-script",
				"quick"}, args...)...)
			p.start()
			t.Run("verification", func(t *testing.T) { pageVerification(t, p) })
			for _, flag := range []string{"", "false"} {
				t.Run("disabled "+flag, func(t *testing.T) { pageDisabled(t, p, flag) })
			}
			if args != nil {
				pageRefuses(t, p)
			}
		})
	}
}

func pageVerification(t *testing.T, p *proc) {
	steps := page(t, p, "verify.sh", edgeToken)
	var session struct{ ID string }
	if err := json.Unmarshal([]byte(steps["session.json"]), &session); err != nil ||
		!strings.HasPrefix(session.ID, "sess_") {
		t.Fatalf("session %q: %v", steps["session.json"], err)
	}
	if want := fmt.Sprintf("{\n  \"id\": %q,\n  \"incremental_streaming_enabled\": true,\n  \"status\": \"idle\"\n}\n",
		session.ID); steps["session.json"] != want {
		t.Errorf("session is\n%s", steps["session.json"])
	}
	if !strings.Contains(steps["sent.json"], `"type": "user.message"`) {
		t.Errorf("sent: %s", steps["sent.json"])
	}
	for _, step := range []string{"stream.txt", "thread_stream.txt"} {
		events := lines(t, steps[step])
		if got := sequence(events); !slices.Equal(got, pageIncrements) {
			t.Errorf("%s: %v", step, got)
		}
		said, deltas, id := "", 0, ""
		for _, e := range events {
			if strings.HasPrefix(e.Type, "agent.") && (e.MessageID == nil || id != "" && *e.MessageID != id) {
				t.Errorf("%s: message_id of %+v is not %q", step, e, id)
			} else if e.MessageID != nil {
				id = *e.MessageID
			}
			if e.Type == "agent.content_block_delta" {
				if e.Delta == nil || *e.Delta != "text_delta" || e.Text == nil || e.Index == nil || *e.Index != 0 {
					t.Fatalf("%s: %+v", step, e)
				}
				said, deltas = said+*e.Text, deltas+1
			}
		}
		if full := fullMessage(t, p, session.ID); said != pageReply || full != said || deltas < 3 {
			t.Errorf("%s: %d deltas say %q, the message %q", step, deltas, said, full)
		}
	}
	for _, step := range []string{"history.txt", "thread_history.txt"} {
		got := slices.Compact(strings.Fields(steps[step]))
		if want := []string{"agent.message_start", "agent.content_block_delta", "agent.message_stop"}; !slices.Equal(got, want) {
			t.Errorf("%s: %v", step, got)
		}
	}
}

// fullMessage is the text of the session's one agent.message.
func fullMessage(t *testing.T, p *proc, session string) string {
	t.Helper()
	body := get(t, p.url("/api/v1/cloud/sessions/"+session+"/events?types=agent.message"))
	var list struct {
		Data []struct {
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) != 1 || len(list.Data[0].Content) != 1 {
		t.Fatalf("messages: %s, %v", body, err)
	}
	return list.Data[0].Content[0].Text
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, resp.StatusCode, body, err)
	}
	return body
}

func pageDisabled(t *testing.T, p *proc, flag string) {
	steps := page(t, p, "disabled.sh", edgeToken, "FLAG="+flag)
	if steps["session.json"] != "{\n  \"incremental_streaming_enabled\": false\n}\n" {
		t.Errorf("session is %s", steps["session.json"])
	}
	for _, step := range []string{"stream.txt", "thread_stream.txt"} {
		if got := sequence(lines(t, steps[step])); !slices.Equal(got, pageFull) {
			t.Errorf("%s: %v", step, got)
		}
	}
	for _, step := range []string{"history.txt", "thread_history.txt"} {
		var events []pageLine
		for _, typ := range strings.Fields(steps[step]) {
			events = append(events, pageLine{Type: typ})
		}
		if got := sequence(events); !slices.Equal(got, pageFull) {
			t.Errorf("%s: %v", step, got)
		}
	}
}

// pageRefuses asks without the token.
func pageRefuses(t *testing.T, p *proc) {
	req, err := http.NewRequest(http.MethodPost, p.url("/api/v1/cloud/sessions"),
		strings.NewReader(`{"agent":"a","environment_id":"e"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer pat_of_somebody_else")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(string(body), `"authentication_error"`) {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
}
