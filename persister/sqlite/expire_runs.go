package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// forgetRun creates the row when only the log has the run.
const forgetRun = `
insert into agent_runs as r (koder_user_id, id, run_day, last_seq, last_id, first_ts, last_ts, floor_seq, deleted_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?6)
on conflict (koder_user_id, id) do update set floor_seq = ?7, deleted_at = coalesce(r.deleted_at, ?6), expired_at = null,
	archived_at = null, archived_seq = 0, archived_bytes = 0, replay_uri = null,
	session = null, session_seq = 0, session_agent = null, session_archived_at = null, session_deleted_at = null`

// Forget marks a run as deleted: for readers it does not exist, and events that arrive later are dropped. head is the
// head in the log. Forget returns the run's day, "" when neither the log nor the store has the run. The error wraps
// persister.ErrHeld when the run is under a hold.
func (s *Store) Forget(ctx context.Context, key schema.RunKey, head schema.Head, now time.Time) (day string, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var holds int
		if err := tx.QueryRowContext(ctx, `select count(*) from agent_holds where koder_user_id = ? and run_id in ('', ?)`,
			key.Tenant, key.Run).Scan(&holds); err != nil {
			return err
		}
		if holds > 0 {
			return persister.ErrHeld
		}
		err := tx.QueryRowContext(ctx, `select run_day from agent_runs where koder_user_id = ? and id = ?`, key.Tenant, key.Run).Scan(&day)
		if errors.Is(err, sql.ErrNoRows) {
			day, err = head.Day, nil
		}
		if err != nil || day == "" {
			return err
		}
		// A run that was marked before has no rows above its floor.
		if err := exec(ctx, tx, trashExpired+` and floor_seq < ?`, persister.ScrapDeleted, stamp(now), key.Tenant, key.Run, int64(schema.MaxSeq)); err != nil {
			return err
		}
		if err := exec(ctx, tx, removeLanes, key.Tenant, key.Run); err != nil {
			return err
		}
		return exec(ctx, tx, forgetRun, key.Tenant, key.Run, day, int64(head.Last), head.LastID, stamp(now), int64(schema.MaxSeq))
	})
	if err != nil {
		return "", fmt.Errorf("sqlite: forget run %s: %w", key, err)
	}
	return day, nil
}

// Forgotten reports whether a run is marked as deleted.
func (s *Store) Forgotten(ctx context.Context, key schema.RunKey) (bool, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `select count(*) from agent_runs where koder_user_id = ? and id = ? and deleted_at is not null`,
		key.Tenant, key.Run).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("sqlite: mark of run %s: %w", key, err)
	}
	return n > 0, nil
}

// Tombstones returns at most limit rows of runs that expired before expired or are marked as deleted, with keys after
// one.
func (s *Store) Tombstones(ctx context.Context, expired time.Time, after schema.RunKey, limit int) (list []persister.Tombstone, err error) {
	err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		var t persister.Tombstone
		var since string
		err := scan(&t.Key.Tenant, &t.Key.Run, &t.Day, &t.Deleted, &since)
		if err == nil {
			t.Since, err = time.Parse(tsLayout, since)
		}
		list = append(list, t)
		return true, err
	}, `select koder_user_id, id, run_day, deleted_at is not null, coalesce(deleted_at, expired_at) from agent_runs r
		where (deleted_at is not null or expired_at < ?1) and (koder_user_id, id) > (?2, ?3) and not `+held+`
		order by koder_user_id, id limit ?4`, stamp(expired), after.Tenant, after.Run, limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: tombstones: %w", err)
	}
	return list, nil
}

// RemoveTombstones removes the rows of runs that have not changed since they were listed, have no scraps and are
// under no hold, with lanes and dead letters that arrived late. It returns the number of runs.
func (s *Store) RemoveTombstones(ctx context.Context, list []persister.Tombstone) (removed int, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		for _, t := range list {
			done, err := tx.ExecContext(ctx, `delete from agent_runs as r where koder_user_id = ?1 and id = ?2 and iif(?3, deleted_at, expired_at) = ?4
				and not exists (select 1 from agent_trash t where t.koder_user_id = ?1 and t.run_id = ?2) and not `+held,
				t.Key.Tenant, t.Key.Run, t.Deleted, stamp(t.Since))
			if err != nil {
				return err
			}
			n, err := done.RowsAffected()
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			removed += int(n)
			if err := exec(ctx, tx, removeLanes, t.Key.Tenant, t.Key.Run); err != nil {
				return err
			}
			if !t.Deleted {
				continue
			}
			if err := exec(ctx, tx, removeDeadLetters, t.Key.Tenant, t.Key.Run); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: remove %d tombstones: %w", len(list), err)
	}
	return removed, nil
}

const removeDeadLetters = `delete from agent_dead_letters where koder_user_id = ? and run_id = ?`

// RemoveDeadLetters removes the dead letters of a run, or of a whole tenant when Run is "", and returns their number.
func (s *Store) RemoveDeadLetters(ctx context.Context, key schema.RunKey) (int, error) {
	text, args := removeDeadLetters, []any{key.Tenant, key.Run}
	if key.Run == "" {
		text, args = `delete from agent_dead_letters where koder_user_id = ?`, args[:1]
	}
	done, err := s.write.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, fmt.Errorf("sqlite: remove dead letters of %s: %w", key, err)
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// KnownRuns returns ids of a tenant's runs after one, in order, also of runs that have expired or are marked as
// deleted.
func (s *Store) KnownRuns(ctx context.Context, tenant, after string, limit int) (ids []string, err error) {
	err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return true, err
	}, `select id from agent_runs where koder_user_id = ? and id > ? order by id limit ?`, tenant, after, limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: runs of %s: %w", tenant, err)
	}
	return ids, nil
}

