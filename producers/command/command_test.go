package command_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/producers/producerstest"
	"agentstream/schema"
)

// Short names of the test kit.
var (
	newChaos   = producerstest.NewFaultyLog
	key        = producerstest.Key
	text       = producerstest.Text
	deadline   = producerstest.Deadline
	stateEvent = producerstest.State
	writerOf   = producerstest.Open
	put        = producerstest.Put
	tell       = producerstest.Post
	types      = producerstest.Types
)

func commandsOf(t *testing.T, cfg command.Config) *command.Reader {
	t.Helper()
	c, err := command.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// next wants the next command to be the one at seq.
func next(t *testing.T, c *command.Reader, seq schema.Seq, again bool) *command.Command {
	t.Helper()
	cmd, err := c.Next(deadline(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Event.Seq != seq || cmd.Redelivered != again {
		t.Fatalf("%s at %d, redelivered %v; want %d, %v", cmd.Name, cmd.Event.Seq, cmd.Redelivered, seq, again)
	}
	return cmd
}

// none wants nothing to be handed over.
func none(t *testing.T, c *command.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if cmd, err := c.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%+v, %v", cmd, err)
	}
}

func TestCommandsAreHandedOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		a := writerOf(t, log)
		put(t, a, stateEvent(schema.StateRunning)) // 1
		ca := commandsOf(t, command.Config{Publisher: a, Waker: log})
		none(t, ca)
		tell(t, log, "", "command.redirect", `{"instruction":"left","reason":"r"}`)                            // 2
		tell(t, log, "", "command.answer", `{"request_id":"q","answer":{"a":1e400}}`)                          // 3
		tell(t, log, "", "command.approve_plan", `{"plan_id":"p"}`)                                            // 4
		tell(t, log, "", "command.message", `{"content":[{"type":"text","text":"a"},{"text":"b"}],"by":"me"}`) // 5
		c := next(t, ca, 2, false)
		if c.Name != "redirect" || c.Instruction() != "left" || c.Reason() != "r" || c.Event.Actor != "user" ||
			c.PlanID() != "" {
			t.Fatalf("%+v", c)
		}
		if c = next(t, ca, 3, false); c.RequestID() != "q" || string(c.Answer()) != `{"a":1e400}` {
			t.Fatalf("%+v", c)
		}
		if err := c.Commit(t.Context()); err != nil { // takes 2 and 3 with one event, 6
			t.Fatal(err)
		}
		if err := c.Commit(t.Context()); err != nil { // nothing more to say
			t.Fatal(err)
		}
		if err := c.Commit(t.Context(), text("", "twice")); !errors.Is(err, command.ErrTaken) {
			t.Fatalf("a second effect gave %v", err)
		}
		if c = next(t, ca, 4, false); c.PlanID() != "p" {
			t.Fatalf("%+v", c)
		}
		if c = next(t, ca, 5, false); c.Text() != "a\nb" || c.By() != "me" || c.Child != "" {
			t.Fatalf("%+v", c)
		}
		none(t, ca)

		// A writer that comes next is handed what was not taken, and takes it with what it brings about.
		b := writerOf(t, log)
		cb := commandsOf(t, command.Config{Publisher: b, Waker: log})
		c4 := next(t, cb, 4, true) // 7 takes the lane over
		c5 := next(t, cb, 5, true)
		if err := c4.Commit(t.Context(), text("", "done:0")); err != nil {
			t.Fatal(err)
		}
		if err := c5.Commit(t.Context(), text("", "done:1"), stateEvent(schema.StateDone)); err != nil {
			t.Fatal(err)
		}
		want := "[run.lifecycle command.redirect command.answer command.approve_plan command.message commands.taken " +
			"commands.taken text.delta commands.taken text.delta commands.taken run.lifecycle]"
		if got := fmt.Sprint(types(t, log)); got != want {
			t.Fatalf("the run is %s", got)
		}
		if _, err := ca.Next(t.Context()); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("the former writer's next command is %v", err)
		}
	})
}

