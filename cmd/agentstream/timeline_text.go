package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Screen is what is known about where the output goes.
type Screen struct {
	Terminal bool       // the cursor can be moved: text is wrapped at words as it comes
	Color    bool       // styles may be used
	Width    func() int // columns, asked before each paragraph; nil or 0 never wraps
}

// screenOf looks at the output and at the environment: NO_COLOR (no-color.org) and TERM=dumb.
func screenOf(out io.Writer, env func(string) (string, bool)) Screen {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{}
	}
	if name, _ := env("TERM"); name == "dumb" {
		return Screen{}
	}
	noColor, _ := env("NO_COLOR")
	return Screen{Terminal: true, Color: noColor == "", Width: func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return w
	}}
}

// sanitize makes text from outside safe for a terminal: nothing in it can move the cursor, change
// colours, set titles or turn the reading direction round. Control characters show as their
// pictures, line breaks and all. Invisible ones that carry meaning in scripts and emoji stay.
func sanitize(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return hostile(r) || r == '\n' || r == '\t' || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ")
		case hostile(r) || r == '\n':
			b.WriteString(picture(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hostile runes act on a terminal or on the direction of reading. Line feed and tab are the
// caller's business.
func hostile(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0: // C0, delete, C1
		return true
	case r == 0x61c || r == 0x200e || r == 0x200f, // direction marks
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x206f, // embeddings, overrides, isolates
		r == 0x2028 || r == 0x2029,   // line and paragraph separator
		r >= 0xfff9 && r <= 0xfffb,   // interlinear annotation
		r >= 0xe0000 && r <= 0xe007f: // tags: text that nobody sees
		return true
	}
	return false
}

// picture is what a person sees instead of a hostile rune.
func picture(r rune) string {
	switch {
	case r < 0x20:
		return string(0x2400 + r)
	case r == 0x7f:
		return "\u2421"
	}
	return fmt.Sprintf("<U+%04X>", r)
}

// runeColumns is how many columns of a terminal a rune takes.
func runeColumns(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func columns(s string) (n int) {
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// clip shortens text to at most most runes and says how much there was.
func clip(s string, most int) string {
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "… (" + byteCount(int64(len(s))) + ")"
		}
		n++
	}
	return s
}

// clipLines keeps the first lines of a text.
func clipLines(s string, most int) string {
	s = strings.TrimRight(s, "\r\n")
	lines := strings.SplitN(s, "\n", most+1)
	if len(lines) <= most {
		return s
	}
	return strings.Join(lines[:most], "\n") + fmt.Sprintf("\n… %d more lines", 1+strings.Count(lines[most], "\n"))
}

// compactJSON puts a value on one line; damaged JSON comes as it is.
func compactJSON(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}

// arguments writes a tool's input the way a call is written: name=value, in their order.
func arguments(v json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(v))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return compactJSON(v)
	}
	var b strings.Builder
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return compactJSON(v)
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%s", name, compactJSON(value))
	}
	return b.String()
}

// plain returns a string's text, and any other value as JSON on one line.
func plain(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return compactJSON(v)
}

func byteCount(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// clock prints an offset within nine columns up to a hundred hours.
func clock(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%s%.3fs", sign, d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%s%dm%04.1fs", sign, int(d.Minutes()), (d % time.Minute).Truncate(100*time.Millisecond).Seconds())
	}
	return fmt.Sprintf("%s%dh%02dm%02ds", sign, int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}
