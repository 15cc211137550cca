package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"agentstream/persister/postgres/tables"
)

// everyTenant is the scope of work for all tenants at once: appends, upkeep, expiry.
const everyTenant = tables.EveryTenant

const setScope = `select set_config('` + tables.TenantSetting + `', $1, true)`

// scope makes the statements that are queued behind it see the rows of one tenant, or of everyTenant. It
// lasts to the end of the transaction; a batch outside of one is one by itself.
func scope(b *pgx.Batch, tenant string) { b.Queue(setScope, tenant).Exec(discard) }

// setKeys is setScope for statements that look up what a batch names, for which there are indexes: a plan that was made
// while a table was small, or before anything was known of it, must not read all of it for each row.
const setKeys = `select set_config('` + tables.TenantSetting + `', $1, true), set_config('enable_seqscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

func discard(pgconn.CommandTag) error { return nil }

// within runs fn in a transaction that sees the rows of one tenant, or of everyTenant.
func (s *Store) within(ctx context.Context, tenant string, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setScope, tenant); err != nil {
			return err
		}
		return fn(tx)
	})
}

// query runs one statement for one tenant, in one round trip, and hands its rows to read, which must read
// them to their end.
func (s *Store) query(ctx context.Context, tenant string, read func(pgx.Rows) error, text string, args ...any) error {
	var batch pgx.Batch
	scope(&batch, tenant)
	batch.Queue(text, args...).Query(read)
	return s.pool.SendBatch(ctx, &batch).Close()
}

// queryRow is query for one row. Without one it gives pgx.ErrNoRows.
func (s *Store) queryRow(ctx context.Context, tenant string, into []any, text string, args ...any) error {
	return s.query(ctx, tenant, func(rows pgx.Rows) error {
		if !rows.Next() {
			if err := rows.Err(); err != nil {
				return err
			}
			return pgx.ErrNoRows
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}, text, args...)
}