// A writer that was overtaken takes nothing, also when it was handed the command before.
func TestCommandsOfAZombieAreFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		a := writerOf(t, log)
		put(t, a, stateEvent(schema.StateRunning))
		ca := commandsOf(t, command.Config{Publisher: a}) // asks now and then
		tell(t, log, "", "command.pause", `{}`)
		old := next(t, ca, 2, false)
		cb := commandsOf(t, command.Config{Publisher: writerOf(t, log)})
		young := next(t, cb, 2, true)
		if err := old.Commit(t.Context(), text("", "a:0")); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("the zombie's effect gave %v", err)
		}
		if err := young.Commit(t.Context(), text("", "b:0")); err != nil {
			t.Fatal(err)
		}
		tell(t, log, "", "command.resume", `{}`)
		if _, err := ca.Next(t.Context()); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("the zombie's next command is %v", err)
		}
	})
}

// between stores what a former writer takes at the last moment: after the next writer has read the log, and
// before it has taken the lane over.
type between struct {
	*memory.Log
	once sync.Once
	what func()
}

func (b *between) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	b.once.Do(b.what)
	return b.Log.Head(ctx, key, lane)
}

// What a former writer takes while the next one takes over is not handed over again.
func TestCommandsTakenAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		a := writerOf(t, log)
		put(t, a, stateEvent(schema.StateRunning))
		ca := commandsOf(t, command.Config{Publisher: a, Waker: log})
		tell(t, log, "", "command.pause", `{}`)
		tell(t, log, "", "command.resume", `{}`)
		old := next(t, ca, 2, false)
		late := &between{Log: log, what: func() {
			if err := old.Commit(context.Background(), text("", "a:0")); err != nil {
				t.Error(err)
			}
		}}
		cb := commandsOf(t, command.Config{Publisher: writerOf(t, late)})
		next(t, cb, 3, true)
	})
}

// The first event may be a command: whoever takes it over has something to say all the same.
func TestCommandsBeginARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		c := commandsOf(t, command.Config{Publisher: writerOf(t, log), Waker: log})
		none(t, c) // the run does not exist
		tell(t, log, "", "command.message", `{"content":"hello"}`)
		if cmd := next(t, c, 1, false); cmd.Text() != "hello" {
			t.Fatalf("%+v", cmd)
		}
		if got := fmt.Sprint(types(t, log)); got != "[command.message progress]" {
			t.Fatalf("the run is %s", got)
		}
	})
}

// Commands go to the lanes that are served, each with its own mark.
func TestCommandsOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		put(t, writerOf(t, log), text("", "r:0"), text("c1", "a:0"), text("c2", "b:0"))
		tell(t, log, "c1", "command.pause", `{}`) // 4
		tell(t, log, "c2", "command.pause", `{}`)
		tell(t, log, "", "command.pause", `{}`)
		two := func(lane string) bool { return lane != "c2" }
		c := commandsOf(t, command.Config{Publisher: writerOf(t, log), Lanes: two})
		child := next(t, c, 4, true)
		if err := child.Commit(t.Context(), text("", "x")); err == nil {
			t.Fatal("an effect of another lane was taken")
		}
		root := next(t, c, 6, true)
		if err := root.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := commandsOf(t, command.Config{Publisher: writerOf(t, log), Lanes: two})
		next(t, d, 4, true) // the root's mark says nothing of the child
		none(t, d)
		if head, err := log.Head(t.Context(), key, "c2"); err != nil || head.Lane.Epoch != 1 {
			t.Fatalf("the lane that is not served: %+v, %v", head.Lane, err)
		}
	})
}

