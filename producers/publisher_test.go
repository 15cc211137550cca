package producers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// Whatever gets lost between writers and log: no hole, no duplicate, own order, nothing
// acknowledged is missing. One writer that owns its lane, several that share one, several lanes.
func TestPublishersUnderFaults(t *testing.T) {
	fired := make(map[string]int)
	for seed := range uint64(60) {
		for _, mode := range []string{"one", "shared", "lanes"} {
			synctest.Test(t, func(t *testing.T) {
				log := newChaos(seed, 0.3)
				acked := publishAll(t, log, mode)
				log.DeliverLate()
				checkRun(t, log.Log, key, acked)
				for f, n := range log.Fired {
					fired[f] += n
				}
			})
		}
	}
	for _, f := range []string{"answer lost", "publish lost", "publish late", "unavailable"} {
		if fired[f] == 0 {
			t.Errorf("fault %q never fired", f)
		}
	}
	t.Log(fired)
}

func publishAll(t *testing.T, log producers.Log, mode string) map[string]int {
	writers := 1
	if mode != "one" {
		writers = 4
	}
	acked := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			name, lane := fmt.Sprintf("w%d", w), ""
			if mode == "lanes" {
				lane = name
			}
			p, err := producers.New(producers.Config{Log: log, Key: key, Shared: mode == "shared", PackEvents: 7})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 60 {
				pending, err := p.Publish(t.Context(), text(lane, fmt.Sprintf("%s:%d", name, i)))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					break
				}
				if i%7 == 0 {
					if _, err := pending.Wait(t.Context()); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			if err := p.Close(t.Context()); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
			mu.Lock()
			acked[name] = 60
			mu.Unlock()
		})
	}
	wg.Wait()
	return acked
}

func TestTakeoverFencesTheFormerOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		fenced := 0
		open := func() *producers.Publisher {
			p, err := producers.New(producers.Config{Log: log, Key: key,
				Hooks: producers.Hooks{Fenced: func(schema.RunKey) { fenced++ }}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		old, young := open(), open()
		ctx := t.Context()
		if _, err := old.Append(ctx, text("", "old:0"), text("c1", "c:0")); err != nil {
			t.Fatal(err)
		}
		if _, err := young.Append(ctx, text("", "young:0")); err != nil {
			t.Fatal(err)
		}
		// The zombie writes on another lane of its own first: that one it still owns.
		if _, err := old.Append(ctx, text("c1", "c:1")); err != nil {
			t.Fatalf("lane that nobody took over: %v", err)
		}
		if _, err := old.Append(ctx, text("", "old:1")); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("zombie got %v", err)
		}
		if _, err := old.Publish(ctx, text("", "old:2")); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("stopped publisher took an event: %v", err)
		}
		if fenced != 1 {
			t.Fatalf("the refusal was counted %d times", fenced)
		}
		if r, err := young.Append(ctx, text("", "young:1")); err != nil || r.First != 5 {
			t.Fatalf("new owner: %+v, %v", r, err)
		}
		if err := young.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := old.Close(ctx); !errors.Is(err, producers.ErrFenced) {
			t.Fatalf("close of the zombie: %v", err)
		}
		checkRun(t, log, key, map[string]int{"old": 1, "young": 2, "c": 2})
	})
}

// A stateless append carries the owner on: it neither fences him nor hides a takeover.
func TestAppendsKeepTheLanesOwner(t *testing.T) {
	log := memory.New()
	p, _ := producers.New(producers.Config{Log: log, Key: key})
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
	for i := range 5 {
		if _, err := p.Append(t.Context(), text("", fmt.Sprintf("p:%d", i))); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Append(t.Context(), key, []schema.Event{text("", fmt.Sprintf("a:%d", i))},
			producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	next, _ := producers.New(producers.Config{Log: log, Key: key})
	if _, err := next.Append(t.Context(), text("", "n:0")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), key, []schema.Event{text("", "a:5")}, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(t.Context(), text("", "p:5")); !errors.Is(err, producers.ErrFenced) {
		t.Fatalf("an append hid the takeover: %v", err)
	}
	checkRun(t, log, key, map[string]int{"p": 5, "a": 6, "n": 1})
}

func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newChaos(1, 0)
		log.Gate = make(chan struct{})
		p, _ := producers.New(producers.Config{Log: log, Key: key, BufferEvents: 10, NoWait: true})
		first, err := p.Publish(t.Context(), text("", "w:0"))
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; ; i++ {
			if _, err = p.Publish(t.Context(), text("", fmt.Sprintf("w:%d", i))); err != nil {
				if i != 10 || !errors.Is(err, producers.ErrBackpressure) {
					t.Fatalf("event %d: %v", i, err)
				}
				break
			}
		}
		if _, err := first.Wait(deadline(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("wait: %v", err)
		}
		close(log.Gate)
		if r, err := first.Wait(t.Context()); err != nil || r.First != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRun(t, log.Log, key, map[string]int{"w": 10})
	})
}

func TestWaitingForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newChaos(1, 0)
		p, _ := producers.New(producers.Config{Log: log, Key: key, BufferEvents: 4})
		log.Gate = make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(log.Gate) })
		began := time.Now()
		for i := range 8 {
			if _, err := p.Publish(t.Context(), text("", fmt.Sprintf("w:%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(began) < time.Minute {
			t.Fatal("did not wait")
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkRun(t, log.Log, key, map[string]int{"w": 8})
	})
}

func TestCloseGivesUpWhenToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newChaos(1, 1.1)
		log.Only = "unavailable" // for ever
		p, _ := producers.New(producers.Config{Log: log, Key: key})
		w, err := p.Publish(t.Context(), text("", "w:0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(deadline(t, 10*time.Second)); !errors.Is(err, producers.ErrClosed) {
			t.Fatalf("close: %v", err)
		}
		if _, err := w.Wait(t.Context()); !errors.Is(err, producers.ErrClosed) {
			t.Fatalf("wait: %v", err)
		}
		if _, err := p.Publish(t.Context(), text("", "w:1")); err == nil {
			t.Fatal("closed publisher took an event")
		}
	})
}

func TestRefusedEventsCostNobodyElseAnything(t *testing.T) {
	log := memory.New()
	p, _ := producers.New(producers.Config{Log: log, Key: key})
	ctx := t.Context()
	if _, err := p.Publish(ctx, schema.Event{Type: "no.such", Payload: []byte(`{}`)}); !errors.Is(err,
		schema.ErrUnknownType) {
		t.Fatal(err)
	}
	if _, err := p.Publish(ctx, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":`)}); !errors.Is(err,
		schema.ErrMalformed) {
		t.Fatal(err)
	}
	done := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}
	if _, err := p.Append(ctx, text("", "w:0"), done); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(ctx, text("", "w:1")); !errors.Is(err, schema.ErrEnded) {
		t.Fatalf("straggler: %v", err)
	}
	again := schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"running"}`)}
	if r, err := p.Append(ctx, again, text("", "w:1")); err != nil || r.First != 3 || r.Last != 4 {
		t.Fatalf("follow-up: %+v %v", r, err)
	}
	if _, err := p.Append(ctx, schema.Event{Type: schema.TypeTextDelta, Seq: 9,
		Payload: []byte(`{"text":"x"}`)}); !errors.Is(err, schema.ErrSeqMismatch) {
		t.Fatalf("wrong seq: %v", err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	checkRun(t, log, key, map[string]int{"w": 2})
}

// What was handed over in one call is stored in one pack, wherever packs are cut around it.
func TestCallsAreNotDivided(t *testing.T) {
	log := newChaos(1, 0)
	log.Gate = make(chan struct{})
	pub, err := producers.New(producers.Config{Log: log, Key: key, PackEvents: 8})
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{1, 5, 4, 3, 1, 12, 2, 7, 7} // 12 is more than a pack holds by itself
	for call, n := range sizes {
		var events []schema.Event
		for range n {
			events = append(events, schema.Event{Type: schema.TypeTextDelta, Payload: []byte(`{"text":"x"}`),
				Cause: fmt.Sprint(call)})
		}
		if _, err := pub.Publish(t.Context(), events...); err != nil {
			t.Fatal(err)
		}
	}
	close(log.Gate)
	if err := pub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	packOf, packs := make(map[string]schema.Seq), 0
	for p, err := range log.Since(t.Context(), key, 0) {
		if err != nil {
			t.Fatal(err)
		}
		packs++
		for r := range p.Records(0) {
			e, err := r.Event()
			if err != nil {
				t.Fatal(err)
			}
			if first, known := packOf[e.Cause]; known && first != p.First {
				t.Fatalf("call %s is in packs %d and %d", e.Cause, first, p.First)
			}
			packOf[e.Cause] = p.First
		}
	}
	if len(packOf) != len(sizes) || packs < 5 || packs > 8 {
		t.Fatalf("%d calls in %d packs", len(packOf), packs)
	}
}
