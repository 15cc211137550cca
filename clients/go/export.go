package agentstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"agentstream/schema"
)

// Export returns the stored events with after < seq ≤ through. through 0 is the newest event at the time of
// the first answer: Export ends there, Watch waits for more. It yields every event once, in order, over as
// many connections as that takes. An error is the last thing that it yields.
func (r *Run) Export(ctx context.Context, after, through schema.Seq) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		e := &export{run: r, last: after, through: through, retry: newRetry(r.c)}
		if err := schema.ValidRunID(r.id); err != nil {
			yield(schema.Event{}, err)
			return
		}
		for {
			err := e.read(ctx, yield)
			if err == nil {
				return
			}
			if err = e.retry.after(ctx, err); err != nil {
				yield(schema.Event{}, err)
				return
			}
		}
	}
}

// export is one export under way.
type export struct {
	run           *Run
	last, through schema.Seq
	retry         retry
}

// maxLine bounds a line in bytes: an event and its envelope.
const maxLine = 2 * schema.MaxEventBytes

// read reads one answer. It returns nil at the end, and when the caller wants no more.
func (e *export) read(ctx context.Context, yield func(schema.Event, error) bool) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	q := url.Values{}
	for name, seq := range map[string]schema.Seq{"after": e.last, "through": e.through} {
		if seq != 0 {
			q.Set(name, seq.String())
		}
	}
	r := request{method: http.MethodGet, target: withQuery(e.run.url("replay.jsonl"), q), accept: typeNDJSON}
	req, token, err := e.run.c.build(ctx, &r)
	if err != nil {
		return err
	}
	e.retry.token = token
	resp, err := e.run.c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readError(resp)
	}
	e.retry.fresh = false
	if e.through == 0 {
		if e.through, err = schema.ParseCursor(resp.Header.Get("Last-Seq")); err != nil || e.through == 0 {
			return errors.New("answer has no Last-Seq header: is this an agentstream server?")
		}
	}
	watchdog := time.AfterFunc(time.Hour, func() { cut(errIdle) })
	defer watchdog.Stop()
	return e.lines(&patientReader{resp.Body, watchdog, e.run.c.cfg.IdleTimeout}, yield)
}

func (e *export) lines(body io.Reader, yield func(schema.Event, error) bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	for e.last < e.through && lines.Scan() {
		ev, err := schema.DecodeLine(lines.Bytes())
		if err != nil {
			return fmt.Errorf("export after seq %d: %w", e.last, err)
		}
		if ev.Seq != e.last+1 {
			return &GapError{After: e.last, First: ev.First(), Seq: ev.Seq}
		}
		e.last = ev.Seq
		e.retry.backoff.reset()
		if !yield(ev, nil) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return &connError{err}
	}
	if e.last < e.through {
		return &connError{io.ErrUnexpectedEOF}
	}
	return nil
}

// wholeLines is bufio.ScanLines without what has no line feed at the end: it was cut.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// retry is what requests of one caller that follow one another know of those before.
type retry struct {
	c       *Client
	token   string // of the newest request
	fresh   bool   // the token replaces one that was refused, and was not accepted yet
	backoff backoff
}

func newRetry(c *Client) retry { return retry{c: c, backoff: backoff{giveUp: c.cfg.GiveUp}} }

// after waits until the rest can be requested, or returns the error to end with.
func (r *retry) after(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if isRefusal(err) && !r.fresh && r.c.tokens.canReplace(ctx, r.token) {
		r.fresh = true
		return nil
	}
	hint, again, err := r.c.retryable(err)
	if !again {
		return err
	}
	d, gaveUp := r.backoff.pause(hint, err)
	if gaveUp != nil {
		return gaveUp
	}
	r.c.retrying(ctx, err, d)
	return sleep(ctx, d)
}

// patientReader lets a watchdog run while it waits for bytes.
type patientReader struct {
	r        io.Reader
	watchdog *time.Timer
	patience time.Duration
}

// Read reads.
func (p *patientReader) Read(b []byte) (int, error) {
	p.watchdog.Reset(p.patience)
	defer p.watchdog.Stop()
	return p.r.Read(b)
}
