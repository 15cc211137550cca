package rest

import (
	"fmt"
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/workers"
)

// workRoute is the stream of tasks for an agent.
func (a *API) workRoute() protocol.Route {
	return protocol.Route{Pattern: "GET /v1/agent/work", Needs: auth.ScopeWrite | auth.ScopeCommand, Serve: a.work}
}

// defaultPlaces is how many tasks an agent has at once that does not say.
const defaultPlaces = 8

// work streams tasks to an agent for as long as it is there (docs/workers.md).
func (a *API) work(c *protocol.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	places, err := q.Number("places", defaultPlaces, workers.MaxPlaces)
	if err != nil {
		return err
	}
	l := live.NewLife(c.Request.Context(), c.Caller)
	if err := a.cfg.Live.Join(l, &c.Report); err != nil {
		return err
	}
	seat, err := a.cfg.Workers.Join(c.Caller.Tenant, places)
	if err != nil {
		return err
	}
	l.Expire()
	return &protocol.Detached{Life: l, Here: &tasks{a: a, c: c, life: l, seat: seat}}
}

// tasks is the answer to an agent. It begins when the request has been read.
type tasks struct {
	a    *API
	c    *protocol.Call
	life *live.Life
	seat *workers.Seat
}

// ReadError is an error of a body, which a GET should not have.
func (t *tasks) ReadError(err error) error { return fmt.Errorf("%w: %w", dialect.ErrClientGone, err) }

// Feed refuses a body.
func (t *tasks) Feed([]byte) (protocol.Progress, error) {
	return protocol.Progress{}, fmt.Errorf("a body is not read: %w", dialect.ErrBadRequest)
}

// Complete streams.
func (t *tasks) Complete(err error) error {
	if err != nil {
		return err
	}
	h := t.c.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	t.c.Writer.WriteHeader(http.StatusOK)
	out := transport.NewResponse("work", t.c.Writer, http.NewResponseController(t.c.Writer), t.a.cfg.WriteTimeout)
	return live.EndCause(t.life.Ctx, t.stream(flushed{out}))
}

// stream writes frames until the agent is gone, or the node goes away: then it gives no more tasks, and waits for those
// under way as long as the node lets it.
func (t *tasks) stream(out flushed) error {
	tick := time.NewTicker(t.a.cfg.KeepAlive)
	defer tick.Stop()
	closing, empty := t.a.cfg.Live.Closing(), (<-chan struct{})(nil)
	next := []byte(": here are your tasks\n\n")
	for {
		if _, err := out.Write(next); err != nil {
			return err
		}
		select {
		case next = <-t.seat.Frames():
		case <-tick.C:
			next = []byte(":\n\n")
		case <-closing:
			closing, empty = nil, t.seat.Retire()
			next = []byte(": no more tasks, this node is shutting down\n\n")
		case <-empty:
			return ends.ErrDraining
		case <-t.seat.Departure():
			return dialect.ErrSlowClient
		case <-t.life.Ctx.Done():
			return t.life.Ctx.Err()
		}
	}
}

// Leave drops the tasks that are under way.
func (t *tasks) Leave() {
	t.seat.Leave()
	t.life.Stop(nil)
}
