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

// Run is what is known of a run beside its events. Times are the producers', RFC 3339; "" when they
// are not known.
type Run struct {
	RunID     string          `json:"run_id"`
	State     schema.RunState `json:"state"`  // "" before the first run.lifecycle
	Reason    string          `json:"reason"` // in lists
	LastSeq   schema.Seq      `json:"last_seq"`
	StartedAt string          `json:"started_at"`
	UpdatedAt string          `json:"updated_at"`
	EndedAt   string          `json:"ended_at"`    // "" while the run goes on
	WaitsFor  string          `json:"waits_for"`   // in lists: answer, approval, resume; "": for nobody
	AskedAt   string          `json:"asked_at"`    // in lists: of the oldest question that nobody has answered, "" for none
	Since     string          `json:"waits_since"` // in lists: since when it waits for somebody, "" when it does not
	Usage     schema.Usage    `json:"usage"`       // in lists: sums by the provider's names
	Title     string          `json:"title"`       // in lists: of its session, "" for none; so is Agent
	Agent     string          `json:"agent"`
	Model     string          `json:"model"`    // in lists: of the newest message that has ended, "" when not known
	Cost      *float64        `json:"cost_usd"` // in lists: what providers reported, nil when none did
}

// Run asks for a run's state. The error is ErrNotFound when it has no events.
func (c *Client) Run(ctx context.Context, run string) (Run, error) {
	var r Run
	err := c.get(ctx, &r, nil, run)
	return r, err
}

// RunsQuery asks for one page of the list of runs.
type RunsQuery struct {
	States []schema.RunState // in one of these now; empty: in any
	Since  time.Time         // began then or later; zero: no bound
	Until  time.Time         // began before; zero: no bound
	Waits  bool              // waiting for somebody
	Limit  int               // most runs, up to 200; 0 is the server's choice
	Cursor string            // RunsPage.NextCursor of the page before; "": from the newest
}

// RunsPage is a part of the list, newest run first.
type RunsPage struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"next_cursor"` // "" when there are no more
}

// Runs asks for a page of the caller's runs. What began a moment ago may be missing, and states may
// be a moment old; Run is exact.
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
