package agentstream

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentstream/schema"
)

// Run is a handle of one run: it watches, writes and commands it. It holds no connection and checks nothing; a
// run that does not exist is reported by the first call. It is safe for concurrent use.
type Run struct {
	c  *Client
	id string
}

// Run returns a handle of the run, which need not exist. The id of a child is a run id too.
func (c *Client) Run(id string) *Run { return &Run{c: c, id: id} }

// ID returns the id of the run.
func (r *Run) ID() string { return r.id }

// url returns the address of a resource of the run.
func (r *Run) url(rest ...string) string {
	return r.c.url(append([]string{"v1", "agent", "runs", r.id}, rest...)...)
}

// get reads a resource of the run.
func (r *Run) get(ctx context.Context, into any, q url.Values, rest ...string) error {
	if err := schema.ValidRunID(r.id); err != nil {
		return err
	}
	_, err := r.c.call(ctx, request{method: http.MethodGet, target: withQuery(r.url(rest...), q)}, into)
	return err
}

// RunInfo is the state of a run. Times are those of the producers, in RFC 3339; "" means unknown.
type RunInfo struct {
	RunID     string          `json:"run_id"`
	State     schema.RunState `json:"state"`  // "" before the first run.lifecycle
	Reason    string          `json:"reason"` // in lists
	LastSeq   schema.Seq      `json:"last_seq"`
	StartedAt string          `json:"started_at"`
	UpdatedAt string          `json:"updated_at"`
	EndedAt   string          `json:"ended_at"`    // "" while the run goes on
	WaitsFor  string          `json:"waits_for"`   // in lists: answer, approval, resume; "": it does not wait
	AskedAt   string          `json:"asked_at"`    // in lists: of the oldest open question, "" for none
	Since     string          `json:"waits_since"` // in lists: since when it waits, "" when it does not
	Usage     schema.Usage    `json:"usage"`       // in lists: sums by the provider's names
	Title     string          `json:"title"`       // in lists: of its session, "" for none; so is Agent
	Agent     string          `json:"agent"`
	// in lists: first words of its first message, "" when they are not known
	Opening  string         `json:"opening"`
	Tags     []string       `json:"tags"`     // in lists
	Metadata map[string]any `json:"metadata"` // in lists: nil for none, and for one that is too large for a list
	Model    string         `json:"model"`    // in lists: of the newest message that has ended, "" when unknown
	// in lists: of the messages of which it is known, nil when there is none
	Cost     *float64 `json:"cost_usd"`
	Unpriced []string `json:"unpriced_models"` // in lists: models that Cost lacks
}

// Info returns the state of the run. The error is ErrNotFound when the run has no events.
func (r *Run) Info(ctx context.Context) (RunInfo, error) {
	var info RunInfo
	err := r.get(ctx, &info, nil)
	return info, err
}

// RunsQuery selects one page of the list of runs.
type RunsQuery struct {
	States []schema.RunState // in one of these now; empty: in any
	Since  time.Time         // began then or later; zero: no bound
	Until  time.Time         // began before; zero: no bound
	Waits  bool              // only runs that wait for a person
	Search string            // words, all of which are in id, title, agent, model, tags or first words
	Title  string            // exactly, as are Tag, Agent and Model; "" of all these: any
	Tag    string
	Agent  string
	Model  string
	Reason string          // in the reason
	Order  schema.RunOrder // "" is by start
	Oldest bool            // the other way round: the smallest first
	Limit  int             // most runs, up to 200; 0 is the server's choice
	Cursor string          // RunsPage.NextCursor of the page before; "": from the newest
}

// RunsPage is a part of the list, newest run first.
type RunsPage struct {
	Runs       []RunInfo `json:"runs"`
	NextCursor string    `json:"next_cursor"` // "" when there are no more
}

// Runs returns a page of the caller's runs. The list may lag by a moment: a new run may be missing and a state
// may be old. Run.Info is exact.
func (c *Client) Runs(ctx context.Context, q RunsQuery) (RunsPage, error) {
	v := url.Values{}
	if len(q.States) > 0 {
		names := make([]string, len(q.States))
		for i, s := range q.States {
			names[i] = string(s)
		}
		v.Set("state", strings.Join(names, ","))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.UTC().Format(time.RFC3339Nano))
	}
	if q.Waits {
		v.Set("waits", "true")
	}
	for name, text := range map[string]string{"q": q.Search, "title": q.Title, "tag": q.Tag, "agent": q.Agent,
		"model": q.Model, "reason": q.Reason,
		"order": string(q.Order)} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if q.Oldest {
		v.Set("direction", "asc")
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor != "" {
		v.Set("cursor", q.Cursor)
	}
	var p RunsPage
	_, err := c.call(ctx, request{method: http.MethodGet, target: withQuery(c.url("v1", "agent", "runs"), v)}, &p)
	return p, err
}
