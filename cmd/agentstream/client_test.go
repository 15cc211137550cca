package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentstream/internal/testkit"

	"agentstream/cmd/agentstream/internal/cli"
)

// TestMain is the program itself where a test runs it as one.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if os.Getenv(asAgent) != "" {
		os.Exit(beAgent(os.Args[1:]))
	}
	testkit.Main(m)
}

// asProgram makes the test's own binary the program.
const asProgram = "BE_AGENTSTREAM"

// program returns a folder in which the program is called agentstream, and a function that runs it.
func program(t *testing.T) (folder string,
	call func(env []string, args ...string) (stdout, stderr string, status int)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	if err := os.Symlink(self, filepath.Join(folder, "agentstream")); err != nil {
		t.Fatal(err)
	}
	return folder, func(env []string, args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "agentstream"), args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append([]string{asProgram + "=1", "PATH=" + os.Getenv("PATH"),
			"HOME=" + folder}, env...), &out, &errs
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
}

func TestVersion(t *testing.T) {
	var b bytes.Buffer
	cmd := VersionCmd{Streams: cli.Streams{Out: &b}}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"agentstream", "go ", "nats-server", "nats.go"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
}
