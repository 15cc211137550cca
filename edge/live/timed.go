package live

import (
	"bytes"
	"context"
	"iter"
	"time"

	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/internal/backoff"
	"agentstream/schema"
)

// maxIdle is the longest pause of a timed replay, in the run's own time.
const maxIdle = 2 * time.Second

// timedReader replays what there was when it was opened with its original timing, then goes on with
// another reader, which begins behind that.
type timedReader struct {
	speed float64
	pace  *shape.Pacer // nil: event for event
	plain shape.Folder

	pull func() (schema.Record, error, bool)
	stop func()
	rest func(after, has schema.Seq) (reader, error)
	then reader

	rec  schema.Record // that waits for its time
	held bool
	at   time.Time // when rec is due, and the time of the run's clock that this was
	when time.Time
	pos  schema.Seq
	out  []shape.Out
}

func newTimedReader(ctx context.Context, hub *fanout.Hub, o runs.Opened, speed float64) *timedReader {
	r := &timedReader{speed: speed, pos: o.After}
	r.pull, r.stop = iter.Pull2(o.Src.Walk(ctx, hub, o.After, o.Pos.Last))
	return r
}

func (r *timedReader) next(ctx context.Context) (readResult, error) {
	for r.then == nil {
		r.out = r.out[:0]
		over, err := r.step(ctx)
		if err != nil || len(r.out) > 0 {
			return readResult{records: r.out}, err
		}
		if over {
			has := r.plain.Last
			if r.pace != nil {
				has = r.pace.Last
			}
			if r.then, err = r.rest(r.pos, has); err != nil {
				return readResult{}, err
			}
		}
	}
	return r.then.next(ctx)
}

// step lets one event or one moment pass.
func (r *timedReader) step(ctx context.Context) (over bool, err error) {
	if !r.held {
		rec, err, ok := r.pull()
		if err != nil || !ok {
			if r.pace != nil {
				r.out = r.pace.Flush(r.out, time.Now())
			}
			return err == nil, err
		}
		r.schedule(rec)
	}
	until, paced := r.at, false
	if r.pace != nil {
		if due, ok := r.pace.Due(); ok && due.Before(until) {
			until, paced = due, true
		}
	}
	if err := backoff.Sleep(ctx, time.Until(until)); err != nil {
		return false, err
	}
	now := time.Now()
	switch {
	case paced:
		r.out = r.pace.Tick(r.out, now)
		return false, nil
	case r.pace != nil:
		r.out = r.pace.Add(r.out, now, r.rec)
	default:
		r.out = r.plain.Add(r.out, r.rec)
	}
	r.pos, r.held = r.rec.Seq, false
	return false, nil
}

// schedule sets when a record is due: as long after the one before it as it was, but for the speed
// and long pauses. A time that cannot be read, or that goes back, is no pause.
func (r *timedReader) schedule(rec schema.Record) {
	r.rec, r.held = rec, true
	when, ok := timeOf(rec)
	if !ok {
		return
	}
	if r.at.IsZero() {
		r.at = time.Now()
	} else if gap := when.Sub(r.when); gap > 0 {
		r.at = r.at.Add(time.Duration(float64(min(gap, maxIdle)) / r.speed))
	}
	r.when = when
}

func timeOf(r schema.Record) (time.Time, bool) {
	_, rest, ok := bytes.Cut(r.Line, []byte(`","ts":"`))
	if !ok {
		return time.Time{}, false
	}
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	when, err := time.Parse(time.RFC3339Nano, string(text))
	return when, err == nil
}

func (r *timedReader) wrote(took time.Duration) {
	if r.then != nil {
		r.then.wrote(took)
	}
}

func (r *timedReader) upToDate() *viewReader {
	if r.then == nil {
		return nil
	}
	return r.then.upToDate()
}

func (r *timedReader) close() int {
	r.stop()
	if r.then == nil {
		return 0
	}
	return r.then.close()
}
