package natsjs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"agentstream/internal/natskit"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
	"agentstream/schema/seal"
)

// Log is the log in JetStream.
type Log struct {
	nc         *nats.Conn
	partitions int
	streams    []string // names, by partition
	acks       acks
	copies     command.Waker // nil: the log's own
	compared   comparisons
	silent     []silence // by partition
	childAgain time.Duration
	back       reconnects
	seal       *seal.Keys // nil: nothing is
}

// childAgain is after how long the note about a child is written anew.
const childAgain = time.Hour

var _ producers.Log = (*Log)(nil)

// Open reads the layout of the log. It wraps natskit.ErrNotDeclared when there is none.
func Open(ctx context.Context, nc *nats.Conn) (*Log, error) { return OpenWith(ctx, nc, Config{}) }

// Config is what a Log may be given.
type Config struct {
	// Compare compares the log with what is stored of it elsewhere. Heads are read and packs are appended only after it
	// has found the partition whole: at first, after each reconnect, after each append that was not answered, and when
	// the stream was made anew. A log that came back shorter would number events again otherwise.
	Compare Compare
	// Stored is called with each pack that was appended here once the log has answered, as a copy of it would be, on
	// the goroutine of Append and before that returns; and by Adopt with a pack without events, whose Head has the
	// Root. copied: Taken has taken its copy. Missed is called when what was stored is not passed to Stored: an answer
	// comes after its caller has gone, or none comes to an append whose copy was taken. Neither may block.
	Stored func(p schema.Pack, copied bool)
	Missed func()
	// Seal opens what is read, and refuses to store events that are to be encrypted and are not; nil: nothing is
	// encrypted.
	Seal *seal.Keys
	// Short writes packs with schema.HeaderPack alone, for a log that is read by this program alone.
	Short bool
	// Copies are used by Watch instead of subscriptions of its own: a log that one process writes and reads has none, and
	// where a reader takes copies off the same connection they do not come to others.
	Copies command.Waker
}

// OpenWith is Open with a configuration.
func OpenWith(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	l := &Log{nc: nc, partitions: n, streams: make([]string, n),
		acks: acks{nc: nc, stored: cfg.Stored, missed: cfg.Missed, short: cfg.Short}, copies: cfg.Copies,
		silent: make([]silence, n), childAgain: childAgain, seal: cfg.Seal}
	for i := range l.streams {
		l.streams[i] = natskit.StreamName(i)
	}
	l.compared = comparisons{nc: nc, js: js, compare: cfg.Compare, parts: make([]comparison, n)}
	return l, nil
}

func (l *Log) run(key schema.RunKey) natskit.RunAddress {
	return natskit.RunAddress{Key: key, Partitions: l.partitions}
}

// Head reads from the leader.
func (l *Log) Head(ctx context.Context, key schema.RunKey, lane string) (head schema.Head, err error) {
	generation, err := l.compared.pass(ctx, schema.Partition(key.Run, l.partitions))
	if err == nil {
		head, err = natskit.ReadHead(ctx, l.nc, l.run(key), lane)
	}
	if err != nil {
		err = classifyRead(err)
		return schema.Head{}, fmt.Errorf("natsjs: head of %s: %w", key, err)
	}
	head.Generation = generation
	if head.Root != "" && time.Since(time.UnixMilli(head.RootAt)) > l.childAgain {
		// An error is that of a later read, or lost: the child is one for the rest of the window all the same.
		_, _ = natskit.Adopt(ctx, l.nc, l.run(key), head.Root, l.childAgain)
	}
	return head, nil
}

// Lanes reads the owners from the leader, or from a replica that has as much of the run as the leader.
func (l *Log) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	owners, err := natskit.ReadLanes(ctx, l.nc, l.run(key), lanes)
	if err != nil {
		return nil, fmt.Errorf("natsjs: %d lanes of %s: %w", len(lanes), key, err)
	}
	return owners, nil
}

// Hold stores a message after the run's newest pack that asks its other writers to wait. See natskit.Hold.
func (l *Log) Hold(ctx context.Context, key schema.RunKey, by string) error {
	if err := natskit.Hold(ctx, l.nc, l.run(key), by); err != nil {
		return fmt.Errorf("natsjs: %w", err)
	}
	return nil
}

// Release stores one that asks no more. See natskit.Release.
func (l *Log) Release(ctx context.Context, key schema.RunKey, by string) error {
	if err := natskit.Release(ctx, l.nc, l.run(key), by); err != nil {
		return fmt.Errorf("natsjs: %w", err)
	}
	return nil
}

// adoptAtOnce is how many notes about children are under way at a time.
const adoptAtOnce = 16

