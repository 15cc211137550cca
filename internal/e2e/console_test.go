package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/internal/natskit"
)

// TestConsole: in Chromium, what the console promises is on the screen: against dev with its demo agent, and signed in at two
// edges behind a proxy that cuts connections. No console error, nothing from elsewhere, no violation of axe-core's rules.
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
	profile, err := os.MkdirTemp(binDir, "profile") // Chromium may still write there when it is told to end
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "console.mjs") //nolint:gosec // node
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = jsDir
	cmd.Env = append(append(os.Environ(), "CHROMIUM="+chromium, "PROFILE="+profile, "SHOTS="+os.Getenv("AGENTSTREAM_SHOTS")), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || strings.Count(string(out), "\nok ")+1 < 10 {
		t.Errorf("the console: %v", err)
	}
}
