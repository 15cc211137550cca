package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/schema"
)

// Bounds of a page.
const (
	defaultPage  = 100
	maxPage      = 1000
	maxPageBytes = 4 << 20 // a page ends with the event that crosses it
	maxPageScan  = 20_000  // events that one request looks at, shown or not
	minPageScan  = 1000    // of which downwards so many first, then twice as many, and so on
)

// pageQuery is what a page is asked for.
type pageQuery struct {
	filter shape.Filter
	desc   bool
	after  schema.Seq // asc: events behind it
	step   int        // asc, byStep: from the step of this index on
	byStep bool
	before schema.Seq // desc: events in front of it; 0: from the newest
	limit  int
}

// page answers with events as they are stored: ?order=asc &after= from the oldest up, ?order=desc
// &before= from the newest down, &limit=, and filtered by &types=, &child= and &nested= as streams
// are.
//
// next_after (next_before) goes into the next request, also when the page is empty: it counts what the
// filter hides. has_more says whether the run has events of any kind beyond it by now. A request
// looks at 20,000 events at most and then returns what it has found, so a page may be empty with more to
// come.
func (a *API) page(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	q, err := readPage(c.Request)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	src, pos, err := a.cfg.Runs.WhereIs(ctx, key)
	if err != nil {
		return err
	}
	if q.byStep {
		if q.after, err = a.cfg.Runs.StepStart(ctx, src, q.step, pos.Last); err != nil {
			return err
		}
	}
	ahead := max(q.after, q.before-1)
	if ahead > pos.Last {
		return &ends.PositionError{Last: pos.Last, Err: fmt.Errorf("position %d: %w", ahead, fanout.ErrFuture)}
	}
	p := &page{a: a, src: src, query: q, newest: pos.Last, body: append(make([]byte, 0, 4<<10), `{"events":[`...)}
	name, more := `],"next_after":`, false
	if q.desc {
		name = `],"next_before":`
		err = p.down(ctx)
		more = p.next > 1
	} else {
		err = p.up(ctx)
		more = p.next < pos.Last
	}
	if err != nil {
		return err
	}
	body := strconv.AppendInt(append(p.body, name...), int64(p.next), 10)
	body = strconv.AppendBool(append(body, `,"has_more":`...), more)
	c.Seq, c.Events = p.next, p.found
	c.Reply(http.StatusOK, append(body, '}'))
	return nil
}

func readPage(r *http.Request) (out pageQuery, err error) {
	q, err := protocol.ReadQuery(r)
	if err != nil {
		return out, err
	}
	order, err := q.Choice("order", "asc", "desc")
	if err != nil {
		return out, err
	}
	if out.after, err = q.Seq("after", 0); err != nil {
		return out, err
	}
	if out.before, err = q.Seq("before", 0); err != nil {
		return out, err
	}
	if out.step, out.byStep, err = stepOf(q); err != nil {
		return out, err
	}
	if out.byStep && (order == "desc" || len(q["after"]) > 0) {
		return out, fmt.Errorf("from_step does not go with after or order desc: %w", dialect.ErrBadRequest)
	}
	if out.limit, err = q.Number("limit", defaultPage, maxPage); err != nil {
		return out, err
	}
	if out.filter, err = filterOf(q); err != nil {
		return out, err
	}
	out.desc = order == "desc"
	if wrong := map[bool]string{true: "after", false: "before"}[out.desc]; len(q[wrong]) > 0 {
		return out, fmt.Errorf("%s does not go with order %s: %w", wrong, order, dialect.ErrBadRequest)
	}
	if out.desc && len(q["before"]) > 0 && out.before == 0 {
		return out, dialect.Refuse(schema.ErrBadCursor, "before must be a seq from 1 on, not 0")
	}
	return out, nil
}

// page is one answer under way.
type page struct {
	a      *API
	src    runs.Source
	query  pageQuery
	newest schema.Seq
	body   []byte
	found  int
	next   schema.Seq
}

// add appends an event.
func (p *page) add(line []byte) {
	if p.found > 0 {
		p.body = append(p.body, ',')
	}
	p.body = append(p.body, line...)
	p.found++
}

func (p *page) full() bool { return p.found >= p.query.limit || len(p.body) > maxPageBytes }

// up goes from after towards the newest event. The walk is bounded by that and not by the page, so
// that it meets what is kept behind a hole.
func (p *page) up(ctx context.Context) error {
	p.next = p.query.after
	if p.next == p.newest {
		return nil
	}
	scanned := 0
	for r, err := range p.a.cfg.Runs.Walk(ctx, p.src, p.next, p.newest) {
		if err != nil {
			return err
		}
		if p.query.filter.Match(r) {
			p.add(r.Line)
		}
		scanned++
		if p.next = r.Seq; p.full() || scanned == maxPageScan {
			return nil
		}
	}
	return nil
}

// down goes from before towards the first event. History is read upwards alone, so it takes stretches,
// each in front of the one before it.
func (p *page) down(ctx context.Context) error {
	p.next = p.newest + 1
	if p.query.before > 0 {
		p.next = p.query.before
	}
	look := minPageScan
	if p.src.Child != "" { // each range of a child's would be counted from its first event
		look = maxPageScan
	}
	for scanned := 0; p.next > 1 && !p.full() && scanned < maxPageScan; look *= 2 {
		size := p.query.limit - p.found
		if !p.query.filter.All() || p.src.Child != "" {
			size = min(max(size, look), maxPageScan-scanned)
		}
		from := p.next
		err := p.readRange(ctx, max(from-1-schema.Seq(size), 0))
		if gone := new(fanout.ExpiredError); errors.As(err, &gone) {
			switch {
			case gone.First > 0 && gone.First < from: // its upper part is still kept
				err = p.readRange(ctx, gone.First-1)
				if err == nil {
					return nil // what is missing is for the next request to hear
				}
			case p.found > 0:
				return nil
			}
		}
		if err != nil {
			return err
		}
		scanned += int(from - p.next)
	}
	return nil
}

// readRange adds the events after lo and before next, the newest first, until the page is full.
func (p *page) readRange(ctx context.Context, lo schema.Seq) error {
	hi := p.next - 1
	kept := protocol.Tail[schema.Seq]{Most: p.query.limit - p.found, Room: maxPageBytes - len(p.body)}
	pos := lo
	for r, err := range p.a.cfg.Runs.Walk(ctx, p.src, lo, p.newest) { // by newest, not hi: as in up
		if err != nil {
			return err
		}
		if r.Seq > hi {
			break
		}
		if pos = r.Seq; p.query.filter.Match(r) {
			kept.Push(r.Seq, "", r.Line)
		}
		if pos == hi {
			break
		}
	}
	if pos < hi {
		return fmt.Errorf("events end at %d, %d exists: %w", pos, hi, fanout.ErrUnavailable)
	}
	for _, e := range slices.Backward(kept.List) {
		p.add(e.Data)
	}
	p.next = lo + 1
	if kept.Cut {
		p.next = kept.List[0].At
	}
	return nil
}

// filterOf reads types, child and nested, as streams do.
func filterOf(q protocol.Query) (shape.Filter, error) {
	nested, err := q.Choice("nested", "false", "true", "0", "1")
	if err != nil {
		return shape.Filter{}, err
	}
	f := dialect.Filter{
		Children: dialect.SplitList(q["child"]), Types: dialect.SplitList(q["types"]), Nested: nested == "true" ||
			nested == "1",
	}
	if f, err = f.Normal(); err != nil {
		return shape.Filter{}, err
	}
	return shape.NewFilter(f.Children, f.Types, f.Nested), nil
}
