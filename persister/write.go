package persister

import (
	"context"
	"errors"
	"time"
)

// store is the second step. It stores whatever is handed over, until the first step has ended or what
// follows must be read anew.
func (s *session) store(ctx, turn, work context.Context) error {
	for b := range s.fetched {
		if err := s.write(ctx, turn, work, b); err != nil {
			return err
		}
	}
	return nil
}

// write stores a batch in as many transactions as needed. It tries until the store takes it, ctx or turn has
// ended, another process was faster, or the store has failed for Config.Hold: in an outage of hours nothing is
// held.
func (s *session) write(ctx, turn, work context.Context, b *batch) error {
	p := s.p
	var failing time.Time // since when this batch fails
	for at := 0; at < len(b.msgs); {
		if q, ok := p.queue.(Steady); ok && !q.Same() {
			return errAway
		}
		n, rows := p.take(b.items[at:])
		begin := time.Now()
		done, err := p.commit(work, b, at, at+n)
		s.let(b.items[at : at+done])
		at += done
		switch {
		case err == nil:
			// Messages have many rows or one: a transaction that was cut is as large as its bound lets it be.
			cut := at < len(b.msgs)
			p.size.stored(time.Since(begin), cut || b.full && rows >= p.size.rows()/2)
			p.recovered(storing)
			failing = time.Time{}
		case errors.Is(err, ErrOvertaken) || ctx.Err() != nil || turn.Err() != nil: // no second attempt
			return err
		default:
			if failing.IsZero() {
				failing = time.Now()
			}
			p.size.failed()
			pause := p.failed(ctx, storing, err)
			if time.Since(failing)+pause >= p.cfg.Hold || !sleep(turn, pause) {
				return storeError{err}
			}
		}
	}
	return nil
}

// errAway reports that the log was away since it was read.
var errAway = errors.New("the log was away since this was read: it is read again")

// let forgets messages that are stored.
func (s *session) let(items []item) {
	size := 0
	for i := range items {
		size += items[i].bytes
	}
	s.p.room.give(size)
}

// take counts how many messages the next transaction gets, at least one, and their rows.
func (p *pipeline) take(items []item) (n, rows int) {
	most := p.size.rows()
	for n < len(items) {
		more := len(items[n].chunk.Rows) + len(items[n].bad)
		if n > 0 && rows+more > most {
			break
		}
		rows += more
		n++
	}
	return n, rows
}

// commit stores what the messages from first to end hold, and returns how many of them are stored: all,
// unless it returns an error.
func (p *pipeline) commit(work context.Context, b *batch, first, end int) (int, error) {
	t := p.transferOf(b, first, end)
	err := p.transfer(work, t, end-first)
	if errors.Is(err, ErrPoison) && end-first == 1 && len(t.Chunks) == 1 {
		err = p.divide(work, t)
	}
	switch {
	case err == nil:
		return end - first, nil
	case !errors.Is(err, ErrPoison) || end-first == 1:
		return 0, err
	}
	middle := first + (end-first)/2
	n, err := p.commit(work, b, first, middle)
	if err != nil {
		return n, err
	}
	m, err := p.commit(work, b, middle, end)
	return n + m, err
}

// transferOf returns the transaction of some messages.
func (p *pipeline) transferOf(b *batch, first, end int) *Transfer {
	t := &Transfer{Chunks: make([]Chunk, 0, end-first), Owner: p.share.me}
	for i := first; i < end; i++ {
		t.DeadLetters = append(t.DeadLetters, b.items[i].bad...)
		if len(b.items[i].chunk.Rows) > 0 {
			t.Chunks = append(t.Chunks, b.items[i].chunk)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.From = p.offset
	t.To = t.From.behind(&b.msgs[end-1])
	return t
}

// attempt tries one transaction.
func (p *pipeline) attempt(ctx context.Context, t *Transfer) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Attempt)
	defer cancel()
	return p.cfg.Store.Transfer(ctx, t)
}

// transfer makes one transaction and notes what it did.
func (p *pipeline) transfer(ctx context.Context, t *Transfer, messages int) error {
	begin := p.cfg.Now()
	res, err := p.attempt(ctx, t)
	if err != nil {
		return err
	}
	if t.Moves() {
		p.moved(t.To)
		p.overtaken = 0
	}
	p.kept(Stored{Messages: messages, Inserted: res.Inserted, Repeated: res.Repeated, Dropped: res.Dropped,
		Took: p.cfg.Now().Sub(begin)}, append(t.DeadLetters, t.Conflicting(res.Conflicts)...))
	return nil
}

// divide stores one message whose rows the store refuses: those that can be kept, then the others as dead
// letters with the offset. The rows alone move no offset; should the process end in between, they are there
// when the message is read again.
func (p *pipeline) divide(ctx context.Context, t *Transfer) error {
	refused, err := p.rows(ctx, t.Chunks[0])
	if err != nil {
		return err
	}
	return p.transfer(ctx, &Transfer{DeadLetters: append(t.DeadLetters, refused...), From: t.From, To: t.To, Owner: t.Owner}, 1)
}

// rows stores what can be stored of a chunk, and returns the dead letters of the rows that cannot.
func (p *pipeline) rows(ctx context.Context, c Chunk) ([]DeadLetter, error) {
	err := p.transfer(ctx, &Transfer{Chunks: []Chunk{c}}, 0)
	if !errors.Is(err, ErrPoison) {
		return nil, err
	}
	n := len(c.Rows)
	if n == 1 {
		return []DeadLetter{c.Refused(0, err)}, nil
	}
	a, b := c, c
	a.Rows, b.Rows = c.Rows[:n/2], c.Rows[n/2:]
	first, err := p.rows(ctx, a)
	if err != nil {
		return nil, err
	}
	second, err := p.rows(ctx, b)
	return append(first, second...), err
}
