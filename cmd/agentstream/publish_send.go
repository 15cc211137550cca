package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	agentstream "agentstream/clients/go"
	"agentstream/producers/provider"
	"agentstream/schema"
)

// Bounds of one request.
const (
	maxBatchEvents = 500
	maxBatchBytes  = 512 << 10
)

// publishing is one run of the command: a source reads items, a collector packs what is there while
// a request is on its way, a sender keeps one request at a time, because the order of the run is
// the order of its requests.
type publishing struct {
	cmd    *PublishCmd
	client *agentstream.Client
	inputs []input
	meter  *meter
	runID  string
	begin  bool // run.lifecycle running has to be sent, by the child where there is one

	outcome provider.Outcome // of the source
	key     string           // prefix of the idempotency keys

	first, last schema.Seq // of the sender
	events      int
	sent        bool // a batch has left for the server, whether or not it was answered
}

// openRun finds out whether the run is new, or lets the server begin one.
func (p *publishing) openRun(ctx context.Context) error {
	p.key = "publish-" + rand.Text() + "-"
	p.runID = p.cmd.RunID
	ours := p.cmd.Format == "anthropic" && !p.cmd.NoLifecycle
	switch {
	case p.runID == "" && p.cmd.NoLifecycle:
		p.runID = schema.NewIDs().Run(time.Now())
	case p.runID == "":
		created, err := p.client.CreateRun(ctx, agentstream.NewRun{Key: p.key + "run"})
		if err != nil {
			return err
		}
		p.runID = created.RunID
		p.took(created.Receipt, 1)
		p.begin = ours && p.cmd.Child != "" // the run itself is running by now
	case ours && p.cmd.Child != "":
		p.begin = true
		return nil
	case ours:
		_, err := p.client.Run(ctx, p.runID)
		p.begin = errors.Is(err, agentstream.ErrNotFound)
		if err != nil && !p.begin {
			return fmt.Errorf("run %s: %w", p.runID, err)
		}
		return nil
	default:
		return nil
	}
	p.meter.notice("run %s", p.runID)
	return nil
}

// run sends everything. What the source read before it failed is sent all the same.
func (p *publishing) run(ctx context.Context) error {
	items, batches := make(chan item), make(chan *batch)
	var sourceErr error
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(items)
		sourceErr = p.source(gctx, func(it item) error {
			select {
			case items <- it:
				return nil
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		})
		return nil
	})
	g.Go(func() error {
		defer close(batches)
		return collect(gctx, items, batches)
	})
	g.Go(func() error { return p.send(gctx, batches) })
	err := g.Wait()
	if ctx.Err() != nil {
		p.abort(ctx)
		return context.Cause(ctx)
	}
	if err != nil {
		return err // the source's error is only its echo
	}
	return sourceErr
}

// source emits all items of the command in order.
func (p *publishing) source(ctx context.Context, out emit) error {
	out = p.paced(ctx, out)
	if p.begin {
		if err := out(lifecycle(schema.StateRunning, "", p.cmd.Child)); err != nil {
			return err
		}
	}
	read := p.native
	if p.cmd.Format == "anthropic" {
		read = p.anthropic
	}
	var err error
	for _, in := range p.inputs {
		if err = read(ctx, in, out); err != nil {
			break
		}
	}
	if p.cmd.Format != "anthropic" || p.cmd.NoLifecycle || ctx.Err() != nil {
		return err
	}
	state, reason := p.outcome.End()
	if err != nil {
		state, reason = schema.StateError, "the recording cannot be read"
	}
	return errors.Join(err, out(lifecycle(state, reason, p.cmd.Child)))
}

// abort ends a run whose recording was interrupted, as well as a few seconds allow: nobody else
// would ever end it.
func (p *publishing) abort(ctx context.Context) {
	if p.cmd.Format != "anthropic" || p.cmd.NoLifecycle || !p.sent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	it := lifecycle(schema.StateAborted, "interrupted", p.cmd.Child)
	if r, err := p.client.AppendLines(ctx, p.runID, p.key+"abort", append(it.line, '\n')); err != nil {
		p.meter.notice("the run stays open: %v", err)
	} else {
		p.took(r, 1)
	}
}

// paced holds items back as --pace says.
func (p *publishing) paced(ctx context.Context, out emit) emit {
	if p.cmd.Pace != "original" {
		return out
	}
	if p.cmd.Format == "anthropic" {
		p.meter.notice("recordings of this format carry no times: --pace original has no effect")
		return out
	}
	pace := pacer{most: p.cmd.MaxGap}
	warned := false
	return func(it item) error {
		if it.at.IsZero() && !warned {
			warned = true
			p.meter.notice("%s:%d: an event without a ts goes at once", it.file, it.row)
		}
		if d := pace.until(it.at); d > 0 {
			if err := pause(ctx, d); err != nil {
				return err
			}
		}
		return out(it)
	}
}

