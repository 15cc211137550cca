package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// lease is a session that waits for a place, or has one: it lives from the first message that is received until
// no message has come for a while.
type lease struct {
	d   *Worker
	key schema.RunKey

	// Guarded by the worker's lock.
	pending []receiveCall // what the worker has received and is not settled yet
	news    bool          // something was received since it was looked at last
	idle    bool          // nothing is to do
	hurry   chan struct{} // closed when another session needs the place

	pub      *producers.Publisher
	commands *command.Reader
	writer   *producers.Run
	told     chan *command.Command // by the goroutine that reads them
	failed   chan error            // why it reads no more
	queue    []*command.Command    // messages and cancellations that wait, in the order of the log
	newest   *command.Command      // of the run's own lane, of those that were handed over and are no messages

	session json.RawMessage // the payload of the run's first event
	once    producers.Once
	sink    *watched // of a run that is answered once; else nil

	elsewhere remoteTurn // where answers are written elsewhere

	lanes sync.Map // ids of the children that belong to the turn: see Task.Spawn
	asked sync.Map // ids of requests whose turn does not wait for them: see Task.Interrupt
}

// receiveCall is one call of Receive.
type receiveCall struct {
	seq  schema.Seq
	done func()
}

// maxQueue bounds the messages of a session that are kept while it answers another one. The rest stays in the
// log until there is room; so do cancellations after it.
const maxQueue = 256

func newLease(d *Worker, key schema.RunKey) *lease {
	return &lease{d: d, key: key, hurry: make(chan struct{}), told: make(chan *command.Command),
		failed: make(chan error, 1)}
}

// settle calls done for what was received up to a seq.
func (v *lease) settle(through schema.Seq) {
	v.d.mu.Lock()
	var out, kept []receiveCall
	for _, c := range v.pending {
		if c.seq <= through {
			out = append(out, c)
		} else {
			kept = append(kept, c)
		}
	}
	if v.pending = kept; len(kept) == 0 {
		v.news = false
	}
	v.d.mu.Unlock()
	for _, c := range out {
		c.done()
	}
}

// errLeftAlone reports that another worker answers the session.
var errLeftAlone = errors.New("another process answers it")

// run has the place.
func (v *lease) run(ctx context.Context) {
	err := v.serve(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errLeftAlone), errors.Is(err, producers.ErrFenced), errors.Is(err, ErrGone):
		v.d.cfg.Logger.Debug("worker: a session is left to another process", "run", v.key.String(), "err", err)
	case errors.Is(err, schema.ErrBadPack):
		v.d.cfg.Logger.Error("worker: a session cannot be read; what was said in it is not answered", "run",
			v.key.String(), "err", err)
		err = nil // trying again does not cure it
	default:
		v.d.cfg.Logger.Warn("worker: a session cannot be answered; it is tried again", "run", v.key.String(), "err", err)
	}
	v.leave(err)
}

// leave frees the slot, when all that the lease used is closed. What was received and not settled in a whole
// silence is settled. What was received at the last moment opens the session again. After an error it is
// delivered again by its follower.
func (v *lease) leave(err error) {
	v.d.mu.Lock()
	v.d.busy--
	delete(v.d.visits, v.key)
	out := v.pending
	switch {
	case err != nil:
		out = nil
	case v.news:
		again := newLease(v.d, v.key)
		again.pending, again.news, out = v.pending, true, nil
		v.d.visits[v.key] = again
		v.d.waiting = append(v.d.waiting, again)
	}
	v.d.mu.Unlock()
	for _, c := range out {
		c.done()
	}
}

