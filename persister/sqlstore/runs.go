package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"

	"agentstream/schema"
)

// Runs returns one page of the tenant's stored runs; see schema.RunsQuery for the order. A run is listed from the time
// its first events are committed until it expires or is deleted.
func (s *Store) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if q.Agent != "" && !schema.FindableAgent(q.Agent) {
		return nil, nil
	}
	text, args := s.RunsQuery(tenant, q)
	runs, err := list(ctx, s, tenant, func(scan Scan) (r schema.RunInfo, err error) {
		var usage string
		var session, spent sql.NullString
		err = scan(&r.ID, &r.State, &r.Reason, &r.Last, timeIn{&r.Started}, timeIn{&r.Updated}, &usage, &r.Turn,
			&r.Stop, timeIn{&r.Asked}, timeIn{&r.Held}, &session, &spent, &r.Opening, &r.Place)
		if err == nil {
			err = readCosts(spent.String, &r)
		}
		if session.Valid {
			r.Session = json.RawMessage(session.String)
		}
		r.Usage = schema.ParseUsage(usage)
		return r, err
	}, text, args...)
	if err != nil {
		return nil, s.wrap(err, "runs of %s", tenant)
	}
	return runs, nil
}

// RunsQuery returns the statement of Runs and its arguments. It has only the conditions that are set, so that the
// planner can use the indexes. With states, the page is made from one page of each state, so that rare ones are not
// searched among all others.
func (s *Store) RunsQuery(tenant string, q schema.RunsQuery) (string, []any) {
	w := where{args: []any{tenant, q.Limit},
		conditions: []string{"koder_user_id = $1 and expired_at is null and deleted_at is null"}}
	order, behind := " order by first_ts desc, id desc limit $2", "<"
	if q.Oldest {
		order, behind = " order by first_ts, id limit $2", ">"
	}
	if !q.After.IsZero() && q.Order == schema.OrderStarted {
		w.and("(first_ts, id) "+behind+" (?, ?)", s.d.Time(q.After.Started), q.After.ID)
	}
	if !q.Since.IsZero() {
		w.and("first_ts >= ?", s.d.Time(q.Since))
	}
	if !q.Until.IsZero() {
		w.and("first_ts < ?", s.d.Time(q.Until))
	}
	// The conditions of the indexes, in the same words.
	if q.Waits {
		w.and("(asked_ts is not null or state in ('awaiting_approval', 'paused'))")
	}
	if q.Sessions && !q.Archived {
		w.and("session_archived_at is null")
	}
	if q.Sessions {
		w.and("session_deleted_at is null")
	}
	if q.Agent != "" {
		w.and("session_agent = ?", q.Agent)
	}
	listed := len(w.conditions)
	s.search(&w, &q)
	atOnce := s.d.AtOnce != "" && (q.Title != "" || q.Reason != "")
	if q.Order != schema.OrderStarted || len(q.Words) > 0 || s.byWords(&q) != "" || atOnce {
		return s.pageQuery(&w, &q, listed)
	}
	columns := s.runColumns(&q, "0") + "agent_runs"
	if len(q.States) == 0 {
		return columns + w.text() + order, w.args
	}
	parts := make([]string, len(q.States))
	for i, state := range q.States {
		one := where{conditions: w.conditions[:len(w.conditions):len(w.conditions)], args: w.args}
		one.and("state = ?", string(state))
		parts[i], w.args = "select * from ("+columns+one.text()+order+") page_"+strconv.Itoa(i), one.args
	}
	return "select * from (" + strings.Join(parts, " union all ") + ") page" + order, w.args
}

// search adds the conditions by which runs are found.
func (s *Store) search(w *where, q *schema.RunsQuery) {
	for _, word := range q.Words {
		w.and("("+s.d.Find+"(words, ?) > 0 or "+s.d.Find+"(lower(id), ?) > 0)", word, word)
	}
	if q.Title != "" {
		w.and("title = ?", q.Title)
	}
	if q.Tag != "" {
		w.and(s.d.Find+"(tags, ?) > 0", ","+q.Tag+",")
	}
	if q.Model != "" {
		w.and("model = ?", q.Model)
	}
	if q.Reason != "" {
		w.and("state = reason_of and "+s.d.Find+"(lower(reason), ?) > 0", strings.ToLower(q.Reason))
	}
}

