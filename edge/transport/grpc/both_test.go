package grpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gogrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// echo serves calls that send back each message, and reads so many bytes at once. ended has how each ended.
func echo(t *testing.T, at int) (b *bench, ended chan error) {
	tr := transportOf(t, Config{})
	ended = make(chan error, 10)
	end := func(both *Both, body io.Reader) error {
		buf := make([]byte, at)
		for {
			n, err := body.Read(buf)
			terr := both.Feed(buf[:n], func(m []byte) error {
				return errors.Join(both.Write([]dialect.Frame{{Data: m}}), flush(both))
			})
			switch {
			case terr != nil:
				return terr
			case errors.Is(err, io.EOF):
				return both.Whole()
			case err != nil:
				return both.ReadError(err)
			}
		}
	}
	b = mounted(t, map[string]http.HandlerFunc{procedure: func(w http.ResponseWriter, r *http.Request) {
		u := &unwrapper{ResponseWriter: w}
		w.Header().Set("X-Leading", "yes")
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
		both, err := tr.OpenCall(u, r)
		if err == nil {
			if until, ok := both.Ctx.Deadline(); ok {
				_ = http.NewResponseController(w).SetReadDeadline(until)
			}
			err = end(both, r.Body)
			last := refusal(err)
			if last.Trailer = (http.Header{"X-Behind": {"it"}}); err == nil {
				last.Clean = true
			}
			if ferr := both.Finish(last); ferr != nil && err == nil {
				t.Error(ferr)
			}
		}
		if u.status == 0 {
			t.Error("a call that was served looks as if it was not answered")
		}
		ended <- err
	}})
	return b, ended
}

// TestBoth has messages as they may come, over HTTP/1.1, where a test can send anything.
func TestBoth(t *testing.T) {
	zipped := func(b []byte) []byte {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, _ = w.Write(b)
		_ = w.Close()
		m := webMessage(z.Bytes())
		m[0] = 1
		return m
	}
	large := bytes.Repeat([]byte("large"), 64<<10/5)
	two := slices.Concat(webMessage([]byte("one")), webMessage(nil), webMessage(large), webMessage([]byte("three")))
	gz := []string{"Grpc-Encoding", "gzip"}
	for name, tt := range map[string]struct {
		body    []byte
		headers []string
		want    []byte
		code    codes.Code
		err     error
	}{
		"nothing": {nil, nil, nil, codes.OK, nil},
		"several": {two, nil, two, codes.OK, nil},
		"gzip": {slices.Concat(zipped(large), webMessage([]byte("x"))), gz,
			slices.Concat(webMessage(large), webMessage([]byte("x"))), codes.OK, nil},
		"half a prefix": {append(webMessage([]byte("a")), 0, 0), nil, webMessage([]byte("a")),
			codes.InvalidArgument, dialect.ErrBadRequest},
		"half a message": {append(webMessage([]byte("a")), webMessage(large)[:100]...), nil,
			webMessage([]byte("a")), codes.InvalidArgument, dialect.ErrBadRequest},
		"too large": {append(webMessage([]byte("a")), 0, 0, 1, 0, 1), nil, webMessage([]byte("a")),
			codes.ResourceExhausted, ErrTooLarge},
		"huge length": {[]byte{0, 0xFF, 0xFF, 0xFF, 0xFF, 'x'}, nil, nil, codes.ResourceExhausted, ErrTooLarge},
		"gzip bomb":   {zipped(make([]byte, 40<<20)), gz, nil, codes.ResourceExhausted, ErrTooLarge},
		"gzip that is none": {append([]byte{1}, webMessage([]byte("none"))[1:]...), gz, nil,
			codes.InvalidArgument, dialect.ErrBadRequest},
		"compressed, but by what": {zipped([]byte("x")), nil, nil, codes.InvalidArgument, dialect.ErrBadRequest},
		"unknown flag": {append([]byte{0x40}, webMessage(nil)[1:]...), nil, nil, codes.InvalidArgument,
			dialect.ErrBadRequest},
		"unknown coding": {webMessage(nil), []string{"Grpc-Encoding", "zip"}, nil, codes.Unimplemented,
			dialect.ErrBadRequest},
		"bad deadline": {webMessage(nil), []string{"Grpc-Timeout", "soon"}, nil, codes.InvalidArgument,
			dialect.ErrBadRequest},
	} {
		for _, at := range []int{1, 7, 100 << 10} {
			b, ended := echo(t, at)
			got, code, text := b.web(t, tt.body, tt.headers...)
			if code != int(tt.code) || !bytes.Equal(got, tt.want) {
				t.Errorf("%s, %d at once: %d bytes, status %v %q, want %d and %v", name, at, len(got), codes.Code(code),
					text, len(tt.want), tt.code)
			}
			if err := <-ended; !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, want %v", name, err, tt.err)
			}
		}
	}
}

// TestBothOverHTTP2 has what a client of gRPC sees: answers while it sends, metadata, its deadline, and its leaving.
func TestBothOverHTTP2(t *testing.T) {
	b, ended := echo(t, 512)
	open := func(ctx context.Context) (gogrpc.ClientStream, func(string) error) {
		st, err := b.dial(t).NewStream(ctx, &gogrpc.StreamDesc{ServerStreams: true, ClientStreams: true}, procedure,
			gogrpc.ForceCodec(rawClientCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		return st, func(text string) error {
			m, got := raw(text), raw(nil)
			if err := errors.Join(st.SendMsg(&m), st.RecvMsg(&got)); err != nil {
				return err
			}
			if string(got) != text {
				t.Errorf("%d bytes for %d", len(got), len(text))
			}
			return nil
		}
	}
	st, say := open(t.Context())
	for _, text := range []string{"a", "", strings.Repeat("b", 60<<10), "c"} {
		if err := say(text); err != nil {
			t.Fatal(err)
		}
	}
	if md, err := st.Header(); err != nil || !slices.Equal(md.Get("x-leading"), []string{"yes"}) ||
		!slices.Equal(md.Get("content-type"), []string{"application/grpc+proto"}) {
		t.Error(md, err)
	}
	_ = st.CloseSend()
	if list, err := all(st); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	if !slices.Equal(st.Trailer().Get("x-behind"), []string{"it"}) || <-ended != nil {
		t.Error(st.Trailer())
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.MD{}), 100*time.Millisecond)
	defer cancel()
	st, say = open(ctx)
	_ = say("a") // if it comes so far
	if _, err := all(st); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrTimeout) && !errors.Is(err, dialect.ErrClientGone) {
		t.Error(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	_, say = open(ctx)
	if err := say("a"); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := <-ended; !errors.Is(err, dialect.ErrClientGone) && !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

var _ transport.Sink = (*Both)(nil)
