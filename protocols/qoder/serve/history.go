package serve

import (
	"context"
	"net/http"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// wanted is what a history is filtered by.
type wanted struct {
	types []string // nil: all
	span  span
}

func (w *wanted) has(f dialect.Frame, r schema.Record) bool {
	if w.types != nil && !slices.Contains(w.types, string(f.Event)) {
		return false
	}
	if w.span.all() {
		return true
	}
	_, ts, _ := r.Envelope()
	return w.span.has(ts)
}

// history answers with events of a session or of a thread as they were on its stream: oldest first, or newest first
// with order=desc, filtered by types and created_at[…].
//
// A request looks at 20,000 records at most and then returns what it has found, so a page may be short, or empty, with
// more to come.
func (a routes) history(ctx context.Context, x *protocol.Call) error {
	run, thread := x.Path("run"), x.Path("thread")
	q, err := readParams(x)
	if err != nil {
		return err
	}
	w, err := a.readWindow(q, "asc", "events\x00"+run+"\x00"+thread)
	if err != nil {
		return err
	}
	var want wanted
	if want.types, err = q.names("types", "types[]", "type"); err != nil {
		return err
	}
	if want.span, err = q.creationSpan(); err != nil {
		return err
	}
	p := protocol.History{Call: x, Request: qoder.Request(run, thread), Page: protocol.Page{Limit: w.limit},
		Wants: want.has}
	head, _, err := protocol.Newest[*qoder.Projector](ctx, x, p.Request)
	if err != nil {
		return err
	}
	p.Newest = head.Last
	from, err := placeOf(ctx, &p, w)
	if err != nil {
		return err
	}
	if w.down() {
		err = p.Down(ctx, from)
	} else {
		err = p.Up(ctx, from)
	}
	if err != nil {
		return err
	}
	next := ""
	if p.More {
		next = p.Next.String()
	}
	x.Reply(http.StatusOK, pageBody(&p.Page, w, next))
	return nil
}

// placeOf returns the place where a page begins.
func placeOf(ctx context.Context, p *protocol.History, w window) (protocol.Offset, error) {
	id := w.after + w.before // one of them at most
	switch {
	case w.page != "":
		s, err := protocol.ParseOffset(w.page)
		if err == nil && (s.Seq < 1 || s.Seq > p.Newest+1) {
			err = dialect.Refuse(schema.ErrBadCursor, "page is not in this list")
		}
		return s, err
	case id != "":
		cursor, err := qoder.CursorOf(p.Request.Run, id)
		if err != nil {
			return protocol.Offset{}, err
		}
		seq, before, err := p.Call.Find(ctx, p.Request.Run, cursor, p.Request)
		if !w.down() {
			before++ // behind the event
		}
		return protocol.Offset{Seq: seq, N: before}, err
	case w.down():
		return protocol.Offset{Seq: p.Newest + 1}, nil
	}
	return protocol.Offset{Seq: 1}, nil
}
