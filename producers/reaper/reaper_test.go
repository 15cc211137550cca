package reaper_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/producers/producerstest"
	"agentstream/producers/reaper"
	"agentstream/schema"
)

// Short names of the test kit.
var (
	newChaos   = producerstest.NewFaultyLog
	key        = producerstest.Key
	text       = producerstest.Text
	stateEvent = producerstest.State
	writerOf   = producerstest.Open
	put        = producerstest.Put
	tell       = producerstest.Post
	types      = producerstest.Types
)

// world is what a reaper looks at: a log in memory, who answers, and when what was stored.
type world struct {
	*memory.Log
	mu     sync.Mutex
	there  map[string]bool // owners that answer
	asked  []string
	stored time.Time // of the newest event, by the log's clock
	broken error     // nobody knows who is there
	onAsk  func()
}

func newWorld() *world {
	return &world{Log: memory.New(), there: make(map[string]bool), stored: time.Now()}
}

func (w *world) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	at, err := w.Log.Append(ctx, p, after)
	if err == nil {
		w.mu.Lock()
		w.stored = time.Now()
		w.mu.Unlock()
	}
	return at, err
}

func (w *world) Ask(_ context.Context, _ schema.RunKey, owner string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, owner)
	if w.onAsk != nil {
		w.onAsk()
	}
	return w.there[owner], w.broken
}

func (w *world) Newest(ctx context.Context, key schema.RunKey) (schema.Seq, time.Time, error) {
	head, err := w.Head(ctx, key, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	return head.Last, w.stored, err
}

func (w *world) Quiet(context.Context, time.Time) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		_ = yield(schema.RunKey{Tenant: "acme", Run: "run_unknown"}, nil) && yield(key, nil)
	}
}

