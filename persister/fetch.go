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

// session is a stretch of a pipeline's work that began at the stored offset.
type session struct {
	p       *pipeline
	fetched chan *batch // no buffer: the fetching step holds the one that waits
}

// fetch is the first step: it hands over what it fetches until reading ends, and when it was ctx that ended,
// once more what came in the last pause.
func (s *session) fetch(ctx, reading, work context.Context) error {
	p := s.p
	for reading.Err() == nil {
		if !p.room.has(reading.Done(), p.bytes) {
			return nil
		}
		bound := p.limit()
		msgs, err := p.queue.Fetch(reading, bound)
		if reading.Err() != nil && len(msgs) == 0 {
			break
		}
		if err != nil {
			return err
		}
		p.recovered(fetching)
		if len(msgs) == 0 {
			p.idle()
			continue
		}
		fetched := time.Now()
		if full := s.hand(msgs, bound); !full && !p.linger(reading, fetched) && ctx.Err() != nil {
			s.last(work)
		}
	}
	return nil
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

// hand takes a batch apart and hands it over. It reports whether the batch was large: then more may be waiting.
func (s *session) hand(msgs []Message, bound Limit) (full bool) {
	p := s.p
	b := &batch{msgs: msgs, items: make([]item, len(msgs)), full: len(msgs) >= bound.Messages}
	rows, size, held := 0, 0, 0
	for i := range msgs {
		it := &b.items[i]
		it.chunk, it.bad = decode(&msgs[i])
		it.bytes = len(msgs[i].Body) + messageBytes + len(it.chunk.Rows)*rowBytes
		rows += len(it.chunk.Rows)
		size += len(msgs[i].Body)
		held += it.bytes
	}
	p.room.take(held)
	p.noteFetched(len(msgs), rows, size, held)
	s.fetched <- b // the session takes all, whatever becomes of them
	// A queue counts bytes in its own way and may stop short of the bounds. One message may have many rows.
	return rows >= p.size.rows()/2 || len(msgs) >= bound.Messages/2 || size >= bound.Bytes/2
}

// linger lets the next batch grow: a transaction, and each run's row in it, cost the same for one
// event and for many. Nothing is held meanwhile; what comes waits in the log. It reports whether ctx
// goes on.
func (p *pipeline) linger(ctx context.Context, since time.Time) bool {
	pause := p.cfg.Linger - time.Since(since)
	if pause <= 0 {
		return true
	}
	return sleep(ctx, pause)
}

// last hands over the batch that was growing when Run was told to stop.
func (s *session) last(work context.Context) {
	bound := s.p.limit()
	bound.NoWait = true
	msgs, err := s.p.queue.Fetch(work, bound)
	if err != nil { // it stays in the log
		s.p.cfg.Logger.Debug("persister: last fetch", "error", err)
	}
	if len(msgs) > 0 {
		s.hand(msgs, bound)
	}
}

// noteFetched keeps account of what messages are like.
func (p *pipeline) noteFetched(messages, rows, size, held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := float64(messages)
	p.perMessage, p.perByte = float64(held)/n, float64(held)/max(1, float64(size))
	weight := min(1, n/1000) // about the last thousand messages
	if p.perPack == 0 {
		weight = 1
	}
	p.perPack += weight * (float64(rows)/n - p.perPack)
}
