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
	// Tight leaves out the space behind "event:", "data:" and "id:", but where a value begins with one.
	Tight bool
	// IDFirst writes the id before event and data, not behind them.
	IDFirst bool
	// Lines means that data are text: each line becomes a data line of its own, and a client reads line feeds
	// between them. Without it data are one JSON text, whose line breaks become spaces.
	Lines bool
	// Bare leaves out all but the data, which are a line: JSON lines, and no server-sent events. Nothing of it
	// resumes by itself, and there is no keep-alive.
	Bare bool
	// Whole means that the frames given to one Write belong together: they leave in one write and in one chunk of
	// HTTP/1.1, as far as 64 KiB go. Larger ones are copied for it.
	Whole bool
	// Header is set over the headers that a stream has by itself: Content-Type, for one. A name without values
	// removes a header.
	Header http.Header
	// NoRetry leaves out the reconnection hint.
	NoRetry bool
	// Comment is the text of a keep-alive; default "keepalive". Without line breaks.
	Comment string
	// NoKeepAlive means that there is no keep-alive: KeepAlive and TryKeepAlive write nothing.
	NoKeepAlive bool

	once      sync.Once
	chunked   transport.Encoding
	keepAlive []byte // nil: none
	sealed    []byte // keepAlive as a chunk
}

// Plain is the format of a stream that names none: event, data and id with spaces, a comment as keep-alive.
var Plain = &Format{}

// JSONL is the format of a stream of JSON lines. What writes whole runs as files is package jsonl.
var JSONL = &Format{Name: "jsonl", Bare: true, NoRetry: true, NoKeepAlive: true, Header: http.Header{"Content-Type": {"application/x-ndjson"}}}

// ready returns the format with what is made of it once, Plain for nil.
func (m *Format) ready() *Format {
	if m == nil {
		m = Plain
	}
	m.once.Do(func() {
		m.chunked = transport.Encoding{Name: m.Name, Append: m.Append, Room: chunkRoom, Seal: sealChunk}
		if m.Name == "" {
			m.chunked.Name = "sse/1.1"
		}
		comment := m.Comment
		if comment == "" {
			comment = "keepalive"
		}
		switch {
		case m.NoKeepAlive, m.Bare:
		default:
			m.keepAlive = m.comment(comment)
		}
		m.sealed = m.seal(m.keepAlive)
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
	dst = m.begin(dst, f)
	if m.Lines && !m.Bare {
		dst = m.lines(dst, f.Data)
	} else {
		dst = appendValue(dst, f.Data)
	}
	return m.end(dst, f)
}

// begin appends everything before the data.
func (m *Format) begin(dst []byte, f dialect.Frame) []byte {
	if m.Bare {
		return dst
	}
	if m.IDFirst {
		dst = m.field(dst, "id:", f.Token)
	}
	return m.name(m.field(dst, "event:", f.Event), "data:", f.Data)
}

// end appends everything behind the data.
func (m *Format) end(dst []byte, f dialect.Frame) []byte {
	dst = append(dst, '\n')
	if m.Bare {
		return dst
	}
	if !m.IDFirst {
		dst = m.field(dst, "id:", f.Token)
	}
	return append(dst, '\n')
}

// field appends a field that is left out when it is empty.
func (m *Format) field(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return append(appendValue(m.name(dst, name, value), value), '\n')
}

// name appends what stands before a value. A client drops one space there, which must not be the value's own.
func (m *Format) name(dst []byte, name string, value []byte) []byte {
	dst = append(dst, name...)
	if !m.Tight || len(value) > 0 && value[0] <= ' ' { // what becomes a space is one, too
		dst = append(dst, ' ')
	}
	return dst
}

// lines appends text behind the name of its first line.
func (m *Format) lines(dst, text []byte) []byte {
	for {
		i := bytes.IndexAny(text, "\r\n")
		if i < 0 {
			return appendValue(dst, text)
		}
		dst = append(appendValue(dst, text[:i]), '\n')
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			i++
		}
		text = text[i+1:]
		dst = m.name(dst, "data:", text)
	}
}

// seal makes a chunk of frames.
func (m *Format) seal(frames []byte) []byte {
	return m.chunked.End(append(m.chunked.Begin(nil), frames...))
}

// comment makes a text a comment, which is no event.
func (m *Format) comment(text string) []byte {
	return append(appendValue([]byte(": "), []byte(text)), "\n\n"...)
}

// large reports whether a frame goes out from the pack's own memory: a reader that is slow on it costs nothing.
func (m *Format) large(f dialect.Frame) bool {
	return len(f.Data) >= chunk && !m.Whole && !breaksLine(f.Data)
}

// apart reports whether frames that belong together must not go behind so many bytes: they would leave in two
// writes.
func (m *Format) apart(used int, frames []dialect.Frame) bool {
	if !m.Whole || used == 0 {
		return false
	}
	for i := range frames {
		f := &frames[i]
		used += len(f.Event) + len(f.Data) + len(f.Token) + 32 // names and line ends
		if m.Lines {
			used += len("data: ") * (bytes.Count(f.Data, []byte{'\n'}) + bytes.Count(f.Data, []byte{'\r'}))
		}
	}
	return used > chunk
}

// appendValue appends a value. Bytes that would end its line, or that make a client ignore an id
// (NUL), become spaces: between the tokens of a JSON text, which is where alone they may stand, that
// changes nothing.
func appendValue(dst, value []byte) []byte {
	start := len(dst)
	dst = append(dst, value...)
	if breaksLine(value) {
		for i, c := range dst[start:] {
			if c == '\n' || c == '\r' || c == 0 {
				dst[start+i] = ' '
			}
		}
	}
	return dst
}

func breaksLine(b []byte) bool {
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
