package agentstream

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"agentstream/schema"
)

// Cost is what messages have used, and what that has cost by the prices of now.
type Cost struct {
	Seq        schema.Seq `json:"seq"`      // of the message.end in the run; 0: several messages
	Child      string     `json:"child_id"` // "": the run itself, or all of them
	Day        string     `json:"day"`      // UTC, 2006-01-02; "": several
	Model      string     `json:"model"`    // "": not known, or several
	Messages   int64      `json:"messages"`
	Unpriced   int64      `json:"unpriced_messages"` // which have used something, and whose cost is not known
	Input      int64      `json:"input_tokens"`      // without those of a cache
	Output     int64      `json:"output_tokens"`
	CacheRead  int64      `json:"cache_read_tokens"`
	CacheWrite int64      `json:"cache_write_tokens"`
	USD        *float64   `json:"cost_usd"` // of the messages of which it is known; nil: of none
}

// CostsQuery selects one page of a run's costs.
type CostsQuery struct {
	ByChild bool   // one cost for each child, the run itself first; else one for each message, in the order of the run
	Limit   int    // most costs, up to 1,000; 0 is the server's choice
	Cursor  string // CostsPage.NextCursor of the page before; "": from the beginning
}

// CostsPage is a part of a run's costs.
type CostsPage struct {
	Costs      []Cost `json:"costs"`
	NextCursor string `json:"next_cursor"` // "" when there are no more
}

// Costs returns a page of what the run's messages or children have cost. It knows what has been persisted, which may
// lag by a moment.
func (r *Run) Costs(ctx context.Context, q CostsQuery) (CostsPage, error) {
	v := url.Values{}
	if q.ByChild {
		v.Set("by", "child")
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor != "" {
		v.Set("cursor", q.Cursor)
	}
	var p CostsPage
	err := r.get(ctx, &p, v, "costs")
	return p, err
}

// Costs returns what the caller's runs have cost by UTC day and model, the newest day first: of the days of both times
// and of those between, at most 366. A zero until is now, a zero since 29 days before it.
func (c *Client) Costs(ctx context.Context, since, until time.Time) ([]Cost, error) {
	v := url.Values{}
	for name, t := range map[string]time.Time{"since": since, "until": until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	var p CostsPage
	_, err := c.call(ctx, request{method: http.MethodGet, target: withQuery(c.url("v1", "agent", "costs"), v)}, &p)
	return p.Costs, err
}
