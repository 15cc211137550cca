package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// refusals counts what Hooks.Refused is told.
type refusals struct {
	mu     sync.Mutex
	events int
	errs   []error
}

func (r *refusals) hook(events int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events += events
	r.errs = append(r.errs, err)
}

func open(t *testing.T, cfg producers.Config) *producers.Publisher {
	t.Helper()
	cfg.Key = key
	p, err := producers.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lostOf returns how many events an error says are lost.
func lostOf(err error) int {
	if lost := new(producers.LostError); errors.As(err, &lost) {
		return lost.Events
	}
	return 0
}

// checkHeads holds what packs say of the run to what their lines say.
func checkHeads(t *testing.T, log producers.Log) {
	t.Helper()
	var h schema.Head
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Event()
			if err == nil {
				err = h.Advance(e.Type, e.ChildID, e.ID, e.Payload)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if p.Head.Last != h.Last || p.Head.LastID != h.LastID || p.Head.State != h.State {
			t.Fatalf("pack %d to %d says %+v, its lines %+v", p.First, p.Last(), p.Head, h)
		}
	}
}

// Send, Publish and Append of one publisher keep their order, and what Send was given may be used again.
func TestSendKeepsOrderAndNothingOfItsArguments(t *testing.T) {
	log := newChaos(1, 0)
	log.Gate = make(chan struct{})
	p := open(t, producers.Config{Log: log})
	var payload []byte
	events := make([]schema.Event, 2)
	for i := 0; i < 900; i += 3 {
		for j := range events {
			from := len(payload)
			payload = fmt.Appendf(payload, `{"text":"w:%d"}`, i+j)
			events[j] = schema.Event{Type: schema.TypeTextDelta, Payload: payload[from:], Extra: []byte(`"x_extra":1`)}
		}
		if err := p.Send(t.Context(), events...); err != nil {
			t.Fatal(err)
		}
		for j := range events {
			clear(events[j].Extra)
		}
		clear(events)
		clear(payload)
		payload = payload[:0]
		if _, err := p.Publish(t.Context(), text("", fmt.Sprintf("w:%d", i+2))); err != nil {
			t.Fatal(err)
		}
	}
	large := schema.Event{Type: schema.TypeTextDelta,
		Payload: fmt.Appendf(nil, `{"text":"v:0","pad":%q}`, strings.Repeat("a", 20<<10))}
	if err := p.Send(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	clear(large.Payload)
	close(log.Gate)
	if r, err := p.Append(t.Context(), text("", "w:900")); err != nil || r.Last != 902 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for q, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range q.Records(0) {
			if e, err := r.Event(); err != nil {
				t.Fatal(err)
			} else if len(e.Extra) > 0 && string(e.Extra) != `"x_extra":1` {
				t.Fatalf("extra %s", e.Extra)
			} else if len(e.Extra) > 0 {
				n++
			}
		}
	}
	if n != 600 {
		t.Fatalf("%d events with extra fields", n)
	}
	checkRun(t, log.Log, key, map[string]int{"w": 901, "v": 1})
}

// Whatever fails between Send and the log, heads agree with lines, and ids that events bring are kept.
func TestSendUnderFaults(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			log := newChaos(seed, 0.3)
			var wg sync.WaitGroup
			want := make(map[string]int)
			for w := range 3 {
				name := fmt.Sprintf("w%d", w)
				want[name] = 80
				wg.Go(func() {
					p := open(t, producers.Config{Log: log, Shared: true, PackEvents: 9})
					ids, lane := schema.NewIDs(), ""
					if w > 0 {
						lane = name
					}
					for i := range 80 {
						e := text(lane, fmt.Sprintf("%s:%d", name, i))
						if i%10 == 9 {
							e.ID = ids.Event(time.Now().Add(time.Duration(i)*time.Hour/100), "")
						}
						_ = p.Send(t.Context(), schema.Event{Type: schema.TypeMessageStart, ChildID: lane})
						if err := p.Send(t.Context(), e); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if i%2 == 0 {
							_ = p.Send(t.Context(), schema.Event{Type: schema.TypeMessageEnd, ChildID: lane})
						}
						if i%13 == 0 {
							time.Sleep(time.Duration(i) * time.Millisecond)
						}
					}
					if err := p.Close(t.Context()); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			wg.Wait()
			log.DeliverLate()
			checkHeads(t, log.Log)
			seen := 0
			for p := range log.Log.Since(t.Context(), key, 0) {
				seen += p.Count
			}
			if seen != 3*(80+80+40) {
				t.Fatalf("%d events", seen)
			}
		})
	}
}

func TestSendTellsWhatTheLogRefuses(t *testing.T) {
	var told refusals
	log := memory.New()
	p := open(t, producers.Config{Log: log, Hooks: producers.Hooks{Refused: told.hook}})
	ctx := t.Context()
	if err := p.Send(ctx, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":1}`)}); !errors.Is(err,
		schema.ErrMalformed) {
		t.Fatalf("bad event: %v", err)
	}
	done := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}
	if _, err := p.Append(ctx, text("", "w:0"), done); err != nil {
		t.Fatal(err)
	}
	stragglers := []schema.Event{text("", "x:0"), text("", "x:1")}
	for _, err := range []error{p.Send(ctx, stragglers...), p.Send(ctx, text("", "x:2"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Append(ctx, text("", "x:3")); !errors.Is(err, schema.ErrEnded) {
		t.Fatalf("straggler with a receipt: %v", err)
	}
	if err := p.Flush(ctx); !errors.Is(err, schema.ErrEnded) || lostOf(err) != 3 {
		t.Fatalf("flush: %v", err)
	}
	if told.events != 3 || !errors.Is(told.errs[0], schema.ErrEnded) {
		t.Fatalf("told of %d: %v", told.events, told.errs)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatalf("told twice: %v", err)
	}
	again := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)}
	if err := p.Send(ctx, again, text("", "w:1")); err != nil {
		t.Fatal(err)
	}
	wrong := text("", "x:4")
	wrong.Seq = 9
	// The events before it in its call are stored, the one after it is not.
	if err := p.Send(ctx, text("", "w:2"), wrong, text("", "x:5")); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(ctx, text("", "w:3")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(ctx); !errors.Is(err, schema.ErrSeqMismatch) || lostOf(err) != 2 {
		t.Fatalf("close: %v", err)
	}
	if err := p.Send(ctx, text("", "x:6")); !errors.Is(err, producers.ErrClosed) {
		t.Fatalf("send behind close: %v", err)
	}
	checkRun(t, log, key, map[string]int{"w": 4})
}

func TestSendTellsThatItWasFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told refusals
		log := newChaos(1, 0)
		old := open(t, producers.Config{Log: log, PackEvents: 4, Hooks: producers.Hooks{Refused: told.hook}})
		ctx := t.Context()
		if _, err := old.Append(ctx, text("", "old:0")); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, producers.Config{Log: log.Log}).Append(ctx, text("", "new:0")); err != nil {
			t.Fatal(err)
		}
		log.Gate = make(chan struct{})
		for i := range 10 {
			if err := old.Send(ctx, text("", fmt.Sprintf("lost:%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		flushed := make(chan error)
		go func() { flushed <- old.Flush(ctx) }()
		synctest.Wait()
		close(log.Gate)
		if err := <-flushed; !errors.Is(err, producers.ErrFenced) || lostOf(err) != 10 {
			t.Fatalf("flush: %v", err)
		}
		if told.events != 10 || !errors.Is(told.errs[0], producers.ErrFenced) {
			t.Fatalf("told of %d: %v", told.events, told.errs)
		}
		if err := old.Send(ctx, text("", "lost:10")); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("send: %v", err)
		}
		if err := old.Flush(ctx); !errors.Is(err, producers.ErrFenced) || lostOf(err) != 0 {
			t.Fatalf("second flush: %v", err)
		}
		if err := old.Close(ctx); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("close: %v", err)
		}
		checkRun(t, log.Log, key, map[string]int{"old": 1, "new": 1})
	})
}

