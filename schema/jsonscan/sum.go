package jsonscan

import "unicode/utf8"

// Sum stands for the value of a JSON string: how many UTF-16 units it has, and a hash of them. Two strings with the
// same value have the same Sum, however they are escaped, and whether they were added whole or in pieces. The zero
// Sum is that of the empty string.
type Sum struct {
	Units int64
	hash  uint64
}

const (
	sumStart = 14695981039346656037 // FNV-1a
	sumPrime = 1099511628211
)

// SumOf returns the Sum of a string's inner bytes.
func SumOf(inner []byte) (s Sum) {
	s.Add(inner)
	return s
}

// Hash returns a hash of the string; 0 for the empty one.
func (s Sum) Hash() uint64 { return s.hash }

// AddUnit adds one unit.
func (s *Sum) AddUnit(u uint16) {
	if s.Units == 0 {
		s.hash = sumStart
	}
	s.Units++
	s.hash = (s.hash ^ uint64(u)) * sumPrime
}

// Add adds the inner bytes of a JSON string.
func (s *Sum) Add(inner []byte) {
	for i := 0; i < len(inner); {
		if c := inner[i]; c < utf8.RuneSelf && c != '\\' && s.Units > 0 { // nearly always
			s.Units++
			s.hash = (s.hash ^ uint64(c)) * sumPrime
			i++
			continue
		}
		u, low, n := UnitsAt(inner, i)
		s.AddUnit(u)
		if low != 0 {
			s.AddUnit(low)
		}
		i += n
	}
}

// Rest returns what the inner bytes of a string have after the text that s stands for: bytes, and before them a low
// surrogate when the border is within a character that is not escaped. ok is false when s is not the Sum of a
// beginning.
func (s Sum) Rest(inner []byte) (low uint16, rest []byte, ok bool) {
	var seen Sum
	for seen.Units < s.Units {
		if len(inner) == 0 {
			return 0, nil, false
		}
		u, l, n := UnitsAt(inner, 0)
		seen.AddUnit(u)
		inner = inner[n:]
		switch {
		case l == 0:
		case seen.Units == s.Units:
			return l, inner, seen == s
		default:
			seen.AddUnit(l)
		}
	}
	return 0, inner, seen == s
}

// UnitsAt returns the UTF-16 unit at index i of a string's inner bytes, the second unit of a character that needs two
// and is not escaped, else 0, and the number of bytes that were read.
func UnitsAt(inner []byte, i int) (u, low uint16, n int) {
	switch c := inner[i]; {
	case c == '\\':
		return escapeAt(inner, i)
	case c < utf8.RuneSelf:
		return uint16(c), 0, 1
	}
	r, n := utf8.DecodeRune(inner[i:])
	if r > 0xFFFF {
		r -= 0x10000
		return uint16(0xD800 + r>>10), uint16(0xDC00 + r&0x3FF), n
	}
	return uint16(r), 0, n
}

func escapeAt(inner []byte, i int) (u, low uint16, n int) {
	if i+1 >= len(inner) {
		return '\\', 0, 1
	}
	switch c := inner[i+1]; c {
	case 'u':
		if i+6 > len(inner) {
			return 'u', 0, len(inner) - i
		}
		for _, d := range inner[i+2 : i+6] {
			u = u<<4 | hexDigit(d)
		}
		return u, 0, 6
	case 'b':
		return '\b', 0, 2
	case 'f':
		return '\f', 0, 2
	case 'n':
		return '\n', 0, 2
	case 'r':
		return '\r', 0, 2
	case 't':
		return '\t', 0, 2
	default:
		return uint16(c), 0, 2
	}
}

func hexDigit(c byte) uint16 {
	switch {
	case c >= '0' && c <= '9':
		return uint16(c - '0')
	case c >= 'a' && c <= 'f':
		return uint16(c-'a') + 10
	}
	return uint16(c-'A') + 10
}
