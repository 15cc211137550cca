package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"agentstream/internal/backoff"
	"agentstream/persister"
	"agentstream/schema"
	"agentstream/tap"
)

// EventLog is the log that is followed. It is safe for concurrent use.
type EventLog interface {
	// Queues returns a queue for each partition, of one tenant's messages.
	Queues(ctx context.Context, tenant string) ([]persister.Queue, error)
	// Ends returns the offset of the newest message of each partition.
	Ends(ctx context.Context) ([]persister.Offset, error)
	// Since returns the offset before the first message of a partition that was stored at t or later.
	Since(ctx context.Context, partition int, t time.Time) (persister.Offset, error)
	// First returns the seq of the first event of a run that the log has at a position or after it; 0: it has none.
	First(ctx context.Context, key schema.RunKey, position uint64) (schema.Seq, error)
}

// Stored has what has left the log. It is safe for concurrent use.
type Stored interface {
	// Head returns the newest event of a run.
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	// Packs walks the run's events with after < seq ≤ through, in order, as far as they are kept.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	// TenantRunsChangedSince walks the tenant's runs after an id that were stored at t or later, in the order of
	// their ids.
	TenantRunsChangedSince(ctx context.Context, after schema.RunKey, t time.Time) iter.Seq2[schema.RunKey, error]
}

// Tenants follows tenants. Log must be set.
type Tenants struct {
	Log     EventLog
	Archive Stored       // nil: what has left the log is a gap
	Logger  *slog.Logger // nil discards
}

// Bounds of a follower. Each partition holds at most one batch.
const (
	batchMessages = 256
	batchBytes    = 256 << 10
	retryMax      = 5 * time.Second
	idleCursor    = 10 * time.Second // a place that has moved without an event is said this late
	ledgerMost    = 20_000           // runs of a partition
	rewindBy      = time.Minute      // in a log that came back shorter than it was: its clock may have gone back
)

