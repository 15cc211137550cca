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

// memoryKeys keeps idempotency keys in memory and loses answers on request.
type memoryKeys struct {
	mu      sync.Mutex
	records map[string]producers.KeyRecord
	lossy   bool
	n       int
}

func (k *memoryKeys) Claim(_ context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == nil {
		k.records = make(map[string]producers.KeyRecord)
	}
	k.n++
	if have, ok := k.records[id]; ok {
		return have, nil
	}
	k.records[id] = r
	if k.lossy && k.n%2 == 0 {
		return r, producers.ErrUnavailable
	}
	return r, nil
}

func (k *memoryKeys) Finish(_ context.Context, id string, r producers.KeyRecord) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n++; k.lossy && k.n%3 != 0 {
		return producers.ErrUnavailable
	}
	k.records[id] = r
	return nil
}

func batch(who string, from, n int, lanes ...string) []schema.Event {
	events := make([]schema.Event, n)
	for i := range events {
		lane := ""
		if len(lanes) > 0 {
			lane = lanes[i%len(lanes)]
		}
		events[i] = text(lane, fmt.Sprintf("%s:%d", who, from+i))
	}
	return events
}

// Every request is repeated with its key until one answer says yes: on a log that loses answers, on
// two nodes at once, given up in the middle by deadlines. Each is stored once.
func TestKeyedAppendsUnderFaults(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			log := newChaos(seed, 0.3)
			keys := &memoryKeys{lossy: true}
			var wg sync.WaitGroup
			for c := range 3 {
				wg.Go(func() { keyedClient(t, log, keys, fmt.Sprintf("c%d", c)) })
			}
			wg.Wait()
			log.DeliverLate()
			checkRun(t, log.Log, key, map[string]int{"c0": 50, "c1": 50, "c2": 50})
		})
	}
}

func keyedClient(t *testing.T, log producers.Log, keys producers.Keys, who string) {
	nodes := make([]*producers.Appender, 2)
	for i := range nodes {
		nodes[i], _ = producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
	}
	for i := range 10 {
		events := batch(who, i*5, 5, "", who)
		opt := producers.AppendOptions{IdempotencyKey: fmt.Sprintf("%s-%d", who, i)}
		var answer producers.Receipt
		for try := 0; answer.Last == 0; try++ {
			if try == 1000 {
				t.Errorf("%s: batch %d never got through", who, i)
				return
			}
			answer = both(nodes, events, opt)
		}
		again, err := nodes[i%2].Append(t.Context(), key, events, opt)
		for errors.Is(err, producers.ErrUnavailable) {
			again, err = nodes[i%2].Append(t.Context(), key, events, opt)
		}
		if err != nil || again.First != answer.First || again.Last != answer.Last || !again.Replayed {
			t.Errorf("%s: batch %d answered %+v, then %+v %v", who, i, answer, again, err)
		}
	}
}

// both sends one request to two nodes at once, each with a deadline that may cut it.
func both(nodes []*producers.Appender, events []schema.Event, opt producers.AppendOptions) (r producers.Receipt) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, a := range nodes {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(20+30*i)*time.Millisecond)
			defer cancel()
			if got, err := a.Append(ctx, key, events, opt); err == nil {
				mu.Lock()
				r = got
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return r
}

