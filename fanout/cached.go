package fanout

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sort"
	"time"

	"agentstream/schema"
)

// cacheReader is one walk through a run's pages. One goroutine uses it.
type cacheReader struct {
	c       *cache
	run     *cachedRun
	ctx     context.Context
	through schema.Seq
	mine    *logWalk // the one that this reader used last, if nobody else has taken it since
}

// logWalk is a walk through the log that stands still between two pages: the reader that needs the next one
// goes on with it. It belongs to who used it last, and ends with that reader.
type logWalk struct {
	pos, through schema.Seq
	owner        *cacheReader
	next         func() (schema.Pack, error, bool)
	stop         func()
	cancel       context.CancelCauseFunc
}

// close stops the walk and what it reads.
func (w *logWalk) close() {
	w.cancel(context.Canceled)
	w.stop()
}

// packs yields the packs with after < seq ≤ through. An error comes with the position that was
// reached.
func (c *cache) packs(ctx context.Context, key schema.RunKey, after, through schema.Seq,
	yield func(schema.Pack, error) bool) (schema.Seq, error) {
	r := &cacheReader{c: c, run: c.enter(key), ctx: ctx, through: through}
	defer r.close()
	for pos := after; pos < through; {
		p, err := r.page(pos)
		if err != nil || p == nil {
			return pos, err
		}
		i := sort.Search(len(p.packs), func(i int) bool { return p.packs[i].Last() > pos })
		for ; i < len(p.packs); i++ {
			q := p.packs[i]
			if q.First > through {
				return pos, nil
			}
			if q.First <= pos {
				q = q.Trim(pos)
			}
			pos = q.Last()
			if !yield(q, nil) {
				return pos, nil
			}
		}
	}
	return through, nil
}

func (r *cacheReader) close() {
	w := r.park(nil)
	r.c.leave(r.run)
	if w != nil {
		w.close()
	}
}

// page returns a page that holds what is next behind pos; nil when there is nothing.
func (r *cacheReader) page(pos schema.Seq) (*page, error) {
	var came uint64 // how many fetches had begun when page was called
	for asked, first := false, true; ; {
		if err := r.ctx.Err(); err != nil {
			return nil, context.Cause(r.ctx)
		}
		r.c.mu.Lock()
		if first {
			came, first = r.run.begun, false
		}
		// Once is enough: what was true when page was called is good for this page.
		if !asked && len(r.run.pages) > 0 && time.Since(r.run.checked) > r.c.fresh {
			if err := r.check(); err != nil {
				return nil, err
			}
			asked = true
			continue
		}
		if p := r.run.find(pos + 1); p != nil {
			r.c.used.Touch(p.kept)
			held := r.c.used.Weight()
			r.c.mu.Unlock()
			r.c.report(true, held)
			return p, nil
		}
		through := r.through
		if v := r.c.ring(r.run.key); v != nil && len(v.packs) > 0 && v.hi >= through {
			if v.lo <= pos+1 {
				r.c.mu.Unlock()
				return &page{packs: v.packs, lo: v.lo, hi: v.hi}, nil
			}
			through = min(through, v.lo-1)
		}
		f, read := r.fetch(pos, through)
		r.c.mu.Unlock()
		if read != nil {
			r.read(f, read)
		} else {
			select {
			case <-f.done:
			case <-r.ctx.Done():
				continue
			}
		}
		// What a fetch did not find may have been stored before page was called, when the fetch had begun
		// before: then the next one decides. A log that does not answer is asked once.
		late := read == nil && f.number <= came && !errors.Is(f.err, ErrUnavailable)
		switch {
		case f.page != nil && f.page.lo <= pos+1 && f.page.hi > pos:
			return f.page, nil
		case f.gone && read == nil, late:
		case f.err != nil && (read != nil || f.at == pos):
			return nil, f.err
		case f.page == nil && f.at == pos && f.through >= through:
			return nil, nil
		}
	}
}

// fetchWithin is how far behind its own place a reader waits for the page of another one, in events.
const fetchWithin = 1024

