package record

import (
	"regexp"
	"strings"
	"sync"
)

// tailBytes is how much of what was said last is kept, and mostReason how much of its last line is.
const (
	tailBytes  = 8 << 10
	mostReason = 500
)

// Tail keeps the end of what is written to it.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write keeps the end of b.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailBytes):]...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

var (
	// escapes move a terminal's cursor, change its colours or set its title.
	escapes = regexp.MustCompile(`\x1b(\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])`)
	// frames are what Node prints below an error. Its fields follow them, indented.
	frames = regexp.MustCompile(`^\s+at `)
	// trailers are the end of the fields, and Node's own version.
	trailers = regexp.MustCompile(`^([\s})\]]*|Node\.js v[0-9.]+.*)$`)
)

// Line returns the last line that says something, without escapes; "" where there is none.
func (t *Tail) Line() string {
	t.mu.Lock()
	text := escapes.ReplaceAllString(string(t.kept), "")
	t.mu.Unlock()
	text = strings.ToValidUTF8(text, "")
	last, below := "", false
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		below = below && strings.HasPrefix(line, " ") || frames.MatchString(line)
		if !below && !trailers.MatchString(line) {
			last = line
		}
	}
	last = strings.TrimSpace(strings.Map(printable, last))
	if runes := []rune(last); len(runes) > mostReason {
		return string(runes[:mostReason]) + "…"
	}
	return last
}

// printable leaves out the controls that are left.
func printable(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f {
		return -1
	}
	return r
}
