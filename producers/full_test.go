package producers_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// fullLog stores nothing while full is set, and says why. After a lost answer it stores nothing of what it was sent.
type fullLog struct {
	*memory.Log
	why          error
	full, silent atomic.Bool
}

func (l *fullLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if l.silent.Swap(false) {
		l.full.Store(true)
		return 0, producers.ErrUnanswered
	}
	if l.full.Load() {
		return 0, fmt.Errorf("no space: %w", cmp.Or(l.why, producers.ErrFull))
	}
	return l.Log.Append(ctx, p, after)
}

// TestFullLogRefusesAtOnce: a request is not kept waiting for room, nor for a log that is not set up for it, and a
// publisher is: it loses nothing.
func TestFullLogRefusesAtOnce(t *testing.T) {
	for _, why := range []error{producers.ErrFull, fmt.Errorf("%w: %w", producers.ErrUnavailable, producers.ErrSetup)} {
		refusesAtOnce(t, why)
	}
}

func refusesAtOnce(t *testing.T, why error) {
	synctest.Test(t, func(t *testing.T) {
		log := &fullLog{Log: memory.New(), why: why}
		a, _ := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: new(memoryKeys)})
		within := producers.AppendOptions{Within: 15 * time.Second}
		keyed := producers.AppendOptions{Within: 15 * time.Second, IdempotencyKey: "k"}
		pub, _ := producers.New(producers.Config{Log: log, Key: schema.RunKey{Tenant: "acme", Run: "pub"}})
		log.full.Store(true)
		began := time.Now()
		for _, opt := range []producers.AppendOptions{within, keyed, {}} {
			if _, err := a.Append(t.Context(), key, batch("a", 0, 3), opt); !errors.Is(err, why) ||
				errors.Is(err, producers.ErrUnanswered) {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("refused after %v", took)
		}
		time.AfterFunc(time.Minute, func() { log.full.Store(false) })
		if _, err := pub.Publish(t.Context(), batch("p", 0, 2)...); err != nil {
			t.Error(err)
		}
		if err := pub.Flush(t.Context()); err != nil {
			t.Errorf("a publisher does not wait for room: %v", err)
		}
		if took := time.Since(began); took < time.Minute || took > 62*time.Second {
			t.Errorf("stored after %v", took)
		}
		if r, err := a.Append(t.Context(), key, batch("a", 0, 3), keyed); err != nil || r.First != 1 || r.Last != 3 {
			t.Errorf("a repeat with the key: %+v %v", r, err)
		}

		// An attempt that was not answered may be stored: that it is full now does not make it certain.
		log.silent.Store(true)
		_, err := a.Append(t.Context(), key, batch("a", 3, 1), within)
		if !errors.Is(err, producers.ErrUnanswered) || time.Since(began) > 70*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := pub.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
