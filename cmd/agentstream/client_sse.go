package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxFrame bounds one SSE frame in bytes: an event is at most schema.MaxEventBytes, and a server
// that sends without end must not take the machine with it.
const maxFrame = 8 << 20

// maxRetryHint bounds what a server's retry: field may ask for.
const maxRetryHint = time.Minute

var errFrameTooLarge = errors.New("frame has no end")

// sseFrame is one dispatched event of a stream (WHATWG HTML §9.2.6). Data is valid until the callback
// that was given it returns.
type sseFrame struct {
	ID    string // last event ID of the stream as of this frame
	Event string // "" stands for "message"
	Data  []byte // data lines joined by line feeds
}

// sseParser reads a server-sent event stream that arrives in pieces cut anywhere. Lines end with
// CR, LF or CRLF. What a frame says counts only when its empty line has arrived: a resume cursor
// taken from half a frame would skip the event in it. The zero value is ready; one goroutine.
type sseParser struct {
	line   []byte // the line that is still arriving
	data   []byte
	event  string
	nextID string // id: of the frame that is still arriving

	lastID  string        // committed id
	retry   time.Duration // 0: the server has not said
	begun   bool          // a byte order mark can no longer come
	skipLF  bool          // the last byte was a CR; a line feed belongs to it
	hasData bool
}

// Feed reads the next piece and calls fn for every frame that is complete with it. An error of fn
// ends the reading.
func (p *sseParser) Feed(chunk []byte, fn func(sseFrame) error) error {
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
			return p.bound()
		}
		p.line = append(p.line, chunk[:end]...)
		p.skipLF = chunk[end] == '\r'
		chunk = chunk[end+1:]
		if err := p.bound(); err != nil {
			return err
		}
		if err := p.endLine(fn); err != nil {
			return err
		}
	}
	return nil
}

func (p *sseParser) bound() error {
	if n := len(p.line) + len(p.data); n > maxFrame {
		return fmt.Errorf("%d bytes: %w", n, errFrameTooLarge)
	}
	return nil
}

func (p *sseParser) endLine(fn func(sseFrame) error) error {
	line := p.line
	p.line = p.line[:0]
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return p.dispatch(fn)
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
	return nil
}

// dispatch commits the id also when the frame has no data, as the standard says.
func (p *sseParser) dispatch(fn func(sseFrame) error) error {
	p.lastID = p.nextID
	f := sseFrame{ID: p.lastID, Event: p.event, Data: p.data}
	had := p.hasData
	p.event, p.hasData = "", false
	p.data = p.data[:0]
	if !had {
		return nil
	}
	return fn(f)
}

// reset forgets the frame that a broken connection left half, but not the committed id.
func (p *sseParser) reset() {
	*p = sseParser{line: p.line[:0], data: p.data[:0], lastID: p.lastID, nextID: p.lastID, retry: p.retry}
}
