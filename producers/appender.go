package producers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// AppenderConfig is what an Appender needs. Log is required.
type AppenderConfig struct {
	Log     Log
	Archive Archive // consulted when the log has nothing of a run
	// Parent returns the run in whose log a child wrote last, "" when there is none. It is asked about ids of which
	// neither Log nor Archive has anything, for children that have left the log's window. nil: there is none.
	Parent  func(ctx context.Context, tenant, child string) (root string, err error)
	Keys    Keys          // remembers idempotency keys; nil: keys are refused
	Quota   *fair.Quota   // of the keys of a tenant that Keys remembers; nil is no bound
	Timeout time.Duration // for one answer of the log, which is asked again, at first after half of it; default 1 s
	Redact  *redact.File  // what is hidden in events before they are stored; nil: nothing
	Seal    *seal.Keys    // by which events of some tenants are encrypted; nil: none are

	Now    func() time.Time
	IDs    *schema.IDs
	Logger *slog.Logger
	Hooks  Hooks
	// Appended is called with what Append has stored, not with a repeat; nil is off. It must not keep the events.
	Appended func(key schema.RunKey, events []schema.Event)
}

// Keys remembers what was begun and answered under an idempotency key, for as long as its owner
// promises callers that a repeat is recognised.
type Keys interface {
	// Claim stores r under id unless there is a record already, and returns the record that counts. It tries until
	// ctx ends: where that is r, it is unknown whether it was there already.
	Claim(ctx context.Context, id string, r KeyRecord) (KeyRecord, error)
	// Finish replaces the record.
	Finish(ctx context.Context, id string, r KeyRecord) error
}

// KeyRecord is the fate of one keyed append. Until Done, some of its packs may lie behind After.
type KeyRecord struct {
	Digest string     `json:"digest"`         // of the content
	After  uint64     `json:"after"`          // the run's newest position when the append began
	Done   bool       `json:"done,omitempty"` // First and Last are the answer
	First  schema.Seq `json:"first,omitempty"`
	Last   schema.Seq `json:"last,omitempty"`
}

// Appender stores batches for any run, beside whoever owns its lanes. It keeps no state that
// matters: any number of nodes may append to the same run. What it remembers of the runs that it
// wrote last only saves reads: the compare-and-set finds out when it is old.
type Appender struct {
	cfg AppenderConfig

	// Appends to one run wait for each other in this process, so that they collide only with those
	// of other processes.
	mu      sync.Mutex
	runs    map[schema.RunKey]*keyLock
	tenants map[string]*tenantRuns // of the same
	held    int                    // bytes of the same, about
	room    int                    // most bytes that are kept between appends
}

// tenantRuns are the runs of a tenant that an Appender knows.
type tenantRuns struct {
	recent keyLock // a ring of them: the one left last is behind it
	count  int
	held   int // bytes
}

// Bounds of what an Appender remembers. A run that is not remembered costs a read of its head, so that many runs that
// are written slowly cost twice as much as a few.
const (
	rememberedBytes = 64 << 20
	rememberedLanes = 256 // of one run
	forgotten       = 16  // a part of rememberedBytes is freed at once, of the tenant that holds most

	runBytes  = 1280 // of a run without lanes, about
	laneBytes = 160
)

type keyLock struct {
	key   schema.RunKey
	turn  chan struct{} // holds one token
	of    *tenantRuns
	users int
	bytes int          // that it counts for in Appender.held
	job   appendJob    // of whose turn it is
	w     *writer      // of the last append, when that went well; used by whose turn it is
	texts redact.Trail // how its blocks have ended, for whose turn it is

	before, behind *keyLock // in tenantRuns.recent
}

// leave takes t out of its ring, and follow puts it behind another one.
func (t *keyLock) leave() { t.before.behind, t.behind.before = t.behind, t.before }
func (t *keyLock) follow(o *keyLock) {
	t.before, t.behind = o, o.behind
	t.before.behind, t.behind.before = t, t
}

// NewAppender returns an appender.
func NewAppender(cfg AppenderConfig) (*Appender, error) {
	if cfg.Log == nil {
		return nil, errors.New("producers: appender config: no log")
	}
	base := Config{Now: cfg.Now, IDs: cfg.IDs, Logger: cfg.Logger, Timeout: cfg.Timeout}.withDefaults()
	cfg.Now, cfg.IDs, cfg.Logger, cfg.Timeout = base.Now, base.IDs, base.Logger, base.Timeout
	a := &Appender{cfg: cfg, room: rememberedBytes}
	a.runs, a.tenants = make(map[schema.RunKey]*keyLock), make(map[string]*tenantRuns)
	return a, nil
}

