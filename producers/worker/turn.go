package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// Task is one message to be answered, an outcome to be reached (a redirect of which Config.Outcome says so), or the
// answers to what an earlier turn has asked by Interrupt.
type Task struct {
	Message *command.Command // the message; the worker takes it. Of an outcome its event has rubric and more
	Run     *producers.Run   // the session's run
	Turn    *producers.Turn  // the open turn, which the worker has begun and ends

	// Answers are what the turn goes on with, in the order of the log; Message is the last of them then. The worker has
	// emitted input.answered for each. Empty: a message is answered.
	Answers []*command.Command

	// Told returns commands that come while the turn is under way, other than cancellations of the turn: answers to what
	// was asked, decisions, pauses, messages, and all that is for children of the turn. The worker takes them, messages
	// only if Take was called for them: else they are answered next. Of those that are not read, the first maxTold are
	// kept. A message that asks for a run of its own is not passed on, nor is one behind it.
	Told <-chan *command.Command

	Lease string // for whom an answer is written elsewhere (Config.Remote); "" otherwise
	Once  bool   // the run ends with this turn, where the answer is written elsewhere

	Session json.RawMessage // the payload of the run's first event: session.created, as a rule

	visit *lease
	took  sync.Map // seqs of the messages that Take was called for
}

// Key returns the session's run.
func (q *Task) Key() schema.RunKey { return q.visit.key }

// Text returns the text of the message, or the description of the outcome.
func (q *Task) Text() string {
	if q.Message.Name == nameRedirect {
		return q.Message.Instruction()
	}
	return q.Message.Text()
}

// Content returns the message as it was written: a string, or a list of blocks. Of an outcome it is its description.
func (q *Task) Content() json.RawMessage {
	if q.Message.Name != nameRedirect {
		return q.Message.Content()
	}
	var f struct {
		Instruction json.RawMessage `json:"instruction"`
	}
	_ = json.Unmarshal(q.Message.Event.Payload, &f) // what does not fit has no content, as of a message
	return f.Instruction
}

// maxTold is how many commands wait for an Answer to read them.
const maxTold = 64

// Spawn is Lane.Spawn of the run itself, for a child that receives commands of its own by Told. It ends in the
// turn. An id of the agent's own must be new in the run.
func (q *Task) Spawn(ctx context.Context, id, prompt, call string, tools ...string) (*producers.Lane, error) {
	if _, known := q.visit.lanes.LoadOrStore(id, true); known {
		return nil, fmt.Errorf("worker: spawn %s: the run knows it already: %w", id, producers.ErrOpen)
	}
	return q.Run.Spawn(ctx, id, prompt, call, tools...)
}

// outcome is how an Answer ended.
type outcome struct {
	stop string
	err  error
}

// answer answers a message, or goes on with answers, of which c is the last: a turn.
func (v *lease) answer(ctx context.Context, c *command.Command, answers ...*command.Command) error {
	if at, why := v.due(); !at.IsZero() && !time.Now().Before(at) {
		return v.over(ctx, producers.Closing{Failed: true, Reason: v.d.cfg.Reasons.TimeoutReason(why)}, c)
	}
	if v.d.cfg.Remote {
		return v.answerElsewhere(ctx, c, answers)
	}
	turn, err := v.writer.Turn(ctx)
	if err != nil {
		return err
	}
	if v.once.Once {
		if err := v.writer.Flush(ctx); err != nil { // before it is stored, another worker may begin it as well
			return err
		}
	}
	if err := v.emitAnswers(ctx, answers); err != nil {
		return err
	}
	told := make(chan *command.Command, maxTold)
	q := &Task{Message: c, Answers: answers, Run: v.writer, Turn: turn, Told: told, Session: v.session, visit: v}
	over := make(chan outcome, 1)
	go func() {
		stop, err := v.d.cfg.Answer(turn.Context(), q)
		over <- outcome{stop, err}
	}()
	cancel, err := v.during(ctx, q, over, told)
	if err != nil {
		<-over
		return err
	}
	if cancel != nil {
		err = v.commit(ctx, cancel)
	}
	if err == nil && v.once.Once {
		err = errOver
	}
	return err
}