// A final state settles what was said before it, except messages; and goes on with a follow-up.
func TestCommandsAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		a := writerOf(t, log)
		put(t, a, stateEvent(schema.StateRunning))
		tell(t, log, "", "command.pause", `{}`)
		tell(t, log, "", "command.message", `{"content":"one"}`) // 3
		ca := commandsOf(t, command.Config{Publisher: a})
		pause := next(t, ca, 2, false)
		put(t, a, stateEvent(schema.StateDone)) // 4
		if err := pause.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		one := next(t, ca, 3, false) // it is the agent's to answer
		if err := one.Commit(t.Context()); !errors.Is(err, schema.ErrEnded) {
			t.Fatalf("taken behind the end: %v", err)
		}
		b := writerOf(t, log)
		cb := commandsOf(t, command.Config{Publisher: b})
		none(t, cb)
		tell(t, log, "", "command.message", `{"content":"two"}`) // 5
		next(t, cb, 3, true)
		two := next(t, cb, 5, true)
		if err := two.Commit(t.Context(), stateEvent(schema.StateRunning), text("", "x:0")); err != nil {
			t.Fatal(err)
		}
		none(t, cb)
	})
}

// What was said to a run that was over is not handed to the agent that goes on with it, but for messages.
func TestCommandsBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		appender, err := producers.NewAppender(producers.AppenderConfig{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		late := func(events ...schema.Event) {
			t.Helper()
			if _, err := appender.Append(t.Context(), key, events, producers.AppendOptions{AfterEnd: true}); err != nil {
				t.Fatal(err)
			}
		}
		cancel := schema.Event{Type: "command.cancel", Payload: []byte(`{}`)}
		a := writerOf(t, log)
		put(t, a, stateEvent(schema.StateRunning), stateEvent(schema.StateDone))                                       // 2
		late(cancel)                                                                                                   // 3
		late(schema.Event{Type: schema.TypeCommandMessage, Payload: []byte(`{"content":"be brief","role":"system"}`)}) // 4
		late(cancel, schema.Event{Type: schema.TypeCommandMessage, Payload: []byte(`{"content":"on"}`)}, cancel)       // 7
		c := commandsOf(t, command.Config{Publisher: writerOf(t, log)})
		for _, seq := range []schema.Seq{4, 6, 7} {
			if err := next(t, c, seq, true).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		none(t, c)
	})
}

// deafWaker loses every copy.
type deafWaker struct{ fail bool }

func (w deafWaker) Watch(context.Context, schema.RunKey, func(schema.Pack)) (func(), error) {
	if w.fail {
		return nil, errors.New("not connected")
	}
	return func() {}, nil
}

// Lost copies, a Waker that fails, a log that is away and one that answers at random: a command is late,
// and neither lost nor doubled.
func TestCommandsUnderFaults(t *testing.T) {
	for name, waker := range map[string]command.Waker{"deaf": deafWaker{}, "failing": deafWaker{fail: true}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newChaos(7, 0.4)
				a := writerOf(t, log)
				c := commandsOf(t, command.Config{Publisher: a, Waker: waker})
				for i := range schema.Seq(50) {
					seq := tell(t, log.Log, "", "command.message", `{"content":"x"}`)
					began := time.Now()
					cmd, err := c.Next(t.Context())
					if err != nil || cmd.Event.Seq != seq {
						t.Fatalf("command %d at %d: %+v, %v", i, seq, cmd, err)
					}
					if d := time.Since(began); d > 20*time.Second {
						t.Fatalf("command %d took %v", i, d)
					}
					if err := cmd.Commit(t.Context(), text("", "x")); err != nil {
						t.Fatal(err)
					}
				}
				if log.Fired["unavailable"] == 0 || log.Fired["answer lost"] == 0 {
					t.Fatalf("faults %v", log.Fired)
				}
			})
		})
	}
}

