package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/schema"
)

const updateAsks = `update agent_runs set asks = nullif(?, ''), asked_ts = ? where koder_user_id = ? and id = ?`

// selectAskEvents finds the rows from an event on by the primary key: few, because packs of one run arrive nearly in
// order.
var selectAskEvents = `select seq, type, coalesce(child_id, ''), ts, line from agent_run_events where koder_user_id = ? and run_id = ? and seq >= ?
	and type in ('` + strings.Join(schema.AskTypes, "', '") + `')`

// mergeAsks updates the open questions of the batch's runs. All rows are stored. It reads the stored events, so that
// packs may arrive in any order and more than once.
func (tx *transaction) mergeAsks(ctx context.Context, b *persister.Batch, floors map[schema.RunKey]schema.Seq) error {
	for i := range b.Runs {
		r := &b.Runs[i]
		if r.AsksFrom(true) == 0 || floors[r.Key] == schema.MaxSeq {
			continue
		}
		have := tx.runs[i].asks
		from := r.AsksFrom(have != "")
		if from == 0 {
			continue
		}
		rows, err := tx.statement(ctx, stAskEvents).QueryContext(ctx, r.Key.Tenant, r.Key.Run, int64(from))
		if err != nil {
			return err
		}
		events, err := readAskEvents(rows)
		if err != nil {
			return fmt.Errorf("questions of %s: %w", r.Key, err)
		}
		open := schema.MergeAsks(schema.ParseAsks(have), events)
		if text := schema.FormatAsks(open); text != have {
			if _, err := tx.exec(ctx, stUpdateAsks, text, oldestAskTime(open), r.Key.Tenant, r.Key.Run); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldestAskTime returns the time of the oldest question, nil when there is none.
func oldestAskTime(open []schema.Ask) any {
	if len(open) == 0 {
		return nil
	}
	return stamp(open[0].TS)
}

func readAskEvents(rows *sql.Rows) (events []schema.AskEvent, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq schema.Seq
		var typ, child, text string
		var line []byte
		if err := rows.Scan(&seq, &typ, &child, &text, &line); err != nil {
			return nil, err
		}
		ts, _ := time.Parse(time.RFC3339Nano, text) // as rowArgs wrote it
		if e, ok := persister.AskEventOf(seq, ts, typ, child, line); ok {
			events = append(events, e)
		}
	}
	return events, rows.Err()
}

// asksMigration stores the open questions of runs that are stored already. It is Go, not SQL, so that one place
// decides what a question is.
func asksMigration() *goose.Migration {
	return goose.NewGoMigration(18, &goose.GoFunc{RunTx: collectAsks}, nil)
}

func collectAsks(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `select koder_user_id, id from agent_runs where state not in ('done', 'error', 'aborted') and deleted_at is null`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var keys []schema.RunKey
	for rows.Next() {
		var key schema.RunKey
		if err := rows.Scan(&key.Tenant, &key.Run); err != nil {
			return err
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, key := range keys {
		rows, err := tx.QueryContext(ctx, selectAskEvents, key.Tenant, key.Run, 0)
		if err != nil {
			return err
		}
		events, err := readAskEvents(rows)
		if err != nil {
			return err
		}
		if open := schema.MergeAsks(nil, events); len(open) > 0 {
			if _, err := tx.ExecContext(ctx, updateAsks, schema.FormatAsks(open), oldestAskTime(open), key.Tenant,
				key.Run); err != nil {
				return err
			}
		}
	}
	return nil
}
