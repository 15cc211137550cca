package postgres

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"agentstream/persister/deadletter"
	"agentstream/persister/sqlstore"
)

var dialect = sqlstore.Dialect{
	Name: "postgres", Now: "now()", ForUpdate: " for update",
	Marks: markShared, Holds: holdAlone,
	Usage:       "agent_run_usage",
	Find:        "strpos",
	AtOnce:      " offset 0",
	Millis:      func(column string) string { return "(extract(epoch from " + column + ") * 1000)::bigint" },
	Projections: []string{"agent_run_messages", "agent_run_tool_calls"},
	Day:         func(day string) (any, error) { return time.Parse(dayLayout, day) },
	Date:        func(day string) (any, error) { return time.Parse(time.DateOnly, day) },
	Time:        func(t time.Time) any { return t },
	Clock:       func(t time.Time) any { return t },
	Position:    func(n uint64) any { return pgtype.Numeric{Int: new(big.Int).SetUint64(n), Valid: true} },
	IDs:         func(names []string) (any, error) { return deadletter.IDs(names) },
	Refused:     dataError,
	AnyID:       "id = any(?::bytea[])",
}

// database implements sqlstore.DB.
type database struct{ s *Store }

func (d database) Read(ctx context.Context, tenant string, row func(sqlstore.Scan) error, text string,
	args ...any) error {
	return d.s.query(ctx, tenant, func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}, text, args...)
}

func (d database) Within(ctx context.Context, tenant string, fn func(sqlstore.Tx) error) error {
	return d.s.within(ctx, tenant, func(tx pgx.Tx) error { return fn(transaction{tx}) })
}

// transaction implements sqlstore.Tx.
type transaction struct{ tx pgx.Tx }

func (t transaction) Exec(ctx context.Context, text string, args ...any) (int, error) {
	tag, err := t.tx.Exec(ctx, text, args...)
	return int(tag.RowsAffected()), err
}

func (t transaction) Row(ctx context.Context, into []any, text string, args ...any) (bool, error) {
	err := t.tx.QueryRow(ctx, text, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
