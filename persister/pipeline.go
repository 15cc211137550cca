package persister

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// pipeline is the work on one queue. It runs one session after the other: each begins at the offset that
// the store has, and ends when a step fails in a way that makes it begin anew.
//
//	queue ─▶ fetch, decode ─▶ store: rows and offset
//
// While a batch is written the next one is fetched and taken apart. Batches keep their order.
type pipeline struct {
	cfg   *Config
	queue Queue
	share *share
	bytes int // of one fetch, at most
	size  *sizer
	room  *room // of what this session has fetched

	mu       sync.Mutex
	status   Status
	troubles [steps]trouble
	offset   Offset  // as this process knows it
	perPack  float64 // events in a message, of late; 0: none was seen
	alarm    alarm

	reports   reports
	unknown   bool // the last question for the lag was not answered; of watchLag alone
	overtaken int  // sessions that ended so, one behind the other; of run alone

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

// batch is what one fetch returned.
type batch struct {
	msgs  []Message
	items []item
	full  bool // the fetch returned all that it might: more may be waiting
}

func newPipeline(cfg *Config, q Queue, s *share) *pipeline {
	part := max(1, cfg.HeldBytes/len(cfg.Queues))
	return &pipeline{
		perMessage: 2 * messageBytes, perByte: 2,
		cfg: cfg, queue: q, share: s, size: newSizer(cfg), status: Status{Stream: q.Stream()},
		bytes: max(1, min(cfg.BatchBytes, part/2)), // one is written, one waits
		room:  newRoom(part),
	}
}

// run returns when all that was fetched is stored or given up.
func (p *pipeline) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !p.ours() { // what fails now is for another process to say
			p.overtaken = 0
			p.recovered(fetching)
			p.recovered(storing)
		}
		turn, end, err := p.share.turn(ctx, p.queue.Stream())
		if err != nil {
			return
		}
		err = p.session(ctx, turn)
		switch {
		case err == nil || ctx.Err() != nil || turn.Err() != nil:
		case errors.Is(err, ErrOvertaken):
			p.cfg.Logger.Debug("persister: overtaken", "stream", p.queue.Stream())
			p.overtaken++
			sleep(turn, p.backOff(p.overtaken))
		case errors.As(err, new(storeError)):
			sleep(turn, p.failed(ctx, storing, err))
		default:
			sleep(turn, p.failed(ctx, fetching, err))
		}
		end()
	}
}

// session moves messages until ctx or turn ends, or a step must begin anew. When ctx ends it stores what has
// been fetched, within Config.Grace.
func (p *pipeline) session(ctx, turn context.Context) error {
	if err := p.begin(turn); err != nil {
		return err
	}
	work, cancel := outlive(ctx, p.cfg.Grace)
	defer cancel()
	reading, stop := context.WithCancel(turn)
	defer stop()
	s := &session{p: p, fetched: make(chan *batch)}
	var fetchErr error
	var fetcher sync.WaitGroup
	fetcher.Go(func() {
		defer close(s.fetched)
		fetchErr = s.fetch(ctx, reading, work)
	})
	err := s.store(ctx, turn, work)
	stop()
	for range s.fetched { // read again from the stored offset, by whoever goes on
	}
	fetcher.Wait()
	p.room.clear()
	return errors.Join(err, fetchErr)
}

// storeError is why a session ended because of the store.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// begin finds where to go on. The store is told when that is another place than it has: at the very first, with
// a stream that was made anew, and with one that is behind.
func (p *pipeline) begin(ctx context.Context) error {
	found, err := p.share.stored(ctx, p.queue.Stream())
	if err != nil {
		return storeError{err}
	}
	if ctx.Err() != nil { // it is another's, as was just read
		return ctx.Err()
	}
	if p.share.others(found) { // a small transaction comes in between two large ones
		p.size.small()
	}
	stored := found.Offset
	at, err := p.queue.Seek(ctx, stored)
	behind := errors.Is(err, ErrBehind) && p.cfg.Refill != nil
	if behind {
		p.cfg.Logger.Warn("persister: the log lacks what is stored of it; it is written back",
			"stream", stored.Stream, "stored", stored.Position, "error", err)
		at, err = p.cfg.Refill.Refill(ctx, stored)
	}
	if err != nil {
		return err
	}
	if behind || !at.Same(stored) { // what was written back may end where the log ended before
		at.Generation = stored.Generation
		if stored.Identity != "" {
			at.Generation++ // who has read a head of the log before must read it again
		}
		if _, err := p.attempt(ctx, &Transfer{From: stored, To: at, Owner: p.share.me}); err != nil {
			return storeError{err}
		}
	}
	if behind {
		p.cfg.Logger.Warn("persister: the log is whole again", "stream", at.Stream, "from", at.Position)
		if at, err = p.queue.Seek(ctx, at); err != nil {
			return err
		}
	}
	p.moved(at)
	return nil
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

// sleep waits, and reports whether ctx goes on.
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
