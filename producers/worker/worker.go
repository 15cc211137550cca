package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// Answer writes the answer to one message, or to an outcome that is to be reached, in its turn. It returns when all
// is written, with the stop reason of the turn ("" is end_turn), or with an error, which fails the turn and not the
// session. When the turn's context ends (Task.Turn) it stops and returns; what it has open then is ended for
// it. It may be asked for many sessions at the same time.
type Answer func(ctx context.Context, q *Task) (stop string, err error)

// Config is what a Worker needs. Log and Answer are required.
type Config struct {
	Log    producers.Log
	Answer Answer
	Waker  command.Waker // of commands; see command.Config
	// Attend lets a publisher answer that its process is there, and Ask asks whether another one's is; both of
	// natsjs.RefillLog. nil: no owner is asked, and a reaper ends silent turns.
	Attend func(context.Context, *producers.Publisher) (leave func(), err error)
	Ask    func(ctx context.Context, key schema.RunKey, owner string) (bool, error)
	// Archive and Past hold what the log no longer holds; see producers.Config and command.Config.
	Archive producers.Archive
	Past    producers.Past
	// Serves reports by its first event whether a run is answered. nil: those that begin with session.created.
	Serves func(key schema.RunKey, first *schema.Event) bool
	// Outcome reports by its payload whether a redirect is an outcome to reach, which is answered like a message. nil:
	// none is.
	Outcome func(payload []byte) bool
	// Alone reports by its payload whether a message asks for a turn of its own, so that a turn under way may not deal
	// with it. nil: none does.
	Alone func(payload []byte) bool
	// Remote has the Answer wait for somebody who writes the answer into the log elsewhere, by appends for Task.Lease
	// (producers.AppendOptions.Owner), and ends the turn there in one pack with commands.taken. The Answer hands the
	// task over and returns when its context ends, which is after the turn's end, or with ErrGone. Cancellations come
	// by Task.Told, too.
	Remote bool
	// Reasons are those of runs that are answered once and cannot be answered to the end.
	Reasons producers.Reasons

	Idle   time.Duration // how long a session keeps its place without a message; default 1 min
	Most   int           // sessions that have a place at a time; default 256
	Redact *redact.File  // see producers.Config
	Seal   *seal.Keys    // see producers.Config
	Logger *slog.Logger
	Hooks  producers.Hooks // of the publishers
}

func (c Config) withDefaults() Config {
	c.Idle = cmp.Or(c.Idle, time.Minute)
	c.Most = cmp.Or(c.Most, 256)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	none := func([]byte) bool { return false }
	if c.Outcome == nil {
		c.Outcome = none
	}
	if c.Alone == nil {
		c.Alone = none
	}
	if c.Serves == nil {
		c.Serves = func(_ schema.RunKey, first *schema.Event) bool { return first.Type == schema.TypeSessionCreated }
	}
	return c
}

// Worker answers sessions.
type Worker struct {
	cfg  Config
	news chan struct{} // holds a token when a session waits, or a place is free

	mu      sync.Mutex
	visits  map[schema.RunKey]*lease // that wait or have a place
	waiting []*lease                 // without a place, as they came
	busy    int                      // places that are taken
	others  map[schema.RunKey]bool   // runs that are not served
}

// maxOthers bounds how many runs are remembered not to be served.
const maxOthers = 1 << 14

// New returns a worker, or an error about the configuration. It starts nothing.
func New(cfg Config) (*Worker, error) {
	switch {
	case cfg.Log == nil || cfg.Answer == nil:
		return nil, errors.New("worker: config: log and answer are needed")
	case cfg.Idle < 0 || cfg.Most < 0:
		return nil, fmt.Errorf("worker: config: idle %v, most %d", cfg.Idle, cfg.Most)
	}
	return &Worker{cfg: cfg.withDefaults(), news: make(chan struct{}, 1), visits: make(map[schema.RunKey]*lease),
		others: make(map[schema.RunKey]bool)}, nil
}

// What a pack must hold to matter: a message, an answer, or a redirect that is an outcome to reach. Text in payloads
// has its quotes escaped.
var (
	typeMessage  = []byte(`"type":"` + schema.TypeCommandMessage + `"`)
	typeAnswer   = []byte(`"type":"` + commandAnswer + `"`)
	typeRedirect = []byte(`"type":"` + commandRedirect + `"`)
)

// isRelevant reports whether something in a pack may have to be answered.
func (d *Worker) isRelevant(p *schema.Pack) bool {
	switch {
	case bytes.Contains(p.Body, typeMessage), bytes.Contains(p.Body, typeAnswer):
		return true
	case !bytes.Contains(p.Body, typeRedirect):
		return false
	}
	for r, err := range p.Records(0) {
		if err != nil {
			return true // whoever opens the session finds out
		}
		if string(r.Type) == commandRedirect && d.cfg.Outcome(r.Payload()) {
			return true
		}
	}
	return false
}

// Receive receives a pack that was stored. done is called at most once, from any goroutine, when whatever message is in
// it is settled in the log: answered, cancelled, or taken by another worker. It is not called when that could not be
// found out, or when the worker ended before: then pass the pack again, after a while. What is passed again is answered
// once, and the last done is the one that counts.
func (d *Worker) Receive(p schema.Pack, done func()) {
	if p.Child != "" || !d.isRelevant(&p) {
		done()
		return
	}
	d.mu.Lock()
	if d.others[p.Key] {
		d.mu.Unlock()
		done()
		return
	}
	v := d.visits[p.Key]
	if v == nil {
		v = newLease(d, p.Key)
		d.visits[p.Key] = v
		d.waiting = append(d.waiting, v)
	}
	v.hear(receiveCall{seq: p.Last(), done: done})
	d.mu.Unlock()
	d.wake()
}

// hear notes a call. One that comes again takes the place of the first, which is not waited for any more. Called
// with the worker's lock held.
func (v *lease) hear(c receiveCall) {
	for i := range v.pending {
		if v.pending[i].seq == c.seq {
			v.pending[i] = c
			return
		}
	}
	v.pending = append(v.pending, c)
	v.news = true
}

// SetMost changes how many sessions have a place at a time (Config.Most), 0 to give none out. Those that have one
// keep it.
func (d *Worker) SetMost(most int) {
	d.mu.Lock()
	d.cfg.Most = most
	d.mu.Unlock()
	d.wake()
}

func (d *Worker) wake() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// Run answers until ctx ends. Turns that are under way then stay open in the log, as if the process had been killed:
// an end that is written here would be taken for the agent's own. The worker that opens the session next ends them and
// answers their messages, or a reaper ends the run. An outage of the log is waited for.
func (d *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		for v := d.next(); v != nil; v = d.next() {
			group.Go(func() {
				v.run(ctx)
				d.wake()
			})
		}
		select {
		case <-d.news:
		case <-ctx.Done():
			return nil
		}
	}
}

// next returns a place to the session that waits longest. Without a free one, a session without messages
// is asked to give up its own.
func (d *Worker) next() *lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		return nil
	}
	if d.busy < d.cfg.Most {
		v := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.busy++
		return v
	}
	for _, v := range d.visits {
		if v.idle && len(v.pending) == 0 {
			v.idle = false
			close(v.hurry)
			break
		}
	}
	return nil
}

// pass leaves a run that is not served, and remembers it where it is one.
func (v *lease) pass(remember bool) {
	d := v.d
	d.mu.Lock()
	defer d.mu.Unlock()
	v.news = false
	if !remember {
		return
	}
	if len(d.others) >= maxOthers {
		clear(d.others)
	}
	d.others[v.key] = true
}
