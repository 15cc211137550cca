package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/edge/dialect/qoder"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/schema"
)

// change is what a request appends to a session: events of one lane, all of them or none.
type change struct {
	run    string
	events []schema.Event
	opt    producers.AppendOptions
	// allow decides whether the session, as it stands right before the events, takes them; it is asked of sessions
	// that are not deleted. nil: all are.
	allow func(*qoder.Projector) error
	// ends: a run in which nothing is under way is over behind the events; see finish.
	ends bool
	// blind: a session of which too much would have to be remembered takes it unasked.
	blind bool
}

// lane is the child whose events they are; "" is the run itself.
func (c *change) lane() string { return c.events[0].ChildID }

// A change is made again when the run ended or went on in between: at most maxTries times, with waits of up to
// maxPause between them, because many who change one ended run at the same time would otherwise keep one another
// from it.
const (
	maxTries = 16
	maxPause = 200 * time.Millisecond
)

// errMoved reports that a run has ended, or goes on again, since a change was made for it.
var errMoved = errors.New("the run has ended or goes on since")

// store appends a change. What it is made for is checked on the very head that it follows. A repeat with the same
// key is recognised whatever has become of the run since.
func store(ctx context.Context, x *protocol.Call, c change) (producers.Receipt, error) {
	for try := range maxTries {
		if try > 0 {
			if err := backoff.Sleep(ctx, backoff.Delay(try-1, 2*time.Millisecond, maxPause)); err != nil {
				return producers.Receipt{}, err
			}
		}
		head, err := x.Head(ctx, c.run)
		if err != nil {
			return producers.Receipt{}, err
		}
		receipt, err := c.append(ctx, x, head)
		if !errors.Is(err, errMoved) {
			return receipt, err
		}
	}
	return producers.Receipt{}, fmt.Errorf("change session %s %d times: %w", c.run, maxTries, schema.ErrConflict)
}

// append stores the change as a run takes it that stands at head.
func (c *change) append(ctx context.Context, x *protocol.Call, head schema.Head) (producers.Receipt, error) {
	opt := c.opt
	opt.Whole = true
	opt.Check = c.check(x, head)
	switch {
	case !head.State.Final() && c.ends:
		return c.finish(ctx, x, head, opt)
	case !head.State.Final():
		return x.Append(ctx, c.run, c.events, opt)
	}
	end, err := ending(ctx, x, c.run, head)
	if err != nil {
		return producers.Receipt{}, err
	}
	fitted, err := c.fit(head, end)
	switch {
	case err != nil:
		return producers.Receipt{}, err
	case len(fitted) == len(c.events):
		return x.Append(ctx, c.run, c.events, opt)
	case c.lane() == "" && opt.IdempotencyKey == "":
		return x.Append(ctx, c.run, fitted, opt)
	}
	return c.apart(ctx, x, opt, end)
}

// check returns the condition of an append that was made for a head.
func (c *change) check(x *protocol.Call, made schema.Head) func(context.Context, schema.Head) error {
	return func(ctx context.Context, head schema.Head) error {
		switch ended := head.State.Final(); {
		case !head.Exists():
			return fanout.ErrNotFound
		case ended != made.State.Final(), ended && head.Last != made.Last:
			return errMoved
		}
		req := qoder.Request(c.run, "")
		p, err := at(ctx, x, c.run, head.Last, req)
		if c.blind && errors.Is(err, schema.ErrTooLarge) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.Admit(req); err != nil || c.allow == nil {
			return err
		}
		return c.allow(p)
	}
}
