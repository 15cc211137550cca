package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// Bounds of a list of runs.
const (
	defaultRuns = 50
	maxRuns     = 200
)

// listedRun is one run of a list. Times are the producers'.
type listedRun struct {
	RunID     string          `json:"run_id"`
	State     schema.RunState `json:"state"`
	Reason    *string         `json:"reason"`
	LastSeq   schema.Seq      `json:"last_seq"`
	StartedAt string          `json:"started_at"`
	UpdatedAt string          `json:"updated_at"`
	EndedAt   *string         `json:"ended_at"`    // null while the run goes on
	WaitsFor  *string         `json:"waits_for"`   // answer, approval, resume; null: for nobody
	AskedAt   *string         `json:"asked_at"`    // of the oldest question that is open
	Since     *string         `json:"waits_since"` // asked_at, or else when it came to its state; null: it waits for nobody
	Usage     schema.Usage    `json:"usage"`
	Title     *string         `json:"title"`           // null: it has none, as agent
	Opening   *string         `json:"opening"`         // first words of its first message; null: not known
	Tags      []string        `json:"tags"`            // empty: it has none
	Metadata  json.RawMessage `json:"metadata"`        // null: none, or of more than schema.MaxMetadata bytes
	Agent     *string         `json:"agent"`           // its id
	Model     *string         `json:"model"`           // of the newest message that has ended; null: not known
	Cost      *float64        `json:"cost_usd"`        // of the messages of which it is known; null: of none
	Unpriced  []string        `json:"unpriced_models"` // whose messages' cost is not known; "" is a model without a name
}

// listedRuns is the answer of GET /v1/agent/runs.
type listedRuns struct {
	Runs       []listedRun `json:"runs"`
	NextCursor *string     `json:"next_cursor"` // for the next request; null when there are no more
}

// listRuns pages through the runs of the tenant, newest first: ?q= &title= &tag= &agent= &model= &reason= &state=running,paused
// &since= &until= &waits= &order= &direction= &limit= &cursor=. The order is that of the runs' first events, which never
// changes: a page behind a cursor neither repeats nor misses a run that was there when the first page was asked for. By
// the other orders runs that change move between the pages.
//
// It lists what has been persisted: a run that began a moment ago may be missing, and state and usage
// may be a moment old. What GET /v1/agent/runs/{run} says of one run comes from the log.
func (a *API) listRuns(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	want, err := runsQuery(q)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	limit := want.Limit
	want.Models = true
	want.Limit++ // is there another one?
	runs, err := a.cfg.Runs.List(ctx, c.Caller.Tenant, want)
	if err != nil {
		return err
	}
	out := listedRuns{Runs: make([]listedRun, 0, min(limit, len(runs)))}
	for i := range runs[:min(limit, len(runs))] {
		out.Runs = append(out.Runs, listEntry(&runs[i]))
	}
	if len(runs) > limit {
		next := runs[limit-1].Cursor().String()
		out.NextCursor = &next
	}
	return c.ReplyJSON(out)
}

// listEntry returns a run as a list shows it.
func listEntry(r *schema.RunInfo) listedRun {
	stamp := func(t time.Time) string { return t.UTC().Format(schema.TimeLayout) }
	known := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	facts := schema.FactsOf(r.Session)
	out := listedRun{
		RunID: r.ID, State: r.State, LastSeq: r.Last, StartedAt: stamp(r.Started), UpdatedAt: stamp(r.Updated), Usage: r.Usage,
		Reason: known(r.Reason), WaitsFor: known(r.Waiting()), Title: known(facts.Title), Opening: known(r.Opening), Agent: known(facts.Agent), Model: known(r.Model), Cost: r.Cost,
		Unpriced: r.Unpriced, Tags: facts.Tags, Metadata: facts.Metadata,
	}
	if out.Tags == nil {
		out.Tags = []string{}
	}
	if out.Unpriced == nil {
		out.Unpriced = []string{}
	}
	if out.Usage == nil {
		out.Usage = schema.Usage{}
	}
	if !r.Asked.IsZero() {
		text := stamp(r.Asked)
		out.AskedAt = &text
	}
	if since := r.WaitStart(); !since.IsZero() {
		text := stamp(since)
		out.Since = &text
	}
	if ended := r.EndTime(); !ended.IsZero() {
		text := stamp(ended)
		out.EndedAt = &text
	}
	return out
}

// states are what ?state= may name.
var states = []schema.RunState{
	schema.StatePlanning, schema.StateAwaitingApproval, schema.StateRunning, schema.StatePaused,
	schema.StateRedirecting, schema.StateDone, schema.StateAborted, schema.StateError,
}

// runs reads what a list is asked for.
func runsQuery(q protocol.Query) (out schema.RunsQuery, err error) {
	names := dialect.SplitList(q["state"])
	if len(names) > dialect.MaxList {
		return out, fmt.Errorf("state has more than %d names: %w", dialect.MaxList, dialect.ErrBadRequest)
	}
	for _, name := range names {
		state := schema.RunState(name)
		if !slices.Contains(states, state) {
			return out, fmt.Errorf("state %q is none of %q: %w", ends.Clip(name), states, dialect.ErrBadRequest)
		}
		if !slices.Contains(out.States, state) {
			out.States = append(out.States, state)
		}
	}
	if out.Since, err = q.Time("since"); err != nil {
		return out, err
	}
	if out.Until, err = q.Time("until"); err != nil {
		return out, err
	}
	waits, err := q.Choice("waits", "false", "true")
	if err != nil {
		return out, err
	}
	out.Waits = waits == "true"
	if out.Limit, err = q.Number("limit", defaultRuns, maxRuns); err != nil {
		return out, err
	}
	if err = searchQuery(q, &out); err != nil {
		return out, err
	}
	cursor, err := q.One("cursor")
	if err != nil {
		return out, err
	}
	out.After, err = schema.ParseRunCursor(cursor)
	return out, err
}

// longest bounds each text of a search, in bytes.
var longest = map[string]int{"q": 200, "title": 4 * schema.MaxTitle, "tag": 4 * schema.MaxTag, "agent": 256, "model": 256, "reason": 200}

// maxWords bounds the words of a search.
const maxWords = 8

// searchQuery reads by what runs are to be found, and in which order they are to stand.
func searchQuery(q protocol.Query, out *schema.RunsQuery) error {
	texts := make(map[string]string, 6)
	for _, name := range slices.Sorted(maps.Keys(longest)) {
		text, err := q.One(name)
		if err != nil {
			return err
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > longest[name] {
			return fmt.Errorf("%s is not a text of at most %d bytes: %w", name, longest[name], dialect.ErrBadRequest)
		}
		texts[name] = text
	}
	out.Words = strings.Fields(strings.ToLower(texts["q"]))
	if len(out.Words) > maxWords {
		return fmt.Errorf("q has more than %d words: %w", maxWords, dialect.ErrBadRequest)
	}
	out.Title, out.Tag, out.Agent, out.Model, out.Reason = texts["title"], texts["tag"], texts["agent"], texts["model"], texts["reason"]
	order, err := q.Choice("order", "started", string(schema.OrderUpdated), string(schema.OrderDuration), string(schema.OrderEvents))
	if err != nil {
		return err
	}
	if order != "started" {
		out.Order = schema.RunOrder(order)
	}
	direction, err := q.Choice("direction", "desc", "asc")
	out.Oldest = direction == "asc"
	return err
}
