package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

const selectSession = `select session, session_seq from agent_runs where koder_user_id = ? and id = ?`

const updateSession = `update agent_runs set session = ?, session_seq = ?, session_agent = nullif(?, ''), session_archived_at = ?,
	session_deleted_at = ? where koder_user_id = ? and id = ?`

// selectSessionEvents finds the rows after an event by the primary key: few, because packs of one run arrive nearly
// in order.
const selectSessionEvents = `select seq, type, line from agent_run_events where koder_user_id = ? and run_id = ? and seq > ? + 0
	and child_id is null and type in ('session.created', 'session.updated', 'session.archived', 'session.deleted')`

// describe merges the session events of the batch into the stored session. It runs before the rows are inserted, so
// that it can skip events that are stored already, or were stored and removed.
func (tx *transaction) describe(ctx context.Context, r *persister.Run, floor schema.Seq) error {
	var events []persister.SessionEvent
	for _, e := range r.Session {
		if e.Seq <= floor {
			continue
		}
		var n int
		if err := tx.queryRow(ctx, stCountRow, r.Key.Tenant, r.Key.Run, int64(e.Seq)).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil
	}
	var s persister.Session
	var text sql.NullString
	if err := tx.queryRow(ctx, stSession, r.Key.Tenant, r.Key.Run).Scan(&text, &s.Seq); err != nil {
		return err
	}
	if text.Valid {
		s.Description = json.RawMessage(text.String)
	}
	if s.Late(events) {
		behind, err := tx.sessionEvents(ctx, r.Key, events[0].Seq)
		if err != nil {
			return fmt.Errorf("events of session %s: %w", r.Key, err)
		}
		events = append(events, behind...)
	}
	s.Merge(events)
	text = sql.NullString{String: string(s.Description), Valid: s.Description != nil}
	f := schema.FactsOf(s.Description)
	_, err := tx.exec(ctx, stUpdateSession, text, int64(s.Seq), f.Agent, stampOrNull(f.Archived),
		stampOrNull(f.Deleted), r.Key.Tenant, r.Key.Run)
	return err
}

func (tx *transaction) sessionEvents(ctx context.Context, key schema.RunKey,
	after schema.Seq) (events []persister.SessionEvent, err error) {
	rows, err := tx.statement(ctx, stSessionEvents).QueryContext(ctx, key.Tenant, key.Run, int64(after))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq schema.Seq
		var typ string
		var line []byte
		if err := rows.Scan(&seq, &typ, &line); err != nil {
			return nil, err
		}
		if e, ok := persister.SessionEventOf(seq, typ, line); ok {
			events = append(events, e)
		}
	}
	return events, rows.Err()
}

func stampOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}
