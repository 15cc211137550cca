package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// TestEndOfASlowClient has clients that do not read when their stream is ended for that, and read later, but within
// the write time-out: they get the rest of the frame, the last ones, and no reset.
func TestEndOfASlowClient(t *testing.T) {
	last := []dialect.Frame{frame("error", "{}", ""), frame("done", "[]", "9")}
	for _, tt := range []struct {
		clean bool
		err   error
	}{{true, nil}, {false, io.ErrUnexpectedEOF}} {
		for _, inPart := range []bool{true, false} {
			both(t, func(t *testing.T, cfg Config) {
				cfg.WriteTimeout = 20 * time.Second
				s := direct(t, cfg)
				c, d := s.connect(t, "")
				f := frame("x", strings.Repeat("y", 60<<10), "1")
				rest, whole := fill(t, d, f)
				if _, err := io.WriteString(c, "speaks"); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					e := transport.End{Clean: tt.clean, Last: last, Wait: true, Rest: rest}
					if !inPart {
						if err := d.Rest(rest); err != nil {
							t.Error(err)
						}
						e.Rest = nil
					}
					done <- d.CloseWith(e)
				}()
				time.Sleep(150 * time.Millisecond) // the client is slow: that is the test
				if len(done) > 0 {
					t.Fatalf("nobody waits: %v", <-done)
				}
				if _, err := io.WriteString(c, "still speaks"); err != nil {
					t.Fatal(err)
				}
				got, err := body(t, c)
				want := strings.Repeat(string(Plain.Append(nil, f)), whole+1) +
					string(Plain.Append(Plain.Append(nil, last[0]), last[1]))
				if got != want || !errors.Is(err, tt.err) {
					t.Errorf("%d bytes, %v, want %d, %v", len(got), err, len(want), tt.err)
				}
				c.Close()
				if err := wait(t, done, "end"); err != nil || len(s.gone) > 0 {
					t.Errorf("%v, %d gone", err, len(s.gone))
				}
			})
		}
	}
}

// TestEndOfAClientThatDoesNotWake holds that waiting has an end.
func TestEndOfAClientThatDoesNotWake(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout = 100 * time.Millisecond
		s := direct(t, cfg)
		c, d := s.connect(t, "")
		rest, _ := fill(t, d, frame("x", strings.Repeat("y", 60<<10), "1"))
		if err := d.CloseWith(transport.End{Rest: append(rest, bytes.Repeat([]byte("z"), 8<<20)...),
			Wait: true}); !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("end: %v", err)
		}
		if got, err := body(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes, then %v", len(got), err)
		}
	})
}
