package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// DOM returns what Chromium has made of a page after its scripts had budget, of virtual time; with none, when the page
// has loaded. Without Chromium the test is skipped; where CI is set it fails.
func DOM(t testing.TB, url string, budget time.Duration) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + t.TempDir()}
		if budget > 0 {
			args = append(args, fmt.Sprintf("--virtual-time-budget=%d", budget.Milliseconds()))
		}
		cmd := exec.CommandContext(t.Context(), program, append(args, "--dump-dom", url)...) // a browser of the machine's
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

// Node returns the program that runs scripts. Without it the test is skipped; where CI is set it fails.
func Node(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("there is no Node")
	}
	return program
}
