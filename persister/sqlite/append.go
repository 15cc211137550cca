package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

const upsertRun = `
insert into agent_runs as r (koder_user_id, id, run_day, state, last_seq, last_id, anchors, first_ts, last_ts,
	first_seq, reason, reason_of, reason_seq)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (koder_user_id, id) do update set
	state      = iif(excluded.last_seq > r.last_seq, excluded.state,   r.state),
	last_id    = iif(excluded.last_seq > r.last_seq, excluded.last_id, r.last_id),
	anchors    = iif(excluded.last_seq > r.last_seq, excluded.anchors, r.anchors),
	last_ts    = iif(excluded.last_seq > r.last_seq, excluded.last_ts, r.last_ts),
	last_seq   = max(r.last_seq, excluded.last_seq),
	first_ts   = iif(excluded.first_seq < r.first_seq, excluded.first_ts, r.first_ts),
	first_seq  = min(r.first_seq, excluded.first_seq),
	reason     = iif(excluded.reason_seq > r.reason_seq, excluded.reason,    r.reason),
	reason_of  = iif(excluded.reason_seq > r.reason_seq, excluded.reason_of, r.reason_of),
	reason_seq = max(r.reason_seq, excluded.reason_seq),
	updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
returning run_day, usage`

const upsertLane = `
insert into agent_run_lanes as l (koder_user_id, run_id, lane, owner, epoch, joined_at) values (?, ?, ?, ?, ?, ?)
on conflict (koder_user_id, run_id, lane) do update set owner = excluded.owner, epoch = excluded.epoch
	where excluded.epoch > l.epoch`

// rowsPerStatement rows go into one insert: the statement's own cost is shared, and its text stays
// small.
const rowsPerStatement = 50

const rowColumns = 9

func insertRows(n int) string {
	return `insert into agent_run_events (koder_user_id, run_id, seq, run_day, id, child_id, type, ts, line) values ` +
		strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,nullif(?,''),?,?,?),", n), ",") + ` on conflict do nothing`
}

// insertFull is the statement of a whole group of rows, parsed once a transaction.
var insertFull = insertRows(rowsPerStatement)

const countRow = `select count(*) from agent_run_events where koder_user_id = ? and run_id = ? and seq = ?`

const storedLine = `select line from agent_run_events where koder_user_id = ? and run_id = ? and seq = ?`

const updateUsage = `update agent_runs set usage = ? where koder_user_id = ? and id = ?`

// tsLayout compares as text in the order of time.
const tsLayout = "2006-01-02T15:04:05.000000000Z"

// stamp writes a time. An offset can move a producer's time out of the years that four digits hold;
// it is kept at the border.
func stamp(t time.Time) string {
	switch t = t.UTC(); {
	case t.Year() < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case t.Year() > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	}
	return t.Format(tsLayout)
}

// Append implements persister.Store.
func (s *Store) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	days := make(map[schema.RunKey]string)
	for {
		b := persister.Arrange(chunks, days)
		if len(b.Rows) == 0 {
			return persister.Result{Conflicts: b.Conflicts}, nil
		}
		res, err := s.transact(ctx, &b, days)
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, errOtherDay):
			continue // days has learnt the right one; the next arrangement holds
		case dataError(err):
			err = fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
		return persister.Result{}, fmt.Errorf("sqlite: append %d rows of %d runs: %w", len(b.Rows), len(b.Runs), err)
	}
}

// errOtherDay rolls a transaction back in which a run turned out to have another day.
var errOtherDay = errors.New("run is stored under another day")

