package ws

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// Opcodes (RFC 6455 §5.2).
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
)

// Close codes that this package decides on (RFC 6455 §7.4.1).
const (
	closeProtocol    = 1002
	closeUnsupported = 1003
	closeNotUTF8     = 1007
	closePolicy      = 1008
	closeTooBig      = 1009
)

const (
	maxHeader  = 10  // of a frame without a mask, bytes
	maxControl = 125 // payload of a control frame, bytes (RFC 6455 §5.5)
)

// appendHeader appends the header of an unfragmented, unmasked frame with n bytes of payload.
func appendHeader(dst []byte, op byte, n int) []byte {
	dst = append(dst, 0x80|op)
	switch {
	case n <= maxControl:
		return append(dst, byte(n))
	case n <= 0xFFFF:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
}

// appendPing appends a ping that carries its number, so that its pong can be distinguished from others.
func appendPing(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(dst, opPing, 8), n)
}

// appendClose appends a close frame. Code 0 is one without a code. The reason is clipped to what fits,
// between two characters.
func appendClose(dst []byte, code int, reason string) []byte {
	if code == 0 {
		return appendHeader(dst, opClose, 0)
	}
	reason = clip(reason, maxControl-2)
	dst = appendHeader(dst, opClose, 2+len(reason))
	return append(binary.BigEndian.AppendUint16(dst, uint16(code)), reason...)
}

// clip returns at most n bytes of s, in valid UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// validClose reports whether a close code may stand in a frame (RFC 6455 §7.4, the IANA registry).
func validClose(code int) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014:
		return true
	}
	return code >= 3000 && code <= 4999
}

// utf8Check validates text that comes in parts. The zero value is ready.
type utf8Check struct {
	tail [utf8.UTFMax]byte // a character that is not whole yet
	n    int
}

// feed reports whether the text so far can be the beginning of valid UTF-8.
func (c *utf8Check) feed(b []byte) bool {
	for c.n > 0 && len(b) > 0 {
		c.tail[c.n] = b[0]
		c.n++
		b = b[1:]
		if part := c.tail[:c.n]; utf8.FullRune(part) {
			if r, size := utf8.DecodeRune(part); r == utf8.RuneError && size <= 1 {
				return false
			}
			c.n = 0
		}
	}
	if utf8.Valid(b) {
		return true
	}
	// All but the last three bytes are decided; the rest may be the beginning of a character.
	for i := max(0, len(b)-utf8.UTFMax+1); i < len(b); i++ {
		if utf8.RuneStart(b[i]) && !utf8.FullRune(b[i:]) {
			c.n = copy(c.tail[:], b[i:])
			return utf8.Valid(b[:i])
		}
	}
	return false
}

// whole reports whether no character is left unfinished.
func (c *utf8Check) whole() bool { return c.n == 0 }

// unmask undoes a client's mask in place. at is the payload's position of b's first byte.
func unmask(b []byte, key [4]byte, at int) {
	for i := range b {
		b[i] ^= key[(at+i)&3]
	}
}
