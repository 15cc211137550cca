package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/producers"
	"agentstream/schema"
)

// watch: events of many runs at a fixed rate, each run watched by several clients. The writer keeps
// the pace whatever the clients do (an open loop), and each payload says when it was handed over.
func watch(h *house, n sizes) *comparison {
	one := func(connect connector, send func(context.Context, []schema.RunKey) (sender, func(), error)) func(context.Context, *stopwatch) ([]float64, error) {
		return func(ctx context.Context, w *stopwatch) ([]float64, error) {
			return h.watch(ctx, w, n, connect, send)
		}
	}
	return &comparison{
		title: fmt.Sprintf("publish → client: %s ev/s over %d runs, %d watchers each, %v", thousands(n.rate), n.watched,
			n.watchers, n.duration),
		units: []string{"p50_ms", "p99_ms"}, server: h.nats.pid,
		own: []variant{{"agentstream: Publishers → SSE, a connection per watcher", "ours",
			one(h.watchSSE, h.sendPublishers)}},
		bare: []variant{
			{"bare: PublishAsync → copies, a connection per watcher", "bare_js", one(h.watchCopies, h.sendAsync)},
			{"bare: the same, one connection for all watchers", "bare_js_1conn", one(h.watchCopiesTogether, h.sendAsync)},
			{"bare: core NATS, nothing stored, a connection per watcher", "bare_core", one(h.watchCopies, h.sendCore)},
		},
	}
}

// sender hands one event of a run over and does not wait for it to be stored.
type sender func(run int, seq schema.Seq, payload []byte) error

// connector opens the watchers, runs × per run, and returns when all of them are known to the server.
// close ends them and waits until they have.
type connector func(ctx context.Context, runs []schema.RunKey, watchers []*watcher) (closeAll func(), err error)

func (h *house) watch(ctx context.Context, w *stopwatch, n sizes, connect connector,
	open func(context.Context, []schema.RunKey) (sender, func(), error)) ([]float64, error) {
	runs := h.runs(n.watched)
	send, closeSender, err := open(ctx, runs)
	if err != nil {
		return nil, err
	}
	defer closeSender()
	perRun := int(n.duration.Seconds()*float64(n.rate)) / n.watched
	var left sync.WaitGroup
	watchers := make([]*watcher, n.watched*n.watchers)
	for i := range watchers {
		watchers[i] = newWatcher(perRun, &left)
	}
	closeAll, err := connect(ctx, runs, watchers)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	w.start()
	late, err := openLoop(n.rate, perRun*n.watched, func(i int) error {
		return send(i%n.watched, schema.Seq(2+i/n.watched), stamped())
	})
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, &left); err != nil {
		return nil, errors.Join(err, missing(watchers))
	}
	w.stop(perRun * n.watched)
	if err := missing(watchers); err != nil {
		return nil, err
	}
	all := make([]time.Duration, 0, len(watchers)*perRun)
	for _, x := range watchers {
		all = append(all, x.took...)
	}
	slices.Sort(all)
	slices.Sort(late)
	w.note = fmt.Sprintf("%s deliveries, max %.1f ms; the pace was kept within %.1f ms (p99)", thousands(len(all)),
		milliseconds(all[len(all)-1]), milliseconds(percentile(late, 99)))
	return []float64{milliseconds(percentile(all, 50)), milliseconds(percentile(all, 99))}, nil
}

// openLoop calls send at its due times, whether or not earlier ones have been answered, and returns by
// how much each call was late.
func openLoop(rate, events int, send func(int) error) ([]time.Duration, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := make([]time.Duration, 0, events)
	began := time.Now()
	for i := 0; i < events; {
		<-tick.C
		for ; i < events; i++ {
			due := time.Duration(i) * time.Second / time.Duration(rate)
			behind := time.Since(began) - due
			if behind < 0 {
				break
			}
			late = append(late, behind)
			if err := send(i); err != nil {
				return late, err
			}
		}
	}
	return late, nil
}

var stampedText = texts(1)[0]

const stampField = `"sent":`

// stamped is a payload that says when it was made, in nanoseconds.
func stamped() []byte {
	b := append(make([]byte, 0, len(stampedText)+40), stampedText[:len(stampedText)-1]...)
	b = append(append(b, ','), stampField...)
	return append(strconv.AppendInt(b, time.Now().UnixNano(), 10), '}')
}

// watcher is one client: it takes seq 2 and what follows, each once and in order.
type watcher struct {
	want int
	left *sync.WaitGroup
	took []time.Duration
	next int
	err  error
}

func newWatcher(want int, left *sync.WaitGroup) *watcher {
	left.Add(1)
	return &watcher{want: want, left: left, took: make([]time.Duration, 0, want), next: 2}
}