// byWords returns by which index a search reads the table. It reads all of the tenant's runs, unless it finds a page of
// them early. Pages of those that wait, and of sessions, have indexes that leave out most runs.
func (s *Store) byWords(q *schema.RunsQuery) string {
	filters := len(q.Words) > 0 || q.Title != "" || q.Tag != "" || q.Model != "" || q.Reason != ""
	switch {
	case !filters || q.Waits || q.Sessions:
		return ""
	case q.Order != schema.OrderStarted:
		return s.d.ByKey
	}
	return s.d.ByWords
}

// pageQuery finds the runs of the page first, so that no more is read of the others than decides: all that a search
// looks at is in one index. The first conditions, as many as listed, say which runs the list has without the search.
func (s *Store) pageQuery(w *where, q *schema.RunsQuery, listed int) (string, []any) {
	place, first := "0", "first_ts"
	switch q.Order {
	case schema.OrderUpdated:
		place = s.d.Millis("last_ts")
	case schema.OrderDuration:
		place = s.d.Millis("last_ts") + " - " + s.d.Millis("first_ts")
	case schema.OrderEvents:
		place = "last_seq"
	}
	if q.Order != schema.OrderStarted {
		first = "place"
	}
	if len(q.States) > 0 {
		names := make([]any, len(q.States))
		for i, state := range q.States {
			names[i] = string(state)
		}
		w.and("state in (?"+strings.Repeat(", ?", len(names)-1)+")", names...)
	}
	if !q.After.IsZero() && q.Order != schema.OrderStarted {
		sign := "<"
		if q.Oldest {
			sign = ">"
		}
		w.and("("+place+", id) "+sign+" (?, ?)", q.After.Place, q.After.ID)
	}
	order := " order by " + first + " desc, id desc"
	if q.Oldest {
		order = " order by " + first + ", id"
	}
	var found string
	if s.d.AtOnce != "" && q.Order == schema.OrderStarted {
		found = s.findAtOnce(w, listed, order)
	} else {
		found = "select id as found, " + place + " as placed from agent_runs" + s.byWords(q) + w.text() +
			strings.Replace(order, "place", "placed", 1) + " limit $2"
	}
	return s.runColumns(q, "placed") + "(" + found +
		") page cross join agent_runs where koder_user_id = $1 and id = found" + order, w.args
}

// searchedFirst is how many runs of the list are looked at before all are: a page of what many runs have is among them.
const searchedFirst = "1000"

// findAtOnce finds the runs of a page in the order of the list: among the first runs of the list, and where these do
// not fill the page, in one pass over all. In the order of the list, each of them would be looked up where it lies.
func (s *Store) findAtOnce(w *where, listed int, order string) string {
	list, filter := where{conditions: w.conditions[:listed]}, where{conditions: w.conditions[listed:]}
	const columns = "select id, 0 as placed, first_ts from "
	return "with early as materialized (" + columns + "(select * from agent_runs" + list.text() + order +
		" limit " + searchedFirst + ") listed" + filter.text() + order + " limit $2) " +
		"select id as found, placed from early where (select count(*) from early) = $2 union all " +
		"select id as found, placed from (select * from (" + columns + "agent_runs" + w.text() + s.d.AtOnce +
		") matching where (select count(*) from early) < $2" + order + " limit $2) all_of_them"
}

// ofRun selects the messages of a listed run.
const ofRun = " u where u.koder_user_id = agent_runs.koder_user_id and u.run_id = agent_runs.id"

// runColumns selects the columns of a list.
func (s *Store) runColumns(q *schema.RunsQuery, place string) string {
	session, spent, opening := "cast(null as text)", "cast(null as text)", "''" // long, and a look into each run
	if q.Models {
		spent = s.costLines()
		opening = "coalesce(opening, '')"
	}
	if q.Sessions || q.Models {
		session = "session"
	}
	return `select id, state, case when state = reason_of then reason else '' end as reason, last_seq, first_ts, last_ts,
		cast(usage as text) as usage, case when turn_seq >= reason_seq then turn else '' end as turn, turn_stop, asked_ts, case when state = reason_of then state_ts end as state_ts, ` +
		session + ` as session, ` + spent + `, ` + opening + ` as opening, ` + place + ` as place from `
}

// where collects conditions and their arguments.
type where struct {
	conditions []string
	args       []any
}

// and adds a condition, which has a ? in place of each argument, in their order.
func (w *where) and(condition string, args ...any) {
	for _, arg := range args {
		w.args = append(w.args, arg)
		condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(w.args)), 1)
	}
	w.conditions = append(w.conditions, condition)
}

func (w *where) text() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " where " + strings.Join(w.conditions, " and ")
}
