package producers

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentstream/schema"
)

// AppenderConfig is what an Appender needs. Log is required.
type AppenderConfig struct {
	Log     Log
	Archive Archive       // consulted when the log has nothing of a run
	Keys    Keys          // remembers idempotency keys; nil: keys are refused
	Timeout time.Duration // for one answer of the log; default 5 s

	Now    func() time.Time
	IDs    *schema.IDs
	Logger *slog.Logger
	Hooks  Hooks
}

// Keys remembers what was begun and answered under an idempotency key, for as long as its owner
// promises callers that a repeat is recognised.
type Keys interface {
	// Begin stores r under id unless there is a record already, and gives the record that counts.
	Begin(ctx context.Context, id string, r KeyRecord) (rec KeyRecord, fresh bool, err error)
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
// wrote last only saves reads: the compare-and-set says when it is old.
type Appender struct {
	cfg AppenderConfig

	// Appends to one run wait for each other in this process, so that they collide only with those
	// of other processes.
	mu     sync.Mutex
	runs   map[schema.RunKey]*turnstile
	recent *list.List // of the same, the one left last in front
}

// Bounds of what an Appender remembers: runs, and lanes of one run.
const (
	rememberedRuns  = 4096
	rememberedLanes = 256
)

type turnstile struct {
	key   schema.RunKey
	turn  chan struct{} // holds one token
	users int
	place *list.Element
	job   appendJob // of whose turn it is
	w     *writer   // of the last append, when that went well; used by whose turn it is
}

// NewAppender makes an appender.
func NewAppender(cfg AppenderConfig) (*Appender, error) {
	if cfg.Log == nil {
		return nil, errors.New("producers: appender config: no log")
	}
	base := Config{Now: cfg.Now, IDs: cfg.IDs, Logger: cfg.Logger, Timeout: cfg.Timeout}.withDefaults()
	cfg.Now, cfg.IDs, cfg.Logger, cfg.Timeout = base.Now, base.IDs, base.Logger, base.Timeout
	return &Appender{cfg: cfg, runs: make(map[schema.RunKey]*turnstile), recent: list.New()}, nil
}

// AppendOptions say how an append is to be taken.
type AppendOptions struct {
	// IdempotencyKey makes a repeat of this append, on any node, answer what the first one did and
	// store nothing, also after a crash in its middle. Scope is the run.
	IdempotencyKey string
	// Within bounds the whole append; 0: only its context does. It costs less than a context with a deadline,
	// because nobody waits for the end of an append that goes well.
	Within time.Duration
	// MustBeNew refuses with ErrExists when the run has events.
	MustBeNew bool
	// Check decides whether the run's state allows the append; nil allows everything. It is asked about
	// the very head that the compare-and-set of the first pack demands, and again whenever others were
	// faster, so what it allowed is still so when the events are stored. Its error is returned wrapped,
	// and nothing is stored. It is not asked when a repeat finds the events stored.
	Check func(ctx context.Context, head schema.Head) error
}

// errTwin says that a pack of this very append has been stored by a repeat that runs elsewhere.
var errTwin = errors.New("a repeat of this append was first")

// Append stores events, which have passed schema.DecodeBatch or Event.Prepare, and returns when
// they are durable. A batch that fits one pack (one lane, 1,024 events, 768 KiB) is stored whole or
// not at all; a larger one in order, pack by pack, and must not bring its own numbers. A refusal
// (ErrSeqMismatch, ErrEnded, ErrExists, ErrKeyReused …) stores nothing. After ErrUnanswered, repeat
// with the same idempotency key.
func (a *Appender) Append(ctx context.Context, key schema.RunKey, events []schema.Event, opt AppendOptions) (Receipt, error) {
	if len(events) == 0 {
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
	t, err := a.enter(ctx, key)
	if err != nil {
		return Receipt{}, fmt.Errorf("producers: append to %s: %w", key, err)
	}
	defer a.leave(t)
	j := &t.job
	*j = appendJob{a: a, key: key, events: events, opt: opt, w: t.w, remembered: t.w != nil}
	if t.w = nil; j.w == nil {
		j.w = newWriter(Config{
			Log: a.cfg.Log, Archive: a.cfg.Archive, Key: key, Shared: true, Timeout: a.cfg.Timeout,
			Now: a.cfg.Now, IDs: a.cfg.IDs, Hooks: a.cfg.Hooks,
		})
	}
	receipt, err := j.run(ctx)
	if err == nil && len(j.w.lanes) <= rememberedLanes {
		// Only then: a pack of this writer that was given up may still arrive, and a later one with
		// the same number must not be taken for it. The next append gets another writer id.
		j.w.job = nil
		t.w = j.w
	}
	*j = appendJob{}
	return receipt, err
}

// enter waits for this process's turn at the run.
func (a *Appender) enter(ctx context.Context, key schema.RunKey) (*turnstile, error) {
	a.mu.Lock()
	t := a.runs[key]
	if t == nil {
		t = &turnstile{key: key, turn: make(chan struct{}, 1)}
		t.place = a.recent.PushFront(t)
		a.runs[key] = t
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
		a.drop(t)
		return nil, context.Cause(ctx)
	}
}

// leave ends the turn.
func (a *Appender) leave(t *turnstile) {
	<-t.turn
	a.drop(t)
}

// drop gives a turnstile up. One without users is kept for what it remembers, until too many are.
func (a *Appender) drop(t *turnstile) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.users--
	a.recent.MoveToFront(t.place)
	for range a.recent.Len() - rememberedRuns {
		last := a.recent.Back()
		if old := last.Value.(*turnstile); old.users == 0 {
			a.recent.Remove(last)
			delete(a.runs, old.key)
			continue
		}
		a.recent.MoveToFront(last) // in use for longer than all others were: it is not idle
	}
}

// appendJob is one Append under way.
type appendJob struct {
	a      *Appender
	w      *writer
	key    schema.RunKey
	events []schema.Event
	opt    AppendOptions

	remembered bool // the head is of an earlier append; a refusal must look again
	refused    bool // by opt.Check

	id      string              // hashed idempotency key
	scanned uint64              // packs up to this position have been looked at for our own
	parts   map[int]schema.Pack // our packs that are stored already
	next    int                 // part that is to be stored next
	receipt Receipt
}

func (j *appendJob) run(ctx context.Context) (Receipt, error) {
	if _, err := j.w.claim(ctx, j.events[0].ChildID); err != nil {
		return Receipt{}, j.w.trail(err)
	}
	digest := ""
	if j.opt.IdempotencyKey != "" {
		digest = digestOf(j.events)
		done, err := j.begin(ctx, digest)
		if err != nil || done {
			return j.receipt, j.w.trail(err)
		}
	}
	j.w.job = j
	err := j.guard(ctx, j.w.head)
	if j.refused && j.remembered {
		j.w.forget()
		_, err = j.w.claim(ctx, j.events[0].ChildID)
	}
	if err != nil && !errors.Is(err, errTwin) {
		return Receipt{}, j.w.trail(err)
	}
	if err := j.store(ctx); err != nil {
		return Receipt{}, err
	}
	j.finish(ctx, digest)
	return j.receipt, nil
}

// begin looks the key up or records the intent. done: the answer is in receipt.
func (j *appendJob) begin(ctx context.Context, digest string) (done bool, err error) {
	if j.a.cfg.Keys == nil {
		return false, fmt.Errorf("idempotency keys are not kept here: %w", ErrUnavailable)
	}
	sum := sha256.Sum256([]byte(j.key.Tenant + "\x00" + j.key.Run + "\x00" + j.opt.IdempotencyKey))
	j.id = hex.EncodeToString(sum[:16])
	rec, fresh, err := j.a.cfg.Keys.Begin(ctx, j.id, KeyRecord{Digest: digest, After: j.w.head.Stored})
	if err != nil {
		return false, fmt.Errorf("look idempotency key up: %w", err)
	}
	if rec.Digest != digest {
		return false, ErrKeyReused
	}
	if rec.Done {
		j.receipt = Receipt{First: rec.First, Last: rec.Last, Replayed: true}
		return true, nil
	}
	j.scanned, j.parts = rec.After, make(map[int]schema.Pack)
	j.receipt.Replayed = !fresh
	return false, nil
}

// guard looks at each head that the writer reads: whether the run may have events at all, and
// whether a repeat of this append has stored some of its packs.
func (j *appendJob) guard(ctx context.Context, head schema.Head) error {
	if j.id != "" && head.Stored > j.scanned {
		if err := j.scan(ctx); err != nil {
			return err
		}
	}
	if _, twin := j.parts[j.next]; twin {
		return errTwin
	}
	if j.next > 0 {
		return nil
	}
	if j.opt.MustBeNew && head.Exists() {
		return ErrExists
	}
	if j.opt.Check == nil {
		return nil
	}
	err := j.opt.Check(ctx, head.Clone())
	j.refused = err != nil
	return err
}

// scan looks for packs of this append behind what has been looked at.
func (j *appendJob) scan(ctx context.Context) error {
	for q, err := range j.w.log.Since(ctx, j.key, j.scanned) {
		if err != nil {
			return fmt.Errorf("look for packs of this append: %w", err)
		}
		if q.Batch == j.id {
			j.parts[q.Part] = q
		}
		j.scanned = q.Head.Stored
	}
	return nil
}

func (j *appendJob) stamp(p *schema.Pack) { p.Batch, p.Part = j.id, j.next }

// store appends what is not stored yet.
func (j *appendJob) store(ctx context.Context) error {
	rest := j.events
	checked := false
	for {
		for p, ok := j.parts[j.next]; ok; p, ok = j.parts[j.next] {
			if p.Count > len(rest) {
				return j.w.trail(fmt.Errorf("part %d holds %d events of %d: %w", j.next, p.Count, len(rest), ErrKeyReused))
			}
			rest = rest[p.Count:]
			j.took(p.First, p.Last())
		}
		if len(rest) == 0 {
			return nil
		}
		if !checked {
			if err := j.check(ctx, rest); err != nil && !errors.Is(err, errTwin) {
				return j.w.trail(err)
			}
			checked = true
			continue // a repeat of this append may have shown up
		}
		p, n, err := j.w.commit(ctx, rest, limits{schema.MaxPackEvents, schema.MaxPackBytes})
		if n > 0 {
			// An earlier try with this key, if there was one, was refused.
			j.receipt.Replayed = j.receipt.Replayed && j.next > 0
			rest = rest[n:]
			j.took(p.First, p.Last())
		}
		switch {
		case err == nil, errors.Is(err, errTwin):
		case j.next > 0 && !errors.Is(err, ErrUnanswered): // the packs before this one are stored
			return fmt.Errorf("%d of %d events stored: %w: %w", len(j.events)-len(rest), len(j.events), ErrUnanswered, err)
		default:
			return err
		}
	}
}

// check tries the batch on the head that is remembered, and looks again before it refuses.
func (j *appendJob) check(ctx context.Context, events []schema.Event) error {
	err := checkBatch(j.w.head, events)
	if err == nil {
		return nil
	}
	j.w.forget()
	if _, err := j.w.claim(ctx, events[0].ChildID); err != nil {
		return err
	}
	return checkBatch(j.w.head, events)
}

func (j *appendJob) took(first, last schema.Seq) {
	if j.receipt.First == 0 {
		j.receipt.First = first
	}
	j.receipt.Last = last
	j.next++
}

// finish records the answer. When that fails the events are stored all the same, and a repeat finds
// them by their key; so the caller gets its answer.
func (j *appendJob) finish(ctx context.Context, digest string) {
	if j.id == "" {
		return
	}
	rec := KeyRecord{Digest: digest, Done: true, First: j.receipt.First, Last: j.receipt.Last}
	if err := j.a.cfg.Keys.Finish(ctx, j.id, rec); err != nil {
		j.a.cfg.Logger.Warn("record the answer under an idempotency key", "run", j.key.String(), "err", err)
	}
}

// checkBatch tries a whole batch on a head before any of it is stored.
func checkBatch(head schema.Head, events []schema.Event) error {
	h := head.Clone()
	size, lanes, numbered := 0, 1, false
	for i := range events {
		e := &events[i]
		if e.Seq != 0 && e.Seq != h.Last+1 {
			return &schema.BatchError{Line: i + 1, Err: fmt.Errorf("seq %d where %d is next: %w", e.Seq, h.Last+1, schema.ErrSeqMismatch)}
		}
		if err := h.Advance(e.Type, e.ChildID, e.ID, e.Payload); err != nil {
			return &schema.BatchError{Line: i + 1, Err: err}
		}
		numbered = numbered || e.Seq != 0
		size += e.Size()
		if i > 0 && e.ChildID != events[i-1].ChildID {
			lanes++
		}
	}
	if numbered && (lanes > 1 || len(events) > schema.MaxPackEvents || size > schema.MaxPackBytes) {
		return fmt.Errorf("a batch that brings its own seq must be of one child, %d events and %d bytes at most: %w",
			schema.MaxPackEvents, schema.MaxPackBytes, schema.ErrTooLarge)
	}
	return nil
}

func digestOf(events []schema.Event) string {
	h := sha256.New()
	var line []byte
	for i := range events {
		line = append(events[i].AppendLine(line[:0]), '\n')
		h.Write(line) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
