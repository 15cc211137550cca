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

// ErrGone is returned by an Answer when whoever writes the answer elsewhere (Config.Remote) is gone, or does not obey.
// The session is given up as it is: nothing is written, and who opens it next ends the turn and answers again.
var ErrGone = errors.New("whoever answers elsewhere is gone")

// remoteTurn is a turn that somebody else writes and ends. The reader of commands tells it what is in the log.
type remoteTurn struct {
	mu      sync.Mutex
	id      string              // "": none is under way
	over    chan struct{}       // closed by the turn's end, or the run's
	through schema.Seq          // newest command that was marked
	asked   map[string]struct{} // requests without an answer
	runOver bool
	sink    *watched // notes pieces of the answer; nil: nobody asks
}

// begin expects a turn.
func (m *remoteTurn) begin(id string) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.over, m.through, m.runOver = id, make(chan struct{}), 0, false
	m.asked = make(map[string]struct{})
	return m.over
}

// see looks at a record of the run's own lane.
func (m *remoteTurn) see(r schema.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		return
	}
	typ := string(r.Type)
	if m.sink != nil && producers.IsProgress(typ) {
		m.sink.delta.Store(time.Now().UnixNano())
	}
	switch typ {
	case schema.TypeCommandsTaken, schema.TypeTurnEnd, schema.TypeRunLifecycle,
		schema.TypeInputRequested, schema.TypeInputAnswered:
		m.note(typ, r.Payload())
	}
}

// note notes what ends, marks and asks. It needs mu.
func (m *remoteTurn) note(typ string, payload []byte) {
	var f struct {
		Turn    string          `json:"turn_id"`
		Request string          `json:"request_id"`
		Through schema.Seq      `json:"through"`
		State   schema.RunState `json:"state"`
	}
	_ = json.Unmarshal(payload, &f) // what does not fit says nothing
	switch typ {
	case schema.TypeCommandsTaken:
		m.through = max(m.through, f.Through)
	case schema.TypeInputRequested:
		m.asked[f.Request] = struct{}{}
	case schema.TypeInputAnswered:
		delete(m.asked, f.Request)
	case schema.TypeTurnEnd:
		if f.Turn == m.id {
			m.conclude()
		}
	case schema.TypeRunLifecycle:
		if f.State.Final() {
			m.runOver = true
			m.conclude()
		}
	}
}

// conclude notes that the turn is over: what comes after it is another's. It needs mu.
func (m *remoteTurn) conclude() {
	close(m.over)
	m.id = ""
}

// obeyTime is how long whoever answers elsewhere has to end a turn that is cancelled.
const obeyTime = 15 * time.Second

// answerElsewhere has somebody else answer a message, or go on with answers: in a turn that is begun here, and ended
// there, in one pack with the mark.
func (v *lease) answerElsewhere(ctx context.Context, c *command.Command, answers []*command.Command) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	if err := v.renewWriter(nil); err != nil {
		return err
	}
	turn, err := v.writer.Turn(working)
	if err != nil {
		return err
	}
	ended := v.elsewhere.begin(turn.ID())
	if err := v.emitAnswers(ctx, answers); err != nil {
		return err
	}
	if err := v.writer.Flush(ctx); err != nil { // what is written elsewhere comes after it
		return err
	}
	told := make(chan *command.Command, maxTold)
	q := &Task{Message: c, Answers: answers, Run: v.writer, Turn: turn, Told: told, Session: v.session, visit: v,
		Lease: v.pub.WriterID(), Once: v.once.Once}
	over := make(chan error, 1)
	go func() {
		_, err := v.d.cfg.Answer(working, q)
		over <- err
	}()
	err = v.waitElsewhere(ctx, c, ended, over, told)
	stop()
	<-over
	if err != nil {
		return err
	}
	return v.settleElsewhere(ctx, c)
}

// waitElsewhere hands over commands until the turn has ended in the log.
func (v *lease) waitElsewhere(
	ctx context.Context, c *command.Command, ended <-chan struct{}, over chan error, told chan<- *command.Command,
) error {
	waits := len(v.queue) > 0 // something does that the Answer does not see
	due := v.alarm()
	defer due.stop()
	var deaf <-chan time.Time
	for {
		hear := v.told
		if len(v.queue) >= maxQueue {
			hear = nil
		}
		select {
		case <-ended:
			return nil
		case err := <-over:
			over <- err // for the one that waits for it
			return fmt.Errorf("%w: %w", ErrGone, cmp.Or(err, errors.New("it returned before the turn's end")))
		case <-deaf:
			return fmt.Errorf("%w: it does not obey a cancellation", ErrGone)
		case <-due.channel():
			if err := v.expireElsewhere(ctx, c, due); err != nil {
				return err
			}
		case heard := <-hear:
			cancels := isCancel(heard)
			if cancels {
				waits, deaf = false, time.After(obeyTime)
			}
			handed, err := v.receive(ctx, heard, told, &waits)
			if err == nil && cancels && !handed {
				err = fmt.Errorf("%w: it does not read what it is told", ErrGone)
			}
			if err != nil {
				return err
			}
		case err := <-v.failed:
			return cmp.Or(context.Cause(ctx), err)
		}
	}
}

// expireElsewhere ends a run of which a deadline has passed, with all that is open in it by the log.
func (v *lease) expireElsewhere(ctx context.Context, c *command.Command, due *alarm) error {
	why := due.reset()
	if why == "" {
		return nil
	}
	due.stop()
	open, _, err := producers.ReadOpen(ctx, v.d.cfg.Log, v.key)
	if err == nil {
		err = v.renewWriter(open)
	}
	if err != nil {
		return err
	}
	return v.over(ctx, producers.Closing{Failed: true, Reason: v.d.cfg.Reasons.TimeoutReason(why)}, c)
}

// settleElsewhere settles what a turn has dealt with that somebody else has ended, and marks what that one has not.
func (v *lease) settleElsewhere(ctx context.Context, c *command.Command) error {
	m := &v.elsewhere
	m.mu.Lock()
	through, runOver := m.through, m.runOver
	for id := range m.asked {
		v.asked.Store(id, true)
	}
	m.mu.Unlock()
	if runOver {
		return errOver
	}
	if v.once.Once {
		if err := v.renewWriter(nil); err != nil {
			return err
		}
		if len(v.queue) > 0 && isCancel(v.queue[0]) {
			return v.over(ctx, producers.Closing{Reason: reasonOf(v.queue[0])}, v.queue[0])
		}
		return v.endRun(ctx)
	}
	if through < c.Event.Seq {
		if err := v.commit(ctx, c); err != nil {
			return err
		}
		through = c.Event.Seq
	}
	v.queue = slices.DeleteFunc(v.queue, func(q *command.Command) bool { return q.Event.Seq <= through })
	if n := v.newest; n != nil && n.Event.Seq <= through {
		v.newest = nil
	}
	v.settle(through)
	return nil
}

// endRun ends a run that is answered once and was left open by its answer.
func (v *lease) endRun(ctx context.Context) error {
	err := v.writer.Emit(ctx, schema.TypeRunLifecycle, json.RawMessage(`{"state":"done","reason":null}`))
	if err == nil {
		err = v.writer.Flush(ctx)
	}
	return cmp.Or(ignoreEnded(err), errOver)
}

// renewWriter makes a Run that knows what is open; nil is nothing.
func (v *lease) renewWriter(open *producers.Open) (err error) {
	v.writer, err = producers.NewRun(producers.RunConfig{Sink: v.pub, RunID: v.key.Run, Open: open})
	return err
}
