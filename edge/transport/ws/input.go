package ws

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// readBuffer is what a connection reads at once, in bytes. Clients of a stream hardly ever send.
	readBuffer = 128
	// bulkBuffer is the same for those who send much, while they do.
	bulkBuffer = 16 << 10
	// keptMessage is the largest message whose memory is used for the next one, in bytes.
	keptMessage = 4 << 10
	// maxFragments bounds the frames of one message: empty ones would never end by its size.
	maxFragments = 1024
	// maxDrain bounds what is read and thrown away behind the last close frame, in bytes.
	maxDrain = 1 << 20
)

// frameInput is what the reading goroutine knows.
type frameInput struct {
	early []byte // read by the HTTP server, before the connection
	small [readBuffer]byte
	buf   []byte // small, or more while a bulk is read
	r, w  int    // buf[r:w] is not consumed

	text   utf8Check
	msg    []byte // of the message under way, when somebody wants it
	held   int64  // of Options.Memory, for it
	inside bool   // a frame or a message has begun and is not whole
	spare  []byte // memory for the next one
	size   int    // of the message under way
	frames int    // of the message under way; 0: none is
	skip   bool   // the message under way is dropped
	deaf   bool   // Received or Refused has returned an error

	pong    []byte // payload of the newest ping that is not answered
	pinged  bool
	control [maxControl]byte

	state atomic.Int32
	ended atomic.Bool   // End has begun
	said  chan struct{} // made before ended is set; closed when the close frame was written, or could not be
	left  atomic.Bool   // the connection ends because of what the client did

	whole time.Time  // when what has begun must be whole; zero: nothing is waited for
	mu    sync.Mutex // of the deadline of reads, until End has begun
	busy  bool       // Received runs
	sent  uint64     // pings
	until time.Time  // when the newest pong is due; zero: none is

	probe   uint64 // number of the ping that reached waits for
	reached func() // nil: nothing waits for a pong
}

// closedError is a client's close frame.
type closedError struct {
	code int // 0: none was given
}

func (e *closedError) Error() string { return fmt.Sprintf("ws: client closed with %d", e.code) }

// States of the reading side.
const (
	inputQuiet   int32 = iota // nobody reads; the poller calls poke
	inputReading              // a goroutine reads
	inputPoked                // … and must look once more
)

// poke makes sure that what there is to read is read.
func (s *SocketSink) poke() {
	for {
		if s.in.state.CompareAndSwap(inputQuiet, inputReading) {
			go s.serve()
			return
		}
		if s.in.state.CompareAndSwap(inputReading, inputPoked) || s.in.state.Load() == inputPoked {
			return
		}
	}
}

// errQuiet reports that there is nothing to read and that no message has begun.
var errQuiet = errors.New("ws: nothing to read")

// serve reads until the connection is over, or quiet with a poller watching it.
func (s *SocketSink) serve() {
	s.grow()
	err := s.receive()
	for errors.Is(err, errQuiet) {
		s.shrink()
		if s.in.state.CompareAndSwap(inputReading, inputQuiet) {
			if s.watch.Again() == nil {
				return
			}
			s.poke() // the poller has ended: the next look waits
			return
		}
		s.in.state.Store(inputReading) // it was poked
		s.grow()
		err = s.receive()
	}
	s.over(err)
}

var bulks = sync.Pool{New: func() any { return new([bulkBuffer]byte) }}

// grow takes memory for a bulk, which is given back while nothing comes.
func (s *SocketSink) grow() {
	if s.in.buf = s.in.small[:]; s.o.Bulk {
		s.in.buf = bulks.Get().(*[bulkBuffer]byte)[:]
	}
}

// shrink needs everything to be consumed.
func (s *SocketSink) shrink() {
	if s.o.Bulk {
		bulks.Put((*[bulkBuffer]byte)(s.in.buf))
		s.in.buf, s.in.spare = s.in.small[:], nil
	}
}

// receive takes frames until an error, which it always returns. Between two frames it does not wait, where
// somebody else does: errQuiet.
func (s *SocketSink) receive() error {
	for {
		if err := s.look(); err != nil {
			return err
		}
		h, err := s.header()
		if err == nil {
			if h.op >= opClose {
				err = s.controlFrame(h)
			} else {
				err = s.dataFrame(h)
			}
		}
		if err != nil {
			return err
		}
		if s.in.inside = s.in.frames > 0; !s.in.inside {
			s.in.finish(s.conn)
		}
	}
}

// inHeader is a client's frame header.
type inHeader struct {
	op   byte
	fin  bool
	size int
	key  [4]byte
	bad  *ProtocolError // its message is not taken
}

