package transport

import "agentstream/edge/dialect"

// Encoding is the form in which a transport's connections take frames, so that they can be built once for
// many. There is one value for each form; they are compared by address and never changed.
type Encoding struct {
	// Name distinguishes forms in profiles and logs.
	Name string
	// Append appends one frame.
	Append func(dst []byte, f dialect.Frame) []byte
	// Headroom is how many bytes are left free before the first frame, for Seal.
	Headroom int
	// Seal makes one write of frames that were appended behind Room bytes, and returns what is to be
	// written, which shares their memory. nil: frames need nothing around them.
	Seal func(buf []byte) []byte
}

// Reset returns an empty buffer in dst's memory, with its headroom.
func (e *Encoding) Reset(dst []byte) []byte {
	dst = dst[:0]
	for range e.Headroom {
		dst = append(dst, 0)
	}
	return dst
}

// Finish seals a buffer that Reset gave; nil when nothing was appended to it.
func (e *Encoding) Finish(buf []byte) []byte {
	if len(buf) == e.Headroom {
		return nil
	}
	if e.Seal == nil {
		return buf
	}
	return e.Seal(buf)
}

// Direct is what a Sink can do besides when it has a connection of its own: take frames that are ready,
// without a goroutine that waits for the client. The rules of Sink about who calls hold for these as well.
type Direct interface {
	// Encoding is the form of ready frames; nil: this connection takes none.
	Encoding() *Encoding
	// TryWrite writes ready frames and never waits. n < len(b) without an error says that the client's
	// buffers are full: Rest must write what is left before anything else is written, or End gets it. An error
	// is as Sink.Flush's.
	TryWrite(b []byte) (n int, err error)
	// Rest writes ready frames, or the rest of them, and waits for the client as Sink.Flush does.
	Rest(b []byte) error
	// TryKeepAlive shows a sign of life and never waits. rest is what did not go out, for Rest.
	TryKeepAlive() (rest []byte, err error)
}
