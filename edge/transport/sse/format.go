package sse

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// Format is how a protocol writes its events and answers a stream. There is one value for each protocol: it is
// used by address, and must not be changed once it was used. The zero value is [Plain]'s. It is safe for
// concurrent use.
type Format struct {
	// Name distinguishes formats in profiles and logs; default "sse/1.1".
	Name string
	// IDFirst writes the id before event and data, not after them: clients that give an id to the event which follows
	// need it.
	IDFirst bool
	// Header is set over the headers that a stream has by itself: Content-Type, for one. A name without values
	// removes a header.
	Header http.Header
	// NoRetry leaves out the reconnection hint.
	NoRetry bool

	once    sync.Once
	chunked transport.Encoding
	sealed  []byte // keepAlive as a chunk
}

// Plain is the format of a stream that names none: event, data and id.
var Plain = &Format{}

// keepAlive is the sign of life: a comment.
var keepAlive = appendComment(nil, []byte("keepalive"))

// ready returns the format with what is made of it once, Plain for nil.
func (m *Format) ready() *Format {
	if m == nil {
		m = Plain
	}
	m.once.Do(func() {
		m.chunked = transport.Encoding{Name: m.Name, Append: m.Append, Headroom: chunkRoom, Seal: sealChunk}
		if m.Name == "" {
			m.chunked.Name = "sse/1.1"
		}
		m.sealed = m.seal(keepAlive)
	})
	return m
}

// Encoding returns the form of frames on a connection that was taken over: chunks of HTTP/1.1 (RFC 9112 §7.1),
// as many frames in one as are ready. A format has one.
func (m *Format) Encoding() *transport.Encoding { return &m.ready().chunked }

// SetHeader sets the headers of a stream.
func (m *Format) SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	// no-transform keeps proxies from compressing, which would hold frames back.
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	for name, values := range m.Header {
		h.Del(name)
		if len(values) > 0 {
			h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
}

// Append appends one event and a blank line. The id is left out when the frame has no token, which leaves the
// client's cursor where it is; the event when it has no name.
func (m *Format) Append(dst []byte, f dialect.Frame) []byte {
	if f.Comment {
		return appendComment(dst, f.Data)
	}
	dst = m.appendHead(dst, f)
	return m.appendTail(appendValue(dst, f.Data), f)
}

// appendHead appends everything before the data.
func (m *Format) appendHead(dst []byte, f dialect.Frame) []byte {
	if m.IDFirst {
		dst = appendField(dst, "id: ", f.Token)
	}
	return append(appendField(dst, "event: ", f.Event), "data: "...)
}

// appendTail appends everything after the data.
func (m *Format) appendTail(dst []byte, f dialect.Frame) []byte {
	dst = append(dst, '\n')
	if !m.IDFirst {
		dst = appendField(dst, "id: ", f.Token)
	}
	return append(dst, '\n')
}

// appendField appends a field that is left out when it is empty.
func appendField(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return append(appendValue(append(dst, name...), value), '\n')
}

// seal makes a chunk of frames.
func (m *Format) seal(frames []byte) []byte {
	return m.chunked.Finish(append(m.chunked.Reset(nil), frames...))
}

// appendComment appends a text as a comment, which is no event.
func appendComment(dst, text []byte) []byte {
	return append(appendValue(append(dst, ": "...), text), "\n\n"...)
}

// large reports whether a frame goes out from the pack's own memory: a reader that is slow on it costs nothing.
func large(f dialect.Frame) bool {
	return len(f.Data) >= chunk && !f.Comment && !hasLineBreak(f.Data)
}

// appendValue appends a value. Bytes that would end its line, or that make a client ignore an id
// (NUL), become spaces: between the tokens of a JSON text, which is where alone they may stand, that
// changes nothing.
func appendValue(dst, value []byte) []byte {
	start := len(dst)
	dst = append(dst, value...)
	if hasLineBreak(value) {
		for i, c := range dst[start:] {
			if c == '\n' || c == '\r' || c == 0 {
				dst[start+i] = ' '
			}
		}
	}
	return dst
}

// hasLineBreak reports whether b has a byte that ends a line.
func hasLineBreak(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 || bytes.IndexByte(b, 0) >= 0
}

// chunkRoom fits the size of a chunk in hexadecimal and the end of its line.
const chunkRoom = 10

// sealChunk writes the size right before the frames, and the end of the chunk.
func sealChunk(buf []byte) []byte {
	var size [chunkRoom]byte
	head := strconv.AppendInt(size[:0], int64(len(buf)-chunkRoom), 16)
	head = append(head, '\r', '\n')
	start := chunkRoom - len(head)
	copy(buf[start:], head)
	return append(buf, '\r', '\n')[start:]
}