func (s *Store) transact(ctx context.Context, b *persister.Batch, days map[schema.RunKey]string) (res persister.Result, err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return res, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	if err := moveRuns(ctx, tx, b, days); err != nil {
		return res, err
	}
	res.Conflicts = b.Conflicts
	full, err := tx.PrepareContext(ctx, insertFull)
	if err != nil {
		return res, err
	}
	defer func() { _ = full.Close() }()
	for rows := b.Rows; len(rows) > 0; {
		n := min(rowsPerStatement, len(rows))
		if err := insert(ctx, tx, full, rows[:n], &res); err != nil {
			return persister.Result{}, err
		}
		rows = rows[n:]
	}
	if err := tx.Commit(); err != nil {
		return persister.Result{}, err
	}
	return res, nil
}

func moveRuns(ctx context.Context, tx *sql.Tx, b *persister.Batch, days map[schema.RunKey]string) error {
	stmt, err := tx.PrepareContext(ctx, upsertRun)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	now := stamp(time.Now())
	other := false
	for i := range b.Runs {
		r := &b.Runs[i]
		var day, usage string
		err := stmt.QueryRowContext(ctx, r.Key.Tenant, r.Key.Run, r.Head.Day, string(r.Head.State), int64(r.Head.Last),
			r.Head.LastID, schema.FormatAnchors(r.Head.Anchors), stamp(r.FirstTS), stamp(r.LastTS),
			int64(r.First), r.Digest.Reason, string(r.Digest.ReasonOf), int64(r.Digest.ReasonSeq)).Scan(&day, &usage)
		if err != nil {
			return err
		}
		if day != r.Head.Day {
			days[r.Key], other = day, true
			continue
		}
		for name, l := range r.Lanes {
			if _, err := tx.ExecContext(ctx, upsertLane, r.Key.Tenant, r.Key.Run, name, l.Owner, fmt.Sprintf("%020d", l.Epoch), now); err != nil {
				return err
			}
		}
		if err := addUsage(ctx, tx, r, usage); err != nil {
			return err
		}
	}
	if other {
		return errOtherDay
	}
	return nil
}

// addUsage adds what the batch reports to what is stored, before its rows go in: what is stored
// already has been counted, and there is no other writer.
func addUsage(ctx context.Context, tx *sql.Tx, r *persister.Run, usage string) error {
	counted := make(map[schema.Seq]bool)
	for _, u := range r.Digest.Usage {
		var n int
		if err := tx.QueryRowContext(ctx, countRow, r.Key.Tenant, r.Key.Run, int64(u.Seq)).Scan(&n); err != nil {
			return err
		}
		counted[u.Seq] = n > 0
	}
	sum := r.Digest.Sum(counted)
	if len(sum) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, updateUsage, schema.ParseUsage(usage).Plus(sum).String(), r.Key.Tenant, r.Key.Run)
	return err
}

// insert writes rows with one statement, and when some were not new, looks at each.
func insert(ctx context.Context, tx *sql.Tx, full *sql.Stmt, rows []persister.BatchRow, res *persister.Result) error {
	args := make([]any, 0, len(rows)*rowColumns)
	for i := range rows {
		r := &rows[i]
		args = append(args, r.Chunk.Key.Tenant, r.Chunk.Key.Run, int64(r.Seq), r.Chunk.Head.Day, r.ID, r.Chunk.Child, r.Type,
			r.TS.Format(time.RFC3339Nano), string(r.Line))
	}
	var done sql.Result
	var err error
	if len(rows) == rowsPerStatement {
		done, err = full.ExecContext(ctx, args...)
	} else {
		done, err = tx.ExecContext(ctx, insertRows(len(rows)), args...)
	}
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err != nil {
		return err
	}
	res.Inserted += int(n)
	if int(n) == len(rows) {
		return nil
	}
	bad := 0
	for i := range rows {
		r := &rows[i]
		var line string
		if err := tx.QueryRowContext(ctx, storedLine, r.Chunk.Key.Tenant, r.Chunk.Key.Run, int64(r.Seq)).Scan(&line); err != nil {
			return err
		}
		if line != string(r.Line) {
			bad++
			res.Conflicts = append(res.Conflicts, r.At)
		}
	}
	res.Repeated += len(rows) - int(n) - bad
	return nil
}
