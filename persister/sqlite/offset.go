package sqlite

import (
	"context"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
)

const (
	beginOffset = `
insert into agent_log_offsets (stream, identity, position, stored_at, owner, moved_at, generation)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict do nothing`

	moveOffset = `
update agent_log_offsets set identity = ?2, position = ?3, stored_at = ?4, owner = ?5, moved_at = ?6, generation = ?7
where stream = ?1 and identity = ?8 and position = ?9`
)

// moveOffset moves the offset. It fails when the stored offset is not the one that the transfer moves.
func (tx *transaction) moveOffset(ctx context.Context, t *persister.Transfer) error {
	if !t.ShouldMoveOffset() {
		return nil
	}
	which, args := stBeginOffset, []any{t.To.Stream, t.To.Identity, int64(t.To.Position),
		sqlstore.Nanoseconds(t.To.StoredAt), t.Owner,
		tx.now.Format(updatedLayout), int64(t.To.Generation)}
	if t.From.Identity != "" {
		which, args = stMoveOffset, append(args, t.From.Identity, int64(t.From.Position))
	}
	n, err := tx.exec(ctx, which, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("offset of %s from %d to %d: %w", t.To.Stream, t.From.Position, t.To.Position,
			persister.ErrOvertaken)
	}
	return err
}

// Offsets implements persister.Store.
func (s *Store) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	var offsets []persister.StoredOffset
	err := s.each(ctx, sqlstore.EveryTenant, func(scan func(...any) error) (bool, error) {
		var o persister.StoredOffset
		var generation, position, stored int64
		var movedAt string
		if err := scan(&o.Stream, &o.Identity, &generation, &position, &stored, &o.Owner, &movedAt); err != nil {
			return false, err
		}
		moved, err := time.Parse(updatedLayout, movedAt)
		if o.Generation, o.Position = uint64(generation), uint64(position); stored != 0 {
			o.StoredAt = time.Unix(0, stored).UTC()
		}
		o.Idle = max(time.Since(moved), 0) // the clock may have been set back
		offsets = append(offsets, o)
		return true, err
	}, `select stream, identity, generation, position, stored_at, owner, moved_at from agent_log_offsets order by stream`)
	if err != nil {
		return nil, fmt.Errorf("sqlite: read offsets: %w", err)
	}
	return offsets, nil
}
