package rest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentstream/edge/dialect"
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
	EndedAt   *string         `json:"ended_at"`  // null while the run goes on
	WaitsFor  *string         `json:"waits_for"` // answer, approval, resume; null: for nobody
	AskedAt   *string         `json:"asked_at"`  // of the oldest question that is open
	// asked_at, or else when it came to its state; null: it waits for nobody
	Since    *string         `json:"waits_since"`
	Usage    schema.Usage    `json:"usage"`
	Title    *string         `json:"title"`           // null: it has none, as agent
	Opening  *string         `json:"opening"`         // first words of its first message; null: not known
	Tags     []string        `json:"tags"`            // empty: it has none
	Metadata json.RawMessage `json:"metadata"`        // null: none, or of more than schema.MaxMetadata bytes
	Agent    *string         `json:"agent"`           // its id
	Model    *string         `json:"model"`           // of the newest message that has ended; null: not known
	Cost     *float64        `json:"cost_usd"`        // of the messages of which it is known; null: of none
	Unpriced []string        `json:"unpriced_models"` // whose messages' cost is not known; "" is a model without a name
}

// listedRuns is the answer of GET /v1/agent/runs.
type listedRuns struct {
	Runs       []listedRun `json:"runs"`
	NextCursor *string     `json:"next_cursor"` // for the next request; null when there are no more
}

// listRuns pages through the runs of the tenant, newest first: ?q= &title= &tag= &agent= &model= &reason=
// &state=running,paused &since= &until= &waits= &order= &direction= &limit= &cursor=. The order is that of the runs'
// first events, which never changes: a page behind a cursor neither repeats nor misses a run that was there when the
// first page was asked for. By the other orders runs that change move between the pages.
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
	facts := schema.FactsOf(r.Session)
	out := listedRun{
		RunID: r.ID, State: r.State, LastSeq: r.Last, StartedAt: stamp(r.Started), UpdatedAt: stamp(r.Updated),
		Usage:  r.Usage,
		Reason: orNull(r.Reason), WaitsFor: orNull(r.Waiting()), Title: orNull(facts.Title), Opening: orNull(r.Opening),
		Agent: orNull(facts.Agent), Model: orNull(r.Model), Cost: r.Cost,
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
		return out, dialect.Refuse(dialect.ErrBadRequest, "state must have at most %d names, not %d", dialect.MaxList,
			len(names))
	}
	for _, name := range names {
		state := schema.RunState(name)
		if !slices.Contains(states, state) {
			return out, dialect.BadValue(dialect.ErrBadRequest, "state", name, "%s, or some of them with commas",
				dialect.Words(stateNames()...))
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
	if out.After, err = schema.ParseRunCursor(cursor); err != nil {
		return out, dialect.BadValue(schema.ErrBadCursor, "cursor", cursor, "the next_cursor of a page of this list")
	}
	return out, nil
}

func stateNames() []string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return names
}

// longest bounds each text of a search, in bytes.
var longest = map[string]int{"q": 200, "title": 4 * schema.MaxTitle, "tag": 4 * schema.MaxTag, "agent": 256,
	"model": 256, "reason": 200}

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
			return dialect.BadValue(dialect.ErrBadRequest, name, text, "UTF-8 text of at most %d bytes without NUL",
				longest[name])
		}
		texts[name] = text
	}
	out.Words = strings.Fields(strings.ToLower(texts["q"]))
	if len(out.Words) > maxWords {
		return dialect.Refuse(dialect.ErrBadRequest, "q must have at most %d words, not %d", maxWords, len(out.Words))
	}
	out.Title, out.Tag, out.Agent, out.Model, out.Reason = texts["title"], texts["tag"], texts["agent"], texts["model"], texts["reason"]
	order, err := q.Choice("order", "started", string(schema.OrderUpdated), string(schema.OrderDuration),
		string(schema.OrderEvents))
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

// Bounds of costs.
const (
	defaultCosts    = 100
	maxCosts        = 1000
	defaultCostDays = 30
	maxCostDays     = 366
	maxDailyCosts   = 10_000
)

// listedCost is what messages have used, and what that has cost, by the prices of now.
type listedCost struct {
	Seq        *schema.Seq `json:"seq,omitempty"` // of the message.end, in the run
	Child      *string     `json:"child_id"`      // null: the run itself, or all of them
	Day        *string     `json:"day"`           // UTC; null: several
	Model      *string     `json:"model"`         // null: not known, or several
	Messages   int64       `json:"messages"`
	Unpriced   int64       `json:"unpriced_messages"` // which have used something, and whose cost is not known
	Input      int64       `json:"input_tokens"`      // without those of a cache
	Output     int64       `json:"output_tokens"`
	CacheRead  int64       `json:"cache_read_tokens"`
	CacheWrite int64       `json:"cache_write_tokens"`
	Cost       *float64    `json:"cost_usd"` // of the messages of which it is known; null: of none
}

