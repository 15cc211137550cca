package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"agentstream/persister"
	"agentstream/schema"
)

// Runs returns one page of the tenant's stored runs; see schema.RunsQuery for the order. A run is listed when its first
// events are committed.
func (s *Store) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if q.Agent != "" && !schema.FindableAgent(q.Agent) {
		return nil, nil
	}
	text, args := runsQuery(tenant, q)
	var runs []schema.RunInfo
	err := s.query(ctx, tenant, func(result pgx.Rows) (err error) {
		runs, err = pgx.CollectRows(result, func(row pgx.CollectableRow) (r schema.RunInfo, err error) {
			var usage string
			var session *string
			var asked *time.Time
			err = row.Scan(&r.ID, &r.State, &r.Reason, &r.Last, &r.Started, &r.Updated, &usage, &r.Turn, &r.Stop, &asked, &session)
			if session != nil {
				r.Session = json.RawMessage(*session)
			}
			if asked != nil {
				r.Asked = *asked
			}
			r.Usage = schema.ParseUsage(usage)
			return r, err
		})
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("postgres: runs of %s: %w", tenant, err)
	}
	return runs, nil
}

// runsQuery returns the statement with the conditions that are set: only so can the planner use the indexes. With states,
// the page is made from one page of each state, so that rare ones are not searched among all others.
func runsQuery(tenant string, q schema.RunsQuery) (string, []any) {
	args := []any{tenant, q.Limit}
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	where, order, behind := "", " order by first_ts desc, id desc limit $2", "<"
	if q.Oldest {
		order, behind = " order by first_ts, id limit $2", ">"
	}
	if !q.After.IsZero() {
		where += " and (first_ts, id) " + behind + " (" + arg(q.After.Started) + ", " + arg(q.After.ID) + ")"
	}
	if !q.Since.IsZero() {
		where += " and first_ts >= " + arg(q.Since)
	}
	if !q.Until.IsZero() {
		where += " and first_ts < " + arg(q.Until)
	}
	if q.Waits {
		where += " and " + waiting
	}
	where += sessionsOnly(q)
	if q.Agent != "" {
		where += " and session_agent = " + arg(q.Agent)
	}
	session := "null::text" // it may be long
	if q.Sessions {
		session = "session"
	}
	columns := `select id, state, case when state = reason_of then reason else '' end as reason, last_seq, first_ts, last_ts, usage::text as usage,
		case when turn_seq >= reason_seq then turn else '' end as turn, turn_stop, asked_ts, ` + session + ` as session
		from agent_runs where koder_user_id = $1 and expired_at is null and deleted_at is null`
	if len(q.States) == 0 {
		return columns + where + order, args
	}
	parts := make([]string, len(q.States))
	for i, state := range q.States {
		parts[i] = "(" + columns + where + " and state = " + arg(string(state)) + order + ")"
	}
	return "select * from (" + strings.Join(parts, " union all ") + ") page" + order, args
}

// waiting is the condition of a list of runs that wait for an answer. Its index has the same condition.
const waiting = "(asked_ts is not null or state in ('awaiting_approval', 'paused'))"

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
select l.run_id from agent_run_lanes l where l.koder_user_id = $1 and l.lane = $2 and l.lane <> ''
	and not exists (select from agent_runs r where r.koder_user_id = l.koder_user_id and r.id = l.run_id and r.deleted_at is not null)
order by l.joined_at desc, l.run_id desc limit 1`

// Parent returns the root run of a child of the tenant, "" when none is stored. Of several it returns the one that the
// child joined last.
func (s *Store) Parent(ctx context.Context, tenant, child string) (string, error) {
	var run string
	err := s.queryRow(ctx, tenant, []any{&run}, parentQuery, tenant, child)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("postgres: root run of %s/%s: %w", tenant, child, err)
	}
	return run, nil
}

// NextTenant returns the first tenant after after, in the order of their names, that has a run; "" when there is none. It
// costs one index lookup.
func (s *Store) NextTenant(ctx context.Context, after string) (string, error) {
	var tenant string
	err := s.queryRow(ctx, everyTenant, []any{&tenant}, `select coalesce(min(koder_user_id), '') from agent_runs where koder_user_id > $1`, after)
	if err != nil {
		return "", fmt.Errorf("postgres: tenant behind %q: %w", after, err)
	}
	return tenant, nil
}

// changedKeys is the number of keys of a page.
const changedKeys = 1000

// ChangedSince iterates over the runs of all tenants whose rows were written at t or later, in the order of their keys,
// without deleted ones. The time of a write is the start of its transaction, by the database's clock. It reads the whole
// table, a page at a time.
func (s *Store) ChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error] {
	return persister.Keys(func(after schema.RunKey) (page []schema.RunKey, err error) {
		err = s.query(ctx, everyTenant, func(rows pgx.Rows) (err error) {
			page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[schema.RunKey])
			return err
		}, `select koder_user_id, id from agent_runs where (koder_user_id, id) > ($1, $2) and updated_at >= $3 and deleted_at is null
			order by koder_user_id, id limit $4`, after.Tenant, after.Run, t, changedKeys)
		if err != nil {
			return nil, fmt.Errorf("postgres: runs changed since %v: %w", t, err)
		}
		return page, nil
	})
}
