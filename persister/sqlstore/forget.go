package sqlstore

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// forgetRun creates the row when only the log has the run.
const forgetRun = `
insert into agent_runs as r (koder_user_id, id, run_day, last_seq, last_id, first_ts, last_ts, floor_seq, deleted_at)
values ($1, $2, $3, $4, $5, $6, $6, $7, $6)
on conflict (koder_user_id, id) do update set floor_seq = $7, deleted_at = coalesce(r.deleted_at, $6), expired_at = null,
	archived_at = null, archived_seq = 0, archived_bytes = 0, replay_uri = null,
	session = null, session_seq = 0, session_agent = null, session_archived_at = null, session_deleted_at = null,
	title = null, tags = null, opening = null, opening_seq = 0, model = null, model_seq = 0, words = ''`

// Forget marks a run as deleted: for readers it does not exist, and events that arrive later are dropped. head is the
// head in the log. Forget returns the run's day, "" when neither the log nor the store has the run. The error wraps
// persister.ErrHeld when the run is under a hold.
func (s *Store) Forget(ctx context.Context, key schema.RunKey, head schema.Head, now time.Time) (day string,
	err error) {
	err = s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if err := lock(ctx, tx, s.d.Marks); err != nil {
			return err
		}
		var holds bool
		if _, err := tx.Row(ctx, []any{&holds},
			`select exists (select 1 from agent_holds where koder_user_id = $1 and run_id in ('', $2))`,
			key.Tenant, key.Run); err != nil {
			return err
		}
		if holds {
			return persister.ErrHeld
		}
		day = head.Day
		_, err := tx.Row(ctx, []any{dayIn{&day}},
			`select run_day from agent_runs where koder_user_id = $1 and id = $2`+s.d.ForUpdate, key.Tenant, key.Run)
		if err != nil || day == "" {
			return err
		}
		date, err := s.d.Day(day)
		if err != nil {
			return err
		}
		at := s.d.Time(now)
		// A run that was marked before has no rows above its floor.
		if _, err := tx.Exec(ctx, `insert into agent_trash (koder_user_id, run_id, run_day, after_seq, through_seq, uri, why, since)
			select koder_user_id, id, run_day, floor_seq, last_seq, coalesce(replay_uri, ''), $3, $4 from agent_runs
			where koder_user_id = $1 and id = $2 and floor_seq < $5`, key.Tenant, key.Run, persister.ScrapDeleted, at, int64(schema.MaxSeq)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, RemoveLanes, key.Tenant, key.Run); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, forgetRun, key.Tenant, key.Run, date, int64(head.Last), head.LastID, at, int64(schema.MaxSeq))
		return err
	})
	if err != nil {
		return "", s.wrap(err, "forget run %s", key)
	}
	return day, nil
}

// IsForgotten reports whether a run is marked as deleted.
func (s *Store) IsForgotten(ctx context.Context, key schema.RunKey) (yes bool, err error) {
	_, err = s.row(ctx, key.Tenant, []any{&yes},
		`select exists (select 1 from agent_runs where koder_user_id = $1 and id = $2 and deleted_at is not null)`,
		key.Tenant, key.Run)
	if err != nil {
		return false, s.wrap(err, "mark of run %s", key)
	}
	return yes, nil
}

// Tombstones returns at most limit rows of runs that expired before expired or are marked as deleted, with keys after
// one.
func (s *Store) Tombstones(ctx context.Context, expired time.Time, after schema.RunKey,
	limit int) ([]persister.Tombstone, error) {
	tombstones, err := list(ctx, s, EveryTenant, func(scan Scan) (t persister.Tombstone, err error) {
		err = scan(&t.Key.Tenant, &t.Key.Run, dayIn{&t.Day}, &t.Deleted, timeIn{&t.Since})
		return t, err
	}, `select koder_user_id, id, run_day, deleted_at is not null, coalesce(deleted_at, expired_at) from agent_runs r
		where (deleted_at is not null or expired_at < $1) and (koder_user_id, id) > ($2, $3) and not `+Held+`
		order by koder_user_id, id limit $4`, s.d.Time(expired), after.Tenant, after.Run, limit)
	if err != nil {
		return nil, s.wrap(err, "tombstones")
	}
	return tombstones, nil
}

// RemoveTombstones removes the rows of runs that have not changed since they were listed, have no scraps and are under
// no hold, with lanes and dead letters that arrived late. It returns the number of runs.
func (s *Store) RemoveTombstones(ctx context.Context, tombstones []persister.Tombstone) (removed int, err error) {
	err = s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if err := lock(ctx, tx, s.d.Marks); err != nil {
			return err
		}
		for _, t := range tombstones {
			n, err := tx.Exec(ctx, `delete from agent_runs as r where koder_user_id = $1 and id = $2
				and case when $3 then deleted_at else expired_at end = $4
				and not exists (select 1 from agent_trash t where t.koder_user_id = $1 and t.run_id = $2) and not `+Held,
				t.Key.Tenant, t.Key.Run, t.Deleted, s.d.Time(t.Since))
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			removed++
			if _, err := tx.Exec(ctx, RemoveLanes, t.Key.Tenant, t.Key.Run); err != nil {
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
		return 0, s.wrap(err, "remove %d tombstones", len(tombstones))
	}
	return removed, nil
}

// Remains counts what is left of a run, or of a whole tenant when Run is "". Rows of the dialect's Projections count as
// events. It scans all days.
func (s *Store) Remains(ctx context.Context, key schema.RunKey) (r persister.Remains, err error) {
	of := func(table, column string) string {
		if key.Run == "" {
			return "(select count(*) from " + table + " where koder_user_id = $1 and cast($2 as text) = '')"
		}
		return "(select count(*) from " + table + " where koder_user_id = $1 and " + column + " = cast($2 as text))"
	}
	events := of("agent_run_events", "run_id")
	for _, table := range s.d.Projections {
		events += " + " + of(table, "run_id")
	}
	_, err = s.row(ctx, EveryTenant, []any{&r.Runs, &r.Events, &r.Lanes, &r.Letters, &r.Scraps, &r.Overrides, &r.Holds, &r.Marks}, `select
		`+of("(select * from agent_runs where deleted_at is null) r", "id")+`,
		`+events+`,
		`+of("agent_run_lanes", "run_id")+`,
		`+of("agent_dead_letters", "run_id")+`,
		`+of("agent_trash", "run_id")+`,
		(select count(*) from agent_retention where koder_user_id = $1 and cast($2 as text) = ''),
		`+of("agent_holds", "run_id")+`,
		`+of("(select * from agent_runs where deleted_at is not null) r", "id"), key.Tenant, key.Run)
	if err != nil {
		return r, s.wrap(err, "remains of %s", key)
	}
	return r, nil
}