// listedCosts is an answer with costs.
type listedCosts struct {
	Costs      []listedCost `json:"costs"`
	NextCursor *string      `json:"next_cursor"` // for the next request; null when there are no more
}

// runCosts answers with what the messages of a run, or of a child by its own id, have cost: ?by=message, in the order
// of the run, or ?by=child &limit= &cursor=. Like the list of runs it knows what has been persisted.
func (a *API) runCosts(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	want, err := costsQuery(q)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	src, _, err := a.cfg.Runs.WhereIs(ctx, key)
	if err != nil {
		return err
	}
	want.Run = src.Key.Run
	if src.Child != "" {
		want.Child = &src.Child
	}
	return a.replyCosts(ctx, c, want)
}

// costsQuery reads which costs of a run are asked for.
func costsQuery(q protocol.Query) (out schema.CostsQuery, err error) {
	by, err := q.Choice("by", "message", "child")
	if err != nil {
		return out, err
	}
	if out.Limit, err = q.Number("limit", defaultCosts, maxCosts); err != nil {
		return out, err
	}
	if by == "message" {
		out.After, err = q.Seq("cursor", 0)
		return out, err
	}
	out.By = schema.ByChild
	cursor, err := q.One("cursor")
	if err != nil || cursor == "" {
		return out, err
	}
	child, ok := strings.CutPrefix(cursor, childCursor)
	if !ok || !utf8.ValidString(child) || strings.ContainsRune(child, 0) || len(child) > maxChildCursor {
		return out, dialect.BadValue(schema.ErrBadCursor, "cursor", cursor, "the next_cursor of a page by child")
	}
	out.Beyond = &child
	return out, nil
}

// childCursor begins the cursor of a page by child: the run itself, whose id is "", has one too.
const (
	childCursor    = "c:"
	maxChildCursor = 1024
)

// dailyCosts answers with what the tenant's messages have cost, by UTC day and model, newest first: ?since= &until=,
// times whose days are included.
func (a *API) dailyCosts(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	want := schema.CostsQuery{By: schema.ByDay, Limit: maxDailyCosts}
	if want.Since, err = q.Time("since"); err != nil {
		return err
	}
	if want.Until, err = q.Time("until"); err != nil {
		return err
	}
	if want.Until.IsZero() {
		want.Until = time.Now()
	}
	if want.Since.IsZero() {
		want.Since = want.Until.AddDate(0, 0, 1-defaultCostDays)
	}
	want.Since, want.Until = want.Since.UTC(), want.Until.UTC()
	if want.Since.Year() < 1 || want.Until.Year() > 9999 {
		return dialect.Refuse(dialect.ErrBadRequest, "since and until must be in the years 1 to 9999")
	}
	if days := want.Until.Sub(want.Since).Hours() / 24; days < 0 || days > maxCostDays {
		return dialect.Refuse(dialect.ErrBadRequest, "since must be before until, by at most %d days", maxCostDays)
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	return a.replyCosts(ctx, c, want)
}

// replyCosts answers with a page of costs.
func (a *API) replyCosts(ctx context.Context, c *protocol.Call, want schema.CostsQuery) error {
	limit := want.Limit
	want.Limit++ // is there another one?
	costs, err := a.cfg.Runs.ListCosts(ctx, c.Caller.Tenant, want)
	if err != nil {
		return err
	}
	more := len(costs) > limit
	if more && want.By == schema.ByDay {
		return dialect.Refuse(dialect.ErrBadRequest, "these days have more than %d costs; ask for fewer days", limit)
	}
	costs = costs[:min(limit, len(costs))]
	out := listedCosts{Costs: make([]listedCost, 0, len(costs))}
	for i := range costs {
		out.Costs = append(out.Costs, costEntry(&costs[i]))
	}
	if more {
		next := childCursor + costs[limit-1].Child
		if want.By == schema.ByMessage {
			next = costs[limit-1].Seq.String()
		}
		out.NextCursor = &next
	}
	return c.ReplyJSON(out)
}

func costEntry(c *schema.Cost) listedCost {
	out := listedCost{Child: orNull(c.Child), Day: orNull(c.Day), Model: orNull(c.Model), Messages: c.Messages,
		Unpriced: c.Unpriced,
		Input:    c.Input, Output: c.Output, CacheRead: c.CacheRead, CacheWrite: c.CacheWrite, Cost: c.USD}
	if c.Seq != 0 {
		out.Seq = &c.Seq
	}
	return out
}

// orNull returns null for what is not known.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
