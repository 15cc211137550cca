package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

const upsertRun = `
insert into agent_runs as r (koder_user_id, id, run_day, state, last_seq, last_id, first_ts, last_ts,
	first_seq, reason, reason_of, reason_seq, turn, turn_stop, turn_seq, state_ts,
	opening, opening_seq, model, model_seq, words, framed_seq)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, nullif(?19, ''), ?20, nullif(?21, ''), ?22, ?23, ?5)
on conflict (koder_user_id, id) do update set
	state      = iif(excluded.last_seq > r.last_seq, excluded.state,   r.state),
	last_id    = iif(excluded.last_seq > r.last_seq, excluded.last_id, r.last_id),
	last_ts    = iif(excluded.last_seq > r.last_seq, excluded.last_ts, r.last_ts),
	last_seq   = max(r.last_seq, excluded.last_seq),
	framed_seq = max(r.last_seq, excluded.last_seq),
	first_ts   = iif(excluded.first_seq < r.first_seq, excluded.first_ts, r.first_ts),
	first_seq  = min(r.first_seq, excluded.first_seq),
	reason     = iif(excluded.reason_seq > r.reason_seq, excluded.reason,    r.reason),
	reason_of  = iif(excluded.reason_seq > r.reason_seq, excluded.reason_of, r.reason_of),
	state_ts   = case when excluded.reason_seq <= r.reason_seq then r.state_ts
		when excluded.reason_of = r.reason_of and ?17 then coalesce(r.state_ts, excluded.state_ts) else excluded.state_ts end,
	reason_seq = max(r.reason_seq, excluded.reason_seq),
	turn       = iif(excluded.turn_seq > r.turn_seq, excluded.turn,      r.turn),
	turn_stop  = iif(excluded.turn_seq > r.turn_seq, excluded.turn_stop, r.turn_stop),
	turn_seq   = max(r.turn_seq, excluded.turn_seq),
	archived_at = iif(excluded.last_seq > r.last_seq, null, r.archived_at),
	expired_at  = iif(excluded.last_seq > r.last_seq, null, r.expired_at),
	updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
where r.floor_seq < ?18 -- the row of a run that is to be forgotten stays, and is not returned
returning opening_seq, coalesce(model, ''), model_seq, usage, coalesce(asks, ''), run_day, floor_seq`

// advanceRun is the short form of upsertRun, for a run whose state does not change: nearly every batch of nearly
// every run. It does not write indexed columns, which upsertRun removes from the indexes and inserts again even when
// they are equal. It changes no row when the run does not exist or more columns must change.
const advanceRun = `
update agent_runs set last_seq = ?1, framed_seq = ?1, last_id = ?2, last_ts = ?3, updated_at = ?4
where koder_user_id = ?5 and id = ?6 and run_day = ?7 and state = ?8 and last_seq < ?1 and first_seq <= ?9
	and floor_seq < ?9 and archived_at is null and expired_at is null`

// selectAdvancing returns what the frames of a batch may change of a run that advanceRun would change, and advanceFramed
// changes that run. An update that returns columns takes longer than both, and the usage would be another one.
const (
	selectAdvancing = `select opening_seq, coalesce(model, ''), model_seq, usage, coalesce(asks, '') from agent_runs
where koder_user_id = ? and id = ? and run_day = ? and state = ? and last_seq < ? and first_seq <= ?6
	and floor_seq < ?6 and archived_at is null and expired_at is null`
	advanceFramed = `
update agent_runs set last_seq = ?1, framed_seq = ?1, last_id = ?2, last_ts = ?3, updated_at = ?4, usage = ?5
where koder_user_id = ?6 and id = ?7`
)

const upsertLane = `
insert into agent_run_lanes as l (koder_user_id, run_id, lane, owner, epoch, joined_at) values (?, ?, ?, ?, ?, ?)
on conflict (koder_user_id, run_id, lane) do update set owner = excluded.owner, epoch = excluded.epoch
	where excluded.epoch > l.epoch`

// insertRows inserts n rows of one run, whose columns that are the same in all rows are bound once. It uses INSERT OR
// IGNORE: with ON CONFLICT DO NOTHING a statement may still have to be undone because of another constraint, and SQLite
// copies each page before it changes it.
func insertRows(n int) string {
	return `insert or ignore into agent_run_events (koder_user_id, run_id, run_day, seq, id, child_id, type, ts, line) values ` +
		strings.TrimSuffix(strings.Repeat("(?1,?2,?3,?,?,?,?,?,?),", n), ",")
}

