package jsonscan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote decodes a JSON string and reports whether raw is one. Plain strings, which are nearly all, cost one
// copy. Half a surrogate pair becomes U+FFFD.
func Unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if s := word(body); s != "" {
		return s, true
	}
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	var s string // not a result: it would be on the heap for plain strings too
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// word returns what is one of the words that events repeat most, for which no memory is needed; "" for all others.
func word(b []byte) string {
	switch string(b) {
	case "text":
		return "text"
	case "thinking":
		return "thinking"
	case "tool_use":
		return "tool_use"
	case "assistant":
		return "assistant"
	case "user":
		return "user"
	case "end_turn":
		return "end_turn"
	case "running":
		return "running"
	case "planning":
		return "planning"
	case "completed":
		return "completed"
	case "allow":
		return "allow"
	}
	return ""
}

// DecodeString decodes a JSON string. A surrogate without its other half is kept, in the three bytes
// that UTF-8 would have for it.
func DecodeString(raw []byte) string {
	s, ok := Unquote(raw)
	if !ok || !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	var b []byte
	for in := Inner(raw); len(in) > 0; {
		r, n := character(in)
		if utf16.IsSurrogate(r) {
			b = append(b, 0xE0|byte(r>>12), 0x80|byte(r>>6&0x3F), 0x80|byte(r&0x3F))
		} else {
			b = utf8.AppendRune(b, r)
		}
		in = in[n:]
	}
	return string(b)
}

// FirstText returns the first value that is neither absent, null nor an empty string: a string decoded, anything else
// as its JSON text. Without one it returns none.
func FirstText(none string, values ...[]byte) string {
	for _, v := range values {
		switch {
		case len(v) == 0 || string(v) == "null" || string(v) == `""`:
		case IsString(v):
			return DecodeString(v)
		default:
			return string(v)
		}
	}
	return none
}

// Unescape decodes a string's inner bytes. An escape that stands for half a character stays written as an escape:
// within JSON that the string holds, where it must stand in a string, it then means the same. What has no escapes is
// returned as it is.
func Unescape(inner []byte) []byte {
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			i++
			continue
		}
		r, n := character(inner[i:])
		if utf16.IsSurrogate(r) {
			out = append(out, inner[i:i+n]...)
		} else {
			out = utf8.AppendRune(out, r)
		}
		i += n
	}
	return out
}

// Split cuts a string's inner bytes into parts of at most limit bytes (at least 32), never within an escape, a
// character or a pair of surrogates.
func Split(inner []byte, limit int) [][]byte {
	var parts [][]byte
	for len(inner) > limit {
		cut, i := 0, 0
		for i <= limit {
			_, n := character(inner[i:])
			cut = i
			i += n
		}
		parts = append(parts, inner[:cut])
		inner = inner[cut:]
	}
	return append(parts, inner)
}

// character returns the character that a string's inner bytes begin with, and how many bytes it has there. Half a
// character is a surrogate.
func character(inner []byte) (r rune, n int) {
	u, low, n := UnitsAt(inner, 0)
	if low == 0 && u>>10 == 0xD800>>10 && bytes.HasPrefix(inner[n:], []byte(`\u`)) {
		next, _, more := UnitsAt(inner, n)
		if next>>10 == 0xDC00>>10 {
			low = next
			n += more
		}
	}
	if low == 0 {
		return rune(u), n
	}
	return utf16.DecodeRune(rune(u), rune(low)), n
}

// DecodeInner decodes a string's inner bytes. Half surrogates become U+FFFD.
func DecodeInner(inner []byte) string {
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	quoted := make([]byte, 0, len(inner)+2)
	quoted = append(append(append(quoted, '"'), inner...), '"')
	var s string
	_ = json.Unmarshal(quoted, &s) // the inside of a valid string
	return s
}

// AppendDecoded appends a string that DecodeString returned, as a JSON string.
func AppendDecoded(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return AppendString(dst, s)
	}
	dst = append(dst, '"')
	for len(s) > 0 {
		n := 0
		for n < len(s) {
			if r, size := utf8.DecodeRuneInString(s[n:]); r == utf8.RuneError && size == 1 {
				break
			} else {
				n += size
			}
		}
		part := AppendString(nil, s[:n])
		dst = append(dst, part[1:len(part)-1]...)
		if s = s[n:]; len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 {
			dst = AppendUnit(dst, uint16(s[0]&0xF)<<12|uint16(s[1]&0x3F)<<6|uint16(s[2]&0x3F))
			s = s[3:]
		} else if len(s) > 0 {
			dst = append(dst, "\ufffd"...)
			s = s[1:]
		}
	}
	return append(dst, '"')
}

// AppendUnit appends half of a surrogate pair as JSON writes it.
func AppendUnit(dst []byte, u uint16) []byte {
	return strconv.AppendUint(append(dst, `\u`...), uint64(u), 16)
}

// AppendString appends s as a JSON string. Valid UTF-8 passes unchanged.
func AppendString(dst []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	if out, ok := appendASCII(dst, s); ok {
		return out
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// appendASCII appends s as a JSON string, as encoding/json writes it. ok is false where s has more than characters of
// ASCII and the usual escapes.
func appendASCII(dst []byte, s string) (out []byte, ok bool) {
	out = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\t':
			out = append(out, '\\', 't')
		case c < ' ' || c >= utf8.RuneSelf:
			return nil, false
		default:
			out = append(out, c)
		}
	}
	return append(out, '"'), true
}
