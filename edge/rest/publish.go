package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"agentstream/edge/auth"
	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/publish"
	"agentstream/edge/runs"
	"agentstream/edge/transport"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// linesType is the media type of lines and of their answers.
const linesType = "application/x-ndjson"

var headerLines = []string{linesType}

// publish takes lines of any number of runs, and answers each run's in order. A body whose length is said is read
// first; one that stays open is a stream, whose answers come as events become durable.
func (a *API) publish(c *protocol.Call) error {
	if c.Request.ContentLength < 0 {
		return a.publishStream(c)
	}
	return c.Node.Meter(a.publishBatch)(c)
}

// batchLine is what a line of a batch takes beside its bytes, with its answer, in bytes.
const batchLine = 512

func (a *API) publishBatch(c *protocol.Call) error {
	opt, err := protocol.ParseKey("Idempotency-Key", c.Request.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	in := a.cfg.Bodies.Batches.Get()
	defer a.cfg.Bodies.Batches.Put(in)
	c.In.Most = a.movable()
	if in.Body, err = a.cfg.Bodies.Into(c.Incoming(), in.Body[:0], linesType, "text/plain"); err != nil {
		return err
	}
	if _, _, err := a.slim("", in.Body); err != nil { // its lines are made smaller one by one
		return err
	}
	lines := bytes.Count(in.Body, []byte{'\n'}) + 1
	if lines > publish.MaxBatchLines {
		return fmt.Errorf("%w: %d lines, %d allowed", ends.ErrBodyTooBig, lines, publish.MaxBatchLines)
	}
	if err := c.In.Share.Reserve(c.Request.Context(), int64(min(lines, len(in.Body)/2))*batchLine); err != nil {
		return err
	}
	cfg := *a.publishing
	cfg.MaxLine = int(a.movable())
	from := publish.Client{Caller: c.Caller, Trace: c.Trace()}
	answers := publish.New(c.Request.Context(), &cfg, from).Batch(in.Body, opt.IdempotencyKey)
	if len(answers) == 0 {
		return &schema.BatchError{Line: 1, Err: fmt.Errorf("there is no event in it: %w", schema.ErrMalformed)}
	}
	c.Length(int64(len(answers)))
	beginLines(c)
	_, _ = c.Writer.Write(answers) // a client that is gone has no use for the error
	return nil
}

func beginLines(c *protocol.Call) {
	linesHeader(c)
	c.Writer.WriteHeader(http.StatusOK)
}

func linesHeader(c *protocol.Call) {
	h := c.Writer.Header()
	h["Content-Type"] = headerLines
	h.Set("Cache-Control", "no-store")
}

// Publisher makes a stream for lines of a client, whose answers deliver writes.
func (a *API) Publisher(ctx context.Context, caller auth.Caller, client publish.Client) *publish.Stream {
	client.Caller, client.Patient = caller, true
	client.Memory = a.cfg.Bodies.Share(caller.Tenant)
	return publish.New(ctx, a.publishing, client)
}

// has reports whether event seq of a run has this id.
func (a *API) has(ctx context.Context, key schema.RunKey, seq schema.Seq, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LogTimeout)
	defer cancel()
	for r, err := range a.cfg.Runs.Walk(fair.Command(ctx), runs.Source{Key: key}, seq-1, seq) {
		return err == nil && bytes.HasPrefix(r.Line, []byte(`{"id":"`+id+`"`))
	}
	return false
}

// publishStream serves a body that stays open.
func (a *API) publishStream(c *protocol.Call) error {
	if err := body.Plain(c.Request.Header, linesType, "text/plain"); err != nil {
		return err
	}
	l := live.Alone(c.Caller) // who reads finds out that its client has left
	if err := a.cfg.Live.Join(l, &c.Report); err != nil {
		return err
	}
	l.Expire()
	from := c.Trace()
	if transport.CanDuplex(c.Writer.ResponseWriter, c.Request) {
		linesHeader(c)
		return &protocol.Detached{Life: l, Apart: func(d *transport.Duplex) protocol.Upload {
			s := &lines{over: d.CloseWith}
			a.open(s, l, from, &c.Report, d, d.Stop)
			return s
		}}
	}
	rc := http.NewResponseController(c.Writer)
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("full duplex: %w", err)
	}
	out := transport.NewResponse("publish", c.Writer, rc, a.cfg.WriteTimeout)
	beginLines(c)
	if err := out.Flush(); err != nil {
		return err
	}
	s := &lines{request: c.Request}
	a.open(s, l, from, &c.Report, flushed{out}, c.Writer.StopReading)
	return &protocol.Detached{Life: l, Here: s}
}

// flushed is a response that is pushed to the client with each write.
type flushed struct{ *transport.Response }

func (f flushed) Write(b []byte) (int, error) {
	n, err := f.Response.Write(b)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}

// lines is a stream over a body that stays open.
type lines struct {
	life    *live.Life
	report  *live.Report
	request *http.Request // of the body; nil: it was taken over
	stream  *publish.Stream
	unwatch func()
	over    func(error) error // ends the connection; nil: it is the HTTP server's
}

// open begins a stream. from is the traceparent of its request, stop ends the reading of the body, and to takes receipts.
func (a *API) open(s *lines, l *live.Life, from string, report *live.Report, to io.Writer, stop func()) {
	s.life, s.report = l, report
	s.stream = a.Publisher(l.Ctx, l.Caller, publish.Client{Trace: from, KeepAlive: a.cfg.KeepAlive, Sign: sign,
		Deliver: func(b []byte) error {
			_, err := to.Write(b)
			if err != nil {
				l.Stop(err)
			}
			return err
		}})
	s.unwatch = l.Upon(func() {
		s.stream.Stop(context.Cause(l.Ctx))
		stop()
	})
}

var sign = []byte{'\n'}

// ReadError is the error for one of reading the body.
func (l *lines) ReadError(err error) error {
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if r := l.request; r != nil && !late && (r.ProtoMajor > 1 || r.Context().Err() != nil) {
		// HTTP/2 has no body that is malformed
		return fmt.Errorf("body cannot be read: %w: %w", dialect.ErrClientGone, err)
	}
	return body.BodyError(err)
}

// Feed takes bytes, in which lines begin and end anywhere.
func (l *lines) Feed(b []byte) (protocol.Progress, error) {
	err := l.stream.Feed(b)
	n, begun := l.stream.Lines()
	return protocol.Progress{Whole: n, Begun: begun}, err
}

// Complete waits until what was taken is answered.
func (l *lines) Complete(err error) error {
	if err == nil {
		err = l.stream.Message(nil)
	}
	err = l.stream.FinishWith(live.EndCause(l.life.Ctx, err))
	l.report.Events = l.stream.CountStored()
	if l.over != nil {
		err = l.over(err)
	}
	return err
}

// Leave ends what the stream has started, where End could not.
func (l *lines) Leave() {
	l.unwatch()
	l.life.Stop(nil)
	l.stream.Drop(dialect.ErrClientGone)
	_ = l.stream.Finish(nil) // End has its error
}
