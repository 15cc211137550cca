package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay returns the wait before attempt n (from 0). It grows from base to at most limit and has full jitter.
func Delay(n int, base, limit time.Duration) time.Duration {
	d := base << min(n, 16)
	if d > limit || d <= 0 {
		d = limit
	}
	return base/2 + rand.N(d)
}

// Sleep waits for d and returns nil, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
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
