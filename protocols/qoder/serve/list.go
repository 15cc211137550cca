package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// maxRuns bounds the runs that one request for a list looks at, shown or not.
const maxRuns = 4000

// sessionStatuses are what ?statuses= may name: those of Qoder and the model's, old ones too (qoder §1.4).
var sessionStatuses = []string{"idle", "running", "rescheduling", "terminated", "processing", "canceling", "archived"}

// list pages through the tenant's sessions, newest first or with order=asc oldest first: ?agent_id=,
// ?include_archived=, ?created_at[…]=, ?statuses=. Every run is a session. It lists what has been persisted, which
// may be a moment behind.
func (a routes) list(ctx context.Context, x *protocol.Call) error {
	q, err := readParams(x)
	if err != nil {
		return err
	}
	w, err := a.readWindow(q, "desc", "sessions")
	if err != nil {
		return err
	}
	ask := schema.RunsQuery{Sessions: true, Oldest: !w.down()}
	if ask.Archived, err = q.flag("include_archived"); err != nil {
		return err
	}
	if ask.Agent, err = q.one("agent_id"); err != nil {
		return err
	}
	created, err := q.creationSpan()
	if err != nil {
		return err
	}
	ask.Since, ask.Until = roundUp(created.from), roundUp(created.to)
	statuses, err := q.names("statuses", "statuses[]", "status")
	if err == nil {
		err = checkNames("statuses", statuses, sessionStatuses)
	}
	if err != nil {
		return err
	}
	if ask.After, err = runsAfter(ctx, x, w); err != nil {
		return err
	}
	found := protocol.Page{Limit: w.limit}
	next, err := listRuns(ctx, x, a.spoken, &found, ask, statuses)
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, pageBody(&found, w, next.String()))
	return nil
}

// roundUp rounds a bound up to the microseconds that stores compare: one that is a nanosecond behind a time would
// be that time to them.
func roundUp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Microsecond - 1).Truncate(time.Microsecond)
}

// flag reads a parameter that is true or false; false when it is absent.
func (q params) flag(name string) (bool, error) {
	text, err := q.choice(name, "false", "true", "0", "1")
	return text == "true" || text == "1", err
}

// runsAfter returns the place where a page of sessions begins.
func runsAfter(ctx context.Context, x *protocol.Call, w window) (schema.RunCursor, error) {
	id := w.after + w.before // one of them at most
	if id == "" {
		return schema.ParseRunCursor(w.page)
	}
	for r, err := range x.Records(ctx, id, 0, 1) {
		if errors.Is(err, fanout.ErrNotFound) || errors.Is(err, fanout.ErrExpired) {
			break
		}
		if err != nil {
			return schema.RunCursor{}, err
		}
		_, ts, _ := r.Envelope()
		began, err := time.Parse(time.RFC3339Nano, string(ts))
		if err != nil {
			break
		}
		return schema.RunCursor{Started: began.UTC(), ID: id}, nil
	}
	return schema.RunCursor{}, dialect.Refuse(schema.ErrBadCursor, "no session has the id of after_id or before_id")
}

// listRuns adds sessions from a place on and returns the one behind which the next page begins; the zero cursor when
// there is none. One more than the page takes is looked for, to know that.
func listRuns(ctx context.Context, x *protocol.Call, d qoder.Dialect, l *protocol.Page, ask schema.RunsQuery,
	statuses []string) (next schema.RunCursor, err error) {
	ask.Limit = l.Limit + 1
	for looked := 0; looked < maxRuns; {
		runs, err := x.Runs(ctx, ask)
		if err != nil {
			return next, err
		}
		for i := range runs {
			object := d.AppendListed(nil, &runs[i])
			if len(statuses) > 0 && !slices.Contains(statuses, statusOf(object)) {
				ask.After = runs[i].Cursor()
				continue
			}
			if l.Full() {
				return ask.After, nil
			}
			l.Add(runs[i].ID, object)
			ask.After = runs[i].Cursor()
		}
		if len(runs) < ask.Limit {
			return next, nil
		}
		looked += len(runs)
	}
	return ask.After, nil
}

// statusOf returns the status that an object says.
func statusOf(object []byte) string {
	var o struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(object, &o) // it was made here
	return o.Status
}
