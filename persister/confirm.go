package persister

import (
	"context"
	"slices"
	"time"
)

// confirm is the last step. A confirmation that is lost is no failure: the messages come again, and
// find their rows.
func (p *pipeline) confirm(work context.Context) {
	for done := range p.committed {
		ctx, cancel := context.WithTimeout(work, p.cfg.Grace)
		if err := p.queue.Ack(ctx, done.msgs); err != nil {
			p.cfg.Logger.Warn("persister: committed messages were not confirmed and will come again",
				"stream", done.msgs[0].Stream, "messages", len(done.msgs), "error", err)
		}
		cancel()
		p.let(done.of, len(done.msgs), 0, done.bytes)
	}
}

// let forgets messages of a batch: confirmed ones at its front, released ones at its end.
func (p *pipeline) let(b *batch, confirmed, released, bytes int) {
	p.mu.Lock()
	b.done, b.left = b.done+confirmed, b.left+released
	if b.done+b.left >= len(b.msgs) {
		p.held = slices.DeleteFunc(p.held, func(x *batch) bool { return x == b })
	}
	p.mu.Unlock()
	p.room.give(bytes)
}

// release gives back what of a batch is not committed. The context is the clean-up's own: the one
// of Run may have ended.
func (p *pipeline) release(b *batch, from int) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	msgs, size := b.msgs[from:], 0
	if err := p.queue.Release(ctx, msgs); err != nil {
		p.cfg.Logger.Warn("persister: messages were not released and come again after their time",
			"stream", msgs[0].Stream, "messages", len(msgs), "error", err)
	}
	for i := range b.items[from:] {
		size += b.items[from+i].bytes
	}
	p.let(b, 0, len(msgs), size)
}

// releaseWait bounds the clean-up at shutdown.
const releaseWait = 2 * time.Second

// keepHolding tells a queue that hands messages out again after a while that they are worked on.
// Usually nothing waits for so long that it has to be said.
func (p *pipeline) keepHolding(ctx context.Context) {
	q, ok := p.queue.(Holder)
	if !ok {
		return
	}
	every := q.Patience() / 3
	for every > 0 && sleep(ctx, every) {
		for _, msgs := range p.waiting(time.Now().Add(-every)) {
			once, cancel := context.WithTimeout(ctx, every)
			if err := q.Hold(once, msgs); err != nil {
				p.cfg.Logger.Debug("persister: hold", "messages", len(msgs), "error", err)
			}
			cancel()
		}
	}
}

// waiting gives what is held and was not spoken of since.
func (p *pipeline) waiting(since time.Time) (held [][]Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.held {
		if !b.touched.After(since) {
			b.touched = time.Now()
			held = append(held, b.msgs[b.done:len(b.msgs)-b.left])
		}
	}
	return held
}