// serve opens the session, answers messages and returns nil after a silence.
func (v *lease) serve(ctx context.Context) error {
	first, err := v.first(ctx)
	if err != nil {
		return err
	}
	if first == nil || first.Seq != 1 || !v.d.cfg.Serves(v.key, first) {
		v.pass(first != nil)
		return nil
	}
	if v.pub, err = producers.New(producers.Config{Log: v.d.cfg.Log, Key: v.key, Archive: v.d.cfg.Archive,
		Redact: v.d.cfg.Redact, Seal: v.d.cfg.Seal, Logger: v.d.cfg.Logger, Hooks: v.d.cfg.Hooks}); err != nil {
		return err
	}
	defer v.closePub(ctx)
	if v.d.cfg.Attend != nil {
		leave, err := v.d.cfg.Attend(ctx, v.pub)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := v.own(ctx, first); errors.Is(err, schema.ErrEnded) {
		v.pass(false) // the messages were settled by the end of the run
		return nil
	} else if err != nil {
		return err
	}
	v.session, v.once = first.Payload, producers.ReadOnce(first)
	if v.once.Once {
		v.sink = &watched{Sink: v.pub}
	}
	reading := command.Config{Publisher: v.pub, Waker: v.d.cfg.Waker, Past: v.d.cfg.Past, Lanes: v.isOurs}
	if v.d.cfg.Remote {
		reading.Seen, v.elsewhere.sink = v.elsewhere.see, v.sink
	}
	v.commands, err = command.New(reading)
	if err != nil {
		return err
	}
	defer v.commands.Close()
	if err = v.open(ctx); err == nil {
		err = v.listen(ctx)
	}
	if errors.Is(err, errOver) {
		err = nil // its messages are settled by the end of the run
	}
	return err
}

// isOurs reports whether a lane's commands are for us.
func (v *lease) isOurs(lane string) bool {
	_, child := v.lanes.Load(lane)
	return lane == "" || child
}

// closeLimit bounds the wait for the last events of a session, when its worker ends.
const closeLimit = 5 * time.Second

func (v *lease) closePub(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := v.pub.Close(ctx); err != nil && !errors.Is(err, producers.ErrFenced) {
		v.d.cfg.Logger.Warn("worker: the last events of a session may be lost", "run", v.key.String(), "err", err)
	}
}

// first returns the first event of the run, which shows what the run is; nil when there is no such run any more.
func (v *lease) first(ctx context.Context) (*schema.Event, error) {
	w := producers.Walk{Log: v.d.cfg.Log, Past: v.d.cfg.Past, Key: v.key}
	for p, err := range w.Packs(ctx) {
		if err != nil {
			return nil, fmt.Errorf("read the first event: %w", err)
		}
		if p.First > 1 && v.d.cfg.Past != nil {
			break // it is not kept any more
		}
		return firstOf(&p)
	}
	return nil, nil
}

func firstOf(p *schema.Pack) (*schema.Event, error) {
	for r, err := range p.Records(0) {
		if err != nil {
			return nil, fmt.Errorf("read the first event: %w", err)
		}
		e, err := r.Event()
		if err != nil {
			return nil, fmt.Errorf("read the first event: %w: %w", schema.ErrBadPack, err)
		}
		return &e, nil
	}
	return nil, nil
}

// ownTries bounds how often the session is asked for, while others write into it.
const ownTries = 20

// own makes the run ours, unless its owner is there: by an event that must be stored right after those that were
// there when the owner was asked. So of two who come at once one is left. The event records that what was written up to
// the run's first event is taken, which is none, or nothing at all.
func (v *lease) own(ctx context.Context, first *schema.Event) error {
	claim := schema.Event{Type: schema.TypeCommandsTaken, Payload: json.RawMessage(`{"through":1}`)}
	if first.Type == schema.TypeCommandMessage || first.Type == commandRedirect {
		claim = schema.Event{Type: schema.TypeProgress, Payload: json.RawMessage(`{}`)}
	}
	absent := ""
	for range ownTries {
		head, err := v.d.cfg.Log.Head(ctx, v.key, "")
		if err != nil {
			return err
		}
		if owner := head.Lane.Owner; owner != absent && v.d.cfg.Ask != nil {
			there, err := v.d.cfg.Ask(ctx, v.key, owner)
			if err != nil {
				return err
			}
			if there {
				return errLeftAlone
			}
			absent = owner
		}
		if head.HasEvents() {
			claim.Seq = head.Last + 1
		}
		if _, err = v.pub.Append(ctx, claim); !errors.Is(err, schema.ErrSeqMismatch) {
			return err
		}
	}
	return fmt.Errorf("others have written %d times while it was asked for", ownTries)
}

// open takes the messages that are there, and ends what a former life has left open: the run is ours, and nothing more
// is begun by any other writer.
func (v *lease) open(ctx context.Context) error {
	v.d.mu.Lock()
	v.news = false
	early := schema.Seq(0) // newest of what was received before the log is read
	for _, c := range v.pending {
		early = max(early, c.seq)
	}
	v.d.mu.Unlock()
	var there []*command.Command
	for len(there) < maxQueue {
		c, err := v.commands.TryNext(ctx)
		if err != nil {
			return err
		}
		if c == nil {
			break
		}
		there = append(there, c)
	}
	open, last, err := producers.ReadOpen(ctx, v.d.cfg.Log, v.key)
	if err != nil {
		return err
	}
	if err := v.resume(ctx, open, there); err != nil {
		return err
	}
	sink := producers.Sink(v.pub)
	if v.once.Once {
		sink = v.sink
	}
	if v.writer, err = producers.NewRun(producers.RunConfig{Sink: sink, RunID: v.key.Run, Open: open}); err != nil {
		return err
	}
	if v.once.Once {
		if err := v.cut(ctx, open, last); err != nil {
			return err
		}
	}
	if len(v.queue) > 0 {
		return v.writer.Recover(ctx, "the agent began again")
	}
	if early > 0 && v.newest == nil {
		v.settle(early) // all of it was taken before
	}
	return nil
}

// enqueue puts a command where it waits. A cancellation removes what came before it.
func (v *lease) enqueue(c *command.Command) {
	switch {
	case v.isQuestion(c) || v.isResume(c):
		v.queue = append(v.queue, c)
	case isCancel(c):
		v.queue = append(v.queue[:0], c)
	case c.Child == "":
		v.newest = c
	}
}

// Redirects. Config.Outcome says which of them are outcomes to reach.
const (
	commandRedirect = "command." + nameRedirect
	nameRedirect    = "redirect"
)

// isQuestion reports whether a command is to be answered: a message, or an outcome to reach. A message of the
// system (role system) is something to know.
func (v *lease) isQuestion(c *command.Command) bool {
	switch {
	case c.Child != "":
		return false
	case c.Name == nameMessage:
		return !schema.OfSystem(c.Event.Payload)
	}
	return c.Name == nameRedirect && v.d.cfg.Outcome(c.Event.Payload)
}
