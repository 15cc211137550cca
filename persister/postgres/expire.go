package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// keepLock is an advisory lock of transactions: shared for those that mark runs as expired or deleted, exclusive for
// one that places a hold. So either the hold is placed first and the run is not marked, or AddHold reports that it is
// marked.
const keepLock = 0x6167656e746b65 // "agentke"

// Statements that take keepLock.
var (
	markShared = fmt.Sprintf(`select pg_advisory_xact_lock_shared(%d)`, keepLock)
	holdAlone  = fmt.Sprintf(`select pg_advisory_xact_lock(%d)`, keepLock)
)

// lockRuns skips runs to which events are being appended, instead of waiting for them. A statement sees what was
// committed before it began, so it runs after keepLock is held, to see all holds.
const lockRuns = `
select r.koder_user_id, r.id from agent_runs r join unnest($1::text[], $2::text[], $3::bigint[]) as x(t, id, last)
	on r.koder_user_id = x.t and r.id = x.id
where r.last_seq = x.last and %s and not ` + sqlstore.Held + `
order by r.koder_user_id, r.id for update of r skip locked`

const picked = `with picked as (select r.* from agent_runs r join unnest($1::text[], $2::text[]) as x(t, id)
	on r.koder_user_id = x.t and r.id = x.id),
trashed as (insert into agent_trash (koder_user_id, run_id, run_day, after_seq, through_seq, uri, why, since)
	select koder_user_id, id, run_day, floor_seq, %s, %s, $3, $4 from picked order by koder_user_id, id)`

// The description of a session is removed with its events. session_deleted_at stays, because the deletion must still be
// carried out.
var markExpired = fmt.Sprintf(picked, "last_seq", "coalesce(replay_uri, '')") + `,
lanes as (delete from agent_run_lanes l using picked p where l.koder_user_id = p.koder_user_id and l.run_id = p.id)
update agent_runs r set floor_seq = r.last_seq, expired_seq = r.last_seq, expired_at = $4,
	replay_uri = null, archived_seq = 0, archived_at = null, archived_bytes = 0,
	session = null, session_seq = 0, session_agent = null, session_archived_at = null,
	title = null, tags = null, opening = null, model = null, words = ''
from picked p where r.koder_user_id = p.koder_user_id and r.id = p.id`

var markCold = fmt.Sprintf(picked, "archived_seq", "''") + `
update agent_runs r set floor_seq = r.archived_seq from picked p where r.koder_user_id = p.koder_user_id and r.id = p.id`

// Expire marks runs as expired, in one transaction, and returns those that it marked. It skips runs that have newer
// events than when they were listed, and runs that are under a hold by now. It adds scraps for what must be removed.
func (s *Store) Expire(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error) {
	marked, err := s.mark(ctx, runs, sqlstore.IsOver, markExpired, persister.ScrapExpired, now)
	if err != nil {
		return nil, fmt.Errorf("postgres: expire %d runs: %w", len(runs), err)
	}
	return marked, nil
}

// Cool marks the rows of runs as removed whose events are in blobs, in the way of Expire.
func (s *Store) Cool(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error) {
	marked, err := s.mark(ctx, runs, sqlstore.IsWarm, markCold, persister.ScrapCold, now)
	if err != nil {
		return nil, fmt.Errorf("postgres: cool %d runs: %w", len(runs), err)
	}
	return marked, nil
}

func (s *Store) mark(ctx context.Context, runs []persister.EndedRun, where, text, why string,
	now time.Time) (marked []persister.EndedRun, err error) {
	var tenants, ids []string
	var lasts []int64
	of := make(map[schema.RunKey]persister.EndedRun, len(runs))
	for _, r := range runs {
		tenants, ids, lasts = append(tenants, r.Key.Tenant), append(ids, r.Key.Run), append(lasts, int64(r.Place.Last))
		of[r.Key] = r
	}
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, markShared); err != nil {
			return err
		}
		result, err := tx.Query(ctx, fmt.Sprintf(lockRuns, where), tenants, ids, lasts)
		if err != nil {
			return err
		}
		var key schema.RunKey
		tenants, ids = nil, nil
		if _, err := pgx.ForEachRow(result, []any{&key.Tenant, &key.Run}, func() error {
			tenants, ids, marked = append(tenants, key.Tenant), append(ids, key.Run), append(marked, of[key])
			return nil
		}); err != nil || len(marked) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, text, tenants, ids, why, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return marked, nil
}

// The day is a parameter of its own, so that other partitions are not scanned.
const removeRows = `
delete from %s e using unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) as x(t, r, lo, hi)
where e.run_day = $1 and e.koder_user_id = x.t and e.run_id = x.r and e.seq > x.lo and e.seq <= x.hi`

// dayTable is the table with the rows of a day: its partition, also while it is being detached or is detached. Then
// agent_run_events does not show its rows, but they would return if the partition is attached again.
type dayTable struct {
	name string
	date time.Time
}

