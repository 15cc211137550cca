package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// nameRuns merges by what lists find the batch's runs. The runs are locked, and what is said of them is stored.
func nameRuns(ctx context.Context, tx pgx.Tx, b *persister.Batch, p *plan, stored map[schema.RunKey]storedRun,
	dates map[string]time.Time) error {
	var runs []*persister.Run
	var tenant, run []string
	for i := range b.Runs {
		r := &b.Runs[i]
		have := stored[r.Key]
		if (!have.named.IsChangedBy(r.Naming) && len(r.Session) == 0) || p.gone[r.Key] {
			continue
		}
		if r.Naming.ModelSeq > have.named.ModelSeq && r.Naming.ModelSeq <= have.last {
			if err := addLaterModel(ctx, tx, r, dates[r.Head.Day]); err != nil {
				return err
			}
		}
		runs, tenant, run = append(runs, r), append(tenant, r.Key.Tenant), append(run, r.Key.Run)
	}
	if len(runs) == 0 {
		return nil
	}
	var u projection.Names
	rows, err := tx.Query(ctx, projection.SelectNaming, tenant, run)
	if err != nil {
		return err
	}
	var i int
	var have persister.Naming
	var session *string
	if _, err = pgx.ForEachRow(rows, []any{&i, &have.Opening, &have.OpeningSeq, &have.Model, &have.ModelSeq, &session},
		func() error {
			n := have
			if r := runs[i-1]; n.Merge(r.Naming) || len(r.Session) > 0 {
				u.Add(r.Key, n, textOf(session))
			}
			return nil
		}); err != nil || u.Empty() {
		return err
	}
	_, err = tx.Exec(ctx, projection.UpdateNaming, u.Args()...)
	return err
}

const selectLaterStarts = `
select seq, line from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq > $4
	and type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') and type = 'message.start' order by seq desc`

// addLaterModel adds to what names a run the newest message after it: the run's row does not say whether newer ones have
// named the model that it has.
func addLaterModel(ctx context.Context, tx pgx.Tx, r *persister.Run, day time.Time) error {
	rows, err := tx.Query(ctx, selectLaterStarts, r.Key.Tenant, day, r.Key.Run, int64(r.Naming.ModelSeq))
	if err != nil {
		return err
	}
	defer rows.Close()
	var seq schema.Seq
	var line []byte
	for was := r.Naming.ModelSeq; r.Naming.ModelSeq == was && rows.Next(); {
		if err := rows.Scan(&seq, &line); err != nil {
			return err
		}
		r.Naming.AddLine(seq, schema.TypeMessageStart, "", line)
	}
	rows.Close()
	return rows.Err()
}

func textOf(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}