// fetch finds a reading under way that will return what lies behind pos, or begins one: then it returns
// the walk to read from, as far as through. Under the lock.
func (r *cacheReader) fetch(pos, through schema.Seq) (*fetchOnce, *logWalk) {
	for _, f := range r.run.fetches {
		if f.at <= pos && pos-f.at < fetchWithin && f.through > pos {
			return f, nil
		}
	}
	r.run.begun++
	f := &fetchOnce{at: pos, through: through, number: r.run.begun, done: make(chan struct{})}
	r.run.fetches = append(r.run.fetches, f)
	for i, w := range r.run.parked {
		if w.pos == pos {
			r.run.parked = slices.Delete(r.run.parked, i, i+1)
			if w.owner != r {
				w.owner.mine, w.owner = nil, r
			}
			f.through = w.through
			return f, w
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	w := &logWalk{pos: pos, through: through, owner: r, cancel: cancel}
	w.next, w.stop = iter.Pull2(r.c.walk(ctx, r.run.key, pos, through))
	return f, w
}

// read reads one page. It ends early with the reader, whom the others that wait outlive.
func (r *cacheReader) read(f *fetchOnce, w *logWalk) {
	cancel := w.cancel
	stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	p := &page{lo: f.at + 1, hi: f.at}
	more := true
	for more && p.bytes < pageBytes && len(p.packs) < pagePacks {
		var q schema.Pack
		if q, f.err, more = w.next(); !more || f.err != nil {
			more = false
			break
		}
		p.packs, p.bytes, p.hi = append(p.packs, q), p.bytes+len(q.Body)+packOverhead, q.Last()
		more = p.hi < w.through
	}
	w.pos = p.hi
	if !stop() { // the walk has ended with us
		f.gone, more = f.err != nil, false
	}
	c := r.c
	c.mu.Lock()
	r.run.fetches = slices.DeleteFunc(r.run.fetches, func(o *fetchOnce) bool { return o == f })
	if len(p.packs) > 0 {
		f.page, f.err = c.keep(r.run, p), nil // an error shows again when the rest is asked for
	} else if errors.Is(f.err, ErrExpired) {
		c.expire(r.run, f.at)
	}
	held := c.used.Weight()
	c.mu.Unlock()
	if !more {
		w.close()
		w = nil
	}
	if old := r.park(w); old != nil {
		old.close()
	}
	close(f.done)
	c.report(false, held)
}

// park leaves w, if any, for the next reader, and removes the one that this reader left before.
func (r *cacheReader) park(w *logWalk) (old *logWalk) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if old = r.mine; old != nil {
		r.run.parked = slices.DeleteFunc(r.run.parked, func(o *logWalk) bool { return o == old })
	}
	if r.mine = w; w != nil {
		r.run.parked = append(r.run.parked, w)
	}
	if old == w {
		return nil
	}
	return old
}

// check looks whether the log still has what the first page has, and forgets the run's pages when it
// has not: they have expired, or were purged. It comes with the lock and goes without.
func (r *cacheReader) check() error {
	c, run := r.c, r.run
	if f := run.checking; f != nil {
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
		if f.gone {
			return nil // ask ourselves
		}
		return f.err
	}
	f := &fetchOnce{done: make(chan struct{})}
	run.checking = f
	first := run.pages[0].packs[0]
	c.mu.Unlock()
	same, err := c.same(r.ctx, run.key, first)
	f.gone, f.err = err != nil && r.ctx.Err() != nil, err
	c.mu.Lock()
	run.checking = nil
	switch {
	case same:
		run.checked = time.Now()
	case err == nil:
		for len(run.pages) > 0 {
			c.remove(run.pages[0])
		}
	}
	c.mu.Unlock()
	close(f.done)
	return err
}

// same reports whether the log has the pack's first line where the pack has it.
func (c *cache) same(ctx context.Context, key schema.RunKey, p schema.Pack) (bool, error) {
	for q, err := range c.walk(ctx, key, p.First-1, p.First) {
		switch {
		case errors.Is(err, ErrExpired) || errors.Is(err, ErrNotFound):
			return false, nil
		case err != nil:
			return false, err
		}
		return q.First == p.First && bytes.Equal(firstLine(q.Body), firstLine(p.Body)), nil
	}
	return false, nil
}

func firstLine(body []byte) []byte {
	line, _, _ := bytes.Cut(body, []byte{'\n'})
	return line
}