const countRow = `select count(*) from agent_run_events where koder_user_id = ? and run_id = ? and seq = ?`

const storedLine = `select line from agent_run_events where koder_user_id = ? and run_id = ? and seq = ?`

const updateUsage = `update agent_runs set usage = ? where koder_user_id = ? and id = ?`

// tsLayout is a layout whose texts sort in the order of time.
const tsLayout = "2006-01-02T15:04:05.000000000Z"

// stamp formats a time. An offset can move a producer's time out of the years with four digits; it becomes the
// nearest time within them.
func stamp(t time.Time) string {
	switch t = t.UTC(); {
	case t.Year() < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case t.Year() > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	}
	return t.Format(tsLayout)
}

// Write implements sqlstore.DB.
func (d database) Write(ctx context.Context, w *sqlstore.Work) (res persister.Result, err error) {
	begin := time.Now()
	tx, err := d.s.begin(ctx)
	if err != nil {
		return res, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	waited := time.Since(begin)
	if res, err = tx.write(ctx, w); err != nil {
		return persister.Result{}, err
	}
	res.Waited = waited
	return res, nil
}

func (tx *transaction) write(ctx context.Context, w *sqlstore.Work) (res persister.Result, err error) {
	if err := tx.moveOffset(ctx, w.Transfer); err != nil {
		return res, err
	}
	floors, err := tx.moveRuns(ctx, &w.Batch, w.Days)
	if err != nil {
		return res, err
	}
	rows := aboveFloor(w.Chunks, &w.Batch, floors, &res)
	if err := tx.insertAll(ctx, rows, &res); err != nil {
		return res, err
	}
	frames := framesOf(rows, res.Conflicts)
	if err := tx.keepFrames(ctx, frames); err != nil {
		return res, err
	}
	if err := tx.mergeAsks(ctx, &w.Batch, floors); err != nil {
		return res, err
	}
	if err := tx.name(ctx, &w.Batch, floors); err != nil {
		return res, err
	}
	if err := tx.markRepeats(ctx, &w.Batch, frames, floors); err != nil {
		return res, err
	}
	if err := tx.putDeadLetters(ctx, w.Aside(res.Conflicts)); err != nil {
		return res, err
	}
	if err := tx.store.PutLosses(ctx, within{tx.Tx}, w.Transfer); err != nil {
		return res, err
	}
	return res, tx.Commit()
}

// aboveFloor returns the rows to store, and counts the others. Of deleted runs nothing is stored, not even conflicts.
func aboveFloor(chunks []persister.Chunk, b *persister.Batch, floors map[schema.RunKey]schema.Seq,
	res *persister.Result) []persister.BatchRow {
	if len(floors) == 0 {
		res.Conflicts = b.Conflicts
		return b.Rows
	}
	for _, c := range b.Conflicts {
		if floors[chunks[c.Chunk].Key] < schema.MaxSeq {
			res.Conflicts = append(res.Conflicts, c)
		}
	}
	rows := make([]persister.BatchRow, 0, len(b.Rows))
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Seq > floors[r.Chunk.Key] {
			rows = append(rows, *r)
		}
	}
	res.Dropped = len(b.Rows) - len(rows) + len(b.Conflicts) - len(res.Conflicts)
	return rows
}

