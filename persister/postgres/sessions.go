package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// described holds the new session events of one run of a batch.
type described struct {
	key    schema.RunKey
	day    time.Time
	events []persister.SessionEvent
}

// sessions returns the session events that were not stored before.
func (n *news) sessions(b *persister.Batch, p *plan, dates map[string]time.Time) (all []described) {
	at := 0
	for i := range b.Runs {
		run := &b.Runs[i]
		ways, rows := p.ways[at:at+run.Rows], b.Rows[at:at+run.Rows]
		at += run.Rows
		d := described{key: run.Key, day: dates[run.Head.Day]}
		row := 0
		for _, e := range run.Session {
			for rows[row].Seq != e.Seq { // both are in the order of seqs; of two rows with the same seq the first counts
				row++
			}
			if ways[row] == wayCopy || ways[row] == wayInsert && n.stored[run.Key][e.Seq] {
				d.events = append(d.events, e)
			}
		}
		if len(d.events) > 0 {
			all = append(all, d)
		}
	}
	return all
}

const selectSessions = `
select x.i, r.session, r.session_seq from unnest($1::text[], $2::text[]) with ordinality as x(t, id, i)
join agent_runs r on r.koder_user_id = x.t and r.id = x.id`

// selectSessionEvents finds the rows after an event by the primary key: few, because packs of one run arrive nearly in
// order.
const selectSessionEvents = `
select seq, type, line from agent_run_events where koder_user_id = $1 and run_day = $2 and run_id = $3 and seq > $4
	and child_id is null and type in ('session.created', 'session.updated', 'session.archived', 'session.deleted')`

const updateSessions = `
update agent_runs r set session = nullif(x.session, ''), session_seq = x.seq, session_agent = nullif(x.agent, ''),
	session_archived_at = nullif(x.archived, '')::timestamptz, session_deleted_at = nullif(x.deleted, '')::timestamptz
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[]) as x(t, id, session, seq, agent, archived, deleted)
where r.koder_user_id = x.t and r.id = x.id`

// mergeSessions merges new session events into the stored sessions. The runs are locked, and all rows of the batch are
// stored.
func mergeSessions(ctx context.Context, tx pgx.Tx, all []described) error {
	if len(all) == 0 {
		return nil
	}
	var tenant, run, session, agent, archived, deleted []string
	var seq []int64
	for i := range all {
		tenant, run = append(tenant, all[i].key.Tenant), append(run, all[i].key.Run)
	}
	stored := make([]persister.Session, len(all))
	rows, err := tx.Query(ctx, selectSessions, tenant, run)
	if err != nil {
		return err
	}
	var i int
	var text *string
	var at schema.Seq
	if _, err = pgx.ForEachRow(rows, []any{&i, &text, &at}, func() error {
		stored[i-1].Seq = at
		if text != nil {
			stored[i-1].Description = json.RawMessage(*text)
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range all {
		s := &stored[i]
		if err := all[i].merge(ctx, tx, s); err != nil {
			return err
		}
		f := schema.FactsOf(s.Description)
		session, seq, agent = append(session, string(s.Description)), append(seq, int64(s.Seq)), append(agent, f.Agent)
		archived, deleted = append(archived, timeText(f.Archived)), append(deleted, timeText(f.Deleted))
	}
	_, err = tx.Exec(ctx, updateSessions, tenant, run, session, seq, agent, archived, deleted)
	return err
}

func (d *described) merge(ctx context.Context, tx pgx.Tx, s *persister.Session) error {
	if s.Late(d.events) {
		rows, err := tx.Query(ctx, selectSessionEvents, d.key.Tenant, d.day, d.key.Run, int64(d.events[0].Seq))
		if err != nil {
			return err
		}
		var seq schema.Seq
		var typ, line string
		if _, err := pgx.ForEachRow(rows, []any{&seq, &typ, &line}, func() error {
			if e, ok := persister.SessionEventOf(seq, typ, []byte(line)); ok {
				d.events = append(d.events, e)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("events of session %s: %w", d.key, err)
		}
	}
	s.Merge(d.events)
	return nil
}

// timeText returns "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
