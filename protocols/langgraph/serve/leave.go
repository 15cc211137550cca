package serve

import (
	"context"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/langgraph"
	"agentstream/schema"
)

// afterwards is the time in which a run is cancelled whose client has left.
const afterwards = 5 * time.Second

// cancelStretch commands the agent to end a run of a thread, once: one that has ended, and one that was cancelled
// already, is left alone. The error refuses a run that there is not, and one that waits after another.
func cancelStretch(ctx context.Context, c *protocol.Call, thread, run string, payload []byte) error {
	allow := func(p *langgraph.Projector) error {
		s, ok := p.Find(run)
		now, active := p.Run()
		switch {
		case !ok:
			return errNoRun
		case s.Last > 0, now == run && p.IsCancelled():
			return protocol.ErrDone
		case !active || now != run:
			return dialect.Refuse(dialect.ErrGone, "the run waits behind another one, which is to be cancelled with it")
		}
		return nil
	}
	stop := schema.Event{Type: typeCancel, Actor: "user", Payload: payload}
	change := protocol.Change[*langgraph.Projector]{Request: whole(thread), Allow: allow, Events: []schema.Event{stop}}
	_, err := change.Once(ctx, c)
	return err
}

// cancelWhenLeft has a run of the thread of the path cancelled when the client of the call leaves before it has the
// run's end.
func cancelWhenLeft(c *protocol.Call, run string) {
	thread := c.Path("run")
	c.OnLeave = func() {
		ctx, cancel := context.WithTimeout(context.Background(), afterwards)
		defer cancel()
		why := c.By([]byte(`{"reason":"its client has left"}`))
		_ = cancelStretch(ctx, c, thread, run, why) // nobody is there to be told; a run that is not cancelled goes on
	}
}

// readLeaving reads whether the run of the path is to be cancelled when the client of the call leaves, and sees to it.
// Who may not command is refused.
func readLeaving(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	wish, err := q.One("cancel_on_disconnect")
	if err != nil || wish == "" {
		return err
	}
	cancels, err := strconv.ParseBool(wish)
	if err != nil {
		return unprocessable("cancel_on_disconnect is neither true nor false")
	}
	if !cancels {
		return nil
	}
	if err := c.Allow(auth.ScopeCommand); err != nil {
		return err
	}
	cancelWhenLeft(c, c.Path("part"))
	return nil
}

// join waits for a run.
func (a *api) join(c *protocol.Call) error {
	if err := readLeaving(c); err != nil {
		return err
	}
	return a.wait(c, c.Path("part"), true)
}
