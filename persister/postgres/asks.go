package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// mergeAsks updates the open questions of the batch's runs. The runs are locked, and all rows are stored. It reads the
// stored events, so that packs may arrive in any order and more than once.
func mergeAsks(ctx context.Context, tx pgx.Tx, b *persister.Batch, p *plan, stored map[schema.RunKey]storedRun,
	dates map[string]time.Time) error {
	var tenant, run, asks []string
	var ts []*time.Time
	for i := range b.Runs {
		r := &b.Runs[i]
		have := stored[r.Key].asks
		from := r.AsksFrom(have != "")
		if from == 0 || p.gone[r.Key] {
			continue
		}
		events, err := askEvents(ctx, tx, r.Key, dates[r.Head.Day], from)
		if err != nil {
			return fmt.Errorf("questions of %s: %w", r.Key, err)
		}
		open := schema.MergeAsks(schema.ParseAsks(have), events)
		text := schema.FormatAsks(open)
		if text == have {
			continue
		}
		tenant, run, asks, ts = append(tenant, r.Key.Tenant), append(run, r.Key.Run), append(asks, text), append(ts, nil)
		if len(open) > 0 {
			ts[len(ts)-1] = &open[0].TS
		}
	}
	if tenant == nil {
		return nil
	}
	_, err := tx.Exec(ctx, projection.UpdateAsks, tenant, run, asks, ts)
	return err
}

func askEvents(ctx context.Context, tx pgx.Tx, key schema.RunKey, day time.Time,
	from schema.Seq) (events []schema.AskEvent, err error) {
	rows, err := tx.Query(ctx, projection.SelectAskEvents, key.Tenant, day, key.Run, int64(from), schema.AskTypes)
	if err != nil {
		return nil, err
	}
	var seq schema.Seq
	var typ, child, line string
	var ts time.Time
	_, err = pgx.ForEachRow(rows, []any{&seq, &typ, &child, &ts, &line}, func() error {
		if e, ok := persister.AskEventOf(seq, ts, typ, child, []byte(line)); ok {
			events = append(events, e)
		}
		return nil
	})
	return events, err
}
