package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentstream/persister/deadletter"
	"agentstream/persister/sqlstore"
)

var dialect = sqlstore.Dialect{
	Name: "sqlite", Now: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
	Day:      func(day string) (any, error) { return day, nil },
	Date:     func(day string) (any, error) { return day, nil },
	Time:     func(t time.Time) any { return stamp(t) },
	Clock:    func(t time.Time) any { return t.UTC().Format(updatedLayout) },
	Position: func(n uint64) any { return fmt.Sprintf("%020d", n) },
	IDs:      hexes,
	Refused:  dataError,
	Usage:    "agent_v_usage",
	Find:     "instr",
	ByWords:  " indexed by agent_runs_words",
	ByKey:    " not indexed",
	Millis: func(column string) string {
		return "cast(round((julianday(" + column + ") - 2440587.5) * 86400000) as integer)"
	},
	AnyID: "id in (select unhex(value) from json_each(?))",
}

// hexes returns checked names as a JSON list, so that one statement takes any number.
func hexes(names []string) (any, error) {
	if _, err := deadletter.IDs(names); err != nil {
		return nil, err
	}
	list, err := json.Marshal(names)
	return string(list), err
}

// database implements sqlstore.DB. A file does not limit what it shows of other tenants.
type database struct{ s *Store }

func (d database) Read(ctx context.Context, tenant string, row func(sqlstore.Scan) error, text string,
	args ...any) error {
	return d.s.each(ctx, tenant, func(scan func(...any) error) (bool, error) { return true, row(scan) }, text, args...)
}

func (d database) Within(ctx context.Context, _ string, fn func(sqlstore.Tx) error) error {
	return d.s.inTx(ctx, func(tx *sql.Tx) error { return fn(within{tx}) })
}

// within implements sqlstore.Tx.
type within struct{ tx *sql.Tx }

func (w within) Exec(ctx context.Context, text string, args ...any) (int, error) {
	done, err := w.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

func (w within) Row(ctx context.Context, into []any, text string, args ...any) (bool, error) {
	err := w.tx.QueryRowContext(ctx, text, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
