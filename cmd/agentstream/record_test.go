package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// asAgent makes the test's own binary an agent, which does what its arguments say.
const asAgent = "BE_AGENT"

// beAgent asks the model, repeats what failed as libraries do, and does what its arguments say.
func beAgent(steps []string) int {
	for _, step := range steps {
		verb, arg, _ := strings.Cut(step, ":")
		switch verb {
		case "ask":
			fmt.Println(askModel(arg))
		case "say":
			fmt.Fprintln(os.Stderr, os.ExpandEnv(arg))
		case "cat":
			_, _ = io.Copy(os.Stdout, os.Stdin)
		case "spawn":
			cmd := exec.Command(os.Args[0], strings.Split(arg, "+")...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				return 9
			}
		case "sleep":
			time.Sleep(time.Minute)
		case "interrupts": // how many come, and whether there is a terminal
			c := make(chan os.Signal, 8)
			signal.Notify(c, os.Interrupt)
			fmt.Fprintln(os.Stderr, "waits")
			<-c
			time.Sleep(200 * time.Millisecond) // for another one
			fmt.Println("interrupts", 1+len(c), term.IsTerminal(0), term.IsTerminal(1), term.IsTerminal(2))
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "exit":
			return int(arg[0] - '0')
		}
	}
	return 0
}

func askModel(text string) string {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)
	for n := range 3 {
		req, err := http.NewRequest(http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		req.Header.Set("X-Api-Key", os.Getenv("MODEL_KEY"))
		req.Header.Set("X-Stainless-Retry-Count", fmt.Sprint(n))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && bytes.Contains(got, []byte("good day")) {
			return "good day"
		}
	}
	return "no answer"
}

// flakyModel fails once with 529 and then without an answer, before it answers, where the question is "flaky".
func flakyModel(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	asked := 0
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		if bytes.Contains(body, []byte("flaky")) {
			asked++
		}
		n := asked
		mu.Unlock()
		switch {
		case !bytes.Contains(body, []byte("flaky")) || n > 2:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, modelSays)
		case n == 1:
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(up.Close)
	return up
}

// recorder records agents.
type recorder struct {
	t      *testing.T
	folder string
	env    []string
	client *agentstream.Client
}

// command returns record with an agent that does these steps.
func (r *recorder) command(args []string, steps ...string) (cmd *exec.Cmd, out, errs *clitest.LockedBuffer) {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	args = append(append([]string{"record"}, args...), "--", "env", "-u", asProgram, asAgent+"=1", self)
	cmd = exec.CommandContext(r.t.Context(), filepath.Join(r.folder, "agentstream"), append(args, steps...)...)
	cmd.Env = append([]string{asProgram + "=1", "PATH=" + os.Getenv("PATH"), "MODEL_KEY=sk-model-secret"}, r.env...)
	out, errs = &clitest.LockedBuffer{}, &clitest.LockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	return cmd, out, errs
}

// events returns what is stored of a run.
func (r *recorder) events(run string) (events []schema.Event) {
	r.t.Helper()
	page, err := r.client.Run(run).Events(r.t.Context(), agentstream.PageQuery{Limit: 1000})
	if err != nil {
		r.t.Fatalf("%s: %v", run, err)
	}
	return page.Events
}

// outline is a run's states with their reasons, and its model calls with their attempts.
func (r *recorder) outline(run string) string {
	r.t.Helper()
	var parts []string
	for _, e := range r.events(run) {
		var p struct {
			State, Reason string
			OK            bool
			Attempts      int
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			r.t.Fatal(err)
		}
		switch e.Type {
		case schema.TypeRunLifecycle:
			parts = append(parts, strings.TrimSpace(p.State+" "+p.Reason))
		case schema.TypeModelEnd:
			parts = append(parts, fmt.Sprintf("call %v %d", p.OK, max(1, p.Attempts)))
		}
	}
	return strings.Join(parts, ", ")
}