func (w *world) reaper(t *testing.T, reaped *int) *reaper.Reaper {
	t.Helper()
	r, err := reaper.New(reaper.Config{Log: w, Lister: w, Witness: w, Reasons: producers.Reasons{Timeout: "late"},
		Hooks: reaper.Hooks{
			Reaped: func(schema.RunKey, bool) { w.mu.Lock(); *reaped++; w.mu.Unlock() },
			Failed: func(err error) { t.Log(err) },
		}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leave lets an agent say half of something and go.
func leave(t *testing.T, w *world) *producers.Publisher {
	t.Helper()
	pub := writerOf(t, w)
	put(t, pub, stateEvent(schema.StateRunning),
		schema.Event{Type: schema.TypeMessageStart, Payload: []byte(`{"message_id":"m1","role":"assistant"}`)},
		text("", "half of"))
	return pub
}

// How long which run may be silent, and who is asked.
func TestReaperPatience(t *testing.T) {
	owned := func(t *testing.T, w *world) { leave(t, w) }
	alive := func(t *testing.T, w *world) { w.there[leave(t, w).WriterID()] = true }
	unowned := func(t *testing.T, w *world) { tell(t, w, "", schema.TypeRunLifecycle, `{"state":"running"}`) }
	over := func(t *testing.T, w *world) { put(t, leave(t, w), stateEvent(schema.StateDone)) }
	unclear := func(t *testing.T, w *world) { leave(t, w); w.broken = errors.New("cut off") }
	child := func(t *testing.T, w *world) { // the run's own process is gone, its child's is there
		put(t, leave(t, w), schema.Event{Type: schema.TypeChildSpawn, Payload: []byte(`{"child_id":"c1"}`)})
		other := writerOf(t, w)
		put(t, other, text("c1", "x"))
		w.there[other.WriterID()] = true
	}
	session := func(t *testing.T, w *world) { // in which everything that was said is answered
		tell(t, w, "", schema.TypeSessionCreated, `{}`)
		put(t, writerOf(t, w), schema.Event{Type: schema.TypeTurnStart, Payload: []byte(`{"turn_id":"t1"}`)},
			schema.Event{Type: schema.TypeTurnEnd, Payload: []byte(`{"turn_id":"t1"}`)})
	}
	cut := func(t *testing.T, w *world) {
		session(t, w)
		put(t, writerOf(t, w), schema.Event{Type: schema.TypeTurnStart, Payload: []byte(`{"turn_id":"t2"}`)})
	}
	archived := func(t *testing.T, w *world) { // whose agent is gone
		session(t, w)
		tell(t, w, "", "command.cancel", `{}`)
		tell(t, w, "", schema.TypeSessionArchived, `{}`)
	}
	archivedThere := func(t *testing.T, w *world) { // whose agent is there
		tell(t, w, "", schema.TypeSessionCreated, `{}`)
		pub := writerOf(t, w)
		put(t, pub, text("", "x"))
		w.there[pub.WriterID()] = true
		tell(t, w, "", schema.TypeSessionArchived, `{}`)
	}
	archivedCut := func(t *testing.T, w *world) { cut(t, w); tell(t, w, "", schema.TypeSessionArchived, `{}`) }
	deleted := func(t *testing.T, w *world) { session(t, w); tell(t, w, "", schema.TypeSessionDeleted, `{}`) }
	thread := func(t *testing.T, w *world) { session(t, w); tell(t, w, "c1", schema.TypeSessionArchived, `{}`) }
	plain := func(t *testing.T, w *world) { // a run that was not made as a session
		put(t, writerOf(t, w), stateEvent(schema.StateRunning))
		tell(t, w, "", schema.TypeSessionArchived, `{}`)
	}
	for name, c := range map[string]struct {
		begin  func(*testing.T, *world)
		silent time.Duration
		want   int
		state  schema.RunState
	}{
		"owner gone":          {owned, 6 * time.Minute, 1, schema.StateError},
		"owner gone, early":   {owned, 4 * time.Minute, 0, schema.StateRunning},
		"owner there":         {alive, 100 * time.Hour, 0, schema.StateRunning},
		"nobody can be asked": {unowned, 25 * time.Hour, 1, schema.StateError},
		"nobody, early":       {unowned, 23 * time.Hour, 0, schema.StateRunning},
		"over":                {over, 100 * time.Hour, 0, schema.StateDone},
		"nobody knows":        {unclear, 100 * time.Hour, 0, schema.StateRunning},
		"session at rest":     {session, 100 * time.Hour, 0, ""},
		"session in a turn":   {cut, 6 * time.Minute, 1, schema.StateError},
		"archived":            {archived, 6 * time.Minute, 1, schema.StateDone},
		"archived, early":     {archived, 4 * time.Minute, 0, ""},
		"archived, there":     {archivedThere, 100 * time.Hour, 0, ""},
		"archived in a turn":  {archivedCut, 6 * time.Minute, 1, schema.StateError},
		"archived, plain":     {plain, 6 * time.Minute, 1, schema.StateDone},
		"thread archived":     {thread, 100 * time.Hour, 0, ""},
		"deleted":             {deleted, 6 * time.Minute, 1, schema.StateDone},
		"child's owner there": {child, 100 * time.Hour, 0, schema.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, reaped := newWorld(), 0
				c.begin(t, w)
				r := w.reaper(t, &reaped)
				time.Sleep(c.silent)
				for range 2 { // the second finds it as the first has left it
					if err := r.Round(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				head, err := w.Head(t.Context(), key, "")
				if err != nil || head.State != c.state || reaped != c.want {
					t.Fatalf("%s, %d reaped, %v", head.State, reaped, err)
				}
			})
		})
	}
}

// A session that rested, and in which an agent then left a turn open, is ended.
func TestReaperAndASessionThatWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reaped := newWorld(), 0
		tell(t, w, "", schema.TypeSessionCreated, `{}`)
		r := w.reaper(t, &reaped)
		for _, want := range []int{0, 0, 1} {
			time.Sleep(25 * time.Hour)
			if want == 1 {
				put(t, writerOf(t, w), schema.Event{Type: schema.TypeTurnStart, Payload: []byte(`{"turn_id":"t1"}`)})
				time.Sleep(10 * time.Minute)
			}
			if err := r.Round(t.Context()); err != nil || reaped != want {
				t.Fatalf("%d reaped, want %d, %v", reaped, want, err)
			}
		}
	})
}

