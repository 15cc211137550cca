package persister_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// commitLog is what the Stored hook saw: rows and times since the start.
type commitLog struct {
	begin time.Time
	rows  []int
	at    []time.Duration
}

func (l *commitLog) hook(_ string, s persister.Stored) {
	l.rows = append(l.rows, s.Inserted)
	l.at = append(l.at, time.Since(l.begin))
}

// TestLinger: what comes alone is stored at once; what follows it closely is stored together.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		log := &commitLog{begin: time.Now()}
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Linger: 200 * time.Millisecond,
			Hooks: persister.Hooks{Stored: log.hook}})
		time.Sleep(time.Second) // the queue is being waited on
		q.put(w.Texts("", 1))
		time.Sleep(5 * time.Millisecond) // never at the moment of a fetch
		for range 49 {
			time.Sleep(10 * time.Millisecond)
			q.put(w.Texts("", 1))
		}
		time.Sleep(time.Second)
		q.put(w.Texts("", 1))
		synctest.Wait()
		stop()
		want := "[1 19 20 10 1] [1s 1.2s 1.4s 1.6s 2.495s]"
		if got := fmt.Sprint(log.rows, log.at); got != want {
			t.Errorf("commits %s, want %s", got, want)
		}
	})
}

// TestLingerWithManyRows: when many rows come, batches come half as often, but not when very many do. The process is
// the only one that stores the log.
func TestLingerWithManyRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		log := &commitLog{begin: time.Now()}
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Alone: true, BatchStart: 400,
			Linger: time.Second,
			Hooks:  persister.Hooks{Stored: log.hook}})
		for _, rows := range []int{1, 4, 5, 14, 16} { // in each tenth of a second
			time.Sleep(5 * time.Millisecond) // never at the moment of a fetch
			for range 40 {
				time.Sleep(100 * time.Millisecond)
				q.put(w.Texts("", rows))
			}
		}
		synctest.Wait()
		stop()
		if got, want := fmt.Sprint(log.rows), "[1 8 10 10 10 37 40 40 40 49 50 100 271 280 318 160 160 16]"; got != want {
			t.Errorf("commits of %s rows, want %s, at %v", got, want, log.at)
		}
	})
}

// TestFullBatchesDoNotLinger: a backlog is stored without a pause.
func TestFullBatchesDoNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		var packs []schema.Pack
		for range 500 {
			packs = append(packs, w.Texts("", 10))
		}
		q.put(packs...)
		log := &commitLog{begin: time.Now()}
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100, Linger: time.Hour,
			Hooks: persister.Hooks{Stored: log.hook}})
		synctest.Wait()
		if !bytes.Equal(body(t, store, key("r")), bodies(packs...)) || log.at[len(log.at)-1] != 0 {
			t.Errorf("commits of %v rows at %v", log.rows, log.at)
		}
		stop()
	})
}

// TestShutdownStoresWhatLingers: what has come since the last batch is stored before Run returns, and
// at once.
func TestShutdownStoresWhatLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		a, b, c := w.Texts("", 1), w.Texts("", 2), w.Texts("", 3)
		q.put(a)
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Linger: time.Hour})
		synctest.Wait()
		q.put(b, c)
		time.Sleep(time.Minute)
		if !bytes.Equal(body(t, store, key("r")), a.Body) {
			t.Error("the persister does not linger")
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("stopping took %v", took)
		}
		store.once(t, []schema.Pack{a, b, c})
	})
}

// TestShutdownWithoutStoreOrQueue: neither what lingers in a log that does not answer nor what a store
// does not take keeps the process.
func TestShutdownWithoutStoreOrQueue(t *testing.T) {
	for name, broken := range map[string]func(*queue, *atomic.Bool){
		"queue": func(q *queue, _ *atomic.Bool) { q.set(func() { q.fetchErr = errAway }) },
		"store": func(_ *queue, hangs *atomic.Bool) { hangs.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, store := newQueue("AGENT_0"), newLedger()
				var hangs atomic.Bool
				store.fault = func(ctx context.Context, _ *persister.Transfer) error {
					if hangs.Load() {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				packs := texts("r", 2, 1)
				q.put(packs[0])
				p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Linger: time.Hour,
					Grace: 5 * time.Second})
				synctest.Wait()
				broken(q, &hangs)
				q.put(packs[1])
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > 5*time.Second || store.offset(t, "AGENT_0").Position != 1 {
					t.Errorf("stopping took %v, the offset is %d", took, store.offset(t, "AGENT_0").Position)
				}
				if s := p.Status()[0]; s.HeldBytes != 0 {
					t.Errorf("%d bytes are held after the end", s.HeldBytes)
				}
				store.once(t, packs[:1])
			})
		})
	}
}

// TestLingerOff: a negative time means none.
func TestLingerOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		log := &commitLog{begin: time.Now()}
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Linger: -1,
			Hooks: persister.Hooks{Stored: log.hook}})
		for range 3 {
			q.put(w.Texts("", 1))
			synctest.Wait()
		}
		stop()
		if got := fmt.Sprint(log.rows, log.at); got != "[1 1 1] [0s 0s 0s]" {
			t.Errorf("commits %s", got)
		}
	})
}

// TestQueuesTakeTurns: queues that get events at the same moments do not store them at the same moment.
func TestQueuesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		var queues []persister.Queue
		var put []func()
		for i := range 4 {
			q, w := newQueue(fmt.Sprintf("AGENT_%d", i)), persistertest.NewWriter(key(fmt.Sprintf("r%d", i)), day)
			queues, put = append(queues, q), append(put, func() { q.put(w.Texts("", 1)) })
		}
		begin := time.Now()
		var mu sync.Mutex
		at := map[time.Duration]int{}
		_, stop := start(t, persister.Config{Queues: queues, Store: store, Linger: time.Second,
			Hooks: persister.Hooks{Stored: func(string, persister.Stored) {
				mu.Lock()
				defer mu.Unlock()
				at[time.Since(begin)]++
			}}})
		for range 1000 {
			time.Sleep(10*time.Millisecond + time.Microsecond) // never at the moment of a fetch
			for _, p := range put {
				p()
			}
		}
		synctest.Wait()
		stop()
		delete(at, 10*time.Millisecond+time.Microsecond) // what comes alone is stored at once
		for when, n := range at {
			if n > 1 && when < 10*time.Second {
				t.Errorf("%d queues were stored at %v", n, when)
			}
		}
		if len(at) < 36 || len(at) > 48 {
			t.Errorf("%d commits of four queues in ten seconds", len(at))
		}
	})
}
