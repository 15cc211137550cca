package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
)

// serving is what the servers among the commands log when they serve. The test ends them then.
var serving = map[string]string{"dev": "dev: serving", "edge": "edge: serving", "persist": "persist: writing",
	"worker": "worker: answering", "proxy": "proxy: serving", "tap run": "tap: delivering", "demo": ""}

// absent are the commands whose examples name what a new deployment does not have, or need one that is empty: they say so,
// and the status is 1.
var absent = map[string]string{"deadletters retry": "4f2a", "deadletters drop": "4f2a",
	"tap deadletters retry": "4f2a", "tap deadletters drop": "4f2a",
	"delete run": "nothing is known of it", "restore": "restore into servers without it",
	"import": "the deployment has other events"}

const proposed = `{"type":"run.lifecycle","payload":{"state":"planning"}}
{"type":"plan.proposal","payload":{"plan":{"id":"ID","steps":[{"id":"1","title":"Go on"}]}}}
{"type":"run.lifecycle","payload":{"state":"awaiting_approval"}}`

// scenes are what must have happened in the run demo before a command.
var scenes = map[string]string{
	"run answer":   `{"type":"input.requested","payload":{"request_id":"req_1","prompt":"Shall it?","options":["yes","no"]}}`,
	"run approve":  strings.ReplaceAll(proposed, "ID", "p"),
	"run reject":   strings.ReplaceAll(proposed, "ID", "q"),
	"run pause":    `{"type":"run.lifecycle","payload":{"state":"running"}}`,
	"run resume":   `{"type":"run.lifecycle","payload":{"state":"paused"}}`,
	"run redirect": `{"type":"run.lifecycle","payload":{"state":"running"}}`,
	"run tail":     `{"type":"run.lifecycle","payload":{"state":"done"}}`,
}

// examplesHouse is what a person has who types examples: a folder, a deployment, and an agent.
type examplesHouse struct {
	t      *testing.T
	folder string
	url    string // of an edge
	env    []string
	names  *strings.Replacer // of the examples' machines
	admin  string            // of the database: an administrator's connection
}

