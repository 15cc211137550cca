package demo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/schema"
)

// director runs an agent whose commands a test gives, and keeps its events in the order of a log, with
// the commands among them.
type director struct {
	t        *testing.T
	rec      *recorder
	commands chan schema.Event
	began    time.Time
	cancel   context.CancelCauseFunc
	done     chan error
	turn     sync.Mutex // the bubble's clock orders agent and test; this lets the race detector see it
}

// direct starts an agent at natural speed within a bubble.
func direct(t *testing.T, cfg Config) *director {
	t.Helper()
	d := &director{t: t, rec: &recorder{}, commands: make(chan schema.Event), began: time.Now(), done: make(chan error, 1)}
	d.rec.fail = func(int) error { d.turn.Lock(); defer d.turn.Unlock(); return nil }
	cfg.Sink, cfg.Commands, cfg.Speed = d.rec, d.commands, 1
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	d.cancel = cancel
	go func() { d.done <- a.Run(ctx) }()
	return d
}

// at waits until so long after the beginning.
func (d *director) at(after time.Duration) {
	d.turn.Lock()
	d.turn.Unlock()                            // an order, no critical section
	time.Sleep(time.Until(d.began.Add(after))) // the bubble's clock
	synctest.Wait()
}

// order stores a command and hands it to the agent.
func (d *director) order(name, payload string) { d.t.Helper(); d.orderChild("", name, payload) }

func (d *director) orderChild(child, name, payload string) {
	e := schema.Event{Type: "command." + name, ChildID: child, Actor: "user", Payload: []byte(payload)}
	d.rec.events, d.rec.times = append(d.rec.events, e), append(d.rec.times, time.Now())
	d.commands <- e
	synctest.Wait()
}

// end lets the agent go and gives what it told.
func (d *director) end(want error) *schema.Fold {
	d.t.Helper()
	d.cancel(errGone)
	if err := <-d.done; !errors.Is(err, want) {
		d.t.Errorf("run ends with %v, want %v", err, want)
	}
	return check(d.t, d.rec.events)
}

var errGone = errors.New("the process ends")

// states returns the root's states, with the reasons, joined.
func (d *director) states() string { return d.statesOf("") }

func (d *director) statesOf(child string) string {
	var out []string
	for _, e := range d.rec.events {
		if e.Type == schema.TypeRunLifecycle && e.ChildID == child {
			l, err := schema.ParseLifecycle(e.Payload)
			if err != nil {
				d.t.Fatal(err)
			}
			s := string(l.State)
			if l.Reason != nil {
				s += "(" + *l.Reason + ")"
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

func (d *director) wantStates(want string) {
	d.t.Helper()
	if got := d.states(); got != want {
		d.t.Errorf("states\nwant %s\n got %s", want, got)
	}
}

// quiet says that nothing is told for a long time.
func (d *director) quiet() {
	d.t.Helper()
	n := len(d.rec.events)
	time.Sleep(time.Hour)
	synctest.Wait()
	if len(d.rec.events) != n {
		d.t.Errorf("%d events while nothing should happen", len(d.rec.events)-n)
	}
}

// TestPauseAnywhere: the agent stands still within a moment, for as long as it takes, and then tells
// the very same story.
func TestPauseAnywhere(t *testing.T) {
	var words string
	for _, after := range []time.Duration{0, 2 * time.Second, 7 * time.Second, 11 * time.Second, 14 * time.Second,
		20 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := direct(t, Config{})
			d.at(after)
			d.order("pause", `{}`)
			if !strings.HasSuffix(d.states(), "paused(paused by the user)") {
				t.Errorf("at %v: %s", after, d.states())
			}
			d.quiet()
			d.order("pause", `{}`) // says nothing new
			d.quiet()
			d.order("resume", `{}`)
			d.order("resume", `{}`)
			d.at(3 * time.Hour)
			f := d.end(nil)
			back := "running"
			if strings.HasPrefix(d.states(), "planning paused") {
				back = "planning"
			}
			if f.State != schema.StateDone || !strings.Contains(d.states(), "paused(paused by the user) "+back) ||
				len(f.Commands()) != 0 {
				t.Errorf("at %v: %s, waiting %v", after, d.states(), f.Commands())
			}
			text := f.Text("", "text") + f.Text("", "reasoning") + f.Text("run_demo_review", "text") +
				f.Text("run_demo_costs", "text")
			if words == "" {
				words = text
			}
			if text != words {
				t.Errorf("at %v: another story", after)
			}
		})
	}
}

// TestCancelByCommand: at any time; what was open is closed, and the run can be taken up again.
func TestCancelByCommand(t *testing.T) {
	for after := time.Duration(0); after < 30*time.Second; after += 1700 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			d := direct(t, Config{})
			d.at(after)
			if after > 20*time.Second {
				d.order("pause", `{}`) // also out of a pause
			}
			d.order("cancel", `{"reason":"enough"}`)
			if !strings.HasSuffix(d.states(), "aborted(cancelled by the user)") {
				t.Fatalf("at %v: %s", after, d.states())
			}
			d.quiet()
			check(t, d.rec.events)
			d.order("message", `{"content":"and now?"}`)
			d.at(2 * time.Hour)
			f := d.end(nil)
			if f.State != schema.StateDone || !strings.Contains(f.Text("", "text"), "“and now?”") || len(f.Commands()) != 0 {
				t.Errorf("at %v: %s", after, d.states())
			}
		})
	}
}

