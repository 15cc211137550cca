package retention

import (
	"context"
	"slices"
	"time"

	"agentstream/internal/backoff"
	"agentstream/persister"
	"agentstream/schema"
)

// removal removes what scraps describe.
type removal struct {
	*Config
	report *Report

	unsound int // blobs that do not hold what their rows name

	tried map[string]bool // days whose partitions were tried
	gone  map[string]bool // days whose partitions were dropped
}

// lookScraps is the number of scraps of one query.
const lookScraps = 500

// maxUnsound is the number of unsound blobs in one pass after which no more are checked.
const maxUnsound = 20

// sound returns the runs whose blobs hold what their rows name.
func (w *removal) sound(ctx context.Context, runs []persister.EndedRun) []persister.EndedRun {
	if w.Blobs == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(runs), func(r persister.EndedRun) bool {
		if w.unsound >= maxUnsound || ctx.Err() != nil {
			return true
		}
		err := w.Blobs.Check(ctx, r.Key, r.Place)
		if err != nil && ctx.Err() == nil {
			w.unsound++
			w.fail("keep the rows of "+r.Key.String(), err)
		}
		return err != nil
	})
}

// sweep processes all scraps, the oldest first. When one fails the others are still processed.
func (w *removal) sweep(ctx context.Context) error {
	w.tried, w.gone = make(map[string]bool), make(map[string]bool)
	for after := int64(0); ; {
		scraps, err := w.Trash.Scraps(ctx, after, lookScraps)
		if err != nil || len(scraps) == 0 {
			return err
		}
		after = scraps[len(scraps)-1].ID
		if err := w.dropDays(ctx, scraps); err != nil {
			return err
		}
		if err := w.scraps(ctx, scraps); err != nil {
			return err
		}
	}
}

// dropDays drops partitions without rows of unmarked runs.
func (w *removal) dropDays(ctx context.Context, scraps []persister.Scrap) error {
	var days []string
	for _, c := range scraps {
		if !w.tried[c.Day] && c.After < c.Through {
			w.tried[c.Day] = true
			days = append(days, c.Day)
		}
	}
	if len(days) == 0 {
		return nil
	}
	slices.Sort(days)
	dropped, err := w.Trash.DropDays(ctx, days)
	for _, day := range dropped {
		w.gone[day] = true
		w.report.Days++
	}
	if err != nil && ctx.Err() == nil { // rows can be removed one by one
		w.fail("drop partitions", err)
		return nil
	}
	return err
}

