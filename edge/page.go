package edge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// Bounds of a page.
const (
	defaultPage  = 100
	maxPage      = 1000
	maxPageBytes = 4 << 20 // a page ends behind the event that crosses it
)

// page answers with events behind a position, as they are stored. has_more says whether the run has
// more by now; next_after goes into the next request, also when the page is empty.
func (s *Server) page(c *call) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	after, limit, err := pageBounds(c.r.URL.RawQuery)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	head, err := s.existing(ctx, key)
	if err != nil {
		return err
	}
	if after > head.Last {
		return &positionError{last: head.Last, err: fmt.Errorf("after %d: %w", after, fanout.ErrFuture)}
	}
	body := append(make([]byte, 0, 4<<10), `{"events":[`...)
	body, next, err := s.appendEvents(ctx, body, key, after, head.Last, limit)
	if err != nil {
		return err
	}
	body = strconv.AppendInt(append(body, `],"next_after":`...), int64(next), 10)
	body = strconv.AppendBool(append(body, `,"has_more":`...), next < head.Last)
	c.seq, c.events = next, int(next-after)
	c.reply(http.StatusOK, append(body, '}'))
	return nil
}

// appendEvents appends at most limit events behind after and gives the last one's seq. The walk is
// bounded by the run's newest event and not by the page, so that it meets what is kept behind a hole.
func (s *Server) appendEvents(ctx context.Context, body []byte, key schema.RunKey, after, newest schema.Seq, limit int) ([]byte, schema.Seq, error) {
	next, through := after, min(after+schema.Seq(limit), newest)
	if through == after {
		return body, next, nil
	}
	for p, err := range s.hub.Packs(ctx, key, after, newest) {
		if err != nil {
			return nil, 0, err
		}
		for r, err := range p.Records(next) {
			if err != nil {
				return nil, 0, err
			}
			if next > after {
				body = append(body, ',')
			}
			body = append(body, r.Line...)
			if next = r.Seq; next == through || len(body) > maxPageBytes {
				return body, next, nil
			}
		}
	}
	return body, next, nil
}

func pageBounds(rawQuery string) (after schema.Seq, limit int, err error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return 0, 0, fmt.Errorf("query: %w", dialect.ErrBadRequest)
	}
	if len(query["after"]) > 1 || len(query["limit"]) > 1 {
		return 0, 0, fmt.Errorf("after or limit is given twice: %w", dialect.ErrBadRequest)
	}
	if after, err = schema.ParseCursor(query.Get("after")); err != nil {
		return 0, 0, err
	}
	text := query.Get("limit")
	if text == "" {
		return after, defaultPage, nil
	}
	n, err := schema.ParseCursor(text) // digits alone, as a cursor
	if err != nil || n < 1 || n > maxPage {
		return 0, 0, fmt.Errorf("limit is not a number from 1 to %d: %w", maxPage, dialect.ErrBadRequest)
	}
	return after, int(n), nil
}
