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

// An append that was planned for a run that is over, and whose answer was not recorded, is found by its repeat, which
// would plan it in another way.
func TestPlannedIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, keys := memory.New(), new(silentKeys)
		again := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"planning"}`)}
		over := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}
		opt := producers.AppendOptions{IdempotencyKey: "k", Whole: true, AfterEnd: true,
			Plan: func(_ context.Context, head schema.Head, events []schema.Event) ([]schema.Event, error) {
				if head.State.Final() {
					return append([]schema.Event{events[0], again}, events[1:]...), nil
				}
				return events, nil
			}}
		node := func() *producers.Appender {
			a, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if _, err := node().Append(t.Context(), key, []schema.Event{over}, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, replayed := range []bool{false, true} {
			r, err := node().Append(t.Context(), key, batch("w", 0, 2), opt)
			if err != nil || r.First != 2 || r.Last != 4 || r.Replayed != replayed {
				t.Errorf("replayed %t: %+v %v", replayed, r, err)
			}
		}
		head, err := log.Head(t.Context(), key, "")
		if err != nil || head.Last != 4 || head.State != schema.StatePlanning {
			t.Errorf("%+v %v", head, err)
		}
	})
}
