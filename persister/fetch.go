package persister

import (
	"context"
	"errors"
	"time"

	"agentstream/internal/backoff"
)

// Approximate memory beside the bodies: a message's headers and fields, a row's fields.
const (
	messageBytes = 1 << 10
	rowBytes     = 160
)

// fetchSession is the work of a pipeline from one read of the stored offset to the next.
type fetchSession struct {
	p       *pipeline
	fetched chan *fetchedBatch // no buffer: the fetching step holds the batch that waits
}

// fetch is the first step. It hands over batches until reading ends. When ctx has ended too, it fetches once more what
// arrived during the last pause.
func (s *fetchSession) fetch(ctx, reading, work context.Context) error {
	p := s.p
	var last time.Time // of the fetches
	for reading.Err() == nil {
		if !p.budget.await(reading.Done(), p.bytes) {
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
		p.clearTrouble(fetching)
		if kept, gone := p.beforeDropped(msgs); gone { // the next session records what is lost
			if len(kept) > 0 {
				s.hand(kept, bound)
			}
			return errDropped
		}
		if len(msgs) == 0 {
			p.idle()
			continue
		}
		fetched := time.Now()
		rows, full := s.hand(msgs, bound)
		if !full && !p.linger(reading, fetched, p.many(rows, fetched.Sub(last))) && ctx.Err() != nil {
			s.last(work)
		}
		last = fetched
	}
	return nil
}

// errDropped reports that the log has dropped messages that were not stored.
var errDropped = errors.New("the log has dropped messages that were not stored")

// beforeDropped returns the messages before those that the log has dropped, and whether it has dropped any.
func (p *pipeline) beforeDropped(msgs []Message) (kept []Message, gone bool) {
	if !p.checkDropped() {
		return msgs, false
	}
	p.mu.Lock()
	dropped := p.dropped
	p.mu.Unlock()
	n := 0
	for n < len(msgs) && msgs[n].Position <= dropped {
		n++
	}
	return msgs[:n], true
}

// limit bounds a fetch by the size of a transaction and by the memory that is left. The memory that a message needs is
// estimated from the last batch.
func (p *pipeline) limit() Limit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Limit{
		Messages: max(1, min(p.size.rows(), int(float64(p.bytes)/p.perMessage))),
		Bytes:    max(1, int(float64(p.bytes)/p.perByte)),
	}
}

// hand decodes a batch and hands it over. It returns the number of its rows, and reports whether the fetch was bounded:
// then more messages may be waiting.
func (s *fetchSession) hand(msgs []Message, bound Limit) (rows int, full bool) {
	p := s.p
	b := &fetchedBatch{msgs: msgs, items: make([]decodedMessage, len(msgs)), full: len(msgs) >= bound.Messages}
	size, held := 0, 0
	for i := range msgs {
		it := &b.items[i]
		it.chunk, it.bad = decode(&msgs[i])
		it.bytes = len(msgs[i].Body) + messageBytes + len(it.chunk.Rows)*rowBytes
		rows += len(it.chunk.Rows)
		size += len(msgs[i].Body)
		held += it.bytes
	}
	p.budget.add(held)
	p.noteFetched(len(msgs), rows, size, held)
	s.fetched <- b // the session receives all batches, also after an error
	// A queue may count bytes in another way and return less than the bounds.
	return rows, len(msgs) >= bound.Messages*3/4 || size >= bound.Bytes*3/4
}

// linger waits so that the next batch grows: a transaction, and each run's row in it, cost the same for one event and
// for many. Messages wait in the log meanwhile, not in memory. It reports whether ctx has not ended.
func (p *pipeline) linger(ctx context.Context, since time.Time, many bool) bool {
	if p.cfg.Linger <= 0 {
		return true
	}
	pause := p.next(since, many) - time.Since(since)
	return pause <= 0 || backoff.Sleep(ctx, pause) == nil
}

// many reports whether rows come at a rate at which a pause that is twice as long saves a lot, and does not make
// batches so large that to store one takes long. Beside live streams a transaction of 2,000 rows shows in what they
// wait for. A log that other processes use may be made anew at any time, which a fetch finds: there the pause stays
// short.
func (p *pipeline) many(rows int, in time.Duration) bool {
	inLinger := int(float64(rows) * float64(p.cfg.Linger) / float64(max(in, 1)))
	return p.cfg.Alone && inLinger >= p.cfg.BatchStart/8 && inLinger <= p.cfg.BatchStart*3/8
}

// next returns how long after since the pipeline is to fetch again: about Linger, or about twice that when there are
// many rows, at a phase of its own. If all pipelines wrote at the same moment, what else the process does would wait
// for all of them together.
func (p *pipeline) next(since time.Time, many bool) time.Duration {
	every, phase := p.cfg.Linger, p.phase
	if many {
		every, phase = 2*every, 2*phase
	}
	next := every - (since.Sub(p.begun)-phase)%every
	if next > every { // since lies before the first phase
		next -= every
	}
	if next < every/2 {
		next += every
	}
	return next
}

// last hands over the messages that arrived before ctx ended.
func (s *fetchSession) last(work context.Context) {
	bound := s.p.limit()
	bound.NoWait = true
	msgs, err := s.p.queue.Fetch(work, bound)
	if err != nil { // it stays in the log
		s.p.cfg.Logger.Debug(s.p.cfg.Role+": last fetch", "error", err)
	}
	if len(msgs) > 0 {
		s.hand(msgs, bound)
	}
}

// noteFetched updates the estimates of the memory and the events per message.
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
