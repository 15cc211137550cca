package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// Claim returns at most limit runs that have ended, have not changed for settle and are not archived. Other calls do
// not return them for the time of lease. A lease only avoids double work: a run may also be archived without one.
func (s *Store) Claim(ctx context.Context, settle, lease time.Duration, limit int) (keys []schema.RunKey, err error) {
	now := time.Now().UTC()
	result, err := s.write.QueryContext(ctx, `update agent_runs set archive_after = ?1 where (koder_user_id, id) in (
			select koder_user_id, id from agent_runs where `+sqlstore.Unarchived+`
				and updated_at <= ?2 and (archive_after is null or archive_after <= ?3) limit ?4)
		returning koder_user_id, id`, stamp(now.Add(lease)), now.Add(-settle).Format(updatedLayout), stamp(now), limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: claim runs to archive: %w", err)
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	for result.Next() {
		var key schema.RunKey
		if err := result.Scan(&key.Tenant, &key.Run); err != nil {
			return nil, fmt.Errorf("sqlite: claim runs to archive: %w", err)
		}
		keys = append(keys, key)
	}
	if err := result.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: claim runs to archive: %w", err)
	}
	return keys, nil
}

// Defer prevents that Claim returns a run for the time of wait.
func (s *Store) Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error {
	_, err := s.write.ExecContext(ctx, `update agent_runs set archive_after = ? where koder_user_id = ? and id = ?`,
		stamp(time.Now().Add(wait)), key.Tenant, key.Run)
	if err != nil {
		return fmt.Errorf("sqlite: defer run %s: %w", key, err)
	}
	return nil
}

// Backlog returns the number of runs that Claim would return if none were claimed, at most limit.
func (s *Store) Backlog(ctx context.Context, settle time.Duration, limit int) (n int, err error) {
	err = s.read.QueryRowContext(ctx, `select count(*) from (select 1 from agent_runs where `+sqlstore.Unarchived+
		` and updated_at <= ? limit ?)`,
		time.Now().UTC().Add(-settle).Format(updatedLayout), limit).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("sqlite: runs to archive: %w", err)
	}
	return n, nil
}

// SetArchived records that an object of size bytes at uri holds the run up to through. It returns false and changes
// nothing when the run has newer events, has expired or was deleted, or has another object
// of these events by now.
func (s *Store) SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool,
	error) {
	done, err := s.write.ExecContext(ctx, `update agent_runs
		set replay_uri = ?1, archived_seq = ?2, archived_at = ?3, archived_bytes = ?4, archive_after = null
		where koder_user_id = ?5 and id = ?6 and last_seq = ?2 and expired_seq < ?2 and expired_at is null and deleted_at is null
			and state in ('done', 'error', 'aborted') and (archived_at is null or archived_seq < ?2 or replay_uri = ?1)`,
		uri, int64(through), stamp(time.Now()), size, key.Tenant, key.Run)
	var n int64
	if err == nil {
		n, err = done.RowsAffected()
	}
	if err != nil {
		return false, fmt.Errorf("sqlite: archive run %s: %w", key, err)
	}
	return n > 0, nil
}