// A session that rested and is archived then is ended, marked so that nobody is shown it.
func TestReaperAndASessionThatIsArchived(t *testing.T) {
	for typ, why := range map[string]string{schema.TypeSessionArchived: "archived", schema.TypeSessionDeleted: "deleted"} {
		synctest.Test(t, func(t *testing.T) {
			w, reaped := newWorld(), 0
			tell(t, w, "", schema.TypeSessionCreated, `{}`)
			r := w.reaper(t, &reaped)
			for _, want := range []int{0, 0, 1, 1} {
				time.Sleep(25 * time.Hour)
				if want == 1 && reaped == 0 {
					tell(t, w, "", typ, `{}`)
					time.Sleep(25 * time.Hour)
				}
				if err := r.Round(t.Context()); err != nil || reaped != want {
					t.Fatalf("%d reaped, want %d, %v", reaped, want, err)
				}
			}
			var last schema.Event
			for p := range w.Since(t.Context(), key, 0) {
				for r := range p.Records(0) {
					last, _ = r.Event()
				}
			}
			if string(last.Payload) != `{"state":"done","reason":"`+why+`","session":true}` || last.Actor != "system" {
				t.Fatalf("%s by %s", last.Payload, last.Actor)
			}
		})
	}
}

// What is left of a run is closed in order, and its writer is fenced.
func TestReaperEndsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reaped := newWorld(), 0
		pub := leave(t, w)
		put(t, pub, schema.Event{Type: schema.TypeChildSpawn, Payload: []byte(`{"child_id":"c1"}`)}, text("c1", "x"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.reaper(t, &reaped).Run(ctx) }()
		time.Sleep(8 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		got := strings.Join(types(t, w), " ")
		want := "run.lifecycle message.start text.delta child.spawn text.delta commands.taken run.lifecycle block.end message.end run.lifecycle"
		if got != want || reaped != 1 {
			t.Fatalf("%d reaped: %s", reaped, got)
		}
		var last schema.Event
		for p := range w.Since(t.Context(), key, 0) {
			for r := range p.Records(0) {
				last, _ = r.Event()
			}
		}
		if string(last.Payload) != `{"state":"error","reason":"writer is gone"}` || last.Actor != "system" {
			t.Fatalf("%s by %s", last.Payload, last.Actor)
		}
		for _, lane := range []string{"", "c1"} {
			if _, err := pub.Append(t.Context(), text(lane, "more")); !errors.Is(err, producers.ErrFenced) {
				t.Fatalf("the writer is not fenced: %v", err)
			}
		}
	})
}

// A writer that speaks while it is being judged is left alone, whenever it speaks.
func TestReaperLeavesAloneWhoSpeaks(t *testing.T) {
	for _, nth := range []int{1, 3} {
		for _, children := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w, reaped, asks := newWorld(), 0, 0
				pub := leave(t, w)
				if children {
					put(t, pub, text("c1", "x"))
				}
				w.onAsk = func() {
					if asks++; asks == nth {
						w.mu.Unlock()
						put(t, pub, text("", "more"))
						w.mu.Lock()
					}
				}
				r := w.reaper(t, &reaped)
				time.Sleep(6 * time.Minute)
				if err := r.Round(t.Context()); err != nil {
					t.Fatal(err)
				}
				if head, err := w.Head(t.Context(), key, ""); err != nil || head.State != schema.StateRunning ||
					reaped != 0 || asks < nth {
					t.Fatalf("%s, %d reaped, %d asks, %v", head.State, reaped, asks, err)
				}
				put(t, pub, text("", "and more"))
			})
		}
	}
}

// speaksAt lets a writer speak when an ending is about to be stored.
type speaksAt struct {
	*world
	once sync.Once
	say  func()
}

func (s *speaksAt) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	s.once.Do(s.say)
	return s.world.Append(ctx, p, after)
}

// At the very last moment it is the compare-and-set that decides.
func TestReaperIsRefusedAtTheLastMoment(t *testing.T) {
	for _, children := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, reaped := newWorld(), 0
			pub := leave(t, w)
			if children {
				put(t, pub, text("c1", "x"))
			}
			late := &speaksAt{world: w, say: func() { put(t, pub, text("", "more")) }}
			r, err := reaper.New(reaper.Config{Log: late, Lister: w, Witness: w,
				Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { reaped++ }}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Minute)
			if err := r.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			put(t, pub, text("", "and more"))
			if got := fmt.Sprint(types(t, w)); reaped != 0 || strings.Contains(got, "taken") ||
				strings.Contains(got, "message.end") {
				t.Fatalf("%d reaped: %s", reaped, got)
			}
		})
	}
}

