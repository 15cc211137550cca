package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// elsewhere writes an answer as a process does that has no log, and only the lease.
type elsewhere struct {
	o *office
	q *worker.Task
}

func (w elsewhere) write(events ...schema.Event) error {
	for i := range events {
		events[i].TurnID = w.q.Turn.ID()
		if err := events[i].Prepare(w.q.Message.Event.RunID); err != nil {
			return err
		}
	}
	key := schema.RunKey{Tenant: "acme", Run: w.q.Message.Event.RunID}
	_, err := w.o.appender.Append(context.Background(), key, events, producers.AppendOptions{Owner: w.q.Lease})
	return err
}

func (w elsewhere) text(s string) error {
	return w.write(event(schema.TypeTextDelta, fmt.Sprintf(`{"text":%q}`, s)))
}

// end ends the turn, with the mark.
func (w elsewhere) end(stop string, through schema.Seq, more ...schema.Event) error {
	return w.write(append(more, event(schema.TypeCommandsTaken, fmt.Sprintf(`{"through":%d}`, through)),
		event(schema.TypeTurnEnd, fmt.Sprintf(`{"turn_id":%q,"stop_reason":%q}`, w.q.Turn.ID(), stop)))...)
}

func event(typ, payload string) schema.Event {
	return schema.Event{Type: typ, Actor: "agent", Payload: json.RawMessage(payload)}
}

// rest waits for the end of the turn's context.
func rest(ctx context.Context, err error) (string, error) {
	if err != nil {
		return "", err
	}
	<-ctx.Done()
	return "", nil
}

// Messages, one during a turn that deals with it, a cancellation, and a question whose answer begins a turn: with an
// answer that is written elsewhere, each is settled once.
func TestAnsweredElsewhere(t *testing.T) {
	o := newOffice(t)
	began := make(chan struct{}, 10)
	o.staff(worker.Config{Remote: true, Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		w, seq := elsewhere{o, q}, q.Message.Event.Seq
		switch text := q.Text(); {
		case len(q.Answers) > 0:
			return rest(ctx, errors.Join(w.text("got "+string(q.Message.Answer())), w.end("end_turn", seq)))
		case text == "ask":
			asked := event(schema.TypeInputRequested, `{"request_id":"r1","prompt":"?"}`)
			return rest(ctx, errors.Join(w.write(asked), w.end("interrupt", seq)))
		case text == "wait":
			began <- struct{}{}
			c := <-q.Told
			if c.Name == "cancel" {
				return rest(ctx, w.end("cancelled", c.Event.Seq))
			}
			return rest(ctx, errors.Join(w.text("both"), w.end("end_turn", c.Event.Seq)))
		default:
			return rest(ctx, errors.Join(w.text("re: "+text), w.end("end_turn", seq)))
		}
	}})
	o.session("s1")
	o.say("s1", "one")
	o.await("s1", "text.delta re: one", 1)
	o.say("s1", "wait")
	<-began
	o.say("s1", "and this")
	o.await("s1", "text.delta both", 1)
	o.say("s1", "wait")
	<-began
	o.put("s1", "command.cancel", `{}`)
	o.await("s1", "turn.end cancelled", 1)
	o.say("s1", "ask")
	o.await("s1", "turn.end interrupt", 1)
	o.put("s1", "command.answer", `{"request_id":"r1","answer":"yes"}`)
	o.await("s1", `text.delta got "yes"`, 1)
	o.say("s1", "last")
	o.await("s1", "text.delta re: last", 1)
	all := o.await("s1", "turn.end end_turn", 4)
	if count(all, "turn.start") != 6 || strings.Contains(strings.Join(all, "\n"), "re: and this") {
		t.Errorf("\n%s", strings.Join(all, "\n"))
	}
}

// Who answers elsewhere goes, in the middle: the message is answered again, from the beginning, and what the first one
// still writes is refused.
func TestGoneElsewhere(t *testing.T) {
	o := newOffice(t)
	var calls atomic.Int32
	zombie := make(chan elsewhere, 1)
	o.staff(worker.Config{Remote: true, Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		w := elsewhere{o, q}
		if calls.Add(1) == 1 {
			zombie <- w
			return "", errors.Join(w.text("half"), worker.ErrGone)
		}
		return rest(ctx, errors.Join(w.text("whole"), w.end("end_turn", q.Message.Event.Seq)))
	}})
	o.session("s1")
	o.say("s1", "one")
	all := o.await("s1", "turn.end end_turn", 1)
	if count(all, "turn.end error") != 1 || count(all, "text.delta whole") != 1 {
		t.Errorf("\n%s", strings.Join(all, "\n"))
	}
	w := <-zombie
	if err := w.text("late"); !errors.Is(err, producers.ErrNotOwner) {
		t.Errorf("who is gone writes: %v", err)
	}
	for run, lease := range map[string]string{"s1": "x", "s2": w.q.Lease} {
		e := event(schema.TypeTextDelta, `{"text":"no"}`)
		key := schema.RunKey{Tenant: "acme", Run: run}
		_, err := o.appender.Append(t.Context(), key, []schema.Event{e}, producers.AppendOptions{Owner: lease})
		if !errors.Is(err, producers.ErrNotOwner) {
			t.Errorf("lease %s of %s: %v", lease, run, err)
		}
	}
	if calls.Load() != 2 {
		t.Errorf("it is answered %d times", calls.Load())
	}
}

// A run that is answered once is over with its turn, also where whoever answers says no more than the turn's end.
func TestOnceElsewhere(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Remote: true, Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		w := elsewhere{o, q}
		if !q.Once {
			t.Error("nobody says that it is answered once")
		}
		if q.Text() == "late" {
			return rest(ctx, w.text("half"))
		}
		return rest(ctx, errors.Join(w.text("re"), w.end("end_turn", q.Message.Event.Seq)))
	}})
	o.put("o1", schema.TypeSessionCreated, `{"once":true}`)
	o.say("o1", "one")
	o.await("o1", schema.TypeRunLifecycle, 1)
	o.put("o2", schema.TypeSessionCreated, `{"once":true,"deadlines":{"total_ms":300}}`)
	o.say("o2", "late")
	all := o.await("o2", schema.TypeRunLifecycle, 1)
	if count(all, "turn.end error") != 1 {
		t.Errorf("\n%s", strings.Join(all, "\n"))
	}
}
