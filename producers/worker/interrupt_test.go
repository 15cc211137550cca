package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// asker asks with an interrupt for what "ask NAME …" names, and says what it is answered.
func asker(ctx context.Context, q *worker.Task) (string, error) {
	if names, ok := strings.CutPrefix(q.Text(), "ask "); ok && len(q.Answers) == 0 {
		for _, name := range strings.Fields(names) {
			if err := q.Interrupt(ctx, json.RawMessage(fmt.Sprintf(`{"request_id":%q}`, name))); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	text := q.Text()
	for _, a := range q.Answers {
		text += fmt.Sprintf("%s=%s;", a.RequestID(), a.Answer())
	}
	m, err := q.Turn.Message(producers.MessageInfo{})
	if err != nil {
		return "", err
	}
	if err := m.Text("re: " + text); err != nil {
		return "", err
	}
	return "", m.End("end_turn", nil)
}

func (o *office) answer(run, id, value string) {
	o.t.Helper()
	o.put(run, "command.answer", fmt.Sprintf(`{"request_id":%q,"answer":%s}`, id, value))
}

// TestInterrupt: an answer begins the next turn, also on another worker, and when a message came between.
func TestInterrupt(t *testing.T) {
	o := newOffice(t)
	leave := o.staff(worker.Config{Answer: asker})
	o.session("r")
	o.say("r", "ask one")
	o.await("r", "commands.taken 2", 1)
	o.say("r", "meanwhile")
	o.await("r", "text.delta re: meanwhile", 1)
	leave()
	o.staff(worker.Config{Answer: asker})
	o.answer("r", "one", `{"yes":true}`)
	o.await("r", `text.delta re: one={"yes":true};`, 1)
	all := o.await("r", "turn.end end_turn", 3)
	if count(all, schema.TypeInputAnswered) != 1 || count(all, "turn.start") != 3 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// TestInterruptAnsweredTogether: answers that come together begin one turn.
func TestInterruptAnsweredTogether(t *testing.T) {
	o := newOffice(t)
	o.staff(worker.Config{Answer: asker})
	o.session("r")
	o.say("r", "ask one two")
	o.await("r", "commands.taken 2", 1)
	key := schema.RunKey{Tenant: "acme", Run: "r"}
	if _, err := o.appender.Append(t.Context(), key, []schema.Event{
		{Type: "command.answer", Payload: json.RawMessage(`{"request_id":"one","answer":1}`)},
		{Type: "command.answer", Payload: json.RawMessage(`{"request_id":"two","answer":2}`)},
	}, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	o.await("r", `text.delta re: one=1;two=2;`, 1)
}

// TestInterruptCut: a turn that an answer has begun, and that is cut, is begun again by the next worker; the answer is
// said to have come once.
func TestInterruptCut(t *testing.T) {
	o := newOffice(t)
	o.again = 200 * time.Millisecond
	stuck := make(chan struct{}, 1)
	leave := o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		if len(q.Answers) > 0 {
			stuck <- struct{}{}
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return asker(ctx, q)
	}})
	o.session("r")
	o.say("r", "ask one")
	o.await("r", "commands.taken 2", 1)
	o.answer("r", "one", `1`)
	<-stuck
	leave()
	o.staff(worker.Config{Answer: asker})
	o.await("r", `text.delta re: one=1;`, 1)
	time.Sleep(3 * o.again) // what is handed over again changes nothing
	all := o.events("r")
	if count(all, schema.TypeInputAnswered) != 1 || count(all, `text.delta re: one=1;`) != 1 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// TestAnswerOfACutTurn: an answer to what a cut turn has asked within itself begins no turn of its own.
func TestAnswerOfACutTurn(t *testing.T) {
	o := newOffice(t)
	o.again = 200 * time.Millisecond
	asked := make(chan struct{}, 1)
	leave := o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		if err := q.Run.Ask(ctx, "within", "?", nil, nil); err != nil {
			return "", err
		}
		asked <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	o.session("r")
	o.say("r", "hello")
	<-asked
	leave()
	o.answer("r", "within", `1`)
	o.staff(worker.Config{Answer: asker})
	o.await("r", "text.delta re: hello", 1)
	time.Sleep(3 * o.again)
	if all := o.events("r"); count(all, "turn.start") != 2 {
		t.Errorf("%s", strings.Join(all, "\n"))
	}
}

// TestInjected: a message that comes in a turn and is taken in it is not answered; another one is, next.
func TestInjected(t *testing.T) {
	for _, takes := range []bool{true, false} {
		o := newOffice(t)
		begun := make(chan struct{}, 2)
		o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
			begun <- struct{}{}
			if q.Text() == "first" {
				c := <-q.Told
				if takes {
					q.Consume(c)
				}
			}
			return asker(ctx, q)
		}})
		o.session("r")
		o.say("r", "first")
		<-begun
		o.say("r", "second")
		all := o.await("r", "text.delta re: first", 1)
		if takes {
			all = o.await("r", "commands.taken "+fmt.Sprint(slices.Index(all, `command.message "second"`)+1), 0)
			o.say("r", "third")
			all = o.await("r", "text.delta re: third", 1)
		} else {
			all = o.await("r", "text.delta re: second", 1)
		}
		if got := count(all, "text.delta re: second"); got == 1 == takes {
			t.Errorf("takes %v: the message was answered %d times", takes, got)
		}
	}
}

// TestInjectedInOrder: a message that asks for a run of its own is not passed on, nor is one behind it; each is
// answered once.
func TestInjectedInOrder(t *testing.T) {
	o := newOffice(t)
	begun := make(chan struct{}, 4)
	o.staff(worker.Config{Answer: func(ctx context.Context, q *worker.Task) (string, error) {
		begun <- struct{}{}
		if q.Text() == "first" {
			<-q.Told
			c := <-q.Told
			q.Consume(c) // with the one before it
			if c := <-q.Told; c.Name != "decision" {
				t.Errorf("told of %s %q", c.Name, c.Text())
			}
		}
		return asker(ctx, q)
	}})
	o.session("r")
	o.say("r", "first")
	<-begun
	o.say("r", "heard one")
	o.say("r", "heard two")
	o.put("r", "command.message", `{"content":"own","alone":true}`)
	o.say("r", "behind")
	o.put("r", "command.decision", `{}`)
	all := o.await("r", "text.delta re: behind", 1)
	for text, want := range map[string]int{"first": 1, "heard one": 0, "heard two": 0, "own": 1, "behind": 1} {
		if got := count(all, "text.delta re: "+text); got != want {
			t.Errorf("%s is answered %d times, want %d:\n%s", text, got, want, strings.Join(all, "\n"))
		}
	}
}
