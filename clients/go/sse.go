package agentstream

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxFrame bounds one SSE frame in bytes: an event is at most schema.MaxEventBytes, a snapshot as
// long as a run's texts, and a server that sends without end must not take the machine with it.
const maxFrame = 256 << 20

// maxRetryHint bounds what a server's retry: field may ask for.
const maxRetryHint = time.Minute

var errFrameTooLarge = errors.New("frame has no end")

// sseFrame is one dispatched event of a stream (WHATWG HTML §9.2.6). Data is valid until the next
// call of the parser.
type sseFrame struct {
	ID    string // last event ID of the stream as of this frame
	Event string // "" stands for "message"
	Data  []byte // data lines joined by line feeds; nil when the frame has only an ID
}

// sseParser reads a server-sent event stream that arrives in pieces cut anywhere. Lines end with
// CR, LF or CRLF. A frame counts only when its empty line has arrived: a resume cursor
// taken from half a frame would skip the event in it. The zero value is ready; one goroutine.
type sseParser struct {
	line   []byte // the line that is still arriving
	data   []byte
	event  string
	nextID string // id: of the frame that is still arriving

	lastID     string        // committed id
	retry      time.Duration // 0: the server has not sent one
	most       int           // bound of a frame; 0 is maxFrame
	begun      bool          // a byte order mark can no longer come
	skipLF     bool          // the last byte was a CR; a line feed belongs to it
	hasData    bool
	dispatched bool // data was handed out and is to be forgotten
}

// next reads from chunk until a frame is complete or chunk is used up. It returns the frame, what is
// left of chunk, and whether there is a frame.
func (p *sseParser) next(chunk []byte) (f sseFrame, rest []byte, ok bool, err error) {
	if p.dispatched {
		p.data, p.dispatched = emptyBuffer(p.data), false
	}
	for len(chunk) > 0 {
		if p.skipLF {
			p.skipLF = false
			if chunk[0] == '\n' {
				chunk = chunk[1:]
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			p.line = append(p.line, chunk...)
			return f, nil, false, p.checkSize()
		}
		p.line = append(p.line, chunk[:end]...)
		p.skipLF = chunk[end] == '\r'
		chunk = chunk[end+1:]
		if err := p.checkSize(); err != nil {
			return f, nil, false, err
		}
		if f, ok := p.endLine(); ok {
			return f, chunk, true, nil
		}
	}
	return f, nil, false, nil
}

// checkSize returns an error if a frame is too large.
func (p *sseParser) checkSize() error {
	most := p.most
	if most == 0 {
		most = maxFrame
	}
	if n := len(p.line) + len(p.data); n > most {
		return fmt.Errorf("%d bytes: %w", n, errFrameTooLarge)
	}
	return nil
}

func (p *sseParser) endLine() (sseFrame, bool) {
	line := p.line
	p.line = emptyBuffer(p.line)
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return p.dispatch()
	}
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) { // the empty name is a comment; unknown names are passed over
	case "data":
		if p.hasData {
			p.data = append(p.data, '\n')
		}
		p.data, p.hasData = append(p.data, value...), true
	case "event":
		p.event = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			p.nextID = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil && !strings.HasPrefix(string(value), "+") {
			p.retry = min(time.Duration(ms)*time.Millisecond, maxRetryHint)
		}
	}
	return sseFrame{}, false
}

// dispatch commits the id also when the frame has no data, as the standard says. Such a frame is
// given only when it moved the id.
func (p *sseParser) dispatch() (sseFrame, bool) {
	f := sseFrame{ID: p.nextID, Event: p.event}
	if p.hasData {
		f.Data = append(p.data, "\n"...)[:len(p.data)] // not nil, also when it is empty
		p.dispatched = true
	}
	ok := p.hasData || p.nextID != p.lastID
	p.lastID = p.nextID
	p.event, p.hasData = "", false
	return f, ok
}

// maxKept bounds what a buffer holds on to after a frame that was out of the ordinary, in bytes.
const maxKept = 1 << 20

// emptyBuffer returns b empty, and lets go of a large one.
func emptyBuffer(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// reset forgets the frame that a broken connection left half, but not the committed id.
func (p *sseParser) reset() {
	*p = sseParser{line: emptyBuffer(p.line), data: emptyBuffer(p.data), lastID: p.lastID, nextID: p.lastID,
		retry: p.retry, most: p.most}
}
