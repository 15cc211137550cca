package retention

import (
	"context"
	"slices"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// removal removes what is marked.
type removal struct {
	*Config
	report *Report

	unsound int // blobs that cannot stand for rows

	tried map[string]bool // days whose partitions were looked at
	gone  map[string]bool // days whose partitions were dropped
}

// lookScraps is how many scraps are worked at together.
const lookScraps = 500

// maxUnsound is how many blobs in one pass may turn out not to be sound until no more are looked at.
const maxUnsound = 20

// sound returns those runs whose blobs hold what their rows say.
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

// sweep works at all scraps, the oldest first. One that fails is left, and the others go on.
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

// dropDays drops partitions that have become empty by marks.
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
	if err != nil && ctx.Err() == nil { // rows can be removed one by one all the same
		w.fail("drop partitions", err)
		return nil
	}
	return err
}

// scraps removes what some scraps name, and discards those of which nothing is left.
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
	if err := ctx.Err(); err != nil { // some blobs were passed over
		return err
	}
	return w.Trash.Discard(ctx, done)
}

// rows removes rows in transactions of a bounded size.
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
		if !first && !sleep(ctx, w.Pause) {
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

// purge removes from the log what it still has: mostly nothing, since its window is shorter than most runs are
// kept. One question is asked for all.
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

// tombstones removes what is left of runs that expired long ago, and of deleted ones once nothing of them can
// be under way: until then, what has come in spite of the mark is removed again and again.
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
			return t.Deleted && (!passed(t.Since, w.Policy.Grace, now) || !w.wiped(ctx, t))
		})
		n, err := w.Config.Tombstones.RemoveTombstones(ctx, list)
		if w.report.Tombstones += n; err != nil {
			return err
		}
	}
}

// wiped removes blobs of a deleted run that nothing names: one may have been written while it was deleted.
func (w *removal) wiped(ctx context.Context, t persister.Tombstone) bool {
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

// again removes what of deleted runs has been written behind the mark.
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
