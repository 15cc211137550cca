package tables

import (
	"context"
	"database/sql"
	"time"

	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/persister/postgres/projection"
	"agentstream/schema"
)

// asksMigration stores the open questions of runs that are stored already, and creates the index of waiting runs. It is
// Go, not SQL, so that one place decides what a question is.
func asksMigration() *goose.Migration {
	return goose.NewGoMigration(18, &goose.GoFunc{RunTx: collectAsks}, nil)
}

// linkStoredCalls links ends of calls to their starts.
const linkStoredCalls = `
update agent_run_tool_calls e set start_seq = x.start, tool = x.tool, took_ms = coalesce(e.duration_ms, extract(epoch from e.ts - x.ts) * 1000)
from (select n.koder_user_id, n.run_id, n.lane, n.call_id, n.seq, s.seq as start, s.tool, s.ts from agent_run_tool_calls n
	cross join lateral (select s.seq, s.ts, s.tool from agent_run_tool_calls s
		where s.koder_user_id = n.koder_user_id and s.run_id = n.run_id and s.lane = n.lane and s.call_id = n.call_id and s.kind = 'start' and s.seq < n.seq
		order by s.seq desc limit 1) s
	where n.kind = 'end' and n.start_seq = 0) x
where e.koder_user_id = x.koder_user_id and e.run_id = x.run_id and e.lane = x.lane and e.call_id = x.call_id and e.kind = 'end' and e.seq = x.seq`

// collectAsks reads the events of runs that have not ended.
func collectAsks(ctx context.Context, tx *sql.Tx) error {
	type place struct {
		key schema.RunKey
		day time.Time
	}
	if _, err := tx.ExecContext(ctx, `lock table agent_runs in share row exclusive mode`); err != nil {
		// readers continue, persisters wait
		return err
	}
	var runs []place
	err := eachRow(ctx, tx, func(scan func(...any) error) error {
		var p place
		err := scan(&p.key.Tenant, &p.key.Run, &p.day)
		runs = append(runs, p)
		return err
	}, `select koder_user_id, id, run_day from agent_runs where state not in ('done', 'error', 'aborted') and deleted_at is null and last_seq > floor_seq`)
	if err != nil {
		return err
	}
	for _, p := range runs {
		var events []schema.AskEvent
		err := eachRow(ctx, tx, func(scan func(...any) error) error {
			var seq schema.Seq
			var typ, child string
			var ts time.Time
			var line []byte
			err := scan(&seq, &typ, &child, &ts, &line)
			if e, ok := persister.AskEventOf(seq, ts, typ, child, line); ok {
				events = append(events, e)
			}
			return err
		}, projection.SelectAskEvents, p.key.Tenant, p.day, p.key.Run, 0, schema.AskTypes)
		if err != nil {
			return err
		}
		if open := schema.MergeAsks(nil, events); len(open) > 0 {
			if _, err := tx.ExecContext(ctx, projection.UpdateAsks, []string{p.key.Tenant}, []string{p.key.Run},
				[]string{schema.FormatAsks(open)}, []time.Time{open[0].TS}); err != nil {
				return err
			}
		}
	}
	for _, text := range []string{linkStoredCalls, `create index agent_run_tool_calls_took on agent_run_tool_calls (koder_user_id, tool, took_ms)
		include (outcome) where kind = 'end' and start_seq > 0`} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `create index agent_runs_waiting on agent_runs (koder_user_id, first_ts desc, id desc)
		where (asked_ts is not null or state in ('awaiting_approval', 'paused'))`)
	return err
}
