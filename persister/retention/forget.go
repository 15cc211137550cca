package retention

import (
	"context"
	"errors"

	"agentstream/persister"
)

// maxForgetFailures is how many runs in one pass may turn out not to be markable until no more are tried.
const maxForgetFailures = 20

// forget marks runs whose session was deleted, as a Deleter does. What is marked is removed by the sweep of the same
// pass, dead letters by its look at marks; both come back until the mark itself goes. Without the log nothing is
// marked: once the mark is gone, what the log has would be there again. A hold keeps a run, and another pass looks
// for it again.
func (w *removal) forget(ctx context.Context, d *due) error {
	if w.Forgetting == nil || w.Log == nil {
		return nil
	}
	failed := 0
	return d.unwanted(ctx, w.Runs, func(runs []persister.EndedRun) error {
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
			case !errors.Is(err, persister.ErrHeld): // one that has been placed a moment ago
				failed++
				w.fail("forget run "+r.Key.String(), err)
			}
		}
		return nil
	})
}
