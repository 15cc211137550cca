package tap

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// skewOfArchive is how far the clocks of log and archive may be apart.
const skewOfArchive = time.Hour

// fill delivers from the archive what has left the log: of each run of the partition, what follows the place in the
// ledger. It may be called again after an error, and goes on then.
func (s *store) fill(ctx context.Context, p *lease, t *persister.Transfer) error {
	lost := &t.Losses[0]
	if s.cfg.Archive == nil {
		if lost.Reason == persister.LossBefore {
			s.cfg.Logger.Warn("tap: begins with the oldest event of the log: no archive was given for what was before",
				"stream", lost.Stream)
			return nil
		}
		return Stop(fmt.Errorf("tap %s: %s, messages %d to %d: %w", s.cfg.Spec.Name, lost.Stream, lost.First, lost.Last,
			ErrGap))
	}
	since := s.cfg.Spec.From
	if !p.ledger.at.IsZero() {
		since = p.ledger.at
	}
	if !since.IsZero() {
		since = since.Add(-skewOfArchive)
	}
	partition, err := strconv.Atoi(lost.Stream[strings.LastIndexByte(lost.Stream, '_')+1:])
	if err != nil {
		return fmt.Errorf("tap: stream %s is of no partition: %w", lost.Stream, err)
	}
	s.cfg.Logger.Info("tap: reads from the archive what has left the log", "stream", lost.Stream, "since", since)
	f := filler{s: s, p: p, anew: lost.Reason == persister.LossBefore}
	begin := time.Now()
	for key, err := range s.cfg.Archive.RunsChangedSince(ctx, since) {
		if err != nil {
			return fmt.Errorf("tap: runs that have left the log: %w", err)
		}
		if schema.Partition(key.Run, len(s.cfg.Queues)) != partition || s.cfg.Spec.Tenant != "" &&
			key.Tenant != s.cfg.Spec.Tenant {
			continue
		}
		if err := f.run(ctx, key); err != nil {
			return err
		}
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	p.overlap = begin.Add(skewOfArchive)
	s.save(ctx, p)
	s.cfg.Logger.Info("tap: goes on in the log", "stream", lost.Stream, "events", f.total)
	return nil
}

// filler gathers what is read from the archive into batches.
type filler struct {
	s     *store
	p     *lease
	anew  bool // the tap has delivered nothing yet: what has expired by now is no gap
	batch []Event
	notes []schema.Pack
	total int
}

// fillBatch is the number of events of a batch from the archive.
const fillBatch = 2000

// run reads one run.
func (f *filler) run(ctx context.Context, key schema.RunKey) error {
	after := f.p.ledger.runs[key].last
	for pack, err := range f.s.cfg.Archive.Packs(ctx, key, after, schema.MaxSeq) {
		if err != nil {
			return fmt.Errorf("tap: run %s after %d from the archive: %w", key, after, err)
		}
		if pack.First > after+1 && !f.anew {
			if err := f.missing(ctx, key, after+1, pack.First-1); err != nil {
				return err
			}
		}
		if err := f.add(&pack, after); err != nil {
			return err
		}
		after = pack.Last()
		if len(f.batch) >= fillBatch {
			if err := f.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the events of a pack that follow a seq.
func (f *filler) add(pack *schema.Pack, after schema.Seq) error {
	chunks, err := persister.Chunks(*pack)
	if err != nil {
		return fmt.Errorf("tap: from the archive: %w", err)
	}
	from := f.s.cfg.Spec.From
	for _, e := range f.s.eventsOf(nil, chunks) {
		if e.Seq > after && (from.IsZero() || !e.TS.Before(from)) {
			f.batch = append(f.batch, e)
		}
	}
	f.notes = append(f.notes, *pack)
	return nil
}

// flush delivers what is gathered.
func (f *filler) flush(ctx context.Context) error {
	f.p.written = AppendRuns(f.p.written, f.batch)
	res, err := f.s.deliver(ctx, f.batch)
	if err != nil {
		if errors.Is(err, persister.ErrPoison) && len(f.batch) > 1 {
			return f.divide(ctx)
		}
		if !errors.Is(err, persister.ErrPoison) {
			return err
		}
		letter := letterOf(&f.batch[0], persister.ReasonRefused, err.Error(), time.Now().UTC())
		if err := f.s.keepLetter(ctx, letter); err != nil {
			return err
		}
	}
	f.total += res.Inserted
	for i := range f.notes {
		n := &f.notes[i]
		// the ledger's own time stays: the fill is not over
		f.p.ledger.runs[n.Key] = ledgerRun{n.Last(), time.Now(), n.IsFinal()}
	}
	f.batch, f.notes = nil, nil
	if time.Since(f.p.saved) >= saveEvery {
		f.s.save(ctx, f.p)
	}
	return nil
}

// divide delivers a batch of which the sink refuses an event.
func (f *filler) divide(ctx context.Context) error {
	batch, notes := f.batch, f.notes
	middle := len(batch) / 2
	f.batch, f.notes = batch[:middle], nil
	if err := f.flush(ctx); err != nil {
		return err
	}
	f.batch, f.notes = batch[middle:], notes
	return f.flush(ctx)
}

// missing keeps as a dead letter that events of a run are kept nowhere any more.
func (f *filler) missing(ctx context.Context, key schema.RunKey, first, last schema.Seq) error {
	f.s.cfg.Logger.Error("tap: events have expired before this tap has read them", "run", key.String(), "first", first,
		"last", last)
	return f.s.keepLetter(ctx,
		Letter{Tenant: key.Tenant, Run: key.Run, Seq: int64(first), Last: int64(last),
			Reason: ReasonExpired, Detail: "neither the log nor the archive has these events any more", At: time.Now().UTC()})
}