// protocolError returns an error of a frame that breaks the protocol.
func protocolError(format string, a ...any) error {
	return &ProtocolError{Code: closeProtocol, Reason: fmt.Sprintf(format, a...)}
}

var notUTF8 = &ProtocolError{Code: closeNotUTF8, Reason: "text is not UTF-8", Message: true}

// header reads and checks a frame's header (RFC 6455 §5). Nothing is allocated by what it says.
func (s *SocketSink) header() (h inHeader, err error) {
	var b [8]byte
	if err := s.full(b[:2]); err != nil {
		return h, err
	}
	h.op, h.fin = b[0]&0xF, b[0]&0x80 != 0
	code := b[1] & 0x7F
	switch {
	case b[0]&0x70 != 0:
		return h, protocolError("reserved bit")
	case b[1]&0x80 == 0:
		return h, protocolError("frame without a mask")
	case h.op > opBinary && h.op < opClose || h.op > opPong:
		return h, protocolError("opcode %d", h.op)
	case h.op >= opClose && !h.fin:
		return h, protocolError("control frame in fragments")
	case h.op >= opClose && code > maxControl:
		return h, protocolError("control frame of more than %d bytes", maxControl)
	case h.op == opBinary:
		h.bad = &ProtocolError{Code: closeUnsupported, Reason: "only text is taken", Message: s.in.frames == 0}
		if !h.bad.Message {
			return h, h.bad
		}
	case h.op == opText && s.in.frames > 0:
		return h, protocolError("message within a message")
	case h.op == opContinuation && s.in.frames == 0:
		return h, protocolError("continuation of nothing")
	}
	if h.size, err = s.length(code, b[:]); err != nil {
		return h, err
	}
	if h.op < opClose {
		s.in.frames++
		if !s.in.skip && h.bad == nil && (h.size > s.o.MaxMessage-s.in.size || s.in.frames > maxFragments) {
			h.bad = &ProtocolError{Code: closeTooBig,
				Reason: fmt.Sprintf("message of more than %d bytes or %d frames", s.o.MaxMessage, maxFragments), Message: true}
		}
	}
	if h.bad != nil && s.o.Refused == nil {
		return h, h.bad
	}
	return h, s.full(h.key[:])
}