// Adopt notes, in the children's own partitions, that their events belong into the log of root.
func (l *Log) Adopt(ctx context.Context, root schema.RunKey, children ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(adoptAtOnce)
	for _, child := range children {
		group.Go(func() error { return l.adopt(ctx, root, child) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("natsjs: child of %s: %w", root, err)
	}
	return nil
}

func (l *Log) adopt(ctx context.Context, root schema.RunKey, child string) error {
	run := l.run(schema.RunKey{Tenant: root.Tenant, Run: child})
	if _, err := l.compared.pass(ctx, schema.Partition(child, l.partitions)); err != nil {
		return err
	}
	said, err := natskit.Adopt(ctx, l.nc, run, root.Run, l.childAgain)
	if err != nil {
		return classify(err)
	}
	if said > 0 && l.acks.stored != nil {
		l.acks.stored(schema.Pack{Key: run.Key, Head: schema.Head{Root: root.Run, Stored: said}}, false)
	}
	return nil
}

// ClaimCopy reports whether a message is the copy of a pack whose append waits for its answer here: then Stored
// has it, or Missed tells, and the caller passes over it. It reports that once for each copy. That costs much
// less than a copy, and the server sends it just before the answer. name is what follows schema.LivePrefix in
// its subject, header its headers as on the wire. It is always false without Missed, and with Short.
func (l *Log) ClaimCopy(name, header []byte) bool { return l.acks.claimCopy(name, header) }

// Append publishes the pack with a compare-and-set on the run.
func (l *Log) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if l.seal.Has(p.Key.Tenant) && !seal.IsWhole(p) {
		return 0, fmt.Errorf("natsjs: append to %s at %d: %w: it is not encrypted", p.Key, p.First, producers.ErrSetup)
	}
	subject, filter, part := schema.PackSubject(p.Key, p.Child, l.partitions)
	pass := l.compared.pass
	if after == 0 {
		pass = l.compared.passFirst
	}
	generation, err := pass(ctx, part)
	if err == nil && generation != p.Head.Generation {
		err = producers.ErrRenewed
	}
	silent, wait := &l.silent[part], time.Duration(0)
	if err == nil {
		wait, err = silent.enter(l.nc, l.streams[part])
	}
	if err != nil {
		return 0, fmt.Errorf("natsjs: append to %s at %d: %w", p.Key, p.First, err)
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	sent := time.Now()
	seq, err := l.acks.publish(ctx, p, subject, filter, l.streams[part], after)
	if errors.Is(err, jetstream.ErrNoStreamResponse) && silent.missing(ctx, l.nc, l.streams[part]) {
		err = jetstream.ErrStreamNotFound
	}
	if err == nil {
		silent.noteStored()
		return seq, nil
	}
	err = classify(err)
	l.compared.doubt(part, err)
	if errors.Is(err, producers.ErrUnanswered) {
		silent.noteUnanswered(l.nc, l.streams[part], sent, false)
	}
	return 0, fmt.Errorf("natsjs: append to %s at %d: %w", p.Key, p.First, err)
}

// classifyRead makes the error of a read from a stream that is missing that of an append to it.
func classifyRead(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return classify(err)
	}
	return err
}

// classify turns the client's errors into the decisions of producers. Only an answer of the
// server is certain; the lack of one never is.
func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrMaxPayload):
		// a pack is within our own bounds
		return fmt.Errorf("%w: %w: %w", producers.ErrUnavailable, producers.ErrSetup, err)
	case natskit.IsRefused(err):
		return fmt.Errorf("%w: %w", producers.ErrConflict, err)
	case errors.As(err, &api):
		if natskit.NoRoom(api) {
			return fmt.Errorf("%w: %w", producers.ErrFull, err)
		}
		if api.Code >= 500 || api.Code == 429 {
			return fmt.Errorf("%w: %w", producers.ErrUnavailable, err)
		}
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", producers.ErrUnavailable, err) // no stream listened: not stored
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return fmt.Errorf("%w: %w", producers.ErrUnavailable, err) // refused before it was sent
	case errors.Is(err, nats.ErrConnectionClosed):
		return err
	}
	return fmt.Errorf("%w: %w", producers.ErrUnanswered, err)
}

// Bounds of one page of Since.
const (
	pageMessages = 200
	pageBytes    = 1 << 20
)

// Since asks the leader for the next pack, which is all that most callers want; then it pages by
// direct get, which any replica may answer; and what that replica did not have yet comes from the
// leader again. So the walk ends at the leader's newest pack.
func (l *Log) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := &since{l: l, ctx: ctx, run: l.run(key), after: after, yield: yield}
		for more := true; more && !w.stopped; {
			more = w.next(ctx)
			if more && !w.stopped {
				w.page(ctx)
			}
		}
		if w.err != nil {
			w.err = classifyRead(w.err)
			yield(schema.Pack{}, fmt.Errorf("natsjs: packs of %s after %d: %w", key, w.after, w.err))
		}
	}
}

// since is one walk under way.
type since struct {
	l       *Log
	ctx     context.Context
	run     natskit.RunAddress
	after   uint64
	yield   func(schema.Pack, error) bool
	stopped bool
	err     error
}

// next returns one pack from the leader; false when there is none.
func (w *since) next(ctx context.Context) bool {
	m, err := natskit.NextPack(ctx, w.l.nc, w.run, w.after+1)
	if errors.Is(err, natskit.ErrNoMessage) {
		return false
	}
	w.give(m, err)
	return w.err == nil
}

func (w *since) page(ctx context.Context) {
	page, err := natskit.ReadPage(ctx, w.l.nc, w.run.Stream(), natskit.BatchRequest{
		Seq: w.after + 1, NextBy: w.run.Filter(), Batch: pageMessages, MaxBytes: pageBytes,
	})
	if err != nil {
		w.err, w.stopped = err, true
		return
	}
	for _, m := range page.Msgs {
		if natskit.OfChild(m) {
			w.after = m.Seq
			continue
		}
		if w.give(m, nil); w.stopped {
			return
		}
	}
}

func (w *since) give(m natskit.Msg, err error) {
	var p schema.Pack
	if err == nil {
		p, err = natskit.ParsePack(m)
	}
	if err == nil {
		p, err = w.l.seal.Open(w.ctx, p)
	}
	if err != nil {
		w.err, w.stopped = err, true
		return
	}
	w.after = m.Seq
	w.stopped = !w.yield(p, nil)
}
