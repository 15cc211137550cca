package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/internal/testkit"
)

// dev starts the program as dev, and returns what it prints up to the line that begins with last.
func dev(t *testing.T, last string, args ...string) (printed string) {
	t.Helper()
	return devLogged(t, &clitest.LockedBuffer{}, last, args...)
}

// devLogged is dev with its log.
func devLogged(t *testing.T, log *clitest.LockedBuffer, last string, args ...string) (printed string) {
	t.Helper()
	folder, _ := program(t)
	cmd := exec.Command(filepath.Join(folder, "agentstream"), append([]string{"dev", "--admin-listen", "off"}, args...)...)
	cmd.Env = []string{asProgram + "=1", "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("dev: %v\n%s", err, log.String())
		}
		if token := regexp.MustCompile(`token +(\S+)`).FindStringSubmatch(printed); token != nil &&
			strings.Contains(log.String(), token[1]) {
			t.Error("the log has the token")
		}
	})
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		printed += line
		if err != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("dev ended: %s", printed)
		}
		if strings.HasPrefix(strings.TrimSpace(line), last) {
			return printed
		}
	}
}

// get asks a server with a bearer token.
func get(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}

// TestDevForOthers: served to other machines, dev makes a token at the first start, prints it, and keeps it for the
// next.
func TestDevForOthers(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	var tokens []string
	for range 2 {
		t.Run("start", func(t *testing.T) {
			port := testkit.FreePort(t)
			printed := dev(t, "token", "--no-demo", "--data", data, "--listen", fmt.Sprintf("0.0.0.0:%d", port))
			m := regexp.MustCompile(`console +(\S+)\n +curl +curl -N -H 'Authorization: Bearer (\S+)' (\S+)\n +token +(\S+) `).FindStringSubmatch(printed)
			if m == nil || m[2] != m[4] {
				t.Fatalf("printed:\n%s", printed)
			}
			tokens = append(tokens, m[4])
			if strings.Contains(m[1], m[4]) {
				t.Error("the token is in an address")
			}
			if page, none, with := get(t, m[1], ""), get(t, m[3], ""), get(t, m[3], m[4]); page != 200 || none != 401 ||
				with != 200 {
				t.Errorf("page %d, without the token %d, with it %d", page, none, with)
			}
		})
	}
	if len(tokens) != 2 || tokens[0] != tokens[1] || len(tokens[0]) < 20 {
		t.Errorf("tokens %q", tokens)
	}
	if info, err := os.Stat(filepath.Join(data, "token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestDevIsQuiet: behind the addresses that dev prints nothing scrolls them away: requests are logged at the level
// debug.
func TestDevIsQuiet(t *testing.T) {
	for level, want := range map[string]bool{"info": false, "debug": true} {
		at := testkit.FreeAddr(t)
		log := &clitest.LockedBuffer{}
		devLogged(t, log, "curl", "--no-demo", "--data", t.TempDir(), "--listen", at, "--level", level)
		// The last line before the addresses; a goroutine copies what the server logs.
		clitest.WaitFor(t, func() bool { return strings.Contains(log.String(), "durability claim in force") })
		before := log.String()
		if get(t, "http://"+at+"/v1/agent/runs", "") != http.StatusOK {
			t.Error("not served")
		}
		if want {
			clitest.WaitFor(t, func() bool { return strings.Contains(log.String(), "msg=request") })
		} else if after := log.String(); after != before || strings.Contains(after, "msg=request") {
			t.Errorf("behind the addresses comes %s", strings.TrimPrefix(after, before))
		}
	}
}

// TestPrintedCurl: the command that dev and demo print watches, whether the server asks for a credential or not.
func TestPrintedCurl(t *testing.T) {
	printed := regexp.MustCompile(`(?m)^  (?:curl|watch)    ? ?(curl -N .*)$`)
	for name, token := range map[string]string{"open": "", "signed": "a-token-of-at-least-16"} {
		t.Run(name, func(t *testing.T) {
			at := testkit.FreeAddr(t)
			args := []string{"--no-demo", "--data", t.TempDir(), "--listen", at}
			if token != "" {
				args = append(args, "--auth-token", token)
			}
			banner := dev(t, "curl", args...)
			_, call := program(t)
			played, errs, status := call([]string{"AGENTSTREAM_SERVER=http://" + at, "AGENTSTREAM_TOKEN=" + token},
				"demo", "--script", "quick", "--speed", "50")
			if status != 0 {
				t.Fatalf("demo: %s", errs)
			}
			for what, text := range map[string]string{"dev": banner, "demo": played} {
				m := printed.FindStringSubmatch(text)
				if m == nil || token != "" && strings.Contains(text, token) {
					t.Fatalf("%s has printed %q", what, text)
				}
				// as printed
				clitest.WaitFor(t, func() bool { // the archive has a run a moment after it was published
					cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(m[1], "curl -N", "curl -sS --fail -N", 1))
					cmd.Env = append(os.Environ(), "AGENTSTREAM_TOKEN="+token)
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Fatalf("%s: %s: %v: %s", what, m[1], err, out)
					}
					return strings.Contains(string(out), "run_id")
				})
			}
		})
	}
}

// TestDemoPlays: the demo is played into a server from outside, and obeys it.
func TestDemoPlays(t *testing.T) {
	at := testkit.FreeAddr(t)
	printed := dev(t, "curl", "--no-demo", "--data", t.TempDir(), "--listen", at)
	if !strings.Contains(printed, "http://"+at+"/console/#/runs\n") || strings.Contains(printed, "token") {
		t.Errorf("printed %q", printed)
	}
	_, call := program(t)
	server := []string{"AGENTSTREAM_SERVER=http://" + at}
	if out, errs, status := call(server, "runs"); out != "" || status != 0 || !strings.Contains(errs, "no runs yet") {
		t.Errorf("runs: %d %q %q", status, out, errs)
	}
	out, errs, status := call(server, "demo", "--run", "d1", "--script", "quick", "--speed", "50")
	if status != 0 || !strings.HasPrefix(out, "run=d1\n") || !strings.Contains(out, "http://"+at+"/console/#/run/d1\n") {
		t.Fatalf("demo: %d %q %q", status, out, errs)
	}
	listed := func(state, run string) { // the list lags a moment after the log
		for out := ""; !strings.Contains(out, `"run_id":"`+run+`","state":"`+state+`"`); {
			out, _, _ = call(server, "run", "list", "--json")
		}
	}
	listed("done", "d1")
	if _, errs, status := call(server, "demo", "--run", "d1"); status != 1 || !strings.Contains(errs, "exists already") {
		t.Errorf("again: %d %q", status, errs)
	}
	// It waits for its plan: the command is obeyed, and the run ends.
	ended := make(chan string)
	go func() {
		out, errs, status := call(server, "demo", "--run", "d2", "--script", "plan", "--speed", "50", "--json")
		ended <- fmt.Sprint(status, out, errs)
	}()
	listed("awaiting_approval", "d2")
	if _, errs, status := call(server, "run", "approve", "d2"); status != 0 {
		t.Fatalf("approve: %s", errs)
	}
	if said := <-ended; !strings.HasPrefix(said, `0{"console":`) {
		t.Errorf("demo: %s", said)
	}
}