// take takes a line of the log. It is called by one goroutine.
func (x *watcher) take(line []byte) {
	now := time.Now().UnixNano()
	if x.err != nil || len(x.took) == x.want {
		return
	}
	sent, err := number(line, stampField)
	var seq int64
	if err == nil {
		seq, err = number(line, `"seq":`)
	}
	if err == nil && int(seq) != x.next {
		err = fmt.Errorf("seq %d where %d is next", seq, x.next)
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.next++
	if x.took = append(x.took, time.Duration(now-sent)); len(x.took) == x.want {
		x.left.Done()
	}
}

func (x *watcher) fail(err error) {
	if x.err == nil && len(x.took) < x.want {
		x.err = err
		x.left.Done()
	}
}

// number reads the digits behind a field's name.
func number(line []byte, field string) (int64, error) {
	i := bytes.Index(line, []byte(field))
	if i < 0 {
		return 0, fmt.Errorf("no %s in %s", field, line)
	}
	rest := line[i+len(field):]
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	return strconv.ParseInt(string(rest[:end]), 10, 64)
}

func waitFor(ctx context.Context, left *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func missing(watchers []*watcher) (err error) {
	for i, x := range watchers {
		if x.err != nil {
			return fmt.Errorf("watcher %d: %w", i, x.err)
		}
	}
	return nil
}

// sendPublishers opens a Publisher per run and writes its first event: a run that does not exist
// cannot be watched.
func (h *house) sendPublishers(ctx context.Context, runs []schema.RunKey) (sender, func(), error) {
	pubs := make([]*producers.Publisher, len(runs))
	for i, key := range runs {
		var err error
		if pubs[i], err = producers.New(producers.Config{Log: h.log, Key: key}); err != nil {
			return nil, nil, err
		}
		if _, err := pubs[i].Append(ctx, schema.Event{Type: schema.TypeTextDelta, Payload: stamped()}); err != nil {
			return nil, nil, err
		}
	}
	send := func(run int, _ schema.Seq, payload []byte) error {
		_, err := pubs[run].Publish(ctx, schema.Event{Type: schema.TypeTextDelta, Payload: payload})
		return err
	}
	return send, func() {
		for _, p := range pubs {
			p.Close(ctx)
		}
	}, nil
}

// line is an event of the bare side, as long as the product's.
func line(run string, seq schema.Seq, payload []byte) []byte {
	e := schema.Event{ID: "evt_01JD6Z3QZC8Z9V4V6Q1T9X2Y3W", TS: "2026-01-01T00:00:00.000Z", Type: schema.TypeTextDelta,
		RunID: run, Seq: seq, Payload: payload}
	return append(e.AppendLine(make([]byte, 0, 320)), '\n')
}

func (h *house) sendAsync(_ context.Context, runs []schema.RunKey) (sender, func(), error) {
	js, err := jetstream.New(h.bare, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return nil, nil, err
	}
	return func(run int, seq schema.Seq, payload []byte) error {
		_, err := js.PublishAsync(h.subject(runs[run]), line(runs[run].Run, seq, payload))
		return err
	}, js.CleanupPublisher, nil
}

// sendCore publishes on the subjects of the copies, which no stream stores.
func (h *house) sendCore(_ context.Context, runs []schema.RunKey) (sender, func(), error) {
	return func(run int, seq schema.Seq, payload []byte) error {
		return h.bare.Publish(liveSubject(h.subject(runs[run])), line(runs[run].Run, seq, payload))
	}, func() {}, nil
}

func liveSubject(stored string) string { return schema.LivePrefix + stored[len(schema.StorePrefix):] }

// watchSSE opens a stream behind event 1 for each watcher.
func (h *house) watchSSE(ctx context.Context, runs []schema.RunKey, watchers []*watcher) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var open sync.WaitGroup
	closeAll := func() { cancel(); open.Wait() }
	for i, x := range watchers {
		url := h.url + "/v1/agent/runs/" + runs[i%len(runs)].Run + "/stream?after=1&detail=full"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := h.client.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		if err != nil {
			closeAll()
			return nil, err
		}
		open.Go(func() {
			defer resp.Body.Close()
			r := bufio.NewReaderSize(resp.Body, 4<<10)
			for {
				text, err := r.ReadSlice('\n')
				if err != nil {
					x.fail(err)
					return
				}
				if data, ok := bytes.CutPrefix(text, []byte("data: ")); ok {
					x.take(data)
				}
			}
		})
	}
	return closeAll, nil
}

func (h *house) watchCopies(ctx context.Context, runs []schema.RunKey, watchers []*watcher) (func(), error) {
	return h.subscribe(runs, watchers, len(watchers))
}

func (h *house) watchCopiesTogether(ctx context.Context, runs []schema.RunKey, watchers []*watcher) (func(), error) {
	return h.subscribe(runs, watchers, 1)
}

// subscribe spreads core subscriptions to the copies over so many connections.
func (h *house) subscribe(runs []schema.RunKey, watchers []*watcher, connections int) (func(), error) {
	var conns []*nats.Conn
	closeAll := func() {
		for _, nc := range conns {
			nc.Close()
		}
	}
	for range connections {
		nc, err := nats.Connect(h.nats.url)
		if err != nil {
			closeAll()
			return nil, err
		}
		conns = append(conns, nc)
	}
	for i, x := range watchers {
		filter := schema.LiveFilter(runs[i%len(runs)], h.partitions)
		if _, err := conns[i%connections].Subscribe(filter, func(m *nats.Msg) { x.take(m.Data) }); err != nil {
			closeAll()
			return nil, err
		}
	}
	for _, nc := range conns {
		if err := nc.Flush(); err != nil {
			closeAll()
			return nil, err
		}
	}
	return closeAll, nil
}
