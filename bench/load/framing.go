package load

import (
	"encoding/binary"
	"errors"
)

// framing takes the transport off what a connection brings. data gets the content, in pieces cut
// anywhere; an error ends the connection.
type framing interface {
	feed(b []byte, data func([]byte)) error
}

// errEnded reports that the server has ended the stream in an orderly way.
var errEnded = errors.New("load: the server ended the stream")

// errFraming reports that the peer does not speak the transport.
var errFraming = errors.New("load: malformed framing")

// identity is a body that ends with the connection.
type identity struct{}

func (identity) feed(b []byte, data func([]byte)) error { data(b); return nil }

// chunked is the chunked coding of RFC 9112 §7.1. Extensions are passed over; a trailer is not read.
type chunked struct {
	left  int // bytes of the chunk that have not come
	size  int // as far as it has been read
	state chunkState
}

type chunkState uint8

const (
	inSize chunkState = iota
	inExtension
	inData
	inEnd // the line end behind the data
)

func (c *chunked) feed(b []byte, data func([]byte)) error {
	for len(b) > 0 {
		if c.state == inData {
			n := min(c.left, len(b))
			data(b[:n])
			b = b[n:]
			if c.left -= n; c.left == 0 {
				c.state = inEnd
			}
			continue
		}
		if err := c.line(b[0]); err != nil {
			return err
		}
		b = b[1:]
	}
	return nil
}

// line takes a byte between two chunks.
func (c *chunked) line(ch byte) error {
	v, hex := parseHex([]byte{ch | 0x20})
	switch {
	case c.state == inEnd && ch == '\n':
		c.state, c.size = inSize, 0
	case c.state == inEnd && ch == '\r':
	case c.state == inEnd:
		return errFraming
	case ch == '\n' && c.size == 0:
		return errEnded
	case ch == '\n':
		c.state, c.left = inData, c.size
	case ch == '\r' || c.state == inExtension:
	case ch == ';':
		c.state = inExtension
	case !hex || c.size > 1<<30:
		return errFraming
	default:
		c.size = c.size<<4 | int(v)
	}
	return nil
}

// frameParser reads the frames of RFC 6455 §5, from a server: not masked, no extension.
type frameParser struct {
	head   [10]byte
	n      int // bytes of head that have come
	left   uint64
	inBody bool
	// control collects the payload of a ping; pong is called with it.
	control []byte
	pong    func([]byte) error
}

const (
	opClose = 0x8
	opPing  = 0x9
)

func (m *frameParser) feed(b []byte, data func([]byte)) error {
	for len(b) > 0 {
		if !m.inBody {
			m.head[m.n] = b[0]
			m.n++
			b = b[1:]
			if err := m.parseHead(); err != nil {
				return err
			}
		} else {
			n := int(min(m.left, uint64(len(b))))
			if m.head[0]&0x08 != 0 {
				m.control = append(m.control, b[:n]...)
			} else {
				data(b[:n])
			}
			b = b[n:]
			m.left -= uint64(n)
		}
		if m.inBody && m.left == 0 {
			if err := m.finishFrame(); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseHead reads the head of a frame once all of it has come.
func (m *frameParser) parseHead() error {
	if m.n < 2 {
		return nil
	}
	short, need := uint64(m.head[1]), 2
	switch {
	case m.head[1]&0x80 != 0 || m.head[0]&0x70 != 0:
		return errFraming
	case short == 126:
		need = 4
	case short == 127:
		need = 10
	}
	if m.n < need {
		return nil
	}
	m.left = short
	switch need {
	case 4:
		m.left = uint64(binary.BigEndian.Uint16(m.head[2:]))
	case 10:
		m.left = binary.BigEndian.Uint64(m.head[2:])
	}
	if m.head[0]&0x08 != 0 && m.left > 125 {
		return errFraming
	}
	m.inBody = true
	return nil
}

// finishFrame deals with a frame that is whole.
func (m *frameParser) finishFrame() error {
	op := m.head[0] & 0x0f
	m.inBody, m.n = false, 0
	body := m.control
	m.control = m.control[:0]
	switch op {
	case opClose:
		return errEnded
	case opPing:
		return m.pong(body)
	}
	return nil
}

// pongFrame answers a ping. The mask is zero: it protects proxies from hostile payloads, and this one
// is the server's own.
func pongFrame(body []byte) []byte {
	return append([]byte{0x8a, 0x80 | byte(len(body)), 0, 0, 0, 0}, body...)
}
