package redact

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxUnescapes bounds how often the escapes of a text are undone.
const maxUnescapes = 4

// unescapedText is a text whose escapes are undone once or more, and where its bytes came from.
type unescapedText struct {
	b  []byte
	at []int // of each byte, and of the end; nil: the text is as it came
}

func (v unescapedText) origin(i int) int {
	if v.at == nil {
		return i
	}
	return v.at[i]
}

// unescape undoes one level of escapes: those of JSON and JavaScript, of URLs, and numbers of HTML. false: there are
// none.
func (v unescapedText) unescape() (next unescapedText, more bool) {
	if bytes.IndexByte(v.b, '\\') < 0 && bytes.IndexByte(v.b, '%') < 0 && !bytes.Contains(v.b, []byte("&#")) {
		return v, false
	}
	next = unescapedText{make([]byte, 0, len(v.b)), make([]int, 0, len(v.b)+1)}
	for i := 0; i < len(v.b); {
		r, n := escapeAt(v.b[i:])
		if n == 0 {
			r, n = 0, 1
			next.b = append(next.b, v.b[i])
		} else {
			next.b, more = utf8.AppendRune(next.b, r), true
		}
		for len(next.at) < len(next.b) {
			next.at = append(next.at, v.origin(i))
		}
		i += n
	}
	next.at = append(next.at, v.origin(len(v.b)))
	return next, more
}

// escapeAt reads the escape that a text begins with. n is 0 where there is none.
func escapeAt(b []byte) (r rune, n int) {
	switch {
	case len(b) < 2:
	case b[0] == '\\':
		switch c := b[1]; c {
		case 'u':
			return number(b, 2, 4)
		case 'x':
			return number(b, 2, 2)
		case '/', '\\', '"', '\'':
			return rune(c), 2
		}
	case b[0] == '%':
		return number(b, 1, 2)
	case b[0] == '&' && b[1] == '#':
		return entity(b)
	}
	return 0, 0
}

// number reads so many hexadecimal digits.
func number(b []byte, from, digits int) (rune, int) {
	if len(b) < from+digits {
		return 0, 0
	}
	v, err := strconv.ParseUint(string(b[from:from+digits]), 16, 32)
	if err != nil || digits == 2 && v >= utf8.RuneSelf {
		return 0, 0
	}
	return rune(v), from + digits
}

// maxEntity bounds a number of HTML, in bytes.
const maxEntity = 10

func entity(b []byte) (rune, int) {
	end := bytes.IndexByte(b[:min(len(b), maxEntity)], ';')
	if end < 3 {
		return 0, 0
	}
	digits, base := b[2:end], 10
	if digits[0] == 'x' || digits[0] == 'X' {
		digits, base = digits[1:], 16
	}
	v, err := strconv.ParseUint(string(digits), base, 21)
	if err != nil {
		return 0, 0
	}
	return rune(v), end + 1
}

// openEscape returns how long the escape is that a text ends within; 0: in none.
func openEscape(b []byte) int {
	for n := 1; n < min(len(b)+1, maxEntity); n++ {
		tail := b[len(b)-n:]
		switch tail[0] {
		case '\\', '%', '&':
			if isEscapeStart(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// isEscapeStart reports whether more bytes could make an escape of a text.
func isEscapeStart(b []byte) bool {
	heads := map[byte][]string{'\\': {`\`, `\u`, `\x`}, '%': {"%"}, '&': {"&", "&#", "&#x", "&#X"}}
	digits := bytes.TrimRight(b, "0123456789abcdefABCDEF")
	whole := map[string]int{`\u`: 4, `\x`: 2, "%": 2, "&#": 7, "&#x": 6, "&#X": 6}
	if !slices.Contains(heads[b[0]], string(digits)) {
		return false
	}
	n := len(b) - len(digits)
	return n == 0 || n < whole[string(digits)]
}

// cutOut hides spans of a text.
func cutOut(b []byte, spans [][2]int) []byte {
	slices.SortFunc(spans, func(a, c [2]int) int { return a[0] - c[0] })
	var out []byte
	at := 0
	for _, s := range spans {
		if s[0] > at || s[0] == at && at == 0 {
			out = append(append(out, b[at:s[0]]...), hidden...)
		}
		at = max(at, s[1])
	}
	return append(out, b[at:]...)
}
