package command

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// Waker notifies a reader of a run of what is being stored in it, so that it need not poll.
type Waker interface {
	// Watch calls fn with packs of the run as they are stored, one after the other, until stop is called;
	// a last call may be under way then. Copies may be lost or come twice: a reader looks at their numbers.
	Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (stop func(), err error)
}

// Config is what a Reader needs. Publisher is required, and must not be Shared.
type Config struct {
	// Publisher is the agent's own. Commands of the lanes that it owns are handed over; its log is read.
	Publisher *producers.Publisher
	// Waker saves asking the log. nil: the log is asked every Poll.
	Waker Waker
	// Past is asked for the beginning of a run that is older than the log's window. nil: commands that
	// no writer has taken in all that time are passed over, which is logged.
	Past producers.Past
	// Lanes reports whether the agent serves a lane, "" being the run itself. It is asked once for each, when
	// the lane is first seen, so an agent must know a child before its first event. nil: the run itself
	// and none of its children. Reader takes the lanes over that have commands for it: never name one
	// that another process serves. It must not call Reader.
	Lanes func(lane string) bool
	// Seen is called with each record of the run's own lane, in order and once, as soon as the reader knows of it. It
	// must not block, keep the record or call Reader. nil: nobody looks.
	Seen func(schema.Record)
	// Poll is how long the log is not asked while nothing is received; default 5 s, without a Waker 250 ms.
	Poll time.Duration
}

// ErrTaken reports that a command was taken before: what the agent was about to do has been done.
var ErrTaken = errors.New("command was taken already")

// Reader hands the commands of a run to its agent: cancel, pause, resume, redirect, decisions on plans,
// answers and messages, as they are appended, in order, to one writer of a lane at a time.
//
//	log ─▶ first read, holes ─▶ ┌──────────┐
//	log ─▶ copies of the Waker ▶│ commands │─▶ Next ─▶ the agent ─▶ Done: effects and commands.taken,
//	                            │ that wait│                        in one pack of the agent's Publisher
//	                            └──────────┘
//
// A command is handed over once to each writer, and not at all when an earlier writer has taken it
// ([Command.Commit]). Before the first one of a lane is handed over, the lane is the Publisher's: where the
// agent has not written to it yet, Reader writes commands.taken with what is taken already, and reads on
// after it. So whatever a former writer takes after that is refused (producers.ErrFenced), and what it has taken
// before is known. After a crash a command that was handed over and not taken is handed to the next writer,
// marked Redelivered.
//
// A final state settles the commands before it, except messages: whoever wrote one waits for an
// answer. In a final state nothing is handed over of a lane that the Publisher does not own yet: a writer
// that comes back to a run that is over has nothing to do until the run goes on.
//
// Cost: one subscription for a run with a live agent, whose copies are those of everything in the run, the
// agent's own too; one read of the whole run at the beginning; after that reads of holes alone, and a
// question to the log every Poll. It starts no goroutine; a Waker may call it from one of its own.
//
// A Reader is safe for concurrent use; Next hands over to one caller at a time.
type Reader struct {
	cfg     Config
	pub     *producers.Publisher
	log     producers.Log
	key     schema.RunKey
	retried func(error)   // Hooks.Retry of the Publisher; nil: none
	turn    chan struct{} // holds a token while Next is under way
	news    chan struct{} // holds a token when something has changed
	tries   int           // reads that have failed in a row; of whose turn it is
	readAt  time.Time     // when the log was read last; the same
	asked   bool          // Past was asked for a run that the log has nothing of; the same

	mu     sync.Mutex
	stop   func() // of the Waker; nil: it is not watched
	deaf   bool   // the Waker has failed; it is tried again after Poll
	closed bool
	view   commandView
}

