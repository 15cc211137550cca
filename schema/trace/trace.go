package trace

import (
	"context"
	"encoding/hex"
	"net/http"
)

// Field is the field of an event's envelope that has the traceparent of the request with which the event came.
const Field = "trace"

// Header is the canonical name of the HTTP header, and StateHeader that of its companion, which is not kept.
const (
	Header      = "Traceparent"
	StateHeader = "Tracestate"
)

// MaxState bounds a tracestate that is passed on, in bytes. A longer one is dropped, as the W3C allows.
const MaxState = 512

// Flags of a Parent. Others have no meaning yet, and are not passed on.
const (
	Sampled = 1 << iota // whoever has made the span records it
	Random              // the trace id is random
)

// size is the length of a traceparent of version 00: version, trace id, span id and flags in hex, with dashes between.
const size = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

// Parent names a span elsewhere, of which something here is a part.
type Parent struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// Parse reads a traceparent. ok is false for what is none: uppercase letters, ids of zeros, version ff. One of a version
// that does not exist yet is read as the W3C says: its beginning, if that has the form of version 00.
func Parse(s string) (p Parent, ok bool) {
	var version, flags [1]byte
	ok = len(s) >= size && s[2] == '-' && s[35] == '-' && s[52] == '-' && decode(version[:], s[:2]) &&
		decode(p.Trace[:], s[3:35]) && decode(p.Span[:], s[36:52]) && decode(flags[:], s[53:55])
	switch {
	case !ok, version[0] == 0xff, p.Trace == [16]byte{}, p.Span == [8]byte{}:
		return Parent{}, false
	case len(s) > size && (version[0] == 0 || s[size] != '-'):
		return Parent{}, false
	}
	p.Flags = flags[0] & (Sampled | Random)
	return p, true
}

// decode reads lowercase hex.
func decode(dst []byte, s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

// Of returns the traceparent of a request in the form in which it is kept; "" when there is none, or more than one.
func Of(h http.Header) string {
	v := h[Header]
	if len(v) != 1 {
		return ""
	}
	p, ok := Parse(v[0])
	if !ok {
		return ""
	}
	return p.String()
}

// contextKey is the key of a context's traceparent.
type contextKey struct{}

// NewContext returns a context for work in a span: FromContext returns its traceparent.
func NewContext(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, contextKey{}, traceparent)
}

// FromContext returns the traceparent of NewContext, "" for none.
func FromContext(ctx context.Context) string {
	s, _ := ctx.Value(contextKey{}).(string)
	return s
}

// IsSampled reports whether the span is recorded where it was made.
func (p Parent) IsSampled() bool { return p.Flags&Sampled != 0 }

// String returns the traceparent of version 00.
func (p Parent) String() string {
	b := make([]byte, 0, size)
	b = hex.AppendEncode(append(b, "00-"...), p.Trace[:])
	b = hex.AppendEncode(append(b, '-'), p.Span[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{p.Flags}))
}
