package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentstream/schema"
)

// Runs returns one page of the tenant's stored runs; see schema.RunsQuery for the order. A run is listed from the
// time its first events are committed until it expires or is deleted.
func (s *Store) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	runs := []schema.RunInfo{}
	if q.Agent != "" && !schema.FindableAgent(q.Agent) {
		return runs, nil
	}
	text, args := runsQuery(tenant, q)
	err := rows{s}.each(ctx, func(scan func(...any) error) (bool, error) {
		var r schema.RunInfo
		var started, updated, usage string
		var asked, session sql.NullString
		err := scan(&r.ID, &r.State, &r.Reason, &r.Last, &started, &updated, &usage, &r.Turn, &r.Stop, &asked, &session)
		if err == nil {
			r.Started, err = time.Parse(tsLayout, started)
		}
		if err == nil {
			r.Updated, err = time.Parse(tsLayout, updated)
		}
		if err == nil && asked.Valid {
			r.Asked, err = time.Parse(tsLayout, asked.String)
		}
		r.Usage = schema.ParseUsage(usage)
		if session.Valid {
			r.Session = json.RawMessage(session.String)
		}
		runs = append(runs, r)
		return true, err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite: runs of %s: %w", tenant, err)
	}
	return runs, nil
}

// runsQuery returns the statement with the conditions that are set. With states, the page is made from one page of
// each state, so that rare ones are not searched among all others.
func runsQuery(tenant string, q schema.RunsQuery) (string, []any) {
	args := []any{tenant, q.Limit}
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("?%d", len(args))
	}
	where := "koder_user_id = ?1 and expired_at is null and deleted_at is null"
	order, behind := " order by first_ts desc, id desc limit ?2", "<"
	if q.Oldest {
		order, behind = " order by first_ts, id limit ?2", ">"
	}
	if !q.After.IsZero() {
		where += " and (first_ts, id) " + behind + " (" + arg(stamp(q.After.Started)) + ", " + arg(q.After.ID) + ")"
	}
	if !q.Since.IsZero() {
		where += " and first_ts >= " + arg(stamp(q.Since))
	}
	if !q.Until.IsZero() {
		where += " and first_ts < " + arg(stamp(q.Until))
	}
	if q.Waits {
		where += " and (asked_ts is not null or state in ('awaiting_approval', 'paused'))" // the condition of the index
	}
	where += sessionsOnly(q)
	if q.Agent != "" {
		where += " and session_agent = " + arg(q.Agent)
	}
	session := "null" // it may be long
	if q.Sessions {
		session = "session"
	}
	columns := `select id, state, iif(state = reason_of, reason, '') as reason, last_seq, first_ts, last_ts, usage,
		iif(turn_seq >= reason_seq, turn, '') as turn, turn_stop, asked_ts, ` + session + ` as session
		from agent_runs where `
	if len(q.States) == 0 {
		return columns + where + order, args
	}
	parts := make([]string, len(q.States))
	for i, state := range q.States {
		parts[i] = "select * from (" + columns + where + " and state = " + arg(string(state)) + order + ")"
	}
	return strings.Join(parts, " union all ") + order, args
}

// sessionsOnly returns the condition of a list of sessions. Its indexes have the same condition.
func sessionsOnly(q schema.RunsQuery) string {
	switch {
	case !q.Sessions:
		return ""
	case q.Archived:
		return " and session_deleted_at is null"
	}
	return " and session_archived_at is null and session_deleted_at is null"
}

// parentQuery excludes the lane of the run itself, because the index holds children only.
const parentQuery = `
select run_id from agent_run_lanes l where koder_user_id = ? and lane = ? and lane <> ''
	and not exists (select 1 from agent_runs r where r.koder_user_id = l.koder_user_id and r.id = l.run_id and r.deleted_at is not null)
order by joined_at desc, run_id desc limit 1`

// Parent returns the root run of a child of the tenant, "" when none is stored. Of several it returns the one that
// the child joined last.
func (s *Store) Parent(ctx context.Context, tenant, child string) (string, error) {
	var run string
	err := s.read.QueryRowContext(ctx, parentQuery, tenant, child).Scan(&run)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("sqlite: root run of %s/%s: %w", tenant, child, err)
	}
	return run, nil
}
