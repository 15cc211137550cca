package jsonscan

import "bytes"

// SkipSpace returns the index of the first byte of b from i on that is not white space of JSON.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// SkipValue returns the index after the JSON value that starts at i, or -1 when it does not end. b must be
// valid there: in other bytes the result is only where something like a value ends.
func SkipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return SkipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				if i = SkipString(b, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// SkipString returns the index after the string that starts at i, or -1 when it does not end.
func SkipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		quote, slashes := i+n, 0
		for quote-slashes > i && b[quote-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote + 1
		}
		i = quote + 1 // this one is escaped
	}
	return -1
}