// Remains counts what is left of a run, or of a whole tenant when Run is "".
func (s *Store) Remains(ctx context.Context, key schema.RunKey) (r persister.Remains, err error) {
	of := func(column string) string {
		if key.Run == "" {
			return "koder_user_id = ?1 and ?2 = ''"
		}
		return "koder_user_id = ?1 and " + column + " = ?2"
	}
	err = s.read.QueryRowContext(ctx, `select
		(select count(*) from agent_runs where deleted_at is null and `+of("id")+`),
		(select count(*) from agent_run_events where `+of("run_id")+`),
		(select count(*) from agent_run_lanes where `+of("run_id")+`),
		(select count(*) from agent_dead_letters where `+of("run_id")+`),
		(select count(*) from agent_trash where `+of("run_id")+`),
		(select count(*) from agent_retention where koder_user_id = ?1 and ?2 = ''),
		(select count(*) from agent_holds where `+of("run_id")+`),
		(select count(*) from agent_runs where deleted_at is not null and `+of("id")+`)`, key.Tenant, key.Run).
		Scan(&r.Runs, &r.Events, &r.Lanes, &r.Letters, &r.Scraps, &r.Overrides, &r.Holds, &r.Marks)
	if err != nil {
		return r, fmt.Errorf("sqlite: remains of %s: %w", key, err)
	}
	return r, nil
}

// Weigh returns the number of rows of runs above their floors, and the bytes of their lines.
func (s *Store) Weigh(ctx context.Context, runs []persister.EndedRun) (count, bytes int64, err error) {
	for _, r := range runs {
		var n, size int64
		err := s.read.QueryRowContext(ctx, `select count(*), coalesce(sum(octet_length(line)), 0) from agent_run_events
			where koder_user_id = ? and run_id = ? and seq > ?`, r.Key.Tenant, r.Key.Run, int64(r.Place.Floor)).Scan(&n, &size)
		if err != nil {
			return 0, 0, fmt.Errorf("sqlite: weigh run %s: %w", r.Key, err)
		}
		count, bytes = count+n, bytes+size
	}
	return count, bytes, nil
}

// LiveRuns returns 0 and false: there are no partitions.
func (s *Store) LiveRuns(context.Context, string) (runs int, partition bool, err error) {
	return 0, false, nil
}

// Overrides returns the retention of tenants that have their own.
func (s *Store) Overrides(ctx context.Context) (map[string]persister.Override, error) {
	all := make(map[string]persister.Override)
	err := rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		var tenant string
		var o persister.Override
		err := scan(&tenant, &o.Completed, &o.Ended)
		all[tenant] = o
		return true, err
	}, `select koder_user_id, completed_days, ended_days from agent_retention`)
	if err != nil {
		return nil, fmt.Errorf("sqlite: retention of tenants: %w", err)
	}
	return all, nil
}

// SetOverride sets a tenant's own retention. The zero Override removes it.
func (s *Store) SetOverride(ctx context.Context, tenant string, o persister.Override) error {
	text, args := `insert into agent_retention (koder_user_id, completed_days, ended_days) values (?, ?, ?)
		on conflict (koder_user_id) do update set completed_days = excluded.completed_days, ended_days = excluded.ended_days,
		updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`, []any{tenant, o.Completed, o.Ended}
	if o == (persister.Override{}) {
		text, args = `delete from agent_retention where koder_user_id = ?`, args[:1]
	}
	if _, err := s.write.ExecContext(ctx, text, args...); err != nil {
		return fmt.Errorf("sqlite: set retention of %s: %w", tenant, err)
	}
	return nil
}

// AddHold places a hold, or changes the reason of an existing one. It reports whether the run has expired or been
// deleted already.
func (s *Store) AddHold(ctx context.Context, key schema.RunKey, reason string) (expired bool, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		err := exec(ctx, tx, `insert into agent_holds (koder_user_id, run_id, reason) values (?, ?, ?)
			on conflict (koder_user_id, run_id) do update set reason = excluded.reason`, key.Tenant, key.Run, reason)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `select expired_seq > 0 or deleted_at is not null from agent_runs where koder_user_id = ? and id = ?`,
			key.Tenant, key.Run).Scan(&expired)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("sqlite: hold %s: %w", key, err)
	}
	return expired, nil
}

// RemoveHold lifts a hold and reports whether there was one.
func (s *Store) RemoveHold(ctx context.Context, key schema.RunKey) (bool, error) {
	done, err := s.write.ExecContext(ctx, `delete from agent_holds where koder_user_id = ? and run_id = ?`, key.Tenant, key.Run)
	if err != nil {
		return false, fmt.Errorf("sqlite: lift hold of %s: %w", key, err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// Holds returns the holds of a tenant, of all tenants when it is "".
func (s *Store) Holds(ctx context.Context, tenant string) (list []persister.Hold, err error) {
	err = rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		var h persister.Hold
		var placed string
		err := scan(&h.Key.Tenant, &h.Key.Run, &h.Reason, &placed)
		if err == nil {
			h.Placed, err = time.Parse(time.RFC3339Nano, placed)
		}
		list = append(list, h)
		return true, err
	}, `select koder_user_id, run_id, reason, placed_at from agent_holds
		where ?1 in ('', koder_user_id) order by koder_user_id, run_id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("sqlite: holds: %w", err)
	}
	return list, nil
}
