package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // for repeatsTable
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/schema"
)

// A parameter that stands where the condition of a partial index has a value is written as an expression, here and in
// all statements about agent_run_events: SQLite looks whether the value makes the index useful, and so prepares the
// statement anew each time, which costs ten times what it does.
const (
	newestFrame = `coalesce((select seq from agent_run_ids where koder_user_id = ?1 and run_id = ?2 and seq < ?3 and frame = `
	// The start and the end of what a frame begins or ends that are stored before it, and whether one like it is stored
	// after it.
	selectNamed = `select ` + newestFrame + `?4 order by seq desc limit 1), 0), ` + newestFrame + `?5 order by seq desc limit 1), 0),
	exists (select 1 from agent_run_ids where koder_user_id = ?1 and run_id = ?2 and seq > ?3 and frame = ?6)`
	selectTurn    = `select exists (select 1 from agent_run_events where koder_user_id = ? and run_id = ? and seq > ? + 0 and seq < ? and child_id is ? and type in ('turn.start', 'command.message'))`
	selectMessage = `select coalesce((select seq from agent_run_events where koder_user_id = ? and run_id = ? and seq < ? and child_id is ? and type = 'message.start' order by seq desc limit 1), 0)`
	selectRepeats = `select seq from agent_run_repeats where koder_user_id = ? and run_id = ? and seq >= ?`
	anyRepeats    = `select exists (select 1 from agent_run_repeats)`
	laterRepeats  = `select exists (` + selectRepeats + `)`
	insertRepeat  = `insert or ignore into agent_run_repeats (koder_user_id, run_id, seq) values (?, ?, ?)`
	deleteRepeat  = `delete from agent_run_repeats where koder_user_id = ? and run_id = ? and seq = ?`
	selectUsage   = `select usage from agent_runs where koder_user_id = ? and id = ?`
)

// selectLane finds the events of a lane from one on, the state before it, and what ends the run.
const selectLane = `select seq, ts, type, line from agent_run_events where koder_user_id = ?1 and run_id = ?2
	and (seq >= ?3 or seq = (select max(seq) from agent_run_events where koder_user_id = ?1 and run_id = ?2 and seq < ?3
		and type in ('run.lifecycle', 'command.message') and type = 'run.lifecycle' and child_id is ?4))
	and (child_id is ?4 or type = 'run.lifecycle' and child_id is null) order by seq`

// markRepeats reads the lanes again of which an event of the batch may repeat what they have, and marks what does. All
// rows are stored. frames are those of the stored rows, in the order of their runs.
func (tx *transaction) markRepeats(ctx context.Context, b *persister.Batch, frames []frame,
	floors map[schema.RunKey]schema.Seq) error {
	var marked bool // in most tables nothing is marked: then one question is enough for all runs of the batch
	if err := tx.queryRow(ctx, stAnyRepeats).Scan(&marked); err != nil {
		return err
	}
	at := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		rows := b.Rows[at : at+r.Rows]
		at += r.Rows
		of := framesOfRun(&frames, r.Key)
		if floors[r.Key] == schema.MaxSeq || len(of) == 0 && !marked {
			continue
		}
		lanes, err := tx.repeatingLanes(ctx, r, tx.runs[i].seen, rows, of, marked)
		if err != nil {
			return fmt.Errorf("repeats of %s: %w", r.Key, err)
		}
		for child, from := range lanes {
			if err := (laneWindow{r.Key, child, from}).reread(ctx, tx.Tx); err != nil {
				return fmt.Errorf("repeats of %s: %w", r.Key, err)
			}
		}
	}
	return nil
}

// repeatingLanes returns the lanes to read again, with where that begins. marked: something in the tables is a repeat.
func (tx *transaction) repeatingLanes(ctx context.Context, r *persister.Run, seen *seenRun,
	rows []persister.BatchRow, frames []frame, marked bool) (map[string]schema.Seq, error) {
	var lanes map[string]schema.Seq
	include := func(child string, from schema.Seq) {
		if lanes == nil {
			lanes = make(map[string]schema.Seq)
		}
		if have, ok := lanes[child]; !ok || from < have {
			lanes[child] = from
		}
	}
	if marked { // of this run, after where the batch begins
		err := tx.queryRow(ctx, stLaterRepeats, r.Key.Tenant, r.Key.Run, int64(r.First)).Scan(&marked)
		if err != nil {
			return nil, err
		}
	}
	for i := range rows {
		if marked { // what comes late may say that they are none
			include(rows[i].Chunk.Child, persister.LookBack(rows[i].Seq))
		}
	}
	for _, f := range frames {
		if f.sum == 0 || tx.store.seen.addFrame(seen, f) {
			continue
		}
		from, found, err := tx.suspect(ctx, f)
		if err != nil {
			return nil, err
		}
		if found {
			include(f.row.Chunk.Child, from)
		}
	}
	return lanes, nil
}

