package persister

import (
	"context"
	"errors"
	"time"

	"agentstream/internal/backoff"
)

// store is the second step. It stores the batches that are handed over, until the first step has ended or messages must
// be read again.
func (s *fetchSession) store(ctx, turn, work context.Context) error {
	for b := range s.fetched {
		if err := s.write(ctx, turn, work, b); err != nil {
			return err
		}
	}
	return nil
}

// write stores a batch in as many transactions as needed. It tries until the batch is stored, ctx or turn has ended,
// another process was faster, or the store has failed for Config.Hold, so that in a long outage no memory is held.
func (s *fetchSession) write(ctx, turn, work context.Context, b *fetchedBatch) error {
	p := s.p
	var failing time.Time // time of the first failure of this batch
	for at := 0; at < len(b.msgs); {
		if q, ok := p.queue.(Steady); ok && !q.Same() {
			return errAway
		}
		n, rows := p.sizeTransaction(b.items[at:])
		begin := time.Now()
		p.waited = 0
		done, err := p.commit(work, b, at, at+n)
		s.release(b.items[at : at+done])
		at += done
		switch {
		case err == nil:
			// A transaction that was cut is as large as its bound allows: messages have different numbers of rows.
			cut := at < len(b.msgs)
			p.size.adjust(time.Since(begin)-p.waited, cut || b.full && rows >= p.size.rows()/2)
			p.clearTrouble(storing)
			failing = time.Time{}
		case errors.Is(err, ErrOvertaken) || ctx.Err() != nil || turn.Err() != nil: // no second attempt
			return err
		default:
			if failing.IsZero() {
				failing = time.Now()
			}
			p.size.halve()
			pause := p.countFailure(ctx, storing, err)
			if time.Since(failing)+pause >= p.cfg.Hold || backoff.Sleep(turn, pause) != nil {
				return storeError{err}
			}
		}
	}
	return nil
}

// errAway reports that the log was away after the messages were read.
var errAway = errors.New("the log was away since this was read: it is read again")

// release releases the memory of messages that are stored.
func (s *fetchSession) release(items []decodedMessage) {
	size := 0
	for i := range items {
		size += items[i].bytes
	}
	s.p.budget.give(size)
}

// sizeTransaction returns the number of messages of the next transaction, at least one, and the number of their
// rows.
func (p *pipeline) sizeTransaction(items []decodedMessage) (n, rows int) {
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

// commit stores the messages from first up to end, and returns how many of them are stored: all, unless it returns an
// error.
func (p *pipeline) commit(work context.Context, b *fetchedBatch, first, end int) (int, error) {
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
func (p *pipeline) transferOf(b *fetchedBatch, first, end int) *Transfer {
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

// attempt runs one transaction, for at most Config.Attempt.
func (p *pipeline) attempt(ctx context.Context, t *Transfer) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Attempt)
	defer cancel()
	return p.cfg.Store.Transfer(ctx, t)
}

// transfer runs one transaction and updates the status.
func (p *pipeline) transfer(ctx context.Context, t *Transfer, messages int) error {
	begin := p.cfg.Now()
	res, err := p.attempt(ctx, t)
	if err != nil {
		return err
	}
	p.waited += res.Waited
	if t.ShouldMoveOffset() {
		p.setOffset(t.To)
		p.overtaken = 0
	}
	p.countCommit(Stored{Messages: messages, Inserted: res.Inserted, Repeated: res.Repeated, Dropped: res.Dropped,
		Took: p.cfg.Now().Sub(begin)}, append(t.DeadLetters, t.Conflicting(res.Conflicts)...))
	return nil
}

// divide stores one message of which the store refuses some rows: first the rows that can be stored, then the others as
// dead letters together with the offset. When the process ends in between, the message is read again and its stored
// rows count as repeated.
func (p *pipeline) divide(ctx context.Context, t *Transfer) error {
	refused, err := p.rows(ctx, t.Chunks[0])
	if err != nil {
		return err
	}
	return p.transfer(ctx, &Transfer{DeadLetters: append(t.DeadLetters, refused...), From: t.From, To: t.To,
		Owner: t.Owner}, 1)
}

// rows stores the rows of a chunk that can be stored, and returns dead letters for the others.
func (p *pipeline) rows(ctx context.Context, c Chunk) ([]DeadLetter, error) {
	err := p.transfer(ctx, &Transfer{Chunks: []Chunk{c}}, 0)
	if !errors.Is(err, ErrPoison) {
		return nil, err
	}
	n := len(c.Rows)
	if n == 1 {
		return []DeadLetter{c.Refusal(0, err)}, nil
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
