package persister

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// pipeline is the work on one queue. Its run goroutine owns size; status is shared.
type pipeline struct {
	cfg   *Config
	queue Queue
	size  int // rows of the next transaction; halved by a failure, doubled by a success

	mu     sync.Mutex
	status Status
}

// item is what is in one message on its way.
type item struct {
	chunk Chunk
	bad   []DeadLetter
}

func (p *pipeline) run(ctx context.Context) {
	limit := Limit{Messages: p.cfg.BatchEvents, Bytes: p.cfg.BatchBytes}
	for attempt := 0; ctx.Err() == nil; {
		msgs, err := p.queue.Fetch(ctx, limit)
		if err != nil && ctx.Err() == nil {
			p.failed(ctx, "fetch", err, &attempt)
			continue
		}
		if err == nil {
			attempt = 0
			p.recovered()
		}
		if len(msgs) == 0 {
			continue
		}
		fetched := time.Now()
		if full := p.persist(ctx, msgs); !full && !p.linger(ctx, fetched) {
			p.last(ctx, limit)
		}
	}
}

// linger lets the next batch grow: a transaction, and each run's row in it, cost the same for one
// event and for many. Nothing is held meanwhile; what comes waits in the log. It says whether ctx
// goes on.
func (p *pipeline) linger(ctx context.Context, since time.Time) bool {
	pause := p.cfg.Linger - time.Since(since)
	if pause <= 0 {
		return true
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// last stores the batch that was growing when Run was told to stop.
func (p *pipeline) last(ctx context.Context, limit Limit) {
	work, cancel := outlive(ctx, p.cfg.Grace)
	defer cancel()
	limit.NoWait = true
	msgs, err := p.queue.Fetch(work, limit)
	if err != nil { // it stays in the log, unconfirmed
		p.cfg.Logger.Debug("persister: last fetch", "error", err)
	}
	if len(msgs) > 0 {
		p.persist(ctx, msgs)
	}
}

// persist stores and confirms a fetched batch, in as many transactions as needed. It returns when
// all is done or, after ctx has ended, when the attempt under way has failed. It says whether the
// batch was large: then more may be waiting.
func (p *pipeline) persist(ctx context.Context, msgs []Message) (full bool) {
	work, cancel := outlive(ctx, p.cfg.Grace)
	defer cancel()
	p.update(func(s *Status) { s.Stream = msgs[0].Stream })
	items := make([]item, len(msgs))
	rows, size := 0, 0
	for i := range msgs {
		items[i].chunk, items[i].bad = sift(&msgs[i])
		rows += len(items[i].chunk.Rows)
		size += len(msgs[i].Body)
	}
	// A queue counts bytes in its own way and may stop short of the bounds.
	full = rows >= p.cfg.BatchEvents/2 || len(msgs) >= p.cfg.BatchEvents/2 || size >= p.cfg.BatchBytes/2
	for attempt := 0; len(items) > 0; {
		if ctx.Err() != nil && work.Err() != nil {
			p.release(msgs)
			return full
		}
		n := p.take(items)
		if err := p.commit(work, msgs[:n], items[:n]); err != nil {
			if ctx.Err() != nil { // told to stop: no second attempt
				p.release(msgs)
				return full
			}
			p.size = max(1, p.size/2)
			p.failed(ctx, "store", err, &attempt)
			continue
		}
		attempt = 0
		p.recovered()
		p.size = min(p.cfg.BatchEvents, p.size*2)
		msgs, items = msgs[n:], items[n:]
	}
	return full
}

// take says how many messages the next transaction gets: at least one.
func (p *pipeline) take(items []item) int {
	n, rows := 0, 0
	for n < len(items) {
		rows += len(items[n].chunk.Rows) + len(items[n].bad)
		if n > 0 && rows > p.size {
			break
		}
		n++
	}
	return n
}

// commit stores the messages' rows, keeps their dead letters, and only then confirms them.
func (p *pipeline) commit(work context.Context, msgs []Message, items []item) error {
	ctx, cancel := context.WithTimeout(work, p.cfg.Attempt)
	defer cancel()
	start := p.cfg.Now()
	chunks := make([]Chunk, 0, len(items))
	var letters []DeadLetter
	for i := range items {
		letters = append(letters, items[i].bad...)
		if len(items[i].chunk.Rows) > 0 {
			chunks = append(chunks, items[i].chunk)
		}
	}
	var done Stored
	if len(chunks) > 0 {
		refused, err := p.append(ctx, chunks, &done)
		if err != nil {
			return err
		}
		letters = append(letters, refused...)
	}
	if len(letters) > 0 {
		if err := p.cfg.Store.Bury(ctx, letters); err != nil {
			return err
		}
	}
	done.Messages, done.Took = len(items), p.cfg.Now().Sub(start)
	p.kept(done, letters)
	p.ack(work, msgs)
	return nil
}

// append stores the chunks. When the store refuses the data it divides them until the one row is
// found, and gives the rows that must be set aside.
func (p *pipeline) append(ctx context.Context, chunks []Chunk, done *Stored) ([]DeadLetter, error) {
	res, err := p.cfg.Store.Append(ctx, chunks)
	if err == nil {
		done.Inserted += res.Inserted
		done.Repeated += res.Repeated
		letters := make([]DeadLetter, len(res.Conflicts))
		for i, c := range res.Conflicts {
			letters[i] = chunks[c.Chunk].letter(c.Row, ReasonConflict, errConflict)
		}
		return letters, nil
	}
	if !errors.Is(err, ErrPoison) {
		return nil, err
	}
	var first, second []Chunk
	switch rows := chunks[0].Rows; {
	case len(chunks) > 1:
		first, second = chunks[:len(chunks)/2], chunks[len(chunks)/2:]
	case len(rows) > 1:
		a, b := chunks[0], chunks[0]
		a.Rows, b.Rows = rows[:len(rows)/2], rows[len(rows)/2:]
		first, second = []Chunk{a}, []Chunk{b}
	default:
		return []DeadLetter{chunks[0].letter(0, ReasonRefused, err)}, nil
	}
	letters, err := p.append(ctx, first, done)
	if err != nil {
		return nil, err
	}
	more, err := p.append(ctx, second, done)
	return append(letters, more...), err
}

var errConflict = errors.New("another content is stored at this run and seq")

// ack confirms what is committed. A confirmation that is lost is no failure: the messages come
// again, and find their rows.
func (p *pipeline) ack(work context.Context, msgs []Message) {
	ctx, cancel := context.WithTimeout(work, p.cfg.Grace)
	defer cancel()
	if err := p.queue.Ack(ctx, msgs); err != nil {
		p.cfg.Logger.Warn("persister: committed messages were not confirmed and will come again",
			"stream", msgs[0].Stream, "messages", len(msgs), "error", err)
	}
}

// release gives back what was fetched but not committed. The context is the clean-up's own: the one
// of Run has ended.
func (p *pipeline) release(msgs []Message) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if err := p.queue.Release(ctx, msgs); err != nil {
		p.cfg.Logger.Warn("persister: messages were not released and come again after their time",
			"stream", msgs[0].Stream, "messages", len(msgs), "error", err)
	}
}

// releaseWait bounds the clean-up at shutdown.
const releaseWait = 2 * time.Second

// failed counts a failed attempt and waits, at most until ctx ends.
func (p *pipeline) failed(ctx context.Context, doing string, err error, attempt *int) {
	pause := p.cfg.RetryMin << min(*attempt, 20)
	if pause > p.cfg.RetryMax || pause <= 0 {
		pause = p.cfg.RetryMax
	}
	// Half fixed, half random: many persisters must not come back to a database at one moment.
	pause = pause/2 + rand.N(pause/2+1)
	*attempt++
	var since time.Time
	var stream string
	p.update(func(s *Status) {
		if s.RetryingSince.IsZero() {
			s.RetryingSince = p.cfg.Now()
		}
		s.LastError = doing + ": " + err.Error()
		since, stream = s.RetryingSince, s.Stream
	})
	level := slog.LevelWarn
	if *attempt > 1 {
		level = slog.LevelDebug // once per outage is enough; Hooks count the rest
	}
	p.cfg.Logger.Log(ctx, level, "persister: attempt failed, trying again",
		"doing", doing, "stream", stream, "attempt", *attempt, "pause", pause, "error", err)
	if h := p.cfg.Hooks.Retrying; h != nil {
		h(stream, err, since, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
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
