package redact_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentstream/schema/redact"
)

// TestFileThatWasRenamed: a file of rules that another takes the place of is read again, although both have the same
// size and time, as files out of a package or an image have.
func TestFileThatWasRenamed(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "rules.json"), filepath.Join(dir, "next.json")
	made := time.Now().Add(-time.Hour)
	write := func(path, rule string) {
		text := `{"*":{"rules":[{"name":"` + rule + `","pattern":"secret"}]}}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, made, made); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "old")
	write(next, "new")
	f, err := redact.Open(redact.FileConfig{Path: path, Every: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if names := f.Of("acme").Names(); names[0] != "old" {
		t.Fatalf("rules %q", names)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	if names := f.Of("acme").Names(); names[0] != "new" {
		t.Errorf("rules %q after the file was replaced, want those of the other", names)
	}
}