// scraps removes what scraps describe, and discards those that are done.
func (w *removal) scraps(ctx context.Context, scraps []persister.Scrap) error {
	if err := w.rows(ctx, scraps); err != nil {
		return err
	}
	left := make(map[int64]bool)
	for _, c := range scraps {
		switch {
		case c.URI == "" || ctx.Err() != nil:
		case w.Blobs == nil:
			left[c.ID] = true
		default:
			if err := w.Blobs.Remove(ctx, c.Key, c.URI); err != nil {
				w.fail("remove blob "+c.URI, err)
				left[c.ID] = true
				continue
			}
			w.report.Blobs++
		}
	}
	if err := w.purge(ctx, scraps, left); err != nil {
		return err
	}
	var done []int64
	for _, c := range scraps {
		if !left[c.ID] {
			done = append(done, c.ID)
		}
	}
	if len(done) == 0 {
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil { // some blobs were skipped
		return err
	}
	return w.Trash.Discard(ctx, done)
}

// rows removes rows in bounded transactions.
func (w *removal) rows(ctx context.Context, scraps []persister.Scrap) error {
	var todo []persister.Scrap
	for _, c := range scraps {
		switch {
		case c.After >= c.Through:
		case w.gone[c.Day]:
			w.report.Events += int64(c.Through - c.After)
		default:
			todo = append(todo, c)
		}
	}
	for first := true; len(todo) > 0; first = false {
		if !first && backoff.Sleep(ctx, w.Pause) != nil {
			return ctx.Err()
		}
		n, all, err := w.Trash.RemoveRows(ctx, todo, w.BatchRows)
		if err != nil {
			return err
		}
		if w.report.Events += int64(n); all {
			return nil
		}
		todo = slices.DeleteFunc(todo, func(c persister.Scrap) bool { return c.After >= c.Through })
	}
	return nil
}

// purge removes what the log still has: mostly nothing, because its window is shorter than the retention of most
// runs. One request covers all runs.
func (w *removal) purge(ctx context.Context, scraps []persister.Scrap, left map[int64]bool) error {
	if w.Log == nil {
		return nil
	}
	var keys []schema.RunKey
	for _, c := range scraps {
		if c.Why != persister.ScrapCold {
			keys = append(keys, c.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	holding, err := w.Log.Holding(ctx, keys)
	if err != nil {
		return err
	}
	held := make(map[schema.RunKey]bool, len(holding))
	for _, key := range holding {
		held[key] = true
	}
	for _, c := range scraps {
		if c.Why == persister.ScrapCold || !held[c.Key] {
			continue
		}
		through := c.Through
		if c.Why == persister.ScrapDeleted {
			through = schema.MaxSeq
		}
		n, ids, err := w.Log.Purge(ctx, c.Key, through)
		w.report.Messages += n
		w.report.Keys += ids
		if err != nil {
			w.fail("purge "+c.Key.String(), err)
			left[c.ID] = true
		}
	}
	return nil
}

func (w *removal) fail(doing string, err error) {
	w.report.Failed++
	w.Logger.Warn("retention: "+doing, "err", err)
}

// tombstones removes the rows of runs that expired long ago, and of deleted ones after Policy.Grace. Until then,
// events that arrive in spite of the mark are removed again in each pass.
func (w *removal) tombstones(ctx context.Context, now time.Time) error {
	before := time.Time{}
	if w.Policy.Tombstones >= 0 {
		before = now.Add(-w.Policy.Tombstones)
	}
	for after := (schema.RunKey{}); ; {
		list, err := w.Config.Tombstones.Tombstones(ctx, before, after, lookScraps)
		if err != nil || len(list) == 0 {
			return err
		}
		after = list[len(list)-1].Key
		var deleted []schema.RunKey
		for _, t := range list {
			if t.Deleted {
				deleted = append(deleted, t.Key)
			}
		}
		if err := w.again(ctx, deleted); err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(t persister.Tombstone) bool {
			return t.Deleted && (!isPast(t.Since, w.Policy.Grace, now) || !w.wipeBlobs(ctx, t))
		})
		n, err := w.Config.Tombstones.RemoveTombstones(ctx, list)
		if w.report.Tombstones += n; err != nil {
			return err
		}
	}
}

// wipeBlobs removes blobs of a deleted run that no row names: one may have been written while the run was
// deleted.
func (w *removal) wipeBlobs(ctx context.Context, t persister.Tombstone) bool {
	if w.Blobs == nil {
		return true
	}
	n, err := w.Blobs.Wipe(ctx, t.Key, t.Day)
	w.report.Blobs += n
	if err != nil {
		w.fail("look for blobs of "+t.Key.String(), err)
	}
	return err == nil
}

// again removes what was written of deleted runs after they were marked.
func (w *removal) again(ctx context.Context, keys []schema.RunKey) error {
	if len(keys) == 0 {
		return nil
	}
	if w.Log != nil {
		holding, err := w.Log.Holding(ctx, keys)
		if err != nil {
			return err
		}
		for _, key := range holding {
			n, ids, err := w.Log.Purge(ctx, key, schema.MaxSeq)
			if w.report.Messages, w.report.Keys = w.report.Messages+n, w.report.Keys+ids; err != nil {
				return err
			}
		}
	}
	for _, key := range keys {
		if _, err := w.Config.Tombstones.RemoveDeadLetters(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
