package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/fanout"
	"agentstream/schema"
)

// Existing returns the head of a run that exists; the error wraps fanout.ErrNotFound for one that does
// not or is another tenant's.
func (rs *Runs) Existing(ctx context.Context, key schema.RunKey) (schema.Head, error) {
	head, err := rs.Hub.Head(ctx, key)
	if err == nil && !head.HasEvents() {
		err = fanout.ErrNotFound
	}
	return head, err
}

// Locate finds what an id of the path names: a run, or else a child of one. The head is the run's.
func (rs *Runs) Locate(ctx context.Context, key schema.RunKey) (Source, schema.Head, error) {
	head, err := rs.Existing(ctx, key)
	if !errors.Is(err, fanout.ErrNotFound) {
		return Source{Key: key}, head, err
	}
	src, ok, perr := rs.childOf(ctx, key, err)
	if perr != nil {
		return Source{}, schema.Head{}, perr
	}
	if !ok {
		return Source{}, schema.Head{}, err
	}
	head, err = rs.Existing(ctx, src.Key)
	return src, head, err
}

// resolve turns a cursor into a position. An event id is looked for in the log: position is what
// orders, and ids that a producer brought say nothing about it. An id that the run does not have is a
// bad cursor, never the start.
func (rs *Runs) resolve(ctx context.Context, src Source, c dialect.Cursor) (schema.Seq, error) {
	if c.ID == "" && !c.ByStep {
		return c.Seq, nil
	}
	head, err := rs.Existing(ctx, src.Key)
	if err != nil {
		return 0, err
	}
	if c.ByStep {
		return rs.StepStart(ctx, src, c.Step, head.Last)
	}
	if c.ID == head.LastID && src.Child == "" {
		return head.Last, nil
	}
	prefix := []byte(`{"id":"` + c.ID + `"`)
	for r, err := range rs.Walk(ctx, src, 0, head.Last) {
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(r.Line, prefix) {
			return r.Seq, nil
		}
	}
	return 0, dialect.Refuse(schema.ErrBadCursor, "the cursor is the id of no event of this run")
}

// whereabouts adds the newest position to a refusal for a cursor from the future.
func (rs *Runs) whereabouts(ctx context.Context, key schema.RunKey, err error) error {
	if !errors.Is(err, fanout.ErrFuture) {
		return err
	}
	head, herr := rs.Hub.Head(ctx, key)
	if herr != nil {
		return err // the refusal stands without it
	}
	return &ends.PositionError{Last: head.Last, Err: err}
}

// TimeOf returns the time of one event, nil when it is no longer kept. The walk is bounded by the run's
// newest event and not by seq, so that it meets what is kept behind a hole.
func (rs *Runs) TimeOf(ctx context.Context, key schema.RunKey, seq, newest schema.Seq) (*string, error) {
	for p, err := range rs.Hub.Packs(ctx, key, seq-1, newest) {
		if errors.Is(err, fanout.ErrExpired) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for r, err := range p.Records(seq - 1) {
			if err != nil {
				return nil, err
			}
			e, err := r.Event()
			if err != nil {
				return nil, fmt.Errorf("seq %d: %w: %w", seq, schema.ErrBadPack, err)
			}
			return &e.TS, nil
		}
	}
	return nil, nil
}

// Step is one step of a run or of a child: what lies behind the boundary before it, up to its own (native §3.5).
type Step struct {
	Index      int        `json:"step_index"`
	Kind       string     `json:"step_kind"`
	Checkpoint *string    `json:"checkpoint_id"`
	First      schema.Seq `json:"first_seq"`
	Last       schema.Seq `json:"last_seq"` // the boundary
	TS         string     `json:"ts"`       // of the boundary
}

// Steps walks the finished steps of a source that end behind a boundary, or the start, up to through. Those of
// children are their own: of a run only its own are walked.
func (rs *Runs) Steps(ctx context.Context, src Source, after, through schema.Seq) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		first := after + 1
		for r, err := range rs.Walk(ctx, src, after, through) {
			if err != nil {
				yield(Step{}, err)
				return
			}
			if r.Child != nil || string(r.Type) != schema.TypeStepBoundary {
				continue
			}
			st := Step{First: first, Last: r.Seq}
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

// StepStart returns the position behind which the step of an index begins: the boundary before the first one of that
// index or a higher one. A step that is under way begins behind the newest boundary. One further on is in the future.
func (rs *Runs) StepStart(ctx context.Context, src Source, index int, through schema.Seq) (schema.Seq, error) {
	at, newest := schema.Seq(0), -1
	for st, err := range rs.Steps(ctx, src, 0, through) {
		if err != nil {
			return 0, err
		}
		if st.Index >= index {
			return st.First - 1, nil
		}
		at, newest = st.Last, st.Index
	}
	if index > max(newest+1, 1) { // some count from 1
		return 0, &ends.PositionError{Last: through,
			Err: fmt.Errorf("step %d, the newest is %d: %w", index, newest, fanout.ErrFuture)}
	}
	return at, nil
}
