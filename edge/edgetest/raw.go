package edgetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Raw is a gRPC call whose client takes 64 KiB, which is what HTTP/2 allows at first, and no more until Allow.
type Raw struct {
	conn net.Conn
	mu   sync.Mutex // guards fr's writes and what follows
	fr   *http2.Framer
	got  bytes.Buffer
	n    int
	more chan struct{} // has a place: something has come
	done chan struct{}

	// Set when the call is over: the trailers, or why the stream was reset.
	Trailer map[string]string
	Reset   http2.ErrCode
	Err     error // of the connection
}

// CallRaw makes a call over a connection of its own, which it closes at the end; headers are name, value, name, value …
func CallRaw(conn net.Conn, path string, message []byte, headers ...string) (*Raw, error) {
	r := &Raw{conn: conn, fr: http2.NewFramer(conn, conn), more: make(chan struct{}, 1), done: make(chan struct{})}
	r.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	headers = append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority",
		conn.RemoteAddr().String(), "content-type", "application/grpc", "te", "trailers"}, headers...)
	for i := 0; i+1 < len(headers); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: strings.ToLower(headers[i]), Value: headers[i+1]}); err != nil {
			return nil, err
		}
	}
	go r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := io.WriteString(conn, http2.ClientPreface)
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	return r, errors.Join(err, r.fr.WriteSettings(),
		r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
		r.fr.WriteData(1, true, body))
}

// read takes frames until the call is over. What the server asks of a client that lives is answered.
func (r *Raw) read() {
	defer close(r.done)
	for {
		f, err := r.fr.ReadFrame()
		r.mu.Lock()
		over := err != nil
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = r.fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = r.fr.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			r.n += len(f.Data())
			r.got.Write(f.Data())
			select {
			case r.more <- struct{}{}:
			default:
			}
		case *http2.MetaHeadersFrame:
			r.Trailer = map[string]string{}
			for _, h := range f.Fields {
				r.Trailer[h.Name] = h.Value
			}
			over = f.StreamEnded()
		case *http2.RSTStreamFrame:
			r.Reset, over = f.ErrCode, true
		}
		if r.Err = err; over || err != nil {
			r.mu.Unlock()
			_ = r.conn.Close() // nothing comes any more
			return
		}
		r.mu.Unlock()
	}
}

// Allow lets the server send n bytes more.
func (r *Raw) Allow(n uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.fr.WriteWindowUpdate(0, n), r.fr.WriteWindowUpdate(1, n))
}

// Bytes returns how many have come.
func (r *Raw) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// Done is closed when the call is over.
func (r *Raw) Done() <-chan struct{} { return r.done }

// Messages returns those that have come whole since it was last called.
func (r *Raw) Messages() (list [][]byte) {
	for m := r.next(); m != nil; m = r.next() {
		list = append(list, m)
	}
	return list
}

// Next waits for a message; nil: the call is over.
func (r *Raw) Next() []byte {
	for over := false; ; {
		if m := r.next(); m != nil || over {
			return m
		}
		over = r.wait()
	}
}

// next returns a message that has come; nil: none has.
func (r *Raw) next() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.got.Bytes()
	if len(b) < 5 || len(b)-5 < int(binary.BigEndian.Uint32(b[1:])) {
		return nil
	}
	return bytes.Clone(r.got.Next(5 + int(binary.BigEndian.Uint32(b[1:])))[5:])
}

// wait waits until more has come, or the call is over.
func (r *Raw) wait() (over bool) {
	select {
	case <-r.more:
		return false
	case <-r.done:
		return true
	}
}

// Until waits until a text has come, and forgets all that came before. It reports whether it has.
func (r *Raw) Until(text string) bool {
	for over := false; ; {
		r.mu.Lock()
		b := r.got.Bytes()
		i := bytes.Index(b, []byte(text))
		if i >= 0 {
			r.got.Next(i + len(text))
		} else {
			r.got.Next(max(0, len(b)-len(text)))
		}
		r.mu.Unlock()
		if i >= 0 || over {
			return i >= 0
		}
		over = r.wait()
	}
}

// Close leaves.
func (r *Raw) Close() {
	_ = r.conn.Close() // so that read returns
	<-r.done
}

// WaitEnd waits for the end of the call, for so long, and returns how it ended.
func (r *Raw) WaitEnd(within time.Duration) string {
	select {
	case <-r.done:
	case <-time.After(within):
		return "open"
	}
	switch {
	case r.Err != nil:
		return "lost"
	case r.Trailer["grpc-status"] != "":
		return fmt.Sprintf("%s %s", r.Trailer["grpc-status"], r.Trailer["grpc-message"])
	}
	return "reset " + r.Reset.String()
}
