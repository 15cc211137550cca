package ws

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// TestEndOfASlowClient has clients that do not read when their stream is ended for that, between two frames, within
// one, and while somebody waits for them, and that read later, but within the write time-out. They get all that was
// written, the rest of a frame and the close frame, and no reset, also those that speak all the while.
func TestEndOfASlowClient(t *testing.T) {
	end := transport.End{Close: 1008, Message: "backlog", Last: frames("bye"), Wait: true}
	data := strings.Repeat("x", 90000)
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, sink *SocketSink, rest []byte) error
		more int // frames behind those that were written
	}{
		{"within a frame", func(_ *testing.T, sink *SocketSink, rest []byte) error {
			e := end
			e.Rest = rest
			return sink.CloseWith(e)
		}, 1},
		{"while its rest is written", func(t *testing.T, sink *SocketSink, rest []byte) error {
			if err := sink.Rest(rest); err != nil {
				t.Error(err)
			}
			return sink.CloseWith(end)
		}, 1},
		{"with frames collected", func(t *testing.T, sink *SocketSink, rest []byte) error {
			if err := sink.Rest(rest); err != nil {
				t.Error(err)
			}
			if err := sink.Write(frames(data[:50000])); err != nil {
				t.Error(err)
			}
			return sink.CloseWith(end)
		}, 2},
		{"between frames", func(t *testing.T, sink *SocketSink, rest []byte) error {
			if err := sink.Rest(rest); err != nil {
				t.Error(err)
			}
			e := end
			e.Rest = ready(data) // nothing of it was taken
			return sink.CloseWith(e)
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				cfg.WriteTimeout, cfg.CloseTimeout = 20*time.Second, 50*time.Millisecond
				s := server(t, cfg, nil)
				p, sink := s.connect(t)
				rest, whole := fill(t, sink, data)
				for i := range 20 {
					if _, err := p.Write(append(masked(0x89, fmt.Append(nil, i)), text("speaks")...)); err != nil {
						t.Fatal(err)
					}
				}
				done := make(chan error, 1)
				go func() { done <- tt.end(t, sink, rest) }()
				time.Sleep(3 * cfg.CloseTimeout) // the client is slow: that is the test
				if len(done) > 0 {
					t.Fatalf("nobody waits: %v", <-done)
				}
				code, before := p.answerClose(t)
				var events []string
				for _, f := range before {
					if f.op == opText {
						events = append(events, string(f.data))
					}
				}
				if code != 1008 || len(events) != whole+tt.more+1 || events[len(events)-1] != "bye" {
					t.Errorf("code %d, %d frames, want %d", code, len(events), whole+tt.more+1)
				}
				for i, e := range events[:whole+1] {
					if e != data {
						t.Errorf("frame %d of %d has %d bytes", i, whole, len(e))
					}
				}
				if err := wait(t, done, "end"); err != nil {
					t.Error(err)
				}
				if n, err := p.br.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("behind the close: %d, %v", n, err)
				}
				if len(s.closed) > 0 {
					t.Errorf("closed: %v", <-s.closed)
				}
			})
		})
	}
}

// TestEndOfAClientThatDoesNotWake holds that waiting has an end.
func TestEndOfAClientThatDoesNotWake(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout = 100 * time.Millisecond
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		rest, _ := fill(t, sink, strings.Repeat("x", 90000))
		err := sink.CloseWith(transport.End{Close: 1008, Rest: append(rest, ready(strings.Repeat("x", 8<<20))...),
			Wait: true})
		if !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("end: %v", err)
		}
		if _, err := io.Copy(io.Discard, p.br); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}
	})
}
