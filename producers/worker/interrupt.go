package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// Names of commands.
const (
	nameMessage   = "message"
	nameAnswer    = "answer"
	nameCancel    = "cancel"
	commandAnswer = "command." + nameAnswer
)

// Interrupt asks a person for something that the turn does not wait for: the Answer is to return. Nothing is held
// meanwhile. The answer begins the next turn, on whatever worker the session has then, with [Task.Answers]. payload is
// that of input.requested; its request_id must be new in the run.
func (q *Task) Interrupt(ctx context.Context, payload json.RawMessage) error {
	id := requestOf(payload)
	if id == "" {
		return fmt.Errorf("worker: interrupt: payload has no request_id: %w", schema.ErrMalformed)
	}
	q.visit.asked.Store(id, true)
	return q.Run.Emit(ctx, schema.TypeInputRequested, payload)
}

// Fold returns the run as it is stored, summed up, with all that the turn has emitted.
func (q *Task) Fold(ctx context.Context) (*schema.Fold, error) {
	if err := q.Run.Flush(ctx); err != nil {
		return nil, err
	}
	f := new(schema.Fold)
	for r, err := range q.visit.records(ctx, 0) {
		if err != nil {
			return nil, fmt.Errorf("worker: sum up %s: %w", q.visit.key, err)
		}
		f.AddRecord(r)
	}
	return f, nil
}

// Consume reports to the worker that the turn has dealt with a message that it was given, and with those before
// it: they are settled with the end of the turn, and not answered next.
func (q *Task) Consume(message *command.Command) { q.took.Store(message.Event.Seq, true) }

// canInject reports whether a turn under way may deal with a message: one that asks for a run of its own waits
// for it.
func (v *lease) canInject(c *command.Command) bool {
	return c.Name == nameMessage && !v.d.cfg.Alone(c.Event.Payload)
}

// isResume reports whether a command is an answer that begins a turn.
func (v *lease) isResume(c *command.Command) bool {
	return c.Name == nameAnswer && c.Child == "" && v.isInterrupt(c.RequestID())
}

// isInterrupt reports whether no turn waits for what was asked.
func (v *lease) isInterrupt(request string) bool {
	_, asked := v.asked.Load(request)
	return asked
}

// requestOf returns the request_id of a payload; "" for none.
func requestOf(payload []byte) string {
	var f struct {
		ID string `json:"request_id"`
	}
	_ = json.Unmarshal(payload, &f) // what does not fit names none
	return f.ID
}

// resume takes what waits in the log when a session is opened. An answer begins a turn if what it answers was asked
// before what the first turn to come begins with: what was asked behind that belongs to a turn that was cut, and is
// asked again.
func (v *lease) resume(ctx context.Context, open *producers.Open, there []*command.Command) error {
	requests, first := open.Requests(""), schema.Seq(0)
	var begun map[string]bool // read where it is needed
	for _, c := range there {
		begins := v.isQuestion(c)
		if c.Name == nameAnswer && c.Child == "" {
			at, waits := requests[c.RequestID()]
			begins = waits && (first == 0 || at < first)
			if !waits && first == 0 && begun == nil {
				var err error
				if begun, err = v.findResumed(ctx, c.Event.Seq); err != nil {
					return err
				}
			}
			if !waits && first == 0 {
				begins = begun[c.Event.ID]
			}
			if begins {
				v.asked.Store(c.RequestID(), true)
			}
		}
		if begins && first == 0 {
			first = c.Event.Seq
		}
		v.enqueue(c)
	}
	for id, at := range requests {
		if first == 0 || at < first {
			v.asked.Store(id, true)
		}
	}
	return nil
}

// together returns an answer with those that stand right after it in the log, and so were given with it.
func (v *lease) together(ctx context.Context, c *command.Command) ([]*command.Command, error) {
	last := c.Event.Seq
	for r, err := range v.records(ctx, last) {
		if err != nil {
			return nil, fmt.Errorf("read what follows answer %d: %w", c.Event.Seq, err)
		}
		if r.Seq != last+1 || r.Child != nil || string(r.Type) != commandAnswer || !v.isInterrupt(requestOf(r.Payload())) {
			break
		}
		last = r.Seq
	}
	answers := []*command.Command{c}
	for answers[len(answers)-1].Event.Seq < last {
		var next *command.Command
		if len(v.queue) > 0 {
			next, v.queue = v.queue[0], v.queue[1:]
		} else {
			select {
			case next = <-v.told:
			case err := <-v.failed:
				return nil, err
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		answers = append(answers, next)
	}
	return answers, nil
}

// findResumed returns the ids of the answers that workers have begun turns with after a seq. One of them that
// is not settled is that of a turn that was cut.
func (v *lease) findResumed(ctx context.Context, after schema.Seq) (map[string]bool, error) {
	all := map[string]bool{}
	for r, err := range v.records(ctx, after) {
		if err != nil {
			return nil, fmt.Errorf("read what became of answers behind %d: %w", after, err)
		}
		if string(r.Type) == schema.TypeInputAnswered {
			all[r.Attribute("cause")] = true
		}
	}
	return all, nil
}

// records walks the run's records after a seq, as the log has them.
func (v *lease) records(ctx context.Context, after schema.Seq) iter.Seq2[schema.Record, error] {
	return func(yield func(schema.Record, error) bool) {
		for p, err := range v.d.cfg.Log.Since(ctx, v.key, 0) {
			if err != nil {
				yield(schema.Record{}, err)
				return
			}
			for r, err := range p.Records(after) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// emitAnswers emits that answers have come to what was asked, for each that it was not emitted for.
func (v *lease) emitAnswers(ctx context.Context, answers []*command.Command) error {
	if len(answers) == 0 {
		return nil
	}
	begun, err := v.findResumed(ctx, answers[0].Event.Seq)
	if err != nil {
		return err
	}
	var events []schema.Event
	for _, c := range answers {
		if begun[c.Event.ID] {
			continue
		}
		payload, err := json.Marshal(struct {
			ID     string          `json:"request_id"`
			Answer json.RawMessage `json:"answer"`
		}{c.RequestID(), c.Answer()})
		if err != nil {
			return fmt.Errorf("worker: answer %d: %w", c.Event.Seq, err)
		}
		events = append(events, schema.Event{Type: schema.TypeInputAnswered, Cause: c.Event.ID, Payload: payload})
	}
	if len(events) == 0 {
		return nil
	}
	return v.writer.EmitAll(ctx, events...)
}
