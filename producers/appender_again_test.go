package producers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// silentLog does not answer its first append, which it stores or not.
type silentLog struct {
	producers.Log
	stores bool
	asked  atomic.Int32
}

func (l *silentLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if l.asked.Add(1) > 1 {
		return l.Log.Append(ctx, p, after)
	}
	if l.stores {
		if _, err := l.Log.Append(ctx, p, after); err != nil {
			return 0, err
		}
	}
	<-ctx.Done()
	return 0, producers.ErrUnanswered
}

// silentKeys never answer when an append is over.
type silentKeys struct{ memoryKeys }

func (k *silentKeys) Finish(ctx context.Context, _ string, _ producers.KeyRecord) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A broker that changes hands answers neither the append nor the bucket. An append is over soon after all, and
// stored once, and a repeat is told so.
func TestAppendDoesNotWaitForAnAnswerThatIsLost(t *testing.T) {
	for _, stores := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, keys := &silentLog{Log: memory.New(), stores: stores}, new(silentKeys)
			a, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			opt := producers.AppendOptions{IdempotencyKey: "k", Within: 15 * time.Second}
			begun := time.Now()
			first, err := a.Append(t.Context(), key, batch("w", 0, 1), opt)
			if took := time.Since(begun); err != nil || first.First != 1 || took > 2500*time.Millisecond {
				t.Errorf("stored at once: %t: %+v %v after %s", stores, first, err, took)
			}
			again, err := a.Append(t.Context(), key, batch("w", 0, 1), opt)
			if err != nil || again.First != 1 || !again.Replayed {
				t.Errorf("stored at once: %t: repeat: %+v %v", stores, again, err)
			}
			checkRun(t, log.Log, key, map[string]int{"w": 1})
		})
	}
}
