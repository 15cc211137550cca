package qoder

import "agentstream/schema/jsonscan"

func isString(v []byte) bool { return jsonscan.IsString(v) }

func inner(v []byte) []byte { return jsonscan.Inner(v) }

// whole reads a whole number that is not negative; -1 for everything else.
func whole(v []byte) int64 {
	if n, ok := jsonscan.WholeNumber(v); ok {
		return n
	}
	return -1
}

// appendQuoted appends JSON as the inside of a JSON string: what it says when it is decoded is the JSON, byte for
// byte.
func appendQuoted(b, raw []byte) []byte {
	const hex = "0123456789abcdef"
	for _, c := range raw {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