// batch is one request.
type batch struct {
	body  []byte
	items []item // their lines are in body
}

func (b *batch) fits(it item) bool {
	return len(b.items) == 0 || len(b.items) < maxBatchEvents && len(b.body)+len(it.line)+1 <= maxBatchBytes
}

func (b *batch) add(it item) {
	b.body = append(append(b.body, it.line...), '\n')
	it.line = nil
	b.items = append(b.items, it)
}

// collect packs items while the sender is busy and hands over what it has as soon as it is not: no
// event waits for company, and none waits for more than one request. It holds one batch and one
// item at most.
func collect(ctx context.Context, items <-chan item, batches chan<- *batch) error {
	cur := &batch{}
	var next *item // does not fit into cur
	for items != nil || next != nil || len(cur.items) > 0 {
		in, out := items, batches
		if len(cur.items) == 0 {
			out = nil
		}
		if next != nil {
			in = nil
		}
		select {
		case it, ok := <-in:
			switch {
			case !ok:
				items = nil
			case cur.fits(it):
				cur.add(it)
			default:
				next = &it
			}
		case out <- cur:
			cur = &batch{}
			if next != nil {
				cur.add(*next)
				next = nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// send stores the batches in order, each under a key of its own.
func (p *publishing) send(ctx context.Context, batches <-chan *batch) error {
	n := 0
	for b := range batches {
		n++
		p.sent = true
		r, err := p.client.AppendLines(ctx, p.runID, fmt.Sprintf("%s%d", p.key, n), b.body)
		if err != nil {
			return b.place(err)
		}
		// Other writers' events may lie between those of a batch for several children.
		if got := int(r.Last-r.First) + 1; got < len(b.items) {
			return fmt.Errorf("server acknowledged %d events of %d", got, len(b.items))
		}
		p.took(r, len(b.items))
		p.meter.show(p.events)
	}
	return nil
}

func (p *publishing) took(r agentstream.Receipt, events int) {
	if p.first == 0 {
		p.first = r.First
	}
	p.last = r.Last
	p.events += events
}

func (p *publishing) soFar() string {
	if p.events == 0 {
		return "; nothing was stored"
	}
	return fmt.Sprintf("; %d events before it are stored, the newest has seq %d", p.events, p.last)
}

// place says where in which file the refused event, or the refused batch, comes from.
func (b *batch) place(err error) error {
	at := func(it item) string {
		if it.row == 0 {
			return it.file
		}
		return fmt.Sprintf("%s:%d", it.file, it.row)
	}
	var api *agentstream.Error
	if !errors.As(err, &api) {
		return err
	}
	if api.Line > 0 && api.Line <= len(b.items) {
		if where := at(b.items[api.Line-1]); where != "" {
			return fmt.Errorf("%s: %w", where, err)
		}
		return err
	}
	first, last := at(b.items[0]), at(b.items[len(b.items)-1])
	switch {
	case last == "": // an event made here ends the batch
		last = first
	case first != "" && first != last:
		last = first + " to " + last
	}
	if last == "" {
		return err
	}
	return fmt.Errorf("%s: %w", last, err)
}

// meter shows progress on a terminal, and keeps notices out of its line. Safe for concurrent use.
type meter struct {
	w      io.Writer
	screen Screen
	total  int64 // bytes; -1 is not known
	start  time.Time
	read   byteCounter

	mu    sync.Mutex
	shown time.Time // last drawing; zero: the line is clean
}

type byteCounter struct{ n atomic.Int64 }

// Write counts.
func (c *byteCounter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// How soon and how often progress is drawn.
const (
	meterAfter = time.Second
	meterEvery = 100 * time.Millisecond
)

func newMeter(w io.Writer, s Screen, total int64) *meter {
	return &meter{w: w, screen: s, total: total, start: time.Now()}
}

func (m *meter) show(events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.screen.Terminal || now.Sub(m.start) < meterAfter || now.Sub(m.shown) < meterEvery {
		return
	}
	m.shown = now
	read := m.read.n.Load()
	line := fmt.Sprintf("%d events · %s · %.0f events/s", events, byteCount(read), float64(events)/now.Sub(m.start).Seconds())
	if m.total > 0 {
		const width = 24
		part := min(1, float64(read)/float64(m.total))
		full := int(part * width)
		line = fmt.Sprintf("[%s%s] %3.0f%% · %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*part, line)
	}
	fmt.Fprintf(m.w, "\r\x1b[K%s", line)
}

// clear removes the line.
func (m *meter) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
}

func (m *meter) clearLocked() {
	if !m.shown.IsZero() {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.shown = time.Time{}
	}
}

func (m *meter) notice(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clearLocked()
	fmt.Fprintf(m.w, "agentstream: "+format+"\n", args...)
}
