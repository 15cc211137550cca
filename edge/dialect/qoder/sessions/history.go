package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/qoder"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/schema"
)

// Bounds of one request for a page of events.
const (
	maxScan = 20_000 // records that it looks at, shown or not
	minScan = 1024   // of which downwards so many first, then twice as many, and so on
)

// spot is a place between the frames of a history: in front of frame n of a record, counted from 0 among all that
// the record has in this history, whatever a filter hides.
type spot struct {
	seq schema.Seq
	n   int
}

func (s spot) String() string { return s.seq.String() + "." + strconv.Itoa(s.n) }

// parseSpot reads what String wrote. The error wraps schema.ErrBadCursor.
func parseSpot(text string) (s spot, err error) {
	seq, n, _ := strings.Cut(text, ".")
	if s.seq, err = schema.ParseCursor(seq); err != nil {
		return s, err
	}
	if s.n, err = strconv.Atoi(n); err != nil || s.n < 0 || s.String() != text {
		return s, dialect.Refuse(schema.ErrBadCursor, "page is not from this list")
	}
	return s, nil
}

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

// pages reads the history of a session, or of a thread, for one page.
type pages struct {
	x      *protocol.Call
	run    string
	req    dialect.Request
	want   wanted
	newest schema.Seq
	found  list
	frames dialect.Frames
	next   spot // where the next page goes on
	more   bool // there is one
}

// history answers with events of a session or of a thread as they were on its stream: oldest first, or newest first
// with order=desc, filtered by types and created_at[…].
//
// A request looks at 20,000 records at most and then gives what it has found, so a page may be short, or empty, with
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
	p := pages{x: x, run: run, req: qoder.Request(run, thread), found: list{limit: w.limit}}
	if p.want.types, err = q.names("types", "types[]", "type"); err != nil {
		return err
	}
	if p.want.span, err = q.created(); err != nil {
		return err
	}
	head, _, err := newest(ctx, x, run, p.req)
	if err != nil {
		return err
	}
	p.newest = head.Last
	from, err := p.from(ctx, w)
	if err != nil {
		return err
	}
	if w.down() {
		err = p.down(ctx, from)
	} else {
		err = p.up(ctx, from)
	}
	if err != nil {
		return err
	}
	next := ""
	if p.more {
		next = p.next.String()
	}
	x.Reply(http.StatusOK, p.found.body(w, next))
	return nil
}

// from returns the place where a page begins.
func (p *pages) from(ctx context.Context, w window) (spot, error) {
	id := w.after + w.before // one of them at most
	switch {
	case w.page != "":
		s, err := parseSpot(w.page)
		if err == nil && (s.seq < 1 || s.seq > p.newest+1) {
			err = dialect.Refuse(schema.ErrBadCursor, "page is not in this list")
		}
		return s, err
	case id != "":
		cursor, err := qoder.CursorOf(p.run, id)
		if err != nil {
			return spot{}, err
		}
		seq, before, err := p.x.Find(ctx, p.run, cursor, p.req)
		if !w.down() {
			before++ // behind the event
		}
		return spot{seq, before}, err
	case w.down():
		return spot{seq: p.newest + 1}, nil
	}
	return spot{seq: 1}, nil
}

// up goes from a place towards the newest record. One more event than the page takes is looked for, to know
// whether there is a next page.
func (p *pages) up(ctx context.Context, from spot) error {
	p.next = from
	looked := 0
	return p.walk(ctx, from.seq-1, p.newest, func(r schema.Record) (bool, error) {
		for i, f := range p.frames.List {
			at := spot{r.Seq, i}
			if r.Seq == from.seq && i < from.n || !p.want.has(f, r) {
				continue
			}
			if p.found.full() {
				p.next, p.more = at, true
				return false, nil
			}
			p.found.add(string(f.Token), bytes.Clone(f.Data))
		}
		p.next = spot{seq: r.Seq + 1}
		looked++
		p.more = looked == maxScan && r.Seq < p.newest
		return !p.more, nil
	})
}

