package persister

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"agentstream/internal/backoff"
)

// pipeline is the work on one queue. It runs one session after the other. Each begins at the stored offset, and ends
// when a step fails so that the messages must be read again.
//
//	queue ─▶ fetch, decode ─▶ store: rows and offset
//
// While a batch is stored the next one is fetched and decoded. Batches keep their order.
type pipeline struct {
	cfg    *Config
	queue  Queue
	share  *share
	bytes  int // most bytes of one fetch
	size   *sizer
	budget *memoryBudget // memory of what this session has fetched

	begun time.Time     // what phase counts from
	phase time.Duration // when in each Config.Linger this pipeline fetches

	mu       sync.Mutex
	status   Status
	troubles [steps]trouble
	offset   Offset // as this process last moved or read it
	// position of the newest message that the log dropped before it was read; 0: none that is not recorded
	dropped uint64
	perPack float64 // events per message, of late; 0: none was seen
	alarm   alarm

	waited    time.Duration // Result.Waited of the batch that is being stored; used by the storing step alone
	reports   reports
	unknown   bool // the last read of the lag failed; used by watchLag alone
	overtaken int  // number of sessions in a row that ended with ErrOvertaken; used by run alone

	perMessage, perByte float64 // bytes held for a message, and for a byte of its body, in the last batch
}

// steps that can fail.
const (
	fetching = iota
	storing
	steps
)

var stepNames = [steps]string{"fetch", "store"}

// decodedMessage is one message as the pipeline has decoded it.
type decodedMessage struct {
	chunk Chunk
	bad   []DeadLetter
	bytes int // approximate memory of it
}

// fetchedBatch is what one fetch returned.
type fetchedBatch struct {
	msgs  []Message
	items []decodedMessage
	full  bool // the fetch returned as many messages as it may: more may be waiting
}

func newPipeline(cfg *Config, i int, s *share) *pipeline {
	q := cfg.Queues[i]
	part := max(1, cfg.HeldBytes/len(cfg.Queues))
	return &pipeline{
		begun: time.Now(), phase: cfg.Linger * time.Duration(i) / time.Duration(len(cfg.Queues)),
		perMessage: 2 * messageBytes, perByte: 2,
		cfg: cfg, queue: q, share: s, size: newSizer(cfg), status: Status{Stream: q.Stream()},
		bytes:  max(1, min(cfg.BatchBytes, part/2)), // one batch is stored, one waits
		budget: newRoom(part),
	}
}

// run runs sessions until ctx ends. It returns when all that was fetched is stored or released.
func (p *pipeline) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !p.isOurs() { // failures of this partition are reported by another process now
			p.overtaken = 0
			p.clearTrouble(fetching)
			p.clearTrouble(storing)
		}
		turn, end, err := p.share.turn(ctx, p.queue.Stream())
		if err != nil {
			return
		}
		err = p.session(ctx, turn)
		switch {
		case err == nil || ctx.Err() != nil || turn.Err() != nil || errors.Is(err, errDropped):
		case errors.Is(err, ErrOvertaken):
			p.cfg.Logger.Debug(p.cfg.Role+": overtaken", "stream", p.queue.Stream())
			p.overtaken++
			_ = backoff.Sleep(turn, p.backOff(p.overtaken))
		case errors.As(err, new(storeError)):
			_ = backoff.Sleep(turn, p.countFailure(ctx, storing, err))
		default:
			_ = backoff.Sleep(turn, p.countFailure(ctx, fetching, err))
		}
		end()
	}
}

// session moves messages until ctx or turn ends, or a step fails. When ctx ends it stores what has been fetched, within
// Config.Grace.
func (p *pipeline) session(ctx, turn context.Context) error {
	if err := p.findOffset(turn); err != nil {
		return err
	}
	work, cancel := outlive(ctx, p.cfg.Grace)
	defer cancel()
	reading, stop := context.WithCancel(turn)
	defer stop()
	s := &fetchSession{p: p, fetched: make(chan *fetchedBatch)}
	var fetchErr error
	var fetcher sync.WaitGroup
	fetcher.Go(func() {
		defer close(s.fetched)
		fetchErr = s.fetch(ctx, reading, work)
	})
	err := s.store(ctx, turn, work)
	stop()
	for range s.fetched { // the next session reads it again from the stored offset
	}
	fetcher.Wait()
	p.budget.clear()
	return errors.Join(err, fetchErr)
}

// storeError is the error of a session that ended because of the store.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// findOffset finds the offset to continue from. It stores the offset when it is not the stored one: the first
// time, when the stream was created again, and when the stream is behind.
func (p *pipeline) findOffset(ctx context.Context) error {
	found, err := p.share.readOffset(ctx, p.queue.Stream())
	if err != nil {
		return storeError{err}
	}
	if ctx.Err() != nil { // the offsets just read show that another process stores it
		return ctx.Err()
	}
	if p.share.isOthers(found) { // a small transaction fits between two large ones
		p.size.small()
	}
	stored := found.Offset
	at, err := p.queue.Seek(ctx, stored)
	behind := errors.Is(err, ErrBehind) && p.cfg.Refill != nil
	if behind {
		p.cfg.Logger.Warn(p.cfg.Role+": the log lacks what is stored of it; it is written back",
			"stream", stored.Stream, "stored", stored.Position, "error", err)
		at, err = p.cfg.Refill.Refill(ctx, stored)
	}
	if err != nil {
		return err
	}
	at.Generation = stored.Generation
	if stored.Identity != "" && (behind || !at.Same(stored)) { // a refilled log may end where it ended before
		at.Generation++ // heads of the log that were read before are not valid any more
	}
	t, err := p.lose(ctx, stored, at)
	if err != nil {
		return storeError{err}
	}
	if behind || !t.To.Same(stored) {
		if _, err := p.attempt(ctx, &t); err != nil {
			return storeError{err}
		}
	}
	if behind {
		p.cfg.Logger.Warn(p.cfg.Role+": the log is whole again", "stream", at.Stream, "from", at.Position)
	}
	if behind || t.To.Position != at.Position {
		if at, err = p.queue.Seek(ctx, t.To); err != nil {
			return err
		}
	}
	p.setOffset(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = 0
	return nil
}

// backOff returns the pause after the n-th failed attempt in a row.
func (p *pipeline) backOff(n int) time.Duration {
	pause := p.cfg.RetryMin << min(n-1, 20)
	if pause > p.cfg.RetryMax || pause <= 0 {
		pause = p.cfg.RetryMax
	}
	// Half fixed, half random: many persisters must not come back to a database at the same moment.
	return pause/2 + rand.N(pause/2+1)
}

// outlive returns a context that ends grace after ctx does.
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
