package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// namesMigration names runs that are stored already. It is Go, not SQL, so that one place decides what names a run.
func namesMigration() *goose.Migration {
	return goose.NewGoMigration(24, &goose.GoFunc{RunTx: nameStored}, nil)
}

// wordsIndex has all that a search of the list looks at. It is in no order of the list, so that pages without a search
// read their own, smaller index.
const wordsIndex = `create index agent_runs_words on agent_runs (koder_user_id) include (first_ts, id, words)
	where expired_at is null and deleted_at is null`

// selectNamingEvents selects what may name a run.
const selectNamingEvents = `select seq, type, coalesce(child_id, ''), line from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3
	and seq in (select seq from agent_run_messages where koder_user_id = $1 and run_id = $3)`

type storedName struct {
	key     schema.RunKey
	day     time.Time
	session sql.NullString
}

// nameStored reads one run after the other.
func nameStored(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `lock table agent_runs in share row exclusive mode`); err != nil {
		// readers continue, persisters wait
		return err
	}
	var runs []storedName
	err := eachRow(ctx, tx, func(scan func(...any) error) error {
		var r storedName
		err := scan(&r.key.Tenant, &r.key.Run, &r.day, &r.session)
		runs = append(runs, r)
		return err
	}, `select koder_user_id, id, run_day, session from agent_runs where deleted_at is null and expired_at is null`)
	for i := range runs {
		if err == nil {
			err = runs[i].name(ctx, tx)
		}
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, wordsIndex)
	}
	return err
}

func (r *storedName) name(ctx context.Context, tx *sql.Tx) error {
	var n persister.Naming
	err := eachRow(ctx, tx, func(scan func(...any) error) error {
		var seq schema.Seq
		var typ, child string
		var line []byte
		err := scan(&seq, &typ, &child, &line)
		if e, bad := schema.ScanLine(line); err == nil && bad == nil && persister.IsNaming(typ) {
			n.Add(seq, typ, child, e.Payload())
		}
		return err
	}, selectNamingEvents, r.key.Tenant, r.day, r.key.Run)
	if err != nil {
		return err
	}
	var u projection.Names
	u.Add(r.key, n, json.RawMessage(r.session.String))
	_, err = tx.ExecContext(ctx, projection.UpdateNaming, u.Args()...)
	return err
}
