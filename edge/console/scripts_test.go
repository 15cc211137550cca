package console_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"agentstream/internal/testkit"
)

// node runs a script of testdata; it returns what the script prints.
func node(t *testing.T, args ...string) []byte {
	t.Helper()
	program := testkit.Node(t)
	cmd := exec.CommandContext(t.Context(), program, args...) // a script of this folder
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s: %v\n%s%s", args, err, out, trouble.Bytes())
	}
	return out
}

// TestScripts runs what the page does without a browser: testdata/*.test.mjs.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	node(t, append([]string{"--test"}, files...)...)
}
