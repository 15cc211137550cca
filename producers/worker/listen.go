package worker

import (
	"context"
	"errors"
	"time"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// listen answers messages until none has come for a while.
func (v *lease) listen(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v.failed <- v.commands.Feed(reading, v.told)
	}()
	defer func() { stop(); <-ended }()
	for {
		for len(v.queue) > 0 {
			c := v.queue[0]
			v.queue = v.queue[1:]
			if err := v.handle(ctx, c); err != nil {
				return err
			}
		}
		if err := v.commitNewest(ctx); err != nil {
			return err
		}
		more, err := v.rest(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// handle answers a message, goes on with answers, or takes a cancellation that finds nothing to end any more.
func (v *lease) handle(ctx context.Context, c *command.Command) error {
	switch {
	case v.isResume(c):
		answers, err := v.together(ctx, c)
		if err != nil {
			return err
		}
		return v.answer(ctx, answers[len(answers)-1], answers...)
	case !v.isQuestion(c) && v.once.Once:
		return v.over(ctx, producers.Closing{Reason: reasonOf(c)}, c)
	case !v.isQuestion(c):
		return v.commit(ctx, c)
	}
	return v.answer(ctx, c)
}

// commit settles a command in the log, and here the messages up to it.
func (v *lease) commit(ctx context.Context, c *command.Command) error {
	if err := c.Commit(ctx); err != nil && !errors.Is(err, schema.ErrEnded) { // the run has been ended meanwhile
		return err
	}
	v.settle(c.Event.Seq)
	return nil
}

// commitNewest settles what needs no answer, such as an answer that came too late, when nothing before it
// waits.
func (v *lease) commitNewest(ctx context.Context) error {
	c := v.newest
	if c == nil {
		return nil
	}
	v.newest = nil
	return v.commit(ctx, c)
}

// rest waits for a message. false: for too long none came, or another session needs the place.
func (v *lease) rest(ctx context.Context) (more bool, err error) {
	silence := time.NewTimer(v.d.cfg.Idle)
	defer silence.Stop()
	for {
		if v.resting(true) {
			return false, nil
		}
		select {
		case c := <-v.told:
			v.resting(false)
			v.enqueue(c)
			return true, nil
		case err := <-v.failed:
			return false, err
		case <-v.hurry:
			return false, nil
		case <-silence.C:
			if !v.hasNews() {
				return false, nil
			}
			silence.Reset(v.d.cfg.Idle) // what was received may still be on its way
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// resting notes whether something is to do. leave: there is not, and others wait for a place.
func (v *lease) resting(yes bool) (leave bool) {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.idle = yes
	return yes && len(v.pending) == 0 && len(v.d.waiting) > 0 && v.d.busy >= v.d.cfg.Most
}

// hasNews reports whether a message was received since the last call, and is not settled.
func (v *lease) hasNews() bool {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	news := v.news
	v.news = false
	return news
}