// during hands over commands while the turn of a question is under way, and ends it. It returns the cancellation that
// did, if one did.
func (v *lease) during(ctx context.Context, q *Task, over chan outcome,
	told chan<- *command.Command) (by *command.Command, err error) {
	turn := q.Turn
	waits := len(v.queue) > 0 // something does that the Answer does not see
	due := v.alarm()
	defer due.stop()
	for {
		hear := v.told
		if len(v.queue) >= maxQueue {
			hear = nil
		}
		select {
		case s := <-over:
			over <- s // for the one that waits for it
			return by, v.endTurn(ctx, q, s, by)
		case <-due.channel():
			if err := v.expire(ctx, q.Message, due); err != nil {
				return by, err
			}
		case c := <-hear:
			if isCancel(c) {
				v.queue, by = v.queue[:0], c
				if err := v.cancel(ctx, turn, c); err != nil {
					return by, err
				}
				continue
			}
			if _, err := v.receive(ctx, c, told, &waits); err != nil {
				return by, err
			}
		case err := <-v.failed:
			if ctx.Err() != nil { // the turn is left as it is: see Run
				return by, context.Cause(ctx)
			}
			return by, errors.Join(err, v.abandon(ctx, q, "its commands cannot be read"))
		}
	}
}

func reasonOf(c *command.Command) string {
	if reason := c.Reason(); reason != "" {
		return reason
	}
	return "cancelled by the user"
}

func isCancel(c *command.Command) bool { return c.Name == nameCancel && c.Child == "" }

// receive queues a command that comes during a turn if it begins one, and hands it to the Answer unless others wait
// that the Answer does not see. waits says whether some do.
func (v *lease) receive(ctx context.Context, c *command.Command, told chan<- *command.Command,
	waits *bool) (handed bool, err error) {
	before := len(v.queue)
	v.enqueue(c)
	queued := len(v.queue) > before && !isCancel(c)
	*waits = *waits || queued && !v.canInject(c)
	if *waits && queued {
		return false, nil // commands are taken in their order
	}
	handed, err = v.forward(ctx, c, told)
	*waits = *waits || queued && !handed
	return handed, err
}

// forward hands a command to the Answer. One for a child is taken at once: the lane's order is its own.
func (v *lease) forward(ctx context.Context, c *command.Command, told chan<- *command.Command) (handed bool,
	err error) {
	select {
	case told <- c:
		handed = true
	default:
		if c.Name != nameMessage { // which is answered next
			v.d.cfg.Logger.Warn("worker: a command is not handed on: the answer has not read those before it", "run",
				v.key.String(), "seq", int64(c.Event.Seq))
		}
	}
	if c.Child == "" {
		return handed, nil
	}
	if err := c.Commit(ctx); err != nil && !errors.Is(err, schema.ErrEnded) {
		return handed, err
	}
	return handed, nil
}

// endTurn ends the turn. A good end and commands.taken for the message, and for those that were consumed in the
// turn, are one pack. A turn that was cancelled has ended already, and its cancellation is settled by the
// caller. When the worker itself ends, the turn and its message are left for the next worker.
func (v *lease) endTurn(ctx context.Context, q *Task, s outcome, by *command.Command) error {
	turn, c := q.Turn, q.Message
	switch {
	case by != nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case v.once.Once:
		return v.endOnce(ctx, q, s)
	case s.err == nil:
		mark := v.mark(q)
		if s.err = turn.End(cmp.Or(s.stop, "end_turn"), mark.CommandsTaken()); s.err == nil {
			err := v.writer.Flush(ctx)
			if err == nil {
				v.settle(mark.Event.Seq)
			}
			return err
		}
		if !errors.Is(s.err, producers.ErrOpen) {
			return s.err
		}
	}
	v.d.cfg.Logger.Warn("worker: a turn has failed", "run", v.key.String(), "turn", turn.ID(), "err", s.err)
	if err := turn.Fail(s.err); err != nil {
		return err
	}
	return v.commit(ctx, c)
}

// mark returns the newest command that a turn has dealt with, with all before it, and removes them from where they
// wait.
func (v *lease) mark(q *Task) *command.Command {
	mark := q.Message
	for i, c := range slices.Backward(v.queue) {
		if _, took := q.took.Load(c.Event.Seq); took {
			mark, v.queue = c, v.queue[i+1:]
			break
		}
	}
	if n := v.newest; n != nil && n.Event.Seq > mark.Event.Seq &&
		(len(v.queue) == 0 || n.Event.Seq < v.queue[0].Event.Seq) {
		mark, v.newest = n, nil
	}
	return mark
}
