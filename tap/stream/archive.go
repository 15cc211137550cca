package stream

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// skewOfArchive is how far the clocks of log and archive may be apart.
const skewOfArchive = time.Hour

// readArchive goes on in the archive: the log has dropped what was to be read, up to a position.
func (f *follower) readArchive(i int, through uint64) error {
	p := &f.at.places[i]
	if f.of.Archive == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		delivered := p.position > 0
		*p = spot{position: through, stored: p.stored}
		if !delivered { // it has asked for what is kept, and gets that
			return f.say(nil)
		}
		f.records = f.records[:0]
		f.lose(schema.TapLoss{Partition: &i, Reason: schema.TapWindow})
		return f.say(f.records)
	}
	a := &archived{since: p.stored, cut: p.position == 0 && !p.stored.IsZero()}
	if p.position > 0 && !p.stored.IsZero() {
		a.since = p.stored.Add(-skewOfArchive)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	*p = spot{position: through, stored: time.Now().UTC(), archive: a}
	return nil
}

// fill emits from the archive what has left the log before the partition's position, run by run. It may be called
// again, by another process too, and goes on then.
func (f *follower) fill(ctx context.Context, i int) error {
	select {
	case f.archiving <- struct{}{}:
		defer func() { <-f.archiving }()
	case <-ctx.Done():
		return nil
	}
	p := &f.at.places[i]
	a := p.archive
	if a.run != "" {
		if err := f.fillRun(ctx, i, schema.RunKey{Tenant: f.query.Tenant, Run: a.run}, a.seq); err != nil {
			return err
		}
	}
	since := a.since
	if a.cut {
		since = since.Add(-skewOfArchive)
	}
	for key, err := range f.of.Archive.TenantRunsChangedSince(ctx, schema.RunKey{Tenant: f.query.Tenant, Run: a.run},
		since) {
		if err != nil {
			return err
		}
		if schema.Partition(key.Run, len(f.queues)) != i {
			continue
		}
		if err := f.fillRun(ctx, i, key, f.sent[i][key.Run]); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.archive = nil
	return f.say(nil)
}

// fillRun emits what has left the log of a run.
func (f *follower) fillRun(ctx context.Context, i int, key schema.RunKey, after schema.Seq) error {
	// The archive is asked first: what is stored meanwhile the log still has, and emits later.
	head, err := f.of.Archive.Head(ctx, key, "")
	if err != nil {
		return err
	}
	first, err := f.of.Log.First(ctx, key, f.at.places[i].position+1)
	if err != nil {
		return err
	}
	through := head.Last
	if first > 0 {
		through = first - 1
	}
	f.mu.Lock()
	f.at.places[i].archive.run, f.at.places[i].archive.seq = key.Run, after
	f.mu.Unlock()
	if through <= after {
		return nil
	}
	at := after
	for pack, err := range f.of.Archive.Packs(ctx, key, after, through) {
		if err != nil {
			return err
		}
		if err := f.emitPack(i, &pack, at, through); err != nil {
			return err
		}
		at = pack.Last()
	}
	return f.missing(i, key, at+1, through)
}

// emitPack emits what a pack has with after < seq ≤ through, and says what is missing before it.
func (f *follower) emitPack(i int, pack *schema.Pack, after, through schema.Seq) error {
	if err := f.missing(i, pack.Key, after+1, pack.First-1); err != nil {
		return err
	}
	chunks, err := persister.Chunks(*pack)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.at.places[i].archive
	f.records = f.records[:0]
	for c := range chunks {
		for j := range chunks[c].Rows {
			r := &chunks[c].Rows[j]
			if r.Seq <= after || r.Seq > through || !f.spec.HasType(r.Type) || a.cut && r.TS.Before(a.since) {
				continue
			}
			a.seq = r.Seq
			f.records = append(f.records, schema.TapRecord{Type: r.Type, Line: r.Line, Cursor: f.at.String()})
		}
	}
	a.seq = min(pack.Last(), through)
	f.note(i, pack.Key.Run, a.seq)
	if len(f.records) == 0 {
		return nil
	}
	return f.say(f.records)
}

// missing reports that a run's events are kept nowhere.
func (f *follower) missing(i int, key schema.RunKey, first, last schema.Seq) error {
	if last < first {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at.places[i].archive.seq = last
	f.records = f.records[:0]
	f.lose(schema.TapLoss{Run: key.Run, First: first, Last: last, Reason: schema.TapExpired})
	return f.say(f.records)
}