// TestRecord: a command's calls are one run, which ends as the command does; the command runs as it would alone.
func TestRecord(t *testing.T) {
	folder, call := program(t)
	data, at := t.TempDir(), testkit.FreeAddr(t)
	dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
	client, err := agentstream.New(agentstream.Config{BaseURL: "http://" + at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r := &recorder{t: t, folder: folder, client: client, env: []string{"ANTHROPIC_BASE_URL=" + flakyModel(t).URL}}
	for i, c := range []struct {
		steps     []string
		in        string
		signal    os.Signal
		status    int
		out, errs string
		want      string
	}{
		{steps: []string{"ask:flaky", "ask:again"}, out: "good day\ngood day\n",
			want: "running, call true 3, call true 1, done"},
		{steps: []string{"spawn:ask:one+spawn:ask:two", "ask:three"}, out: "good day\ngood day\ngood day\n",
			want: "running, call true 1, call true 1, call true 1, done"},
		{steps: []string{"ask:x", "say:bad key $MODEL_KEY", "exit:3"}, out: "good day\n", status: 3,
			errs: "bad key sk-model-secret\n", want: "running, call true 1, error bad key …"},
		{steps: []string{"ask:x", "kill"}, out: "good day\n", status: 137,
			want: "running, call true 1, error killed by SIGKILL"},
		{steps: []string{"exit:4"}, status: 4, want: "running, error exit status 4"},
		{steps: []string{"cat"}, in: "from the input", out: "from the input", want: "running, done"},
		{steps: []string{"ask:x", "say:waits", "sleep"}, signal: syscall.SIGINT, out: "good day\n", errs: "waits\n",
			status: 130, want: "running, call true 1, aborted interrupted by SIGINT"},
		{steps: []string{"say:waits", "sleep"}, signal: syscall.SIGTERM, errs: "waits\n", status: 143,
			want: "running, aborted interrupted by SIGTERM"},
	} {
		run := fmt.Sprint("run_", i)
		cmd, out, errs := r.command([]string{"--run", run, "--data", data, "--title", "No. " + run, "--tag", "a",
			"--tag", "b", "--metadata", "k=v"}, c.steps...)
		cmd.Stdin = strings.NewReader(c.in)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal has sent the signal to all
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if c.signal != nil {
			clitest.WaitFor(t, func() bool { return strings.Contains(errs.String(), "waits") })
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // the status is looked at
		if got := cmd.ProcessState.ExitCode(); got != c.status || out.String() != c.out ||
			!strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: status %d, out %q, errors %q", c.steps, got, out, errs)
		}
		if !strings.HasPrefix(errs.String(), fmt.Sprintf("agentstream: recording run %s: http://%s/console/#/run/%s\n",
			run, at, run)) {
			t.Errorf("%v: %q", c.steps, errs)
		}
		if got := r.outline(run); got != c.want {
			t.Errorf("%v: %s\nwant %s", c.steps, got, c.want)
		}
	}
	cmd, _, errs := r.command([]string{"--data", data})
	cmd.Args = append(cmd.Args[:4], "--", "no-such-command")
	_ = cmd.Run()
	if cmd.ProcessState.ExitCode() != 127 || !strings.Contains(errs.String(), "no-such-command") {
		t.Errorf("a command that is not there: %d %q", cmd.ProcessState.ExitCode(), errs)
	}
	for run, want := range map[string]int{"run_0": 0, "run_2": 1, "run_6": 2} {
		server := []string{"AGENTSTREAM_SERVER=http://" + at}
		out, _, plain := call(server, "tail", run)
		_, _, status := call(server, "tail", "--exit-status", run)
		if plain != 0 || status != want {
			t.Errorf("tail %s: status %d, and %d with --exit-status", run, plain, status)
		}
		if run == "run_0" && (!strings.Contains(out, "↻ attempt 1 failed: 529 overloaded_error: Overloaded\n") ||
			!strings.Contains(out, "↻ 3 attempts\n")) {
			t.Errorf("tail:\n%s", out)
		}
	}
	page, err := client.Runs(t.Context(), agentstream.RunsQuery{})
	if err != nil || len(page.Runs) != 8 {
		t.Fatalf("%d runs: %v", len(page.Runs), err)
	}
	for _, run := range page.Runs {
		if run.Title != "No. "+run.RunID || !slices.Equal(run.Tags, []string{"a", "b"}) || run.Metadata["k"] != "v" {
			t.Errorf("%+v", run)
		}
	}
}

// TestRecordTerminal: in a terminal the command has it for all of its streams, and Ctrl-C reaches it once.
func TestRecordTerminal(t *testing.T) {
	folder, _ := program(t)
	data, at := t.TempDir(), testkit.FreeAddr(t)
	dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
	r := &recorder{t: t, folder: folder}
	cmd, _, _ := r.command([]string{"--data", data}, "interrupts")
	cmd.Stdout, cmd.Stderr = nil, nil
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	seen := &clitest.LockedBuffer{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(seen, tty) // it ends with an error
	}()
	clitest.WaitFor(t, func() bool { return strings.Contains(seen.String(), "waits") })
	if _, err := tty.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	<-over
	if err != nil || !strings.Contains(seen.String(), "interrupts 1 true true true") {
		t.Errorf("%v\n%s", err, seen)
	}
}

// TestRecordAlone: without a server the parts of dev keep the run in a folder. A second command on the folder uses
// them, and loses nothing when the first one ends before it.
func TestRecordAlone(t *testing.T) {
	folder, _ := program(t)
	data := filepath.Join(t.TempDir(), "data")
	r := &recorder{t: t, folder: folder, env: []string{"ANTHROPIC_BASE_URL=" + flakyModel(t).URL,
		"AGENTSTREAM_SERVER=http://127.0.0.1:8080"}}
	first, _, said := r.command([]string{"--run", "first", "--data", data}, "ask:x", "say:waits", "sleep")
	second, _, heard := r.command([]string{"--run", "second", "--data", data}, "ask:x", "say:waits", "cat", "ask:y")
	in, err := second.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs := []*clitest.LockedBuffer{said, heard}
	for i, cmd := range []*exec.Cmd{first, second} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		clitest.WaitFor(t, func() bool { return strings.Contains(errs[i].String(), "waits") })
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	_ = in.Close()
	_ = second.Wait()
	if a, b := first.ProcessState.ExitCode(), second.ProcessState.ExitCode(); a != 143 || b != 0 {
		t.Fatalf("status %d and %d\n%s\n%s", a, b, said, heard)
	}
	at := testkit.FreeAddr(t)
	dev(t, "curl", "--no-demo", "--data", data, "--listen", at)
	r.client, err = agentstream.New(agentstream.Config{BaseURL: "http://" + at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	if got, want := r.outline("first"), "running, call true 1, aborted interrupted by SIGTERM"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := r.outline("second"), "running, call true 1, call true 1, done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