// TestApproval: with the gate "required" nothing goes on until the plan is approved; a rejected plan, or
// another direction, is followed by another plan.
func TestApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{PlanningGate: gateRequired})
		d.at(time.Minute)
		d.wantStates("planning awaiting_approval(plan plan_1)")
		d.quiet()
		d.order("approve_plan", `{"plan_id":"plan_9"}`) // not this one
		d.order("pause", `{}`)                          // nothing to pause
		d.quiet()
		d.order("reject_plan", `{"plan_id":"plan_1","reason":"too dear"}`)
		d.at(2*time.Hour + 10*time.Minute)
		d.order("redirect", `{"instruction":"latency first"}`)
		d.at(2*time.Hour + 20*time.Minute)
		d.order("approve_plan", `{"plan_id":"plan_3"}`)
		d.at(3 * time.Hour)
		f := d.end(nil)
		d.wantStates("planning awaiting_approval(plan plan_1) planning(too dear) awaiting_approval(plan plan_2) " +
			"redirecting(latency first) awaiting_approval(plan plan_3) running done")
		if f.Plan.ID != "plan_3" || f.Plan.Decision != "approved" || f.Plan.Gate != "required" {
			t.Errorf("plan %+v", f.Plan)
		}
		if text := f.Text("", "text"); !strings.Contains(text, "“too dear”") || !strings.Contains(text, "“latency first”") {
			t.Errorf("reasons are not taken up: %s", text)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nobody can approve any more
		d := direct(t, Config{PlanningGate: gateRequired})
		d.at(time.Minute)
		close(d.commands)
		synctest.Wait()
		if f := d.end(errDeaf); f.State != schema.StateAborted {
			t.Errorf("state %s", f.State)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the process ends
		d := direct(t, Config{PlanningGate: gateRequired})
		d.at(time.Minute)
		if f := d.end(errGone); f.State != schema.StateAborted {
			t.Errorf("state %s", f.State)
		}
	})
}

// TestRedirect: between two parts of the story; a rejection of a plan that was only shown likewise.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		d.at(7 * time.Second)
		d.order("redirect", `{"instruction":"look at cost"}`)
		d.order("redirect", `{}`)
		d.order("reject_plan", `{"reason":"dull"}`)
		d.at(time.Hour)
		f := d.end(nil)
		d.wantStates("planning running redirecting(look at cost) running redirecting running planning(dull) running done")
		if text := f.Text("", "text"); !strings.Contains(text, "“look at cost”") || f.Plan.ID != "plan_2" ||
			len(f.Commands()) != 0 {
			t.Errorf("plan %s, %v, %s", f.Plan.ID, f.Commands(), text)
		}
	})
}