func newExamplesHouse(t *testing.T) *examplesHouse {
	t.Helper()
	folder, _ := program(t)
	nats, err := natskit.Serve(natskit.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nats.Shutdown(); nats.WaitForShutdown() })
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(sink.Close)
	listen, admin := testkit.FreeAddr(t), testkit.FreeAddr(t)
	database := testkit.Postgres(t)
	dsn := testkit.GiveToOwner(t, database)
	h := &examplesHouse{t: t, folder: folder, url: "http://" + listen, admin: database}
	h.env = []string{asProgram + "=1", "PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + folder,
		"AGENTSTREAM_SERVER=" + h.url, "AGENTSTREAM_NATS=" + nats.ClientURL(), "AGENTSTREAM_POSTGRES=" + dsn,
		"AGENTSTREAM_BLOBS=" + filepath.Join(folder, "blobs"), "AGENTSTREAM_TAP_ALLOW_PRIVATE=true"}
	h.names = strings.NewReplacer("nats://nats:4222", nats.ClientURL(), "postgres://db/agentstream", "'"+dsn+"'",
		"http://127.0.0.1:8080", h.url, "https://runs.example.com", h.url,
		"https://audit.example.com", sink.URL, "0.0.0.0:8080", "0.0.0.0:0", " /backups/", " "+folder+"/backups/", "--auth-token secret", "--auth-token a-secret-of-16-bytes")
	h.run("migrate")
	h.begin(admin, "edge", "--insecure-no-auth", "--listen", listen)
	h.begin("off", "persist")
	h.env = append(h.env, "AGENTSTREAM_LISTEN=127.0.0.1:0", "AGENTSTREAM_ADMIN_LISTEN="+admin)
	if err := os.Mkdir(filepath.Join(folder, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	const key = "1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
	for name, text := range map[string]string{"keys/globex.key": key, "keys/initech.key": key, "my_agent.py": "", "agent": "#!/bin/sh\n", "npm": "#!/bin/sh\n", "token": "x",
		"rules.json":    `{"*":{"rules":[{"name":"card","known":["cards"]}]}}`,
		"python":        "#!/bin/sh\n",
		"events.ndjson": `{"type":"run.lifecycle","payload":{"state":"done"}}` + "\n", "recording.sse": modelAnswer} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// command returns a process of the program, in a folder of its own.
func (h *examplesHouse) command(out io.Writer, line string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", line) // it outlives the test's context: see begin
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = h.folder, h.env, out, out
	return cmd
}

// run runs a command to its end, and returns what it prints.
func (h *examplesHouse) run(line string) (out string, status int) {
	h.t.Helper()
	var b bytes.Buffer
	cmd := h.command(&b, "agentstream "+line)
	words := strings.Fields(line)
	cmd.Stdin = strings.NewReader(words[len(words)-1] + "\n") // what deletes asks for the name of what is to go
	_ = cmd.Run()                                             // the status says it
	if cmd.ProcessState == nil {
		h.t.Fatalf("%s has not run", line)
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// begin starts a server, which ends with the test.
func (h *examplesHouse) begin(admin string, args ...string) {
	h.t.Helper()
	stop := h.await("agentstream "+strings.Join(args, " ")+" --admin-listen "+admin, serving[args[0]])
	h.t.Cleanup(stop)
}

// await starts a process, waits until it logs something, and returns what ends it.
func (h *examplesHouse) await(line, until string) (stop func()) {
	h.t.Helper()
	log := &clitest.LockedBuffer{}
	cmd := h.command(log, "exec "+line)
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	for log.String() == "" || !strings.Contains(log.String(), until) {
		select {
		case err := <-ended:
			h.t.Fatalf("%s ended: %v\n%s", line, err, log.String())
		case <-ctx.Done():
			h.t.Fatalf("%s does not serve:\n%s", line, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil && until != "" {
			h.t.Errorf("%s: %v\n%s", line, err, log.String())
		}
	}
}

// happen writes events into the run demo.
func (h *examplesHouse) happen(events string) {
	h.t.Helper()
	res, err := http.Post(h.url+"/v1/agent/runs/demo/events", "application/x-ndjson", strings.NewReader(events))
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		h.t.Fatalf("%s: %s", events, text)
	}
}

// TestExamplesRun types what the help of every command shows, as it stands there but for the names of machines.
func TestExamplesRun(t *testing.T) {
	h := newExamplesHouse(t)
	h.happen(strings.Repeat(`{"type":"progress","payload":{"done":1}}`+"\n", 120) + // as many as the demo has, and more
		`{"type":"run.lifecycle","payload":{"state":"running"}}`)
	order := []string{"run say", "run answer", "run approve", "run reject", "run pause", "run resume", "run redirect",
		"run update", "run cancel", "run tail", "run replay"}
	last := []string{"tap remove", "delete run", "delete tenant"}
	order = append(order, "publish", "tap run")
	for _, path := range slices.Sorted(maps.Keys(examples)) {
		if !slices.Contains(order, path) && !slices.Contains(last, path) {
			order = append(order, path)
		}
	}
	for _, path := range append(order, last...) {
		if scenes[path] != "" {
			h.happen(scenes[path])
		}
		for _, line := range examples[path] {
			typed := h.names.Replace(line)
			if until, is := serving[path]; is {
				h.await(typed+h.more(path), until)()
				continue
			}
			args, isPlain := strings.CutPrefix(typed, "agentstream ")
			if !isPlain { // source <(agentstream …)
				args = "version; " + typed
			}
			if path == "backup" || path == "restore" { // row security hides rows from others
				args = "version >/dev/null; AGENTSTREAM_POSTGRES='" + h.admin + "' agentstream " + args
			}
			out, status := h.run(args)
			for round := 0; status == 1 && path == "archive run" && round < 100; round++ { // it is not stored yet
				out, status = h.run(args)
			}
			what := absent[path]
			if status != 0 && (what == "" || status != 1 || !strings.Contains(out, what)) {
				t.Errorf("%s: status %d\n%s", line, status, out)
			}
		}
	}
}

// more are flags that keep two servers of a machine apart.
func (h *examplesHouse) more(path string) string {
	switch path {
	case "dev":
		return " --admin-listen off"
	case "edge", "persist", "worker", "proxy", "tap run":
		return " --admin-listen off --level info"
	}
	return ""
}