// AppendOptions are the conditions of an append.
type AppendOptions struct {
	// IdempotencyKey makes a repeat of this append, on any node, answer what the first one did and
	// store nothing, also after a crash in its middle. Scope is the run.
	IdempotencyKey string
	// Within bounds the whole append; 0: only its context does. It costs less than a context with a deadline,
	// because nobody waits for the end of an append that goes well.
	Within time.Duration
	// MustBeNew refuses with ErrExists when the run has events.
	MustBeNew bool
	// Whole refuses with ErrTooLarge what does not fit one pack, so that what is stored is all or nothing.
	Whole bool
	// OneLane refuses, where the run is named by the id of one of its children, events of others (ErrForeignRun).
	OneLane bool
	// Owner refuses with ErrNotOwner what is not written for the publisher of that id (Publisher.WriterID), which owns
	// the run's own lane: so somebody who has the id answers elsewhere, until another publisher takes the lane over.
	// "" asks for none.
	Owner string
	// AfterEnd also stores what a run that is over does not take (schema.ErrEnded otherwise); it stays over.
	AfterEnd bool
	// First are events, which have passed Event.Prepare, that the run begins with: they are stored before the given ones
	// if the run has no events. They are in the receipt, and no part of the content of an idempotency key. A run that
	// is named by the id of a child has events.
	First []schema.Event
	// Trace is the traceparent of the request that brings the events, as trace.Of returns it; each of them is stored with
	// it (schema.Event.WithTrace). It is no part of the content of an idempotency key. "": there is none.
	Trace string
	// Patient lets the log send the events part of a millisecond later, together with those of other appends: for a caller
	// that has several under way.
	Patient bool
	// Plan decides what is stored in a run that stands at head, or that nothing is; nil: the events as they are given.
	// It is asked about the very head that the compare-and-set of the first pack demands, and again whenever others were
	// faster, so what it was decided for is still so when the events are stored. Its error is returned wrapped, and
	// nothing is stored. It is not asked when a repeat finds the events stored.
	//
	// With Whole it may return others than those that are given, which have passed Event.Prepare, and none need be given.
	// The content of an idempotency key stays the events as they are given.
	Plan func(ctx context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error)
	// Admit is asked about the events: it is asked whether they may follow head in the log of key, in their order,
	// and again, about those that are not stored yet, whenever others were faster. nil allows everything.
	Admit func(ctx context.Context, key schema.RunKey, head schema.Head, rest []schema.Event) error
}

// PartialError reports that the beginning of a batch that takes several packs is stored, and the rest is not. It
// wraps why: ErrUnanswered when a repeat with the same idempotency key may complete it, or a refusal, wrapped in
// a schema.BatchError, when no repeat can: another writer has ended the run in between.
type PartialError struct {
	Stored int // events, from the batch's first, that are stored for certain; with ErrUnanswered more may be
	Of     int // events of the batch
	Err    error
}

// Error returns how much is stored, and why the rest is not.
func (e *PartialError) Error() string {
	return fmt.Sprintf("%d of %d events are stored: %v", e.Stored, e.Of, e.Err)
}

// Unwrap returns why.
func (e *PartialError) Unwrap() error { return e.Err }

// errDuplicate reports that a pack of this very append has been stored by a repeat that runs elsewhere.
var errDuplicate = errors.New("a repeat of this append was first")

// Append stores events, which have passed schema.DecodeBatch or Event.Prepare, and returns when they are durable.
//
// A batch that fits one pack (one lane, 1,024 events, 768 KiB of lines) is stored whole or not at all. A larger one
// is stored in order, pack by pack: what is stored of it is at all times a beginning of it, cut between packs, and
// events of others may lie between packs. It is checked as a whole on the very head that its first pack follows,
// so a refusal (ErrSeqMismatch, ErrEnded, ErrExists, ErrKeyReused …) stores nothing; and again whenever others
// were faster. When it cannot be finished the error is a PartialError. A batch that brings its own numbers must
// fit one pack.
//
// The id of a child that was spawned, and has no log of its own, is one of its root's log: events without a child
// become that child's there, and heads, conditions and numbers are the root's (Receipt.Root). Only MustBeNew is about
// the child, and the scope of an idempotency key stays the child's id.
//
// After ErrUnanswered, repeat with the same idempotency key.
func (a *Appender) Append(ctx context.Context, key schema.RunKey, events []schema.Event, opt AppendOptions) (Receipt,
	error) {
	if len(events) == 0 && (opt.Plan == nil || !opt.Whole || opt.IdempotencyKey != "") {
		return Receipt{}, fmt.Errorf("producers: append to %s: no event: %w", key, schema.ErrMalformed)
	}
	if err := key.Validate(); err != nil {
		return Receipt{}, fmt.Errorf("producers: append: %w", err)
	}
	if opt.Within > 0 {
		b := &bounded{Context: ctx, at: time.Now().Add(opt.Within)}
		defer b.release()
		ctx = b
	}
	receipt, stored, err := a.append(ctx, key, events, opt, "")
	if len(opt.First) > 0 {
		err = lineAfter(err, len(stored)-len(events))
	}
	if err == nil {
		if h := a.cfg.Appended; h != nil && !receipt.Replayed {
			h(key, stored)
		}
		return receipt, nil
	}
	if child := new(childError); errors.As(err, &child) {
		root := schema.RunKey{Tenant: key.Tenant, Run: child.root}
		if err := oneLane(events, key.Run); opt.OneLane && err != nil {
			return Receipt{}, fmt.Errorf("producers: append to %s: %w", key, err)
		}
		opt.First = nil
		receipt, _, err = a.append(ctx, root, events, opt, key.Run)
		receipt.Root = child.root
	}
	return receipt, err
}

