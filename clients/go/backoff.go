package agentstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds of the pauses between attempts.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// backoff spaces out attempts: exponential with full jitter, so that clients that one fault threw
// out do not come back in step. One goroutine at a time.
type backoff struct {
	giveUp time.Duration // since the first failure in a row; 0 never
	floor  time.Duration // the least pause that the server wants (SSE retry:); 0 when it did not say
	since  time.Time     // first failure in a row
	next   time.Duration // upper bound of the next pause
}

// reset is called after progress.
func (b *backoff) reset() { b.since, b.next = time.Time{}, 0 }

// alive is called after an answer without progress: there is no reason to give up, and none
// to come back faster.
func (b *backoff) alive() { b.since = time.Time{} }

// pause returns the time to wait after a failure: at least as long as the server asked for, by hint
// (Retry-After) or by floor. It returns cause, wrapped, when the time to give up would pass in between.
func (b *backoff) pause(hint time.Duration, cause error) (time.Duration, error) {
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	if b.next <= 0 {
		b.next = backoffFirst
		if b.floor > 0 {
			b.next = b.floor // the server knows better how soon, also when it says sooner
		}
	}
	b.next = max(b.next, b.floor)
	least := max(hint, b.floor)
	d := least + rand.N(max(0, b.next-b.floor)+1)
	b.next = max(b.floor, min(2*b.next, backoffMost))
	if b.giveUp > 0 && now.Add(d).Sub(b.since) > b.giveUp {
		return 0, fmt.Errorf("given up after %s: %w", now.Sub(b.since).Round(time.Second), cause)
	}
	return d, nil
}

// sleep waits, unless ctx ends first; then it returns its cause.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
