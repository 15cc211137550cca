package state

import (
	"context"
	"errors"

	"agentstream/internal/fair"
)

// pass is the right to read history. A command has one that no read can take; and so has a read at which a command
// waits for the turn. One goroutine uses it.
type pass struct {
	c      *Cache
	e      *reading // at which its holder has the turn; nil: at none
	tenant string
	ctx    context.Context // of the request
	wait   context.Context // ends with ctx, and when a command waits for the turn
	end    context.CancelCauseFunc
	slot   *fair.Slot
}

// errHurry ends the wait among reads.
var errHurry = errors.New("a command waits for this")

// acquirePass waits until a tenant may read history for what is asked. The caller releases the pass.
func (c *Cache) acquirePass(ctx context.Context, tenant string, e *reading) (*pass, error) {
	p := &pass{c: c, e: e, tenant: tenant, ctx: ctx}
	p.wait, p.end = context.WithCancelCause(ctx)
	if e != nil && !fair.IsCommand(ctx) {
		c.watch(e, p.end)
	}
	var err error
	p.slot, err = c.slots.Of(ctx).Acquire(p.wait, tenant)
	if err = p.orHurry(err); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// tick is called for each record. Now and then it lets others go first.
func (p *pass) tick() error { return p.orHurry(p.slot.Compute(p.wait)) }

// orHurry goes on in the place of a command when one waits for that.
func (p *pass) orHurry(err error) error {
	if err == nil || p.ctx.Err() != nil || context.Cause(p.wait) != errHurry { // it is the cause itself
		return err
	}
	p.wait = p.ctx
	p.slot, err = p.c.slots.Commands.Acquire(p.ctx, p.tenant)
	return err
}

func (p *pass) release() {
	if p.e != nil {
		p.c.watch(p.e, nil)
	}
	p.end(nil)
	p.slot.Release()
}

// watch sets what is called when a command waits for the turn at an entry; nil: nothing.
func (c *Cache) watch(e *reading, hurry context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.hurry = hurry; hurry != nil && e.commands > 0 {
		hurry(errHurry)
	}
}

// urge counts commands that wait for the turn at an entry.
func (c *Cache) urge(e *reading, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.commands += n; e.commands > 0 && e.hurry != nil {
		e.hurry(errHurry)
	}
}
