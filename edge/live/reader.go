package live

import (
	"context"
	"fmt"
	"iter"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// reader is one client's way through a source. One goroutine uses it.
type reader interface {
	// next waits for more and returns it. An error of ctx leaves the reader usable.
	next(ctx context.Context) (readResult, error)
	// wrote records how long it took to hand the last result to the client.
	wrote(took time.Duration)
	// upToDate returns the view that this reader watches when it has all of it but what the client was
	// spared; nil when it does not, or watches none.
	upToDate() *viewReader
	// close releases everything and returns the number of events that the client was spared.
	close() (dropped int)
}

// readResult is what a reader returns at once: packs as they are stored, or records of a view.
type readResult struct {
	batch   fanout.Batch
	records []shape.Out
	ended   bool       // the source is over, and this reaches its end
	chunk   *chunk     // of several readers: made already, or to be made of the batch
	slot    *fair.Slot // to be released when it is written; nil: it is live
}

// viewReader watches a live view, and reads history by itself, shaped as fast as it comes, for what is no
// longer there.
type viewReader struct {
	runs  *runs.Runs
	views *views
	v     *view
	src   runs.Source
	ctx   context.Context // of the client: a read of history ends with it
	fold  shape.Folder    // fold.Last is what the client has
	pos   schema.Seq      // everything up to it was looked at

	told   bool // that the source is over at pos
	whole  bool // everything of a run as it is: history comes as packs
	share  bool // that is projected once for all who read it at the same time
	inside bool // it reads history, and is counted
	thin   bool // a client that does not keep up gets less
	had    bool // everything that there was, once
	slow   bool // the last writes made us wait: what is sent is folded as far as it goes

	of     projectionKey // by which what is shared is projected
	joined schema.Seq    // what was history when the client came, of which it is spared nothing
	most   schema.Seq    // events that it may be behind what is live; 0: any number
	over   schema.Seq    // how many waited when they were too many
	behind *behind       // how far it is behind what is live; nil: it is not

	// The history under way, by records or by packs.
	reading bool
	pull    func() (schema.Record, error, bool)
	packs   func() (schema.Pack, error, bool) // nil: not begun
	unread  func()                            // ends either
	through schema.Seq

	out  []shape.Out
	room []schema.Pack // memory for the next batch
	slot *fair.Slot    // of the last result of history
}

// Bounds of what one read of history returns at once.
const (
	portionBytes   = 64 << 10
	portionRecords = 16 << 10
)

// A client whose writes take a stall reads from history, folded, until one takes less than brisk.
const (
	stall = 500 * time.Millisecond
	brisk = stall / 10
)

func (r *viewReader) next(ctx context.Context) (readResult, error) {
	for {
		if r.over > 0 {
			return readResult{}, fmt.Errorf("%d events wait, %d may: %w", r.over, r.most, dialect.ErrOverflow)
		}
		if r.reading {
			p, err := r.history(ctx)
			if err != nil || len(p.records)+len(p.batch.Packs) > 0 || p.chunk != nil {
				return p, err
			}
			continue
		}
		s := r.v.now.Load()
		switch {
		case r.pos < s.hi && r.slow:
			r.read(s.hi)
			continue
		case r.pos < s.hi:
			items, through := s.behind(r.pos)
			if through > 0 {
				r.read(through)
				continue
			}
			r.pos, r.told, r.behind, r.had = s.hi, false, nil, true
			r.leave()
			if len(items) > 0 {
				r.told = s.ended
				return readResult{records: r.adapt(items), ended: s.ended}, nil
			}
			continue
		case s.ended && !r.told:
			r.told = true
			return readResult{ended: true}, nil
		case s.err != nil:
			return readResult{}, s.err
		}
		r.had = true
		changed := r.v.wait(s)
		if changed == nil {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return readResult{}, context.Cause(ctx)
		}
	}
}

// adapt fits shared items to this client. They are copied only where it differs from the others.
func (r *viewReader) adapt(items []shape.Out) []shape.Out {
	if items[0].First != r.fold.Last+1 || r.fold.Lost > 0 {
		items = append(r.out[:0], items...)
		items[0] = items[0].Since(r.fold.Last + 1)
		r.out = items
	}
	r.fold.Last = items[len(items)-1].Seq
	return r.own(items)
}

// own puts the number of lost events into a final lifecycle. The items are the client's own when
// there are any.
func (r *viewReader) own(items []shape.Out) []shape.Out {
	if r.fold.Lost > 0 {
		for i := range items {
			if shape.Terminal(items[i].Record) {
				items[i] = items[i].WithDropped(r.fold.Lost)
			}
		}
	}
	return items
}

func (r *viewReader) read(through schema.Seq) {
	r.through = through
	if r.reading = true; r.whole {
		r.enter()
		return
	}
	r.pull, r.unread = iter.Pull2(r.src.Walk(r.ctx, r.runs.Hub, r.pos, through))
}

// history returns the next result of the read under way, and ends it after the last one.
func (r *viewReader) history(ctx context.Context) (readResult, error) {
	if r.share {
		return r.together(ctx)
	}
	if r.whole {
		return r.batch(ctx)
	}
	if err := r.acquire(ctx); err != nil {
		return readResult{}, err
	}
	r.look(time.Now())
	r.out = r.out[:0]
	bytes, counted := 0, 0
	for n := 0; bytes < portionBytes && n < portionRecords; n++ {
		rec, err, ok := r.pull()
		if err != nil {
			return readResult{}, err
		}
		if !ok {
			if r.pos < r.through {
				return readResult{}, r.short()
			}
			r.out = r.fold.Flush(r.out)
			r.endHistory()
			break
		}
		r.pos = rec.Seq
		r.fold.Drop = r.behind.dropAt(rec.Seq)
		r.out = r.fold.Add(r.out, rec)
		for ; counted < len(r.out); counted++ {
			bytes += len(r.out[counted].Line)
		}
	}
	r.out = r.fold.Tell(r.out)
	return readResult{records: r.own(r.out), slot: r.slot}, nil
}

// acquire waits until the tenant may read more history.
func (r *viewReader) acquire(ctx context.Context) (err error) {
	r.slot.Release()
	r.slot, err = r.runs.Slot(ctx, r.src.Key.Tenant)
	return err
}

// batch returns the next packs. The last may reach beyond what was asked for.
func (r *viewReader) batch(ctx context.Context) (readResult, error) {
	if err := r.acquire(ctx); err != nil {
		return readResult{}, err
	}
	if r.packs == nil {
		r.packs, r.unread = iter.Pull2(r.runs.Hub.Packs(r.ctx, r.src.Key, r.pos, r.through))
	}
	apart := schema.MaxSeq
	if r.share {
		apart = replayApart
	}
	b := fanout.Batch{Packs: r.room[:0], After: r.pos}
	for bytes, from := 0, r.pos/apart; bytes < portionBytes && r.pos < r.through && r.pos/apart == from; {
		p, err, ok := r.packs()
		if err != nil {
			return readResult{}, err
		}
		if !ok {
			return readResult{}, r.short()
		}
		b.Packs = append(b.Packs, p)
		bytes += len(p.Body)
		r.pos = p.Last()
	}
	r.fold.Last, r.room = r.pos, b.Packs
	if r.pos >= r.through {
		r.endHistory()
	}
	return readResult{batch: b, slot: r.slot}, nil
}

// together returns the next chunk of what several read now, or the batch to make it of.
func (r *viewReader) together(ctx context.Context) (readResult, error) {
	for {
		c, mine := r.v.replays.at(r.of, r.pos)
		if c == nil {
			return r.batch(ctx)
		}
		if mine {
			return r.first(ctx, c)
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return readResult{}, context.Cause(ctx)
		}
		if c.err != nil {
			continue
		}
		if err := r.acquire(ctx); err != nil {
			return readResult{}, err
		}
		r.forget()
		if r.pos, r.fold.Last = c.last, c.last; r.pos >= r.through {
			r.endHistory()
		}
		return readResult{chunk: c, slot: r.slot}, nil
	}
}

// first returns the batch to make a chunk of.
func (r *viewReader) first(ctx context.Context, c *chunk) (p readResult, err error) {
	err = ends.ErrPanic // until it is read
	defer func() {
		if err != nil {
			c.ready(err)
		}
	}()
	p, err = r.batch(ctx)
	p.chunk = c
	return p, err
}

// enter counts the reader among those that read history, and leave counts it out.
func (r *viewReader) enter() {
	if r.share && !r.inside {
		r.inside = true
		r.v.replays.enter(r.of)
	}
}

func (r *viewReader) leave() {
	if r.inside {
		r.inside = false
		r.v.replays.leave(r.of)
	}
}

func (r *viewReader) short() error {
	return fmt.Errorf("history of %s ends at %d before %d: %w", r.src.Key, r.pos, r.through, fanout.ErrUnavailable)
}

func (r *viewReader) endHistory() {
	r.forget()
	r.reading = false
	r.leave()
}

// forget ends the read that is open.
func (r *viewReader) forget() {
	if r.unread != nil {
		r.unread()
	}
	r.pull, r.packs, r.unread = nil, nil, nil
}

func (r *viewReader) upToDate() *viewReader {
	if r.reading || r.slow || r.fold.Lost > 0 {
		return nil
	}
	return r
}

func (r *viewReader) wrote(took time.Duration) {
	if left := r.v.now.Load().hi - r.pos; r.most > 0 && r.had && left > r.most {
		r.over = left // what came while the client was waited for
	}
	switch {
	case !r.thin:
	case took >= stall:
		r.slow = true
	case took < brisk && !r.reading:
		r.slow = false
	}
}

func (r *viewReader) close() int {
	r.slot.Release()
	r.endHistory()
	r.views.leave(r.v)
	return r.fold.Lost
}
