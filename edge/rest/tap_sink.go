package rest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/jsonl"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

// isForLines reports whether a client asks for JSONL.
func isForLines(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return strings.Contains(accept, linesType) || strings.Contains(accept, "application/jsonl")
}

// tapSink is the answer of a tap.
type tapSink struct {
	a     *API
	c     *protocol.Call
	lines bool // JSONL

	mu     sync.Mutex
	events *sse.EventSink
	jsonl  *jsonl.LineSink
	buf    []byte
	said   time.Time
}

func (s *tapSink) head() error {
	if s.lines {
		jsonl.SetHeader(s.c.Header(), jsonl.Identity)
	} else {
		sse.Plain.SetHeader(s.c.Header())
	}
	s.c.Writer.WriteHeader(http.StatusOK)
	return nil
}

// emit writes records. The answer begins with the first.
func (s *tapSink) emit(records []schema.TapRecord) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil && s.jsonl == nil {
		if s.lines {
			s.jsonl, err = s.a.jsonl.Open(s.c.Writer, jsonl.Negotiate(s.c.Request.Header.Values("Accept-Encoding")))
		} else {
			s.events, err = s.a.sse.Open(s.c.Writer, nil)
		}
		if err != nil {
			return err
		}
	}
	s.said = time.Now()
	for i := range records {
		if err := s.write(&records[i]); err != nil {
			return err
		}
		s.c.Events++
	}
	return s.flush()
}

func (s *tapSink) write(r *schema.TapRecord) error {
	if s.jsonl != nil {
		s.buf = AppendTapRecord(s.buf[:0], r)
		return s.jsonl.WriteLine(s.buf)
	}
	f := dialect.Frame{Data: r.Line, Token: []byte(r.Cursor)}
	switch r.Type { // events have no name, as in the stream of a run
	case "":
		f.Event, f.Data = []byte("tap.place"), []byte("{}")
	case schema.TapGap:
		f.Event = []byte(r.Type)
	}
	return s.events.Write([]dialect.Frame{f})
}

func (s *tapSink) flush() error {
	if s.jsonl != nil {
		return s.jsonl.Flush()
	}
	_, err := s.events.Flush()
	return err
}

// AppendTapRecord appends a record as a line of JSON.
func AppendTapRecord(b []byte, r *schema.TapRecord) []byte {
	b = append(append(b, `{"cursor":"`...), r.Cursor...) // of an alphabet without quotes
	switch r.Type {
	case "":
		return append(b, `"}`...)
	case schema.TapGap:
		b = append(b, `","gap":`...)
	default:
		b = append(b, `","event":`...)
	}
	return append(append(b, r.Line...), '}')
}

// keepAlive shows a sign of life in silence, until stop is called.
func (s *tapSink) keepAlive(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.a.cfg.KeepAlive)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := s.sign(); err != nil {
					end(err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		if s.jsonl != nil {
			s.jsonl.Close()
		}
		if s.events != nil {
			_ = s.events.CloseWith(transport.End{}) // it breaks off
		}
	}
}

// sign writes a comment, or an empty line, when nothing was written for a while.
func (s *tapSink) sign() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case time.Since(s.said) < s.a.cfg.KeepAlive:
		return nil
	case s.jsonl != nil:
		if err := s.jsonl.WriteLine(nil); err != nil {
			return err
		}
		return s.jsonl.Flush()
	case s.events != nil:
		return s.events.KeepAlive()
	}
	return nil
}
