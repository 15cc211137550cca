package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	agentstream "agentstream/clients/go"
	"agentstream/producers"
	"agentstream/schema"
)

// Bounds of one request.
const (
	MaxBatchEvents = 500
	MaxBatchBytes  = 512 << 10
)

// publishing is one run of the command: a source reads items, a collector packs what is there while
// a request is on its way, a sender keeps one request at a time, because the order of the run is
// the order of its requests.
type publishing struct {
	cmd    *PublishCmd
	client *agentstream.Client
	inputs []input
	meter  *publishMeter
	runID  string
	minted bool   // the server has begun the run for us
	key    string // prefix of the idempotency keys

	// Of the source, and of the end of all.
	kind   *format         // of the newest file; nil before the first
	began  bool            // the run is begun here, or gone on with: it is for us to end it
	fresh  bool            // it is begun here
	steps  int             // that were printed
	state  schema.RunState // how the newest model call went
	reason string
	damage error // the first recording that is not whole

	// Of the sender, and of the end of all.
	first, last schema.Seq
	events      int
	sent        bool           // a batch has left for the server, whether or not it was answered
	begun       producers.Open // what has begun and has not ended
}

// openRun lets the server begin a run where none is named.
func (p *publishing) openRun(ctx context.Context) error {
	p.key = "publish-" + rand.Text() + "-"
	p.runID = p.cmd.RunID
	switch {
	case p.runID == "" && p.cmd.NoLifecycle:
		p.runID = schema.NewIDs().Run(time.Now())
	case p.runID == "":
		created, err := p.client.CreateRun(ctx, agentstream.NewRun{Key: p.key + "run"})
		if err != nil {
			return err
		}
		p.runID, p.minted = created.RunID, true
		p.took(created.Receipt, 1)
	default:
		return nil
	}
	p.meter.Notice("run %s", p.runID)
	return nil
}

// run sends everything that source emits. What it emitted before it failed is sent all the same.
func (p *publishing) run(ctx context.Context, source func(context.Context, emit) error) error {
	items, batches := make(chan item), make(chan *batch)
	var sourceErr error
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(items)
		sourceErr = source(gctx, func(it item) error {
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
	err := g.Wait() // the source's error is only its echo
	switch {
	case ctx.Err() != nil:
		p.endRun(ctx, producers.Closing{Reason: "interrupted"})
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, agentstream.ErrEnded):
		p.endRun(ctx, producers.Closing{Failed: true, Reason: "the rest could not be published"})
	case err == nil && sourceErr != nil:
		p.endRun(ctx, producers.Closing{Failed: true, Reason: "the file cannot be read: " + reasonOf(sourceErr)})
		return sourceErr
	case err == nil:
		return p.damage
	}
	return err
}

// endRun ends before its time what was begun here, as well as a few seconds allow: no other process would ever
// end it. A run that is only written into is left to those who began it.
func (p *publishing) endRun(ctx context.Context, c producers.Closing) {
	c.Child = p.cmd.Child
	state := p.begun.State(c.Child)
	ours := p.minted && c.Child == "" || p.sent && (p.mustFrame() && p.began || state != "")
	if p.cmd.NoLifecycle || !ours || state.Final() {
		return
	}
	var body []byte
	events := p.begun.Close(c)
	for i := range events {
		body = append(agentstream.AppendNew(body, &events[i]), '\n')
	}
	if len(body) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if r, err := p.client.Run(p.runID).AppendLines(ctx, p.key+"end", body); err != nil {
		p.meter.Notice("the run stays open: %v", err)
	} else {
		p.took(r, len(events))
	}
}

// batch is one request.
type batch struct {
	body  []byte
	items []item // their lines are in body
}

// canAdd reports whether a request has room for one more event.
func (b *batch) canAdd(it item) bool {
	return len(b.items) == 0 || len(b.items) < MaxBatchEvents && len(b.body)+len(it.line)+1 <= MaxBatchBytes
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
			case cur.canAdd(it):
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
		r, err := p.client.Run(p.runID).AppendLines(ctx, fmt.Sprintf("%s%d", p.key, n), b.body)
		var api *agentstream.Error
		if err == nil || !errors.As(err, &api) { // without an answer it may be stored
			p.see(b.body)
		}
		if err != nil {
			return b.locate(err)
		}
		// Other writers' events may lie between those of a batch for several children.
		if got := int(r.Last-r.First) + 1; got < len(b.items) {
			return fmt.Errorf("server acknowledged %d events of %d", got, len(b.items))
		}
		p.took(r, len(b.items))
		for i := range b.items {
			if b.items[i].stored != nil {
				close(b.items[i].stored)
			}
		}
		p.meter.show(p.events)
	}
	return nil
}

// see notes what the events of a batch begin and end.
func (p *publishing) see(body []byte) {
	body, _ = schema.Move(body)
	events, _ := schema.DecodeBatch(p.runID, body) // a server that takes what we cannot read is newer
	for i := range events {
		p.begun.See(&events[i])
	}
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

// locate adds to an error where in which file the refused event, or the refused batch, comes from.
func (b *batch) locate(err error) error {
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