// New returns a reader, or an error about the configuration. It reads nothing; the first Next does.
func New(cfg Config) (*Reader, error) {
	switch {
	case cfg.Publisher == nil:
		return nil, errors.New("producers: commands config: no publisher")
	case cfg.Publisher.Config().Shared:
		return nil, errors.New("producers: commands config: a shared publisher owns no lane")
	case cfg.Poll < 0:
		return nil, fmt.Errorf("producers: commands config: poll %v is negative", cfg.Poll)
	}
	if cfg.Poll == 0 {
		cfg.Poll = 5 * time.Second
		if cfg.Waker == nil {
			cfg.Poll = 250 * time.Millisecond
		}
	}
	if cfg.Lanes == nil {
		cfg.Lanes = func(lane string) bool { return lane == "" }
	}
	pub := cfg.Publisher.Config()
	c := &Reader{cfg: cfg, pub: cfg.Publisher, log: pub.Log, key: pub.Key, retried: pub.Hooks.Retry,
		turn: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	c.view = commandView{writer: cfg.Publisher.WriterID(), serves: cfg.Lanes, seen: cfg.Seen,
		lanes: make(map[string]*laneState), behind: true, logger: pub.Logger.With("run", c.key.String())}
	return c, nil
}

// Next waits for the next command. producers.ErrFenced: another writer has taken the lane over, the agent must stop.
// producers.ErrClosed: Close was called, or the Publisher is closed. Otherwise the error is that of ctx, or wraps
// schema.ErrBadPack when the run cannot be read at all: an outage of the log is a wait, not an error.
func (c *Reader) Next(ctx context.Context) (*Command, error) { return c.next(ctx, true) }

// TryNext is Next for an agent that has other things to do: nil and no error when nothing waits, as far as
// is known. It reads only what it knows to be missing.
func (c *Reader) TryNext(ctx context.Context) (*Command, error) { return c.next(ctx, false) }

// Feed hands commands to a channel until ctx ends, for agents that select; it does not close it. Its errors
// are those of Next.
func (c *Reader) Feed(ctx context.Context, to chan<- *Command) error {
	for {
		cmd, err := c.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case to <- cmd:
		case <-ctx.Done():
			return fmt.Errorf("producers: commands of %s: %w", c.key, context.Cause(ctx))
		}
	}
}

// Close ends the watch and every Next. What was handed over can still be taken. Closing twice is harmless.
func (c *Reader) Close() {
	c.mu.Lock()
	stop := c.stop
	c.closed, c.stop = true, nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.wake()
}

// wake makes a Next that waits look again.
func (c *Reader) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *Reader) next(ctx context.Context, wait bool) (cmd *Command, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("producers: commands of %s: %w", c.key, context.Cause(ctx))
	}
	for err == nil {
		var todo step
		if todo, cmd, err = c.step(); err != nil {
			break
		}
		switch todo.do {
		case doReturn:
			return cmd, nil
		case doWatch:
			c.watch(ctx)
		case doRead:
			err = c.read(ctx)
		case doRefill:
			err = c.refill(ctx)
		case doClaim:
			err = c.claim(ctx, todo)
		case doWait:
			if wait {
				err = c.wait(ctx)
			} else if !c.stale() {
				return nil, nil
			}
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	c.passOn()
	return nil, fmt.Errorf("producers: commands of %s: %w", c.key, err)
}

// passOn lets the next caller know what ended this one.
func (c *Reader) passOn() {
	c.mu.Lock()
	over := c.closed || c.view.fenced != nil
	c.mu.Unlock()
	if over {
		c.wake()
	}
}

// step is what Next does next.
type step struct {
	do     int
	lane   string     // to claim
	before schema.Seq // the first command of it that is not taken
}

const (
	doReturn = iota
	doWatch
	doRead
	doRefill
	doClaim
	doWait
)

// step looks at what is known.
func (c *Reader) step() (step, *Command, error) {
	if err := c.pub.Err(); err != nil {
		return step{}, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.view
	switch {
	case c.closed:
		return step{}, nil, producers.ErrClosed
	case v.fenced != nil:
		return step{}, nil, v.fenced
	case c.stop == nil && !c.deaf && c.cfg.Waker != nil:
		return step{do: doWatch}, nil, nil // it begins before the log is read, so that nothing is missed
	case v.behind:
		return step{do: doRead}, nil, nil
	}
	at, l, ok := v.first()
	switch {
	case !ok && v.more.seq != 0 && len(v.queue) == 0:
		return step{do: doRefill}, nil, nil
	case !ok:
		return step{do: doWait}, nil, nil
	case !l.ours:
		return step{do: doClaim, lane: at.lane, before: at.seq}, nil, nil
	}
	v.remove(at.seq)
	return step{do: doReturn}, newCommand(c, at, l), nil
}

// stale reports whether the log has not been asked for Poll, and notes that it has to be.
func (c *Reader) stale() bool {
	if time.Since(c.readAt) < c.cfg.Poll {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.behind, c.deaf = true, false
	return true
}

// wait sleeps until something is received, or Poll is over.
func (c *Reader) wait(ctx context.Context) error {
	poll := time.NewTimer(c.cfg.Poll)
	defer poll.Stop()
	select {
	case <-c.news:
		return nil
	case <-poll.C:
		c.mu.Lock()
		c.view.behind, c.deaf = true, false
		c.mu.Unlock()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