// append is Append to a run's own log, and returns what it has stored as well. child is the id by which that was found,
// or "".
func (a *Appender) append(ctx context.Context, key schema.RunKey, events []schema.Event, opt AppendOptions,
	child string) (
	Receipt, []schema.Event, error,
) {
	t, err := a.enter(ctx, key)
	if err != nil {
		return Receipt{}, nil, fmt.Errorf("producers: append to %s: %w", key, err)
	}
	defer a.leave(t)
	j := &t.job
	*j = appendJob{a: a, key: key, child: child, given: events, events: ofChild(events, child), opt: opt,
		whole: opt.Whole, w: t.w, stale: t.w != nil}
	j.redact(t.texts)
	if t.w = nil; j.w == nil {
		j.w = newWriter(Config{
			Log: a.cfg.Log, Archive: a.cfg.Archive, Key: key, Shared: true, Timeout: a.cfg.Timeout,
			Now: a.cfg.Now, IDs: a.cfg.IDs, Hooks: a.cfg.Hooks, Seal: a.cfg.Seal,
		})
		j.w.parent = a.cfg.Parent
	}
	j.w.root, j.w.build.trace = child != "", opt.Trace
	if len(events) == 0 {
		j.events = make([]schema.Event, 1) // in the place of what is to be planned
	}
	receipt, err := j.run(ctx)
	stored := j.events
	if err == nil && len(j.w.lanes) <= rememberedLanes {
		// Only then: a pack of this writer that was given up may still arrive, and a later one with
		// the same number must not be taken for it. The next append gets another writer id.
		j.w.job = nil
		t.w = j.w
	}
	if err == nil && !receipt.Replayed {
		t.texts = j.texts
		a.cfg.Redact.Count(key.Tenant, j.hidden)
	}
	*j = appendJob{}
	return receipt, stored, err
}

// enter waits for this process's turn at the run.
func (a *Appender) enter(ctx context.Context, key schema.RunKey) (*keyLock, error) {
	a.mu.Lock()
	t := a.runs[key]
	if t == nil {
		t = &keyLock{key: key, turn: make(chan struct{}, 1)}
		a.add(t)
	}
	t.users++
	a.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return t, nil
	default:
	}
	select {
	case t.turn <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		a.drop(t, 0)
		return nil, context.Cause(ctx)
	}
}

// leave ends the turn.
func (a *Appender) leave(t *keyLock) {
	size := runBytes
	if t.w != nil {
		size += len(t.w.lanes) * laneBytes
	}
	size += t.texts.Size()
	<-t.turn
	a.drop(t, size)
}

// add makes a run known. It needs mu.
func (a *Appender) add(t *keyLock) {
	of := a.tenants[t.key.Tenant]
	if of == nil {
		of = &tenantRuns{}
		of.recent.before, of.recent.behind = &of.recent, &of.recent
		a.tenants[t.key.Tenant] = of
	}
	t.of = of
	t.follow(&of.recent)
	of.count++
	a.runs[t.key] = t
}

// drop releases a keyLock. size is what it holds now, 0: as much as before. One without users is kept for what it
// remembers, until all of them hold too much.
func (a *Appender) drop(t *keyLock, size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.users--
	if size > 0 {
		a.held += size - t.bytes
		t.of.held += size - t.bytes
		t.bytes = size
	}
	t.leave()
	t.follow(&t.of.recent)
	if a.held > a.room {
		a.forget(a.largest())
	}
}

// largest returns the tenant that holds most. It looks at all of them: forget makes room for many appends. It needs mu.
func (a *Appender) largest() (most *tenantRuns) {
	for _, of := range a.tenants {
		if most == nil || of.held > most.held {
			most = of
		}
	}
	return most
}

// forget forgets of one tenant what was not used for longest, until a part of the room is free. It needs mu.
func (a *Appender) forget(of *tenantRuns) {
	for n := of.count; a.held > a.room-a.room/forgotten && n > 0; n-- {
		old := of.recent.before
		old.leave()
		if old.users > 0 {
			old.follow(&of.recent) // in use for longer than all others were: it is not idle
			continue
		}
		delete(a.runs, old.key)
		a.held -= old.bytes
		of.held -= old.bytes
		of.count--
		if of.count == 0 {
			delete(a.tenants, old.key.Tenant)
		}
	}
}
