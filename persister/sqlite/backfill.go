package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// known are the migrations of this program.
var known = sqlstore.NewMigrations(migrations,
	map[int64]string{3: "digest_runs", 18: "collect_asks", 22: "mark_repeats", 24: "name_runs", 32: "frame_ids"})

// digestMigration fills in the time of the first event, the usage and the reason of runs that are stored already. It
// is Go, not SQL, so that one place decides what counts as usage.
func digestMigration() *goose.Migration {
	return goose.NewGoMigration(3, &goose.GoFunc{RunTx: digestRuns}, nil)
}

// digestRuns reads one run after the other: there is no other writer.
func digestRuns(ctx context.Context, tx *sql.Tx) error {
	var key schema.RunKey
	for {
		err := tx.QueryRowContext(ctx, `select koder_user_id, id from agent_runs where (koder_user_id, id) > (?, ?)
			order by koder_user_id, id limit 1`, key.Tenant, key.Run).Scan(&key.Tenant, &key.Run)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = tx.ExecContext(ctx, `update agent_run_lanes set joined_at = coalesce((select r.first_ts from agent_runs r
				where r.koder_user_id = agent_run_lanes.koder_user_id and r.id = agent_run_lanes.run_id), '')`)
			return err
		}
		if err == nil {
			err = digestRun(ctx, tx, key)
		}
		if err != nil {
			return err
		}
	}
}

func digestRun(ctx context.Context, tx *sql.Tx, key schema.RunKey) error {
	var d persister.Digest
	rows, err := tx.QueryContext(ctx, `select seq, type, coalesce(child_id, ''), line from agent_run_events
		where koder_user_id = ? and run_id = ? and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')
			and type in ('run.lifecycle', 'message.end')`, key.Tenant, key.Run)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq schema.Seq
		var typ, child string
		var line []byte
		if err := rows.Scan(&seq, &typ, &child, &line); err != nil {
			return err
		}
		if r, err := schema.ScanLine(line); err == nil {
			d.Add(seq, time.Time{}, typ, child, r.Payload())
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var text, first string
	err = tx.QueryRowContext(ctx, `select coalesce((select ts from agent_run_events where koder_user_id = ?1 and run_id = ?2 and seq = 1), ''),
		first_ts from agent_runs where koder_user_id = ?1 and id = ?2`, key.Tenant, key.Run).Scan(&text, &first)
	if err != nil {
		return err
	}
	if ts, err := time.Parse(time.RFC3339Nano, text); err == nil {
		first = stamp(ts)
	}
	_, err = tx.ExecContext(ctx, `update agent_runs set first_ts = ?, usage = ?, reason = ?, reason_of = ?, reason_seq = ?
		where koder_user_id = ? and id = ?`, first, d.Sum(nil).String(), d.Reason, string(d.ReasonOf), int64(d.ReasonSeq), key.Tenant, key.Run)
	return err
}
