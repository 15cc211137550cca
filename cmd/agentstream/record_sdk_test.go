package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
)

// Answers of the two providers: one that wants a tool, and one that is given after its result.
var (
	anthropicCalls = anthropicAnswer(`{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}`,
		`{"type":"input_json_delta","partial_json":"{}"}`, "tool_use")
	anthropicSays = anthropicAnswer(`{"type":"text","text":""}`, `{"type":"text_delta","text":"good day"}`, "end_turn")
)

const openaiChunk = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}` + "\n\n"

// toolModel is both providers. Each question fails with 529, then without an answer, before a tool is wanted.
func toolModel(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]int{}
	question := regexp.MustCompile(`question-\w+`)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		name := string(question.Find(body))
		answered := bytes.Contains(body, []byte("tool_result")) || bytes.Contains(body, []byte(`"tool_call_id"`))
		mu.Lock()
		asked[name]++
		n := asked[name]
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		openai := strings.HasSuffix(r.URL.Path, "/chat/completions")
		switch {
		case n == 1:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		case n == 2:
			panic(http.ErrAbortHandler)
		case openai && !answered:
			_, _ = fmt.Fprintf(w, openaiChunk+openaiChunk+"data: [DONE]\n\n",
				`{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}`, "null", "{}", `"tool_calls"`)
		case openai:
			_, _ = fmt.Fprintf(w, openaiChunk+openaiChunk+"data: [DONE]\n\n",
				`{"role":"assistant","content":"good day"}`, "null", "{}", `"stop"`)
		case !answered:
			_, _ = io.WriteString(w, anthropicCalls)
		default:
			_, _ = io.WriteString(w, anthropicSays)
		}
	}))
	t.Cleanup(up.Close)
	return up
}

// TestRecordLibraries: a tool loop with the official libraries, whose first call fails twice, is one run with the right
// end. AGENTSTREAM_SDK_PYTHON names a Python with the packages openai and anthropic, which are run too (make
// record-sdks).
func TestRecordLibraries(t *testing.T) {
	folder, _ := program(t)
	scripts, err := filepath.Abs("../../internal/e2e/js")
	if err != nil {
		t.Fatal(err)
	}
	agents := map[string][]string{}
	if _, err := os.Stat(filepath.Join(scripts, "node_modules", "openai")); err == nil || os.Getenv("CI") == "true" {
		agents["node"] = []string{testkit.Node(t), filepath.Join(scripts, "record.mjs")}
	}
	if python := os.Getenv("AGENTSTREAM_SDK_PYTHON"); python != "" {
		agents["python"] = []string{python, filepath.Join(scripts, "record.py")}
	}
	if len(agents) == 0 {
		t.Skip("make install-js has not been run")
	}
	data, at := t.TempDir(), testkit.FreeAddr(t)
	dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
	client, err := agentstream.New(agentstream.Config{BaseURL: "http://" + at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	up := toolModel(t).URL
	env := []string{"ANTHROPIC_BASE_URL=" + up, "OPENAI_BASE_URL=" + up + "/v1", "ANTHROPIC_API_KEY=sk-a",
		"OPENAI_API_KEY=sk-o"}
	r := &recorder{t: t, folder: folder, client: client, env: env}
	for language, agent := range agents {
		for _, library := range []string{"anthropic", "openai"} {
			for what, want := range map[string]string{
				"loop":  "running, call true 3, call true 1, done",
				"child": "running, call true 3, call true 1, done",
				"crash": "running, call true 3, error ",
				"wait":  "running, call true 3, aborted interrupted by SIGINT",
			} {
				run := strings.Join([]string{language, library, what}, "_")
				args := append([]string{"record", "--run", run, "--data", data, "--"},
					append(agent, library, what, "question-"+run)...)
				cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "agentstream"), args...)
				cmd.Env = append([]string{asProgram + "=1", "PATH=" + os.Getenv("PATH")}, env...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal has sent the signal to all
				out, errs := &clitest.LockedBuffer{}, &clitest.LockedBuffer{}
				cmd.Stdout, cmd.Stderr = out, errs
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if what == "wait" {
					clitest.WaitFor(t, func() bool { return strings.Contains(errs.String(), "waits") })
					_ = cmd.Process.Signal(syscall.SIGINT) // it runs
				}
				_ = cmd.Wait() // the status is looked at
				good := what == "loop" || what == "child"
				if got := r.outline(run); !strings.HasPrefix(got, want) || good != (cmd.ProcessState.ExitCode() == 0) ||
					good != (out.String() == "good day\n") {
					t.Errorf("%s: %s\nwant %s\nstatus %d, out %q, errors %s", run, got, want, cmd.ProcessState.ExitCode(), out, errs)
				}
				if what == "crash" && !strings.Contains(r.outline(run), "the tool is broken") && language == "python" {
					t.Errorf("%s: %s", run, r.outline(run))
				}
			}
		}
	}
	page, err := client.Runs(t.Context(), agentstream.RunsQuery{})
	if err != nil || len(page.Runs) != 8*len(agents) {
		t.Errorf("%d runs, %v", len(page.Runs), err)
	}
}
