package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // for idsTable
	"errors"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/schema"
)

// isFrameType holds for the types of frames.
const isFrameType = `type in ('message.start', 'message.end', 'tool.start', 'tool.end')`

const (
	selectFramesAfter = `select koder_user_id, run_id, seq, type, coalesce(child_id, ''), line from agent_run_events
		where koder_user_id = ? and run_id = ? and seq > ? + 0 and ` + isFrameType
	selectAllFrames = `select koder_user_id, run_id, seq, type, coalesce(child_id, ''), line from agent_run_events where ` + isFrameType
)

// addMissingIDs keeps the ids of a run's frames after an event: a program of before, which does not know of them, has
// stored events of the run since this one has.
func (tx *transaction) addMissingIDs(ctx context.Context, key schema.RunKey, after schema.Seq) error {
	rows, err := tx.statement(ctx, stFramesAfter).QueryContext(ctx, key.Tenant, key.Run, int64(after))
	if err != nil {
		return err
	}
	return readIDs(rows, func(args ...any) error {
		_, err := tx.exec(ctx, stInsertIDs+statement(len(keepSizes))-1, args...)
		return err
	})
}

// readIDs calls keep with the arguments of insertID of each frame that has an id.
func readIDs(rows *sql.Rows, keep func(args ...any) error) error {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key schema.RunKey
		var seq schema.Seq
		var typ, child string
		var line []byte
		if err := rows.Scan(&key.Tenant, &key.Run, &seq, &typ, &child, &line); err != nil {
			return err
		}
		r, err := schema.ScanLine(line)
		if err != nil {
			continue // as for persister.Repeats
		}
		id := persister.FrameID(typ, r.Payload())
		if id == "" {
			continue
		}
		if err := keep(key.Tenant, key.Run, frameSum(typ, child, id), int64(seq)); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// idsTable makes the table.
//
//go:embed ids.sql
var idsTable string

// idsMigration keeps the ids of frames that are stored already. It is Go, not SQL, so that one place decides what an id
// is.
func idsMigration() *goose.Migration {
	return goose.NewGoMigration(32, &goose.GoFunc{RunTx: keepStoredIDs}, nil)
}

func keepStoredIDs(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, idsTable); err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, insertID)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	rows, err := tx.QueryContext(ctx, selectAllFrames)
	if err != nil {
		return err
	}
	if err := readIDs(rows, func(args ...any) error {
		_, err := insert.ExecContext(ctx, args...)
		return err
	}); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `update agent_runs set framed_seq = last_seq`)
	return err
}
