package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister/postgres/tables"
	"agentstream/persister/sqlstore"
)

// everyTenant is the tenant of work for all tenants at once: appends, upkeep, expiry.
const everyTenant = tables.EveryTenant

const setScope = `select set_config('` + tables.TenantSetting + `', $1, true)`

// scope makes the statements that are queued after it see the rows of one tenant, or of everyTenant. It is in effect
// until the transaction ends. A batch that is not part of a transaction is one itself.
func scope(b *pgx.Batch, tenant string) { b.Queue(setScope, tenant).Exec(discard) }

// setKeys is setScope for statements that look up the keys of a batch in indexes: a plan that was made while a table
// was small, or before it was analyzed, must not read the whole table for each row.
const setKeys = `select set_config('` + tables.TenantSetting + `', $1, true), set_config('enable_seqscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

func discard(pgconn.CommandTag) error { return nil }

// within runs fn in a transaction that sees the rows of one tenant, or of everyTenant.
func (s *Store) within(ctx context.Context, tenant string, fn func(tx pgx.Tx) error) error {
	slot, err := sqlstore.Connection(ctx, s.conns, tenant)
	if err != nil {
		return err
	}
	defer slot.Release()
	return s.runInTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setScope, tenant); err != nil {
			return err
		}
		return fn(tx)
	})
}

// runInTx runs fn in a transaction.
func (s *Store) runInTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return s.pool.with(ctx, func(conn *pgxpool.Conn) error { return pgx.BeginFunc(ctx, conn, fn) })
}

// query runs one statement for one tenant, in one round trip, and calls read with its rows. read must read them to the
// end.
func (s *Store) query(ctx context.Context, tenant string, read func(pgx.Rows) error, text string, args ...any) error {
	slot, err := sqlstore.Connection(ctx, s.conns, tenant)
	if err != nil {
		return err
	}
	defer slot.Release()
	var batch pgx.Batch
	scope(&batch, tenant)
	batch.Queue(text, args...).Query(read)
	return s.pool.with(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, &batch).Close() })
}

// queryRow is query for one row. Without a row it returns pgx.ErrNoRows.
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
