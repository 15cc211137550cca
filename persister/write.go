package persister

import (
	"context"
	"errors"
	"time"
)

// store is the second step. It takes whatever is handed over until the first step has ended, and
// stores it or gives it back.
func (p *pipeline) store(ctx, work context.Context) {
	over := false // told to stop, and the store did not take what it was at
	for b := range p.fetched {
		switch {
		case over || b.round != p.gate.now():
			p.release(b, 0)
		case !p.write(ctx, work, b):
			if over = ctx.Err() != nil; !over {
				p.standBy(ctx)
			}
		}
	}
}

// write stores a batch in as many transactions as needed. It says no when it has given back what is
// left of it: the store has failed for too long, or failed after ctx had ended.
func (p *pipeline) write(ctx, work context.Context, b *batch) bool {
	var failing time.Time // since when this batch fails
	for at := 0; at < len(b.msgs); {
		if work.Err() != nil {
			p.release(b, at)
			return false
		}
		n, rows, size := p.take(b.items[at:])
		begin := time.Now()
		err := p.commit(work, b.items[at:at+n])
		if err == nil {
			// Messages have many rows or one: a transaction that was cut is as large as its bound lets it be.
			cut := at+n < len(b.msgs)
			p.size.stored(time.Since(begin), cut || b.full && rows >= p.size.rows()/2)
			p.recovered(storing)
			p.committed <- part{b, b.msgs[at : at+n], size}
			at, failing = at+n, time.Time{}
			continue
		}
		if ctx.Err() != nil { // told to stop: no second attempt
			p.release(b, at)
			return false
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		p.size.failed()
		pause := p.failed(ctx, storing, err)
		if time.Since(failing)+pause >= p.cfg.Hold {
			p.release(b, at)
			return false
		}
		sleep(ctx, pause)
	}
	return true
}

// standBy waits until the store answers, and gives back what was on its way. So an outage of hours
// holds no memory, and no message comes again because it waits here for too long. Nothing is fetched
// meanwhile.
func (p *pipeline) standBy(ctx context.Context) {
	p.gate.close()
	defer p.gate.open()
	// A store that answers may still refuse what is written: it is left alone for the pause that was due.
	if !p.giveBack(p.backOff(p.failures())) {
		return
	}
	for {
		err := p.ping(ctx)
		if err == nil || ctx.Err() != nil {
			return // what holds is known only by the next commit
		}
		if !p.giveBack(p.failed(ctx, storing, err)) {
			return
		}
	}
}

// giveBack releases what is handed over, for so long. It says no when the first step has ended.
func (p *pipeline) giveBack(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case b, ok := <-p.fetched:
			if !ok {
				return false
			}
			p.release(b, 0)
		case <-timer.C:
			return true
		}
	}
}

func (p *pipeline) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(p.cfg.Attempt, p.cfg.RetryMax))
	defer cancel()
	return p.cfg.Store.Ping(ctx)
}

// take says how many messages the next transaction gets, at least one, and what they hold.
func (p *pipeline) take(items []item) (n, rows, bytes int) {
	most := p.size.rows()
	for n < len(items) {
		more := len(items[n].chunk.Rows) + len(items[n].bad)
		if n > 0 && rows+more > most {
			break
		}
		rows += more
		bytes += items[n].bytes
		n++
	}
	return n, rows, bytes
}

// commit stores the messages' rows and keeps their dead letters.
func (p *pipeline) commit(work context.Context, items []item) error {
	ctx, cancel := context.WithTimeout(work, p.cfg.Attempt)
	defer cancel()
	start := p.cfg.Now()
	chunks := make([]Chunk, 0, len(items))
	var letters []DeadLetter
	for i := range items {
		letters = append(letters, items[i].bad...)
		if len(items[i].chunk.Rows) > 0 {
			chunks = append(chunks, items[i].chunk)
		}
	}
	var done Stored
	if len(chunks) > 0 {
		refused, err := p.append(ctx, chunks, &done)
		if err != nil {
			return err
		}
		letters = append(letters, refused...)
	}
	if len(letters) > 0 {
		if err := p.cfg.Store.Bury(ctx, letters); err != nil {
			return err
		}
	}
	done.Messages, done.Took = len(items), p.cfg.Now().Sub(start)
	p.kept(done, letters)
	return nil
}

// append stores the chunks. When the store refuses the data it divides them until the one row is
// found, and gives the rows that must be set aside.
func (p *pipeline) append(ctx context.Context, chunks []Chunk, done *Stored) ([]DeadLetter, error) {
	res, err := p.cfg.Store.Append(ctx, chunks)
	if err == nil {
		done.Inserted += res.Inserted
		done.Repeated += res.Repeated
		done.Dropped += res.Dropped
		letters := make([]DeadLetter, len(res.Conflicts))
		for i, c := range res.Conflicts {
			letters[i] = chunks[c.Chunk].letter(c.Row, ReasonConflict, errConflict)
		}
		return letters, nil
	}
	if !errors.Is(err, ErrPoison) {
		return nil, err
	}
	var first, second []Chunk
	switch rows := chunks[0].Rows; {
	case len(chunks) > 1:
		first, second = chunks[:len(chunks)/2], chunks[len(chunks)/2:]
	case len(rows) > 1:
		a, b := chunks[0], chunks[0]
		a.Rows, b.Rows = rows[:len(rows)/2], rows[len(rows)/2:]
		first, second = []Chunk{a}, []Chunk{b}
	default:
		return []DeadLetter{chunks[0].letter(0, ReasonRefused, err)}, nil
	}
	letters, err := p.append(ctx, first, done)
	if err != nil {
		return nil, err
	}
	more, err := p.append(ctx, second, done)
	return append(letters, more...), err
}

var errConflict = errors.New("another content is stored at this run and seq")
