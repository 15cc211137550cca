package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"agentstream/producers"
	"agentstream/schema"
)

// inFlight is how many asynchronous publishes may be unacknowledged on the bare side.
const inFlight = 256

// publishOneRun: one caller writes one run as fast as it can.
func publishOneRun(h *house, n sizes) *comparison {
	lines, payloads := bodies(1000), texts(1000)
	perPack := &atomic.Int64{}
	return &comparison{
		title: fmt.Sprintf("publish, one run: %s events", thousands(n.oneRun)), units: []string{"ev/s"}, server: h.nats.pid,
		own: []variant{{"agentstream: Publisher, one event per call, then Flush", "ours",
			func(ctx context.Context, w *stopwatch) ([]float64, error) {
				return h.publishers(ctx, w, 1, n.oneRun, payloads, perPack)
			}}},
		bare: []variant{
			{"bare: PublishAsync, one event per message, 256 in flight", "bare_async",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.async(ctx, w, 1, n.oneRun, inFlight, lines)
				}},
			{"bare: Publish with compare-and-set, one at a time", "bare_sync",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.compareAndSet(ctx, w, h.bareRuns(1), n.synchronous, 1)
				}},
			{"bare: the same, of packs as Publisher makes them, ready-made", "bare_packs",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.compareAndSet(ctx, w, h.bareRuns(1), n.oneRun, int(perPack.Load()))
				}},
		},
	}
}

// publishManyRuns: the same over many runs, whose events come in turns.
func publishManyRuns(h *house, n sizes) *comparison {
	lines, payloads := bodies(1000), texts(1000)
	perPack := &atomic.Int64{}
	return &comparison{
		title: fmt.Sprintf("publish, %s runs: %d events each, in turns", thousands(n.runs), n.perRun),
		units: []string{"ev/s"}, server: h.nats.pid,
		own: []variant{{fmt.Sprintf("agentstream: %s Publishers", thousands(n.runs)), "ours",
			func(ctx context.Context, w *stopwatch) ([]float64, error) {
				return h.publishers(ctx, w, n.runs, n.perRun, payloads, perPack)
			}}},
		bare: []variant{
			{fmt.Sprintf("bare: PublishAsync, one event per message, %s in flight", thousands(n.runs)), "bare_async",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.async(ctx, w, n.runs, n.perRun, n.runs, lines)
				}},
			{"bare: Publish with compare-and-set, one goroutine per run", "bare_sync",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.compareAndSet(ctx, w, h.bareRuns(n.runs), max(n.perRun/5, 1), 1)
				}},
			{"bare: the same, of packs as Publishers made them, ready-made", "bare_packs",
				func(ctx context.Context, w *stopwatch) ([]float64, error) {
					return h.compareAndSet(ctx, w, h.bareRuns(n.runs), n.perRun, int(perPack.Load()))
				}},
		},
	}
}

// publishers writes runs by one Publisher each, driven by one goroutine, one event per call. perPack
// gets the mean number of events in a pack, rounded.
func (h *house) publishers(ctx context.Context, w *stopwatch, runs, perRun int, payloads [][]byte,
	perPack *atomic.Int64) ([]float64, error) {
	keys, pubs := h.runs(runs), make([]*producers.Publisher, runs)
	var packs atomic.Int64
	count := producers.Hooks{Stored: func(int, int, time.Duration) { packs.Add(1) }}
	for i, key := range keys {
		var err error
		if pubs[i], err = producers.New(producers.Config{Log: h.log, Key: key, Hooks: count}); err != nil {
			return nil, err
		}
		defer pubs[i].Close(ctx)
	}
	w.start()
	for i := range perRun {
		for _, p := range pubs {
			if _, err := p.Publish(ctx, schema.Event{Type: schema.TypeTextDelta,
				Payload: payloads[i%len(payloads)]}); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range pubs {
		if err := p.Flush(ctx); err != nil {
			return nil, err
		}
	}
	w.stop(runs * perRun)
	mean := float64(runs*perRun) / float64(packs.Load())
	perPack.Store(max(1, int64(mean+0.5)))
	w.note = fmt.Sprintf("%.1f events per pack", mean)
	return w.rate(), h.hasStored(ctx, keys, perRun)
}

// async publishes one event per message without waiting for more than the oldest of most.
func (h *house) async(ctx context.Context, w *stopwatch, runs, perRun, most int, lines [][]byte) ([]float64, error) {
	keys := h.bareRuns(runs)
	subjects := make([]string, runs)
	for i, key := range keys {
		subjects[i] = h.subject(key)
	}
	var failed atomic.Pointer[error]
	js, err := jetstream.New(h.bare, jetstream.WithPublishAsyncMaxPending(most),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { failed.Store(&err) }))
	if err != nil {
		return nil, err
	}
	defer js.CleanupPublisher()
	stall := jetstream.WithStallWait(limit)
	w.start()
	for i := range perRun {
		for _, s := range subjects {
			if _, err := js.PublishAsync(s, lines[i%len(lines)], stall); err != nil {
				return nil, err
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.stop(runs * perRun)
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return w.rate(), h.hasMessages(ctx, keys[0].Tenant, runs*perRun)
}

// compareAndSet writes ready-made packs of so many events, one goroutine per run, each waiting for
// one acknowledgement before the next, with the headers of the product's log.
func (h *house) compareAndSet(ctx context.Context, w *stopwatch, runs []schema.RunKey, perRun, perPack int) ([]float64,
	error) {
	packs := make([][]*nats.Msg, len(runs))
	for i, key := range runs {
		packs[i] = h.messages(packsOf(key, perRun, perPack, false))
	}
	ready := make(chan struct{})
	g, gctx := errgroup.WithContext(ctx)
	for i := range runs {
		g.Go(func() error {
			<-ready
			return h.storeInOrder(gctx, runs[i], packs[i])
		})
	}
	w.start()
	close(ready)
	if err := g.Wait(); err != nil {
		return nil, err
	}
	w.stop(len(runs) * perRun)
	return w.rate(), h.hasMessages(ctx, runs[0].Tenant, len(runs)*len(packs[0]))
}

// storeInOrder is the product's write without the product.
func (h *house) storeInOrder(ctx context.Context, key schema.RunKey, msgs []*nats.Msg) error {
	filter, stream := schema.RunFilter(key, h.partitions), h.stream(key)
	last := uint64(0)
	for _, m := range msgs {
		m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
		m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{filter}
		m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		ack, err := h.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		last = ack.Sequence
	}
	return nil
}

// messages are packs as the product stores them.
func (h *house) messages(packs []schema.Pack) []*nats.Msg {
	list := make([]*nats.Msg, len(packs))
	for i := range packs {
		list[i] = &nats.Msg{Subject: h.subject(packs[i].Key), Header: packs[i].Headers(), Data: packs[i].Body}
	}
	return list
}
