package jsonscan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Unquote decodes a JSON string and reports whether raw is one. Plain strings, which are nearly all, cost one
// copy. Half a surrogate pair becomes U+FFFD.
func Unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if body := raw[1 : len(raw)-1]; bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	var s string // not a result: it would be on the heap for plain strings too
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// DecodeString decodes a JSON string. A surrogate without its other half is kept, in the three bytes
// that UTF-8 would have for it.
func DecodeString(raw []byte) string {
	s, ok := Unquote(raw)
	if !ok || !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	var b strings.Builder
	for in := raw[1 : len(raw)-1]; len(in) > 0; {
		n := 1
		switch {
		case in[0] != '\\':
			for n < len(in) && in[n] != '\\' {
				n++
			}
			b.Write(in[:n])
		case in[1] != 'u':
			n = 2
			b.WriteString(DecodeInner(in[:n]))
		default:
			n = 6
			switch u := hex4(in); {
			case u>>10 == 0xD800>>10 && len(in) >= 12 && in[6] == '\\' && in[7] == 'u' && hex4(in[6:])>>10 == 0xDC00>>10:
				n = 12
				b.WriteString(DecodeInner(in[:n]))
			case u>>11 == 0xD800>>11:
				b.Write([]byte{0xE0 | byte(u>>12), 0x80 | byte(u>>6&0x3F), 0x80 | byte(u&0x3F)})
			default:
				b.WriteString(DecodeInner(in[:n]))
			}
		}
		in = in[n:]
	}
	return b.String()
}

// hex4 reads \uXXXX of a valid string.
func hex4(b []byte) uint64 {
	u, _ := strconv.ParseUint(string(b[2:6]), 16, 32)
	return u
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
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
