package producers

import (
	"context"
	"errors"
	"time"

	"agentstream/internal/backoff"
	"agentstream/schema"
)

// Who reads a run before it writes is slower than who only writes: a command is planned for the very head that it
// follows, and an agent that writes all the time moves the head meanwhile, each time. So after some lost races a writer
// holds the run: the others find that at their next compare-and-set, which fails, and wait until a pack has come.
const (
	// fairAttempts is after how many lost races a writer holds the run.
	fairAttempts = 4
	// heldTime bounds the wait for another writer, which may have died.
	heldTime = 2 * time.Second
)

// hold has the others wait for this writer. What fails is a lost race more.
func (w *writer) hold(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if err := Hold(once, w.log, w.build.key, w.build.writer); err != nil && w.hooks.Retry != nil {
		w.hooks.Retry(err)
	}
}

// release lets the others go on when this writer stores nothing after all.
func (w *writer) release(ctx context.Context) {
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.timeout)
	defer cancel()
	if err := Release(once, w.log, w.build.key, w.build.writer); err != nil && w.hooks.Retry != nil {
		w.hooks.Retry(err)
	}
}

// readFree reads the head when the others need not be waited for.
func (w *writer) readFree(ctx context.Context, child string) (schema.Head, error) {
	var until time.Time
	for attempt := 0; ; attempt++ {
		head, err := w.readHead(ctx, child)
		if attempt == 0 {
			until = time.Now().Add(heldTime)
		}
		if err != nil || head.Held == "" || head.Held == w.build.writer || time.Now().After(until) {
			head.Held = ""
			return head, err
		}
		if err := backoff.Sleep(ctx, backoff.Delay(attempt, time.Millisecond, 20*time.Millisecond)); err != nil {
			return head, err
		}
	}
}

// isOutrun reports whether a pack that the log has refused, and that is not in it, can never be stored: others were
// first, or have held the run, at a place where that of the pack would lie before.
func (w *writer) isOutrun(ctx context.Context, p *schema.Pack, refusal error) (bool, error) {
	if w.head.Stored != p.Head.Stored {
		return true, nil
	}
	if !errors.Is(refusal, ErrConflict) {
		return false, nil
	}
	head, err := w.readHead(ctx, p.Child)
	return err == nil && head.Stored > p.Head.Stored && head.Last < p.First, err
}
