package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// step is one step of a run or of a child: what lies behind the boundary before it, up to its own (native §3.5).
type step struct {
	Index      int        `json:"step_index"`
	Kind       string     `json:"step_kind"`
	Checkpoint *string    `json:"checkpoint_id"`
	First      schema.Seq `json:"first_seq"`
	Last       schema.Seq `json:"last_seq"` // the boundary
	TS         string     `json:"ts"`       // of the boundary
}

// steps walks the finished steps of a source that end behind a boundary, or the start, up to through. Those of
// children are their own: of a run only its own are walked.
func (s *Server) steps(ctx context.Context, src source, after, through schema.Seq) iter.Seq2[step, error] {
	return func(yield func(step, error) bool) {
		first := after + 1
		for r, err := range src.walk(ctx, s.hub, after, through) {
			if err != nil {
				yield(step{}, err)
				return
			}
			if r.Child != nil || string(r.Type) != schema.TypeStepBoundary {
				continue
			}
			st := step{First: first, Last: r.Seq}
			if err := json.Unmarshal(r.Payload(), &st); err != nil {
				continue // of a log that was not checked
			}
			_, ts, _ := r.Envelope()
			st.First, st.Last, st.TS = first, r.Seq, string(ts)
			if first = r.Seq + 1; !yield(st, nil) {
				return
			}
		}
	}
}

// stepStart returns the position behind which the step of an index begins: the boundary before the first one of that
// index or a higher one. A step that is under way begins behind the newest boundary. One further on is in the future.
func (s *Server) stepStart(ctx context.Context, src source, index int, through schema.Seq) (schema.Seq, error) {
	at, newest := schema.Seq(0), -1
	for st, err := range s.steps(ctx, src, 0, through) {
		if err != nil {
			return 0, err
		}
		if st.Index >= index {
			return st.First - 1, nil
		}
		at, newest = st.Last, st.Index
	}
	if index > max(newest+1, 1) { // some count from 1
		return 0, &positionError{last: through, err: fmt.Errorf("step %d, the newest is %d: %w", index, newest, fanout.ErrFuture)}
	}
	return at, nil
}

// maxSteps bounds one page of steps.
const maxSteps = 1000

// listSteps answers with the finished steps of a run, or of a child by its own id, in order: ?after= a boundary, &limit=.
func (s *Server) listSteps(c *call) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	q, err := readQuery(c.r)
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
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	src, where, err := s.whereIs(ctx, key)
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
		for st, err := range s.steps(ctx, src, after, where.last) {
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
	c.reply(http.StatusOK, body)
	return nil
}

// step reads ?from_step=: the index of the step to begin with, and whether there is one.
func (q query) step() (int, bool, error) {
	text, err := q.one("from_step")
	if err != nil || text == "" {
		return 0, false, err
	}
	n, err := dialect.ParseStep(text)
	return n, true, err
}