// Commands among very many other events, some of which look like one.
func TestCommandsAreFarBetween(t *testing.T) {
	log := memory.New()
	a := writerOf(t, log)
	c := commandsOf(t, command.Config{Publisher: a, Waker: log, Poll: time.Hour})
	bulk := func() {
		for range 10_000 {
			if _, err := a.Publish(t.Context(), schema.Event{Type: schema.TypeTextDelta,
				Payload: []byte(`{"text":"\"type\":\"command.pause\"","x":{"type":"command.pause"}}`)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		bulk()
		seq := tell(t, log, "", "command.message", `{"content":"x"}`)
		next(t, c, seq, false)
		if cmd, err := c.TryNext(t.Context()); cmd != nil || err != nil {
			t.Fatalf("%+v, %v", cmd, err)
		}
	}
}

// More commands than are kept are handed over all the same, in order.
func TestCommandsBeyondWhatIsKept(t *testing.T) {
	log := memory.New()
	other, err := producers.New(producers.Config{Log: log, Key: key, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	const n = 9000
	for i := range n {
		if _, err := other.Publish(t.Context(),
			schema.Event{Type: schema.TypeCommandMessage, Payload: fmt.Appendf(nil, `{"content":"%d"}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := commandsOf(t, command.Config{Publisher: writerOf(t, log), Waker: log, Poll: time.Minute})
	for i := range n {
		cmd, err := c.Next(deadline(t, time.Minute))
		if err != nil || cmd.Text() != fmt.Sprint(i) {
			t.Fatalf("command %d: %+v, %v", i, cmd, err)
		}
		if i == n-1 {
			if err := cmd.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// flaky is a past that is away at first.
type flaky struct {
	*memory.Log
	fails int
}

func (f *flaky) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	if f.fails--; f.fails >= 0 {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, schema.ErrUnavailable) }
	}
	return f.Log.Packs(ctx, key, after, through)
}

// A beginning that the log no longer holds comes from the past, or is passed over.
func TestCommandsOlderThanTheLog(t *testing.T) {
	for _, all := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, past := memory.New(), &flaky{Log: memory.New(), fails: 3}
			for _, l := range []*memory.Log{log, past.Log} {
				put(t, writerOf(t, l), stateEvent(schema.StateRunning)) // 1
				tell(t, l, "", "command.pause", `{}`)
				tell(t, l, "", "command.resume", `{}`) // 3
				tell(t, l, "", schema.TypeCommandsTaken, `{"through":2}`)
				tell(t, l, "", "command.redirect", `{"instruction":"left"}`) // 5
				tell(t, l, "", "command.message", `{"content":"x"}`)         // 6
			}
			log.Expire(key, 5)
			if all { // the whole run has left
				log.Expire(key, 6)
			}
			cfg := producers.Config{Log: log, Key: key, Archive: past}
			pub, err := producers.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := commandsOf(t, command.Config{Publisher: pub, Past: past})
			next(t, c, 3, true)
			next(t, c, 5, true)
			last := next(t, c, 6, true)
			if err := last.Commit(t.Context(), text("", "x:0")); err != nil {
				t.Fatal(err)
			}
			none(t, c)
			if !all {
				d := commandsOf(t, command.Config{Publisher: writerOf(t, log)})
				none(t, d) // taken; and what is gone does not hold it up
			}
		})
	}
}

func TestCommandsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		a := writerOf(t, log)
		c := commandsOf(t, command.Config{Publisher: a, Waker: log})
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if _, err := c.Next(context.Background()); !errors.Is(err, producers.ErrClosed) {
					t.Errorf("closed, and Next gives %v", err)
				}
			})
		}
		synctest.Wait()
		c.Close()
		c.Close()
		group.Wait()
		if _, err := command.New(command.Config{}); err == nil {
			t.Error("no publisher, and no error")
		}
		ctx, cancel := context.WithCancel(t.Context())
		to := make(chan *command.Command)
		d := commandsOf(t, command.Config{Publisher: a, Waker: log})
		group.Go(func() { _ = d.Feed(ctx, to) })
		tell(t, log, "", "command.cancel", `{}`)
		if cmd := <-to; cmd.Name != "cancel" {
			t.Errorf("%+v", cmd)
		}
		cancel()
		group.Wait()
	})
}
