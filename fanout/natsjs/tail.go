package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/internal/natskit"
	"agentstream/schema"
)

// tailBuffer is how many copies may wait for the router, over all watched runs. What comes when it
// is full is lost, which the client reports and the audit repairs.
const tailBuffer = 8192

// tail is the live side: one core subscription per watched run, all into one channel, one goroutine
// that routes.
type tail struct {
	nc *nats.Conn
	// of this process, which alone writes the log, and hands over what is stored; nil: there are copies
	writer     *nats.Conn
	partitions int
	copies     chan *nats.Msg
	lost       chan struct{}

	mu      sync.Mutex
	next    uint64
	watches map[schema.RunKey]watches
	taken   func(name, header []byte) bool // see Log.Skip; nil: nothing is
}

// watches are those of one run: mostly it is one.
type watches struct {
	first watch
	more  []watch            // replaced, never changed
	sub   *nats.Subscription // to its copies; nil where there are none
}

type watch struct {
	id uint64
	fn func(schema.Pack)
}

func newTail(nc *nats.Conn, partitions int) *tail {
	t := &tail{
		nc: nc, partitions: partitions, copies: make(chan *nats.Msg, tailBuffer),
		lost: make(chan struct{}, 1), watches: make(map[schema.RunKey]watches),
	}
	if w := natskit.TapOf(nc); w != nil {
		w.DivertCopies(schema.LivePrefix, t.read) // all that come by this connection: it has one tail
	}
	before := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrSlowConsumer) {
			t.signal()
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
	return t
}

func (t *tail) signal() {
	select {
	case t.lost <- struct{}{}:
	default: // one signal is waiting already
	}
}

func (t *tail) run(ctx context.Context) error {
	status := t.nc.StatusChanged(nats.CONNECTED)
	defer t.nc.RemoveStatusListener(status)
	var writer chan nats.Status
	if t.writer != nil {
		writer = t.writer.StatusChanged(nats.CONNECTED)
		defer t.writer.RemoveStatusListener(writer)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-status:
			if s == nats.CONNECTED {
				t.signal()
			}
		case s := <-writer:
			if s == nats.CONNECTED {
				t.signal()
			}
		case m := <-t.copies:
			t.route(m)
			t.drain()
		}
	}
}

// drain routes what waits already: a receive that need not look at anything else costs a fraction. It
// ends after a buffer full, so that nothing else waits for long.
func (t *tail) drain() {
	for range tailBuffer {
		select {
		case m := <-t.copies:
			t.route(m)
		default:
			return
		}
	}
}

// route passes on a copy that came by way of the client library.
func (t *tail) route(m *nats.Msg) {
	var stored uint64
	if v := m.Header[schema.HeaderPosition]; len(v) > 0 {
		stored, _ = strconv.ParseUint(v[0], 10, 64)
	}
	p, err := schema.ParsePack(m.Subject, m.Header, m.Data, stored)
	t.deliverCopy(p, err, m.Subject, stored)
}

// read is route for a copy that was taken off the wire.
func (t *tail) read(name, header, body []byte) {
	t.mu.Lock()
	taken := t.taken
	t.mu.Unlock()
	if taken != nil && taken(name, header) {
		return
	}
	subject := schema.LivePrefix + string(name)
	p, err := schema.ParseCopy(subject, string(header), bytes.Clone(body))
	t.deliverCopy(p, err, subject, p.Head.Stored)
}

// deliverCopy passes the readers of a run the copy of a pack. A copy that cannot be read is of a child: its
// readers learn the root.
func (t *tail) deliverCopy(p schema.Pack, err error, subject string, stored uint64) {
	if err != nil {
		child, root, ok := schema.ParseChildSubject(schema.StorePrefix + strings.TrimPrefix(subject, schema.LivePrefix))
		if !ok || root == child.Run {
			return // about who holds the run; or not ours: the persister puts such messages aside and logs them
		}
		p = schema.Pack{Key: child, Head: schema.Head{Root: root, Stored: stored}}
	}
	t.give(p)
}

