package rest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// maxSteps bounds one page of steps.
const maxSteps = 1000

// listSteps answers with the finished steps of a run, or of a child by its own id, in order: ?after= a boundary,
// &limit=.
func (a *API) listSteps(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	after, err := q.Seq("after", 0)
	if err != nil {
		return err
	}
	limit, err := q.Number("limit", defaultPage, maxSteps)
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	src, where, err := a.cfg.Runs.WhereIs(ctx, key)
	if err != nil {
		return err
	}
	if after > where.Last {
		return &ends.PositionError{Last: where.Last, Err: fmt.Errorf("position %d: %w", after, fanout.ErrFuture)}
	}
	answer := struct {
		Steps []runs.Step `json:"steps"`
		Next  schema.Seq  `json:"next_after"`
		More  bool        `json:"has_more"`
	}{Steps: []runs.Step{}, Next: after}
	if after < where.Last {
		for st, err := range a.cfg.Runs.Steps(ctx, src, after, where.Last) {
			if err != nil {
				return err
			}
			if answer.More = len(answer.Steps) == limit; answer.More {
				break
			}
			answer.Steps, answer.Next = append(answer.Steps, st), st.Last
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("steps of %s: %w", key, err)
	}
	c.Seq, c.Events = answer.Next, len(answer.Steps)
	c.Reply(http.StatusOK, body)
	return nil
}

// step reads ?from_step=: the index of the step to begin with, and whether there is one.
func stepOf(q protocol.Query) (int, bool, error) {
	text, err := q.One("from_step")
	if err != nil || text == "" {
		return 0, false, err
	}
	n, err := dialect.ParseStep(text)
	return n, true, err
}
