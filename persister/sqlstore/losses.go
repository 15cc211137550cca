package sqlstore

import (
	"context"

	"agentstream/persister"
	"agentstream/schema"
)

const (
	insertLoss = `insert into agent_log_losses (stream, identity, first, last, reason, restored_at) values ($1, $2, $3, $4, $5, $6)
		on conflict do nothing`
	insertRunLoss = `insert into agent_run_losses (koder_user_id, run_id, first, last, reason) values ($1, $2, $3, $4, $5)
		on conflict do nothing`
)

// PutLosses records the losses of a transfer. What is recorded already is skipped.
func (s *Store) PutLosses(ctx context.Context, tx Tx, t *persister.Transfer) error {
	for i := range t.Losses {
		l := &t.Losses[i]
		var restored any
		if !l.Restored.IsZero() {
			restored = s.d.Clock(l.Restored)
		}
		if _, err := tx.Exec(ctx, insertLoss, l.Stream, l.Identity, int64(l.First), int64(l.Last), l.Reason,
			restored); err != nil {
			return err
		}
	}
	for i := range t.RunLosses {
		l := &t.RunLosses[i]
		if _, err := tx.Exec(ctx, insertRunLoss, l.Key.Tenant, l.Key.Run, int64(l.First), int64(l.Last),
			l.Reason); err != nil {
			return err
		}
	}
	return nil
}

// AddRunLosses records events that are lost. What is recorded already is skipped.
func (s *Store) AddRunLosses(ctx context.Context, losses []persister.RunLoss) error {
	err := s.db.Within(ctx, EveryTenant, func(tx Tx) error {
		return s.PutLosses(ctx, tx, &persister.Transfer{RunLosses: losses})
	})
	if err != nil {
		return s.wrap(err, "record losses of %d runs", len(losses))
	}
	return nil
}

// DropRunLoss removes the record of events that were found again.
func (s *Store) DropRunLoss(ctx context.Context, l persister.RunLoss) error {
	_, err := s.exec(ctx, `delete from agent_run_losses where koder_user_id = $1 and run_id = $2 and first = $3 and last = $4`,
		l.Key.Tenant, l.Key.Run, int64(l.First), int64(l.Last))
	if err != nil {
		return s.wrap(err, "drop the loss of run %s", l.Key)
	}
	return nil
}

// Losses returns what the log has lost before it was stored, in the order in which it was found.
func (s *Store) Losses(ctx context.Context) ([]persister.Loss, error) {
	all, err := list(ctx, s, EveryTenant, func(scan Scan) (l persister.Loss, err error) {
		var first, last int64
		err = scan(&l.Stream, &l.Identity, &first, &last, &l.Reason, timeIn{&l.Found}, timeIn{&l.Restored})
		l.First, l.Last = uint64(first), uint64(last)
		return l, err
	}, `select stream, identity, first, last, reason, found_at, restored_at from agent_log_losses order by found_at, stream, first`)
	if err != nil {
		return nil, s.wrap(err, "losses of the log")
	}
	return all, nil
}

// RunLosses returns the events of a tenant's runs, or of all with EveryTenant, that are lost, the newest first, at most
// limit, and the number of all.
func (s *Store) RunLosses(ctx context.Context, tenant string, limit int) (losses []persister.RunLoss, all int,
	err error) {
	const of = ` from agent_run_losses where $1 in (koder_user_id, '` + EveryTenant + `')`
	if _, err = s.row(ctx, tenant, []any{&all}, `select count(*)`+of, tenant); err == nil && all > 0 {
		losses, err = list(ctx, s, tenant, func(scan Scan) (l persister.RunLoss, err error) {
			err = scan(&l.Key.Tenant, &l.Key.Run, &l.First, &l.Last, &l.Reason, timeIn{&l.Found})
			return l, err
		}, `select koder_user_id, run_id, first, last, reason, found_at`+of+
			` order by found_at desc, koder_user_id, run_id, first limit $2`, tenant, limit)
	}
	if err != nil {
		return nil, 0, s.wrap(err, "lost events of runs")
	}
	return losses, all, nil
}

// MarkRestored notes that the runs of all objects were restored: what had left the log before anything was
// stored is where it can be.
func (s *Store) MarkRestored(ctx context.Context) error {
	_, err := s.exec(ctx, `update agent_log_losses set restored_at = `+s.d.Now+
		` where reason = $1 and restored_at is null`, persister.LossBefore)
	if err != nil {
		return s.wrap(err, "note what was restored")
	}
	return nil
}

// Unarchive takes from a run's row the object that it names, so that rows of the run are written again. It returns
// false when the run names another one, or was deleted.
func (s *Store) Unarchive(ctx context.Context, key schema.RunKey, uri string) (bool, error) {
	n, err := s.exec(ctx, `update agent_runs set replay_uri = null, archived_seq = 0, archived_at = null, archived_bytes = 0, archive_after = null,
		floor_seq = expired_seq where koder_user_id = $1 and id = $2 and replay_uri = $3 and deleted_at is null`, key.Tenant, key.Run, uri)
	if err != nil {
		return false, s.wrap(err, "unarchive run %s", key)
	}
	return n > 0, nil
}

// BeginAt notes of a run whose rows begin after a seq that the events up to it have expired.
func (s *Store) BeginAt(ctx context.Context, key schema.RunKey, expired schema.Seq) error {
	_, err := s.exec(ctx, `update agent_runs set expired_seq = $3, floor_seq = case when floor_seq < $3 then $3 else floor_seq end
		where koder_user_id = $1 and id = $2 and expired_seq < $3 and deleted_at is null`, key.Tenant, key.Run, int64(expired))
	if err != nil {
		return s.wrap(err, "begin run %s after %d", key, expired)
	}
	return nil
}
