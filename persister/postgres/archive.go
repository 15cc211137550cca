package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// claimRuns skips rows that another claim or an append has locked: it waits for nothing.
// Materialized: a plan that ran the inner statement once for each row outside would claim more than its limit.
const claimRuns = `
with c as materialized (select koder_user_id, id from agent_runs where ` + sqlstore.Unarchived + `
		and updated_at <= now() - make_interval(secs => $1) and (archive_after is null or archive_after <= now())
	limit $3 for update skip locked)
update agent_runs r set archive_after = now() + make_interval(secs => $2) from c
where r.koder_user_id = c.koder_user_id and r.id = c.id
returning r.koder_user_id, r.id`

// Claim returns at most limit runs that have ended, have not changed for settle and are not archived. Other calls do
// not return them for the time of lease. A lease only avoids double work: a run may also be archived without one.
func (s *Store) Claim(ctx context.Context, settle, lease time.Duration, limit int) (keys []schema.RunKey, err error) {
	err = s.query(ctx, everyTenant, func(rows pgx.Rows) error {
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (key schema.RunKey, err error) {
			err = row.Scan(&key.Tenant, &key.Run)
			return key, err
		})
		return err
	}, claimRuns, settle.Seconds(), lease.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: claim runs to archive: %w", err)
	}
	return keys, nil
}

// Defer prevents that Claim returns a run for the time of wait.
func (s *Store) Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error {
	err := s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update agent_runs set archive_after = now() + make_interval(secs => $3)
			where koder_user_id = $1 and id = $2`, key.Tenant, key.Run, wait.Seconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: defer run %s: %w", key, err)
	}
	return nil
}

// Backlog returns the number of runs that Claim would return if none were claimed, at most limit.
func (s *Store) Backlog(ctx context.Context, settle time.Duration, limit int) (n int, err error) {
	err = s.query(ctx, everyTenant, func(rows pgx.Rows) error {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	}, `select count(*) from (select from agent_runs where `+sqlstore.Unarchived+
		` and updated_at <= now() - make_interval(secs => $1) limit $2) x`,
		settle.Seconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("postgres: runs to archive: %w", err)
	}
	return n, nil
}

// SetArchived records that an object of size bytes at uri holds the run up to through. It returns false and changes
// nothing when the run has newer events, has expired or was deleted, or has another object of these events by now.
func (s *Store) SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string,
	size int64) (set bool, err error) {
	err = s.within(ctx, everyTenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update agent_runs
			set replay_uri = $3, archived_seq = $4, archived_at = now(), archived_bytes = $5, archive_after = null
			where koder_user_id = $1 and id = $2 and last_seq = $4 and expired_seq < $4 and expired_at is null and deleted_at is null
				and state in ('done', 'error', 'aborted')
				and (archived_at is null or archived_seq < $4 or replay_uri = $3)`, key.Tenant, key.Run, uri, int64(through), size)
		set = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: archive run %s: %w", key, err)
	}
	return set, nil
}
