package sqlstore

import (
	"context"

	"agentstream/persister"
	"agentstream/schema"
)

// Held is the condition that a run r is under a legal hold.
const Held = `exists (select 1 from agent_holds h where h.koder_user_id = r.koder_user_id and h.run_id in ('', r.id))`

// Overrides returns the retention of tenants that have their own.
func (s *Store) Overrides(ctx context.Context) (map[string]persister.Override, error) {
	all := make(map[string]persister.Override)
	err := s.db.Read(ctx, EveryTenant, func(scan Scan) error {
		var tenant string
		var o persister.Override
		err := scan(&tenant, &o.Completed, &o.Ended)
		all[tenant] = o
		return err
	}, `select koder_user_id, completed_days, ended_days from agent_retention`)
	if err != nil {
		return nil, s.wrap(err, "retention of tenants")
	}
	return all, nil
}

// SetOverride sets a tenant's own retention. The zero Override removes it.
func (s *Store) SetOverride(ctx context.Context, tenant string, o persister.Override) error {
	text, args := `insert into agent_retention (koder_user_id, completed_days, ended_days) values ($1, $2, $3)
		on conflict (koder_user_id) do update set completed_days = excluded.completed_days, ended_days = excluded.ended_days,
		updated_at = `+s.d.Now, []any{tenant, o.Completed, o.Ended}
	if o == (persister.Override{}) {
		text, args = `delete from agent_retention where koder_user_id = $1`, args[:1]
	}
	if _, err := s.exec(ctx, text, args...); err != nil {
		return s.wrap(err, "set retention of %s", tenant)
	}
	return nil
}

// AddHold places a hold, or changes the reason of an existing one. It reports whether the run has expired or been
// deleted already.
func (s *Store) AddHold(ctx context.Context, key schema.RunKey, reason string) (expired bool, err error) {
	err = s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		if err := lock(ctx, tx, s.d.Holds); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into agent_holds (koder_user_id, run_id, reason) values ($1, $2, $3)
			on conflict (koder_user_id, run_id) do update set reason = excluded.reason`, key.Tenant, key.Run, reason); err != nil {
			return err
		}
		_, err := tx.Row(ctx, []any{&expired}, `select expired_seq > 0 or deleted_at is not null from agent_runs
			where koder_user_id = $1 and id = $2`, key.Tenant, key.Run)
		return err
	})
	if err != nil {
		return false, s.wrap(err, "hold %s", key)
	}
	return expired, nil
}

// RemoveHold lifts a hold and reports whether there was one.
func (s *Store) RemoveHold(ctx context.Context, key schema.RunKey) (bool, error) {
	n, err := s.exec(ctx, `delete from agent_holds where koder_user_id = $1 and run_id = $2`, key.Tenant, key.Run)
	if err != nil {
		return false, s.wrap(err, "lift hold of %s", key)
	}
	return n > 0, nil
}

// Holds returns the holds of a tenant, of all tenants when it is "".
func (s *Store) Holds(ctx context.Context, tenant string) ([]persister.Hold, error) {
	holds, err := list(ctx, s, EveryTenant, func(scan Scan) (h persister.Hold, err error) {
		err = scan(&h.Key.Tenant, &h.Key.Run, &h.Reason, timeIn{&h.Placed})
		return h, err
	}, `select koder_user_id, run_id, reason, placed_at from agent_holds
		where $1 in ('', koder_user_id) order by koder_user_id, run_id`, tenant)
	if err != nil {
		return nil, s.wrap(err, "holds")
	}
	return holds, nil
}