// down goes from a place towards the first record. A history is projected upwards alone, so it takes stretches, each
// in front of the one before it.
func (p *pages) down(ctx context.Context, from spot) error {
	p.next = from
	look := max(minScan, 2*p.found.limit)
	for left := maxScan; p.next.seq > 1 || p.next.n > 0; look *= 2 {
		if p.found.bytes > maxPageBytes || left == 0 {
			p.more = true
			return nil
		}
		hi := p.next.seq
		if p.next.n == 0 {
			hi--
		}
		lo := max(hi-schema.Seq(min(look, left)), 0)
		cut, err := p.stretch(ctx, lo, hi)
		if gone := new(fanout.ExpiredError); errors.As(err, &gone) {
			if gone.First < 1 || gone.First > hi {
				return p.shorten(err)
			}
			lo = gone.First - 1 // its upper part is still kept
			if cut, err = p.stretch(ctx, lo, hi); err == nil && !cut {
				p.more = true // what is missing is for the next request to hear
				cut = true
			}
		}
		if err != nil || cut {
			return err
		}
		left -= int(hi - lo)
	}
	return nil
}

// shorten ends a page in front of what is no longer kept; the next one hears of it.
func (p *pages) shorten(err error) error {
	if len(p.found.items) == 0 {
		return err
	}
	p.more = true
	return nil
}

// stretch adds the events of the records behind lo and up to hi that lie in front of p.next, the newest first. cut
// says that the page was full before it had them all, so that there is a next one.
func (p *pages) stretch(ctx context.Context, lo, hi schema.Seq) (cut bool, err error) {
	kept := tail{most: p.found.limit - len(p.found.items), room: maxPageBytes - p.found.bytes}
	err = p.walk(ctx, lo, hi, func(r schema.Record) (bool, error) {
		for i, f := range p.frames.List {
			if r.Seq == p.next.seq && i >= p.next.n {
				break
			}
			if p.want.has(f, r) {
				kept.push(spot{r.Seq, i}, f)
			}
		}
		return true, nil
	})
	if err != nil {
		return false, err
	}
	for i := len(kept.list) - 1; i >= 0; i-- {
		p.found.add(kept.list[i].id, kept.list[i].data)
		p.next = kept.list[i].at
	}
	if kept.cut {
		p.more = true
		return true, nil
	}
	p.next = spot{seq: lo + 1}
	return false, nil
}

// walk calls fn with each record behind lo up to hi, its frames in p.frames, until fn gives false.
func (p *pages) walk(ctx context.Context, lo, hi schema.Seq, fn func(schema.Record) (bool, error)) error {
	if lo >= hi {
		return nil
	}
	projector, err := at(ctx, p.x, p.run, lo, p.req)
	if err != nil {
		return err
	}
	at := lo
	for r, err := range p.x.Records(ctx, p.run, lo, hi) {
		if err != nil {
			return err
		}
		p.frames.Reset()
		if err := projector.Project(&p.frames, r); err != nil {
			return err
		}
		more, err := fn(r)
		if err != nil || !more {
			return err
		}
		at = r.Seq
	}
	if at < hi {
		return fmt.Errorf("records of %s end at %d, %d exists: %w", p.run, at, hi, fanout.ErrUnavailable)
	}
	return nil
}

// tail holds the newest frames of what passes, in its order: at most so many, and about so many bytes.
type tail struct {
	most, room int
	list       []tailFrame
	bytes      int
	cut        bool // older ones were let go
}

type tailFrame struct {
	at   spot
	id   string
	data []byte
}

func (t *tail) push(at spot, f dialect.Frame) {
	t.list = append(t.list, tailFrame{at, string(f.Token), bytes.Clone(f.Data)})
	t.bytes += len(f.Data)
	for len(t.list) > t.most || len(t.list) > 1 && t.bytes-len(t.list[0].data) > t.room {
		t.bytes -= len(t.list[0].data)
		t.list[0].data = nil
		t.list, t.cut = t.list[1:], true
	}
}