// A refusal that nobody has asked about yet is told beside what stopped the publisher.
func TestFlushTellsARefusalAndTheEnd(t *testing.T) {
	log := memory.New()
	old := open(t, producers.Config{Log: log})
	ctx := t.Context()
	done := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}
	if _, err := old.Append(ctx, done); err != nil {
		t.Fatal(err)
	}
	if err := old.Send(ctx, text("", "x:0")); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Append(ctx, text("", "x:1")); !errors.Is(err, schema.ErrEnded) {
		t.Fatal(err)
	}
	again := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)}
	if _, err := open(t, producers.Config{Log: log}).Append(ctx, again); err != nil {
		t.Fatal(err)
	}
	if err := old.Send(ctx, text("", "x:2")); err != nil {
		t.Fatal(err)
	}
	if err := old.Flush(ctx); !errors.Is(err, schema.ErrEnded) || !errors.Is(err, producers.ErrFenced) ||
		lostOf(err) != 2 {
		t.Fatalf("flush: %v", err)
	}
}

func TestSendAndAFullBuffer(t *testing.T) {
	for name, cfg := range map[string]producers.Config{"events": {BufferEvents: 10}, "bytes": {BufferBytes: 10 * 600}} {
		synctest.Test(t, func(t *testing.T) {
			log := newChaos(1, 0)
			log.Gate = make(chan struct{})
			cfg.Log, cfg.NoWait = log, true
			p := open(t, cfg)
			full := 0
			for i := range 1000 {
				if err := p.Send(t.Context(), text("", fmt.Sprintf("w:%d", i))); err != nil {
					if !errors.Is(err, producers.ErrBackpressure) {
						t.Fatalf("%s: event %d: %v", name, i, err)
					}
					full = i
					break
				}
			}
			if full < 8 || full > 12 {
				t.Fatalf("%s: full with %d events", name, full)
			}
			close(log.Gate)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkRun(t, log.Log, key, map[string]int{"w": full})
		})
	}
}

func TestSendWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newChaos(1, 0)
		log.Gate = make(chan struct{})
		p := open(t, producers.Config{Log: log, BufferEvents: 4})
		began := time.Now()
		for i := range 4 {
			if err := p.Send(t.Context(), text("", fmt.Sprintf("w:%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Send(deadline(t, time.Second), text("", "x:0")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a full buffer: %v", err)
		}
		time.AfterFunc(time.Minute, func() { close(log.Gate) })
		if err := p.Send(t.Context(), text("", "w:4")); err != nil || time.Since(began) < time.Minute {
			t.Fatalf("did not wait: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRun(t, log.Log, key, map[string]int{"w": 5})
	})
}

func TestCloseTellsWhatItGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told refusals
		log := newChaos(1, 1.1)
		log.Only = "unavailable" // for ever
		p := open(t, producers.Config{Log: log, Hooks: producers.Hooks{Refused: told.hook}})
		for i := range 7 {
			if err := p.Send(t.Context(), text("", fmt.Sprintf("x:%d", i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if err := p.Flush(deadline(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("flush: %v", err)
		}
		if err := p.Close(deadline(t, 10*time.Second)); !errors.Is(err, producers.ErrClosed) || lostOf(err) != 7 {
			t.Fatalf("close: %v", err)
		}
		if told.events != 7 {
			t.Fatalf("told of %d", told.events)
		}
		if err := p.Close(t.Context()); !errors.Is(err, producers.ErrClosed) || lostOf(err) != 0 {
			t.Fatalf("close again: %v", err)
		}
	})
}

// Flush waits for what was there before it, not for what others go on to say.
func TestFlushWhileOthersSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &ready{after: time.Millisecond}
		p := open(t, producers.Config{Log: log})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				if err := p.Send(t.Context(), text("", "w:0")); err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		if err := p.Flush(deadline(t, time.Minute)); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Errorf("flush took %v: %v", time.Since(began), err)
		}
		close(stop)
		wg.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The promise of Send: packs included, there is less than one object for an event.
func TestSendMakesNoObjectPerEvent(t *testing.T) {
	p := open(t, producers.Config{Log: &ready{after: 100 * time.Microsecond}})
	var sink producers.Sink = p
	var one [1]schema.Event
	payload := []byte(`{"text":" token","index":0}`)
	const events = 4000
	objects := testing.AllocsPerRun(5, func() {
		for range events {
			one[0] = schema.Event{Type: schema.TypeTextDelta, TurnID: "turn_1", Actor: "agent", Payload: payload}
			if err := sink.Send(t.Context(), one[:]...); err != nil {
				t.Fatal(err)
			}
		}
		if err := sink.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if objects > events/4 {
		t.Errorf("%v objects for %d events", objects, events)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Ids grow over one that an event brings, within a pack too, and times are those of the packs.
func TestSendNumbersBehindOwnIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		p := open(t, producers.Config{Log: log})
		own := text("", "w:1")
		own.ID = schema.NewIDs().Event(time.Now().Add(10*time.Minute), "")
		want := []string{time.Now().UTC().Format(schema.TimeLayout), time.Now().UTC().Format(schema.TimeLayout), own.ID}
		if err := p.Send(t.Context(), text("", "w:0"), own, text("", "w:2")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		want = append(want, time.Now().UTC().Format(schema.TimeLayout))
		if err := p.Send(t.Context(), text("", "w:3")); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRun(t, log, key, map[string]int{"w": 4})
		var events []schema.Event
		for q := range log.Since(t.Context(), key, 0) {
			for r := range q.Records(0) {
				e, err := r.Event()
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
		}
		if events[0].TS != want[0] || events[1].TS != want[1] || events[1].ID != want[2] || events[3].TS != want[3] {
			t.Fatalf("%+v, want %v", events, want)
		}
	})
}