// Follow calls emit with the tenant's records, from one goroutine at a time, until ctx ends or emit fails. The first
// call has the place where it begins, alone. Failures of log and archive are waited for after that. The error is
// emit's, or wraps schema.ErrBadCursor.
func (t *Tenants) Follow(ctx context.Context, q schema.TapQuery, emit func([]schema.TapRecord) error) error {
	f := &follower{of: t, query: q, spec: tap.Spec{Types: q.Types}, emit: emit, archiving: make(chan struct{}, 1),
		log: t.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.say(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range f.queues {
		group.Go(func() {
			if err := f.partition(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// follower is one call of Follow.
type follower struct {
	of        *Tenants
	query     schema.TapQuery
	spec      tap.Spec
	queues    []persister.Queue
	ends      []persister.Offset
	archiving chan struct{} // held by the partition that reads the archive: a cursor names one run of it
	// by partition: through which runs were emitted, so that the archive does not repeat them
	sent []map[string]schema.Seq
	log  *slog.Logger

	mu      sync.Mutex
	emit    func([]schema.TapRecord) error
	at      cursor // places[i] is changed by the goroutine of partition i alone, with mu
	told    time.Time
	failed  error              // emit's: it is not called again
	records []schema.TapRecord // of the batch under way
}

// open finds where to begin.
func (f *follower) open(ctx context.Context) (err error) {
	if err = f.spec.ValidateTypes(); err != nil {
		return err
	}
	if f.queues, err = f.of.Log.Queues(ctx, f.query.Tenant); err != nil {
		return err
	}
	if f.ends, err = f.of.Log.Ends(ctx); err != nil {
		return err
	}
	if len(f.ends) != len(f.queues) {
		return fmt.Errorf("tap: %d partitions, %d queues", len(f.ends), len(f.queues))
	}
	f.at = cursor{log: logID(f.ends), places: make([]spot, len(f.ends))}
	f.sent = make([]map[string]schema.Seq, len(f.ends))
	if f.query.Cursor != "" {
		at, err := parse(f.query.Cursor)
		if err != nil {
			return err
		}
		if at.log != f.at.log || len(at.places) != len(f.ends) {
			return errOtherLog
		}
		f.at = *at
		return f.requireKnown()
	}
	for i := range f.ends {
		switch p := &f.at.places[i]; {
		case f.query.New:
			p.position, p.stored = f.ends[i].Position, f.ends[i].StoredAt
		case !f.query.From.IsZero():
			at, err := f.of.Log.Since(ctx, i, f.query.From)
			if err != nil {
				return err
			}
			p.position, p.stored = at.Position, at.StoredAt
			if p.position == 0 {
				p.stored = f.query.From
			}
		}
	}
	return nil
}

// requireKnown refuses a cursor of messages that the log has not had. One that has lost messages is found out by the
// queue.
func (f *follower) requireKnown() error {
	for i := range f.at.places {
		if p := &f.at.places[i]; p.position > f.ends[i].Position && p.stored.IsZero() {
			return errCursor
		}
	}
	return nil
}

// partition follows one partition. Its error ends the whole.
func (f *follower) partition(ctx context.Context, i int) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := f.session(ctx, i)
		if err == nil {
			failures = -1
			continue
		}
		if errors.As(err, new(emitError)) || errors.Is(err, schema.ErrBadCursor) || ctx.Err() != nil {
			return errors.Unwrap(err)
		}
		f.log.Warn("tap: a tenant's events are waited for", "tenant", f.query.Tenant, "stream", f.ends[i].Stream,
			"error", err)
		if backoff.Sleep(ctx, backoff.Delay(failures, 100*time.Millisecond, retryMax)) != nil {
			return nil
		}
	}
	return nil
}

// emitError is the receiver's.
type emitError struct{ error }

func (e emitError) Unwrap() error { return e.error }

// session reads from the place on until something is missing.
func (f *follower) session(ctx context.Context, i int) error {
	p := &f.at.places[i] // only this goroutine changes it
	if p.archive != nil {
		if err := f.fill(ctx, i); err != nil {
			return err
		}
	}
	q := f.queues[i]
	from := persister.Offset{Stream: f.ends[i].Stream, Identity: f.ends[i].Identity, Position: p.position}
	if p.position > 0 {
		from.StoredAt = p.stored
	}
	_, err := q.Seek(ctx, from)
	if errors.Is(err, persister.ErrBehind) {
		return f.rewind(ctx, i)
	}
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if d, ok := q.(persister.Dropper); ok {
			if newest := d.LastDropped(); newest > p.position {
				return f.readArchive(i, newest)
			}
		}
		if s, ok := q.(persister.Steady); ok && !s.Same() {
			return nil
		}
		msgs, err := q.Fetch(ctx, persister.Limit{Messages: batchMessages, Bytes: batchBytes})
		if err != nil {
			return err
		}
		if d, ok := q.(persister.Dropper); ok && len(msgs) > 0 {
			if newest := d.LastDropped(); newest > p.position {
				return f.readArchive(i, newest)
			}
		}
		if err := f.deliver(i, msgs); err != nil {
			return err
		}
	}
	return nil
}

// rewind goes on earlier in a log that came back without messages that were delivered: others may have their
// positions.
func (f *follower) rewind(ctx context.Context, i int) error {
	ends, err := f.of.Log.Ends(ctx)
	if err != nil {
		return err
	}
	if logID(ends) != f.at.log {
		return fmt.Errorf("%w", errOtherLog)
	}
	at, err := f.of.Log.Since(ctx, i, f.at.places[i].stored.Add(-rewindBy))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at.places[i] = spot{position: at.Position, stored: at.StoredAt}
	return nil
}

// deliver emits what messages have.
func (f *follower) deliver(i int, msgs []persister.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &f.at.places[i]
	f.records = f.records[:0]
	for k := range msgs {
		m := &msgs[k]
		chunk, bad := persister.Decode(m)
		if !f.add(p, m, &chunk) {
			continue
		}
		p.position, p.partial, p.through = m.Position, 0, 0
		if n := len(chunk.Rows); n > 0 {
			f.note(i, chunk.Key.Run, chunk.Rows[n-1].Seq)
		}
		if !m.Stored.IsZero() { // a mark has none
			p.stored = m.Stored
		}
		for b := range bad {
			f.lose(schema.TapLoss{Run: bad[b].Key.Run, First: bad[b].Seq, Last: bad[b].Seq, Reason: schema.TapMalformed})
		}
		if n := len(f.records); n > 0 {
			f.records[n-1].Cursor = f.at.String() // the message is whole with its last record
		}
	}
	if len(f.records) == 0 && (len(msgs) == 0 || time.Since(f.told) < idleCursor) {
		return nil
	}
	return f.say(f.records)
}

// add adds the events of a message that are asked for, each with the place after it. false: the message is known.
func (f *follower) add(p *spot, m *persister.Message, c *persister.Chunk) bool {
	if m.Position <= p.position {
		return false
	}
	after := schema.Seq(0)
	if p.partial == m.Position {
		after = p.through
	}
	for j := range c.Rows {
		r := &c.Rows[j]
		if r.Seq <= after || !f.spec.HasType(r.Type) {
			continue
		}
		p.partial, p.through = m.Position, r.Seq
		f.records = append(f.records, schema.TapRecord{Type: r.Type, Line: r.Line, Cursor: f.at.String()})
	}
	return true
}

// note notes through which seq a run was emitted. Of more runs than ledgerMost it begins anew, and the archive
// repeats them.
func (f *follower) note(i int, run string, through schema.Seq) {
	if f.sent[i] == nil || len(f.sent[i]) >= ledgerMost {
		f.sent[i] = make(map[string]schema.Seq)
	}
	f.sent[i][run] = max(f.sent[i][run], through)
}

// lose adds the word about a gap. It needs mu.
func (f *follower) lose(l schema.TapLoss) {
	line, err := json.Marshal(l)
	if err != nil { // it has nothing that cannot be encoded
		return
	}
	f.records = append(f.records, schema.TapRecord{Type: schema.TapGap, Line: line, Cursor: f.at.String()})
}

// say emits records; the place alone where there are none. It needs mu.
func (f *follower) say(records []schema.TapRecord) error {
	if len(records) == 0 {
		records = []schema.TapRecord{{Cursor: f.at.String()}}
	}
	f.told = time.Now()
	if f.failed == nil { // the places are those after a batch that was perhaps not received
		f.failed = f.emit(records)
	}
	if f.failed != nil {
		return emitError{f.failed}
	}
	return nil
}
