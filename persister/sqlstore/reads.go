package sqlstore

import (
	"context"
	"iter"
	"strconv"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Head returns the newest position stored of a run, and the owner of a lane ("" is the run itself); the zero Head when
// the tenant has no such run, or it was deleted. Head.Stored is 0, because only the log knows positions in the log.
// Rows before Head.Last may be missing for a moment while several persisters store a partition.
func (s *Store) Head(ctx context.Context, key schema.RunKey, lane string) (h schema.Head, err error) {
	var epoch string
	found, err := s.row(ctx, key.Tenant, []any{dayIn{&h.Day}, &h.State, &h.Last, &h.LastID, &h.Lane.Owner, &epoch}, `
		select r.run_day, r.state, r.last_seq, r.last_id, coalesce(l.owner, ''), coalesce(cast(l.epoch as text), '0')
		from agent_runs r left join agent_run_lanes l
			on l.koder_user_id = r.koder_user_id and l.run_id = r.id and l.lane = $3
		where r.koder_user_id = $1 and r.id = $2 and r.deleted_at is null`, key.Tenant, key.Run, lane)
	if found && err == nil {
		h.Lane.Epoch, err = strconv.ParseUint(epoch, 10, 64)
	}
	if err != nil {
		return schema.Head{}, s.wrap(err, "head of run %s", key)
	}
	return h, nil
}

// Packs iterates over the run's events with after < seq ≤ through in order, in packs as of persister.Walk. Rows begin
// after the run's floor, so the first pack may begin later than after+1. For an unknown run it yields nothing. Between
// two packs it holds no connection.
func (s *Store) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		place, err := s.Place(ctx, key)
		if err != nil {
			yield(schema.Pack{}, err)
			return
		}
		if place.Day == "" || place.Deleted {
			return
		}
		for p, err := range persister.Walk(ctx, s.rows, key, place.Day, max(after, place.Floor), through) {
			if !yield(p, err) {
				return
			}
		}
	}
}

// Place returns where the events of a run are stored, the zero Place when the tenant has no such run.
func (s *Store) Place(ctx context.Context, key schema.RunKey) (p persister.Place, err error) {
	_, err = s.row(ctx, key.Tenant, []any{dayIn{&p.Day}, &p.Last, &p.Archived, &p.URI, &p.Floor, &p.Expired, &p.Deleted},
		`select run_day, last_seq, archived_seq, coalesce(replay_uri, ''), floor_seq, expired_seq, deleted_at is not null
		from agent_runs where koder_user_id = $1 and id = $2`, key.Tenant, key.Run)
	if err != nil {
		return persister.Place{}, s.wrap(err, "place of run %s", key)
	}
	return p, nil
}

// ParentQuery selects the root run of a child. It excludes the lane of the run itself, because the index holds children
// only.
const ParentQuery = `
select l.run_id from agent_run_lanes l where l.koder_user_id = $1 and l.lane = $2 and l.lane <> ''
	and not exists (select 1 from agent_runs r where r.koder_user_id = l.koder_user_id and r.id = l.run_id and r.deleted_at is not null)
order by l.joined_at desc, l.run_id desc limit 1`

// Parent returns the root run of a child of the tenant, "" when none is stored. Of several it returns the one that the
// child joined last.
func (s *Store) Parent(ctx context.Context, tenant, child string) (run string, err error) {
	if _, err = s.row(ctx, tenant, []any{&run}, ParentQuery, tenant, child); err != nil {
		return "", s.wrap(err, "root run of %s/%s", tenant, child)
	}
	return run, nil
}

// NextTenant returns the first tenant after after, in the order of their names, that has a run; "" when there is none.
// It costs one index lookup.
func (s *Store) NextTenant(ctx context.Context, after string) (tenant string, err error) {
	_, err = s.row(ctx, EveryTenant, []any{&tenant},
		`select coalesce(min(koder_user_id), '') from agent_runs where koder_user_id > $1`, after)
	if err != nil {
		return "", s.wrap(err, "tenant behind %q", after)
	}
	return tenant, nil
}

// changedKeys is the number of keys of a page.
const changedKeys = 1000

// RunsChangedSince iterates over the runs of all tenants whose rows were written at t or later, in the order of
// their keys, without deleted ones. The time of a write is the start of its transaction, by the database's
// clock. It reads the whole table, a page at a time.
func (s *Store) RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error] {
	return persister.Keys(func(after schema.RunKey) ([]schema.RunKey, error) {
		page, err := list(ctx, s, EveryTenant, scanKey,
			`select koder_user_id, id from agent_runs where (koder_user_id, id) > ($1, $2) and updated_at >= $3 and deleted_at is null
			order by koder_user_id, id limit $4`, after.Tenant, after.Run, s.d.Clock(t), changedKeys)
		if err != nil {
			return nil, s.wrap(err, "runs changed since %v", t)
		}
		return page, nil
	})
}

// TenantRunsChangedSince is RunsChangedSince for one tenant, and for its runs after an id.
func (s *Store) TenantRunsChangedSince(ctx context.Context, from schema.RunKey, t time.Time) iter.Seq2[schema.RunKey,
	error] {
	return persister.Keys(func(after schema.RunKey) ([]schema.RunKey, error) {
		if after.Run == "" {
			after = from
		}
		page, err := list(ctx, s, from.Tenant, scanKey,
			`select koder_user_id, id from agent_runs where koder_user_id = $1 and id > $2 and updated_at >= $3 and deleted_at is null
			order by id limit $4`, from.Tenant, after.Run, s.d.Clock(t), changedKeys)
		if err != nil {
			return nil, s.wrap(err, "runs of %s changed since %v", from.Tenant, t)
		}
		return page, nil
	})
}

func scanKey(scan Scan) (key schema.RunKey, err error) {
	err = scan(&key.Tenant, &key.Run)
	return key, err
}

func scanText(scan Scan) (text string, err error) {
	err = scan(&text)
	return text, err
}