// moveRuns returns the floors of those runs that have rows at or below one in this batch.
func (tx *transaction) moveRuns(ctx context.Context, b *persister.Batch,
	days map[schema.RunKey]string) (map[schema.RunKey]schema.Seq, error) {
	other := false
	floors := make(map[schema.RunKey]schema.Seq)
	tx.runs = make([]movedRun, len(b.Runs))
	at := 0
	for i := range b.Runs {
		r, moved := &b.Runs[i], &tx.runs[i]
		at += r.Rows
		var err error
		if moved.seen, err = tx.see(ctx, r.Key, b.Rows[at-1].Seq); err != nil {
			return nil, err
		}
		var stored storedRun
		var advanced bool
		if !moved.seen.isNew() {
			stored, advanced, err = tx.advance(ctx, r, moved.seen)
		}
		if err == nil && !advanced {
			stored, err = tx.upsert(ctx, r)
		}
		if err != nil {
			return nil, err
		}
		moved.named, moved.asks = stored.named, stored.asks
		if stored.floor >= r.First {
			floors[r.Key] = stored.floor
		}
		switch {
		case stored.floor == schema.MaxSeq:
		case stored.day != r.Head.Day:
			days[r.Key], other = stored.day, true
		default:
			if !advanced {
				err = tx.addUsage(ctx, r, stored, moved.seen)
			}
			if err == nil {
				err = tx.describe(ctx, r, stored.floor)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if other {
		return nil, sqlstore.ErrOtherDay
	}
	return floors, tx.moveLanes(ctx, b, floors)
}

func (tx *transaction) moveLanes(ctx context.Context, b *persister.Batch, floors map[schema.RunKey]schema.Seq) error {
	for i := range b.Runs {
		r := &b.Runs[i]
		if floors[r.Key] == schema.MaxSeq {
			continue
		}
		for name, l := range r.Lanes {
			_, err := tx.exec(ctx, stUpsertLane, r.Key.Tenant, r.Key.Run, name, l.Owner, fmt.Sprintf("%020d", l.Epoch),
				stamp(tx.now))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// advance runs advanceRun, or adds the usage of the batch too, and reports whether that was enough. What it returns of the
// run is complete as far as the batch needs it.
func (tx *transaction) advance(ctx context.Context, r *persister.Run, seen *seenRun) (stored storedRun, advanced bool,
	err error) {
	if r.Digest.TurnSeq != 0 || r.Digest.ReasonSeq != 0 {
		return stored, false, nil
	}
	stored.day = r.Head.Day
	updated := tx.now.Format(updatedLayout)
	if len(r.Digest.Usage) == 0 && r.AsksFrom(true) == 0 && (r.Naming == persister.Naming{}) {
		n, err := tx.exec(ctx, stAdvanceRun, int64(r.Head.Last), r.Head.LastID, stamp(r.LastTS), updated,
			r.Key.Tenant, r.Key.Run, r.Head.Day, string(r.Head.State), int64(r.First))
		return stored, n > 0, err
	}
	err = tx.queryRow(ctx, stAdvancing, r.Key.Tenant, r.Key.Run, r.Head.Day, string(r.Head.State), int64(r.Head.Last),
		int64(r.First)).
		Scan(&stored.named.OpeningSeq, &stored.named.Model, &stored.named.ModelSeq, &stored.usage, &stored.asks)
	if errors.Is(err, sql.ErrNoRows) {
		return storedRun{}, false, nil
	}
	if err != nil {
		return stored, false, err
	}
	usage, err := tx.sumUsage(ctx, r, stored, seen)
	if err != nil {
		return stored, false, err
	}
	_, err = tx.exec(ctx, stAdvanceFramed, int64(r.Head.Last), r.Head.LastID, stamp(r.LastTS), updated, usage,
		r.Key.Tenant, r.Key.Run)
	return stored, true, err
}

// updatedLayout is the layout of the times that the tables set themselves.
const updatedLayout = "2006-01-02T15:04:05.000Z"

// storedRun holds columns of a run's row that the batch needs.
type storedRun struct {
	day   string
	usage string     // before this batch
	asks  string     // before this batch, where it asks or answers
	floor schema.Seq // MaxSeq: the run was deleted; 0 also where all rows are above it
	named persister.Naming
}

// upsert creates or updates a run.
func (tx *transaction) upsert(ctx context.Context, r *persister.Run) (stored storedRun, err error) {
	n, words := &r.Naming, ""
	if (*n != persister.Naming{}) { // of a new run; those of others are merged
		words = n.Columns(nil).Words
	}
	err = tx.queryRow(ctx, stUpsertRun, r.Key.Tenant, r.Key.Run, r.Head.Day, string(r.Head.State), int64(r.Head.Last),
		r.Head.LastID, stamp(r.FirstTS), stamp(r.LastTS),
		int64(r.First), r.Digest.Reason, string(r.Digest.ReasonOf), int64(r.Digest.ReasonSeq),
		string(r.Digest.Turn), r.Digest.Stop, int64(r.Digest.TurnSeq), since(&r.Digest), r.Digest.Same, int64(schema.MaxSeq),
		n.Opening, int64(n.OpeningSeq), n.Model, int64(n.ModelSeq), words).
		Scan(&stored.named.OpeningSeq, &stored.named.Model, &stored.named.ModelSeq, &stored.usage, &stored.asks,
			&stored.day, &stored.floor)
	if errors.Is(err, sql.ErrNoRows) {
		return storedRun{floor: schema.MaxSeq}, nil
	}
	return stored, err
}

// since returns when the run has come to its state, null when the batch does not say.
func since(d *persister.Digest) any {
	if d.ReasonSeq == 0 {
		return nil
	}
	return stamp(d.Since)
}

// addUsage adds the usage of the batch to the stored usage.
func (tx *transaction) addUsage(ctx context.Context, r *persister.Run, stored storedRun, seen *seenRun) error {
	usage, err := tx.sumUsage(ctx, r, stored, seen)
	if err != nil || usage == stored.usage {
		return err
	}
	_, err = tx.exec(ctx, stUpdateUsage, usage, r.Key.Tenant, r.Key.Run)
	return err
}

// sumUsage returns the stored usage with that of the batch. It runs before the rows are inserted, so that it can skip
// events that are stored already, or were stored and removed. There is no other writer.
func (tx *transaction) sumUsage(ctx context.Context, r *persister.Run, stored storedRun, seen *seenRun) (string, error) {
	if len(r.Digest.Usage) == 0 {
		return stored.usage, nil
	}
	counted := make(map[schema.Seq]bool)
	for _, u := range r.Digest.Usage {
		if u.Seq <= stored.floor {
			counted[u.Seq] = true
			continue
		}
		if seen.whole && u.Seq > seen.before {
			continue
		}
		var n int
		if err := tx.queryRow(ctx, stCountRow, r.Key.Tenant, r.Key.Run, int64(u.Seq)).Scan(&n); err != nil {
			return "", err
		}
		counted[u.Seq] = n > 0
	}
	sum := r.Digest.Sum(counted)
	if len(sum) == 0 {
		return stored.usage, nil
	}
	return schema.ParseUsage(stored.usage).Plus(sum).String(), nil
}

// insertAll inserts rows, which are in the order of their runs, with as few statements as possible.
func (tx *transaction) insertAll(ctx context.Context, rows []persister.BatchRow, res *persister.Result) error {
	var args []any
	unyielded := 0
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && n < insertSizes[0] && sameRun(&rows[0], &rows[n]) {
			n++
		}
		which := slices.IndexFunc(insertSizes[:], func(size int) bool { return size <= n })
		n = insertSizes[which]
		args = rowArgs(args[:0], rows[:n])
		if err := tx.insert(ctx, stInsert+statement(which), rows[:n], args, res); err != nil {
			return err
		}
		rows = rows[n:]
		if unyielded += n; unyielded >= insertSizes[0] { // that takes a millisecond: who waits for a core goes first
			runtime.Gosched()
			unyielded = 0
		}
	}
	return nil
}

func sameRun(x, y *persister.BatchRow) bool {
	return x.Chunk == y.Chunk || x.Chunk.Key == y.Chunk.Key && x.Chunk.Head.Day == y.Chunk.Head.Day
}

// rowArgs appends the arguments of insertRows.
func rowArgs(args []any, rows []persister.BatchRow) []any {
	of := rows[0].Chunk
	args = append(args, of.Key.Tenant, of.Key.Run, of.Head.Day)
	var name string
	var typ any // that of the row before: most have the same
	for i := range rows {
		r := &rows[i]
		if r.Type != name {
			name, typ = r.Type, r.Type
		}
		var child any
		if r.Chunk.Child != "" {
			child = r.Chunk.Child
		}
		args = append(args, int64(r.Seq), r.ID, child, typ, r.TS.Format(time.RFC3339Nano),
			unsafe.String(unsafe.SliceData(r.Line), len(r.Line)))
	}
	return args
}

// insert inserts rows with one statement. When some were not new it checks each of them.
func (tx *transaction) insert(ctx context.Context, which statement, rows []persister.BatchRow, args []any,
	res *persister.Result) error {
	n, err := tx.exec(ctx, which, args...)
	if err != nil {
		return err
	}
	res.Inserted += n
	if n == len(rows) {
		return nil
	}
	bad := 0
	for i := range rows {
		r := &rows[i]
		var line string
		if err := tx.queryRow(ctx, stStoredLine, r.Chunk.Key.Tenant, r.Chunk.Key.Run, int64(r.Seq)).Scan(&line); err != nil {
			return err
		}
		if line != string(r.Line) {
			bad++
			res.Conflicts = append(res.Conflicts, r.At)
		}
	}
	res.Repeated += len(rows) - n - bad
	return nil
}
