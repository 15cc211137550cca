package gate

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// preface begins a connection of HTTP/2 (RFC 9113 §3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Of a frame of HTTP/2 (RFC 9113 §4.1, §6).
const (
	headerSize  = 9
	creditSize  = 4
	typeData    = 0
	typeHeaders = 1
	typeReset   = 3
	typeCredit  = 8 // WINDOW_UPDATE
	endStream   = 1
)

// frameHead is the beginning of a frame.
type frameHead struct {
	kind, flags byte
	id          uint32 // of its stream, 0 for the connection
	size        int    // of its payload, in bytes
	credit      uint32 // of a WINDOW_UPDATE, in bytes
}

// frames finds the beginnings of frames in what goes one way. The zero value is ready.
type frames struct {
	head [headerSize + creditSize]byte
	n    int // of head
	skip int // of the payload, what has not come
}

// size returns of how many bytes of payload a frame is, once its header is whole.
func (f *frames) size() int { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }

// most returns how much of the beginning of a frame is looked at.
func (f *frames) most() int {
	if f.n >= headerSize && f.head[3] == typeCredit && f.size() == creditSize {
		return headerSize + creditSize
	}
	return headerSize
}

// read calls each with the frames whose beginnings are whole with b.
func (f *frames) read(b []byte, each func(frameHead)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
			continue
		}
		n := copy(f.head[f.n:f.most()], b)
		f.n, b = f.n+n, b[n:]
		if f.n < f.most() {
			continue
		}
		h := &f.head
		next := frameHead{kind: h[3], flags: h[4], id: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31), size: f.size()}
		if f.n > headerSize {
			next.credit = binary.BigEndian.Uint32(h[headerSize:])
		}
		f.skip, f.n = next.size-(f.n-headerSize), 0
		each(next)
	}
}

// wire knows which streams are open on a connection. A stream is open from its first frame until this server has said
// its last, or one of the two has broken it off. The zero value is ready.
type wire struct {
	at    int  // bytes of the preface that have come
	other bool // it is no connection of HTTP/2
	in    frames
	out   frames
	last  uint32 // the newest stream

	raised bool         // the connection has the window that is meant for it; of the goroutine that writes
	unread atomic.Int64 // bytes of bodies that have come, and for which no credit was given

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
	w.in.read(b, func(f frameHead) {
		switch {
		case f.kind == typeData:
			w.unread.Add(int64(f.size))
		case f.kind == typeHeaders && f.id > w.last:
			w.last = f.id
			change += w.openStream(f.id)
		case f.kind == typeReset:
			change -= w.closeStream(f.id)
		}
	})
	return change
}

// isHTTP2 reports whether it is a connection of HTTP/2. Nothing is written on one before its preface was read.
func (w *wire) isHTTP2() bool { return !w.other && w.at == len(preface) }

// wrote takes what this server has sent, and returns how many streams have ended. A server gives credit for what was
// read, or will not be read. Its first one gives the connection the Window (RFC 9113 §6.9.2).
func (w *wire) wrote(b []byte) (ended int64) {
	w.out.read(b, func(f frameHead) {
		switch {
		case f.kind == typeCredit && f.id == 0 && w.raised:
			w.unread.Add(-int64(f.credit))
		case f.kind == typeCredit && f.id == 0:
			w.raised = true
		case f.kind == typeReset || (f.kind == typeData || f.kind == typeHeaders) && f.flags&endStream != 0:
			ended += w.closeStream(f.id)
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
