package agentstream

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"agentstream/schema"
)

// PageQuery asks for one page of a run's events.
type PageQuery struct {
	After    schema.Seq // behind this event; 0 is the beginning
	Limit    int        // most events, up to 1,000; 0 is the server's choice
	Types    []string   // as Options.Types
	Children []string   // as Options.Children
}

// Page is a part of a run's events as they are stored.
type Page struct {
	Events    []schema.Event
	NextAfter schema.Seq // After of the next page, also when this one is empty
	HasMore   bool       // the run has more by now
}

// Events asks for a page.
func (c *Client) Events(ctx context.Context, run string, q PageQuery) (Page, error) {
	v := url.Values{}
	if q.After != 0 {
		v.Set("after", q.After.String())
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if len(q.Types) > 0 {
		v.Set("types", strings.Join(q.Types, ","))
	}
	if len(q.Children) > 0 {
		v.Set("child", strings.Join(q.Children, ","))
	}
	var answer struct {
		Events    []json.RawMessage `json:"events"`
		NextAfter schema.Seq        `json:"next_after"`
		HasMore   bool              `json:"has_more"`
	}
	if err := c.get(ctx, &answer, v, run, "events"); err != nil {
		return Page{}, err
	}
	p := Page{Events: make([]schema.Event, len(answer.Events)), NextAfter: answer.NextAfter, HasMore: answer.HasMore}
	for i, line := range answer.Events {
		var err error
		if p.Events[i], err = schema.DecodeLine(line); err != nil {
			return Page{}, err
		}
	}
	return p, nil
}

// Export gives what is stored of a run behind after, through an event; 0 is the newest. It ends there:
// Watch waits for more. An error is the last that it gives.
func (c *Client) Export(ctx context.Context, run string, after, through schema.Seq) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		for {
			p, err := c.Events(ctx, run, PageQuery{After: after, Limit: 1000})
			if err != nil {
				yield(schema.Event{}, err)
				return
			}
			for _, e := range p.Events {
				if through > 0 && e.Seq > through || !yield(e, nil) {
					return
				}
			}
			after = p.NextAfter
			if !p.HasMore || through > 0 && after >= through {
				return
			}
		}
	}
}
