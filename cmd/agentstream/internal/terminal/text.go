package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Sanitize makes text from outside safe for a terminal: nothing in it can move the cursor, change
// colours, set titles or turn the reading direction round. Control characters show as their
// pictures, line breaks and all. Invisible ones that carry meaning in scripts and emoji stay.
func Sanitize(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return Hostile(r) || r == '\n' || r == '\t' || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ")
		case Hostile(r) || r == '\n':
			b.WriteString(Picture(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hostile runes act on a terminal or on the direction of reading. Line feed and tab are the
// caller's business.
func Hostile(r rune) bool {
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

// Picture is what a person sees instead of a hostile rune.
func Picture(r rune) string {
	switch {
	case r < 0x20:
		return string(0x2400 + r)
	case r == 0x7f:
		return "\u2421"
	}
	return fmt.Sprintf("<U+%04X>", r)
}

// RuneColumns is how many columns of a terminal a rune takes.
func RuneColumns(r rune) int {
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

// Columns returns how many columns of a terminal a text takes.
func Columns(s string) (n int) {
	for _, r := range s {
		n += RuneColumns(r)
	}
	return n
}

// Clip shortens text to at most most runes and adds how much there was.
func Clip(s string, most int) string {
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "… (" + ByteCount(int64(len(s))) + ")"
		}
		n++
	}
	return s
}

// ByteCount returns a number of bytes for people, in units of 1000.
func ByteCount(n int64) string {
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

// maxReasonShown bounds a reason in a table, in runes.
const maxReasonShown = 60

// Shorten cuts a text to what a column of a table holds.
func Shorten(s string) string {
	if r := []rune(s); len(r) > maxReasonShown {
		return strings.TrimRight(string(r[:maxReasonShown-1]), " ") + "…"
	}
	return s
}
