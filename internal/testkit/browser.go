package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// DOM returns what Chromium has made of a page after its scripts had budget, of virtual time. Without Chromium the test is skipped; where
// CI is set it fails.
func DOM(t testing.TB, url string, budget time.Duration) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
			fmt.Sprintf("--virtual-time-budget=%d", budget.Milliseconds()), "--dump-dom", url)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return string(out)
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium")
	}
	t.Skip("there is no Chromium")
	return ""
}
