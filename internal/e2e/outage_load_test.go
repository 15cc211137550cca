package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/natskit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// The load of the outage: each run gets a burst every beat, as a model's answer comes in bursts, and
// the Publisher makes packs of it.
const (
	outageRuns     = 200
	outageWatchers = 100
	outageBeat     = 200 * time.Millisecond
)

// steadyLoad publishes at a constant rate to outageRuns runs, and watches some of them.
type steadyLoad struct {
	t      *testing.T
	burst  int // events of a run in a beat
	sent   [outageRuns]int
	acked  atomic.Int64
	retry  atomic.Int64
	cut    atomic.Int64 // streams that ended and were resumed
	behind atomic.Int64 // beats that came late because the log took nothing
	see    []*seer
	stop   context.CancelFunc
	pubs   sync.WaitGroup
	unsee  context.CancelFunc
	seers  sync.WaitGroup
}

func loadRun(i int) schema.RunKey {
	return schema.RunKey{Tenant: "default", Run: fmt.Sprintf("load_%03d", i)}
}

// startLoad starts the producers and, when each run has begun, the watchers.
func startLoad(t *testing.T, nats string, edge string, rate int) *steadyLoad {
	t.Helper()
	l := &steadyLoad{t: t, burst: max(1, rate*int(outageBeat/time.Millisecond)/1000/outageRuns)}
	var logs []*pubjs.Log
	for range 4 {
		nc, err := natskit.Dial(nats, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		log, err := pubjs.Open(t.Context(), nc)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, log)
	}
	var ctx, see context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	see, l.unsee = context.WithCancel(context.Background())
	t.Cleanup(func() { l.stop(); l.unsee(); l.pubs.Wait(); l.seers.Wait() })
	for i := range outageRuns {
		l.pubs.Go(func() { l.produce(ctx, logs[i%len(logs)], i) })
	}
	eventually(t, 30*time.Second, "every run has begun",
		func() bool { return l.acked.Load() > 2*int64(outageRuns*l.burst) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	for i := range outageWatchers {
		w := &seer{load: l, run: loadRun(i), client: &http.Client{Transport: transport}, base: "http://" + edge}
		l.see = append(l.see, w)
		l.seers.Go(func() { w.follow(see) })
	}
	return l
}

// produce publishes a burst to one run each beat. What the log does not take is held, and is
// published when it takes it again.
func (l *steadyLoad) produce(ctx context.Context, log *pubjs.Log, i int) {
	pub, err := producers.New(producers.Config{Log: log, Key: loadRun(i), Timeout: 2 * time.Second, Hooks: producers.Hooks{
		Retry: func(error) { l.retry.Add(1) },
	}})
	if err != nil {
		l.t.Error(err)
		return
	}
	receipts := make(chan producers.Pending, 4096) // as many as the Publisher holds
	var waiting sync.WaitGroup
	waiting.Go(func() { l.await(receipts, i) })
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := pub.Close(ctx); err != nil {
			l.t.Errorf("run %d: %v", i, err)
		}
		close(receipts)
		waiting.Wait()
	}()
	select {
	case <-time.After(outageBeat * time.Duration(i) / outageRuns):
	case <-ctx.Done():
		return
	}
	beat := time.NewTicker(outageBeat)
	defer beat.Stop()
	words := strings.Repeat("word ", 12)
	for {
		events := make([]schema.Event, l.burst)
		for e := range events {
			events[e] = schema.Event{Type: schema.TypeTextDelta,
				Payload: fmt.Appendf(nil, `{"text":"%s","at":%d}`, words, time.Now().UnixNano())}
		}
		began := time.Now()
		receipt, err := pub.Publish(context.Background(), events...)
		if err != nil {
			l.t.Errorf("run %d: %v", i, err)
			return
		}
		receipts <- receipt
		if time.Since(began) > outageBeat {
			l.behind.Add(1)
		}
		l.sent[i] += len(events)
		select {
		case <-beat.C:
		case <-ctx.Done():
			return
		}
	}
}

// await counts what is acknowledged of a run, in order.
func (l *steadyLoad) await(receipts <-chan producers.Pending, i int) {
	for next := schema.Seq(1); ; {
		r, ok := <-receipts
		if !ok {
			return
		}
		got, err := r.Wait(context.Background())
		if err != nil || got.First != next {
			l.t.Errorf("run %d: acknowledged %d to %d where %d is next: %v", i, got.First, got.Last, next, err)
			continue
		}
		next = got.Last + 1
		l.acked.Add(int64(got.Last-got.First) + 1)
	}
}

// finish stops the producers, waits until the watchers have seen everything, and returns how many
// events were acknowledged.
func (l *steadyLoad) finish() int {
	l.t.Helper()
	l.stop()
	l.pubs.Wait()
	total := 0
	for _, n := range l.sent {
		total += n
	}
	if acked := int(l.acked.Load()); acked != total {
		l.t.Errorf("%d events published, %d acknowledged", total, acked)
	}
	for i, w := range l.see {
		eventually(l.t, 60*time.Second, "watcher has everything of "+w.run.Run,
			func() bool { return int(w.last.Load()) >= l.sent[i] })
	}
	l.unsee()
	l.seers.Wait()
	return total
}

// seer watches one run and notes how long each event took from its producer.
type seer struct {
	load   *steadyLoad
	run    schema.RunKey
	client *http.Client
	base   string
	last   atomic.Int64

	mu    sync.Mutex
	taken []delivery
}

// delivery is one event at a watcher: when it was made, and how long it took.
type delivery struct {
	made int64 // Unix, ns
	took time.Duration
}

func (w *seer) follow(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			w.load.cut.Add(1)
		}
		w.once(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *seer) once(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		w.base+"/v1/agent/runs/"+w.run.Run+"/stream?detail=full", nil)
	if err != nil {
		w.load.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+edgeToken)
	if n := w.last.Load(); n > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(n, 10))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	r := bufio.NewReader(resp.Body)
	var made int64
	for {
		text, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if data, ok := bytes.CutPrefix(text, []byte("data: ")); ok {
			_, stamp, _ := bytes.Cut(data, []byte(`"at":`))
			made = 0
			for _, c := range stamp {
				if c < '0' || c > '9' {
					break
				}
				made = made*10 + int64(c-'0')
			}
		}
		if id, ok := bytes.CutPrefix(text, []byte("id: ")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(id)), 10, 64)
			if n != w.last.Load()+1 || made == 0 {
				w.load.t.Errorf("watch %s: id %q behind %d", w.run, id, w.last.Load())
				return
			}
			d := delivery{made, time.Duration(time.Now().UnixNano() - made)}
			w.mu.Lock()
			w.taken = append(w.taken, d)
			w.mu.Unlock()
			w.last.Store(n)
		}
	}
}

// took returns the sorted delivery times of the events that were made between two times.
func (l *steadyLoad) took(from, to time.Time) (list []time.Duration) {
	for _, w := range l.see {
		w.mu.Lock()
		// made grows along the list: one producer wrote it.
		lo, _ := slices.BinarySearchFunc(w.taken, from.UnixNano(),
			func(d delivery, at int64) int { return int(min(max(d.made-at, -1), 1)) })
		for _, d := range w.taken[lo:] {
			if d.made >= to.UnixNano() {
				break
			}
			list = append(list, d.took)
		}
		w.mu.Unlock()
	}
	slices.Sort(list)
	return list
}

// quantile of a sorted list.
func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(len(list)-1, int(q*float64(len(list))))]
}

func spread(list []time.Duration) string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
	return fmt.Sprintf("%d deliveries, p50 %s ms, p99 %s ms, max %s ms", len(list), ms(quantile(list, 0.5)),
		ms(quantile(list, 0.99)), ms(quantile(list, 1)))
}