// Two reapers at once end a run once, and a run is ended under a log that fails.
func TestReapersAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w, reaped := newWorld(), 0
			put(t, leave(t, w), text("c1", "x"), text("c2", "x"))
			time.Sleep(6 * time.Minute)
			bad := newChaos(seed, 0.2)
			bad.Log = w.Log
			var group sync.WaitGroup
			for range 3 {
				r, err := reaper.New(reaper.Config{Log: bad, Lister: w, Witness: w,
					Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { w.mu.Lock(); reaped++; w.mu.Unlock() }}})
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() {
					for range 10 {
						if err := r.Round(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			got := types(t, w)
			finals := 0
			for _, typ := range got {
				if typ == schema.TypeRunLifecycle {
					finals++
				}
			}
			if head, err := w.Head(t.Context(), key, ""); err != nil || head.State != schema.StateError ||
				reaped != 1 || finals != 4 {
				t.Fatalf("seed %d: %s, %d reaped, %v: %v", seed, head.State, reaped, err, got)
			}
		})
	}
}

// A run whose beginning, or all of it, has left the window is ended with what the archive knows of it.
func TestReaperOfOldRuns(t *testing.T) {
	for _, all := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, past, reaped := newWorld(), memory.New(), 0
			pub := leave(t, w)
			put(t, pub, text("", " a thought"))
			for p := range w.Since(t.Context(), key, 0) {
				if _, err := past.Append(t.Context(), &p, p.Head.Stored-1); err != nil {
					t.Fatal(err)
				}
			}
			if w.Expire(key, 3); all {
				w.Expire(key, 4)
			}
			r, err := reaper.New(reaper.Config{Log: w, Lister: w, Witness: w, Archive: past, Past: past,
				Hooks: reaper.Hooks{Reaped: func(schema.RunKey, bool) { reaped++ }, Failed: func(err error) { t.Error(err) }}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Hour)
			if err := r.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(types(t, w), " ")
			if reaped != 1 || !strings.HasSuffix(got, "block.end message.end run.lifecycle") {
				t.Fatalf("%d reaped: %s", reaped, got)
			}
		})
	}
}

// quiet lists runs.
type quiet []schema.RunKey

func (q quiet) Quiet(context.Context, time.Time) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		for _, key := range q {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Feeds never end, however long nobody feeds them; a run beside them whose id only looks like theirs does.
func TestReaperLeavesFeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		app, err := producers.NewAppender(producers.AppenderConfig{Log: w})
		if err != nil {
			t.Fatal(err)
		}
		var list quiet
		feeds := schema.Feeds{Prefix: "feed-", Is: func(run string) bool { return run != "feed-other" }}
		for _, run := range []string{"feed-account", "feed-message-00ff", "feed-other", "feeds"} {
			list = append(list, schema.RunKey{Tenant: "acme", Run: run})
			event := schema.Event{Type: "custom.x", Payload: []byte(`{}`)}
			if err := event.Prepare(run); err != nil {
				t.Fatal(err)
			}
			if _, err := app.Append(t.Context(), list[len(list)-1], []schema.Event{event},
				producers.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var (
			mu    sync.Mutex
			ended []string
		)
		r, err := reaper.New(reaper.Config{Log: w, Lister: list, Witness: w, Feeds: feeds,
			Hooks: reaper.Hooks{Reaped: func(key schema.RunKey, _ bool) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, key.Run)
			}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * 24 * time.Hour)
		err = r.Round(t.Context())
		slices.Sort(ended)
		if err != nil || !slices.Equal(ended, []string{"feed-other", "feeds"}) {
			t.Errorf("%v, %v", ended, err)
		}
	})
}

// A run that is answered once is ended when its deadline has passed, whether anybody has begun it or not.
func TestReaperAndDeadlines(t *testing.T) {
	const created = `{"once":true,"deadlines":{"first_ms":60000,"idle_ms":30000,"total_ms":900000}}`
	for name, begun := range map[string]bool{"nobody came": false, "silent": true} {
		synctest.Test(t, func(t *testing.T) {
			w, reaped := newWorld(), 0
			tell(t, w, "", schema.TypeSessionCreated, created)
			tell(t, w, "", schema.TypeCommandMessage, `{"content":"hello"}`)
			reason := "late: no delta within 1m0s"
			if begun {
				pub := writerOf(t, w)
				put(t, pub, schema.Event{Type: schema.TypeTurnStart, Payload: []byte(`{"turn_id":"t1"}`)})
				head, err := w.Head(t.Context(), key, "")
				if err != nil {
					t.Fatal(err)
				}
				w.there[head.Lane.Owner] = true
				time.Sleep(50 * time.Second)
				put(t, pub, text("", "half"))
				reason = "late: no delta for 30s"
			}
			r := w.reaper(t, &reaped)
			for i, want := range []int{0, 1, 1} {
				time.Sleep(time.Duration(5+i*60) * time.Second)
				if err := r.Round(t.Context()); err != nil || reaped != want {
					t.Fatalf("%s: round %d: %d reaped, want %d, %v", name, i, reaped, want, err)
				}
			}
			var last schema.Event
			for p := range w.Since(t.Context(), key, 0) {
				for r := range p.Records(0) {
					last, _ = r.Event()
				}
			}
			if string(last.Payload) != `{"state":"error","reason":"`+reason+`"}` {
				t.Fatalf("%s: %s %s", name, last.Type, last.Payload)
			}
		})
	}
}

