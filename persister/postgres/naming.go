package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
)

// nameRuns merges by what lists find the batch's runs. The runs are locked, and what is said of them is stored.
func nameRuns(ctx context.Context, tx pgx.Tx, b *persister.Batch, p *plan) error {
	var runs []*persister.Run
	var tenant, run []string
	for i := range b.Runs {
		r := &b.Runs[i]
		if (r.Naming != persister.Naming{} || len(r.Session) > 0) && !p.gone[r.Key] {
			runs, tenant, run = append(runs, r), append(tenant, r.Key.Tenant), append(run, r.Key.Run)
		}
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

func textOf(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}
