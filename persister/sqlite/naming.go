package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/schema"
)

const selectNaming = `select coalesce(opening, ''), opening_seq, coalesce(model, ''), model_seq, session from agent_runs where koder_user_id = ? and id = ?`

const updateNaming = `update agent_runs set opening = nullif(?, ''), opening_seq = ?, model = nullif(?, ''), model_seq = ?, title = nullif(?, ''),
	tags = nullif(?, ''), words = ? where koder_user_id = ? and id = ?`

// name merges by what lists find the batch's runs. What is said of the runs is stored.
func (tx *transaction) name(ctx context.Context, b *persister.Batch, floors map[schema.RunKey]schema.Seq) error {
	for i := range b.Runs {
		r := &b.Runs[i]
		have := tx.runs[i].named
		if (!have.IsChangedBy(r.Naming) && len(r.Session) == 0) || floors[r.Key] == schema.MaxSeq {
			continue
		}
		if r.Naming.ModelSeq > have.ModelSeq && have.ModelSeq > 0 {
			if err := tx.addLaterModel(ctx, r); err != nil {
				return err
			}
		}
		if err := rename(r, tx.queryRow(ctx, stNaming, r.Key.Tenant, r.Key.Run), func(args ...any) error {
			_, err := tx.exec(ctx, stUpdateNaming, args...)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

const selectLaterStarts = `select seq, line from agent_run_events where koder_user_id = ? and run_id = ? and seq > ? + 0
	and type in ('message.start', 'message.end') and type = 'message.start'
	order by seq desc`

// addLaterModel adds to what names a run the newest message after it: the run's row does not say whether newer ones have
// named the model that it has.
func (tx *transaction) addLaterModel(ctx context.Context, r *persister.Run) error {
	rows, err := tx.statement(ctx, stLaterStarts).QueryContext(ctx, r.Key.Tenant, r.Key.Run, int64(r.Naming.ModelSeq))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var seq schema.Seq
	var line []byte
	for was := r.Naming.ModelSeq; r.Naming.ModelSeq == was && rows.Next(); {
		if err := rows.Scan(&seq, &line); err != nil {
			return err
		}
		r.Naming.AddLine(seq, schema.TypeMessageStart, "", line)
	}
	return errors.Join(rows.Err(), rows.Close())
}

func rename(r *persister.Run, row *sql.Row, update func(args ...any) error) error {
	var have persister.Naming
	var session sql.NullString
	if err := row.Scan(&have.Opening, &have.OpeningSeq, &have.Model, &have.ModelSeq, &session); err != nil {
		return err
	}
	if !have.Merge(r.Naming) && len(r.Session) == 0 {
		return nil
	}
	d := have.Columns(json.RawMessage(session.String))
	return update(have.Opening, int64(have.OpeningSeq), have.Model, int64(have.ModelSeq), d.Title, d.Tags, d.Words,
		r.Key.Tenant, r.Key.Run)
}

// wordsIndex has all that a search of the list looks at.
const wordsIndex = `create index agent_runs_words on agent_runs (koder_user_id, first_ts desc, id desc, words)
	where expired_at is null and deleted_at is null`

// namesMigration names runs that are stored already. It is Go, not SQL, so that one place decides what names a run.
func namesMigration() *goose.Migration {
	return goose.NewGoMigration(24, &goose.GoFunc{RunTx: nameStored}, nil)
}

// nameStored reads one run after the other: there is no other writer.
func nameStored(ctx context.Context, tx *sql.Tx) error {
	var keys []schema.RunKey
	rows, err := tx.QueryContext(ctx, `select koder_user_id, id from agent_runs where deleted_at is null and expired_at is null`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key schema.RunKey
		if err := rows.Scan(&key.Tenant, &key.Run); err != nil {
			return err
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err == nil {
			err = nameRun(ctx, tx, key)
		}
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, wordsIndex)
	}
	return err
}

func nameRun(ctx context.Context, tx *sql.Tx, key schema.RunKey) error {
	r := persister.Run{Key: key, Session: make([]persister.SessionEvent, 1)} // it is named whatever the events say
	rows, err := tx.QueryContext(ctx, `select seq, type, coalesce(child_id, ''), line from agent_run_events where koder_user_id = ? and run_id = ?
		and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end')`, key.Tenant, key.Run)
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
		r.Naming.AddLine(seq, typ, child, line)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	return rename(&r, tx.QueryRowContext(ctx, selectNaming, key.Tenant, key.Run), func(args ...any) error {
		_, err := tx.ExecContext(ctx, updateNaming, args...)
		return err
	})
}
