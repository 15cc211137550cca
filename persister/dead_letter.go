package persister

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ID names the letter by place, reason and content, so that a message that comes again is kept
// once, and another message at the same place of a stream that was made anew is not taken for it.
func (l *DeadLetter) ID() []byte {
	h := sha256.New()
	for _, part := range []string{l.Stream, strconv.FormatUint(l.Position, 10), l.Seq.String(), l.Subject, l.Reason} {
		h.Write([]byte(strconv.Quote(part)))
	}
	h.Write(l.Body)
	return h.Sum(nil)
}

// HeaderBytes returns the headers as "name: value" lines, each ended by CR LF, in the order of their
// names. Values keep their bytes, whatever they are.
func (l *DeadLetter) HeaderBytes() []byte {
	b := []byte{} // stores take nil for null
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		for _, v := range l.Header[name] {
			b = append(b, name+": "+v+"\r\n"...)
		}
	}
	return b
}

// ParseHeaderBytes reads what HeaderBytes gave.
func ParseHeaderBytes(b []byte) map[string][]string {
	h := make(map[string][]string)
	for line := range bytes.SplitSeq(b, []byte("\r\n")) {
		if name, v, ok := bytes.Cut(line, []byte(": ")); ok {
			h[string(name)] = append(h[string(name)], string(v))
		}
	}
	return h
}

// Text makes text of hostile bytes that every store keeps: what is not UTF-8, and NUL, is escaped.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.Trim(strconv.Quote(s), `"`)
}
