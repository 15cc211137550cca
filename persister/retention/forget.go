package retention

import (
	"context"
	"errors"

	"agentstream/persister"
)

// maxForgetFailures is the number of runs that one pass may fail to mark before it stops.
const maxForgetFailures = 20

// forget marks runs whose session was deleted, as a Deleter does. The sweep of the same pass removes their events,
// and its tombstones step their dead letters; both do so again until the mark is removed. Without the log nothing is
// marked: after the removal of the mark the events in the log would be visible again. A run under a hold is skipped,
// and tried again by the next pass.
func (w *removal) forget(ctx context.Context, d *due) error {
	if w.Forgetting == nil || w.Log == nil {
		return nil
	}
	failed := 0
	return d.eachUnwanted(ctx, w.Runs, func(runs []persister.EndedRun) error {
		for _, r := range runs {
			if failed >= maxForgetFailures {
				return nil
			}
			head, err := w.Log.Head(ctx, r.Key)
			if err == nil {
				_, err = w.Forgetting.Forget(ctx, r.Key, head, d.now)
			}
			switch {
			case err == nil:
				w.report.Deleted++
			case ctx.Err() != nil:
				return err
			case !errors.Is(err, persister.ErrHeld): // the hold was placed a moment ago
				failed++
				w.fail("forget run "+r.Key.String(), err)
			}
		}
		return nil
	})
}
