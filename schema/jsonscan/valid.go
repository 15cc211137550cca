package jsonscan

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Valid reports whether data is one JSON text in valid UTF-8, nested at most levels deep.
func Valid(data []byte, levels int) bool {
	if !utf8.Valid(data) {
		return false
	}
	i := ScanValue(data, SkipSpace(data, 0), levels)
	return i >= 0 && SkipSpace(data, i) == len(data)
}

// ScanValue returns the index after the JSON value that starts at i (RFC 8259), or -1 when there is none or
// it is nested deeper than levels. It does not look at UTF-8.
func ScanValue(b []byte, i, levels int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; c {
	case '"':
		return ScanString(b, i)
	case '{':
		return scanObject(b, i, levels-1)
	case '[':
		return scanArray(b, i, levels-1)
	case 't':
		return scanWord(b, i, "true")
	case 'f':
		return scanWord(b, i, "false")
	case 'n':
		return scanWord(b, i, "null")
	}
	return scanNumber(b, i)
}

func scanWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func scanObject(b []byte, i, levels int) int {
	if levels < 0 {
		return -1
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for i < len(b) && b[i] == '"' {
		if i = ScanString(b, i); i < 0 {
			return -1
		}
		if i = SkipSpace(b, i); i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = ScanValue(b, SkipSpace(b, i+1), levels); i < 0 {
			return -1
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = SkipSpace(b, i+1)
	}
	return -1
}

func scanArray(b []byte, i, levels int) int {
	if levels < 0 {
		return -1
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = ScanValue(b, i, levels); i < 0 {
			return -1
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return -1
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = SkipSpace(b, i+1)
	}
}

// ScanString returns the index after the JSON string that starts at i (RFC 8259), or -1 when there is none. It
// does not look at UTF-8. Each byte is looked at a bounded number of times, however many escapes there are.
func ScanString(b []byte, i int) int {
	i++
	quote := -1
	for {
		if quote < i {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return -1
			}
			quote = i + n
		}
		n := bytes.IndexByte(b[i:quote], '\\')
		if n < 0 {
			break
		}
		if hasControl(b[i : i+n]) {
			return -1
		}
		if i = scanEscape(b, i+n+1); i < 0 {
			return -1
		}
	}
	if hasControl(b[i:quote]) {
		return -1
	}
	return quote + 1
}

// scanEscape returns the index after the escape whose letter is at i.
func scanEscape(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if len(b)-i < 5 {
			return -1
		}
		for _, c := range b[i+1 : i+5] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

// hasControl reports whether a byte is below 0x20.
func hasControl(b []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		if x := binary.LittleEndian.Uint64(b); (x-0x20*ones)&^x&tops != 0 {
			return true
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}

func scanNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = scanDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = scanDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return scanDigits(b, i)
	}
	return i
}

// scanDigits returns the index after the digits that start at i, or -1 when there are none.
func scanDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
