package agentstream

import (
	"context"
	"encoding/json"
	"net/url"

	"agentstream/schema"
)

// Snapshot returns the state of the run after an event: state, plan, messages, tool calls, children, usage.
// at 0 is the newest event, and the cheapest. To continue from a snapshot, watch the run after its Last and
// add each event with Fold.
func (r *Run) Snapshot(ctx context.Context, at schema.Seq) (*schema.Fold, error) {
	q := url.Values{}
	if at != 0 {
		q.Set("at", at.String())
	}
	var answer json.RawMessage
	if err := r.get(ctx, &answer, q, "snapshot"); err != nil {
		return nil, err
	}
	return schema.ParseSnapshot(answer)
}

// Fold adds the next event of a Stream to f. f is zero at the beginning of a run, or comes from Snapshot.
// Fold does what schema.Fold.Add does, and also reads events that exist in streams only: run.snapshot, which
// replaces the contents of f, and delta.bundle, which a Stream takes apart but other readers do not. The
// error wraps schema.ErrMalformed, and leaves f unchanged.
func Fold(f *schema.Fold, e *schema.Event) error {
	if !viewOnly(e.Type) {
		f.Add(e)
		return nil
	}
	if e.Type == typeSnapshot {
		g, err := schema.ParseSnapshot(e.Payload)
		if err != nil {
			return err
		}
		*f = *g
		return nil
	}
	r, err := schema.ScanLine(e.AppendLine(nil))
	if err != nil {
		return err
	}
	f.AddRecord(r)
	return nil
}

// Types that no log holds.
const (
	typeSnapshot = "run.snapshot"
	typeBundle   = "delta.bundle"
	typeGap      = "stream.gap"
)

func viewOnly(typ string) bool { return typ == typeSnapshot || typ == typeBundle }

// apart returns an arrival, or the deltas that it is a bundle of, each as it would have come alone but
// for id, ts and seq, which they share. A bundle that cannot be read stays one event.
func (a *arrival) apart() []arrival {
	var payload struct{ Deltas []json.RawMessage }
	if a.event.Type != typeBundle || json.Unmarshal(a.event.Payload, &payload) != nil || len(payload.Deltas) == 0 {
		return []arrival{*a}
	}
	parts := make([]arrival, 0, len(payload.Deltas))
	for _, raw := range payload.Deltas {
		e, err := schema.DecodeView(raw)
		if err != nil || e.Type == "" {
			return []arrival{*a}
		}
		e.ID, e.TS, e.RunID, e.Seq, e.FirstSeq = a.event.ID, a.event.TS, a.event.RunID, a.event.Seq, a.event.FirstSeq
		parts = append(parts, arrival{event: e, line: e.AppendLine(nil)})
	}
	return parts
}
