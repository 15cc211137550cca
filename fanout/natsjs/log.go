package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/internal/natskit"
	"agentstream/schema"
)

// Log reads the log. New makes one; Run must be running for the live side.
type Log struct {
	nc         *nats.Conn
	partitions int
	tail       *tail
	pages      *fair.Slots // for pages under way
}

var (
	_ fanout.History = (*Log)(nil)
	_ fanout.Tail    = (*Log)(nil)
)

// Bounds of one page of history. A batch holds a lock that every write to the stream waits for, so
// pages are small: a few milliseconds.
const (
	pageMessages = 500
	pageBytes    = 256 << 10
	// pagesAtOnce bounds what may be under way on the connection: all that the server must hold for it is
	// far below where the server would take it for a slow consumer and cut it (max_pending, 64 MiB), also
	// when hundreds of readers begin at the same time. A tenant alone has a third of it.
	pagesAtOnce = 32
	pageFirsts  = 16 // tenants that read their first page
)

// Open reads the layout of the log. It wraps natskit.ErrNotDeclared when there is none. Where the connection has a
// natskit.WireTap, all copies that come by it are the log's: nobody else gets copies there.
func Open(ctx context.Context, nc *nats.Conn) (*Log, error) { return OpenBeside(ctx, nc, nc) }

// OpenBeside is Open with copies that come by another connection than history, that of the process's writer: there
// the copy of what it has written comes together with the answer, and is read with it.
func OpenBeside(ctx context.Context, nc, copies *nats.Conn) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	return &Log{nc: nc, partitions: n, tail: newTail(copies, n),
		pages: fair.New(fair.Config{Shared: pagesAtOnce, Firsts: pageFirsts})}, nil
}

// Skip has copies passed over that the writer of this process takes, who passes what they are of to Stored: see Taken
// of producers/natsjs.
func (l *Log) Skip(taken func(name, header []byte) bool) {
	l.tail.mu.Lock()
	defer l.tail.mu.Unlock()
	l.tail.taken = taken
}

// OpenAlone is Open for the process that alone writes and reads the log, which was declared as such and makes no
// copies. What is stored through writer is passed to Stored, and Missed is called when something was not. Until it is
// read Run, or the next audit of a hub, finds it.
func OpenAlone(ctx context.Context, nc, writer *nats.Conn) (*Log, error) {
	l, err := Open(ctx, nc)
	if err == nil {
		l.tail.writer = writer
	}
	return l, err
}

// Deliver passes a pack to those who watch its run, as its copy would be. It does not block.
func (l *Log) Deliver(p schema.Pack) { l.tail.give(p) }

// SignalLoss signals Losses.
func (l *Log) SignalLoss() { l.tail.signal() }

// Run routes live copies until ctx ends.
func (l *Log) Run(ctx context.Context) error { return l.tail.run(ctx) }

// Watch subscribes to the run's copies; see fanout.Tail.
func (l *Log) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	return l.tail.watch(ctx, key, fn)
}

// Losses is signalled after a reconnect and after an overflow.
func (l *Log) Losses() <-chan struct{} { return l.tail.lost }

func (l *Log) run(key schema.RunKey) natskit.RunAddress {
	return natskit.RunAddress{Key: key, Partitions: l.partitions}
}

// Head reads from the leader.
func (l *Log) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	head, err := natskit.ReadHead(ctx, l.nc, l.run(key), lane)
	if err != nil {
		return schema.Head{}, fmt.Errorf("natsjs: head of %s: %w", key, err)
	}
	return head, nil
}

// Packs pages through the run by direct get. When the replica that answers ends before through, the
// rest is read from the leader.
func (l *Log) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := &walk{l: l, run: l.run(key), pos: after, through: through, yield: yield}
		if err := w.walk(ctx); err != nil {
			yield(schema.Pack{}, fmt.Errorf("natsjs: packs of %s after %d: %w", key, w.pos, err))
		}
	}
}

type walk struct {
	l            *Log
	run          natskit.RunAddress
	pos, through schema.Seq
	next         uint64     // stream position to go on from
	behind       schema.Seq // most messages of the run between next and pos
	yield        func(schema.Pack, error) bool
	stopped      bool
}