// suspect reports whether an event may repeat what its lane has, and from where the lane must be read to know. An end
// after its start, and a start in another turn than the end before it, repeat nothing.
func (tx *transaction) suspect(ctx context.Context, f frame) (from schema.Seq, found bool, err error) {
	row := f.row
	key, child := row.Chunk.Key, nullable(row.Chunk.Child)
	var start, end, message schema.Seq
	var later, turn bool
	err = tx.queryRow(ctx, stNamed, key.Tenant, key.Run, int64(row.Seq), f.sum&^1, f.sum|1, f.sum).
		Scan(&start, &end, &later)
	isStart := !f.isEnd()
	switch {
	case err != nil || later:
		return persister.LookBack(row.Seq), true, err
	case isStart && start == 0 && end == 0, !isStart && end <= start:
		return 0, false, nil
	case isStart && end > start:
		err = tx.queryRow(ctx, stTurn, key.Tenant, key.Run, int64(end), int64(row.Seq), child).Scan(&turn)
		if turn || err != nil {
			return 0, false, err
		}
	}
	if row.Type == schema.TypeToolStart || row.Type == schema.TypeToolEnd {
		err = tx.queryRow(ctx, stMessage, key.Tenant, key.Run, int64(max(start, end)), child).Scan(&message)
		start = min(start, message)
	} else if start == 0 {
		start = end
	}
	if persister.LookBack(row.Seq) == 0 {
		start = 0
	}
	return start, true, err
}

// nullable returns null for the run itself, as child_id has it.
func nullable(child string) any {
	if child == "" {
		return nil
	}
	return child
}

// laneWindow is a lane whose events are read again from one on.
type laneWindow struct {
	key   schema.RunKey
	child string
	from  schema.Seq
}

// reread marks what repeats in the lane, and only that, and lets the run's usage count the rest. The usage counts what
// is not marked now.
func (l laneWindow) reread(ctx context.Context, tx *sql.Tx) error {
	events, err := l.events(ctx, tx)
	if err != nil {
		return err
	}
	marked, err := l.marks(ctx, tx)
	if err != nil {
		return err
	}
	repeats := persister.Repeats(events)
	counted := make(map[schema.Seq]bool)
	for i := range events {
		seq := events[i].Seq
		counted[seq] = !marked[seq]
		if text := map[bool]string{true: insertRepeat, false: deleteRepeat}[repeats[seq]]; repeats[seq] != marked[seq] {
			if _, err := tx.ExecContext(ctx, text, l.key.Tenant, l.key.Run, int64(seq)); err != nil {
				return err
			}
		}
	}
	var was string
	if err := tx.QueryRowContext(ctx, selectUsage, l.key.Tenant, l.key.Run).Scan(&was); err != nil {
		return err
	}
	if now := persister.CorrectUsage(schema.ParseUsage(was), events, repeats, counted).String(); now != was {
		_, err = tx.ExecContext(ctx, updateUsage, now, l.key.Tenant, l.key.Run)
	}
	return err
}

func (l laneWindow) events(ctx context.Context, tx *sql.Tx) (events []persister.LaneEvent, err error) {
	rows, err := tx.QueryContext(ctx, selectLane, l.key.Tenant, l.key.Run, int64(l.from), nullable(l.child))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq schema.Seq
		var text, typ string
		var line []byte
		if err := rows.Scan(&seq, &text, &typ, &line); err != nil {
			return nil, err
		}
		if e, ok := persister.LaneEventOf(seq, time.Time{}, typ, line); ok {
			events = append(events, e)
		}
	}
	return events, rows.Err()
}

func (l laneWindow) marks(ctx context.Context, tx *sql.Tx) (map[schema.Seq]bool, error) {
	rows, err := tx.QueryContext(ctx, selectRepeats, l.key.Tenant, l.key.Run, int64(l.from))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	marked := make(map[schema.Seq]bool)
	for rows.Next() {
		var seq schema.Seq
		if err := rows.Scan(&seq); err != nil {
			return nil, err
		}
		marked[seq] = true
	}
	return marked, rows.Err()
}

// repeatsTable makes the table, its index, and the views that know of it.
//
//go:embed repeats.sql
var repeatsTable string

// repeatsMigration marks what repeats in runs that are stored already. It is Go, not SQL, so that one place decides
// what a repeat is.
func repeatsMigration() *goose.Migration {
	return goose.NewGoMigration(22, &goose.GoFunc{RunTx: markStored}, nil)
}

// frameID and hasFrameID are the columns and the condition of the index agent_run_events_named of repeatsTable, in the same
// words.
const (
	frameID    = `iif(json_valid(line), json_extract(line, iif(type = 'message.start' or type = 'message.end', '$.payload.message_id', '$.payload.call_id')), null)`
	hasFrameID = `(type = 'message.start' or type = 'message.end' or type = 'tool.start' or type = 'tool.end') and seq > 0`
)

// twiceNamed finds lanes in which an id begins or ends twice.
const twiceNamed = `select distinct koder_user_id, run_id, coalesce(child_id, '') from agent_run_events where ` + hasFrameID + `
	group by koder_user_id, run_id, child_id, type, ` + frameID + ` having count(*) > 1`

// markStored reads those lanes one after the other.
func markStored(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, repeatsTable); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, twiceNamed)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var lanes []laneWindow
	for rows.Next() {
		var l laneWindow
		if err := rows.Scan(&l.key.Tenant, &l.key.Run, &l.child); err != nil {
			return err
		}
		lanes = append(lanes, l)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, l := range lanes {
		if err := l.reread(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}
