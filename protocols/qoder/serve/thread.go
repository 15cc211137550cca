package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/qoder"
	"agentstream/schema"
)

// threadStatuses are what ?statuses= may name (qoder §1.4, and the model's rescheduling).
var threadStatuses = []string{"idle", "running", "archived", "terminated", "blocked", "rescheduling"}

// threads pages through a session's threads, the coordinator's first, then in the order in which they became known;
// or with order=desc the other way round. ?statuses= filters.
func (a routes) threads(ctx context.Context, x *protocol.Call) error {
	run := x.Path("run")
	q, err := readParams(x)
	if err != nil {
		return err
	}
	w, err := a.readWindow(q, "asc", "threads\x00"+run)
	if err != nil {
		return err
	}
	statuses, err := q.names("statuses", "statuses[]", "status")
	if err == nil {
		err = checkNames("statuses", statuses, threadStatuses)
	}
	if err != nil {
		return err
	}
	_, p, err := protocol.Newest[*qoder.Projector](ctx, x, qoder.Request(run, ""))
	if err != nil {
		return err
	}
	all := p.Threads()
	place, err := threadsFrom(all, w)
	if err != nil {
		return err
	}
	found, next := protocol.Page{Limit: w.limit}, ""
	for step := map[bool]int{false: 1, true: -1}[w.down()]; place >= 0 && place < len(all); place += step {
		if len(statuses) > 0 && !slices.Contains(statuses, all[place].Status) {
			continue
		}
		if found.Full() {
			next = strconv.Itoa(place)
			break
		}
		if object, ok := p.AppendThread(nil, all[place].ID); ok {
			found.Add(all[place].ID, object)
		}
	}
	x.Reply(http.StatusOK, pageBody(&found, w, next))
	return nil
}

// threadsFrom returns the index of the first thread that is looked at. Threads only become more, so it means the same
// on the next page.
func threadsFrom(all []qoder.ThreadInfo, w window) (int, error) {
	id := w.after + w.before // one of them at most
	switch {
	case w.page != "":
		n, err := strconv.Atoi(w.page)
		if err != nil || n < 0 || n >= len(all) {
			return 0, dialect.Refuse(schema.ErrBadCursor, "page is not in this list")
		}
		return n, nil
	case id != "":
		n := slices.IndexFunc(all, func(t qoder.ThreadInfo) bool { return t.ID == id })
		if n < 0 {
			return 0, dialect.Refuse(schema.ErrBadCursor, "no thread has the id of after_id or before_id")
		}
		if w.down() {
			return n - 1, nil
		}
		return n + 1, nil
	case w.down():
		return len(all) - 1, nil
	}
	return 0, nil
}

// thread answers with a thread as it stands.
func (a routes) thread(ctx context.Context, x *protocol.Call) error {
	head, err := x.Head(ctx, x.Path("run"))
	if err != nil {
		return err
	}
	return answerThread(ctx, x, head.Last)
}

// answerThread answers with the thread of the path as it was at a place; to who may not read with its name.
func answerThread(ctx context.Context, x *protocol.Call, through schema.Seq) error {
	run, id := x.Path("run"), x.Path("thread")
	if !x.MayRead() {
		x.Reply(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"type":"session_thread"}`, id))
		return nil
	}
	req := qoder.Request(run, id)
	p, err := protocol.StateAt[*qoder.Projector](ctx, x, through, req)
	if err != nil {
		return err
	}
	if err := p.Admit(req); err != nil {
		return err
	}
	object, ok := p.AppendThread(nil, id)
	if !ok {
		return errNoThread
	}
	x.Reply(http.StatusOK, object)
	return nil
}

var errNoThread = dialect.Refuse(dialect.ErrNotFound, "session has no such thread")

// archiveThread closes the thread of a child. That of the coordinator is closed with its session.
func (a routes) archiveThread(ctx context.Context, x *protocol.Call) error {
	opt, err := x.AppendOptions()
	if err != nil {
		return err
	}
	run, id := x.Path("run"), x.Path("thread")
	_, p, err := protocol.Newest[*qoder.Projector](ctx, x, qoder.Request(run, id))
	if err != nil {
		return err
	}
	t, ok := threadOf(p, id)
	switch {
	case !ok:
		return errNoThread
	case t.Child == "":
		return dialect.Refuse(dialect.ErrBadRequest, "the coordinator's thread is archived with its session")
	}
	c := change{run: run, events: about(schema.TypeSessionArchived, t.Child, x.By([]byte(`{}`))), opt: opt}
	c.allow = func(p *qoder.Projector) error {
		if t, ok := threadOf(p, id); ok && t.Archived {
			return protocol.ErrDone
		}
		return alive(p)
	}
	_, err = stop(ctx, x, run, t.Child, func(p *qoder.Projector) bool {
		t, ok := threadOf(p, id)
		return ok && t.Busy && !t.Archived && !p.IsArchived()
	})
	if err != nil {
		return err
	}
	receipt, err := once(ctx, x, c)
	if err != nil {
		return err
	}
	return answerThread(ctx, x, receipt.Last)
}

func threadOf(p *qoder.Projector, id string) (qoder.ThreadInfo, bool) {
	for _, t := range p.Threads() {
		if t.ID == id {
			return t, true
		}
	}
	return qoder.ThreadInfo{}, false
}