// TestAnswer: the agent asks, takes an answer and goes on without one.
func TestAnswer(t *testing.T) {
	asked := func(d *director) bool {
		return slices.ContainsFunc(d.rec.events, func(e schema.Event) bool { return e.Type == schema.TypeInputRequested })
	}
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		for d.at(0); !asked(d); {
			d.at(time.Since(d.began) + 100*time.Millisecond)
		}
		d.order("answer", `{"request_id":"another","answer":"x"}`)
		d.order("answer", `{"request_id":"audience","answer":"managers"}`)
		answered := time.Since(d.began)
		d.at(answered + time.Second)
		if last := d.rec.events[len(d.rec.events)-1]; last.Type != schema.TypeReasoningDelta {
			t.Errorf("a second behind the answer: %s", last.Type)
		}
		d.at(time.Hour)
		f := d.end(nil)
		in := f.Input("", "audience")
		if in == nil || string(in.Answer) != `"managers"` ||
			!strings.Contains(f.Text("", "text"), "Written for managers") || len(f.Commands()) != 0 {
			t.Errorf("%+v, %s", in, f.Text("", "text"))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		d.at(time.Hour)
		f := d.end(nil)
		if in := f.Input("", "audience"); in == nil || in.Answered == 0 || string(in.Answer) != "null" ||
			strings.Contains(f.Text("", "text"), "Written for") {
			t.Errorf("%+v", in)
		}
	})
}

// TestMessages: those that come before the end are answered before it, later ones take the run up
// again, each in a turn of its own.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		d.at(3 * time.Second)
		d.order("message", `{"content":"one"}`)
		d.order("message", `{"content":[{"type":"text","text":"two"},{"type":"image"}]}`)
		d.at(time.Hour)
		d.wantStates("planning running done")
		check(t, d.rec.events)
		for i, word := range []string{"three", "four"} {
			d.order("message", fmt.Sprintf(`{"content":%q}`, word))
			d.at(time.Duration(i+2) * time.Hour)
		}
		d.commands <- schema.Event{Type: "command.cancel", Payload: []byte(`{}`)} // nothing to cancel
		f := d.end(nil)
		d.wantStates("planning running done running done running done")
		text := f.Text("", "text")
		for _, word := range []string{"one", "two", "three", "four"} {
			if !strings.Contains(text, "You say “"+word+"”") {
				t.Errorf("no answer to %s", word)
			}
		}
		turns := map[string]bool{}
		for _, e := range d.rec.events {
			turns[e.ChildID+" "+e.TurnID] = true
		}
		for _, want := range []string{" turn_1", " turn_4", " turn_5", "run_demo_review turn_2", "run_demo_costs turn_3"} {
			if !turns[want] {
				t.Errorf("turns %v, no %s", turns, want)
			}
		}
	})
}

