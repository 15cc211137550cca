package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// forgetRun creates the row when only the log has the run.
const forgetRun = `
insert into agent_runs as r (koder_user_id, id, run_day, last_seq, last_id, first_ts, last_ts, floor_seq, deleted_at)
values ($1, $2, $3, $4, $5, $6, $6, $7, $6)
on conflict (koder_user_id, id) do update set floor_seq = $7, deleted_at = coalesce(r.deleted_at, $6), expired_at = null,
	archived_at = null, archived_seq = 0, archived_bytes = 0, replay_uri = null,
	session = null, session_seq = 0, session_agent = null, session_archived_at = null, session_deleted_at = null`

// Forget marks a run as deleted: for readers it does not exist, and events that arrive later are dropped. head is the head
// in the log. Forget returns the run's day, "" when neither the log nor the store has the run. The error wraps
// persister.ErrHeld when the run is under a hold.
func (s *Store) Forget(ctx context.Context, key schema.RunKey, head schema.Head, now time.Time) (day string, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, markShared, int64(keepLock)); err != nil {
			return err
		}
		var holds bool
		if err := tx.QueryRow(ctx, `select exists (select from agent_holds where koder_user_id = $1 and run_id in ('', $2))`,
			key.Tenant, key.Run).Scan(&holds); err != nil {
			return err
		}
		if holds {
			return persister.ErrHeld
		}
		day = head.Day
		var date time.Time
		err := tx.QueryRow(ctx, `select run_day from agent_runs where koder_user_id = $1 and id = $2 for update`, key.Tenant, key.Run).Scan(&date)
		switch {
		case err == nil:
			day = date.Format(dayLayout)
		case !errors.Is(err, pgx.ErrNoRows) || day == "":
			return ignore(err, pgx.ErrNoRows)
		default:
			if date, err = time.Parse(dayLayout, day); err != nil {
				return err
			}
		}
		// A run that was marked before has no rows above its floor.
		if _, err := tx.Exec(ctx, `insert into agent_trash (koder_user_id, run_id, run_day, after_seq, through_seq, uri, why, since)
			select koder_user_id, id, run_day, floor_seq, last_seq, coalesce(replay_uri, ''), $3, $4 from agent_runs
			where koder_user_id = $1 and id = $2 and floor_seq < $5`, key.Tenant, key.Run, persister.ScrapDeleted, now, int64(schema.MaxSeq)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, removeLanes, key.Tenant, key.Run); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, forgetRun, key.Tenant, key.Run, date, int64(head.Last), head.LastID, now, int64(schema.MaxSeq))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("postgres: forget run %s: %w", key, err)
	}
	return day, nil
}

func ignore(err, which error) error {
	if errors.Is(err, which) {
		return nil
	}
	return err
}

// Forgotten reports whether a run is marked as deleted.
func (s *Store) Forgotten(ctx context.Context, key schema.RunKey) (yes bool, err error) {
	err = s.query(ctx, key.Tenant, one(&yes),
		`select exists (select from agent_runs where koder_user_id = $1 and id = $2 and deleted_at is not null)`, key.Tenant, key.Run)
	if err != nil {
		return false, fmt.Errorf("postgres: mark of run %s: %w", key, err)
	}
	return yes, nil
}

// one returns a function that scans the only row.
func one(into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { return nil })
		return err
	}
}

// Tombstones returns at most limit rows of runs that expired before expired or are marked as deleted, with keys after one.
func (s *Store) Tombstones(ctx context.Context, expired time.Time, after schema.RunKey, limit int) (list []persister.Tombstone, err error) {
	err = s.query(ctx, everyTenant, func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t persister.Tombstone, err error) {
			var day time.Time
			err = row.Scan(&t.Key.Tenant, &t.Key.Run, &day, &t.Deleted, &t.Since)
			t.Day = day.Format(dayLayout)
			return t, err
		})
		return err
	}, `select koder_user_id, id, run_day, deleted_at is not null, coalesce(deleted_at, expired_at) from agent_runs r
		where (deleted_at is not null or expired_at < $1) and (koder_user_id, id) > ($2, $3) and not `+held+`
		order by koder_user_id, id limit $4`, expired, after.Tenant, after.Run, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: tombstones: %w", err)
	}
	return list, nil
}

const (
	removeLanes       = `delete from agent_run_lanes where koder_user_id = $1 and run_id = $2`
	removeDeadLetters = `delete from agent_dead_letters where koder_user_id = $1 and run_id = $2`
)

