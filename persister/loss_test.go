package persister_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// salvager counts its calls, and fails as often as it is told.
type salvager struct {
	calls   int
	fails   int
	objects bool
	runs    []persister.RunLoss
}

func (s *salvager) Salvage(context.Context, string) ([]persister.RunLoss, bool, error) {
	if s.calls++; s.calls <= s.fails {
		return nil, false, errors.New("test: no bucket")
	}
	return s.runs, s.objects, nil
}

// TestLossesAreRecorded: whatever the log drops before it is stored is recorded with the offset that passes over it,
// once, by its positions, and the rest is stored.
func TestLossesAreRecorded(t *testing.T) {
	run := schema.RunKey{Tenant: "acme", Run: "run_lost"}
	type world struct {
		q       *queue
		store   *ledger
		salvage *salvager
	}
	for name, c := range map[string]struct {
		do     func(w *world, work func(time.Duration))
		want   string // stream:first-last reason, and ! while it is open
		after  int    // messages that are stored in the end
		saved  bool   // salvage is asked once more than at the first beginning
		losses int    // of runs
	}{
		"nothing": {do: func(w *world, work func(time.Duration)) { w.q.put(texts("a", 5, 1)...); work(time.Minute) },
			after: 5},
		"database older": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 2, 1)...)
			work(time.Minute)
			w.q.put(texts("b", 5, 1)...)
			w.q.drop(7)
			w.salvage.runs = []persister.RunLoss{{Key: run, First: 3, Last: 9, Reason: persister.LossDropped}}
			work(time.Minute)
			w.q.put(texts("c", 3, 1)...)
			work(time.Minute)
		}, want: "AGENT_0:3-7 dropped!", after: 5, saved: true, losses: 1},
		"while it works": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 2, 1)...)
			var dropped atomic.Bool
			w.store.fault = func(_ context.Context, tr *persister.Transfer) error {
				if tr != nil && len(tr.Chunks) > 0 && dropped.CompareAndSwap(false, true) {
					w.q.put(texts("b", 5, 1)...)
					w.q.drop(4)
				}
				return nil
			}
			work(time.Minute)
		}, want: "AGENT_0:3-4 dropped!", after: 5, saved: true},
		"nothing stored before": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 6, 1)...)
			w.q.drop(4)
			work(time.Minute)
		}, want: "AGENT_0:1-4 before!", after: 2},
		"nothing stored, but objects": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 6, 1)...)
			w.q.drop(4)
			w.salvage.objects = true
			work(time.Minute)
		}, want: "AGENT_0:1-4 before", after: 2},
		"objects have not all": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 6, 1)...)
			w.q.drop(4)
			w.salvage.objects, w.salvage.runs = true, []persister.RunLoss{{Key: run, First: 1, Last: 2,
				Reason: persister.LossDropped}}
			work(time.Minute)
		}, want: "AGENT_0:1-4 before!", after: 2, losses: 1},
		"made again": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 6, 1)...)
			work(time.Minute)
			w.q.anew()
			work(time.Minute)
			w.q.put(texts("b", 2, 1)...)
			work(time.Minute)
		}, want: "AGENT_0:7-0 renewed!", after: 8, saved: true},
		"no bucket at first": {do: func(w *world, work func(time.Duration)) {
			w.q.put(texts("a", 2, 1)...)
			work(time.Minute)
			w.q.put(texts("b", 5, 1)...)
			w.q.drop(4)
			w.salvage.fails = w.salvage.calls + 3
			work(time.Minute)
		}, want: "AGENT_0:3-4 dropped!", after: 5, saved: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{q: newQueue("AGENT_0"), store: newLedger(), salvage: &salvager{}}
				c.do(w, func(d time.Duration) {
					_, stop := start(t, persister.Config{Queues: []persister.Queue{w.q.open()}, Store: w.store, Salvage: w.salvage})
					time.Sleep(d)
					stop()
				})
				losses, runs := w.store.Losses()
				var got []string
				for i := range losses {
					l := &losses[i]
					text := fmt.Sprintf("%s:%d-%d %s", l.Stream, l.First, l.Last, l.Reason)
					if l.Open() {
						text += "!"
					}
					got = append(got, text)
				}
				if strings.Join(got, ", ") != c.want || len(runs) != c.losses {
					t.Errorf("recorded %q and %d of runs, want %q and %d", got, len(runs), c.want, c.losses)
				}
				if saved := w.salvage.calls > 1; saved != c.saved {
					t.Errorf("salvaged %d times", w.salvage.calls)
				}
				if _, sums, _, _, _ := w.store.history(); sums.Inserted != c.after {
					t.Errorf("%d rows are stored, want %d", sums.Inserted, c.after)
				}
			})
		})
	}
}

// TestWordsOfLosses: each kind names its stream and its positions, and says when it is not known how much is lost.
func TestWordsOfLosses(t *testing.T) {
	for _, c := range []struct {
		loss  persister.Loss
		words []string
	}{
		{persister.Loss{Stream: "AGENT_1", First: 2, Last: 31, Reason: persister.LossDropped},
			[]string{"AGENT_1", "30 messages", "2 to 31"}},
		{persister.Loss{Stream: "AGENT_1", First: 1, Last: 9, Reason: persister.LossBefore},
			[]string{"9 messages", "before anything was stored"}},
		{persister.Loss{Stream: "AGENT_1", First: 1, Last: 9, Reason: persister.LossBefore, Restored: time.Unix(1, 0)},
			[]string{"are restored"}},
		{persister.Loss{Stream: "AGENT_1", First: 12, Reason: persister.LossRenewed},
			[]string{"made again", "11 messages", "not known"}},
	} {
		if text := c.loss.String(); slices.ContainsFunc(c.words, func(w string) bool { return !strings.Contains(text, w) }) {
			t.Errorf("%q lacks one of %q", text, c.words)
		}
	}
}