// length reads the extended length, which must be the shortest that says it (RFC 6455 §5.2).
func (s *SocketSink) length(code byte, b []byte) (int, error) {
	switch code {
	default:
		return int(code), nil
	case 126:
		if err := s.full(b[:2]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint16(b)
		if n <= maxControl {
			return 0, protocolError("length in more bytes than it needs")
		}
		return int(n), nil
	case 127:
		if err := s.full(b[:8]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint64(b)
		if n <= 0xFFFF || n > 1<<63-1 {
			return 0, protocolError("length is not one")
		}
		return int(min(n, math.MaxInt)), nil // above every limit, whatever an int holds
	}
}

// dataFrame takes a part of a text message.
func (s *SocketSink) dataFrame(h inHeader) error {
	in := &s.in
	if h.bad != nil {
		s.refuse(h.bad)
	}
	want := s.o.Received != nil && !in.deaf && !in.ended.Load()
	err := s.payload(h, func(part []byte) error {
		switch {
		case in.skip:
		case !in.text.feed(part):
			return s.refuse(notUTF8)
		case want && !in.deaf:
			if err := s.keep(part); err != nil {
				s.overflow(err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !in.skip {
		in.size += h.size
	}
	if !h.fin {
		return nil
	}
	if !in.skip && !in.text.whole() {
		if err := s.refuse(notUTF8); err != nil {
			return err
		}
	}
	msg, skip := in.msg, in.skip
	in.size, in.frames, in.msg, in.skip = 0, 0, nil, false
	defer s.drop()
	if want && !skip {
		if n := len(msg); n > freeMessage && !s.o.Bulk {
			if err := s.hold(in.held + dealtWith*int64(n)); err != nil {
				s.overflow(err)
				return nil
			}
		}
		s.deliver(func() error { return s.o.Received(s, msg) })
		if s.o.Bulk && cap(msg) <= keptMessage {
			in.spare = msg[:0]
		}
	}
	return nil
}

// refuse drops the message under way, when somebody decides what becomes of its client; else it returns bad.
func (s *SocketSink) refuse(bad *ProtocolError) error {
	in := &s.in
	if s.o.Refused == nil {
		return bad
	}
	in.skip, in.msg, in.text = true, nil, utf8Check{}
	s.drop()
	if !in.deaf && !in.ended.Load() {
		s.deliver(func() error { return s.o.Refused(s, bad) })
	}
	return nil
}

// deliver calls Received or Refused. After an error nothing more is received.
func (s *SocketSink) deliver(call func() error) {
	if err := s.busy(call); err != nil {
		s.tell(err)
		s.in.deaf = true
	}
}

// busy calls what may take long. A pong that could not be read in the meantime is not late.
func (s *SocketSink) busy(call func() error) error {
	in := &s.in
	in.mu.Lock()
	in.busy = true
	in.mu.Unlock()
	err := call()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.busy = false
	if !in.until.IsZero() && !in.ended.Load() {
		in.until = time.Now().Add(s.t.cfg.WriteTimeout)
		in.arm(s.conn)
	}
	return err
}

// controlFrame answers a client's control frame.
func (s *SocketSink) controlFrame(h inHeader) error {
	in := &s.in
	data := in.control[:0]
	err := s.payload(h, func(part []byte) error {
		data = append(data, part...)
		return nil
	})
	if err != nil {
		return err
	}
	switch h.op {
	case opPing:
		// Answered when nothing more is there to read: only the newest needs a pong (RFC 6455 §5.5.3),
		// and a flood of pings gets no flood of them.
		in.pong, in.pinged = append(in.pong[:0], data...), true
		return nil
	case opPong:
		in.acceptPong(s.conn, data, s.t.cfg.WriteTimeout)
		return nil
	}
	switch {
	case len(data) == 0:
		return &closedError{}
	case len(data) == 1 || !validClose(int(binary.BigEndian.Uint16(data))):
		return protocolError("close code")
	case !utf8.Valid(data[2:]):
		return &ProtocolError{Code: closeNotUTF8, Reason: "reason is not UTF-8"}
	}
	return &closedError{code: int(binary.BigEndian.Uint16(data))}
}

// payload passes a frame's payload to fn, in parts.
func (s *SocketSink) payload(h inHeader, fn func([]byte) error) error {
	in := &s.in
	for at := 0; at < h.size; {
		if in.r == in.w {
			if err := s.fill(); err != nil {
				return err
			}
		}
		part := in.buf[in.r : in.r+min(in.w-in.r, h.size-at)]
		in.r += len(part)
		unmask(part, h.key, at)
		if err := fn(part); err != nil {
			return err
		}
		at += len(part)
	}
	return nil
}

// look returns errQuiet when the next frame has not begun and the poller reports when it does.
func (s *SocketSink) look() error {
	in := &s.in
	if in.r < in.w || len(in.early) > 0 || s.watch == nil || !s.watch.Live() || in.ended.Load() || in.frames > 0 {
		return nil
	}
	if err := s.pong(); err != nil {
		return err
	}
	n, err := s.try.Read(in.buf)
	if err != nil {
		return err
	}
	if n == 0 {
		return errQuiet
	}
	in.r, in.w = 0, n
	return nil
}

// full reads all of b.
func (s *SocketSink) full(b []byte) error {
	in := &s.in
	for len(b) > 0 {
		if in.r == in.w {
			if err := s.fill(); err != nil {
				return err
			}
		}
		n := copy(b, in.buf[in.r:in.w])
		in.r += n
		b = b[n:]
		in.inside = true
	}
	return nil
}

// fill waits for bytes. What is owed to the client goes out before.
func (s *SocketSink) fill() error {
	in := &s.in
	in.r, in.w = 0, 0
	if len(in.early) > 0 {
		in.w = copy(in.buf, in.early)
		if in.early = in.early[in.w:]; len(in.early) == 0 {
			in.early = nil
		}
		return nil
	}
	if err := s.pong(); err != nil {
		return err
	}
	if in.startTimeout(s.conn, s.t.cfg.MessageTimeout); s.o.Bulk && in.inside && s.try != nil {
		return s.fillBulk()
	}
	n, err := s.conn.Read(in.buf)
	in.w = n
	return readError(n, err)
}

// fillBulk holds no memory for a bulk while it waits.
func (s *SocketSink) fillBulk() error {
	in := &s.in
	n, err := s.try.Read(in.buf)
	if in.w = n; n > 0 || err != nil {
		return err
	}
	bulks.Put((*[bulkBuffer]byte)(in.buf))
	n, err = s.conn.Read(in.small[:])
	in.buf = bulks.Get().(*[bulkBuffer]byte)[:]
	in.w = copy(in.buf, in.small[:n])
	return readError(n, err)
}

// readError is that of a read of n bytes.
func readError(n int, err error) error {
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
