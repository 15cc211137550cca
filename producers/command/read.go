package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/schema"
)

// watch begins to listen. A Waker that does not answer is tried again later: meanwhile the log is asked.
func (c *Reader) watch(ctx context.Context) {
	stop, err := c.cfg.Waker.Watch(ctx, c.key, c.receive)
	c.mu.Lock()
	closed := c.closed
	if c.deaf = err != nil; err == nil && !closed {
		c.stop = stop
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		c.retry(fmt.Errorf("watch: %w", err))
	case closed:
		stop()
	}
}

func (c *Reader) retry(err error) {
	if c.retried != nil {
		c.retried(err)
	}
}

// receive takes a copy. One that follows what is known is looked at here; anything else means that the log
// must be read.
func (c *Reader) receive(p schema.Pack) {
	c.mu.Lock()
	v := &c.view
	if p.Last() <= v.seq || c.closed {
		c.mu.Unlock()
		return
	}
	if v.behind || p.First > v.seq+1 {
		v.behind = true
	} else {
		v.look(&p)
	}
	news := v.behind || len(v.queue) > 0 || v.fenced != nil
	c.mu.Unlock()
	if news {
		c.wake()
	}
}

// read looks at what the log holds after what is known, up to its newest pack. What the log does not return now is
// asked for again by the next step, after a pause.
func (c *Reader) read(ctx context.Context) error {
	c.mu.Lock()
	c.view.behind = false
	w := producers.Walk{Log: c.log, Past: c.cfg.Past, Key: c.key, Pos: c.view.pos, Last: c.view.seq, LogOnly: c.asked}
	c.mu.Unlock()
	c.readAt = time.Now()
	for p, err := range w.Packs(ctx) {
		if err != nil {
			return c.again(ctx, err)
		}
		c.readPack(&p)
		c.tries = 0
	}
	c.asked, c.tries = c.asked || w.Pos == 0, 0
	return nil
}

// readPack looks at a pack, unless it is known: it was received meanwhile.
func (c *Reader) readPack(p *schema.Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.view
	if p.Last() <= v.seq {
		v.pos = max(v.pos, p.Head.Stored)
		return
	}
	if p.First > v.seq+1 {
		v.logger.Warn("commands: events have left the log before they were looked at", "after", int64(v.seq), "before",
			int64(p.First))
	}
	v.look(p)
}

// again pauses after a read that has failed, for longer the more have.
func (c *Reader) again(ctx context.Context, err error) error {
	c.mu.Lock()
	c.view.behind = true
	c.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, schema.ErrBadPack) {
		return err
	}
	c.retry(err)
	c.tries++
	return backoff.Sleep(ctx, backoff.Delay(c.tries, 10*time.Millisecond, time.Second))
}

// refill reads the commands again that had no room, as many as have now.
func (c *Reader) refill(ctx context.Context) error {
	c.mu.Lock()
	from, through := c.view.more, c.view.seq
	c.mu.Unlock()
	packs := c.log.Since(ctx, c.key, max(from.pos, 1)-1)
	if from.pos == 0 {
		packs = c.cfg.Past.Packs(ctx, c.key, from.seq-1, through)
	}
	for p, err := range packs {
		if err != nil {
			return c.again(ctx, err)
		}
		if from.pos == 0 {
			p.Head.Stored = 0
		}
		c.mu.Lock()
		more := c.view.refill(&p, from.seq-1)
		c.mu.Unlock()
		if !more {
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if from.pos == 0 {
		c.view.more.pos = 1 // the past ends here; the log goes on
		return nil
	}
	c.view.logger.Warn("commands: events have left the log while their commands waited", "after", int64(c.view.more.seq))
	c.view.more = waiting{}
	return nil
}

// claim makes a lane the Publisher's by writing to it, before the first of its commands is handed over:
// that commands up to it have been taken, which is known to be so. A run that begins with a command has
// nothing before it; there the event is an empty progress.
func (c *Reader) claim(ctx context.Context, todo step) error {
	e := producers.CommandsTaken(todo.lane, todo.before-1, "")
	if todo.before < 2 {
		e = schema.Event{Type: schema.TypeProgress, ChildID: todo.lane, Payload: json.RawMessage(`{}`)}
	}
	_, err := c.pub.Append(ctx, e)
	c.mu.Lock()
	c.view.behind = true // what was written before it must be known before anything is handed over
	c.mu.Unlock()
	if errors.Is(err, schema.ErrEnded) { // meanwhile
		return backoff.Sleep(ctx, backoff.Delay(0, 10*time.Millisecond, 20*time.Millisecond))
	}
	return err
}
