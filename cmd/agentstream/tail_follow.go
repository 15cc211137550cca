package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"agentstream/schema"
)

const (
	// idleTimeout ends a connection on which not even a keep-alive came (native §5: every 15 s).
	idleTimeout = 60 * time.Second
	// settleTimeout is how long a run that says it is over may keep its stream open: the server ends
	// it by itself, unless somebody follows up.
	settleTimeout = 5 * time.Second
	// confirmTimeout bounds the question whether a final lifecycle was the end.
	confirmTimeout = 10 * time.Second
)

// follower reads a run's stream over as many connections as it takes. The stream is complete when
// the first seq of every event is the last one's seq + 1; follower says so loudly when it is not.
type follower struct {
	client *client
	run    string
	view   tailView
	last   schema.Seq // newest seq that was shown

	parser   sseParser
	cursor   string // id of the last complete frame; "" begins behind last
	gaps     int
	ended    bool // the newest event is a final lifecycle of the root
	answered bool // the last connection was accepted
	moved    bool // the last connection brought an event
}

var (
	errRunEnded  = errors.New("run has ended")           // 204: nothing will ever follow
	errStreamEnd = errors.New("server ended the stream") // in order
	errIdle      = errors.New("no sign of life")         // half-open connection
)

// follow returns nil at the end of the run. An answer that asking again would not change is an
// *apiError.
func (f *follower) follow(ctx context.Context) error {
	usual := f.client.newBackoff()
	b := usual
	for {
		confirming := f.ended
		err := f.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRunEnded):
			return nil
		case confirming && !f.moved && (errors.Is(err, errStreamEnd) || errors.Is(err, errIdle)):
			return nil
		}
		if f.answered {
			b.alive()
		}
		if f.moved {
			b = usual
			b.reset()
		}
		if f.ended && !confirming {
			// A final lifecycle may stand in the middle of a run that was followed up. Only the next
			// answer tells: 204, or what came after.
			b = &backoff{giveUp: confirmTimeout}
			continue
		}
		hint, again := retryable(err)
		if !again && !errors.Is(err, errStreamEnd) && !errors.Is(err, errIdle) {
			return err
		}
		b.base = f.parser.retry
		if werr := b.wait(ctx, hint, err); werr != nil {
			if confirming && ctx.Err() == nil {
				f.client.notice("the run said that it is over; nobody answers who could confirm it")
				return nil
			}
			return werr
		}
	}
}

// connect opens the stream behind the newest event and reads it to its end, whose kind is the error.
func (f *follower) connect(ctx context.Context) error {
	f.answered, f.moved = false, false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := f.client.request(ctx, http.MethodGet, f.client.runURL(f.run, "stream"), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Cache-Control", "no-cache")
	if f.cursor == "" && f.last > 0 {
		f.cursor = f.last.String()
	}
	if f.cursor != "" {
		req.Header.Set("Last-Event-ID", f.cursor)
	}
	resp, err := f.client.http.Do(req)
	if err != nil {
		return &connError{err}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return errRunEnded
	case resp.StatusCode != http.StatusOK:
		return readAPIError(resp)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		return fmt.Errorf("answer is %s, want text/event-stream: is this an agentstream server?", sanitize(resp.Header.Get("Content-Type")))
	}
	f.answered = true
	return f.read(ctx, cancel, resp.Body)
}

// read feeds the parser until the body ends. A watchdog ends a body that says nothing.
func (f *follower) read(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader) error {
	f.parser.reset()
	watchdog := time.AfterFunc(f.patience(), func() { cancel(errIdle) })
	defer watchdog.Stop()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if perr := f.parser.Feed(buf[:n], f.frame); perr != nil {
				return perr
			}
			if ferr := f.view.flush(); ferr != nil {
				return ferr
			}
			watchdog.Reset(f.patience())
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return errStreamEnd
		case errors.Is(context.Cause(ctx), errIdle):
			return errIdle
		default:
			return &connError{err}
		}
	}
}

func (f *follower) patience() time.Duration {
	if f.ended {
		return settleTimeout
	}
	return idleTimeout
}

// frame shows one event and checks that it is the next one.
func (f *follower) frame(fr sseFrame) error {
	e, err := schema.DecodeLine(fr.Data)
	if err == nil && (e.Type == "" || e.Seq == 0) {
		err = fmt.Errorf("no type or no seq: %w", schema.ErrMalformed)
	}
	if err != nil {
		return f.notEvent(fr, err)
	}
	if e.Seq <= f.last {
		f.client.notice("seq %d came again behind %d; passed over", e.Seq, f.last)
		f.gaps++
		return nil
	}
	if first := e.First(); first != f.last+1 {
		f.gaps++
		if first > f.last {
			f.client.notice("GAP: seq %d to %d did not come (%d after %d)", f.last+1, first-1, e.Seq, f.last)
		} else {
			f.client.notice("OVERLAP: seq %d stands for events from %d, and %d was shown already", e.Seq, first, f.last)
		}
	}
	f.last, f.moved = e.Seq, true
	if fr.ID != "" {
		f.cursor = fr.ID
	}
	if e.Type == schema.TypeRunLifecycle && e.ChildID == "" {
		l, err := schema.ParseLifecycle(e.Payload)
		f.ended = err == nil && l.State.Final()
	} else {
		f.ended = false
	}
	return f.view.event(fr.Data, &e)
}

// notEvent takes a frame that holds no event: the server's last word about an error, which decides
// like the same word in an HTTP answer, or something newer than this program, which is said and
// passed over.
func (f *follower) notEvent(fr sseFrame, cause error) error {
	var answer struct {
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Status  int    `json:"status"`
		} `json:"error"`
	}
	if json.Unmarshal(fr.Data, &answer) == nil && answer.Error != nil {
		e := &apiError{Status: answer.Error.Status, Code: answer.Error.Code, Message: answer.Error.Message}
		if e.Status == 0 {
			e.Status = http.StatusServiceUnavailable // without a status: come back, the cursor is safe
		}
		return e
	}
	f.gaps++
	f.client.notice("a frame is no event and was passed over: %s", sanitize(cause.Error()))
	return nil
}
