package sqlite

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// insertFrames keeps what the starts and ends of messages say of their model or usage: views and lists read it there. The
// events that are stored count, where other ones come with their numbers. What it makes of them is in the triggers of the
// tables, and holds whatever the events are.
const insertFrames = `insert into agent_run_frames select koder_user_id, run_id, seq, child_id, type, ts, line
	from agent_run_events
	where koder_user_id = ? and run_id = ? and seq >= ? + 0 and seq <= ? + 0 and (type = 'message.start' or type = 'message.end')`

// insertModel and insertFrameUsage keep the same of one event that is read here, in a third of the time. Nearly all can
// be; in doubt the triggers read them.
const (
	insertModel      = `insert or ignore into agent_run_models (koder_user_id, run_id, lane, seq, model) values (?, ?, ?, ?, ?)`
	insertFrameUsage = `insert or ignore into agent_run_usage (koder_user_id, run_id, seq, lane, day, reported, input_tokens, output_tokens,
	cache_read_tokens, cache_write_tokens, cost) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null)`
)

// keepFrames keeps what the starts and ends of messages among stored rows say. allNew: all of the rows were stored now.
func (tx *transaction) keepFrames(ctx context.Context, rows []persister.BatchRow, allNew bool) error {
	for i := range rows {
		r := &rows[i]
		if r.Type != schema.TypeMessageStart && r.Type != schema.TypeMessageEnd {
			continue
		}
		key := r.Chunk.Key
		which, args := stFrames, []any{key.Tenant, key.Run, int64(r.Seq), int64(r.Seq)}
		if allNew {
			if f, ok := persister.ReadMessageFrame(&r.Row); ok && isPlainTime(r.TS) {
				which, args = keepFrame(r, &f)
			}
		}
		if _, err := tx.exec(ctx, which, args...); err != nil {
			return err
		}
	}
	return nil
}

// keepFrame returns the statement that keeps what a start or an end says.
func keepFrame(r *persister.BatchRow, f *persister.MessageFrame) (statement, []any) {
	key, child := r.Chunk.Key, r.Chunk.Child
	if r.Type == schema.TypeMessageStart {
		var model any
		if f.Model != nil {
			model = *f.Model
		}
		return stModel, []any{key.Tenant, key.Run, child, int64(r.Seq), model}
	}
	return stFrameUsage, []any{key.Tenant, key.Run, int64(r.Seq), child, r.TS.Format(time.DateOnly), f.Reported,
		f.Input, f.Output, f.CacheRead, f.CacheWrite}
}

// isPlainTime reports whether the day of a time is what SQLite's function date makes of it, which rounds it and knows
// four digits of a year.
func isPlainTime(ts time.Time) bool {
	_, offset := ts.Zone()
	return ts.Year() > 0 && ts.Year() < 9999 && offset == 0 && (ts.Hour() < 23 || ts.Minute() < 59)
}