// RemoveTombstones removes the rows of runs that have not changed since they were listed, have no scraps and are under no
// hold, with lanes and dead letters that arrived late. It returns the number of runs.
func (s *Store) RemoveTombstones(ctx context.Context, list []persister.Tombstone) (removed int, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, markShared, int64(keepLock)); err != nil {
			return err
		}
		for _, t := range list {
			tag, err := tx.Exec(ctx, `delete from agent_runs r where koder_user_id = $1 and id = $2
				and case when $3 then deleted_at else expired_at end = $4
				and not exists (select from agent_trash t where t.koder_user_id = $1 and t.run_id = $2) and not `+held,
				t.Key.Tenant, t.Key.Run, t.Deleted, t.Since)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				continue
			}
			removed++
			if _, err := tx.Exec(ctx, removeLanes, t.Key.Tenant, t.Key.Run); err != nil {
				return err
			}
			if !t.Deleted {
				continue
			}
			if _, err := tx.Exec(ctx, removeDeadLetters, t.Key.Tenant, t.Key.Run); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: remove %d tombstones: %w", len(list), err)
	}
	return removed, nil
}

// RemoveDeadLetters removes the dead letters of a run, or of a whole tenant when Run is "", and returns their number.
func (s *Store) RemoveDeadLetters(ctx context.Context, key schema.RunKey) (removed int, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `delete from agent_dead_letters where koder_user_id = $1 and $2 in ('', run_id)`, key.Tenant, key.Run)
		removed = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: remove dead letters of %s: %w", key, err)
	}
	return removed, nil
}

// KnownRuns returns ids of a tenant's runs after one, in order, also of runs that have expired or are marked as deleted.
func (s *Store) KnownRuns(ctx context.Context, tenant, after string, limit int) (ids []string, err error) {
	err = s.query(ctx, tenant, func(rows pgx.Rows) error {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, `select id from agent_runs where koder_user_id = $1 and id > $2 order by id limit $3`, tenant, after, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: runs of %s: %w", tenant, err)
	}
	return ids, nil
}

// Remains counts what is left of a run, or of a whole tenant when Run is "". Rows of the views count as events. It scans
// every partition.
func (s *Store) Remains(ctx context.Context, key schema.RunKey) (r persister.Remains, err error) {
	of := func(column string) string {
		if key.Run == "" {
			return "koder_user_id = $1 and $2::text = ''"
		}
		return "koder_user_id = $1 and " + column + " = $2::text"
	}
	err = s.query(ctx, everyTenant, one(&r.Runs, &r.Events, &r.Lanes, &r.Letters, &r.Scraps, &r.Overrides, &r.Holds, &r.Marks), `select
		(select count(*) from agent_runs where deleted_at is null and `+of("id")+`),
		(select count(*) from agent_run_events where `+of("run_id")+`) + (select count(*) from agent_run_messages where `+of("run_id")+`)
			+ (select count(*) from agent_run_tool_calls where `+of("run_id")+`),
		(select count(*) from agent_run_lanes where `+of("run_id")+`),
		(select count(*) from agent_dead_letters where `+of("run_id")+`),
		(select count(*) from agent_trash where `+of("run_id")+`),
		(select count(*) from agent_retention where koder_user_id = $1 and $2::text = ''),
		(select count(*) from agent_holds where `+of("run_id")+`),
		(select count(*) from agent_runs where deleted_at is not null and `+of("id")+`)`, key.Tenant, key.Run)
	if err != nil {
		return r, fmt.Errorf("postgres: remains of %s: %w", key, err)
	}
	return r, nil
}

// Weigh returns the number of rows of runs above their floors, and the bytes of their lines.
func (s *Store) Weigh(ctx context.Context, runs []persister.EndedRun) (count, bytes int64, err error) {
	ranges := make(map[string]*rowRange)
	for _, r := range runs {
		if ranges[r.Place.Day] == nil {
			ranges[r.Place.Day] = new(rowRange)
		}
		ranges[r.Place.Day].add(&persister.Scrap{Key: r.Key, After: r.Place.Floor}, r.Place.Last)
	}
	for day, g := range ranges {
		var n, size int64
		date, err := time.Parse(dayLayout, day)
		if err == nil {
			err = s.query(ctx, everyTenant, one(&n, &size), `select count(*), coalesce(sum(octet_length(e.line)), 0)
				from agent_run_events e join unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) as x(t, r, lo, hi)
					on e.koder_user_id = x.t and e.run_id = x.r and e.seq > x.lo and e.seq <= x.hi
				where e.run_day = $1`, date, g.tenant, g.run, g.lo, g.hi)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("postgres: weigh %d runs of %s: %w", len(g.run), day, err)
		}
		count, bytes = count+n, bytes+size
	}
	return count, bytes, nil
}