func tableOf(ctx context.Context, tx pgx.Tx, day string) (t dayTable, err error) {
	if t.date, err = time.Parse(dayLayout, day); err != nil {
		return t, err
	}
	err = tx.QueryRow(ctx, `select case when to_regclass($1) is null then 'agent_run_events' else $1 end`,
		partition(day)).Scan(&t.name)
	return t, err
}

// Statements that remove the rows of the views.
const (
	removeMessages = `
delete from agent_run_messages m using unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as x(t, r, lo, hi)
where m.koder_user_id = x.t and m.run_id = x.r and m.seq > x.lo and m.seq <= x.hi`
	removeCalls = `
delete from agent_run_tool_calls c using unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as x(t, r, lo, hi)
where c.koder_user_id = x.t and c.run_id = x.r and c.seq > x.lo and c.seq <= x.hi`
)

// Statements that remove the rows of the views of scraps. When a partition was dropped, RemoveRows has not removed
// them.
const (
	discardMessages = `delete from agent_run_messages m using agent_trash t
		where t.id = any($1) and m.koder_user_id = t.koder_user_id and m.run_id = t.run_id and m.seq <= t.through_seq`
	discardCalls = `delete from agent_run_tool_calls c using agent_trash t
		where t.id = any($1) and c.koder_user_id = t.koder_user_id and c.run_id = t.run_id and c.seq <= t.through_seq`
)

// RemoveRows removes about limit rows of scraps, in one transaction, and moves the scraps' After. It returns the number
// of rows removed, and reports whether all rows of these scraps are removed now.
func (s *Store) RemoveRows(ctx context.Context, scraps []persister.Scrap, limit int) (removed int, all bool,
	err error) {
	for range attempts {
		removed, all, err = s.removeRows(ctx, scraps, limit)
		if sqlState(err) != undefinedTable { // else a partition was dropped meanwhile
			break
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("postgres: remove rows of %d runs: %w", len(scraps), err)
	}
	return removed, all, nil
}

func (s *Store) removeRows(ctx context.Context, scraps []persister.Scrap, limit int) (removed int, all bool,
	err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		ranges := make(map[dayTable]*rowRange)
		left := schema.Seq(limit)
		var ids, through []int64
		for i := range scraps {
			c := &scraps[i]
			if left == 0 {
				break
			}
			table, err := tableOf(ctx, tx, c.Day)
			if err != nil {
				return err
			}
			hi, err := limitScrap(ctx, tx, c, table, left)
			if err != nil {
				return err
			}
			left -= min(left, max(hi-c.After, 1))
			if ranges[table] == nil {
				ranges[table] = new(rowRange)
			}
			ranges[table].add(c, hi)
			ids, through = append(ids, c.ID), append(through, int64(hi))
		}
		for table, r := range ranges {
			tag, err := tx.Exec(ctx, fmt.Sprintf(removeRows, table.name), table.date, r.tenant, r.run, r.lo, r.hi)
			if err != nil {
				return err
			}
			removed += int(tag.RowsAffected())
			for _, text := range []string{removeMessages, removeCalls} {
				if _, err := tx.Exec(ctx, text, r.tenant, r.run, r.lo, r.hi); err != nil {
					return err
				}
			}
		}
		_, err := tx.Exec(ctx, `update agent_trash t set after_seq = x.through from unnest($1::bigint[], $2::bigint[]) as x(id, through)
			where t.id = x.id`, ids, through)
		all = len(ids) == len(scraps)
		for i := range ids {
			scraps[i].After = schema.Seq(through[i])
			all = all && scraps[i].After == scraps[i].Through
		}
		return err
	})
	return removed, all, err
}

type rowRange struct {
	tenant, run []string
	lo, hi      []int64
}

func (r *rowRange) add(c *persister.Scrap, hi schema.Seq) {
	r.tenant, r.run = append(r.tenant, c.Key.Tenant), append(r.run, c.Key.Run)
	r.lo, r.hi = append(r.lo, int64(c.After)), append(r.hi, int64(hi))
}

// limitScrap returns the greatest seq up to which a scrap has at most limit rows.
func limitScrap(ctx context.Context, tx pgx.Tx, c *persister.Scrap, table dayTable, limit schema.Seq) (schema.Seq,
	error) {
	if c.Through-c.After <= limit {
		return c.Through, nil
	}
	through := c.Through
	err := tx.QueryRow(ctx, `select seq from `+table.name+` where run_day = $1 and koder_user_id = $2 and run_id = $3
		and seq > $4 and seq <= $5 order by seq limit 1 offset $6`,
		table.date, c.Key.Tenant, c.Key.Run, int64(c.After), int64(c.Through), int64(limit)-1).Scan(&through)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return through, err
}

// Discard removes scraps that are done.
func (s *Store) Discard(ctx context.Context, ids []int64) error {
	err := s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		for _, text := range []string{discardMessages, discardCalls, `delete from agent_trash where id = any($1)`} {
			if _, err := tx.Exec(ctx, text, ids); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("postgres: discard %d scraps: %w", len(ids), err)
	}
	return nil
}
