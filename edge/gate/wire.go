package gate

import (
	"encoding/binary"
	"sync"
)

// preface begins a connection of HTTP/2 (RFC 9113 §3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Of a frame of HTTP/2 (RFC 9113 §4.1, §6).
const (
	frameHeader = 9
	typeData    = 0
	typeHeaders = 1
	typeReset   = 3
	endStream   = 1
)

// frames finds the headers of frames in what goes one way. The zero value is ready.
type frames struct {
	header [frameHeader]byte
	n      int // of header
	skip   int // of the payload, what has not come
}

// read calls each with the frames that begin in b.
func (f *frames) read(b []byte, each func(kind, flags byte, id uint32)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
			continue
		}
		n := copy(f.header[f.n:], b)
		f.n, b = f.n+n, b[n:]
		if f.n < frameHeader {
			return
		}
		f.n = 0
		h := &f.header
		f.skip = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		each(h[3], h[4], binary.BigEndian.Uint32(h[5:])&^(1<<31))
	}
}

// wire knows which streams are open on a connection. A stream is open from its first frame until this server has said its
// last, or one of the two has broken it off. The zero value is ready.
type wire struct {
	at    int  // bytes of the preface that have come
	other bool // it is no connection of HTTP/2
	in    frames
	out   frames
	last  uint32 // the newest stream

	mu   sync.Mutex // of what follows
	open map[uint32]struct{}
	over bool // nothing counts any more
}

// read takes what the client has sent, and returns by how much the number of open streams has changed.
func (w *wire) read(b []byte) (change int64) {
	if w.other {
		return 0
	}
	for ; w.at < len(preface) && len(b) > 0; w.at, b = w.at+1, b[1:] {
		if b[0] != preface[w.at] {
			w.other = true
			return 0
		}
	}
	w.in.read(b, func(kind, _ byte, id uint32) {
		switch {
		case kind == typeHeaders && id > w.last:
			w.last = id
			change += w.openStream(id)
		case kind == typeReset:
			change -= w.closeStream(id)
		}
	})
	return change
}

// isHTTP2 reports whether it is a connection of HTTP/2. Nothing is written on one before its preface was read.
func (w *wire) isHTTP2() bool { return !w.other && w.at == len(preface) }

// wrote takes what this server has sent, and returns how many streams have ended.
func (w *wire) wrote(b []byte) (ended int64) {
	w.out.read(b, func(kind, flags byte, id uint32) {
		if kind == typeReset || (kind == typeData || kind == typeHeaders) && flags&endStream != 0 {
			ended += w.closeStream(id)
		}
	})
	return ended
}

// openStream counts a stream, and returns how many more there are.
func (w *wire) openStream(id uint32) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0
	}
	if w.open == nil {
		w.open = make(map[uint32]struct{})
	}
	w.open[id] = struct{}{}
	return 1
}

// closeStream stops counting a stream, and returns how many fewer there are.
func (w *wire) closeStream(id uint32) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.open[id]; !ok {
		return 0
	}
	delete(w.open, id)
	return 1
}

// close returns how many streams were open.
func (w *wire) close() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.open)
	w.open, w.over = nil, true
	return int64(n)
}
