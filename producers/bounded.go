package producers

import (
	"context"
	"sync"
	"time"
)

// bounded is a context that ends at a time at the latest. Its timer is started when somebody waits for the end:
// nearly every append waits for nothing but one answer of the log, which has a nearer bound of its own.
type bounded struct {
	context.Context // the caller's
	at              time.Time

	mu       sync.Mutex
	timed    context.Context // made by the first Done
	cancel   context.CancelFunc
	released bool
}

// Deadline returns the nearer of the caller's and at.
func (b *bounded) Deadline() (time.Time, bool) {
	if d, ok := b.Context.Deadline(); ok && d.Before(b.at) {
		return d, true
	}
	return b.at, true
}

// Done starts the timer.
func (b *bounded) Done() <-chan struct{} { return b.real().Done() }

// Err is that of the timer, which starts when the time is over at the latest, so that it agrees with Done.
func (b *bounded) Err() error {
	b.mu.Lock()
	timed, released := b.timed, b.released
	b.mu.Unlock()
	if timed == nil && !released && b.Context.Err() == nil && time.Now().Before(b.at) {
		return nil
	}
	return b.real().Err()
}

// Value is asked of the timer's context where there is one, because context.Cause looks there.
func (b *bounded) Value(key any) any {
	b.mu.Lock()
	timed := b.timed
	b.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return b.Context.Value(key)
}

func (b *bounded) real() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.cancel = context.WithDeadline(b.Context, b.at)
		if b.released {
			b.cancel()
		}
	}
	return b.timed
}

// release ends the context.
func (b *bounded) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
	if b.cancel != nil {
		b.cancel()
	}
}

// attempt bounds one attempt within ctx. Release it when the attempt is over.
func attempt(ctx context.Context, timeout time.Duration) *bounded {
	at := time.Now().Add(timeout)
	if b, ok := ctx.(*bounded); ok { // the whole need not start its timer for a part
		if ctx = b.Context; b.at.Before(at) {
			at = b.at
		}
	}
	return &bounded{Context: ctx, at: at}
}
