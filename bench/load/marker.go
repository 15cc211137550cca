package load

import (
	"bytes"
	"slices"
)

// mark identifies one event of a load. On the wire it is fixed-width hexadecimal between back-quotes,
// which JSON does not escape and which nothing else in an event of ours contains:
//
//	`0000000000000000.000000.000000000000`
//	  when due, ns      run    number
type mark struct {
	due int64 // ns since the load's clock began
	run int   // below 1<<24
	n   int64 // 0, 1, 2 … in its run
}

const (
	quote     = '`'
	dueDigits = 16
	runDigits = 6
	numDigits = 12
	markSize  = 1 + dueDigits + 1 + runDigits + 1 + numDigits + 1
)

const filler = "An agent thinks aloud and says what it is about to do, then it does it and says what came of it; none of this is read by anybody. "

const linePrefix, lineSuffix = `{"type":"text.delta","payload":`, `}`

// appendLine appends an event of exactly size bytes, as it is published over HTTP, without a line end.
func appendLine(dst []byte, size int, m mark) []byte {
	dst = append(dst, linePrefix...)
	dst = appendPayload(dst, size-len(linePrefix)-len(lineSuffix), m)
	return append(dst, lineSuffix...)
}

// appendPayload appends a payload of text.delta of exactly size bytes.
func appendPayload(dst []byte, size int, m mark) []byte {
	const open, end = `{"text":"`, `"}`
	dst = append(dst, open...)
	dst = append(dst, quote)
	dst = appendHex(dst, uint64(m.due), dueDigits)
	dst = append(dst, '.')
	dst = appendHex(dst, uint64(m.run), runDigits)
	dst = append(dst, '.')
	dst = appendHex(dst, uint64(m.n), numDigits)
	dst = append(dst, quote)
	for left := size - len(open) - markSize - len(end); left > 0; left -= len(filler) {
		dst = append(dst, filler[:min(left, len(filler))]...)
	}
	return append(dst, end...)
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, v uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[v>>shift&15])
	}
	return dst
}

// parseMark reads markSize bytes; ok is false when they are no mark.
func parseMark(b []byte) (m mark, ok bool) {
	const dot1, dot2 = 1 + dueDigits, 1 + dueDigits + 1 + runDigits
	if b[0] != quote || b[dot1] != '.' || b[dot2] != '.' || b[markSize-1] != quote {
		return m, false
	}
	due, ok1 := parseHex(b[1:dot1])
	run, ok2 := parseHex(b[dot1+1 : dot2])
	n, ok3 := parseHex(b[dot2+1 : markSize-1])
	return mark{due: int64(due), run: int(run), n: int64(n)}, ok1 && ok2 && ok3
}

func parseHex(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// seqBefore reads the event's seq out of what is before its mark (schema: seq is the last field before
// the payload); zero when it is not there, because a piece began in between.
func seqBefore(b []byte) (seq int64) {
	const rest, name = `,"payload":{"text":"`, `"seq":`
	b, ok := bytes.CutSuffix(b, []byte(rest))
	if !ok {
		return 0
	}
	i := len(b)
	for i > 0 && b[i-1] >= '0' && b[i-1] <= '9' {
		i--
	}
	if !bytes.HasSuffix(b[:i], []byte(name)) {
		return 0
	}
	for _, c := range b[i:] {
		seq = seq*10 + int64(c-'0')
	}
	return seq
}

// scanner finds marks in a stream that comes in pieces cut anywhere.
type scanner struct {
	held [markSize]byte
	n    int // bytes held of a mark whose rest has not come
}

// scan calls see for each mark that ends in b, with what b has before it: nothing, where the mark
// began in another piece.
func (s *scanner) scan(b []byte, see func(m mark, before []byte)) {
	if s.n > 0 {
		took := copy(s.held[s.n:], b)
		s.n += took
		if s.n < markSize {
			return
		}
		s.n = 0
		if m, ok := parseMark(s.held[:]); ok {
			see(m, nil)
			b = b[took:]
		} else {
			// A back-quote that begins no mark: look again behind it. Not in a load's own events.
			b = slices.Concat(s.held[1:markSize-took], b)
		}
	}
	b0 := b
	for {
		i := bytes.IndexByte(b, quote)
		if i < 0 {
			return
		}
		b = b[i:]
		if len(b) < markSize {
			s.n = copy(s.held[:], b)
			return
		}
		if m, ok := parseMark(b[:markSize]); ok {
			see(m, b0[:len(b0)-len(b)])
			b = b[markSize:]
		} else {
			b = b[1:]
		}
	}
}
