package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// Overrides returns the retention of tenants that have their own.
func (s *Store) Overrides(ctx context.Context) (map[string]persister.Override, error) {
	all := make(map[string]persister.Override)
	err := s.query(ctx, everyTenant, func(rows pgx.Rows) error {
		var tenant string
		var o persister.Override
		_, err := pgx.ForEachRow(rows, []any{&tenant, &o.Completed, &o.Ended}, func() error {
			all[tenant] = o
			o = persister.Override{}
			return nil
		})
		return err
	}, `select koder_user_id, completed_days, ended_days from agent_retention`)
	if err != nil {
		return nil, fmt.Errorf("postgres: retention of tenants: %w", err)
	}
	return all, nil
}

// SetOverride sets a tenant's own retention. The zero Override removes it.
func (s *Store) SetOverride(ctx context.Context, tenant string, o persister.Override) error {
	text, args := `insert into agent_retention (koder_user_id, completed_days, ended_days) values ($1, $2, $3)
		on conflict (koder_user_id) do update set completed_days = excluded.completed_days, ended_days = excluded.ended_days,
		updated_at = now()`, []any{tenant, o.Completed, o.Ended}
	if o == (persister.Override{}) {
		text, args = `delete from agent_retention where koder_user_id = $1`, args[:1]
	}
	err := s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: set retention of %s: %w", tenant, err)
	}
	return nil
}

// AddHold places a hold, or changes the reason of an existing one. It reports whether the run has expired or been deleted
// already.
func (s *Store) AddHold(ctx context.Context, key schema.RunKey, reason string) (expired bool, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(keepLock)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into agent_holds (koder_user_id, run_id, reason) values ($1, $2, $3)
			on conflict (koder_user_id, run_id) do update set reason = excluded.reason`, key.Tenant, key.Run, reason); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `select expired_seq > 0 or deleted_at is not null from agent_runs where koder_user_id = $1 and id = $2`,
			key.Tenant, key.Run).Scan(&expired)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: hold %s: %w", key, err)
	}
	return expired, nil
}

// RemoveHold lifts a hold and reports whether there was one.
func (s *Store) RemoveHold(ctx context.Context, key schema.RunKey) (was bool, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `delete from agent_holds where koder_user_id = $1 and run_id = $2`, key.Tenant, key.Run)
		was = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: lift hold of %s: %w", key, err)
	}
	return was, nil
}

// Holds returns the holds of a tenant, of all tenants when it is "".
func (s *Store) Holds(ctx context.Context, tenant string) (list []persister.Hold, err error) {
	err = s.query(ctx, everyTenant, func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h persister.Hold, err error) {
			err = row.Scan(&h.Key.Tenant, &h.Key.Run, &h.Reason, &h.Placed)
			return h, err
		})
		return err
	}, `select koder_user_id, run_id, reason, placed_at from agent_holds
		where $1 in ('', koder_user_id) order by koder_user_id, run_id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("postgres: holds: %w", err)
	}
	return list, nil
}
