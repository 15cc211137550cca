package sqlstore

import (
	"context"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Conditions of ListEnded on a run r. They are the same as those of the indexes.
const (
	IsOver = `r.state in ('done', 'error', 'aborted') and r.expired_at is null and r.deleted_at is null`
	IsWarm = `r.archived_at is not null and r.floor_seq < r.archived_seq and r.deleted_at is null
		and r.archived_seq = r.last_seq and r.state in ('done', 'error', 'aborted')`
	isUnwanted = `r.session_deleted_at is not null and r.deleted_at is null`
)

// Unarchived is the condition of the index agent_runs_unarchived, in the same words.
const Unarchived = `state in ('done', 'error', 'aborted') and archived_at is null and expired_at is null and deleted_at is null`

// RemoveLanes removes the lanes of a run.
const RemoveLanes = `delete from agent_run_lanes where koder_user_id = $1 and run_id = $2`

// ListEnded returns runs that have ended and have not expired; see persister.EndedQuery.
func (s *Store) ListEnded(ctx context.Context, q persister.EndedQuery) (runs []persister.EndedRun, err error) {
	where := IsOver
	switch {
	case q.Unwanted:
		where = isUnwanted
	case q.Warm:
		where = IsWarm
	}
	after := persister.EndedRun{Place: persister.Place{Day: "00010101"}}
	if q.After != nil {
		after = *q.After
	}
	day, err := s.d.Day(after.Place.Day)
	if err != nil {
		return nil, s.wrap(err, "runs that are over")
	}
	through, err := s.d.Day(q.Through)
	if err != nil {
		return nil, s.wrap(err, "runs that are over")
	}
	runs, err = list(ctx, s, EveryTenant, func(scan Scan) (r persister.EndedRun, err error) {
		var stored time.Time
		p := &r.Place
		err = scan(&r.Key.Tenant, &r.Key.Run, &r.State, dayIn{&p.Day}, &p.Last, &p.Archived, &p.URI, &p.Floor, &p.Expired,
			timeIn{&r.Ended}, timeIn{&stored}, &r.Bytes, &r.Held)
		if stored.Before(r.Ended) {
			r.Ended = stored
		}
		return r, err
	}, `select koder_user_id, id, state, run_day, last_seq, archived_seq, coalesce(replay_uri, ''), floor_seq, expired_seq,
			last_ts, updated_at, archived_bytes, `+Held+`
		from agent_runs r where `+where+` and run_day <= $1 and (run_day, koder_user_id, id) > ($2, $3, $4)
		order by run_day, koder_user_id, id limit $5`, through, day, after.Key.Tenant, after.Key.Run, q.Limit)
	if err != nil {
		return nil, s.wrap(err, "runs that are over")
	}
	return runs, nil
}

// Scraps returns scraps with ids greater than after, the oldest first.
func (s *Store) Scraps(ctx context.Context, after int64, limit int) ([]persister.Scrap, error) {
	return s.scraps(ctx, `id > $1 order by id limit $2`, after, limit)
}

// ScrapsOf returns the scraps of one run.
func (s *Store) ScrapsOf(ctx context.Context, key schema.RunKey) ([]persister.Scrap, error) {
	return s.scraps(ctx, `koder_user_id = $1 and run_id = $2 order by id`, key.Tenant, key.Run)
}

func (s *Store) scraps(ctx context.Context, where string, args ...any) ([]persister.Scrap, error) {
	scraps, err := list(ctx, s, EveryTenant, func(scan Scan) (c persister.Scrap, err error) {
		err = scan(&c.ID, &c.Key.Tenant, &c.Key.Run, dayIn{&c.Day}, &c.After, &c.Through, &c.URI, &c.Why)
		return c, err
	}, `select id, koder_user_id, run_id, run_day, after_seq, through_seq, uri, why from agent_trash where `+where,
		args...)
	if err != nil {
		return nil, s.wrap(err, "scraps")
	}
	return scraps, nil
}

// RunIDs returns ids of a tenant's runs after one, in order, also of runs that have expired or are marked as
// deleted.
func (s *Store) RunIDs(ctx context.Context, tenant, after string, limit int) ([]string, error) {
	ids, err := list(ctx, s, tenant, scanText,
		`select id from agent_runs where koder_user_id = $1 and id > $2 order by id limit $3`,
		tenant, after, limit)
	if err != nil {
		return nil, s.wrap(err, "runs of %s", tenant)
	}
	return ids, nil
}
