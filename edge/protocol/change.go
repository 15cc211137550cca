package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// StateAt returns the protocol's projector, a P, that was fed the run of a request up to through, which must exist or
// be 0.
func StateAt[P dialect.Stateful](ctx context.Context, c *Call, through schema.Seq, req dialect.Request) (p P,
	err error) {
	kept, err := c.At(ctx, req.Run, through, req)
	if err != nil {
		return p, err
	}
	p, ok := kept.(P)
	if !ok {
		return p, fmt.Errorf("projector of %s is a %T", req.Run, kept)
	}
	return p, nil
}

// Newest returns the run of a request as it stands. The error wraps fanout.ErrNotFound for one that is not there;
// others are those of the projector's Admit, which come with the state.
func Newest[P dialect.Stateful](ctx context.Context, c *Call, req dialect.Request) (head schema.Head, p P, err error) {
	if head, err = c.Head(ctx, req.Run); err != nil {
		return head, p, err
	}
	if p, err = StateAt[P](ctx, c, head.Last, req); err != nil {
		return head, p, err
	}
	return head, p, p.Admit(req)
}

// Change is what a request appends to a run, all of it or nothing, if the run takes it as the protocol's projector, a
// P, has it right before.
type Change[P dialect.Stateful] struct {
	Request dialect.Request // what the projector is asked as
	Events  []schema.Event
	Options producers.AppendOptions // but for Whole and Plan
	Keyed   bool                    // with the request's Idempotency-Key
	// Children means that Request.Run may be the id of a child: the events are the child's then.
	Children bool
	Running  bool // an ended run takes nothing: the error wraps schema.ErrEnded
	// Allow decides whether the run takes the events. It is asked of runs that the projector admits, again whenever others
	// were faster, and not about a repeat with a key. nil: all do.
	Allow func(P) error
	// Plan is in the place of Allow, and returns what is appended in the place of Events to a run that stands at head.
	// Events are the content of the key of a keyed change, and may be none of another one.
	Plan func(head schema.Head, p P) ([]schema.Event, error)
	// Blind: a run of which too much would have to be remembered takes them unasked; Plan gets the zero P then.
	Blind bool
}

// ErrDone is for Allow: there is nothing to do any more.
var ErrDone = errors.New("it is so already")

// Store appends the change. What it is made for is checked on the very head that it follows.
func (v Change[P]) Store(ctx context.Context, c *Call) (producers.Receipt, error) {
	return v.store(ctx, c)
}

func (v *Change[P]) store(ctx context.Context, c *Call) (producers.Receipt, error) {
	if err := v.locate(ctx, c); err != nil {
		return producers.Receipt{}, err
	}
	opt := v.Options
	if v.Keyed {
		keyed, err := c.AppendOptions()
		if err != nil {
			return producers.Receipt{}, err
		}
		opt.IdempotencyKey = keyed.IdempotencyKey
	}
	opt.Whole = true
	opt.Plan = func(ctx context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
		return v.plan(ctx, c, head, given)
	}
	return c.Append(ctx, v.Request.Run, v.Events, opt)
}

// locate finds the run, which must be there.
func (v *Change[P]) locate(ctx context.Context, c *Call) (err error) {
	if !v.Children {
		_, err = c.Head(ctx, v.Request.Run)
		return err
	}
	if v.Request.Run, v.Request.Child, _, err = c.Locate(ctx, v.Request.Run); err != nil {
		return err
	}
	v.Events = slices.Clone(v.Events)
	for i := range v.Events {
		v.Events[i].ChildID = v.Request.Child
	}
	return nil
}

// Once stores a change that is there to be made once; where Allow says ErrDone, nothing, and the receipt is that of the
// newest record.
func (v Change[P]) Once(ctx context.Context, c *Call) (producers.Receipt, error) {
	receipt, err := v.store(ctx, c)
	if !errors.Is(err, ErrDone) {
		return receipt, err
	}
	head, err := c.Head(ctx, v.Request.Run)
	return producers.Receipt{First: head.Last, Last: head.Last}, err
}

// plan decides whether a run that stands at head takes the change, and what of it.
func (v *Change[P]) plan(ctx context.Context, c *Call, head schema.Head, given []schema.Event) ([]schema.Event, error) {
	if !head.HasEvents() {
		return nil, fanout.ErrNotFound
	}
	if v.Running && head.State.Final() {
		return nil, schema.ErrEnded
	}
	p, err := StateAt[P](ctx, c, head.Last, v.Request)
	blind := v.Blind && errors.Is(err, schema.ErrTooLarge)
	if err == nil {
		err = p.Admit(v.Request)
	}
	switch {
	case err != nil && !blind:
		return nil, err
	case v.Plan != nil:
		return v.Plan(head, p)
	case v.Allow != nil && !blind:
		return given, v.Allow(p)
	}
	return given, nil
}
