package persister

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// pipeline is the work on one queue, in three steps that overlap:
//
//	queue ─▶ fetch, sift ─▶ store ─▶ confirm ─▶ queue
//
// While a batch is written the next one is fetched and taken apart, and the last one is confirmed.
// Between two steps at most one batch waits. Batches keep their order, and a batch is handed to the
// last step only after its commit.
type pipeline struct {
	cfg   *Config
	queue Queue
	bytes int // of one fetch, at most
	size  *sizer
	room  *room
	gate  gate

	fetched   chan *batch // no buffer: the fetching step holds the one that waits
	committed chan part

	mu       sync.Mutex
	status   Status
	troubles [steps]trouble
	held     []*batch // fetched and neither confirmed nor released, in their order
	perPack  float64  // events in a message, of late; 0: none was seen
	alarm    alarm

	telling telling
	unknown bool // the last question for the lag was not answered; of watchLag alone

	perMessage, perByte float64 // bytes held for a message, and for a byte of its body, in the last batch
}

// steps that can fail.
const (
	fetching = iota
	storing
	steps
)

var stepNames = [steps]string{"fetch", "store"}

// item is what is in one message on its way.
type item struct {
	chunk Chunk
	bad   []DeadLetter
	bytes int // held for it, about
}

// batch is what one fetch gave.
type batch struct {
	msgs    []Message
	items   []item
	round   int  // of the gate
	full    bool // the fetch gave all that it might: more may be waiting
	done    int  // messages at its front that are confirmed, under the pipeline's mutex
	left    int  // messages at its end that are released, under the pipeline's mutex
	touched time.Time
}

// part is a piece of a batch that was stored in one transaction.
type part struct {
	of    *batch
	msgs  []Message
	bytes int
}

func newPipeline(cfg *Config, q Queue) *pipeline {
	share := max(1, cfg.HeldBytes/len(cfg.Queues))
	return &pipeline{
		perMessage: 2 * messageBytes, perByte: 2,
		cfg: cfg, queue: q, size: newSizer(cfg), room: newRoom(share),
		bytes:   max(1, min(cfg.BatchBytes, share/2)), // one is written, one waits
		fetched: make(chan *batch), committed: make(chan part, 1),
	}
}

// run returns when everything that was fetched is confirmed or released.
func (p *pipeline) run(ctx context.Context) {
	work, cancel := outlive(ctx, p.cfg.Grace)
	defer cancel()
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var jobs, holder sync.WaitGroup
	holder.Go(func() { p.keepHolding(holding) })
	jobs.Go(func() {
		defer close(p.fetched)
		p.fetch(ctx, work)
	})
	jobs.Go(func() {
		defer close(p.committed)
		p.store(ctx, work)
	})
	jobs.Go(func() { p.confirm(work) })
	jobs.Wait()
	stop()
	holder.Wait()
}

// backOff is the pause after an attempt that failed, the n-th of a row.
func (p *pipeline) backOff(n int) time.Duration {
	pause := p.cfg.RetryMin << min(n-1, 20)
	if pause > p.cfg.RetryMax || pause <= 0 {
		pause = p.cfg.RetryMax
	}
	// Half fixed, half random: many persisters must not come back to a database at one moment.
	return pause/2 + rand.N(pause/2+1)
}

// sleep says whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// outlive gives a context that ends grace after ctx does.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	var mu sync.Mutex
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		timer = time.AfterFunc(grace, cancel)
	})
	return out, func() {
		stop()
		mu.Lock()
		if timer != nil {
			timer.Stop()
		}
		mu.Unlock()
		cancel()
	}
}
