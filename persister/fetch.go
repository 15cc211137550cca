package persister

import (
	"context"
	"time"
)

// What is held beside the bytes of the bodies, about: a message's headers and places, a row's fields.
const (
	messageBytes = 1 << 10
	rowBytes     = 160
)

// fetch is the first step: it hands over what it fetches until ctx ends, and then once more what came
// in the last pause.
func (p *pipeline) fetch(ctx, work context.Context) {
	for ctx.Err() == nil {
		round, ok := p.gate.pass(ctx.Done())
		if !ok || !p.room.has(ctx.Done(), p.bytes) {
			return
		}
		bound, failures := p.limit(), p.failures()
		msgs, err := p.queue.Fetch(ctx, bound)
		if err != nil && ctx.Err() == nil {
			sleep(ctx, p.failed(ctx, fetching, err))
			continue
		}
		if err == nil {
			p.recovered(fetching)
		}
		if len(msgs) == 0 {
			if err == nil && round == p.gate.now() {
				p.idle(failures)
			}
			continue
		}
		fetched := time.Now()
		if full := p.hand(msgs, bound, round); !full && !p.linger(ctx, fetched) {
			p.last(work)
		}
	}
}

// limit bounds a fetch by what one transaction holds, and by what may be held: what a message needs in
// memory is guessed from the last ones.
func (p *pipeline) limit() Limit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Limit{
		Messages: max(1, min(p.size.rows(), int(float64(p.bytes)/p.perMessage))),
		Bytes:    max(1, int(float64(p.bytes)/p.perByte)),
	}
}

// hand takes a batch apart and hands it over. It says whether the batch was large: then more may be
// waiting.
func (p *pipeline) hand(msgs []Message, bound Limit, round int) (full bool) {
	b := &batch{msgs: msgs, items: make([]item, len(msgs)), round: round, full: len(msgs) >= bound.Messages, touched: time.Now()}
	rows, size, held := 0, 0, 0
	for i := range msgs {
		it := &b.items[i]
		it.chunk, it.bad = sift(&msgs[i])
		it.bytes = len(msgs[i].Body) + messageBytes + len(it.chunk.Rows)*rowBytes
		rows += len(it.chunk.Rows)
		size += len(msgs[i].Body)
		held += it.bytes
	}
	p.room.take(held)
	p.noteFetched(b, rows, size, held)
	p.fetched <- b
	// A queue counts bytes in its own way and may stop short of the bounds. One message may have many rows.
	return rows >= p.size.rows()/2 || len(msgs) >= bound.Messages/2 || size >= bound.Bytes/2
}

// linger lets the next batch grow: a transaction, and each run's row in it, cost the same for one
// event and for many. Nothing is held meanwhile; what comes waits in the log. It says whether ctx
// goes on.
func (p *pipeline) linger(ctx context.Context, since time.Time) bool {
	pause := p.cfg.Linger - time.Since(since)
	if pause <= 0 {
		return true
	}
	return sleep(ctx, pause)
}

// last hands over the batch that was growing when Run was told to stop.
func (p *pipeline) last(work context.Context) {
	bound := p.limit()
	bound.NoWait = true
	msgs, err := p.queue.Fetch(work, bound)
	if err != nil { // it stays in the log, unconfirmed
		p.cfg.Logger.Debug("persister: last fetch", "error", err)
	}
	if len(msgs) > 0 {
		p.hand(msgs, bound, p.gate.now())
	}
}

// noteFetched keeps account of what is held, and of what messages are like.
func (p *pipeline) noteFetched(b *batch, rows, size, held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, b)
	p.status.Stream = b.msgs[0].Stream
	n := float64(len(b.msgs))
	p.perMessage, p.perByte = float64(held)/n, float64(held)/max(1, float64(size))
	weight := min(1, n/1000) // about the last thousand messages
	if p.perPack == 0 {
		weight = 1
	}
	p.perPack += weight * (float64(rows)/n - p.perPack)
}
