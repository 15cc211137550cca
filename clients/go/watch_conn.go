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

// How a connection ends, besides errors of the network.
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

// close leaves the connection; what it brought of the next frame is forgotten with it.
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
	return bytes.Contains(c.chunk, []byte("\n\n")) || bytes.Contains(c.chunk, []byte("\n\r\n")) || bytes.Contains(c.chunk, []byte("\r\r"))
}

// arrive returns the next event of the connection, opening one where there is none. The error is a
// *GapError beside the event, or why the connection ended.
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
		a, err := s.take(f)
		if a != nil || err != nil {
			return a, err
		}
	}
}

// open waits until a connection is due and opens it behind the newest event.
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
	r := request{method: http.MethodGet, target: withQuery(s.c.runURL(s.run, "stream"), s.opt.query(after)), accept: "text/event-stream"}
	if after > 0 {
		r.lastEvent = after.String()
	}
	req, token, err := s.c.build(s.connCtx, &r)
	if err != nil {
		return err
	}
	req.Header.Set("Cache-Control", "no-cache")
	s.token = token
	resp, err := s.c.do(req)
	if err != nil {
		return err
	}
	if err := accepted(resp); err != nil {
		resp.Body.Close()
		return err
	}
	s.answered, s.fresh = true, false
	s.stats.Connections++
	s.body = resp.Body
	return nil
}

// accepted returns an error when an answer is not a stream.
func accepted(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return errRunEnded
	case resp.StatusCode != http.StatusOK:
		return readError(resp)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		return fmt.Errorf("answer is %s, want text/event-stream: is this an agentstream server?", printable(resp.Header.Get("Content-Type")))
	}
	return nil
}

// within cuts the connection when ctx ends, until the function that it returns is called.
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

// read waits for bytes. Only here runs the watchdog: a caller that takes its time is no fault of the
// server.
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
		return min(settleTimeout, s.c.cfg.IdleTimeout)
	}
	return s.c.cfg.IdleTimeout
}

// take reads one frame and checks that it is the next event. It returns nothing for a frame that is
// none, and an *Error for the server's last word.
func (s *Stream) take(f sseFrame) (*arrival, error) {
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
		return nil, s.notEvent(f, err)
	}
	if e.Type == typeGap { // the numbers of the next event show it too
		return nil, nil
	}
	if e.Seq <= s.last {
		s.stats.Duplicates++
		if h := s.c.cfg.Hooks.Duplicate; h != nil {
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

// notEvent takes a frame that holds no event: the server's last word about an error, which decides
// like the same word in an HTTP answer; an event that cannot be read, which is a gap; or something
// newer than this library.
func (s *Stream) notEvent(f sseFrame, cause error) error {
	if e, ok := lastWord(f.Data); ok {
		return e
	}
	if seq, err := schema.ParseCursor(f.ID); err == nil && seq > max(s.last, s.through) {
		return &GapError{After: s.last, First: seq, Seq: seq, Cause: cause}
	}
	s.stats.PassedOver++
	s.c.cfg.Logger.LogAttrs(s.ctx, slog.LevelWarn, "a frame is no event and was passed over",
		slog.String("run", s.run), slog.Any("error", cause))
	if h := s.c.cfg.Hooks.PassedOver; h != nil {
		h(cause)
	}
	return nil
}

// finalState reports whether an event of the run itself ends it, and notes what the server says that it
// dropped.
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

// after decides what follows the end of a connection: nil is another one when it is due. Anything
// else is for the caller of Next.
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
		if s.fresh || !s.c.tokens.refused(ctx, s.token) {
			return s.finish(err)
		}
		s.fresh = true
		if !s.answered || s.moved {
			return nil
		}
		return s.later(ctx, 0, err, confirming) // tokens that end at once are asked for in steps
	}
	if s.ended && !confirming {
		// A final lifecycle may stand in the middle of a run that was followed up. Only the next
		// answer shows it: 204, or what came after.
		s.final = backoff{giveUp: confirmTimeout}
		return nil
	}
	hint, again, err := s.c.retryable(err)
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
		s.c.cfg.Logger.LogAttrs(s.ctx, slog.LevelInfo, "the run says that it is over, and nobody answers who could confirm it",
			slog.String("run", s.run), slog.Any("error", err))
		if h := s.c.cfg.Hooks.Unconfirmed; h != nil {
			h(err)
		}
		return s.finish(io.EOF)
	}
	if gaveUp != nil {
		return s.finish(gaveUp)
	}
	s.due = time.Now().Add(d)
	s.c.retrying(ctx, err, d)
	return nil
}

func (s *Stream) finish(err error) error {
	s.err = err
	s.stop(err)
	return err
}
