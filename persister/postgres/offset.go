package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
)

// The statements use clock_timestamp, not the time at which the transaction began, so that a long transaction does not
// look idle.
const (
	beginOffset = `
insert into agent_log_offsets (stream, identity, position, stored_at, owner, generation, moved_at)
values ($1, $2, $3, $4, $5, $6, clock_timestamp())
on conflict do nothing`

	moveOffset = `
update agent_log_offsets set identity = $2, position = $3, stored_at = $4, owner = $5, generation = $6,
	moved_at = clock_timestamp()
where stream = $1 and identity = $7 and position = $8`

	selectOffsets = `
select stream, identity, generation, position, stored_at, owner, clock_timestamp() - moved_at from agent_log_offsets order by stream`
)

// queueOffset queues the statement that moves the offset. It waits for another transaction that moves the same offset,
// and fails when that one commits.
func queueOffset(batch *pgx.Batch, t *persister.Transfer) {
	if !t.ShouldMoveOffset() {
		return
	}
	text, args := beginOffset, []any{t.To.Stream, t.To.Identity, int64(t.To.Position),
		sqlstore.Nanoseconds(t.To.StoredAt), t.Owner,
		int64(t.To.Generation)}
	if t.From.Identity != "" {
		text, args = moveOffset, append(args, t.From.Identity, int64(t.From.Position))
	}
	batch.Queue(text, args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("offset of %s from %d to %d: %w", t.To.Stream, t.From.Position, t.To.Position,
				persister.ErrOvertaken)
		}
		return nil
	})
}

// Offsets implements persister.Store.
func (s *Store) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	rows, err := s.pool.Query(ctx, selectOffsets)
	if err != nil {
		return nil, fmt.Errorf("postgres: read offsets: %w", err)
	}
	offsets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o persister.StoredOffset, err error) {
		var generation, position, stored int64
		err = row.Scan(&o.Stream, &o.Identity, &generation, &position, &stored, &o.Owner, &o.Idle)
		if o.Generation, o.Position = uint64(generation), uint64(position); stored != 0 {
			o.StoredAt = time.Unix(0, stored).UTC()
		}
		o.Idle = max(o.Idle, 0) // the clock may have been set back
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: read offsets: %w", err)
	}
	return offsets, nil
}
