package workers

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"agentstream/producers/command"
	"agentstream/producers/worker"
)

// pool is the worker of a tenant, with those who answer.
type pool struct {
	of     *Workers
	tenant string

	worker *worker.Worker
	cancel context.CancelFunc
	ran    sync.WaitGroup

	// Guarded by the mutex of Workers.
	seats  []*Seat
	places int           // of all seats that take tasks
	free   chan struct{} // closed when a place may have become free
	last   map[string]*Seat
}

// maxLast bounds of how many sessions it is known who has answered last.
const maxLast = 4096

func newPool(w *Workers, tenant string) *pool {
	return &pool{of: w, tenant: tenant, free: make(chan struct{}), last: make(map[string]*Seat)}
}

// start begins to follow the log.
func (p *pool) start() (err error) {
	cfg := p.of.cfg.Worker
	cfg.Answer, cfg.Remote = p.answer, true
	if p.worker, err = worker.New(cfg); err != nil {
		return err
	}
	p.worker.SetMost(0)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	for _, run := range []func() error{
		func() error { return p.worker.Run(ctx) },
		func() error { return p.of.cfg.Follow(ctx, p.tenant, p.worker.Receive) },
	} {
		p.ran.Go(func() {
			if err := run(); err != nil {
				p.of.cfg.Logger.Error("workers: sessions are not answered", "tenant", p.tenant, "err", err)
			}
		})
	}
	return nil
}

func (p *pool) stop() {
	p.cancel()
	p.ran.Wait()
}

// resize changes how many places there are. It needs the mutex.
func (p *pool) resize(by int) {
	p.places += by
	p.worker.SetMost(p.places)
	close(p.free)
	p.free = make(chan struct{})
}

// remove takes a seat away. It needs the mutex.
func (p *pool) remove(s *Seat) {
	s.retire()
	close(s.gone)
	p.seats = slices.DeleteFunc(p.seats, func(o *Seat) bool { return o == s })
	for run, by := range p.last {
		if by == s {
			delete(p.last, run)
		}
	}
}

// answer hands a task to a seat, and what is told meanwhile. It returns when the task is over.
func (p *pool) answer(ctx context.Context, q *worker.Task) (string, error) {
	run := q.Message.Event.RunID
	s, err := p.reserve(ctx, run)
	if err != nil {
		return "", err
	}
	defer p.release(s, run)
	s.send("task", taskOf(q))
	for {
		select {
		case c := <-q.Told:
			s.send("command", told{q.Lease, q.Turn.ID(), c.Event.AppendLine(nil)})
		case <-s.gone:
			return "", worker.ErrGone
		case <-ctx.Done():
			s.send("end", over{q.Lease, q.Turn.ID()})
			return "", context.Cause(ctx)
		}
	}
}

// reserve waits for a free place, of the seat that has answered the session last if it has one.
func (p *pool) reserve(ctx context.Context, run string) (*Seat, error) {
	for {
		p.of.mu.Lock()
		s := p.last[run]
		if s == nil || !s.isFree() {
			s = p.emptiest()
		}
		if s != nil {
			s.tasks++
			p.of.mu.Unlock()
			return s, nil
		}
		free := p.free
		p.of.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// emptiest returns the seat with most free places, nil without any. It needs the mutex.
func (p *pool) emptiest() (most *Seat) {
	for _, s := range p.seats {
		if s.isFree() && (most == nil || s.places-s.tasks > most.places-most.tasks) {
			most = s
		}
	}
	return most
}

func (p *pool) release(s *Seat, run string) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	s.tasks--
	s.note()
	if len(p.last) >= maxLast {
		clear(p.last)
	}
	select {
	case <-s.gone:
	default:
		p.last[run] = s
	}
	close(p.free)
	p.free = make(chan struct{})
}

// task is what an agent is asked to answer.
type task struct {
	Lease       string            `json:"lease"`
	Run         string            `json:"run_id"`
	Turn        string            `json:"turn_id"`
	Once        bool              `json:"once,omitempty"`
	Redelivered bool              `json:"redelivered,omitempty"`
	Session     json.RawMessage   `json:"session,omitempty"`
	Events      []json.RawMessage `json:"events"`
}

func taskOf(q *worker.Task) task {
	t := task{Lease: q.Lease, Run: q.Message.Event.RunID, Turn: q.Turn.ID(), Once: q.Once, Session: q.Session}
	t.Redelivered = q.Message.Redelivered
	list := q.Answers
	if len(list) == 0 {
		list = []*command.Command{q.Message}
	}
	for _, c := range list {
		t.Events = append(t.Events, c.Event.AppendLine(nil))
	}
	return t
}

// told is what was sent to a session while it is answered.
type told struct {
	Lease string          `json:"lease"`
	Turn  string          `json:"turn_id"`
	Event json.RawMessage `json:"event"`
}

// over reports that a task has ended. The lease may go on with another one.
type over struct {
	Lease string `json:"lease"`
	Turn  string `json:"turn_id"`
}
