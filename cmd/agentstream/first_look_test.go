package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// beside is what stands before a command in the right half of a block, and remark what may follow one.
var beside, remark = regexp.MustCompile(`(?:^|  +)\$ `), regexp.MustCompile(`  +# .*`)

// firstLook returns the commands of docs/first-look.md: after a $ at the beginning of a line, and in its right half. What
// a command reads follows up to END.
func firstLook(t *testing.T) (commands []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/first-look.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```\n(.*?)```\n").FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(block[1], "\\\n", "")
		for line := range strings.Lines(text) {
			for _, part := range beside.Split(strings.TrimRight(line, "\n"), -1)[1:] {
				command := strings.TrimSpace(remark.ReplaceAllString(part, ""))
				if _, body, _ := strings.Cut(text, line); strings.HasSuffix(command, "<<'END'") {
					body, _, _ = strings.Cut(body, "\nEND\n")
					command += "\n" + body + "\nEND"
				}
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// awaitSeq waits until a run has so many events.
func awaitSeq(t *testing.T, url string, seq int) {
	t.Helper()
	for {
		var info struct {
			Last int `json:"last_seq"`
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(res.Body).Decode(&info)
		if cerr := res.Body.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		if info.Last >= seq {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestFirstLook types what docs/first-look.md shows, as it stands there, beside a server with the demo's run.
func TestFirstLook(t *testing.T) {
	at := testkit.FreeAddr(t)
	dev(t, "curl", "--data", t.TempDir(), "--listen", at, "--demo-speed", "4")
	folder, _ := program(t)
	if err := os.Mkdir(filepath.Join(folder, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "agentstream"), filepath.Join(folder, "bin", "agentstream")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "my_agent.py"), []byte("print('an agent')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := func(line string) *exec.Cmd {
		line = strings.ReplaceAll(line, "127.0.0.1:8080", at)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "python() { python3 \"$@\"; }; "+line)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), asProgram+"=1", "HOME="+folder, "AGENTSTREAM_SERVER=http://"+at)
		return cmd
	}
	var watching []*exec.Cmd
	commands := firstLook(t)
	for _, line := range commands {
		if strings.HasSuffix(line, "/demo/stream") || strings.HasSuffix(line, "tail demo") { // they end with the run
			cmd := shell(line)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			watching = append(watching, cmd)
			continue
		}
		if strings.HasSuffix(line, "agentstream runs") { // the run is over by then
			for _, cmd := range watching {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %v", cmd.Args, err)
				}
			}
		}
		if strings.Contains(line, " pause demo") { // when it has come as far as on the page
			awaitSeq(t, "http://"+at+"/v1/agent/runs/demo", 150)
		}
		out, err := shell(strings.ReplaceAll(line, "record -- python ", "record -- python3 ")).CombinedOutput()
		for round := 0; err != nil && strings.Contains(line, " answer ") && round < 300; round++ { // it is not asked yet
			time.Sleep(100 * time.Millisecond)
			out, err = shell(line).CombinedOutput()
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if strings.Contains(line, "http_code") && strings.TrimSpace(string(out)) != "204" {
			t.Errorf("%s: %s", line, out)
		}
	}
	if len(watching) != 2 || len(commands) < 12 {
		t.Errorf("the page has %d commands, %d of which watch: %q", len(commands), len(watching), commands)
	}
}
