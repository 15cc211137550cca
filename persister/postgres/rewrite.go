package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// runRewriter implements sqlstore.RunRewriter.
type runRewriter struct {
	tx   sqlstore.Tx
	key  schema.RunKey
	day  time.Time
	rows *projection.Rewrite
}

// Rewriter implements sqlstore.DB.
func (d database) Rewriter(ctx context.Context, tx sqlstore.Tx, key schema.RunKey, day string) (sqlstore.RunRewriter, error) {
	date, err := time.Parse(dayLayout, day)
	if err != nil {
		return nil, err
	}
	rows, err := projection.NewRewrite(ctx, repeatsTx{tx.(transaction).tx}, key)
	return &runRewriter{tx, key, date, rows}, err
}

// Event replaces a row. A payload that jsonb refuses is left out, as it is where events are stored.
func (r *runRewriter) Event(ctx context.Context, e *persister.Rewritten) error {
	if e.Gone {
		return r.rows.Event(ctx, e)
	}
	var payload *string
	if jsonbHolds(e.Payload) {
		text := string(e.Payload)
		payload = &text
	}
	n, err := r.tx.Exec(ctx, `update agent_run_events set line = $5, payload = $6::jsonb
		where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq = $4`, r.key.Tenant, r.day, r.key.Run, int64(e.Seq),
		string(e.Line), payload)
	if err == nil && n != 1 {
		err = fmt.Errorf("event %d: %w", e.Seq, persister.ErrMoved)
	}
	if err != nil {
		return err
	}
	return r.rows.Event(ctx, e)
}

// Finish implements sqlstore.RunRewriter.
func (r *runRewriter) Finish(ctx context.Context, text func(string) string) error {
	return r.rows.Finish(ctx, text)
}

// rewrittenTables are those with texts of events.
var rewrittenTables = []string{"agent_runs", "agent_run_events", "agent_run_messages", "agent_run_tool_calls", "agent_run_usage",
	"agent_run_words", "agent_dead_letters"}

// VacuumCommands are what Vacuum runs, for an operator. What the planner knows of columns holds values of them, and only a
// superuser may write that table again.
func VacuumCommands() string {
	return "vacuum (full, analyze) " + strings.Join(rewrittenTables, ", ") + "; vacuum full pg_statistic; checkpoint;"
}

// Vacuum writes the tables with texts of events again, without what rows held before. Each table is locked meanwhile, and the
// disk needs room for the largest one. What is in the write-ahead log stays there until it is recycled. The error is of
// what only a superuser may do, or of the tables.
func (s *Store) Vacuum(ctx context.Context) error {
	return s.pool.with(ctx, func(conn *pgxpool.Conn) error {
		for _, table := range rewrittenTables {
			var there bool
			err := conn.QueryRow(ctx, `select to_regclass($1) is not null`, table).Scan(&there)
			if err == nil && there {
				_, err = conn.Exec(ctx, `vacuum (full, analyze) `+table)
			}
			if err != nil {
				return fmt.Errorf("postgres: vacuum %s: %w", table, err)
			}
		}
		for _, text := range []string{`vacuum full pg_catalog.pg_statistic`, `checkpoint`} {
			if _, err := conn.Exec(ctx, text); err != nil {
				return fmt.Errorf("postgres: %s: %w", text, err)
			}
		}
		return nil
	})
}
