package cli

import (
	"os"
	"strings"
	"sync"
	"time"
)

// reread is how old what was read of a secret's file may be.
const reread = time.Second

// Secret is a setting that may come from a file, the _FILE form of its environment variable. The file is read again, so
// that what is in it can be replaced while the process runs. It is safe for concurrent use.
type Secret struct {
	path string // "": the value is fixed

	mu    sync.Mutex
	value string
	at    time.Time // when the file was read
}

// NewSecret returns the secret of a flag whose environment variable is env. value is what was read at start: one that
// was given in another way stays.
func NewSecret(value, env string) *Secret {
	s := &Secret{value: value}
	path := os.Getenv(env + "_FILE")
	if path == "" {
		return s
	}
	text, err := os.ReadFile(path)
	if err == nil && trimEnd(text) == value {
		s.path = path
	}
	return s
}

// trimEnd returns a file's text without the line break at its end.
func trimEnd(text []byte) string { return strings.TrimRight(string(text), "\r\n") }

// Value returns the secret as it is now. While the file cannot be read, or is empty, it is what it was.
func (s *Secret) Value() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" || time.Since(s.at) < reread {
		return s.value
	}
	s.at = time.Now()
	text, err := os.ReadFile(s.path)
	if err == nil && trimEnd(text) != "" {
		s.value = trimEnd(text)
	}
	return s.value
}

// Lines returns the lines of the secret as it is now, without empty ones. While a secret is replaced, a file has two:
// the new one, then the one before.
func (s *Secret) Lines() (lines []string) {
	for line := range strings.Lines(s.Value()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
