package clitest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider/providertest"
)

// Join returns lines as one text, each ended by a line feed.
func Join(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// LockedBuffer is a buffer that is safe for concurrent use.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends b.
func (l *LockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written.
func (l *LockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// WaitFor polls for something that another process or goroutine does.
func WaitFor(t *testing.T, cond func() bool) {
	t.Helper()
	late := time.After(time.Minute) // a busy machine starts processes slowly
	for !cond() {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("did not happen within a minute")
		}
	}
}

// Text returns a text.delta as a line to publish.
func Text(s string) string { return fmt.Sprintf(`{"type":"text.delta","payload":{"text":%q}}`, s) }

// WriteFile returns the path of a file with this content.
func WriteFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Program builds the binary and returns its path.
func Program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentstream")
	if out, err := exec.Command("go", "build", "-o", path, "agentstream/cmd/agentstream").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// Recordings returns all recorded files by the format that they have.
func Recordings(t *testing.T) map[string][]string {
	t.Helper()
	anthropictest.Recordings(t) // skips, or fails where CI is true
	files := map[string][]string{}
	err := filepath.WalkDir(providertest.Dir(t), func(path string, d fs.DirEntry, err error) error {
		folder := filepath.Base(filepath.Dir(path))
		switch {
		case err != nil || d.IsDir() || folder == "recordings":
			return err
		case folder == "transcripts":
			folder = strings.Split(filepath.Base(path), ".")[1]
		}
		files[folder] = append(files[folder], path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