// TestChildrenObey: a child is cancelled, paused, redirected and spoken to, and the others go on.
func TestChildrenObey(t *testing.T) {
	const review, costs = "run_demo_review", "run_demo_costs"
	working := 12 * time.Second // both children are at work then
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		d.at(working)
		d.orderChild(review, "cancel", `{}`)
		d.orderChild(review, "cancel", `{}`) // nothing to cancel
		d.orderChild(review, "message", `{"content":"and?"}`)
		d.commands <- schema.Event{Type: "command.cancel", ChildID: "run_nobody", Payload: []byte(`{}`)}
		d.at(time.Hour)
		f := d.end(nil)
		if f.State != schema.StateDone || d.statesOf(review) != "running aborted(cancelled by the user)" ||
			d.statesOf(costs) != "running done" {
			t.Errorf("%s, %s, %s", f.State, d.statesOf(review), d.statesOf(costs))
		}
		end := slices.IndexFunc(d.rec.events, func(e schema.Event) bool { return strings.Contains(string(e.Payload), `"state":"aborted"`) })
		if e := d.rec.events[end+1]; e.Type != schema.TypeToolEnd || e.ChildID != "" ||
			!strings.Contains(string(e.Payload), `"call_id":"call_review","ok":false`) {
			t.Errorf("behind the child's end: %s %s", e.Type, e.Payload)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{})
		d.at(working)
		d.orderChild(costs, "pause", `{}`)
		d.orderChild(costs, "pause", `{}`)
		d.orderChild(review, "message", `{"content":"are you well?"}`)
		d.orderChild(costs, "redirect", `{"instruction":"count rows"}`)
		d.at(time.Minute)
		if d.statesOf(review) != "running done" || d.statesOf(costs) != "running paused(paused by the user)" ||
			d.states() != "planning running" {
			t.Errorf("%s, %s, %s", d.states(), d.statesOf(review), d.statesOf(costs))
		}
		d.quiet()
		d.order("pause", `{}`) // the agent, who waits for it
		d.orderChild(costs, "resume", `{}`)
		d.quiet() // it may go on, but the run may not
		d.order("resume", `{}`)
		d.at(24 * time.Hour)
		f := d.end(nil)
		if got := d.statesOf(costs); got != "running paused(paused by the user) running redirecting(count rows) running done" {
			t.Errorf("%s", got)
		}
		if f.State != schema.StateDone || !strings.Contains(f.Text(review, "text"), "“are you well?”") ||
			len(f.Commands()) != 0 {
			t.Errorf("%s %v", f.State, f.Commands())
		}
	})
	synctest.Test(t, func(t *testing.T) { // a child that is paused does not hold up the end of the run
		d := direct(t, Config{})
		d.at(working)
		d.orderChild(costs, "pause", `{}`)
		d.order("cancel", `{}`)
		if f := d.end(nil); f.State != schema.StateAborted ||
			!strings.HasSuffix(d.statesOf(costs), "aborted(cancelled by the user)") {
			t.Errorf("%s %s", f.State, d.statesOf(costs))
		}
	})
}

// TestFailureIsTold: the failures of the script are not the agent's, which goes on when it is spoken to.
func TestFailureIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := direct(t, Config{Script: "failure"})
		d.at(time.Hour)
		d.wantStates("running error(model: overloaded)")
		if got := d.statesOf("run_demo_fixer"); got != "running error(model: the context is too long)" {
			t.Errorf("child: %s", got)
		}
		check(t, d.rec.events)
		d.order("message", `{"content":"once more?"}`)
		d.at(2 * time.Hour)
		if f := d.end(nil); f.State != schema.StateDone {
			t.Errorf("state %s", f.State)
		}
	})
}

// TestCommandsWithoutWaiting: at speed 0 what is there is obeyed between two events, and what is for nobody, or in
// another form, is not. The same commands at the same points make the same run.
func TestCommandsWithoutWaiting(t *testing.T) {
	at := map[int][]schema.Event{
		0: {
			{Type: "command.pause", ChildID: "run_demo_review", Payload: []byte(`{}`)}, // not there yet
			{Type: "command.redirect", Payload: []byte(`{"instruction":7}`)},
			{Type: "command.pause", Payload: []byte(`{}`)},
			{Type: "command.resume", Payload: []byte(`{}`)},
			{Type: "command.answer", Payload: []byte(`{"request_id":"audience","answer":{"who":"all"}}`)},
			{Type: "command.message", Payload: []byte(`{"content":"` + strings.Repeat("ä", 500) + `"}`)},
		},
		60: {{Type: "command.redirect", Payload: []byte(`{"instruction":"look at <cost>"}`)}},
		337: {
			{Type: "command.cancel", ChildID: "run_demo_review", Payload: []byte(`{}`)},
			{Type: "command.redirect", ChildID: "run_demo_costs", Payload: []byte(`{"instruction":"rows"}`)},
		},
	}
	tell := func() []schema.Event {
		r := &recorder{}
		commands := make(chan schema.Event, 9)
		r.fail = func(have int) error {
			for _, e := range at[have] {
				commands <- e
			}
			if have == 527 {
				close(commands)
			}
			return nil
		}
		a, err := New(Config{Sink: r, Commands: commands})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.events
	}
	events := tell()
	f := check(t, events)
	if text := f.Text("", "text"); f.State != schema.StateDone || !strings.Contains(text, strings.Repeat("ä", 200)+"…”") {
		t.Errorf("%s %s", f.State, text)
	}
	golden(t, "tour-commanded", events)
	if again := tell(); !reflect.DeepEqual(events, again) {
		t.Error("another run")
	}
}
