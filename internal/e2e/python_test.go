package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// pyClient is the Python client; make python installs it, with what its tests need, into its .venv.
const pyClient = "../../clients/python"

// needPython makes sure that the scripts of python can run, and returns the interpreter.
func needPython(t testing.TB) string {
	t.Helper()
	python, err := filepath.Abs(filepath.Join(pyClient, ".venv/bin/python"))
	if err == nil {
		_, err = os.Stat(python)
	}
	if err == nil {
		return python
	}
	const hint = "the Python client is not installed; install Python (3.10 or newer) with its venv, then: make python"
	if os.Getenv("CI") == "true" {
		t.Fatal(hint)
	}
	t.Skip("NOT TESTED: " + hint)
	return ""
}

// pythonScript is a script of the folder python.
func pythonScript(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join("..", pyClient, ".venv/bin/python"), args...)
	cmd.Dir = "python"
	return cmd
}

// TestPython runs the tests of the Python client that need a server: what is written through a proxy that cuts answers
// after they were stored, what is read through one that cuts streams, questions and plans, and the examples. In the
// long form there are more cuts.
func TestPython(t *testing.T) {
	beside(t)
	python := needPython(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "live")
	cmd.Dir = pyClient
	cmd.Env = append(os.Environ(), "AGENTSTREAM_SERVER="+p.url(""), "CUTS="+strconv.FormatInt(wantCuts(), 10),
		"AGENTSTREAM_PROGRAM="+filepath.Join(binDir, "agentstream"))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "skipped") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(strings.TrimSpace(string(out)))
}