// give passes a pack to those who watch its run.
func (t *tail) give(p schema.Pack) {
	t.mu.Lock()
	all, ok := t.watches[p.Key]
	t.mu.Unlock()
	if !ok {
		return
	}
	all.first.fn(p)
	for _, w := range all.more {
		w.fn(p)
	}
}

// watch subscribes before it returns: Flush proves that the server we are connected to knows. All watches of a run have
// one subscription, or each would be called for that of every other.
func (t *tail) watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	id, err := t.add(key, fn)
	stop := func() { t.drop(key, id) }
	if err == nil && t.writer == nil { // a connection that breaks takes the interest to the next server by itself
		err = natskit.Repeat(ctx, t.nc, func(ctx context.Context, wait time.Duration) error {
			once, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			return t.nc.FlushWithContext(once)
		})
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("natsjs: watch %s: %w", key, err)
	}
	return stop, nil
}

func (t *tail) add(key schema.RunKey, fn func(schema.Pack)) (id uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	w := watch{t.next, fn}
	all, ok := t.watches[key]
	if !ok {
		all.first = w
	} else {
		all.more = append(slices.Clip(all.more), w)
	}
	if all.sub == nil && t.writer == nil {
		all.sub, err = t.nc.ChanSubscribe(schema.LiveFilter(key, t.partitions), t.copies)
	}
	t.watches[key] = all
	return w.id, err
}

// drop ends a watch. Dropping it twice is harmless.
func (t *tail) drop(key schema.RunKey, id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, ok := t.watches[key]
	switch {
	case !ok:
	case all.first.id != id:
		all.more = slices.DeleteFunc(slices.Clone(all.more), func(w watch) bool { return w.id == id })
		t.watches[key] = all
	case len(all.more) > 0:
		all.first, all.more = all.more[0], all.more[1:]
		t.watches[key] = all
	default:
		delete(t.watches, key)
		if all.sub != nil {
			_ = all.sub.Unsubscribe() // fails only when the connection is gone, and the interest with it
		}
	}
}

// newestGroup is how many runs one request asks for: the server refuses answers of over 1,024
// subjects, and a run has one per child.
const newestGroup = 400

// Newest asks with one request per group of runs. Any replica may answer: it may lag.
func (l *Log) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	byStream := make(map[int][]schema.RunKey)
	for _, key := range keys {
		p := schema.Partition(key.Run, l.partitions)
		byStream[p] = append(byStream[p], key)
	}
	out := make(map[schema.RunKey]schema.Seq, len(keys))
	for p, keys := range byStream {
		for group := range slices.Chunk(keys, newestGroup) {
			if err := l.newest(ctx, natskit.StreamName(p), group, out); err != nil {
				return nil, fmt.Errorf("natsjs: newest of %d runs: %w", len(group), err)
			}
		}
	}
	return out, nil
}

func (l *Log) newest(ctx context.Context, stream string, keys []schema.RunKey, out map[schema.RunKey]schema.Seq) error {
	req := natskit.BatchRequest{MultiLast: make([]string, len(keys))}
	for i, key := range keys {
		req.MultiLast[i] = schema.RunFilter(key, l.partitions)
	}
	page, err := natskit.ReadPage(ctx, l.nc, stream, req)
	if errors.Is(err, natskit.ErrTooManySubjects) {
		return l.newestOfMany(ctx, stream, keys, out)
	}
	if err != nil {
		return err
	}
	for _, m := range page.Msgs {
		if p, err := natskit.ParsePack(m); err == nil && p.Last() > out[p.Key] {
			out[p.Key] = p.Last()
		}
	}
	return nil
}

// newestOfMany halves the group; a single run with over 1,024 children is asked for at the leader.
func (l *Log) newestOfMany(ctx context.Context, stream string, keys []schema.RunKey,
	out map[schema.RunKey]schema.Seq) error {
	if len(keys) == 1 {
		head, err := l.Head(ctx, keys[0], "")
		if err == nil && head.HasEvents() {
			out[keys[0]] = head.Last
		}
		return err
	}
	for _, half := range [][]schema.RunKey{keys[:len(keys)/2], keys[len(keys)/2:]} {
		if err := l.newest(ctx, stream, half, out); err != nil {
			return err
		}
	}
	return nil
}
