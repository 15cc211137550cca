package agentstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"agentstream/schema"
)

// PageQuery selects one page of a run's events: from the oldest up, or with Newest from the newest down.
type PageQuery struct {
	Newest   bool
	After    schema.Seq // without Newest: events after this one; 0 is the beginning
	Before   schema.Seq // with Newest: events before this one; 0 is the end
	Limit    int        // most events, up to 1,000; 0 is the server's choice
	Types    []string   // as Options.Types
	Children []string   // as Options.Children
	Nested   bool       // as Options.Nested
}

// Page is a part of a run's stored events. Events that the filter leaves out show as holes in seq.
type Page struct {
	Events  []schema.Event
	Next    schema.Seq // After, or Before, of the next page, also when this one is empty
	HasMore bool       // the run has more by now, of any kind
}

// Events returns a page of the run's events.
func (r *Run) Events(ctx context.Context, q PageQuery) (Page, error) {
	v := url.Values{}
	for name, seq := range map[string]schema.Seq{"after": q.After, "before": q.Before} {
		if seq != 0 {
			v.Set(name, seq.String())
		}
	}
	for name, list := range map[string][]string{"types": q.Types, "child": q.Children} {
		if len(list) > 0 {
			v.Set(name, strings.Join(list, ","))
		}
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Newest {
		v.Set("order", "desc")
	}
	if q.Nested {
		v.Set("nested", "true")
	}
	var answer struct {
		Events     []json.RawMessage `json:"events"`
		NextAfter  schema.Seq        `json:"next_after"`
		NextBefore schema.Seq        `json:"next_before"`
		HasMore    bool              `json:"has_more"`
	}
	if err := r.get(ctx, &answer, v, "events"); err != nil {
		return Page{}, err
	}
	p := Page{Events: make([]schema.Event, len(answer.Events)), Next: answer.NextAfter, HasMore: answer.HasMore}
	if q.Newest {
		p.Next = answer.NextBefore
	}
	for i, line := range answer.Events {
		var err error
		if p.Events[i], err = schema.DecodeLine(line); err != nil {
			return Page{}, fmt.Errorf("event %d of a page: %w", i+1, err)
		}
	}
	return p, nil
}
