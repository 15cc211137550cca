package agentstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"agentstream/schema"
)

const (
	// settleTimeout is how long a run that reports its end may keep its stream open: the server ends
	// it by itself, unless there is a follow-up.
	settleTimeout = 5 * time.Second
	// confirmTimeout bounds the question whether a final lifecycle was the end.
	confirmTimeout = 10 * time.Second
)

// Reasons for the end of a connection, besides network errors.
var (
	errRunEnded  = errors.New("run has ended")           // 204: nothing will ever follow
	errStreamEnd = errors.New("server ended the stream") // in order
	errIdle      = errors.New("no sign of life")         // half-open connection
)

// conn is one connection of a Stream. Without a body there is none.
type conn struct {
	connCtx  context.Context
	cut      context.CancelCauseFunc
	body     io.ReadCloser
	bodyErr  error // comes when what was read is used up
	watchdog *time.Timer
	buf      []byte
	chunk    []byte // the part of buf that was not parsed yet
	parser   sseParser
	token    string

	answered bool // it was accepted
	moved    bool // it brought an event
}

// close closes the connection and drops the part of a frame that it has brought.
func (c *conn) close() {
	if c.cut != nil {
		c.cut(nil)
		c.watchdog.Stop()
	}
	if c.body != nil {
		c.body.Close()
	}
	c.body, c.bodyErr, c.chunk, c.cut = nil, nil, nil, nil
	c.parser.reset()
}

// complete reports whether a whole frame seems to be in the buffer.
func (c *conn) complete() bool {
	for _, end := range []string{"\n\n", "\n\r\n", "\r\r"} {
		if bytes.Contains(c.chunk, []byte(end)) {
			return true
		}
	}
	return false
}

// arrive returns the next event of the connection, and opens one if there is none. The error is a *GapError,
// together with the event, or the reason for the end of the connection.
func (s *Stream) arrive(ctx context.Context) (*arrival, error) {
	if s.body == nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	for {
		f, err := s.frame(ctx)
		if err != nil {
			return nil, err
		}
		a, err := s.decode(f)
		if a != nil || err != nil {
			return a, err
		}
	}
}

// open waits until the next connection is due and opens it after the newest event.
func (s *Stream) open(ctx context.Context) error {
	s.answered, s.moved, s.confirming = false, false, s.ended
	s.connCtx, s.cut = context.WithCancelCause(s.ctx)
	cut := s.cut
	s.watchdog = time.AfterFunc(time.Hour, func() { cut(errIdle) })
	s.watchdog.Stop() // until read
	defer s.within(ctx)()
	if err := sleep(s.connCtx, time.Until(s.due)); err != nil {
		return err
	}
	after := max(s.last, s.through)
	target := withQuery(s.run.url("stream"), s.opt.query(after))
	r := request{method: http.MethodGet, target: target, accept: "text/event-stream"}
	if after > 0 {
		r.lastEvent = after.String()
	}
	req, token, err := s.run.c.build(s.connCtx, &r)
	if err != nil {
		return err
	}
	req.Header.Set("Cache-Control", "no-cache")
	s.token = token
	resp, err := s.run.c.do(req)
	if err != nil {
		return err
	}
	if err := checkStream(resp); err != nil {
		resp.Body.Close()
		return err
	}
	s.answered, s.fresh = true, false
	s.stats.Connections++
	s.body = resp.Body
	return nil
}

// checkStream returns an error if an answer is not a stream.
func checkStream(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return errRunEnded
	case resp.StatusCode != http.StatusOK:
		return readError(resp)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		got := printable(resp.Header.Get("Content-Type"))
		return fmt.Errorf("answer is %s, want text/event-stream: is this an agentstream server?", got)
	}
	return nil
}

// within closes the connection if ctx ends before the returned function is called.
func (s *Stream) within(ctx context.Context) func() {
	if ctx.Done() == nil || ctx.Done() == s.ctx.Done() {
		return func() {}
	}
	cut := s.cut
	stop := context.AfterFunc(ctx, func() { cut(context.Cause(ctx)) })
	return func() { stop() }
}

// frame returns the next whole frame.
func (s *Stream) frame(ctx context.Context) (sseFrame, error) {
	for {
		f, rest, ok, err := s.parser.next(s.chunk)
		s.chunk = rest
		if ok || err != nil {
			return f, err
		}
		if s.bodyErr != nil {
			return f, s.bodyErr
		}
		if s.buf == nil {
			s.buf = make([]byte, 32<<10)
		}
		n, err := s.read(ctx)
		s.chunk, s.bodyErr = s.buf[:n], err
	}
}

// read waits for bytes. The watchdog runs only here: a slow caller is not the server's fault.
func (s *Stream) read(ctx context.Context) (int, error) {
	defer s.within(ctx)()
	s.watchdog.Reset(s.patience())
	n, err := s.body.Read(s.buf)
	s.watchdog.Stop()
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		return n, errStreamEnd
	case errors.Is(context.Cause(s.connCtx), errIdle):
		return n, errIdle
	}
	return n, &connError{err}
}

func (s *Stream) patience() time.Duration {
	if s.ended {
		return min(settleTimeout, s.run.c.cfg.IdleTimeout)
	}
	return s.run.c.cfg.IdleTimeout
}