func (w *walk) walk(ctx context.Context) error {
	next, err := w.seek(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	w.next = next
	ahead := w.fetch(ctx)
	defer func() { cancel(); <-ahead.done }()
	for {
		<-ahead.done
		if ahead.err != nil {
			return ahead.err
		}
		page := ahead.page
		more := page.More && len(page.Msgs) > 0
		if more {
			newest := page.Msgs[len(page.Msgs)-1]
			w.next, w.behind = newest.Seq+1, 0
			p, err := natskit.ParsePack(newest)
			if more = err == nil && p.Last() < w.through; more {
				ahead = w.fetchBehind(ctx, p.Last())
			}
		}
		for _, m := range page.Msgs {
			if err := w.give(m); err != nil || w.stopped || w.pos >= w.through {
				return err
			}
		}
		if !more {
			break
		}
	}
	return w.leader(ctx)
}

// fetched is a page on its way.
type fetched struct {
	done chan struct{} // closed when the rest may be read
	page natskit.Page
	err  error
}

func (w *walk) fetch(ctx context.Context) *fetched { return w.fetchBehind(ctx, w.pos) }

// fetchBehind asks for the page at next, where the run's events up to pos lie before or within the first
// few messages. The next page is under way while the one before it is being looked at.
func (w *walk) fetchBehind(ctx context.Context, pos schema.Seq) *fetched {
	f := &fetched{done: make(chan struct{})}
	req := natskit.BatchRequest{
		Seq: w.next, NextBy: w.run.Filter(), MaxBytes: pageBytes,
		// A message holds an event at least. A batch of one would be answered without an end marker.
		Batch: int(max(2, min(pageMessages, w.through-pos+w.behind))),
	}
	go func() {
		defer close(f.done)
		slot, err := w.l.pages.Acquire(ctx, w.run.Key.Tenant)
		if err != nil {
			f.err = err
			return
		}
		defer slot.Release()
		f.page, f.err = natskit.ReadPage(ctx, w.l.nc, w.run.Stream(), req)
	}()
	return f
}

// leader reads what the replica did not have yet.
func (w *walk) leader(ctx context.Context) error {
	for w.pos < w.through && !w.stopped {
		m, err := natskit.NextPack(ctx, w.l.nc, w.run, w.next)
		if errors.Is(err, natskit.ErrNoMessage) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.give(m); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) give(m natskit.Msg) error {
	w.next = m.Seq + 1
	p, err := natskit.ParsePack(m)
	if err != nil {
		if natskit.OfChild(m) {
			return nil
		}
		return err
	}
	if p.First > w.through {
		// Numbers only grow: looking further would be a walk through all that follows, one by one where
		// the leader is asked.
		w.stopped = true
		return nil
	}
	if p.Last() <= w.pos {
		return nil
	}
	w.pos = p.Last()
	w.stopped = !w.yield(p, nil)
	return nil
}

// seekFrom is the distance from which finding the place costs less than reading up to it.
const seekFrom = 1024

// seek finds a stream position at or before the run's first pack behind pos, by halving: a run's
// numbers and its stream positions grow together. 1 when the start is near anyway.
func (w *walk) seek(ctx context.Context) (uint64, error) {
	if w.pos < seekFrom {
		w.behind = w.pos
		return 1, nil
	}
	w.behind = pageMessages // more cannot be asked for anyway
	last, err := natskit.LastFromLeader(ctx, w.l.nc, w.run.Stream(), w.run.Filter())
	if errors.Is(err, natskit.ErrNoMessage) {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	lo, hi := uint64(1), last.Seq // lo is always at or before the place
	for hi-lo > 64 {
		mid := lo + (hi-lo)/2
		m, err := natskit.NextPack(ctx, w.l.nc, w.run, mid)
		if errors.Is(err, natskit.ErrNoMessage) { // last is no pack
			hi = mid
			continue
		}
		if err != nil {
			return 0, err
		}
		p, err := natskit.ParsePack(m)
		if err != nil {
			return 0, err
		}
		switch {
		case p.First > w.pos+1:
			hi = mid
		case m.Seq >= hi: // nothing of the run between mid and hi
			return m.Seq, nil
		default:
			lo = m.Seq
		}
	}
	return lo, nil
}
