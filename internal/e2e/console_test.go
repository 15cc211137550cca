package e2e_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
)

// TestConsole: in Chromium, what the console promises is on the screen: against dev with its demo agent, and signed in
// at two edges behind a proxy that cuts connections. No console error, nothing from elsewhere, no violation of
// axe-core's rules.
func TestConsole(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	for _, p := range []string{"puppeteer-core", "axe-core"} {
		if _, err := os.Stat(filepath.Join(jsDir, "node_modules", p)); err != nil {
			missing(t, "the npm package "+p+" is not installed in "+jsDir)
		}
	}
	t.Run("dev", func(t *testing.T) {
		p := newProc(t, "dev", "--data", t.TempDir(), "--demo-script", "quick", "--demo-speed", "4")
		p.start()
		consoleChecks(t, node, chromium, "BASE="+p.url(""), "AGENT=true")
	})
	t.Run("edges", func(t *testing.T) {
		w := edgesFor(t, "http://page.example")
		nc, err := natskit.Dial(w.nats, "console")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Request("agent.0.default.poisoned.-", []byte("no pack"), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		consoleChecks(t, node, chromium, "TOKEN="+edgeToken, "EDGES="+w.edges[0].addr+","+w.edges[1].addr)
	})
}

// consoleChecks runs console.mjs, which prints a line for each of its checks.
func consoleChecks(t *testing.T, node, chromium string, env ...string) {
	t.Helper()
	out, err := runNode(t, node, chromium, "console.mjs", env...)
	if err != nil || strings.Count(out, "\nok ")+1 < 15 {
		t.Errorf("the console: %v", err)
	}
}

// runNode runs a script with a browser of its own, and logs what it prints.
func runNode(t *testing.T, node, chromium, script string, env ...string) (string, error) {
	t.Helper()
	profile, err := os.MkdirTemp(binDir, "profile") // Chromium may still write there when it is told to end
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, script) // node
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = jsDir
	cmd.Env = append(append(os.Environ(), "CHROMIUM="+chromium, "PROFILE="+profile,
		"SHOTS="+os.Getenv("AGENTSTREAM_SHOTS")), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	return string(out), err
}

// TestConsoleOfALongRun: a long run is opened from its newest events on, and followed, with a bounded number of
// elements. AGENTSTREAM_LONG is events,seconds,rate (make console-figures).
func TestConsoleOfALongRun(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	long := strings.Split(cmp.Or(os.Getenv("AGENTSTREAM_LONG"), "60000,3,200"), ",")
	if len(long) != 3 {
		t.Fatal("AGENTSTREAM_LONG is not events,seconds,rate")
	}
	p := newProc(t, "dev", "--data", t.TempDir(), "--no-demo")
	p.start()
	out, err := runNode(t, node, chromium, "long.mjs", "BASE="+p.url(""), "EVENTS="+long[0], "SECONDS="+long[1],
		"RATE="+long[2])
	if err != nil || strings.Count(out, "heap ") != 2 {
		t.Errorf("a long run: %v", err)
	}
}