// decode reads one frame and checks that it is the next event. It returns nil for a frame without an event,
// and an *Error for the server's last frame.
func (s *Stream) decode(f sseFrame) (*arrival, error) {
	if f.Data == nil { // the cursor moves over what this client does not see
		if seq, err := schema.ParseCursor(f.ID); err == nil {
			s.through = max(s.through, seq)
		}
		return nil, nil
	}
	e, err := schema.DecodeView(f.Data)
	if err == nil && (e.Type == "" || e.Seq == 0) {
		err = fmt.Errorf("no type or no seq: %w", schema.ErrMalformed)
	}
	if err != nil {
		return nil, s.otherFrame(f, err)
	}
	if e.Type == typeGap { // the numbers of the next event show it too
		return nil, nil
	}
	if e.Seq <= s.last {
		s.stats.Duplicates++
		if h := s.run.c.cfg.Hooks.Duplicate; h != nil {
			h(int64(e.Seq), int64(s.last))
		}
		return nil, nil
	}
	a := &arrival{event: e, line: f.Data}
	if first := e.First(); first > max(s.last, s.through)+1 || first <= s.last {
		return a, &GapError{After: s.last, First: first, Seq: e.Seq}
	}
	return a, nil
}

// otherFrame handles a frame that holds no event. It is an error of the server, which counts like the same
// error in an HTTP answer; or an event that cannot be read, which is a gap; or newer than this library.
func (s *Stream) otherFrame(f sseFrame, cause error) error {
	if e, ok := lastWord(f.Data); ok {
		return e
	}
	if seq, err := schema.ParseCursor(f.ID); err == nil && seq > max(s.last, s.through) {
		return &GapError{After: s.last, First: seq, Seq: seq, Cause: cause}
	}
	s.stats.PassedOver++
	s.run.c.cfg.Logger.LogAttrs(s.ctx, slog.LevelWarn, "skipped a frame that is not an event",
		slog.String("run", s.run.id), slog.Any("error", cause))
	if h := s.run.c.cfg.Hooks.PassedOver; h != nil {
		h(cause)
	}
	return nil
}

// finalState reports whether an event of the root lane ends the run. It stores the count of dropped events
// that the server reports with the end.
func (s *Stream) finalState(e *schema.Event) bool {
	if e.Type == typeSnapshot { // of a run that is over nothing else may come
		var sum struct {
			State schema.RunState `json:"state"`
		}
		return json.Unmarshal(e.Payload, &sum) == nil && sum.State.Final()
	}
	if e.Type != schema.TypeRunLifecycle {
		return false
	}
	l, err := schema.ParseLifecycle(e.Payload)
	if err != nil || !l.State.Final() {
		return false
	}
	var dropped struct {
		Count int64  `json:"dropped_count"`
		Code  string `json:"dropped_code"`
	}
	if json.Unmarshal(e.Payload, &dropped) == nil && dropped.Count > 0 {
		s.stats.Dropped, s.stats.DroppedCode = dropped.Count, dropped.Code
	}
	return true
}

// after handles the end of a connection. It returns nil if another one is to follow when it is due, or the
// error for the caller of Next.
func (s *Stream) after(ctx context.Context, err error) error {
	confirming := s.confirming && !s.moved
	s.close()
	switch {
	case s.ctx.Err() != nil:
		return s.finish(context.Cause(s.ctx))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errRunEnded):
		return s.finish(io.EOF)
	case confirming && (errors.Is(err, errStreamEnd) || errors.Is(err, errIdle)):
		return s.finish(io.EOF)
	}
	if s.answered {
		s.usual.alive()
	}
	if s.moved {
		s.usual.reset()
	}
	s.due = time.Now()
	if isRefusal(err) {
		if s.fresh || !s.run.c.tokens.canReplace(ctx, s.token) {
			return s.finish(err)
		}
		s.fresh = true
		if !s.answered || s.moved {
			return nil
		}
		return s.later(ctx, 0, err, confirming) // tokens that end at once are asked for in steps
	}
	if s.ended && !confirming {
		// A run that was followed up has a final lifecycle in its middle. Only the next answer tells:
		// 204, or more events.
		s.final = backoff{giveUp: confirmTimeout}
		return nil
	}
	hint, again, err := s.run.c.retryable(err)
	if !again && !errors.Is(err, errStreamEnd) && !errors.Is(err, errIdle) {
		return s.finish(err)
	}
	return s.later(ctx, hint, err, confirming)
}

// later sets when the next connection is due.
func (s *Stream) later(ctx context.Context, hint time.Duration, err error, confirming bool) error {
	b := &s.usual
	if confirming {
		b = &s.final
	}
	b.floor = s.parser.retry
	d, gaveUp := b.pause(hint, err)
	if gaveUp != nil && confirming {
		s.run.c.cfg.Logger.LogAttrs(s.ctx, slog.LevelInfo, "the run has ended, but the server did not confirm it",
			slog.String("run", s.run.id), slog.Any("error", err))
		if h := s.run.c.cfg.Hooks.Unconfirmed; h != nil {
			h(err)
		}
		return s.finish(io.EOF)
	}
	if gaveUp != nil {
		return s.finish(gaveUp)
	}
	s.due = time.Now().Add(d)
	s.run.c.retrying(ctx, err, d)
	return nil
}

func (s *Stream) finish(err error) error {
	s.err = err
	s.stop(err)
	return err
}
