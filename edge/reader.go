package edge

import (
	"context"
	"fmt"
	"iter"
	"time"

	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/schema"
)

// reader is one client's way through a source. One goroutine uses it.
type reader interface {
	// next waits for more and gives it. An error of ctx leaves the reader usable.
	next(ctx context.Context) (portion, error)
	// wrote says how long it took to hand the last portion to the client.
	wrote(took time.Duration)
	// close lets go of everything and gives the number of events that the client was spared.
	close() (dropped int)
}

// portion is what a reader gives at once: packs as they are stored, or records of a view.
type portion struct {
	batch   fanout.Batch
	records []shape.Out
	ended   bool // the source is over, and this reaches its end
}

// packReader gives a whole run as it is.
type packReader struct{ t *tail }

func (r packReader) next(ctx context.Context) (portion, error) {
	b, err := r.t.sub.Next(ctx)
	return portion{batch: b, ended: b.Ended}, err
}

func (r packReader) wrote(time.Duration) {}
func (r packReader) close() int          { r.t.close(); return 0 }

// plainReader gives a part of a run, or a child, event for event.
type plainReader struct {
	t    *tail
	fold shape.Folder
	out  []shape.Out
}

func (r *plainReader) next(ctx context.Context) (portion, error) {
	for {
		r.out = r.out[:0]
		ended, err := r.t.next(ctx, func(rec schema.Record) error {
			r.out = r.fold.Add(r.out, rec)
			return nil
		})
		if err != nil || ended || len(r.out) > 0 {
			return portion{records: r.out, ended: ended}, err
		}
	}
}

func (r *plainReader) wrote(time.Duration) {}
func (r *plainReader) close() int          { r.t.close(); return 0 }

// viewReader watches a live view, and reads history by itself, folded, for what is no longer there.
type viewReader struct {
	hub   *fanout.Hub
	views *views
	v     *view
	src   source
	ctx   context.Context // of the client: a read of history ends with it
	fold  shape.Folder    // fold.Last is what the client has
	pos   schema.Seq      // everything up to it was looked at

	pull    func() (schema.Record, error, bool) // history under way
	stop    func()
	through schema.Seq

	lag int // how many writes in a row were slow
	out []shape.Out
}

// Bounds of what one read of history gives at once.
const (
	portionBytes   = 64 << 10
	portionRecords = 16 << 10
)

// A client whose writes take this long does not keep up (native §4 R4: its buffer is full). Each such
// write makes it be told less: first everything is folded, then reasoning is dropped, then every
// delta. Writes that go through at once take it back, step by step.
const (
	stall = 500 * time.Millisecond
	brisk = stall / 10
)

func (r *viewReader) next(ctx context.Context) (portion, error) {
	for {
		if r.pull != nil {
			p, err := r.history()
			if err != nil || len(p.records) > 0 {
				return p, err
			}
			continue
		}
		s := r.v.now.Load()
		switch {
		case r.pos < s.hi && r.lag > 0:
			r.read(s.hi)
			continue
		case r.pos < s.hi:
			items, through := s.behind(r.pos)
			if through > 0 {
				r.read(through)
				continue
			}
			r.pos = s.hi
			if len(items) > 0 {
				return portion{records: r.take(items), ended: s.ended}, nil
			}
			continue
		case s.ended:
			return portion{ended: true}, nil
		case s.err != nil:
			return portion{}, s.err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return portion{}, context.Cause(ctx)
		}
	}
}

// take fits shared items to this client. They are copied only where it differs from the others.
func (r *viewReader) take(items []shape.Out) []shape.Out {
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
				items[i] = items[i].Dropped(r.fold.Lost)
			}
		}
	}
	return items
}

func (r *viewReader) read(through schema.Seq) {
	r.through = through
	r.pull, r.stop = iter.Pull2(r.src.walk(r.ctx, r.hub, r.pos, through))
}

// history gives the next portion of the read under way, and ends it behind the last one.
func (r *viewReader) history() (portion, error) {
	r.fold.Drop = shape.Drop(max(r.lag-1, 0))
	r.out = r.out[:0]
	bytes, counted := 0, 0
	for n := 0; bytes < portionBytes && n < portionRecords; n++ {
		rec, err, ok := r.pull()
		if err != nil {
			return portion{}, err
		}
		if !ok {
			if r.pos < r.through {
				return portion{}, fmt.Errorf("history of %s ends at %d before %d: %w", r.src.key, r.pos, r.through, fanout.ErrUnavailable)
			}
			r.out = r.fold.Flush(r.out)
			r.endHistory()
			break
		}
		r.pos = rec.Seq
		r.out = r.fold.Add(r.out, rec)
		for ; counted < len(r.out); counted++ {
			bytes += len(r.out[counted].Line)
		}
	}
	return portion{records: r.own(r.out)}, nil
}

func (r *viewReader) endHistory() {
	if r.stop != nil {
		r.stop()
	}
	r.pull, r.stop = nil, nil
}

func (r *viewReader) wrote(took time.Duration) {
	switch {
	case took >= stall:
		r.lag = min(r.lag+1, int(shape.DropDeltas)+1)
	case took < brisk && r.lag > 0 && r.pull == nil:
		r.lag--
	}
}

func (r *viewReader) close() int {
	r.endHistory()
	r.views.leave(r.v)
	return r.fold.Lost
}
