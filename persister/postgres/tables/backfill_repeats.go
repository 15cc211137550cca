package tables

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"

	"agentstream/persister/postgres/projection"
)

// repeatsMigration takes away the rows of events that say once more what their run has, and counts usage once. It is
// Go, not SQL, so that one place decides what a repeat is.
func repeatsMigration() *goose.Migration {
	return goose.NewGoMigration(22, &goose.GoFunc{RunTx: settleRepeats}, nil)
}

// nameEnds fills in the ids of messages that have ended, of runs that go on: what comes may repeat them.
const nameEnds = `
update agent_run_messages e set message_id = p.id from agent_runs r, agent_run_messages m
	cross join lateral (select agent_event_payload(m.koder_user_id, m.run_day, m.run_id, m.seq) -> 'message_id' as value) v
	cross join lateral (select coalesce(case jsonb_typeof(v.value) when 'string' then v.value #>> '{}' end, '') as id) p
where m.kind = 'end' and m.message_id = '' and r.koder_user_id = m.koder_user_id and r.id = m.run_id
	and r.state not in ('done', 'error', 'aborted') and r.deleted_at is null and p.id <> '' and octet_length(p.id) <= 200
	and e.koder_user_id = m.koder_user_id and e.run_id = m.run_id and e.lane = m.lane and e.kind = m.kind and e.seq = m.seq`

// repeatingLanes finds lanes in which an end follows another, or an id begins or ends twice. What is longer stays as it
// is.
const repeatingLanes = `
select x.koder_user_id, x.run_id, x.lane, r.run_day from (
	select koder_user_id, run_id, lane from (select koder_user_id, run_id, lane, kind, lag(kind) over (partition by koder_user_id, run_id, lane order by seq) as before
		from agent_run_messages where kind in ('start', 'end')) m where kind = 'end' and before = 'end'
	union
	select koder_user_id, run_id, lane from agent_run_messages where kind = 'start' and message_id <> ''
		group by koder_user_id, run_id, lane, message_id having count(*) > 1
	union
	select koder_user_id, run_id, lane from agent_run_tool_calls group by koder_user_id, run_id, lane, call_id, kind having count(*) > 1) x
join agent_runs r on r.koder_user_id = x.koder_user_id and r.id = x.run_id and r.deleted_at is null and r.last_seq - r.floor_seq <= 100000`

// settleRepeats reads those lanes one after the other.
func settleRepeats(ctx context.Context, tx *sql.Tx) error {
	for _, text := range []string{
		`lock table agent_runs in share row exclusive mode`, // readers continue, persisters wait
		nameEnds,
		`create index agent_run_messages_named on agent_run_messages (koder_user_id, run_id, lane, message_id, seq)`,
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	var lanes []projection.Lane
	err := eachRow(ctx, tx, func(scan func(...any) error) error {
		var l projection.Lane
		err := scan(&l.Key.Tenant, &l.Key.Run, &l.Name, &l.Day)
		lanes = append(lanes, l)
		return err
	}, repeatingLanes)
	for i := range lanes {
		if err == nil {
			err = lanes[i].Reread(ctx, repeatsTx{tx})
		}
	}
	return err
}

// repeatsTx implements projection.Tx.
type repeatsTx struct{ tx *sql.Tx }

func (r repeatsTx) Exec(ctx context.Context, text string, args ...any) error {
	_, err := r.tx.ExecContext(ctx, text, args...)
	return err
}

func (r repeatsTx) Each(ctx context.Context, row func(scan func(...any) error) error, text string, args ...any) error {
	return eachRow(ctx, r.tx, row, text, args...)
}
