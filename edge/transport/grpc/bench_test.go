package grpc

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// discard is a response that takes everything at once.
type discard struct {
	header http.Header
	writes int
}

func (d *discard) Header() http.Header              { return d.header }
func (d *discard) WriteHeader(int)                  {}
func (d *discard) Write(b []byte) (int, error)      { d.writes++; return len(b), nil }
func (d *discard) Flush()                           {}
func (d *discard) SetWriteDeadline(time.Time) error { return nil }
func (d *discard) SetReadDeadline(time.Time) error  { return nil }

// onDiscard serves one call on a response that takes everything.
func onDiscard(t testing.TB, fn func(*discard, transport.Sink)) {
	t.Helper()
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := &discard{header: make(http.Header)}
	r, err := http.NewRequest(http.MethodPost, procedure, bytes.NewReader(webMessage(nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.ProtoMajor = 2
	r.Header.Set("Content-Type", "application/grpc")
	err = tr.Serve(d, r, refusal, func(_ context.Context, _ []byte, s transport.Sink) transport.End {
		fn(d, s)
		return ok
	})
	if err != nil {
		t.Fatal(err)
	}
}

func batch(n, size int) []dialect.Frame {
	list := make([]dialect.Frame, n)
	for i := range list {
		list[i].Data = bytes.Repeat([]byte("x"), size)
	}
	return list
}

func TestWritingDoesNotAllocate(t *testing.T) {
	onDiscard(t, func(d *discard, s transport.Sink) {
		for _, list := range [][]dialect.Frame{batch(100, 300), batch(40, 100<<10)} {
			write := func() {
				if err := s.Write(list); err != nil {
					t.Fatal(err)
				}
				if err := flush(s); err != nil {
					t.Fatal(err)
				}
			}
			write()
			d.writes = 0
			write()
			if len(list) == 100 && d.writes != 1 {
				t.Errorf("%d messages in %d writes", len(list), d.writes)
			}
			// A buffer that the pool has lost, as it does on purpose under the race detector, is made again.
			if n := testing.AllocsPerRun(1000, write); n > float64(len(list))/10 {
				t.Errorf("%v allocations for %d messages", n, len(list))
			}
		}
	})
}

// BenchmarkSink writes batches of 32 messages of 300 bytes.
func BenchmarkSink(b *testing.B) {
	onDiscard(b, func(_ *discard, s transport.Sink) {
		list := batch(32, 300)
		b.ReportAllocs()
		b.SetBytes(32 * 305)
		for b.Loop() {
			if err := s.Write(list); err != nil {
				b.Fatal(err)
			}
			if err := flush(s); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "messages/s")
	})
}

// BenchmarkConnect writes the same with connect's own Send, which flushes each message.
func BenchmarkConnect(b *testing.B) {
	handler := connect.NewServerStreamHandler("/x.Y/Z",
		func(_ context.Context, _ *connect.Request[encodedMessage], out *connect.ServerStream[encodedMessage]) error {
			list := batch(32, 300)
			b.ReportAllocs()
			b.SetBytes(32 * 305)
			for b.Loop() {
				for _, f := range list {
					if err := out.Send(&encodedMessage{f.Data}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "messages/s")
			return nil
		}, connect.WithCodec(rawCodec{}))
	r, err := http.NewRequest(http.MethodPost, procedure, bytes.NewReader(webMessage(nil)))
	if err != nil {
		b.Fatal(err)
	}
	r.ProtoMajor = 2
	r.Header.Set("Content-Type", "application/grpc")
	handler.ServeHTTP(&discard{header: make(http.Header)}, r)
}

// BenchmarkServer sends batches of 32 messages of 300 bytes over loopback to grpc-go.
func BenchmarkServer(b *testing.B) {
	const batches = 1000
	list := batch(32, 300)
	s := serve(b, Config{}, func(_ context.Context, _ []byte, s transport.Sink) transport.End {
		for range batches {
			if err := s.Write(list); err != nil {
				b.Error(err)
			}
			if err := flush(s); err != nil {
				b.Error(err)
			}
		}
		return ok
	})
	cc := s.dial(b)
	b.ReportAllocs()
	for b.Loop() {
		got, err := all(start(b.Context(), b, cc, nil))
		if err != nil || len(got) != 32*batches {
			b.Fatal(len(got), err)
		}
	}
	b.ReportMetric(float64(32*batches*b.N)/b.Elapsed().Seconds(), "messages/s")
}
