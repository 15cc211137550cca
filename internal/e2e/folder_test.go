package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/internal/testkit"
)

// TestOneProcessPerFolder starts dev on a folder that another one serves: it is told so, whatever way the folder is
// named, and touches nothing. The folder is free again at once when its owner was killed.
func TestOneProcessPerFolder(t *testing.T) {
	beside(t)
	data := t.TempDir()
	p := newProc(t, "dev", "--no-demo", "--data", data)
	p.start()
	say(t, p, "mine", 1)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	pid := p.cmd.Process.Pid
	for _, name := range []string{data, link} {
		out, code := ends(t, "dev", "--no-demo", "--data", name, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		if want := fmt.Sprintf("%s: in use by process %d since %d-", name, pid, time.Now().Year()); code != 1 ||
			!strings.Contains(out, want) {
			t.Errorf("a second process on %s: status %d, %q; want %q in it", name, code, out, want)
		}
	}
	say(t, p, "mine", 2)
	p.kill()
	p.start()
	if n := len(events(t, p.url("/v1/agent/runs/mine"))); n != 2 {
		t.Errorf("%d events after a kill, want 2", n)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("status %d", code)
	}
	p.start()
	say(t, p, "mine", 3)
}

// TestPortsBeforeFolder takes each port that dev wants: that is said at once, and the folder is not made.
func TestPortsBeforeFolder(t *testing.T) {
	beside(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	for _, flag := range []string{"--listen", "--admin-listen", "--nats-listen"} {
		data := filepath.Join(t.TempDir(), "data")
		args := []string{"dev", "--no-demo", "--data", data}
		for _, f := range []string{"--listen", "--admin-listen", "--nats-listen"} {
			if args = append(args, f); f == flag {
				args = append(args, p.addr)
			} else {
				args = append(args, testkit.FreeAddr(t))
			}
		}
		out, code := ends(t, args...)
		if code != 1 || !strings.Contains(out, flag) || !strings.Contains(out, "address already in use") {
			t.Errorf("%s: status %d, %q", flag, code, out)
		}
		if _, err := os.Stat(data); !os.IsNotExist(err) {
			t.Errorf("%s: the folder was touched: %v", flag, err)
		}
	}
}

// ends runs a command that ends by itself, and returns what it printed and its status.
func ends(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait() // the status says how it ended
	return out.String(), cmd.ProcessState.ExitCode()
}

// say appends an event without a key, and is told that it is the n-th.
func say(t *testing.T, p *proc, run string, n int) {
	t.Helper()
	resp, err := http.Post(p.url("/v1/agent/runs/"+run+"/events"), "application/json",
		strings.NewReader(`{"type":"custom.said","payload":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"first_seq":%d,"last_seq":%d}`, n, n); strings.TrimSpace(string(body)) != want {
		t.Fatalf("append %d to %s: %d %s", n, run, resp.StatusCode, body)
	}
}
