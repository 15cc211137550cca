package edge

import (
	"encoding/json"
	"fmt"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// maxSteps bounds one page of steps.
const maxSteps = 1000

// listSteps answers with the finished steps of a run, or of a child by its own id, in order: ?after= a boundary, &limit=.
func (a *API) listSteps(c *Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	after, err := q.seq("after", 0)
	if err != nil {
		return err
	}
	limit, err := q.number("limit", defaultPage, maxSteps)
	if err != nil {
		return err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	src, where, err := a.cfg.Runs.whereIs(ctx, key)
	if err != nil {
		return err
	}
	if after > where.last {
		return &positionError{last: where.last, err: fmt.Errorf("position %d: %w", after, fanout.ErrFuture)}
	}
	answer := struct {
		Steps []step     `json:"steps"`
		Next  schema.Seq `json:"next_after"`
		More  bool       `json:"has_more"`
	}{Steps: []step{}, Next: after}
	if after < where.last {
		for st, err := range a.cfg.Runs.steps(ctx, src, after, where.last) {
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
	c.seq, c.events = answer.Next, len(answer.Steps)
	c.Reply(http.StatusOK, body)
	return nil
}

// step reads ?from_step=: the index of the step to begin with, and whether there is one.
func stepOf(q query) (int, bool, error) {
	text, err := q.one("from_step")
	if err != nil || text == "" {
		return 0, false, err
	}
	n, err := dialect.ParseStep(text)
	return n, true, err
}
