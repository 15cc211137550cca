package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"agentstream/fanout"
	"agentstream/schema"
)

// Log is a log in memory. The zero value is not usable; New makes one.
type Log struct {
	mu      sync.Mutex
	runs    map[schema.RunKey][]schema.Pack
	stored  uint64
	roots   map[schema.RunKey]schema.Head // of ids that are children's
	holds   map[schema.RunKey]schema.Head // Held and Stored of the newest; of no use once a pack has come
	watches map[schema.RunKey][]*watch
	lost    chan struct{}

	deliver sync.Mutex // copies go out in the order of the log
}

type watch struct{ fn func(schema.Pack) }

var (
	_ fanout.History = (*Log)(nil)
	_ fanout.Tail    = (*Log)(nil)
)

// New makes an empty log.
func New() *Log {
	return &Log{
		runs: make(map[schema.RunKey][]schema.Pack), roots: make(map[schema.RunKey]schema.Head),
		holds: make(map[schema.RunKey]schema.Head), watches: make(map[schema.RunKey][]*watch), lost: make(chan struct{}, 1),
	}
}

// Head returns the run's head and the owner of lane.
func (l *Log) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if err := ctx.Err(); err != nil {
		return schema.Head{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	packs := l.runs[key]
	if len(packs) == 0 {
		return l.roots[key], nil
	}
	head := packs[len(packs)-1].Head
	head.Lane = ownerOf(packs, lane)
	if h := l.holds[key]; h.Stored > head.Stored {
		head.Stored, head.Held = h.Stored, h.Held
	}
	return head, nil
}

// Hold has the head say for whom the run's writers wait.
func (l *Log) Hold(_ context.Context, key schema.RunKey, by string) error {
	l.hold(key, by, func(held string) bool { return held == "" || held == by })
	return nil
}

// Release takes that back.
func (l *Log) Release(_ context.Context, key schema.RunKey, by string) error {
	l.hold(key, "", func(held string) bool { return held == by })
	return nil
}

func (l *Log) hold(key schema.RunKey, by string, may func(held string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	packs, h := l.runs[key], l.holds[key]
	if len(packs) == 0 {
		return
	}
	if packs[len(packs)-1].Head.Stored > h.Stored {
		h = schema.Head{}
	}
	if may(h.Held) {
		l.stored++
		l.holds[key] = schema.Head{Stored: l.stored, Held: by}
	}
}

// Lanes returns the owners of lanes, in their order.
func (l *Log) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := make([]schema.Lane, len(lanes))
	for i, lane := range lanes {
		owners[i] = ownerOf(l.runs[key], lane)
	}
	return owners, nil
}

// ownerOf returns the owner of a lane by its newest pack.
func ownerOf(packs []schema.Pack, lane string) schema.Lane {
	for i := len(packs) - 1; i >= 0; i-- {
		if packs[i].Child == lane {
			return packs[i].Head.Lane
		}
	}
	return schema.Lane{}
}

// Append stores a copy of the pack's description; the body is shared.
func (l *Log) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memory: append: %w: %w", schema.ErrUnavailable, err)
	}
	l.deliver.Lock()
	defer l.deliver.Unlock()
	l.mu.Lock()
	packs := l.runs[p.Key]
	newest := l.roots[p.Key].Stored
	if len(packs) > 0 {
		newest = max(packs[len(packs)-1].Head.Stored, l.holds[p.Key].Stored)
	}
	if newest != after {
		l.mu.Unlock()
		return 0, fmt.Errorf("memory: append to %s: newest is %d, expected %d: %w", p.Key, newest, after, schema.ErrConflict)
	}
	l.stored++
	q := *p
	q.Head = p.Head
	q.Head.Stored = l.stored
	l.runs[p.Key] = append(packs, q)
	watches := l.watches[p.Key]
	l.mu.Unlock()
	for _, w := range watches {
		w.fn(q)
	}
	return q.Head.Stored, nil
}

// Adopt makes the ids of children that have no packs those of root.
func (l *Log) Adopt(_ context.Context, root schema.RunKey, children ...string) error {
	l.deliver.Lock()
	defer l.deliver.Unlock()
	for _, child := range children {
		l.adopt(root, child)
	}
	return nil
}

func (l *Log) adopt(root schema.RunKey, child string) {
	key := schema.RunKey{Tenant: root.Tenant, Run: child}
	l.mu.Lock()
	if len(l.runs[key]) > 0 {
		l.mu.Unlock()
		return
	}
	l.stored++
	head := schema.Head{Root: root.Run, Stored: l.stored}
	l.roots[key] = head
	watches := l.watches[key]
	l.mu.Unlock()
	for _, w := range watches {
		w.fn(schema.Pack{Key: key, Head: head})
	}
}

// Since walks the packs after a position.
func (l *Log) Since(ctx context.Context, key schema.RunKey, after uint64) iter.Seq2[schema.Pack, error] {
	return l.walk(ctx, key, func(p *schema.Pack) bool { return p.Head.Stored > after })
}

// Packs walks the packs with events in (after, through].
func (l *Log) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return l.walk(ctx, key, func(p *schema.Pack) bool { return p.Last() > after && p.First <= through })
}

func (l *Log) walk(ctx context.Context, key schema.RunKey, want func(*schema.Pack) bool) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		l.mu.Lock()
		packs := l.runs[key] // appended to and re-sliced, never changed
		l.mu.Unlock()
		for i := range packs {
			if err := ctx.Err(); err != nil {
				yield(schema.Pack{}, err)
				return
			}
			if want(&packs[i]) && !yield(packs[i], nil) {
				return
			}
		}
	}
}

// Watch hands copies to fn from the next Append on.
func (l *Log) Watch(_ context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	w := &watch{fn: fn}
	l.mu.Lock()
	l.watches[key] = append(slices.Clip(l.watches[key]), w)
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(l.watches[key]), func(o *watch) bool { return o == w })
		if len(rest) == 0 {
			delete(l.watches, key)
			return
		}
		l.watches[key] = rest
	}, nil
}

// Newest returns the newest seq of each run that has events.
func (l *Log) Newest(_ context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[schema.RunKey]schema.Seq, len(keys))
	for _, key := range keys {
		if packs := l.runs[key]; len(packs) > 0 {
			out[key] = packs[len(packs)-1].Last()
		}
	}
	return out, nil
}

// Losses is signalled by SignalLost.
func (l *Log) Losses() <-chan struct{} { return l.lost }

// SignalLost reports to readers that copies may have been lost, as a reconnect would.
func (l *Log) SignalLost() {
	select {
	case l.lost <- struct{}{}:
	default:
	}
}

// Expire drops the run's packs that hold nothing behind seq, as the stream's age limit would.
func (l *Log) Expire(key schema.RunKey, seq schema.Seq) {
	l.mu.Lock()
	defer l.mu.Unlock()
	packs := l.runs[key]
	for len(packs) > 0 && packs[0].Last() <= seq {
		packs = packs[1:]
	}
	l.runs[key] = packs
}
