package grpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"connectrpc.com/connect"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// Both is a call whose client sends messages as long as it likes. Connect begins and ends it: who waits for the client
// between has nothing of connect on its stack. One goroutine reads and takes; another one may use the Sink meanwhile.
type Both struct {
	CallSink
	// Ctx ends with the call, and at the deadline that the client has set.
	Ctx    context.Context
	cancel context.CancelFunc // nil: the client has set none
	call   call
	r      *http.Request
	last   *transport.End
	rest   []byte // the beginning of a message
	held   int64  // of Memory, for it
	// Memory is what the beginning of a message takes that has more than 4 KiB; nil: nobody counts.
	Memory Memory
}

// Memory is what a call's messages may take.
type Memory interface {
	// Reserve waits a little for n bytes more. An error ends the call.
	Reserve(n int64) error
	Give(n int64)
}

// OpenCall begins a call that IsCall has approved. The body of the request is for Feed; Finish ends the call.
// An error is as Serve's: then the client has been answered.
func (t *Transport) OpenCall(w http.ResponseWriter, r *http.Request) (*Both, error) {
	b := &Both{r: r, Ctx: r.Context()}
	b.call = call{both: b}
	b.call.setUp(t, w, r)
	b.CallSink = CallSink{c: &b.call, out: transport.NewResponse("grpc", b.call.w, b.call.rc, t.cfg.WriteTimeout)}
	if !b.ask() {
		return nil, t.serve(w, r, &call{})
	}
	return b, nil
}

// ask asks connect whether this is a call, until when its client waits, and for the headers of its answer: on a
// response that goes nowhere, since the call is over for connect behind it.
func (b *Both) ask() bool {
	nowhere := &heldResponse{ResponseWriter: nothing{make(http.Header)}}
	question := &call{begun: func(ctx context.Context) {
		if until, ok := ctx.Deadline(); ok {
			b.Ctx, b.cancel = context.WithDeadline(b.Ctx, until)
		}
		merge(b.call.w.Header(), nowhere.Header())
	}}
	r := b.r.WithContext(context.WithValue(b.Ctx, callKey{}, question))
	r.Body = http.NoBody
	b.call.t.handler.ServeHTTP(nowhere, r)
	return question.served
}

// nothing is a response that goes nowhere.
type nothing struct{ header http.Header }

func (n nothing) Header() http.Header       { return n.header }
func (nothing) WriteHeader(int)             {}
func (nothing) Write(b []byte) (int, error) { return len(b), nil }

// ReadError is the error for one of reading the body.
func (b *Both) ReadError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("grpc: %w", ErrTimeout)
	case b.r.ProtoMajor == 1 && !errors.Is(err, io.ErrUnexpectedEOF): // HTTP/2 has no body that is malformed
		return unreadable(err)
	}
	return fmt.Errorf("grpc: read request: %w: %w", dialect.ErrClientGone, err)
}

// Feed takes what was read, and calls each with the messages that are whole, whose bytes it may change, and
// must not keep.
func (b *Both) Feed(p []byte, each func(message []byte) error) error {
	if len(b.rest) > 0 {
		if err := b.keep(p); err != nil {
			return err
		}
		p = b.rest
	}
	most := b.call.t.cfg.MaxRequest
	for len(p) >= prefix {
		n := binary.BigEndian.Uint32(p[1:])
		if int64(n) > int64(most) {
			return fmt.Errorf("grpc: %w", ErrTooLarge)
		}
		end := prefix + int(n)
		if len(p) < end {
			break
		}
		m, err := b.message(p[0], p[prefix:end])
		if err == nil {
			err = each(m)
		}
		if err != nil {
			return err
		}
		p = p[end:]
	}
	switch {
	case len(p) == 0 && cap(b.rest) > keptRest:
		b.drop()
	case len(p) == 0 || len(p) != len(b.rest): // else it is there
		b.rest = b.rest[:copy(b.rest, p)]
		return b.keep(p[len(b.rest):])
	}
	return nil
}

// freeRest is the beginning of a message that nobody counts, in bytes.
const freeRest = 4 << 10

// keep adds to the beginning of a message. Its memory grows with what has come.
func (b *Both) keep(p []byte) error {
	need := len(b.rest) + len(p)
	if need <= cap(b.rest) {
		b.rest = append(b.rest, p...)
		return nil
	}
	size := max(need, 2*cap(b.rest))
	if need <= freeRest {
		size = min(size, freeRest)
	}
	if more := int64(size) - b.held; size > freeRest && b.Memory != nil && more > 0 {
		if err := b.Memory.Reserve(more); err != nil {
			return fmt.Errorf("grpc: a message of %d bytes so far: %w", len(b.rest), err)
		}
		b.held = int64(size)
	}
	b.rest = append(append(make([]byte, 0, size), b.rest...), p...)
	return nil
}

// drop lets go of the beginning of a message.
func (b *Both) drop() {
	if b.rest = nil; b.held > 0 {
		b.Memory.Give(b.held)
		b.held = 0
	}
}

// keptRest is the largest beginning of a message whose memory is used again, in bytes.
const keptRest = 1 << 10

// message inflates a message if need be.
func (b *Both) message(flags byte, data []byte) ([]byte, error) {
	switch {
	case flags == 0 || flags == 1 && len(data) == 0:
		return data, nil
	case flags != 1 || b.r.Header.Get("Grpc-Encoding") != "gzip":
		return nil, dialect.Refuse(dialect.ErrBadRequest, "a message has the flags %d, which are not known here", flags)
	}
	in := inflating.Get().(*bounded)
	defer inflating.Put(in)
	in.most = b.call.t.cfg.MaxRequest
	err := in.Reset(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(in)
	}
	if connect.CodeOf(err) == connect.CodeResourceExhausted {
		return nil, fmt.Errorf("grpc: %w", ErrTooLarge)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return data, nil
}

var inflating = sync.Pool{New: func() any { return new(bounded) }}

// Whole returns an error where what was read ends within a message.
func (b *Both) Whole() error {
	if len(b.rest) > 0 {
		return dialect.Refuse(dialect.ErrBadRequest, "a message is cut short")
	}
	return nil
}

// Finish ends the call. The error says why the end did not get through.
func (b *Both) Finish(e transport.End) error {
	b.drop()
	if b.cancel != nil {
		defer b.cancel()
	}
	b.last = &e
	return b.call.t.run(b.r, &b.call)
}