// TestReaperLeavesWhoWaitsForSomebody: a run that waits for a person is never ended for its silence, whoever its writer
// was; one that was answered, told to go on or told to cancel is.
func TestReaperLeavesWhoWaitsForSomebody(t *testing.T) {
	type said struct{ child, typ, payload string }
	state := func(child, s string) said { return said{child, schema.TypeRunLifecycle, `{"state":"` + s + `"}`} }
	running := state("", "running")
	plan := said{"", schema.TypePlanProposal, `{"plan":{"id":"p","steps":[]},"planning_gate":"required"}`}
	asks := said{"", schema.TypeInputRequested, `{"request_id":"q"}`}
	again := said{"", schema.TypeInputRequested, `{"request_id":"q","prompt":"Which of them?"}`}
	turn := said{"", schema.TypeTurnStart, `{"turn_id":"t2"}`}
	call := said{"", schema.TypeToolStart, `{"call_id":"c","tool":"x","input":{},"permission":"ask"}`}
	for name, c := range map[string]struct {
		log  []said
		left bool
	}{
		"asks":        {[]said{running, asks}, true},
		"a call asks": {[]said{running, call}, true},
		"a child asks": {[]said{running, state("kid", "running"),
			{"kid", schema.TypeInputRequested, `{"request_id":"q"}`}}, true},
		"paused":            {[]said{running, state("", "paused")}, true},
		"a child is paused": {[]said{running, state("kid", "paused")}, true},
		"awaits approval":   {[]said{plan, state("", "awaiting_approval")}, true},
		"asks behind its turn": {[]said{running, asks,
			{"", schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"interrupted"}`}}, true},
		"asks something else":        {[]said{running, asks, {"", "command.answer", `{"request_id":"q"}`}, again}, true},
		"asks again in another turn": {[]said{running, asks, {"", "command.answer", `{"request_id":"q"}`}, turn, asks}, true},
		"a question comes twice":     {[]said{running, asks, {"", "command.answer", `{"request_id":"q"}`}, asks}, false},
		"runs":                       {[]said{running}, false},
		"was answered":               {[]said{running, asks, {"", "command.answer", `{"request_id":"q"}`}}, false},
		"asks, and was told to stop": {[]said{running, asks, {"", "command.cancel", `{}`}}, false},
		"asked in a cancelled turn": {[]said{running, asks,
			{"", schema.TypeTurnEnd, `{"turn_id":"t","stop_reason":"cancelled"}`}}, false},
		"paused, told to resume": {[]said{running, state("", "paused"), {"", "command.resume", `{}`}}, false},
		"paused, told to cancel": {[]said{running, state("", "paused"), {"", "command.cancel", `{}`}}, false},
		"approved": {[]said{plan, state("", "awaiting_approval"),
			{"", "command.approve_plan", `{"plan_id":"p"}`}}, false},
		"a child that asked is over": {[]said{running, {"kid", schema.TypeInputRequested, `{"request_id":"q"}`},
			state("kid", "done")}, false},
	} {
		for _, owned := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w, reaped := newWorld(), 0
				if owned {
					put(t, writerOf(t, w), stateEvent(schema.StateRunning))
				}
				for _, s := range c.log {
					tell(t, w, s.child, s.typ, s.payload)
				}
				r := w.reaper(t, &reaped)
				for range 3 {
					time.Sleep(100 * time.Hour)
					if err := r.Round(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if want := map[bool]int{true: 0, false: 1}[c.left]; reaped != want {
					t.Errorf("%s, owned %v: ended %d times, want %d", name, owned, reaped, want)
				}
			})
		}
	}
}
