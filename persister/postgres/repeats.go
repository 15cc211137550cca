package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// repeatsTx implements projection.Tx.
type repeatsTx struct{ tx pgx.Tx }

func (r repeatsTx) Exec(ctx context.Context, text string, args ...any) error {
	_, err := r.tx.Exec(ctx, text, args...)
	return err
}

func (r repeatsTx) Each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	rows, err := r.tx.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanRows(rows, row)
}

// scanRows calls row for each row of a result.
func scanRows(rows pgx.Rows, row func(scan func(...any) error) error) error {
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queueRows queues a statement into a batch and calls row for each row of its result.
func queueRows(batch *pgx.Batch) func(row func(scan func(...any) error) error, text string, args ...any) {
	return func(row func(scan func(...any) error) error, text string, args ...any) {
		batch.Queue(text, args...).Query(func(rows pgx.Rows) error { return scanRows(rows, row) })
	}
}

// settleRepeats reads the lanes again of which a new frame may repeat what they have. All rows of the batch are stored,
// and their usage is counted. late reports that some of them may come after newer ones of their run.
func settleRepeats(ctx context.Context, tx pgx.Tx, b *persister.Batch, found *projection.Suspects,
	stored map[schema.RunKey]storedRun,
	dates map[string]time.Time, late bool) error {
	lanes, err := found.Confirm(ctx, repeatsTx{tx})
	if err != nil {
		return fmt.Errorf("repeats: %w", err)
	}
	if late {
		for _, l := range lateLanes(b, stored, dates) {
			lanes = projection.Include(lanes, l)
		}
	}
	for i := range lanes {
		if err := lanes[i].Reread(ctx, repeatsTx{tx}); err != nil {
			return fmt.Errorf("repeats of %s: %w", lanes[i].Key, err)
		}
	}
	return nil
}

// lateLanes returns the lanes whose events come after newer ones of their run: they may change what those are.
func lateLanes(b *persister.Batch, stored map[schema.RunKey]storedRun,
	dates map[string]time.Time) (lanes []projection.Lane) {
	run := 0
	for i := range b.Rows {
		chunk := b.Rows[i].Chunk
		for b.Runs[run].Key != chunk.Key { // both are in the order of keys
			run++
		}
		have, known := stored[chunk.Key]
		if known && b.Rows[i].Seq <= have.last && (i == 0 || b.Rows[i-1].Chunk != chunk) {
			lanes = projection.Include(lanes, projection.Lane{
				Key: chunk.Key, Name: chunk.Child, Day: dates[b.Runs[run].Head.Day], From: persister.LookBack(b.Rows[i].Seq),
			})
		}
	}
	return lanes
}
