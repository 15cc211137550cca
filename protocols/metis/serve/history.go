package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/metis"
	"agentstream/schema"
)

// Sizes of pages, when none is asked for and at most (server API).
const (
	usualMessages, mostMessages = 50, 200
	usualEvents, mostEvents     = 100, 1000
)

// behind returns the place behind the frame of an id, or in front of it.
func behind(ctx context.Context, h *protocol.History, at dialect.Cursor, before bool) (protocol.Offset, error) {
	seq, n, err := h.Call.Find(ctx, h.Request.Run, at, h.Request)
	if !before {
		n++
	}
	return protocol.Offset{Seq: seq, N: n}, err
}

// messages answers with messages of a session in the order of the log: the newest, or those in front of or behind one.
func (a *api) messages(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, err1 := q.Number("limit", usualMessages, mostMessages)
	before, err2 := q.One("before")
	after, err3 := q.One("after")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if before != "" && after != "" {
		return metis.Refuse(metis.CodeInvalidRequest, "both before and after")
	}
	s, err := find(ctx, c, metis.MessagesRequest(c.Path("run")))
	if err != nil {
		return err
	}
	h := protocol.History{Call: c, Request: s.req, Newest: s.head.Last, Page: protocol.Page{Limit: limit}}
	from := protocol.Offset{Seq: s.head.Last + 1}
	if id := before + after; id != "" {
		seq, err := metis.ParseMessageID(s.req.Run, id)
		if err == nil {
			from, err = behind(ctx, &h, dialect.Cursor{Seq: seq, Token: id, Later: true}, before != "")
		}
		if err := badID(err, id); err != nil {
			return err
		}
	}
	if after != "" {
		err = h.Up(ctx, from)
	} else {
		err = h.Down(ctx, from)
		slices.Reverse(h.Items)
	}
	if err != nil {
		return err
	}
	older, newer := h.More, before != ""
	if after != "" {
		older, newer = true, h.More
	}
	c.Reply(http.StatusOK, fmt.Appendf(h.Append([]byte(`{"messages":[`)), `],"has_more_before":%t,"has_more_after":%t}`,
		older, newer))
	return nil
}

// span is what since and until ask for: the places between two events, and the times between two moments.
type span struct {
	after, through dialect.Place // zero: no bound
	from, to       time.Time
}

// has reports whether an event lies within the bounds that are no place of the walk.
func (s *span) has(f dialect.Frame, r schema.Record) bool {
	if s.through.Seq == r.Seq && f.Slot > s.through.Slot {
		return false
	}
	if s.from.IsZero() && s.to.IsZero() {
		return true
	}
	_, ts, _ := r.Envelope()
	at, err := time.Parse(time.RFC3339Nano, string(ts))
	return err == nil && !at.Before(s.from) && (s.to.IsZero() || !at.After(s.to))
}

// readBound reads since or until: the id of an event, or a time.
func readBound(q protocol.Query, name, run string) (place dialect.Place, at time.Time, err error) {
	text, err := q.One(name)
	if err != nil || text == "" {
		return place, at, err
	}
	if at, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return place, at, nil
	}
	place, err = metis.ParseEventID(run, text)
	return place, at, badID(err, name)
}

// badID returns the refusal of an id, with its code.
func badID(err error, name string) error {
	if errors.Is(err, schema.ErrBadCursor) {
		return metis.Refuse(metis.CodeInvalidRequest, "%s is none of this session", name)
	}
	return err
}

// events answers with events of a session in the order of the log, as its stream has them.
func (a *api) events(ctx context.Context, c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, err1 := q.Number("limit", usualEvents, mostEvents)
	cursor, err2 := q.One("cursor")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	filter := metis.Filter{Types: dialect.SplitList(q["event_types"])}
	all := metis.Types()
	if len(filter.Types) > metis.MaxChoices {
		return metis.Refuse(metis.CodeInvalidRequest, "event_types has more than %d names", metis.MaxChoices)
	}
	for _, name := range filter.Types {
		if !slices.Contains(all, name) {
			return metis.Refuse(metis.CodeInvalidRequest, "event_types has an unknown name: %.100q", name)
		}
	}
	slices.Sort(filter.Types)
	filter.Types = slices.Compact(filter.Types)
	s, err := find(ctx, c, metis.EventsRequest(c.Path("run"), filter))
	if err != nil {
		return err
	}
	var within span
	if within.after, within.from, err = readBound(q, "since", s.req.Run); err != nil {
		return err
	}
	if within.through, within.to, err = readBound(q, "until", s.req.Run); err != nil {
		return err
	}
	h := protocol.History{Call: c, Request: s.req, Newest: s.head.Last, Wants: within.has,
		Page: protocol.Page{Limit: limit}}
	if last := within.through.Seq; last > 0 {
		h.Newest = min(h.Newest, last)
	}
	list := "metis\x00" + c.Path("run")
	from := protocol.Offset{Seq: 1}
	switch text, ok := protocol.ReadPageToken(list, cursor); {
	case ok:
		from, err = protocol.ParseOffset(text)
	case cursor != "":
		err = metis.Refuse(metis.CodeInvalidRequest, "cursor is not from this list")
	case within.after.Seq > 0:
		from, err = behind(ctx, &h, dialect.Cursor{Place: within.after}, false)
	}
	if err := badID(err, "since"); err != nil {
		return err
	}
	if err := h.Up(ctx, from); err != nil {
		return err
	}
	for i, it := range h.Items {
		h.Items[i].Data = metis.EventOf(it.Data)
	}
	b := append(h.Append([]byte(`{"events":[`)), `],"next_cursor":`...)
	if !h.More {
		c.Reply(http.StatusOK, append(b, `null}`...))
		return nil
	}
	c.Reply(http.StatusOK, fmt.Appendf(b, "%q}", protocol.PageToken(list, h.Next.String())))
	return nil
}
