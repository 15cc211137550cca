package retention

import (
	"context"
	"time"

	"agentstream/persister"
)

// due finds runs whose retention has passed.
type due struct {
	policy    Policy
	overrides map[string]persister.Override
	now       time.Time
}

// Bounds of one query and of one transaction that marks.
const (
	lookRuns = 1000
	markRuns = 200
)

// dayLayout is schema.Head.Day.
const dayLayout = "20060102"

// lastDay is after every day that a run can have.
const lastDay = "99991231"

// lister lists runs that have ended.
type lister interface {
	ListEnded(ctx context.Context, q persister.EndedQuery) ([]persister.EndedRun, error)
}

// eachExpired calls fn with runs to expire, in groups, after a position. After an error it returns the position
// to continue from, nil at the end.
func (d *due) eachExpired(ctx context.Context, from lister, at *persister.EndedRun,
	fn func([]persister.EndedRun) error) (*persister.EndedRun, error) {
	least := d.policy.shortest(d.overrides)
	if least < 0 {
		return nil, nil
	}
	return d.walk(ctx, from, persister.EndedQuery{After: at}, least, fn, func(r *persister.EndedRun) bool {
		return isPast(r.Ended, d.policy.For(r.State, d.overrides[r.Key.Tenant]), d.now)
	})
}

// cold calls fn with runs whose rows are to be removed because the blob has their events.
func (d *due) cold(ctx context.Context, from lister, fn func([]persister.EndedRun) error) error {
	if d.policy.Rows < 0 {
		return nil
	}
	_, err := d.walk(ctx, from, persister.EndedQuery{Warm: true}, d.policy.Rows, fn, func(r *persister.EndedRun) bool {
		return isPast(r.Ended, d.policy.Rows, d.now)
	})
	return err
}

// eachUnwanted calls fn with runs whose session was deleted, in any state and of any day.
func (d *due) eachUnwanted(ctx context.Context, from lister, fn func([]persister.EndedRun) error) error {
	_, err := d.walk(ctx, from, persister.EndedQuery{Unwanted: true, Through: lastDay}, 0, fn,
		func(*persister.EndedRun) bool { return true })
	return err
}

func (d *due) walk(ctx context.Context, from lister, q persister.EndedQuery, least time.Duration,
	fn func([]persister.EndedRun) error, want func(*persister.EndedRun) bool) (*persister.EndedRun, error) {
	// A run's day is the day on which its first events were stored. A run that ended before that day, as an imported
	// one, is not found until its day is old enough.
	if q.Limit = lookRuns; q.Through == "" {
		q.Through = d.now.Add(-least).UTC().Format(dayLayout)
	}
	for {
		runs, err := from.ListEnded(ctx, q)
		if err != nil {
			return q.After, err
		}
		var group []persister.EndedRun
		for i := range runs {
			if !runs[i].Held && want(&runs[i]) {
				group = append(group, runs[i])
			}
			if len(group) == markRuns || i == len(runs)-1 && len(group) > 0 {
				if err := fn(group); err != nil {
					return q.After, err
				}
				group = nil
			}
		}
		if len(runs) < q.Limit {
			return nil, nil
		}
		q.After = &runs[len(runs)-1]
	}
}