func TestSixteenAppendersOnOneRun(t *testing.T) {
	log := memory.New()
	acked := make(map[string]int)
	var wg sync.WaitGroup
	for w := range 16 {
		who := fmt.Sprintf("w%d", w)
		acked[who] = 100
		wg.Go(func() {
			a, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
			for i := range 50 {
				if _, err := a.Append(t.Context(), key, batch(who, 2*i, 2), producers.AppendOptions{}); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
		})
	}
	wg.Wait()
	checkRun(t, log, key, acked)
}

func TestAppendRefusals(t *testing.T) {
	log := memory.New()
	keys := &memoryKeys{}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
	ctx := t.Context()
	seq := func(n schema.Seq) []schema.Event {
		return []schema.Event{{Type: schema.TypeTextDelta, Seq: n, Payload: []byte(`{"text":"x:0"}`)}}
	}
	if _, err := a.Append(ctx, key, batch("w", 0, 3), producers.AppendOptions{IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	many := batch("x", 0, schema.MaxPackEvents+1)
	many[0].Seq = 4
	for name, c := range map[string]struct {
		events []schema.Event
		opt    producers.AppendOptions
		want   error
	}{
		"number taken":      {seq(3), producers.AppendOptions{}, schema.ErrSeqMismatch},
		"number too far":    {seq(5), producers.AppendOptions{}, schema.ErrSeqMismatch},
		"run exists":        {batch("x", 0, 1), producers.AppendOptions{MustBeNew: true}, producers.ErrExists},
		"key, other body":   {batch("x", 0, 1), producers.AppendOptions{IdempotencyKey: "k"}, producers.ErrKeyReused},
		"no events":         {nil, producers.AppendOptions{}, schema.ErrMalformed},
		"numbered, too big": {many, producers.AppendOptions{}, schema.ErrTooLarge},
	} {
		if _, err := a.Append(ctx, key, c.events, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := a.Append(ctx, key, seq(4), producers.AppendOptions{}); err != nil || r.First != 4 {
		t.Errorf("right number: %+v %v", r, err)
	}
	// A batch is refused as a whole when one of its events cannot follow the others.
	bad := []schema.Event{
		{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)}, text("", "x:1"),
	}
	if _, err := a.Append(ctx, key, bad, producers.AppendOptions{}); !errors.Is(err, schema.ErrEnded) {
		t.Errorf("event behind the end: %v", err)
	}
	if head, _ := log.Head(ctx, key, ""); head.Last != 4 {
		t.Errorf("refused requests stored something: %d", head.Last)
	}
}

// A run that the log has forgotten goes on where the archive says it was.
func TestRunThatTheLogHasForgotten(t *testing.T) {
	log := memory.New()
	old := schema.Head{Last: 41, LastID: "evt_01HZZZZZZZZZZZZZZZZZZZZZZZ", Day: "20260514", State: schema.StatePaused}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: log, Archive: archived{old}})
	r, err := a.Append(t.Context(), key, batch("w", 0, 1), producers.AppendOptions{})
	if err != nil || r.First != 42 {
		t.Fatalf("%+v %v", r, err)
	}
	head, _ := log.Head(t.Context(), key, "")
	if head.Day != "20260514" || head.LastID <= old.LastID {
		t.Fatalf("head %+v", head)
	}
}

type archived struct{ head schema.Head }

func (a archived) Head(context.Context, schema.RunKey, string) (schema.Head, error) {
	return a.head, nil
}

// A lane whose last pack has left the log's window, in a run that goes on: its owner stays its
// owner, and a new owner goes on from the epoch that the archive knows.
func TestLaneThatTheLogHasForgotten(t *testing.T) {
	log := &forgetful{Log: memory.New()}
	owner, _ := producers.New(producers.Config{Log: log, Key: key})
	if _, err := owner.Append(t.Context(), text("c", "c:0"), text("", "r:0")); err != nil {
		t.Fatal(err)
	}
	log.lane = "c"
	other, _ := producers.New(producers.Config{Log: log, Key: key, Shared: true})
	if _, err := other.Append(t.Context(), text("", "o:0")); err != nil { // makes the owner look again
		t.Fatal(err)
	}
	if _, err := owner.Append(t.Context(), text("c", "c:1")); err != nil {
		t.Fatalf("the owner was fenced by nobody: %v", err)
	}
	old := schema.Head{Last: 2, Day: "20260514", Lane: schema.Lane{Owner: "w", Epoch: 6}}
	young, _ := producers.New(producers.Config{Log: log, Key: key, Archive: archived{old}})
	if _, err := young.Append(t.Context(), text("c", "y:0")); err != nil {
		t.Fatal(err)
	}
	log.lane = "-"
	if head, _ := log.Head(t.Context(), key, "c"); head.Lane.Epoch != 7 {
		t.Fatalf("new owner's epoch is %d", head.Lane.Epoch)
	}
	if _, err := owner.Append(t.Context(), text("c", "c:2")); !errors.Is(err, producers.ErrFenced) {
		t.Fatalf("the former owner got %v", err)
	}
}

// forgetful does not know the owner of one lane.
type forgetful struct {
	*memory.Log
	lane string
}

func (f *forgetful) Head(ctx context.Context, k schema.RunKey, lane string) (schema.Head, error) {
	head, err := f.Log.Head(ctx, k, lane)
	if lane == f.lane {
		head.Lane = schema.Lane{}
	}
	return head, err
}

// What an appender remembers of a run saves reads and decides nothing: others write in between, end
// the run and open it again, and every answer is the one that a node without a memory would give.
func TestWhatIsRememberedDecidesNothing(t *testing.T) {
	log := &counting{Log: memory.New()}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
	b, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
	add := func(on *producers.Appender, want error, events ...schema.Event) {
		t.Helper()
		if _, err := on.Append(t.Context(), key, events, producers.AppendOptions{}); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	life := func(state string) schema.Event {
		return schema.Event{Type: schema.TypeRunLifecycle, Payload: fmt.Appendf(nil, `{"state":%q}`, state)}
	}
	for i := range 10 {
		add(a, nil, text("", fmt.Sprintf("a:%d", i)))
	}
	if log.heads != 1 {
		t.Fatalf("%d reads for ten appends in a row", log.heads)
	}
	add(b, nil, text("", "b:0"), life("done"))
	add(a, schema.ErrEnded, text("", "a:10")) // a remembers a run that goes on
	add(b, nil, life("running"))
	add(a, nil, text("", "a:10")) // a remembers a run that has ended
	add(b, nil, text("", "b:1"))
	numbered := text("", "a:11")
	numbered.Seq = 16 // right, though a remembers a shorter run
	add(a, nil, numbered)
	checkRun(t, log.Log, key, map[string]int{"a": 12, "b": 2})
}

// counting counts reads of the head.
type counting struct {
	*memory.Log
	heads int
}

func (c *counting) Head(ctx context.Context, k schema.RunKey, lane string) (schema.Head, error) {
	c.heads++
	return c.Log.Head(ctx, k, lane)
}
