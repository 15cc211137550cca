package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

const discardRun = `insert into agent_trash (koder_user_id, run_id, run_day, after_seq, through_seq, uri, why, since)
	select koder_user_id, id, run_day, floor_seq, %s, %s, ?, ? from agent_runs r where koder_user_id = ? and id = ?`

var (
	trashExpired = fmt.Sprintf(discardRun, "last_seq", "coalesce(replay_uri, '')")
	trashCold    = fmt.Sprintf(discardRun, "archived_seq", "''")
)

// The description of a session is removed with its events. session_deleted_at stays, because the deletion must still
// be carried out.
const markExpired = `update agent_runs set floor_seq = last_seq, expired_seq = last_seq, expired_at = ?,
	replay_uri = null, archived_seq = 0, archived_at = null, archived_bytes = 0,
	session = null, session_seq = 0, session_agent = null, session_archived_at = null,
	title = null, tags = null, opening = null, model = null, words = '' where koder_user_id = ? and id = ?`

const markCold = `update agent_runs set floor_seq = archived_seq where koder_user_id = ? and id = ?`

// Expire marks runs as expired, in one transaction, and returns those that it marked. It skips runs that have newer
// events than when they were listed, and runs that are under a hold by now. It adds scraps for what must be removed.
func (s *Store) Expire(ctx context.Context, runs []persister.EndedRun, now time.Time) (marked []persister.EndedRun,
	err error) {
	return s.mark(ctx, "expire", runs, sqlstore.IsOver, func(tx *sql.Tx, key schema.RunKey) error {
		if err := exec(ctx, tx, trashExpired, persister.ScrapExpired, stamp(now), key.Tenant, key.Run); err != nil {
			return err
		}
		if err := exec(ctx, tx, sqlstore.RemoveLanes, key.Tenant, key.Run); err != nil {
			return err
		}
		return exec(ctx, tx, markExpired, stamp(now), key.Tenant, key.Run)
	})
}

// Cool marks the rows of runs as removed whose events are in blobs, in the way of Expire.
func (s *Store) Cool(ctx context.Context, runs []persister.EndedRun, now time.Time) (marked []persister.EndedRun,
	err error) {
	return s.mark(ctx, "cool", runs, sqlstore.IsWarm, func(tx *sql.Tx, key schema.RunKey) error {
		if err := exec(ctx, tx, trashCold, persister.ScrapCold, stamp(now), key.Tenant, key.Run); err != nil {
			return err
		}
		return exec(ctx, tx, markCold, key.Tenant, key.Run)
	})
}

func (s *Store) mark(ctx context.Context, doing string, runs []persister.EndedRun, where string,
	fn func(*sql.Tx, schema.RunKey) error) (marked []persister.EndedRun, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		for _, r := range runs {
			var n int
			err := tx.QueryRowContext(ctx, `select count(*) from agent_runs r where koder_user_id = ? and id = ? and last_seq = ? and `+where+
				` and not `+sqlstore.Held, r.Key.Tenant, r.Key.Run, int64(r.Place.Last)).Scan(&n)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			if err := fn(tx, r.Key); err != nil {
				return err
			}
			marked = append(marked, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s %d runs: %w", doing, len(runs), err)
	}
	return marked, nil
}

// inTx runs fn in a transaction of the one writer.
func (s *Store) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func exec(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
	_, err := tx.ExecContext(ctx, text, args...)
	return err
}

const removeRows = `delete from agent_run_events where koder_user_id = ? and run_id = ? and seq > ? + 0 and seq <= ?`

const removeMarks = `delete from agent_run_repeats where koder_user_id = ? and run_id = ? and seq > ? and seq <= ?`

// removeIDs reads all ids of a run: once, when the last of the rows are removed.
const removeIDs = `delete from agent_run_ids where koder_user_id = ? and run_id = ? and seq <= ?`

// RemoveRows removes about limit rows of scraps, in one transaction, and moves the scraps' After. It returns the
// number of rows removed, and reports whether all rows of these scraps are removed now.
func (s *Store) RemoveRows(ctx context.Context, scraps []persister.Scrap, limit int) (removed int, all bool,
	err error) {
	all = true
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		for i := range scraps {
			if removed >= limit {
				all = false
				return nil
			}
			c := &scraps[i]
			through, err := limitScrap(ctx, tx, c, limit-removed)
			if err != nil {
				return err
			}
			n, err := removeScrap(ctx, tx, c, through)
			if err != nil {
				return err
			}
			removed += n
			all = all && through == c.Through
			c.After = through
		}
		return nil
	})
	if err != nil {
		return 0, false, fmt.Errorf("sqlite: remove rows of %d runs: %w", len(scraps), err)
	}
	return removed, all, nil
}

// removeScrap removes the rows of a scrap up to a seq and returns their number.
func removeScrap(ctx context.Context, tx *sql.Tx, c *persister.Scrap, through schema.Seq) (int, error) {
	done, err := tx.ExecContext(ctx, removeRows, c.Key.Tenant, c.Key.Run, int64(c.After), int64(through))
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	if err == nil {
		err = exec(ctx, tx, removeMarks, c.Key.Tenant, c.Key.Run, int64(c.After), int64(through))
	}
	if err == nil && through == c.Through {
		err = exec(ctx, tx, removeIDs, c.Key.Tenant, c.Key.Run, int64(through))
	}
	if err == nil {
		err = exec(ctx, tx, `update agent_trash set after_seq = ? where id = ?`, int64(through), c.ID)
	}
	return int(n), err
}

// limitScrap returns the greatest seq up to which a scrap has at most limit rows.
func limitScrap(ctx context.Context, tx *sql.Tx, c *persister.Scrap, limit int) (schema.Seq, error) {
	if c.Through-c.After <= schema.Seq(limit) {
		return c.Through, nil
	}
	through := c.Through
	err := tx.QueryRowContext(ctx, `select seq from agent_run_events where koder_user_id = ? and run_id = ? and seq > ? + 0 and seq <= ?
		order by seq limit 1 offset ?`, c.Key.Tenant, c.Key.Run, int64(c.After), int64(c.Through), limit-1).Scan(&through)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return through, err
}

// DropDays does nothing: the tables have no partitions.
func (s *Store) DropDays(context.Context, []string) ([]string, error) { return nil, nil }

// Discard removes scraps that are done.
func (s *Store) Discard(ctx context.Context, ids []int64) error {
	list, err := json.Marshal(ids)
	if err == nil {
		_, err = s.write.ExecContext(ctx, `delete from agent_trash where id in (select value from json_each(?))`,
			string(list))
	}
	if err != nil {
		return fmt.Errorf("sqlite: discard %d scraps: %w", len(ids), err)
	}
	return nil
}

// Alone runs fn. A file has one process, or few processes whose transactions wait for each other.
func (s *Store) Alone(ctx context.Context, fn func(context.Context) error) (bool, error) {
	return true, fn(ctx)
}
