package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"agentstream/edge/body"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/publish"
	"agentstream/edge/runs"
	"agentstream/edge/transport"
	"agentstream/schema"
)

// linesType is the media type of lines and of their answers.
const linesType = "application/x-ndjson"

var headerLines = []string{linesType}

// publish takes lines of any number of runs, and answers each run's in order. A body whose length is said is read first;
// one that stays open is a stream, whose answers come as events become durable.
func (a *API) publish(c *protocol.Call) error {
	if c.Request.ContentLength < 0 {
		return a.publishStream(c)
	}
	return c.Node.Metered(a.publishBatch)(c)
}

// batchLine is what a line of a batch takes beside its bytes, with its answer, in bytes.
const batchLine = 512

func (a *API) publishBatch(c *protocol.Call) error {
	opt, err := protocol.Keyed("Idempotency-Key", c.Request.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	in := a.cfg.Bodies.Batches.Get()
	defer a.cfg.Bodies.Batches.Put(in)
	c.In.Most = a.movable()
	if in.Body, err = a.cfg.Bodies.Into(c.Incoming(), in.Body[:0], linesType, "text/plain"); err != nil {
		return err
	}
	if _, _, err := a.slim(in.Body); err != nil { // its lines are made smaller one by one
		return err
	}
	lines := bytes.Count(in.Body, []byte{'\n'}) + 1
	if lines > publish.MaxBatchLines {
		return fmt.Errorf("%d lines, %d allowed: %w", lines, publish.MaxBatchLines, ends.ErrBodyTooBig)
	}
	if err := c.In.Share.Take(c.Request.Context(), int64(min(lines, len(in.Body)/2))*batchLine); err != nil {
		return err
	}
	cfg := a.publishing()
	cfg.MaxLine = int(a.movable())
	answers := publish.New(c.Request.Context(), cfg, publish.Client{Tenant: c.Caller.Tenant}).Batch(in.Body, opt.IdempotencyKey)
	if len(answers) == 0 {
		return &schema.BatchError{Line: 1, Err: fmt.Errorf("no event: %w", schema.ErrMalformed)}
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

// publishing is what all streams have in common.
func (a *API) publishing() publish.Config {
	return publish.Config{Store: a.Lines, Has: a.has, Refuse: a.Refusal, Limits: a.cfg.Limits}
}

// Publisher makes a stream for lines of a client, whose answers deliver writes.
func (a *API) Publisher(ctx context.Context, tenant string, client publish.Client) *publish.Stream {
	client.Tenant, client.Patient = tenant, true
	client.Memory = a.cfg.Bodies.Share(tenant)
	return publish.New(ctx, a.publishing(), client)
}

// has reports whether event seq of a run has this id.
func (a *API) has(ctx context.Context, key schema.RunKey, seq schema.Seq, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.LogTimeout)
	defer cancel()
	for r, err := range (runs.Source{Key: key}).Walk(ctx, a.cfg.Runs.Hub, seq-1, seq) {
		return err == nil && bytes.HasPrefix(r.Line, []byte(`{"id":"`+id+`"`))
	}
	return false
}

// publishStream serves a body that stays open.
func (a *API) publishStream(c *protocol.Call) error {
	if err := body.Plain(c.Request.Header, linesType, "text/plain"); err != nil {
		return err
	}
	l := live.NewLife(c.Request.Context(), c.Caller)
	if err := a.cfg.Live.Join(l, &c.Report); err != nil {
		l.End(nil)
		return err
	}
	l.Expire()
	if transport.Duplexes(c.Writer.ResponseWriter, c.Request) {
		linesHeader(c)
		return &protocol.Parting{Life: l, Carry: func(d *transport.Duplex) error {
			return d.End(a.publishOver(l, &c.Report, d, d.Stop, func(b []byte) error { _, err := d.Write(b); return err }))
		}}
	}
	defer l.End(nil)
	rc := http.NewResponseController(c.Writer)
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("full duplex: %w", err)
	}
	out := transport.NewResponse("publish", c.Writer, rc, a.cfg.WriteTimeout)
	beginLines(c)
	if err := out.Flush(); err != nil {
		return err
	}
	stop := func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) } // it fails when the connection is gone
	return a.publishOver(l, &c.Report, c.Request.Body, stop, func(b []byte) error {
		_, err := out.Write(b)
		if err == nil {
			err = out.Flush()
		}
		return err
	})
}

// publishOver serves a stream. stop ends the reading of lines, and write sends receipts.
func (a *API) publishOver(l *live.Life, report *live.Report, lines io.Reader, stop func(), write func([]byte) error) error {
	s := a.Publisher(l.Ctx, l.Caller.Tenant, publish.Client{KeepAlive: a.cfg.KeepAlive, Sign: []byte{'\n'},
		Deliver: func(b []byte) error {
			err := write(b)
			if err != nil {
				l.End(err)
			}
			return err
		}})
	unwatch := l.Upon(func() {
		s.Stop(context.Cause(l.Ctx))
		stop()
	})
	defer unwatch()
	err := s.End(live.Ended(l.Ctx, a.feed(s, lines)))
	report.Events = s.Stored()
	return err
}

// feed reads lines until the client has said all, or is gone, or the stream takes nothing more. While nothing comes it
// holds little memory.
func (a *API) feed(s *publish.Stream, from io.Reader) error {
	var small [512]byte
	b, large := small[:], (*[feedSize]byte)(nil)
	defer func() { a.giveLarge(large) }()
	for {
		n, err := from.Read(b)
		if n > 0 {
			if ferr := s.Feed(b[:n]); ferr != nil {
				return ferr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.Message(nil)
		case err != nil:
			return body.BodyError(err)
		case n == len(small) && large == nil:
			large = a.large.Get().(*[feedSize]byte)
			b = large[:]
		case n <= len(small) && large != nil:
			a.giveLarge(large)
			b, large = small[:], nil
		}
	}
}

// feedSize is how much of a stream is read at once, in bytes.
const feedSize = 32 << 10

func newLarge() *sync.Pool { return &sync.Pool{New: func() any { return new([feedSize]byte) }} }

func (a *API) giveLarge(b *[feedSize]byte) {
	if b != nil {
		a.large.Put(b)
	}
}
